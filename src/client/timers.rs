//! Deadlines of connections: a heap with at most a few entries per connection.
//!
//! Deadlines mostly move later (every byte moves the idle deadline), so an entry is not updated but checked when it
//! comes up: the owner says what its deadline is now and is entered again if it has not come. An owner remembers which
//! of its entries are still to come ([`Armed`]), so that a short deadline now and then (the last bytes of an answer)
//! does not leave a long one behind every time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::units::Ticks;

/// Deadlines by owner.
#[derive(Debug)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Ticks, usize)>>,
}

impl Timers {
    /// Room for a number of owners without growing.
    pub(crate) fn with_capacity(owners: usize) -> Self {
        Self { heap: BinaryHeap::with_capacity(owners * 2) }
    }

    /// Enters a deadline.
    pub(crate) fn arm(&mut self, at: Ticks, owner: usize) {
        self.heap.push(Reverse((at, owner)));
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Ticks> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes an entry that is due: its deadline and its owner.
    pub(crate) fn pop_due(&mut self, now: Ticks) -> Option<(Ticks, usize)> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }
}

/// The entries of one owner that are still to come: the earliest, and the one it was put before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Armed {
    first: Option<Ticks>,
    then: Option<Ticks>,
}

impl Armed {
    /// Whether a deadline needs an entry of its own; an earlier one will look at it otherwise.
    pub(crate) fn needs(&mut self, deadline: Ticks) -> bool {
        if self.first.is_some_and(|first| first <= deadline) {
            return false;
        }
        self.then = self.first.replace(deadline).or(self.then);
        true
    }

    /// An entry came up.
    pub(crate) fn came(&mut self, at: Ticks) {
        if self.first == Some(at) {
            self.first = self.then.take();
        } else if self.then == Some(at) {
            self.then = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_deadlines_now_and_then_leave_no_long_ones_behind() {
        // A connection whose every answer arms 100 for its last bytes, while its idle deadline is 900,000 away.
        let (mut timers, mut armed) = (Timers::with_capacity(1), Armed::default());
        let mut now = Ticks(0);
        for _ in 0..10_000 {
            for deadline in [Ticks(now.0 + 900_000), Ticks(now.0 + 100)] {
                if armed.needs(deadline) {
                    timers.arm(deadline, 0);
                }
            }
            now = Ticks(now.0 + 130);
            while let Some((at, _)) = timers.pop_due(now) {
                armed.came(at);
                let idle = Ticks(now.0 + 900_000);
                if armed.needs(idle) {
                    timers.arm(idle, 0);
                }
            }
            assert!(timers.heap.len() <= 3, "{} entries for one connection", timers.heap.len());
        }
        assert!(now > Ticks(900_000), "the long deadline came up too");
    }

    #[test]
    fn owners_come_up_in_the_order_of_their_deadlines() {
        let mut timers = Timers::with_capacity(4);
        [(30, 3), (10, 1), (20, 2)].into_iter().for_each(|(at, owner)| timers.arm(Ticks(at), owner));
        assert_eq!(timers.next(), Some(Ticks(10)));
        assert_eq!(timers.pop_due(Ticks(9)), None);
        assert_eq!(timers.pop_due(Ticks(20)), Some((Ticks(10), 1)));
        assert_eq!(timers.pop_due(Ticks(20)), Some((Ticks(20), 2)));
        assert_eq!(timers.pop_due(Ticks(20)), None);
        assert_eq!(timers.pop_due(Ticks(30)), Some((Ticks(30), 3)));
        assert_eq!(timers.next(), None);
    }
}
