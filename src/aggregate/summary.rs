//! The summary of a run: rows in, numbers out. Pure, so that a saved run gives the same numbers to the last digit.
//!
//! ```
//! use hammerscale::aggregate::chunk_facts::ChunkFacts;
//! use hammerscale::aggregate::summary::{Facts, Summary};
//! use hammerscale::metrics::rows::Rows;
//!
//! let facts = Facts { planned: 60, asked_concurrency: Some(20), ..Facts::default() };
//! let rows = Rows::new();
//! let nothing = Summary::of(&rows, ChunkFacts::of_rows_alone(&rows, &facts), facts);
//! assert_eq!((nothing.counts.planned, nothing.counts.ok), (60, 0));
//! assert!(nothing.metrics.is_empty() && nothing.spans.is_none());
//! ```
//!
//! The order is: rows of all requests, then [`ChunkFacts::gather`], which goes through the chunks of all requests several
//! times, then [`Summary::of`]. Judging the numbers and writing them down is `report`'s.

use std::borrow::Borrow;

use crate::aggregate::chunk_facts::ChunkFacts;
use crate::aggregate::concurrency::SteadyState;
use crate::aggregate::counts::Counts;
use crate::aggregate::schedule::ScheduleKept;
use crate::aggregate::slots::SlotTime;
use crate::aggregate::slowest::{SlowRequest, slowest};
use crate::aggregate::stream::StreamFacts;
use crate::aggregate::tokens::TokenFacts;
use crate::aggregate::window::Spans;
use crate::metrics::catalog::{CATALOG, Scope};
use crate::metrics::compat::PeerValues;
use crate::metrics::gaps::GapDistribution;
use crate::metrics::rates::RunRates;
use crate::metrics::row::{ReceiveStamps, RequestRow, StampSource};
use crate::metrics::rows::RowSource;
use crate::metrics::{Distribution, MetricId, Percentiles, exact, formula};
use crate::record::Outcome;
use crate::units::Nanos;

/// A read that comes this long after the kernel's stamp of its last bytes may hold what the client merged by being late:
/// three times the 99th percentile of a reader with 1,000 streams.
///
/// The stamp is that of the last bytes, so a client that was away for long shows a short delay where something arrived
/// right before it came back. With events 20 ms apart that hides one such read in two hundred.
pub const LATE_READ: Nanos = Nanos(100_000);

/// What the rows do not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Facts {
    /// Measured requests that the plan asked for.
    pub planned: u64,
    /// Slots of the closed loop; `None` where no concurrency was asked for.
    pub asked_concurrency: Option<u32>,
    /// Requests were to start when a schedule said so.
    pub open_loop: bool,
    /// Instant from which on no request was started, in a run that was stopped before its requests were used up.
    pub stop: Option<Nanos>,
}

/// Everything a document says about what was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Requests by ending.
    pub counts: Counts,
    /// The parts of the run; `None` when nothing was measured.
    pub spans: Option<Spans>,
    /// The span with the asked concurrency; `None` when it was never reached.
    pub steady_state: Option<SteadyState>,
    /// Statistics of the metrics of request scope that have a value, in catalog order.
    pub metrics: Vec<(MetricId, Distribution)>,
    /// Gaps between output chunks.
    pub gaps: GapDistribution,
    /// The same per token, where the server counted the tokens of chunks.
    pub token_gaps: GapDistribution,
    /// What other tools would have reported.
    pub compat: Vec<PeerValues>,
    /// Rates over the window.
    pub rates: RunRates,
    /// Token facts.
    pub tokens: TokenFacts,
    /// What answers looked like on the wire.
    pub stream: StreamFacts,
    /// What the rows say about the instrument itself.
    pub stamps: StampFacts,
    /// The slowest requests, slowest first.
    pub slowest: Vec<SlowRequest>,
    /// Ok requests whose first event announced only a role.
    pub role_chunk_first: u64,
}

/// What rows and chunks say about the instrument itself, over measured requests of any outcome where nothing else is
/// said.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StampFacts {
    /// Requests of which something was received and whose stamps are the kernel's.
    pub kernel_requests: u64,
    /// Requests of which something was received and whose stamps are the user-space clock's.
    pub user_requests: u64,
    /// Requests with kernel stamps whose answers were streamed.
    pub streamed_requests: u64,
    /// Those of them with a stamp of their last byte leaving this host.
    pub transmit_stamps: u64,
    /// User-space stamp minus kernel stamp of every read with output and of every first byte, in microseconds.
    pub read_delay_us: Option<Spread>,
    /// Send start minus due, in microseconds.
    pub send_lag_us: Option<Spread>,
    /// Where the time of the slots went; nowhere in an open loop, whose places wait for the schedule.
    pub slot_time: SlotTime,
    /// How the schedule of an open loop was kept; `None` in a closed one.
    pub schedule: Option<ScheduleKept>,
    /// Output chunks.
    pub output_chunks: u64,
    /// Those that share a read with an earlier one.
    pub coalesced_chunks: u64,
    /// Of these, by the stamps of their reads: how they came to share one.
    pub coalesced: Coalesced,
    /// Requests with a stamp before one that it must follow.
    pub inversions: u64,
    /// Output chunks, of all requests, without a stamp: they did not fit a ring.
    pub missing_chunks: u64,
}

