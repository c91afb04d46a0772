//! How much of a closed loop's time its slots waited for the client: from the end of one request to the beginning of the
//! next one of the same slot.
//!
//! Only the time between two requests of a slot counts, so the beginning and the end of a run, in which slots are empty
//! because nothing was left or nothing had begun, have no part in it, nor has a slot with one request. Connecting belongs
//! to the request that needs it. The first change of each slot is kept apart: it may have waited for the watch over the
//! first kept connection, which is paid once in a run and says nothing about the client's speed.

use std::borrow::Borrow;

use crate::aggregate::window;
use crate::metrics::row::RequestRow;
use crate::metrics::rows::RowSource;
use crate::units::Nanos;

/// Where the time of a closed loop's slots went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SlotTime {
    /// Slots with at least three requests: those of which `waited` and `in_flight` know something.
    pub slots: u64,
    /// From one request's end to the next one's beginning, without the first change of each slot.
    pub waited: Nanos,
    /// The lives of the requests after those changes, connecting included.
    pub in_flight: Nanos,
    /// Slots whose second request went over the connection of the first.
    pub kept_slots: u64,
    /// Their first changes.
    pub first_waited: Nanos,
}

/// What of a request counts here, in the order in which the requests of a slot came.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Life {
    slot: u32,
    due: Nanos,
    request_index: u64,
    begin: Nanos,
    end: Nanos,
    is_reused: bool,
}

impl Life {
    fn of(row: &RequestRow) -> Self {
        Self {
            slot: row.slot,
            due: row.due,
            request_index: row.request_index,
            begin: begin_of(row),
            end: end_of(row),
            is_reused: row.connection_use > 0,
        }
    }
}

impl SlotTime {
    /// Of the measured requests of a run, in any order.
    #[must_use]
    pub fn of(rows: impl RowSource) -> Self {
        let mut lives: Vec<Life> = rows.measured().map(|row| Life::of(row.borrow())).collect();
        lives.sort_unstable();
        let mut time = Self::default();
        for slot in lives.chunk_by(|a, b| a.slot == b.slot) {
            let changes = slot.iter().zip(slot.iter().skip(1));
            for (change, (before, after)) in changes.enumerate() {
                let begin = after.begin;
                // A request that goes out before the last bytes of the answer before it waited for nothing.
                let waited = begin.0.saturating_sub(before.end.0).max(0);
                if change == 0 && after.is_reused {
                    time.kept_slots += 1;
                    add(&mut time.first_waited, waited);
                } else if change > 0 {
                    add(&mut time.waited, waited);
                    add(&mut time.in_flight, after.end.0.saturating_sub(begin.0).max(0));
                }
            }
            time.slots += u64::from(slot.len() > 2);
        }
        time
    }

    /// Share of the slots' time that they waited; `None` without any.
    #[must_use]
    pub fn waited_share(&self) -> Option<f64> {
        let whole = self.whole();
        (whole > Nanos(0)).then(|| self.waited.as_secs_f64() / whole.as_secs_f64())
    }

    /// The time of the slots, without the first change of each.
    #[must_use]
    pub fn whole(&self) -> Nanos {
        Nanos(self.waited.0.saturating_add(self.in_flight.0))
    }
}

fn add(sum: &mut Nanos, ns: i64) {
    *sum = Nanos(sum.0.saturating_add(ns));
}

/// The first that was done for a request; one that came to nothing began when it was due.
fn begin_of(row: &RequestRow) -> Nanos {
    row.connect_start.or(row.send_start).unwrap_or(row.due)
}

/// When the connection had nothing more to bring: the slot may wait for the last bytes after a terminal, which is the
/// server's time.
fn end_of(row: &RequestRow) -> Nanos {
    row.at.end.unwrap_or_else(|| window::end_of(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::rows::Rows;
    use crate::metrics::testing::row;
    use crate::record::Phase;

    fn ms(ms: i64) -> Nanos {
        Nanos::from_millis(ms)
    }

    /// Due right at the end of what was before, sent and ended at these instants.
    fn request(slot: u32, sent: i64, end: i64) -> RequestRow {
        let mut row = row(0);
        (row.slot, row.due, row.send_start) = (slot, ms(sent), Some(ms(sent)));
        (row.at.terminal, row.at.end) = (Some(ms(end - 1)), Some(ms(end)));
        row
    }

    #[test]
    fn a_hand_worked_loop() {
        let rows = [
            // Out of order. Changes of 10 (the first), 2 and 0 ms; then an answer whose last bytes nobody waited for.
            request(0, 112, 200),
            request(0, 0, 50),
            request(0, 60, 110),
            request(0, 200, 230),
            request(0, 229, 250),
            // Only a first change.
            request(1, 0, 40),
            request(1, 50, 90),
            // No change.
            request(2, 0, 300),
        ];
        let time = SlotTime::of(&rows);
        assert_eq!((time.slots, time.waited, time.in_flight), (1, ms(2), ms(88 + 30 + 21)));
        assert_eq!((time.kept_slots, time.first_waited), (2, ms(20)));
        assert!((time.waited_share().unwrap() - 2.0 / 141.0).abs() < 1e-12);
    }

    #[test]
    fn connecting_belongs_to_the_request() {
        let mut rows = [request(0, 0, 10), request(0, 20, 20), request(0, 70, 80)];
        rows[1].connection_use = 0;
        (rows[2].due, rows[2].connect_start, rows[2].connect) = (ms(20), Some(ms(21)), Some(ms(49)));
        let time = SlotTime::of(&rows);
        assert_eq!((time.waited, time.in_flight), (ms(1), ms(59)));
        assert_eq!((time.kept_slots, time.first_waited), (0, ms(0)), "nothing was kept, nothing watched");
        // A connect that failed: nothing was sent.
        (rows[2].send_start, rows[2].at.terminal) = (None, None);
        assert_eq!(SlotTime::of(&rows), time);
    }

    #[test]
    fn nothing_has_no_share() {
        assert_eq!(SlotTime::of(&Rows::new()), SlotTime::default());
        assert_eq!(SlotTime::of(&[request(0, 0, 10), request(0, 10, 20)]).waited_share(), None);
        let mut warmup = request(0, 0, 10);
        warmup.phase = Phase::Warmup;
        assert_eq!(SlotTime::of(&[warmup.clone(), warmup.clone(), warmup]), SlotTime::default());
    }
}
