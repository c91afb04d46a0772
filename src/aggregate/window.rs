//! Which part of a run is measured, from the rows alone.
//!
//! The window begins at the first measured due. It ends at the stop, where a run was stopped (by its duration or by
//! its operator), else at the last request's end: a run with a fixed number of requests is over when they are. What
//! happens in the window is not computed here.

use std::borrow::Borrow;

use crate::metrics::formula;
use crate::metrics::rates::Window;
use crate::metrics::row::RequestRow;
use crate::metrics::rows::RowSource;
use crate::record::Phase;
use crate::units::Nanos;

/// The parts of a run on its axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spans {
    /// The measured part.
    pub window: Window,
    /// From the first warm-up due to the window; `None` without warm-up.
    pub warmup: Option<Nanos>,
    /// From the stop to the last request's end; `None` in a run that was not stopped.
    pub drain: Option<Nanos>,
}

impl Spans {
    /// The parts of the run with these rows; `None` when nothing was measured. `stop` is the instant from which on no
    /// request was started, in a run that was stopped before its requests were used up.
    #[must_use]
    pub fn of(rows: impl RowSource, stop: Option<Nanos>) -> Option<Self> {
        let (mut warmup, mut measured): (Option<Nanos>, Option<(Nanos, Nanos)>) = (None, None);
        for row in rows.rows() {
            let row: &RequestRow = row.borrow();
            if row.phase == Phase::Warmup {
                warmup = Some(warmup.map_or(row.due, |first| first.min(row.due)));
            } else {
                let end = end_of(row);
                measured = measured
                    .map(|(first, last)| (first.min(row.due), last.max(end)))
                    .or(Some((row.due, end)));
            }
        }
        let (start, last_end) = measured?;
        let window = Window { start, end: stop.unwrap_or(last_end).max(start) };
        Some(Self {
            window,
            warmup: warmup.and_then(|first| start.since(first)),
            drain: stop.and_then(|stop| last_end.since(stop)).map(|drain| drain.max(Nanos(0))),
        })
    }
}

/// When a request was over: with its terminal, whatever its connection waited for after it. One that was never sent was
/// over when it was due.
#[must_use]
pub fn end_of(row: &RequestRow) -> Nanos {
    formula::stream_end(row).or(row.at.last_output).or(row.send_end).or(row.send_start).unwrap_or(row.due)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::rows::Rows;
    use crate::metrics::testing::row;

    fn due_and_end(phase: Phase, due: i64, end: i64) -> RequestRow {
        let mut row = row(0);
        (row.phase, row.due) = (phase, Nanos(due));
        (row.at.terminal, row.at.end) = (Some(Nanos(end)), Some(Nanos(end + 100)));
        row
    }

    #[test]
    fn a_run_with_a_fixed_number_of_requests_ends_with_its_last_request() {
        let rows = [
            due_and_end(Phase::Warmup, 10, 90),
            due_and_end(Phase::Measured, 120, 700),
            due_and_end(Phase::Measured, 100, 900),
        ];
        let spans = Spans::of(&rows, None).unwrap();
        assert_eq!(spans.window, Window { start: Nanos(100), end: Nanos(900) });
        assert_eq!((spans.warmup, spans.drain), (Some(Nanos(90)), None));
    }

    #[test]
    fn a_stopped_run_is_measured_up_to_the_stop() {
        let rows = [due_and_end(Phase::Measured, 0, 700), due_and_end(Phase::Drain, 300, 900)];
        let spans = Spans::of(&rows, Some(Nanos(800))).unwrap();
        assert_eq!(spans.window.end, Nanos(800));
        assert_eq!((spans.warmup, spans.drain), (None, Some(Nanos(100))));
        let spans = Spans::of(&rows, Some(Nanos(1000))).unwrap();
        assert_eq!(spans.drain, Some(Nanos(0)), "everything ended before the stop");
    }

    #[test]
    fn nothing_measured_has_no_window_and_a_request_that_was_never_sent_ends_when_it_was_due() {
        assert_eq!(Spans::of(&Rows::new(), None), None);
        assert_eq!(Spans::of(&[due_and_end(Phase::Warmup, 0, 1)], None), None);
        let mut unsent = due_and_end(Phase::Measured, 50, 0);
        (unsent.send_start, unsent.send_end, unsent.at) = (None, None, Default::default());
        let spans = Spans::of(&[unsent], None).unwrap();
        assert_eq!(spans.window, Window { start: Nanos(50), end: Nanos(50) });
        assert_eq!(spans.window.seconds(), None);
    }
}