/// Output chunks that share a read with an earlier one, by what their read's delay says. The rest has no kernel stamp, or
/// no stamp at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Coalesced {
    /// Read at once: they were together when they arrived.
    pub sent: u64,
    /// Read more than [`LATE_READ`] after the kernel's stamp: they may have met while the client was busy.
    pub late: u64,
}

/// A population by its order statistics.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// How many values.
    pub count: usize,
    /// Mean.
    pub mean: f64,
    /// Order statistics.
    pub percentiles: Percentiles,
}

impl Summary {
    /// The summary of the run with these rows.
    #[must_use]
    pub fn of(rows: impl RowSource, chunks: ChunkFacts, facts: Facts) -> Self {
        let spans = Spans::of(rows, facts.stop);
        let rates = spans.map(|spans| RunRates::of(rows, spans.window, &chunks.timeline));
        let role_chunk_first = |row: &RequestRow| formula::counts(row) && row.role_chunk_first;
        Self {
            counts: Counts::of(rows, facts.planned),
            spans,
            steady_state: facts.asked_concurrency.and_then(|asked| SteadyState::of(rows, asked)),
            metrics: distributions(rows),
            rates: rates.unwrap_or_default(),
            tokens: TokenFacts::of(rows),
            stream: StreamFacts::of(rows),
            stamps: StampFacts::of(rows, &chunks, facts.open_loop),
            slowest: slowest(rows),
            role_chunk_first: rows.rows().fold(0, |n, row| n + u64::from(role_chunk_first(row.borrow()))),
            gaps: chunks.gaps,
            token_gaps: chunks.token_gaps,
            compat: chunks.compat,
        }
    }

    /// The statistics of one metric; `None` where it has no value.
    #[must_use]
    pub fn metric(&self, id: MetricId) -> Option<&Distribution> {
        let gaps = match id {
            MetricId::InterChunkLatency => &self.gaps,
            MetricId::InterTokenLatency => &self.token_gaps,
            _ => {
                return self.metrics.iter().find(|(own, _)| *own == id).map(|(_, distribution)| distribution);
            }
        };
        Some(&gaps.exact).filter(|d| d.mean.is_some())
    }
}

impl StampFacts {
    fn of(rows: impl RowSource, chunks: &ChunkFacts, open_loop: bool) -> Self {
        let slot_time = if open_loop { SlotTime::default() } else { SlotTime::of(rows) };
        let mut facts = Self {
            slot_time,
            schedule: open_loop.then(|| ScheduleKept::of(rows)),
            missing_chunks: chunks.missing_chunks,
            coalesced: chunks.coalesced,
            ..Self::default()
        };
        let mut lags = Vec::new();
        for row in rows.measured() {
            let row: &RequestRow = row.borrow();
            if row.at.first_byte.is_some() {
                match row.stamp_source {
                    StampSource::Kernel => facts.kernel_requests += 1,
                    StampSource::User => facts.user_requests += 1,
                }
                if row.stamp_source == StampSource::Kernel && row.counters.events > 0 {
                    facts.streamed_requests += 1;
                    facts.transmit_stamps += u64::from(row.sent_wire.is_some());
                }
            }
            lags.extend(row.send_start.and_then(|start| start.since(row.due)));
            facts.output_chunks += row.counters.output_chunks;
            facts.coalesced_chunks += row.counters.coalesced_chunks;
            facts.inversions += u64::from(is_inverted(row));
        }
        facts.read_delay_us = chunks.read_delay_us;
        facts.send_lag_us = Spread::of_micros(lags);
        facts
    }
}

impl Spread {
    /// Spans in microseconds; `None` without any.
    #[must_use]
    pub fn of_micros(mut spans: Vec<Nanos>) -> Option<Self> {
        spans.sort_unstable();
        // As large as what it is made of, so it takes its place.
        let micros: Vec<f64> = spans.into_iter().map(Nanos::as_micros_f64).collect();
        Some(Self {
            count: micros.len(),
            mean: exact::fmean(&micros)?,
            percentiles: Percentiles::of(&micros)?,
        })
    }
}

