//! How the schedule of an open loop was kept, from the rows alone.
//!
//! Two questions with two answers: whether requests were begun when they were due, which is the client's own doing,
//! and whether they went out at the rate of the schedule, which a server that is slow to accept can prevent too.

use std::borrow::Borrow;

use crate::metrics::row::RequestRow;
use crate::metrics::rows::RowSource;
use crate::record::outcome::Fault;
use crate::units::Nanos;

/// A send later than this after its due is late. Fifty times what a client with a core of its own is late at the 99th
/// percentile, and below what a latency of an inference server is ever read to.
pub const LATE: Nanos = Nanos::from_millis(1);

/// How the schedule was kept, over measured requests of any outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScheduleKept {
    /// Requests that were due and of which there is a row.
    pub due: u64,
    /// From the first due to the last.
    pub due_span: Nanos,
    /// Requests of which a byte was offered to a socket.
    pub sent: u64,
    /// From the first send start to the last.
    pub sent_span: Nanos,
    /// Requests that were sent, or for which a connection was tried and refused by the other side.
    pub begun: u64,
    /// Of the begun ones, those that were [`LATE`], the time that connecting took left out: it is no time of the client's.
    pub late: u64,
}

impl ScheduleKept {
    /// Of the requests of a run, in any order.
    #[must_use]
    pub fn of(rows: impl RowSource) -> Self {
        let mut kept = Self::default();
        let (mut due, mut sent) = (Extent::default(), Extent::default());
        for row in rows.measured() {
            let row: &RequestRow = row.borrow();
            kept.due += 1;
            due.take(row.due);
            if let Some(send_start) = row.send_start {
                kept.sent += 1;
                sent.take(send_start);
            }
            if row.send_start.is_some() || was_refused(row) {
                kept.begun += 1;
                kept.late += u64::from(own_lag(row).is_some_and(|lag| lag > LATE));
            }
        }
        Self { due_span: due.span(), sent_span: sent.span(), ..kept }
    }

    /// Requests a second by the schedule; `None` where it holds less than two instants.
    #[must_use]
    pub fn held_per_s(&self) -> Option<f64> {
        per_second(self.due, self.due_span)
    }

    /// Requests a second as they were sent; `None` where less than two instants are known.
    #[must_use]
    pub fn sent_per_s(&self) -> Option<f64> {
        per_second(self.sent, self.sent_span)
    }

    /// The latter over the former. What a single late request at the end of a short run does to it is no rate, so a
    /// difference of less than [`LATE`] counts as none.
    #[must_use]
    pub fn rate_share(&self) -> Option<f64> {
        let share = self.sent_per_s()? / self.held_per_s()?;
        let is_noise = self.sent == self.due && self.sent_span.since(self.due_span)? <= LATE;
        Some(if is_noise { 1.0 } else { share })
    }
}

/// A connection was tried for it, and it was not this machine that could not make one.
fn was_refused(row: &RequestRow) -> bool {
    row.connect_start.is_some() && row.outcome.fault() != Fault::Client
}

/// How late the client itself was.
fn own_lag(row: &RequestRow) -> Option<Nanos> {
    let Some(sent) = row.send_start else { return row.connect_start?.since(row.due) };
    sent.since(row.due)?.since(row.connect.unwrap_or_default())
}

/// The first and the last of some instants.
#[derive(Debug, Clone, Copy, Default)]
struct Extent(Option<(Nanos, Nanos)>);

impl Extent {
    fn take(&mut self, at: Nanos) {
        self.0 = Some(self.0.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
    }

    fn span(self) -> Nanos {
        self.0.and_then(|(first, last)| last.since(first)).unwrap_or_default()
    }
}

fn per_second(count: u64, span: Nanos) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "a number of requests is far below 2^53")]
    (count > 1 && span > Nanos(0)).then(|| (count - 1) as f64 / span.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::testing::row;
    use crate::record::{Outcome, Phase};

    /// Due and sent at these microseconds.
    fn request(due: i64, sent: i64) -> RequestRow {
        let mut row = row(0);
        (row.due, row.send_start) = (Nanos(due * 1_000), Some(Nanos(sent * 1_000)));
        row
    }

    #[test]
    fn a_hand_worked_schedule() {
        let mut connecting = request(2_000_000, 2_009_000);
        (connecting.connect_start, connecting.connect) = (Some(Nanos(2_000_010_000)), Some(Nanos(8_900_000)));
        let mut refused = request(3_000_000, 0);
        (refused.send_start, refused.connect_start) = (None, Some(Nanos(3_001_001_000)));
        refused.outcome = Outcome::ConnectRefused;
        let mut unable = refused.clone();
        (unable.due, unable.outcome) = (Nanos(4_000_000_000), Outcome::NoFileDescriptor);
        let mut warmup = request(-9_000_000, 9_000_000);
        warmup.phase = Phase::Warmup;
        let rows = [unable, request(1_000_000, 1_001_000), refused, request(0, 1_001), connecting, warmup];
        let kept = ScheduleKept::of(&rows);
        assert_eq!((kept.due, kept.due_span), (5, Nanos(4_000_000_000)));
        assert_eq!((kept.sent, kept.sent_span), (3, Nanos(2_007_999_000)));
        // Late are the first, by a microsecond beyond the limit, and the refused one; the one at the limit is not.
        assert_eq!((kept.begun, kept.late), (4, 2));
        assert_eq!((kept.held_per_s(), kept.sent_per_s()), (Some(1.0), Some(2.0 / 2.007_999)));
        assert_eq!(kept.rate_share(), Some(2.0 / 2.007_999));
    }

    #[test]
    fn a_short_run_is_not_slow_for_one_late_request() {
        let kept = ScheduleKept::of(&[request(0, 0), request(1_000, 2_000)]);
        assert_eq!(kept.rate_share(), Some(1.0));
        let kept = ScheduleKept::of(&[request(0, 0), request(1_000, 2_001)]);
        assert!(kept.rate_share().unwrap() < 0.5);
    }

    #[test]
    fn nothing_has_no_rate() {
        let none = ScheduleKept::of(&[]);
        assert_eq!((none, none.rate_share()), (ScheduleKept::default(), None));
        assert_eq!(ScheduleKept::of(&[request(0, 0)]).rate_share(), None);
    }
}
