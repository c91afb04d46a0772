//! `calibration.json`: how far this machine's client is from what a server really did, at several numbers of streams.
//!
//! Errors are stamp minus ledger, in microseconds; the ledger's instant is the one right before the send call that
//! carried the event's last byte. What is missing is `null`. The errors are taken by `audit`; here they get their form,
//! [their table](table), and [their place](lookup), where later runs find them. Whether a figure keeps what is promised
//! is [`promise`]'s.

pub mod lookup;
pub mod promise;
pub mod table;

use serde::{Deserialize, Serialize};

use crate::aggregate::summary::Spread;
use crate::audit::{Budget, Deviation};
use crate::report::document::finite;
use crate::report::document::instrument::InstrumentDoc;
use crate::report::document::provenance::{HostDoc, ToolDoc};
use crate::report::host::{Host, Tool};
use crate::report::validity::Verdict;
use crate::units::{PerSecond, UnixNanos, calendar};

/// Name and version of the document, `hammerscale.calibration/MAJOR.MINOR`. A minor version only adds keys; readers
/// ignore keys they do not know.
///
/// * 1.0: the first one.
pub const SCHEMA: &str = "hammerscale.calibration/1.0";

/// The file's name in the directory of a calibration.
pub const FILE_NAME: &str = "calibration.json";

/// A rate counts as held from this share of what was asked for on: a hundredth less is within what the start and the end
/// of a few seconds cost, and what saturates a sender costs far more.
pub const HELD_SHARE: f64 = 0.99;

/// The document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CalibrationDoc {
    /// [`SCHEMA`].
    pub schema: String,
    /// When it was finished, in UTC.
    pub created_at: String,
    /// The program.
    pub tool: ToolDoc,
    /// The machine.
    pub host: HostDoc,
    /// Which cores did what.
    pub cores: CoresDoc,
    /// Mean length of an output event on the wire, chunk framing included; `null` without events.
    pub event_bytes: Option<f64>,
    /// One per number of streams, in the order asked for.
    pub rows: Vec<RowDoc>,
    /// The highest rate that was held; `null` when none was.
    pub ceiling: Option<CeilingDoc>,
}

/// Which cores did what. The two lists share cores where the machine has too few.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoresDoc {
    /// The workers'.
    pub client: Vec<u32>,
    /// The simulator's, which the collector and the rest of the client use too.
    pub server: Vec<u32>,
}

/// One number of streams.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RowDoc {
    /// Streams at a time.
    pub streams: u64,
    /// Output events that client and ledger both have.
    pub events: u64,
    /// Output events per second over all streams, asked of the simulator.
    pub event_rate_asked: f64,
    /// The same as it was really sent while the streams were open; `null` where no stream had two events.
    pub event_rate_held: Option<f64>,
    /// Kernel stamps of events that end their reads: size of the error.
    pub kernel_us: ErrorDoc,
    /// User-space stamps of the same events: size of the error.
    pub user_us: ErrorDoc,
    /// Time to first output: error with its sign.
    pub ttft_bias_us: BiasDoc,
    /// Gaps between output chunks that both end their reads: error with its sign.
    pub gap_bias_us: BiasDoc,
    /// Gaps of next to nothing that the ledger does not have.
    pub false_zero_gaps: u64,
    /// From the end of a request to the start of the next one on its connection; `null` where no connection carried
    /// more than two.
    pub send_lag_us: Option<LagDoc>,
    /// Processor time of the workers' threads per output event.
    pub cpu_us_per_event: Option<f64>,
    /// Share of output chunks that share a read with an earlier one.
    pub coalesced_share: Option<f64>,
    /// Records that were lost.
    pub ring_drops: u64,
    /// `valid`, `suspect` or `invalid`.
    pub verdict: String,
}

/// Sizes of errors.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct ErrorDoc {
    /// How many.
    pub count: u64,
    /// Median.
    pub p50: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// 99.9th percentile.
    pub p99_9: Option<f64>,
    /// The largest.
    pub max: Option<f64>,
}

/// Errors with their signs.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct BiasDoc {
    /// Mean.
    pub mean: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
}

/// How late requests were sent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LagDoc {
    /// Median.
    pub p50: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// 99.9th percentile.
    pub p99_9: Option<f64>,
}

/// The highest rate that was held with the verdict `valid`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CeilingDoc {
    /// Output events per second.
    pub event_rate: f64,
    /// Over how many streams.
    pub streams: u64,
}

