//! The slowest requests of a run, and where their time went.

use std::borrow::Borrow;
use std::cmp::Reverse;

use crate::metrics::formula;
use crate::metrics::parts::{Label, Parts};
use crate::metrics::row::RequestRow;
use crate::metrics::rows::RowSource;
use crate::metrics::{MetricId, formula::value};

/// How many are shown: what a person looks at one by one.
pub const SHOWN_SLOWEST: usize = 10;

/// One of the slowest requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SlowRequest {
    /// Position in the plan.
    pub request_index: u64,
    /// End to end from due in milliseconds, as the metric has it.
    pub e2e_from_due_ms: Option<f64>,
    /// Where the time went.
    pub parts: Parts,
    /// Where most of it went.
    pub label: Label,
    /// Segments that were sent again; `None` where unknown.
    pub retransmits: Option<u32>,
    /// The connection's shortest round trip in microseconds; `None` where unknown.
    pub rtt_us: Option<u32>,
}

/// The ok, measured requests that took longest from due until their end was read, slowest first; of equal ones the
/// first of the plan.
#[must_use]
pub fn slowest(rows: impl RowSource) -> Vec<SlowRequest> {
    let order = |slow: &SlowRequest| (Reverse(slow.parts.total()), slow.request_index);
    let mut shown: Vec<SlowRequest> = Vec::with_capacity(SHOWN_SLOWEST + 1);
    for row in rows.rows() {
        let row: &RequestRow = row.borrow();
        let Some(slow) = Some(row).filter(|row| formula::counts(row)).and_then(SlowRequest::of) else {
            continue;
        };
        let place = shown.partition_point(|other| order(other) <= order(&slow));
        shown.insert(place, slow);
        shown.truncate(SHOWN_SLOWEST);
    }
    shown
}

impl SlowRequest {
    fn of(row: &RequestRow) -> Option<Self> {
        let parts = Parts::of(row)?;
        Some(Self {
            request_index: row.request_index,
            e2e_from_due_ms: value(MetricId::E2eFromDue, row),
            parts,
            label: parts.label(),
            retransmits: row.transport.retransmits,
            rtt_us: row.transport.rtt_us,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::testing::row;
    use crate::record::{Outcome, Phase};
    use crate::units::Nanos;

    #[test]
    fn the_slowest_ok_requests_stand_first_and_failed_ones_nowhere() {
        let mut rows: Vec<RequestRow> = (0..40).map(row).collect();
        for (row, late) in rows.iter_mut().zip([5, 3, 9, 9, 1].into_iter().cycle()) {
            row.due = Nanos::from_millis(-late);
        }
        rows[2].outcome = Outcome::TimeoutIdle;
        rows[3].phase = Phase::Warmup;
        rows[39].user.terminal = Some(Nanos::from_millis(1_000));
        rows.reverse();
        let found = slowest(&rows);
        let indices: Vec<u64> = found.iter().map(|slow| slow.request_index).collect();
        assert_eq!(indices, [39, 7, 8, 12, 13, 17, 18, 22, 23, 27]);
        assert_eq!((found[0].label, found[1].label), (Label::Client, Label::Server));
        assert_eq!(found[0].e2e_from_due_ms, Some(132.0), "as the metric has it: by the kernel's stamp");
        assert_eq!(slowest(&rows[..3]).len(), 3);
        assert!(slowest(&[]).is_empty());
    }
}
