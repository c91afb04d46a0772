//! Who kept the client from its work: other programs on its core, a stop of the whole process, the hypervisor, or more
//! load than it can take.
//!
//! These findings name a cause. What it did to the numbers, where it did something, is a finding of its own.

use super::{Findings, Verdict};
use crate::aggregate::summary::Summary;
use crate::report::document::instrument::{InstrumentDoc, WorkerDoc};
use crate::units::{Nanos, display};

/// Largest share of a worker's time in which it was ready to run and something else had its core. On a core of its own a
/// worker shows below 0.1%, kernel threads included; beside one busy program, 20% to 50%.
pub const MAX_RUN_QUEUE_SHARE: f64 = 0.05;
/// A wait below this over the whole run is no overload: one time slice or two, and a short run has no more to show.
pub const MIN_RUN_QUEUE_WAIT: Nanos = Nanos::from_millis(20);
/// Longest time in which nothing of this process ran, although nothing else had its core, that is not told. A waking
/// thread is late by some milliseconds on a busy virtual machine; a tenth of a second is a process that was stopped, or
/// a machine that was.
pub const MAX_STOOD_STILL: Nanos = Nanos::from_millis(100);
/// Largest share of the machine's time that its hypervisor may give to others. At a twentieth, every core is away often
/// enough to show in a 95th percentile.
pub const MAX_STEAL_SHARE: f64 = 0.05;
/// The system counts what was taken in ticks of 10 ms, and one of them is a large share of a short run.
pub const MIN_STEAL: Nanos = Nanos::from_millis(50);
/// A loop that waits for less than a twentieth of its time takes what it can: from here on events queue up in front of
/// it. Alone it is no fault, a client at its limit is busy too; it is the cause where reading falls behind.
pub const MAX_BUSY_SHARE: f64 = 0.95;
/// From this share of reads that filled the buffer on it is told: bytes waited in the socket behind them.
pub const SHOWN_FILLED_SHARE: f64 = 0.01;
/// From this fill on it is told how near a ring was to losing something: a collector that is twice as late loses it.
pub const SHOWN_RING_FILL: f64 = 0.5;

/// `is_behind`: reading fell behind the kernel.
pub(super) fn find(
    instrument: &InstrumentDoc,
    summary: &Summary,
    is_behind: bool,
    plain: bool,
    findings: &mut Findings,
) {
    if summary.counts.started == 0 {
        return;
    }
    let lost_its_core = worst_wait(&instrument.workers);
    if let Some((number, worker, share)) = &lost_its_core {
        findings.push((Verdict::Suspect, told_wait(*number, worker, *share)));
    }
    if let Some(still) = instrument.stood_still_ms.filter(|ms| *ms > MAX_STOOD_STILL.as_millis_f64()) {
        let still = display::span_ms(still);
        let text = format!("the whole process stood still for {still}: it was stopped, or its machine was");
        findings.push((Verdict::Suspect, text));
    }
    let is_much = instrument.steal_ms.is_some_and(|ms| ms >= MIN_STEAL.as_millis_f64());
    if let Some(share) = instrument.steal_share.filter(|share| is_much && *share > MAX_STEAL_SHARE) {
        let (share, limit) = (display::percent(share), display::percent(MAX_STEAL_SHARE));
        let text = format!("the hypervisor gave {share} of this machine's time to others, above {limit}");
        findings.push((Verdict::Suspect, text));
    }
    let busiest = busiest(&instrument.loop_busy_share).filter(|_| is_behind && lost_its_core.is_none());
    if let Some((number, share)) = busiest {
        let share = display::percent(share);
        let text = format!(
            "worker {number} had no pause (busy for {share} of the run): more comes in than it can read; give it fewer \
             streams, or more workers"
        );
        findings.push((Verdict::Suspect, text));
    }
    let reads = instrument.reads.as_ref().filter(|_| !plain);
    if let Some(share) = reads.and_then(|reads| reads.filled_share).filter(|s| *s > SHOWN_FILLED_SHARE) {
        let text =
            format!("{} of the reads filled the buffer: bytes waited behind them", display::percent(share));
        findings.push((Verdict::Valid, text));
    }
    let fills = instrument.ring_fill.iter().flat_map(|fill| [fill.records, fill.chunks]).flatten();
    let fill = fills.max_by(f64::total_cmp);
    if let Some(fill) = fill.filter(|fill| *fill > SHOWN_RING_FILL && instrument.ring_drops == 0) {
        let text = format!("a ring between worker and collector was {} full", display::percent(fill));
        findings.push((Verdict::Valid, text));
    }
}

/// The worker that waited for its core for the largest share of its time, if that is too large.
fn worst_wait(workers: &[WorkerDoc]) -> Option<(usize, &WorkerDoc, f64)> {
    let shares = workers.iter().enumerate().filter_map(|(number, worker)| {
        let (wait_ms, run_s) = (worker.run_queue_wait_ms?, worker.run_s?);
        let is_long = wait_ms >= MIN_RUN_QUEUE_WAIT.as_millis_f64() && run_s > 0.0;
        let share = wait_ms / 1e3 / run_s;
        (is_long && share > MAX_RUN_QUEUE_SHARE).then_some((number, worker, share))
    });
    shares.max_by(|a, b| a.2.total_cmp(&b.2))
}

fn told_wait(number: usize, worker: &WorkerDoc, share: f64) -> String {
    let [waited, run] = [worker.run_queue_wait_ms, worker.run_s.map(|s| s * 1e3)]
        .map(|ms| display::span_ms(ms.unwrap_or(f64::NAN)));
    let switches = worker.involuntary_switches.filter(|switches| *switches > 0);
    let taken = switches
        .map_or_else(String::new, |n| format!(" and was taken off it {}", display::counted(n, "time")));
    format!(
        "other programs ran on the core of worker {number}: it waited for it for {waited} of {run} ({}, above {}){taken}",
        display::percent(share),
        display::percent(MAX_RUN_QUEUE_SHARE)
    )
}

fn busiest(shares: &[Option<f64>]) -> Option<(usize, f64)> {
    let known = shares.iter().enumerate().filter_map(|(number, share)| Some((number, (*share)?)));
    known.filter(|(_, share)| *share > MAX_BUSY_SHARE).max_by(|a, b| a.1.total_cmp(&b.1))
}
