//! What the document says about the instrument itself.

use serde::{Deserialize, Serialize};

use super::{finite, share};
use crate::aggregate::summary::{Spread, Summary};
use crate::metrics::row::StampSource;
use crate::report::calibration::lookup::CalibrationNote;
use crate::report::validity::{
    self, Asked, ClockFacts, InstrumentFacts, PrewarmFacts, ReadFacts, WorkerFacts, client_error,
};
use crate::units::Nanos;

/// How good the instrument was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InstrumentDoc {
    /// `valid`, `suspect` or `invalid`.
    pub verdict: String,
    /// Why it is not `valid`.
    pub reasons: Vec<String>,
    /// What stands out without being the instrument's fault.
    pub notes: Vec<String>,
    /// `kernel`, `user`, or `mixed`; `null` when nothing was received.
    pub stamp_source: Option<String>,
    /// What the client may have added to a latency that is counted from send start: bound of its 99th percentile; `null`
    /// where it is not known.
    #[serde(default)]
    pub client_error_us: Option<f64>,
    /// Requests without kernel stamps although they were asked for.
    pub kernel_stamps_missing: u64,
    /// Share of the streamed requests with kernel stamps that have a stamp of their last byte leaving this host too;
    /// `null` without such requests.
    #[serde(default)]
    pub tx_stamp_share: Option<f64>,
    /// User-space stamp minus kernel stamp.
    pub read_delay_us: Option<SpreadDoc>,
    /// Send start minus due.
    pub send_lag_us: Option<SpreadDoc>,
    /// Share of the slots' time between the end of one request and the beginning of the next; `null` where too few
    /// requests followed each other.
    #[serde(default)]
    pub slot_wait_share: Option<f64>,
    /// How late timers fired.
    pub timer_lateness_us: Option<SpreadDoc>,
    /// Share of the run in which a worker's loop was not waiting, per worker.
    pub loop_busy_share: Vec<Option<f64>>,
    /// The core each worker was pinned to.
    pub worker_cores: Vec<Option<u32>>,
    /// What the scheduler did to each worker.
    #[serde(default)]
    pub workers: Vec<WorkerDoc>,
    /// Time the workers were ready to run and did not run, summed.
    pub run_queue_wait_ms: Option<f64>,
    /// How often workers were taken off their cores, summed.
    pub involuntary_switches: Option<u64>,
    /// Time that the hypervisor took from the machine.
    pub steal_ms: Option<f64>,
    /// The same as a share of the time of all its cores.
    #[serde(default)]
    pub steal_share: Option<f64>,
    /// Longest time in which nothing of this process ran although nothing else had its core; `null` where the system does
    /// not say.
    #[serde(default)]
    pub stood_still_ms: Option<f64>,
    /// Receive calls that brought bytes, warm-up included.
    #[serde(default)]
    pub reads: Option<ReadsDoc>,
    /// How full the rings between workers and collector were.
    #[serde(default)]
    pub ring_fill: Option<RingFillDoc>,
    /// Records that were lost.
    pub ring_drops: u64,
    /// Requests begun and never accounted for.
    pub unresolved: u64,
    /// Share of output chunks that share a read with an earlier one; `null` without chunks.
    pub coalesced_share: Option<f64>,
    /// Those whose read came more than 100 µs after the kernel's stamp: they may have met while the client was busy;
    /// `null` without chunks.
    #[serde(default)]
    pub coalesced_late_share: Option<f64>,
    /// Those that were read at once, so they arrived together. What is in neither share has no kernel stamp.
    #[serde(default)]
    pub coalesced_sent_share: Option<f64>,
    /// Requests with a stamp before one that it must follow.
    pub inverted_requests: u64,
    /// Largest resident size of this process; `null` where the system does not say.
    #[serde(default)]
    pub peak_rss_bytes: Option<u64>,
    /// Processor time of this process, all threads; `null` where the system does not say.
    #[serde(default)]
    pub cpu_time_s: Option<f64>,
    /// The clock.
    pub clock: ClockDoc,
    /// How large this machine's error was when it was calibrated; `null` where it was not.
    #[serde(default)]
    pub calibration: Option<CalibrationNote>,
}

