//! The summary of a run: rows in, numbers out. Pure, so that a saved run gives the same numbers to the last digit.
//!
//! ```
//! use hammerscale::aggregate::summary::{ChunkPopulations, Facts, Summary};
//!
//! let facts = Facts { planned: 60, asked_concurrency: Some(20), ..Facts::default() };
//! let nothing = Summary::of(&[], &ChunkPopulations::new(&[], &facts), facts);
//! assert_eq!((nothing.counts.planned, nothing.counts.ok), (60, 0));
//! assert!(nothing.metrics.is_empty() && nothing.spans.is_none());
//! ```
//!
//! The order is: rows of all requests, then [`ChunkPopulations::new`] over them, then [`ChunkPopulations::add`] once
//! per request with all its chunks in order of arrival (from memory or read back from `events.bin`; no request's chunks
//! are needed twice), then [`Summary::of`]. Judging the numbers and writing them down is `report`'s.

use crate::aggregate::chunk::OutputChunk;
use crate::aggregate::concurrency::SteadyState;
use crate::aggregate::counts::Counts;
use crate::aggregate::schedule::ScheduleKept;
use crate::aggregate::slots::SlotTime;
use crate::aggregate::slowest::{SlowRequest, slowest};
use crate::aggregate::stream::StreamFacts;
use crate::aggregate::tokens::TokenFacts;
use crate::aggregate::window::Spans;
use crate::metrics::catalog::{CATALOG, Scope};
use crate::metrics::compat::{PeerPopulations, PeerValues, Seen};
use crate::metrics::gaps::{Chunk, GapDistribution, GapPopulation};
use crate::metrics::rates::{RunRates, TokenTimeline, Window};
use crate::metrics::row::{ReceiveStamps, RequestRow, StampSource};
use crate::metrics::token_gaps::TokenGapPopulation;
use crate::metrics::{Distribution, MetricId, Percentiles, exact, formula};
use crate::record::{Outcome, Phase};
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

/// What needs the chunks of every request, gathered request by request.
#[derive(Debug, Clone)]
pub struct ChunkPopulations {
    gaps: GapPopulation,
    token_gaps: TokenGapPopulation,
    peers: PeerPopulations,
    timeline: TokenTimeline,
    read_delays: Vec<Nanos>,
    coalesced: Coalesced,
    missing_chunks: u64,
}

impl ChunkPopulations {
    /// Empty populations for the run with these rows.
    #[must_use]
    pub fn new(rows: &[RequestRow], facts: &Facts) -> Self {
        let nowhere = Window { start: Nanos(0), end: Nanos(0) };
        let window = Spans::of(rows, facts.stop).map_or(nowhere, |spans| spans.window);
        Self {
            gaps: GapPopulation::default(),
            token_gaps: TokenGapPopulation::default(),
            peers: PeerPopulations::new(rows),
            timeline: TokenTimeline::new(window),
            read_delays: Vec::new(),
            coalesced: Coalesced::default(),
            missing_chunks: 0,
        }
    }

    /// Adds one request with all its output chunks in order of arrival. Of warm-up requests only what is missing counts.
    pub fn add(&mut self, row: &RequestRow, chunks: &[OutputChunk]) {
        self.missing_chunks += row.counters.output_chunks.saturating_sub(chunks.len() as u64);
        if row.phase == Phase::Warmup {
            return;
        }
        let seen = |c: &OutputChunk| Seen { at: c.at(row.stamp_source), kind: c.kind };
        self.peers.add(row, &chunks.iter().map(seen).collect::<Vec<_>>());
        let stamps = row.user.first_byte.zip(row.at.first_byte);
        let first = stamps.filter(|_| row.stamp_source == StampSource::Kernel);
        self.read_delays.extend(first.and_then(|(user, kernel)| user.since(kernel)));
        let reads = chunks.iter().filter(|c| c.ends_read);
        self.read_delays.extend(reads.filter_map(|c| c.user.since(c.kernel?)));
        // What one receive call brought has one reading of the user-space clock.
        let shared =
            chunks.iter().zip(chunks.iter().skip(1)).filter(|(before, chunk)| before.user == chunk.user);
        for delay in shared.filter_map(|(_, chunk)| chunk.user.since(chunk.kernel?)) {
            if delay > LATE_READ { self.coalesced.late += 1 } else { self.coalesced.sent += 1 }
        }
        if !matches!(row.outcome, Outcome::Ok | Outcome::Incomplete) {
            return;
        }
        let own_clock = |c: &OutputChunk| Chunk {
            at: c.at(row.stamp_source),
            not_before: c.not_before,
            ends_read: c.ends_read,
            choice: c.choice,
            tokens: c.tokens,
        };
        let chunks: Vec<Chunk> = chunks.iter().map(own_clock).collect();
        self.timeline.add_request(&chunks, row.output_tokens);
        if formula::counts(row) {
            self.gaps.add_request(&chunks);
            self.token_gaps.add_request(&chunks);
        }
    }
}