/// Metrics whose values are gathered in one walk over the rows: more would need more memory, fewer more walks.
const METRICS_AT_ONCE: usize = 12;

/// Per metric of request scope, over the values in the order of their requests' starts.
fn distributions(rows: impl RowSource) -> Vec<(MetricId, Distribution)> {
    let places = places_by_start(rows);
    let mut found = Vec::new();
    let per_request: Vec<MetricId> =
        CATALOG.iter().filter(|metric| metric.scope == Scope::Request).map(|metric| metric.id).collect();
    for ids in per_request.chunks(METRICS_AT_ONCE) {
        let mut columns: Vec<(MetricId, Vec<f64>)> = ids.iter().map(|id| (*id, Vec::new())).collect();
        let counted = rows.rows().filter(|row| formula::counts(row.borrow()));
        for (row, place) in counted.zip(&places) {
            for (id, column) in &mut columns {
                let Some(value) = formula::value(*id, row.borrow()) else { continue };
                if column.is_empty() {
                    column.resize(places.len(), f64::NAN);
                }
                if let Some(slot) = column.get_mut(*place) {
                    *slot = value;
                }
            }
        }
        for (id, mut column) in columns {
            column.retain(|value| !value.is_nan());
            if !column.is_empty() {
                found.push((id, Distribution::of(&column)));
            }
        }
    }
    found
}

/// For each row that counts, in the order of the rows, its place in the order of starts.
fn places_by_start(rows: impl RowSource) -> Vec<usize> {
    let counted = rows.rows().filter(|row| formula::counts(row.borrow()));
    let mut order: Vec<(Option<Nanos>, u64, usize)> = counted
        .enumerate()
        .map(|(number, row)| {
            let row: &RequestRow = row.borrow();
            (row.send_start, row.request_index, number)
        })
        .collect();
    order.sort_unstable();
    let mut places = vec![0; order.len()];
    for (place, (.., number)) in order.into_iter().enumerate() {
        if let Some(slot) = places.get_mut(number) {
            *slot = place;
        }
    }
    places
}

