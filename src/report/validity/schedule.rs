//! Whether an open loop kept its schedule.

use super::{Findings, Verdict, share};
use crate::aggregate::schedule::LATE;
use crate::aggregate::summary::Summary;
use crate::units::display;

/// Largest share of the requests of a schedule that is begun [`LATE`]. More, and the
/// load was not the one that was asked for: what waits in the client comes in clumps.
pub const MAX_LATE_SHARE: f64 = 0.01;
/// Fewer late requests than this show no client that fell behind: a machine stops a process for some milliseconds now and
/// then, and in a short run the one request that met it is more than that share.
pub const MIN_LATE_SENDS: u64 = 2;
/// Smallest share of the requests of a schedule that must be begun.
pub const MIN_BEGUN_SHARE: f64 = 0.99;

/// Whether an open loop began its requests when they were due.
pub(super) fn late_sends(summary: &Summary, findings: &mut Findings) {
    let Some(kept) = &summary.stamps.schedule else { return };
    if kept.late < MIN_LATE_SENDS {
        return;
    }
    if let Some(share) = share(kept.late, kept.begun).filter(|share| *share > MAX_LATE_SHARE) {
        let (late, all) = (display::whole(kept.late), display::counted(kept.begun, "request"));
        let (share, limit) = (display::percent(share), display::percent(MAX_LATE_SHARE));
        let late_is = display::span_ms(LATE.as_millis_f64());
        findings.push((
            Verdict::Invalid,
            format!(
                "the client fell behind its schedule: {late} of {all} ({share}, above {limit}) went out more than \
                 {late_is} after they were due"
            ),
        ));
    }
}

/// Whether an open loop began what its schedule held. How much that was until a stop is unknown.
pub(super) fn unsent(summary: &Summary, findings: &mut Findings) {
    let Some(kept) = &summary.stamps.schedule else { return };
    let was_stopped = summary.spans.is_none_or(|spans| spans.drain.is_some());
    let begun = share(kept.begun, summary.counts.planned).filter(|_| !was_stopped);
    if let Some(share) = begun.filter(|share| *share < MIN_BEGUN_SHARE) {
        let (begun, all) = (display::whole(kept.begun), display::counted(summary.counts.planned, "request"));
        let share = display::percent(share);
        findings
            .push((Verdict::Suspect, format!("only {begun} of {all} of the schedule were begun ({share})")));
    }
}