/// What the scheduler did to a worker while its loop ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerDoc {
    /// How long the loop ran.
    pub run_s: Option<f64>,
    /// Time it was ready to run and did not run.
    pub run_queue_wait_ms: Option<f64>,
    /// How often it was taken off its core.
    pub involuntary_switches: Option<u64>,
}

/// Receive calls that brought bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReadsDoc {
    /// How many.
    pub count: u64,
    /// Those that filled the buffer of 64 KiB: bytes were left behind.
    pub filled: u64,
    /// Their share.
    pub filled_share: Option<f64>,
    /// Bytes of the largest one.
    pub largest_bytes: u64,
}

/// Highest share of places that the collector found taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RingFillDoc {
    /// Of the ring of requests.
    pub records: Option<f64>,
    /// Of the ring of output chunks.
    pub chunks: Option<f64>,
}

/// Connections made before the window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PrewarmDoc {
    /// How many were to be made: one per slot.
    pub asked: u64,
    /// How many were made.
    pub made: u64,
    /// How many could not be made; their slots' first requests made their own.
    pub failed: u64,
    /// What the first failure was.
    pub failure: Option<String>,
    /// From the first beginning to connect to the last end of it.
    pub took_s: f64,
    /// Connections made per second of that.
    pub connections_per_s: Option<f64>,
    /// Spans of connecting, of those that were made.
    pub connect_us: Option<SpreadDoc>,
}

/// A population by its order statistics.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpreadDoc {
    /// How many values.
    pub count: usize,
    /// Mean.
    pub mean: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// 99.9th percentile.
    pub p99_9: Option<f64>,
    /// Largest value.
    pub max: Option<f64>,
}

/// The clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClockDoc {
    /// Its name.
    pub source: Option<String>,
    /// The largest error of the axis in parts per million of the run; `null` where it was not checked.
    pub drift_ppm: Option<f64>,
    /// That error: the largest difference from CLOCK_MONOTONIC, over readings that the axis is not made from.
    #[serde(default)]
    pub error_us: Option<f64>,
    /// How far the two clocks may have been apart when they were read, at most.
    #[serde(default)]
    pub bracket_us: Option<f64>,
    /// The same for the wall clock, by which kernel stamps are put on the axis.
    #[serde(default)]
    pub wall_bracket_us: Option<f64>,
    /// Over how long the rate was compared.
    #[serde(default)]
    pub compared_over_s: Option<f64>,
    /// Readings that went backwards.
    pub inversions: u64,
    /// Steps of the wall clock.
    pub wall_steps: u64,
}

impl InstrumentDoc {
    /// What is known about the instrument, [not judged yet](Self::take_judgement).
    pub(in crate::report) fn of(facts: &InstrumentFacts, summary: &Summary) -> Self {
        let workers = &facts.workers;
        let mut doc = Self {
            verdict: String::new(),
            reasons: Vec::new(),
            notes: Vec::new(),
            stamp_source: None,
            client_error_us: None,
            kernel_stamps_missing: 0,
            tx_stamp_share: None,
            read_delay_us: None,
            send_lag_us: None,
            slot_wait_share: None,
            timer_lateness_us: facts.timer_lateness_us.as_ref().map(SpreadDoc::of),
            loop_busy_share: workers.iter().map(|w| w.busy_share.and_then(finite)).collect(),
            worker_cores: workers.iter().map(|w| w.core).collect(),
            workers: workers.iter().map(WorkerDoc::of).collect(),
            run_queue_wait_ms: sum(workers.iter().map(|w| w.run_queue_wait.map(Nanos::as_millis_f64))),
            involuntary_switches: sum(workers.iter().map(|w| w.involuntary_switches)),
            steal_ms: facts.steal.map(|steal| steal.time.as_millis_f64()),
            steal_share: facts.steal.and_then(|steal| finite(steal.share)),
            stood_still_ms: facts.stood_still.map(Nanos::as_millis_f64),
            reads: facts.reads.map(ReadsDoc::of),
            ring_fill: facts
                .ring_fill
                .map(|fill| RingFillDoc { records: finite(fill.records), chunks: finite(fill.chunks) }),
            ring_drops: facts.ring_drops,
            unresolved: facts.unresolved,
            coalesced_share: None,
            coalesced_late_share: None,
            coalesced_sent_share: None,
            inverted_requests: 0,
            peak_rss_bytes: facts.peak_rss.map(|bytes| bytes.0),
            cpu_time_s: facts.cpu_time.map(Nanos::as_secs_f64),
            clock: ClockDoc::of(&facts.clock),
            calibration: facts.calibration.clone(),
        };
        doc.take_stamps(summary, facts.kernel_stamps);
        doc
    }