/// What is known of a row.
#[derive(Debug, Clone)]
pub struct RowFacts<'a> {
    /// Streams at a time.
    pub streams: u64,
    /// Output events per second that were asked for.
    pub asked: PerSecond,
    /// And that were sent.
    pub held: Option<PerSecond>,
    /// The client's error.
    pub budget: &'a Budget,
    /// Output chunks that are on both sides.
    pub events: u64,
    /// Client and ledger tell the same story, and all of it is there.
    pub is_sound: bool,
    /// What the run says about its instrument.
    pub instrument: &'a InstrumentDoc,
    /// How late requests followed each other, in microseconds.
    pub send_lag_us: Option<Spread>,
    /// Processor time of the workers per output event, in microseconds.
    pub cpu_us_per_event: Option<f64>,
}

/// What is known of a whole calibration.
#[derive(Debug)]
pub struct CalibrationFacts {
    /// When it was finished.
    pub created: UnixNanos,
    /// The program.
    pub tool: Tool,
    /// The machine.
    pub host: Host,
    /// Which cores did what.
    pub cores: CoresDoc,
    /// Mean length of an output event on the wire.
    pub event_bytes: Option<f64>,
    /// Its rows.
    pub rows: Vec<RowDoc>,
}

impl CalibrationDoc {
    /// The document of a calibration.
    #[must_use]
    pub fn of(facts: CalibrationFacts) -> Self {
        let held = facts.rows.iter().filter(|row| row.is_held() && row.verdict == Verdict::Valid.name());
        let held = held
            .filter_map(|row| Some(CeilingDoc { event_rate: row.event_rate_held?, streams: row.streams }));
        let ceiling = held.max_by(|a, b| a.event_rate.total_cmp(&b.event_rate));
        Self {
            schema: SCHEMA.to_owned(),
            created_at: calendar::rfc3339(facts.created),
            tool: ToolDoc::of(&facts.tool),
            host: HostDoc::of(&facts.host),
            cores: facts.cores,
            event_bytes: facts.event_bytes.and_then(finite),
            rows: facts.rows,
            ceiling,
        }
    }

    /// The document as indented JSON with a final line break.
    ///
    /// # Errors
    /// None that a value of this type can cause; the signature is the serializer's.
    pub fn to_json(&self) -> serde_json::Result<String> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        Ok(text)
    }

    /// The row that says most about this many streams: the one next above, or the largest; of rows that are worth
    /// something.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a number of streams is far below 2^53")]
    pub fn row_for(&self, streams: f64) -> Option<&RowDoc> {
        let sound =
            || self.rows.iter().filter(|row| row.events > 0 && row.verdict != Verdict::Invalid.name());
        let above = sound().filter(|row| row.streams as f64 >= streams).min_by_key(|row| row.streams);
        above.or_else(|| sound().max_by_key(|row| row.streams))
    }
}

impl RowDoc {
    /// The row of what was measured.
    #[must_use]
    pub fn of(facts: &RowFacts<'_>) -> Self {
        let RowFacts { budget, instrument, .. } = facts;
        // A story that the two sides tell differently is worth nothing, however good the clock was.
        let verdict = if facts.is_sound { instrument.verdict.as_str() } else { Verdict::Invalid.name() };
        Self {
            streams: facts.streams,
            events: facts.events,
            event_rate_asked: facts.asked.0,
            event_rate_held: facts.held.and_then(|rate| finite(rate.0)),
            kernel_us: ErrorDoc::of(&budget.kernel),
            user_us: ErrorDoc::of(&budget.user),
            ttft_bias_us: BiasDoc::of(&budget.first_output),
            gap_bias_us: BiasDoc::of(&budget.gaps.error),
            false_zero_gaps: budget.gaps.false_zero_gaps as u64,
            send_lag_us: facts.send_lag_us.as_ref().map(LagDoc::of),
            cpu_us_per_event: facts.cpu_us_per_event.and_then(finite),
            coalesced_share: instrument.coalesced_share,
            ring_drops: instrument.ring_drops,
            verdict: verdict.to_owned(),
        }
    }

    /// Its rate was held and nothing was lost. A client that read late is no reason to measure at a lower rate: how late
    /// is what the row says, and its verdict says so too.
    #[must_use]
    pub fn is_held(&self) -> bool {
        let held = self.event_rate_held.is_some_and(|held| held >= HELD_SHARE * self.event_rate_asked);
        held && self.verdict != Verdict::Invalid.name()
    }
}