/// Whether a stamp stands before one that it must follow. The end of sending is compared with its start alone: an
/// answer may come before the call that sent the request has returned. What is no success may even have been on its way
/// before the request was, as a `408` to a connection that was silent for too long; such a request is in no latency.
fn is_inverted(row: &RequestRow) -> bool {
    let asked = row.send_start.filter(|_| row.outcome == Outcome::Ok);
    let ReceiveStamps { first_byte, head_done, first_event, first_output, .. } = row.at;
    let ReceiveStamps { first_content, last_output, terminal, end, .. } = row.at;
    let chains: [&[Option<Nanos>]; 4] = [
        &[row.send_start, row.send_end],
        &[asked, first_byte, first_event, first_output, last_output, terminal],
        &[first_byte, head_done, end],
        &[first_output, first_content, last_output, end],
    ];
    chains.iter().any(|chain| {
        let known: Vec<Nanos> = chain.iter().copied().flatten().collect();
        !known.is_sorted()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregate::chunk::OutputChunk;
    use crate::aggregate::chunk_facts::Visit;
    use crate::metrics::rows::Rows;
    use crate::metrics::testing::row;
    use crate::record::{OutputKind, Phase};

    fn chunk(kernel_ms: i64, delay_us: i64, ends_read: bool) -> OutputChunk {
        let kernel = Nanos::from_millis(kernel_ms);
        OutputChunk {
            choice: 0,
            kind: OutputKind::Content,
            kernel: Some(kernel),
            user: Nanos(kernel.0 + delay_us * 1_000),
            not_before: Nanos(kernel.0 - 10_000_000),
            ends_read,
            tokens: None,
        }
    }

    fn run() -> Vec<RequestRow> {
        let mut rows = vec![row(0), row(1), row(2), row(3)];
        rows[1].outcome = Outcome::TimeoutIdle;
        rows[2].phase = Phase::Warmup;
        rows[3].stamp_source = StampSource::User;
        rows
    }

    /// Every request with the same chunks; packed rows must give the same.
    fn summary(rows: &[RequestRow], chunks: &[OutputChunk], facts: Facts) -> Summary {
        let each = |add: &mut Visit<'_>| {
            rows.iter().for_each(|row| add(row, chunks));
            Ok::<_, std::convert::Infallible>(())
        };
        let summary = Summary::of(rows, ChunkFacts::gather(rows, &facts, each).unwrap(), facts);
        let packed: Rows = rows.iter().collect();
        assert_eq!(Summary::of(&packed, ChunkFacts::gather(&packed, &facts, each).unwrap(), facts), summary);
        summary
    }

    #[test]
    fn only_ok_measured_requests_enter_distributions_and_every_measured_one_shows_the_instrument() {
        let rows = run();
        let facts = Facts { planned: 3, asked_concurrency: Some(3), ..Facts::default() };
        let chunks = [chunk(20, 8, true), chunk(50, 9, false), chunk(50, 9, true)];
        let summary = summary(&rows, &chunks, facts);
        let e2e = summary.metric(MetricId::E2e).unwrap();
        assert_eq!((e2e.count, e2e.mean), (2, Some(130.0)));
        assert_eq!(summary.metric(MetricId::Connect), None, "no request made a connection");
        // Request 3 is timed by the user-space clock: 30.001 ms between its reads.
        assert_eq!(summary.gaps.exact.count, 0);
        assert_eq!(summary.gaps.coalesced.count, 4);
        assert_eq!(summary.metric(MetricId::InterChunkLatency).unwrap().mean, Some(60.001 / 4.0));
        let stamps = &summary.stamps;
        assert_eq!((stamps.kernel_requests, stamps.user_requests, stamps.inversions), (2, 1, 0));
        // Two reads with output of three measured requests, and the first bytes of the two with kernel stamps.
        let delay = stamps.read_delay_us.unwrap();
        assert_eq!((delay.count, delay.percentiles.p50, delay.percentiles.max), (8, 8.0, 9.0));
        let lag = stamps.send_lag_us.unwrap();
        assert_eq!((lag.count, lag.mean), (3, 1_000.0));
        assert_eq!((stamps.output_chunks, stamps.coalesced_chunks), (18, 0));
        assert_eq!(stamps.coalesced, Coalesced { sent: 3, late: 0 });
        assert_eq!(summary.rates.peak_output_tok_s, None, "the window is shorter than a second");
        assert!(summary.steady_state.is_some());
    }

    #[test]
    fn what_shares_a_read_was_sent_so_or_met_while_the_client_was_late() {
        let rows = [row(0)];
        let facts = Facts { planned: 1, asked_concurrency: Some(1), ..Facts::default() };
        let mut unstamped = [chunk(90, 8, false), chunk(90, 8, true)];
        unstamped.iter_mut().for_each(|chunk| chunk.kernel = None);
        let at_once = [chunk(20, 100, false), chunk(20, 100, false), chunk(20, 100, true)];
        let late = [chunk(50, 101, false), chunk(50, 101, true), chunk(60, 5_000, true)];
        let stamps = summary(&rows, &[&at_once[..], &late, &unstamped].concat(), facts).stamps;
        assert_eq!(stamps.coalesced, Coalesced { sent: 2, late: 1 });
    }

    #[test]
    fn no_rows_give_no_numbers() {
        let facts = Facts { planned: 5, asked_concurrency: Some(2), ..Facts::default() };
        let summary = summary(&[], &[], facts);
        assert_eq!(summary.counts, Counts { planned: 5, ..Counts::default() });
        assert_eq!((summary.spans, summary.steady_state), (None, None));
        assert_eq!(summary.rates, RunRates::default());
        assert_eq!(summary.stamps, StampFacts::default());
        assert!(summary.metrics.is_empty() && summary.metric(MetricId::InterChunkLatency).is_none());
    }

    #[test]
    fn the_order_of_rows_changes_no_number() {
        let mut rows = run();
        for (i, row) in rows.iter_mut().enumerate() {
            row.send_start = Some(Nanos(1_000_000 + i64::try_from(i).unwrap()));
        }
        let facts = Facts { planned: 3, asked_concurrency: Some(3), ..Facts::default() };
        let of = |rows: &[RequestRow]| summary(rows, &[chunk(20, 8, true), chunk(50, 9, true)], facts);
        let forwards = of(&rows);
        rows.reverse();
        assert_eq!(of(&rows), forwards);
    }

    #[test]
    fn a_stamp_before_its_cause_is_seen() {
        let mut early = row(0);
        early.send_end = Some(Nanos::from_millis(15));
        assert!(!is_inverted(&early), "an answer may come before the send call returned");
        early.at.first_event = Some(Nanos::from_millis(9));
        assert!(is_inverted(&early));
        // A refusal that was on its way before the request accuses nobody.
        let mut refused = row(0);
        refused.at.first_byte = Some(Nanos(0));
        assert!(is_inverted(&refused));
        refused.outcome = Outcome::HttpError;
        assert!(!is_inverted(&refused));
        let mut late = row(0);
        late.at.end = Some(Nanos::from_millis(129));
        assert!(is_inverted(&late));
        let mut unsent = row(0);
        (unsent.send_start, unsent.at) = (None, ReceiveStamps::default());
        assert!(!is_inverted(&unsent));
    }
}