impl Summary {
    /// The summary of the run with these rows.
    #[must_use]
    pub fn of(rows: &[RequestRow], chunks: &ChunkPopulations, facts: Facts) -> Self {
        let spans = Spans::of(rows, facts.stop);
        let rates = spans.map(|spans| RunRates::of(rows, spans.window, &chunks.timeline));
        let ok = rows.iter().filter(|row| formula::counts(row));
        Self {
            counts: Counts::of(rows, facts.planned),
            spans,
            steady_state: facts.asked_concurrency.and_then(|asked| SteadyState::of(rows, asked)),
            metrics: distributions(rows),
            gaps: chunks.gaps.distribution(),
            token_gaps: chunks.token_gaps.distribution(),
            compat: chunks.peers.values(rows),
            rates: rates.unwrap_or_default(),
            tokens: TokenFacts::of(rows),
            stream: StreamFacts::of(rows),
            stamps: StampFacts::of(rows, chunks, facts.open_loop),
            slowest: slowest(rows),
            role_chunk_first: ok.fold(0, |n, row| n + u64::from(row.role_chunk_first)),
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
    fn of(rows: &[RequestRow], chunks: &ChunkPopulations, open_loop: bool) -> Self {
        let slot_time = if open_loop { SlotTime::default() } else { SlotTime::of(rows) };
        let mut facts = Self {
            slot_time,
            schedule: open_loop.then(|| ScheduleKept::of(rows)),
            missing_chunks: chunks.missing_chunks,
            coalesced: chunks.coalesced,
            ..Self::default()
        };
        let mut lags = Vec::new();
        for row in rows.iter().filter(|row| row.phase != Phase::Warmup) {
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
        facts.read_delay_us = Spread::of_micros(&chunks.read_delays);
        facts.send_lag_us = Spread::of_micros(&lags);
        facts
    }
}

impl Spread {
    /// Spans in microseconds; `None` without any.
    #[must_use]
    pub fn of_micros(spans: &[Nanos]) -> Option<Self> {
        let mut sorted = spans.to_vec();
        sorted.sort_unstable();
        let micros: Vec<f64> = sorted.iter().map(|span| span.as_micros_f64()).collect();
        Some(Self {
            count: micros.len(),
            mean: exact::fmean(&micros)?,
            percentiles: Percentiles::of(&micros)?,
        })
    }
}

/// Per metric of request scope, over the values in the order of their requests' starts.
fn distributions(rows: &[RequestRow]) -> Vec<(MetricId, Distribution)> {
    let mut in_order: Vec<&RequestRow> = rows.iter().filter(|row| formula::counts(row)).collect();
    in_order.sort_by_key(|row| (row.send_start, row.request_index));
    let per_request = CATALOG.iter().filter(|metric| metric.scope == Scope::Request);
    per_request
        .filter_map(|metric| {
            let values: Vec<f64> = in_order.iter().filter_map(|row| formula::value(metric.id, row)).collect();
            (!values.is_empty()).then(|| (metric.id, Distribution::of(&values)))
        })
        .collect()
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
    use crate::metrics::testing::row;
    use crate::record::OutputKind;

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

    #[test]
    fn only_ok_measured_requests_enter_distributions_and_every_measured_one_shows_the_instrument() {
        let rows = run();
        let facts = Facts { planned: 3, asked_concurrency: Some(3), ..Facts::default() };
        let mut chunks = ChunkPopulations::new(&rows, &facts);
        for row in &rows {
            chunks.add(row, &[chunk(20, 8, true), chunk(50, 9, false), chunk(50, 9, true)]);
        }
        let summary = Summary::of(&rows, &chunks, facts);
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
        let mut chunks = ChunkPopulations::new(&rows, &facts);
        let mut unstamped = [chunk(90, 8, false), chunk(90, 8, true)];
        unstamped.iter_mut().for_each(|chunk| chunk.kernel = None);
        let at_once = [chunk(20, 100, false), chunk(20, 100, false), chunk(20, 100, true)];
        let late = [chunk(50, 101, false), chunk(50, 101, true), chunk(60, 5_000, true)];
        chunks.add(&rows[0], &[&at_once[..], &late, &unstamped].concat());
        let stamps = Summary::of(&rows, &chunks, facts).stamps;
        assert_eq!(stamps.coalesced, Coalesced { sent: 2, late: 1 });
    }

    #[test]
    fn no_rows_give_no_numbers() {
        let facts = Facts { planned: 5, asked_concurrency: Some(2), ..Facts::default() };
        let summary = Summary::of(&[], &ChunkPopulations::new(&[], &facts), facts);
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
        let of = |rows: &[RequestRow]| {
            let mut chunks = ChunkPopulations::new(rows, &facts);
            for row in rows {
                chunks.add(row, &[chunk(20, 8, true), chunk(50, 9, true)]);
            }
            Summary::of(rows, &chunks, facts)
        };
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