    /// Takes over the verdict and why.
    pub(super) fn take_judgement(&mut self, asked: Asked, dropped_stamps: u64, summary: &Summary) {
        let judgement = validity::judge(self, asked, dropped_stamps, summary);
        self.verdict = judgement.verdict.name().to_owned();
        (self.reasons, self.notes) = (judgement.reasons, judgement.notes);
    }

    /// Takes over what the stamps of the requests say.
    pub(super) fn take_stamps(&mut self, summary: &Summary, kernel_stamps_asked: bool) {
        let stamps = &summary.stamps;
        let stamp_source = match (stamps.kernel_requests, stamps.user_requests) {
            (0, 0) => None,
            (_, 0) => Some(StampSource::Kernel.name()),
            (0, _) => Some(StampSource::User.name()),
            _ => Some("mixed"),
        };
        self.stamp_source = stamp_source.map(str::to_owned);
        self.kernel_stamps_missing = if kernel_stamps_asked { stamps.user_requests } else { 0 };
        self.tx_stamp_share = share(stamps.transmit_stamps, stamps.streamed_requests);
        self.read_delay_us = stamps.read_delay_us.as_ref().map(SpreadDoc::of);
        self.send_lag_us = stamps.send_lag_us.as_ref().map(SpreadDoc::of);
        self.slot_wait_share = stamps.slot_time.waited_share().and_then(finite);
        self.coalesced_share = share(stamps.coalesced_chunks, stamps.output_chunks);
        self.coalesced_late_share = share(stamps.coalesced.late, stamps.output_chunks);
        self.coalesced_sent_share = share(stamps.coalesced.sent, stamps.output_chunks);
        self.inverted_requests = stamps.inversions;
        self.client_error_us = client_error::bound_us(self, summary).and_then(finite);
    }
}

impl WorkerDoc {
    fn of(worker: &WorkerFacts) -> Self {
        Self {
            run_s: worker.span.map(Nanos::as_secs_f64),
            run_queue_wait_ms: worker.run_queue_wait.map(Nanos::as_millis_f64),
            involuntary_switches: worker.involuntary_switches,
        }
    }
}

impl ReadsDoc {
    fn of(reads: ReadFacts) -> Self {
        let ReadFacts { count, filled, largest } = reads;
        Self { count, filled, filled_share: share(filled, count), largest_bytes: largest }
    }
}

impl PrewarmDoc {
    pub(super) fn of(facts: &PrewarmFacts) -> Self {
        Self {
            asked: facts.asked,
            made: facts.made,
            failed: facts.failed,
            failure: facts.failure.clone(),
            took_s: facts.took.as_secs_f64(),
            connections_per_s: facts.rate().map(|rate| rate.0),
            connect_us: facts.connect_us.as_ref().map(SpreadDoc::of),
        }
    }
}

impl SpreadDoc {
    fn of(spread: &Spread) -> Self {
        let p = &spread.percentiles;
        Self {
            count: spread.count,
            mean: finite(spread.mean),
            p50: finite(p.p50),
            p99: finite(p.p99),
            p99_9: finite(p.p99_9),
            max: finite(p.max),
        }
    }
}

impl ClockDoc {
    fn of(clock: &ClockFacts) -> Self {
        Self {
            source: clock.source.clone(),
            drift_ppm: clock.drift_ppm.and_then(finite),
            error_us: clock.error.map(Nanos::as_micros_f64),
            bracket_us: Some(clock.bracket.as_micros_f64()),
            wall_bracket_us: Some(clock.wall_bracket.as_micros_f64()),
            compared_over_s: Some(clock.compared_over.as_secs_f64()),
            inversions: clock.inversions,
            wall_steps: clock.wall_steps,
        }
    }
}

/// The sum of what all of them know; `None` when one does not know, or there is none.
fn sum<T: std::iter::Sum>(values: impl ExactSizeIterator<Item = Option<T>>) -> Option<T> {
    (values.len() > 0).then_some(())?;
    values.sum()
}
