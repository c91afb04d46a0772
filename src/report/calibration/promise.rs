//! What is promised of the client's error (A1 and A2), and whether a row keeps it.
//!
//! The figures are those of `docs/ACCURACY.md`. A figure that does not exist keeps no promise.

use crate::report::calibration::RowDoc;

/// Median of the size of the error of kernel stamps, in microseconds: the sender's own way through the kernel is 1.6 to
/// 1.7 of them.
pub const KERNEL_P50_US: f64 = 3.0;
/// The same at the 99th percentile.
pub const KERNEL_P99_US: f64 = 6.0;
/// The same at the 99.9th: what a virtual machine's own stops leave room for.
pub const KERNEL_P99_9_US: f64 = 25.0;
/// Below [`BUSY_STREAMS`] the sender has slept before most of its sends, and its own way takes up to 25 µs.
pub const SLOW_KERNEL_P99_US: f64 = 40.0;
/// From this number of streams on a sender is awake most of the time.
pub const BUSY_STREAMS: u64 = 100;
/// Bias of the time to first output and of gaps, by its median, in microseconds.
pub const BIAS_US: f64 = 2.0;

/// A figure and how large it may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure {
    /// What it is, for people.
    pub name: &'static str,
    /// Its value, `None` where there is none.
    pub value: Option<f64>,
    /// How large its size may be.
    pub limit: f64,
}

impl Figure {
    /// Whether it is there and within its limit.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.value.is_some_and(|value| value.abs() <= self.limit)
    }
}

/// A1: kernel stamps against the ledger.
#[must_use]
pub fn stamps(row: &RowDoc) -> Vec<Figure> {
    let kernel = &row.kernel_us;
    if row.streams < BUSY_STREAMS {
        return vec![Figure { name: "p99", value: kernel.p99, limit: SLOW_KERNEL_P99_US }];
    }
    vec![
        Figure { name: "p50", value: kernel.p50, limit: KERNEL_P50_US },
        Figure { name: "p99", value: kernel.p99, limit: KERNEL_P99_US },
        Figure { name: "p99.9", value: kernel.p99_9, limit: KERNEL_P99_9_US },
    ]
}

/// A2: the time to first output and gaps against the same differences of the ledger, and no gap that it does not have.
#[must_use]
pub fn differences(row: &RowDoc) -> Vec<Figure> {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a count is shown beside figures, and only zero is allowed"
    )]
    let false_zeros = row.false_zero_gaps as f64;
    vec![
        Figure { name: "TTFT", value: row.ttft_bias_us.p50, limit: BIAS_US },
        Figure { name: "gaps", value: row.gap_bias_us.p50, limit: BIAS_US },
        Figure { name: "false zero gaps", value: Some(false_zeros), limit: 0.0 },
    ]
}

/// Whether a row keeps all of it.
#[must_use]
pub fn are_kept(row: &RowDoc) -> bool {
    stamps(row).iter().chain(&differences(row)).all(Figure::is_kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::calibration::testing;

    #[test]
    fn each_figure_alone_can_break_the_promise() {
        assert!(are_kept(&testing::row(100)));
        let changes: [fn(&mut RowDoc); 8] = [
            |row| row.kernel_us.p50 = Some(3.01),
            |row| row.kernel_us.p99 = Some(6.01),
            |row| row.kernel_us.p99_9 = Some(25.01),
            |row| row.kernel_us.p99 = None,
            |row| row.ttft_bias_us.p50 = Some(2.01),
            |row| row.gap_bias_us.p50 = Some(-2.01),
            |row| row.gap_bias_us.p50 = None,
            |row| row.false_zero_gaps = 1,
        ];
        for (i, change) in changes.into_iter().enumerate() {
            let mut row = testing::row(100);
            change(&mut row);
            assert!(!are_kept(&row), "{i}");
        }
    }

    #[test]
    fn few_streams_are_held_to_what_a_sender_that_slept_can_do() {
        let mut row = testing::row(99);
        (row.kernel_us.p50, row.kernel_us.p99, row.kernel_us.p99_9) = (Some(9.0), Some(40.0), Some(90.0));
        assert!(are_kept(&row));
        row.kernel_us.p99 = Some(40.1);
        assert!(!are_kept(&row));
    }
}