impl ErrorDoc {
    fn of(deviation: &Deviation) -> Self {
        let spread = &deviation.magnitude;
        let of = |value: fn(&crate::metrics::Percentiles) -> f64| spread.percentiles_us.as_ref().map(value);
        Self {
            count: spread.count as u64,
            p50: of(|p| p.p50),
            p99: of(|p| p.p99),
            p99_9: of(|p| p.p99_9),
            max: of(|p| p.max),
        }
    }
}

impl BiasDoc {
    fn of(deviation: &Deviation) -> Self {
        let spread = &deviation.signed;
        let percentiles = spread.percentiles_us.as_ref();
        Self { mean: spread.mean_us, p50: percentiles.map(|p| p.p50), p99: percentiles.map(|p| p.p99) }
    }
}

impl LagDoc {
    fn of(spread: &Spread) -> Self {
        let p = &spread.percentiles;
        Self { p50: finite(p.p50), p99: finite(p.p99), p99_9: finite(p.p99_9) }
    }
}

#[cfg(test)]
pub(in crate::report) mod testing {
    use super::*;

    /// A row that keeps every promise.
    pub(in crate::report) fn row(streams: u64) -> RowDoc {
        let bias = BiasDoc { mean: Some(1.8), p50: Some(1.7), p99: Some(3.0) };
        RowDoc {
            streams,
            events: 300_000,
            event_rate_asked: 50_000.0,
            event_rate_held: Some(49_990.0),
            kernel_us: ErrorDoc {
                count: 299_000,
                p50: Some(1.7),
                p99: Some(2.6),
                p99_9: Some(9.5),
                max: Some(81.0),
            },
            user_us: ErrorDoc {
                count: 299_000,
                p50: Some(9.7),
                p99: Some(21.0),
                p99_9: Some(130.0),
                max: Some(1_700.0),
            },
            ttft_bias_us: bias,
            gap_bias_us: BiasDoc { mean: Some(0.0), p50: Some(0.0), p99: Some(1.4) },
            false_zero_gaps: 0,
            send_lag_us: None,
            cpu_us_per_event: Some(2.4),
            coalesced_share: Some(0.0004),
            ring_drops: 0,
            verdict: "valid".to_owned(),
        }
    }

    /// A calibration with these rows.
    pub(in crate::report) fn calibration(rows: Vec<RowDoc>) -> CalibrationDoc {
        CalibrationDoc::of(CalibrationFacts {
            created: UnixNanos::at(1_796_000_000_000_000_000),
            tool: Tool::THIS,
            host: Host::default(),
            cores: CoresDoc { client: vec![1], server: vec![0] },
            event_bytes: Some(212.5),
            rows,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{calibration, row};

    #[test]
    fn the_ceiling_is_the_highest_rate_that_was_held_by_a_valid_client() {
        let (mut fast, mut late, mut poor) = (row(1_000), row(10_000), row(100));
        fast.event_rate_held = Some(49_600.0);
        (late.event_rate_asked, late.event_rate_held) = (400_000.0, Some(250_000.0));
        poor.verdict = "suspect".to_owned();
        poor.event_rate_held = Some(60_000.0);
        let ceiling = calibration(vec![poor.clone(), fast, late.clone()]).ceiling.unwrap();
        assert_eq!((ceiling.event_rate, ceiling.streams), (49_600.0, 1_000));
        assert_eq!(calibration(vec![poor, late]).ceiling, None);
        assert_eq!(calibration(Vec::new()).ceiling, None);
    }

    #[test]
    fn the_row_for_a_run_is_the_next_above_it_or_the_largest() {
        let calibration = calibration(vec![row(1), row(1_000), row(100)]);
        for (streams, expected) in [(1.0, 1), (1.5, 100), (100.0, 100), (101.0, 1_000), (50_000.0, 1_000)] {
            assert_eq!(calibration.row_for(streams).unwrap().streams, expected, "{streams}");
        }
        let mut worthless = calibration;
        worthless.rows[1].verdict = "invalid".to_owned();
        assert_eq!(worthless.row_for(101.0).unwrap().streams, 100);
        worthless.rows.iter_mut().for_each(|row| row.events = 0);
        assert!(worthless.row_for(1.0).is_none());
    }
}
