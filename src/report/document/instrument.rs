//! What the document says about the instrument itself.

use serde::{Deserialize, Serialize};

use super::{finite, share};
use crate::aggregate::summary::{Spread, StampFacts, Summary};
use crate::metrics::row::StampSource;
use crate::report::calibration::lookup::CalibrationNote;
use crate::report::validity::{self, ClockFacts, InstrumentFacts, PrewarmFacts};
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
    /// Time the workers were ready to run and did not run, summed.
    pub run_queue_wait_ms: Option<f64>,
    /// How often workers were taken off their cores, summed.
    pub involuntary_switches: Option<u64>,
    /// Time that the hypervisor took.
    pub steal_ms: Option<f64>,
    /// Records that were lost.
    pub ring_drops: u64,
    /// Requests begun and never accounted for.
    pub unresolved: u64,
    /// Share of output chunks that share a read with an earlier one; `null` without chunks.
    pub coalesced_share: Option<f64>,
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
    /// Rate error against CLOCK_MONOTONIC; `null` where it was not checked.
    pub drift_ppm: Option<f64>,
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
    pub(in crate::report) fn of(facts: &InstrumentFacts, stamps: &StampFacts) -> Self {
        let workers = &facts.workers;
        let mut doc = Self {
            verdict: String::new(),
            reasons: Vec::new(),
            notes: Vec::new(),
            stamp_source: None,
            kernel_stamps_missing: 0,
            tx_stamp_share: None,
            read_delay_us: None,
            send_lag_us: None,
            slot_wait_share: None,
            timer_lateness_us: facts.timer_lateness_us.as_ref().map(SpreadDoc::of),
            loop_busy_share: workers.iter().map(|w| w.busy_share.and_then(finite)).collect(),
            worker_cores: workers.iter().map(|w| w.core).collect(),
            run_queue_wait_ms: sum(workers.iter().map(|w| w.run_queue_wait.map(Nanos::as_millis_f64))),
            involuntary_switches: sum(workers.iter().map(|w| w.involuntary_switches)),
            steal_ms: facts.steal.map(Nanos::as_millis_f64),
            ring_drops: facts.ring_drops,
            unresolved: facts.unresolved,
            coalesced_share: None,
            inverted_requests: 0,
            peak_rss_bytes: facts.peak_rss.map(|bytes| bytes.0),
            cpu_time_s: facts.cpu_time.map(Nanos::as_secs_f64),
            clock: ClockDoc::of(&facts.clock),
            calibration: facts.calibration.clone(),
        };
        doc.take_stamps(stamps, facts.kernel_stamps);
        doc
    }

    /// Takes over the verdict and why.
    pub(super) fn take_judgement(&mut self, dropped_stamps: u64, summary: &Summary) {
        let judgement = validity::judge(self, dropped_stamps, summary);
        self.verdict = judgement.verdict.name().to_owned();
        (self.reasons, self.notes) = (judgement.reasons, judgement.notes);
    }

    /// Takes over what the stamps of the requests say.
    pub(super) fn take_stamps(&mut self, stamps: &StampFacts, kernel_stamps_asked: bool) {
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
        self.inverted_requests = stamps.inversions;
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
