//! How many answers may be under way at once, and who is next: the queue of an engine with a fixed batch size.
//!
//! First come, first served. Knows owners of connections only by their words.

use std::collections::VecDeque;
use std::num::NonZeroUsize;

/// The turns of all answers that take time.
#[derive(Debug)]
pub(crate) struct Turns {
    /// How many there are at once; `None` is no limit.
    limit: Option<NonZeroUsize>,
    taken: usize,
    /// Owners that wait. One that is gone by its turn gives it back.
    line: VecDeque<u64>,
}

impl Turns {
    /// All turns free.
    pub(crate) const fn new(limit: Option<NonZeroUsize>) -> Self {
        Self { limit, taken: 0, line: VecDeque::new() }
    }

    /// Takes a turn and returns `true`, or puts the owner at the end of the line.
    pub(crate) fn take_or_wait(&mut self, owner: u64) -> bool {
        if self.has_free() && self.line.is_empty() {
            self.taken += 1;
            return true;
        }
        self.line.push_back(owner);
        false
    }

    /// Gives a turn back.
    pub(crate) const fn give_back(&mut self) {
        self.taken = self.taken.saturating_sub(1);
    }

    /// Takes a free turn for the first in the line.
    pub(crate) fn call_next(&mut self) -> Option<u64> {
        if !self.has_free() {
            return None;
        }
        let owner = self.line.pop_front()?;
        self.taken += 1;
        Some(owner)
    }

    fn has_free(&self) -> bool {
        self.limit.is_none_or(|limit| self.taken < limit.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_come_first_served() {
        let mut turns = Turns::new(NonZeroUsize::new(2));
        assert_eq!([1, 2, 3, 4].map(|owner| turns.take_or_wait(owner)), [true, true, false, false]);
        assert_eq!(turns.call_next(), None);
        turns.give_back();
        // A newcomer does not overtake those who wait.
        assert!(!turns.take_or_wait(5));
        assert_eq!((turns.call_next(), turns.call_next()), (Some(3), None));
        turns.give_back();
        turns.give_back();
        assert_eq!((turns.call_next(), turns.call_next(), turns.call_next()), (Some(4), Some(5), None));
        turns.give_back();
        assert!(turns.take_or_wait(6));
    }

    #[test]
    fn without_a_limit_nobody_waits() {
        let mut turns = Turns::new(None);
        assert!((0..1000).all(|owner| turns.take_or_wait(owner)));
        assert_eq!(turns.call_next(), None);
    }
}
