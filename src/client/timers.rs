//! Deadlines of connections: a heap with at most a few entries per connection.
//!
//! Deadlines mostly move later (every byte moves the idle deadline), so an entry is not updated but checked when it
//! comes up: the owner says what its deadline is now and is entered again if it has not come.

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

    /// Takes an owner whose entry is due.
    pub(crate) fn pop_due(&mut self, now: Ticks) -> Option<usize> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, owner))| owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_come_up_in_the_order_of_their_deadlines() {
        let mut timers = Timers::with_capacity(4);
        [(30, 3), (10, 1), (20, 2)].into_iter().for_each(|(at, owner)| timers.arm(Ticks(at), owner));
        assert_eq!(timers.next(), Some(Ticks(10)));
        assert_eq!(timers.pop_due(Ticks(9)), None);
        assert_eq!(timers.pop_due(Ticks(20)), Some(1));
        assert_eq!(timers.pop_due(Ticks(20)), Some(2));
        assert_eq!(timers.pop_due(Ticks(20)), None);
        assert_eq!(timers.pop_due(Ticks(30)), Some(3));
        assert_eq!(timers.next(), None);
    }
}
