//! Deadlines of connections, earliest first, and the wait for the next one.
//!
//! A binary heap of absolute instants with at most one live entry per connection. Cancelling is lazy: an entry whose
//! connection has another deadline by then, or is another connection, is skipped when its time comes; when most
//! entries are dead the heap is swept. Waiting sleeps to shortly before the deadline on a timer descriptor (which,
//! unlike a timeout, the kernel does not round up) and leaves the rest to spinning.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::units::Nanos;

/// How long before a deadline the sleep ends and the spinning begins. A timer descriptor wakes 16 µs late in the
/// median and 72 µs late at the 99th percentile on a virtual machine; 100 µs cover that, at 6% of a core.
pub(crate) const SPIN_WINDOW: Nanos = Nanos(100_000);

/// Below this many dead entries a sweep is not worth its time.
const SWEEP_MIN: usize = 1024;

/// A deadline of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Deadline {
    /// When, on CLOCK_MONOTONIC.
    pub(crate) at: Nanos,
    /// Whose.
    pub(crate) owner: u64,
}

/// All deadlines.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<Deadline>>,
    dead: usize,
}

impl Timers {
    /// Adds a deadline.
    pub(crate) fn add(&mut self, deadline: Deadline) {
        self.heap.push(Reverse(deadline));
    }

    /// Notes that one entry will be skipped when its time comes.
    pub(crate) fn forget_one(&mut self) {
        self.dead += 1;
    }

    /// The earliest entry, live or dead.
    pub(crate) fn earliest(&self) -> Option<Deadline> {
        self.heap.peek().map(|Reverse(d)| *d)
    }

    /// Replaces the earliest entry by its owner's next deadline: one sift instead of a pop and a push.
    pub(crate) fn replace_earliest(&mut self, next: Deadline) {
        if let Some(mut top) = self.heap.peek_mut() {
            *top = Reverse(next);
        }
    }

    /// Removes the earliest entry.
    pub(crate) fn remove_earliest(&mut self) {
        if let Some(top) = self.heap.peek_mut() {
            PeekMut::pop(top);
        }
    }

    /// Removes the earliest entry, which was dead.
    pub(crate) fn remove_dead(&mut self) {
        self.remove_earliest();
        self.dead = self.dead.saturating_sub(1);
    }

    /// Sweeps out dead entries when they are most of the heap, so that closed connections with far deadlines cost no
    /// memory for long.
    pub(crate) fn sweep(&mut self, is_live: impl Fn(Deadline) -> bool) {
        if self.dead > SWEEP_MIN && self.dead > self.heap.len() / 2 {
            self.heap.retain(|Reverse(d)| is_live(*d));
            self.dead = 0;
        }
    }
}

/// The timer descriptor that ends a sleep.
#[derive(Debug)]
pub(crate) struct Alarm {
    timer: TimerFd,
    armed: Option<Nanos>,
}

impl Alarm {
    /// A timer on CLOCK_MONOTONIC, not armed.
    ///
    /// # Errors
    /// When no descriptor is free.
    pub(crate) fn new() -> Result<Self, Errno> {
        let timer =
            TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)?;
        Ok(Self { timer, armed: None })
    }

    /// The descriptor, for the event loop.
    pub(crate) const fn timer(&self) -> &TimerFd {
        &self.timer
    }

    /// Sets the instant of the wake-up, or none. A system call only when that changes.
    ///
    /// # Errors
    /// Whatever the system says.
    pub(crate) fn set(&mut self, at: Option<Nanos>) -> Result<(), Errno> {
        if self.armed == at {
            return Ok(());
        }
        match at {
            // An instant of zero would disarm the timer; one nanosecond after boot has passed as well.
            Some(at) => {
                let at = at.0.max(1);
                let at = TimeSpec::new(at / Nanos::PER_SECOND, at % Nanos::PER_SECOND);
                self.timer.set(Expiration::OneShot(at), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
            }
            None => self.timer.unset()?,
        }
        self.armed = at;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deadline(at: i64, owner: u64) -> Deadline {
        Deadline { at: Nanos(at), owner }
    }

    #[test]
    fn the_earliest_comes_first_and_ties_by_owner() {
        let mut timers = Timers::default();
        for d in [deadline(30, 1), deadline(10, 2), deadline(20, 3), deadline(10, 1)] {
            timers.add(d);
        }
        assert_eq!(timers.earliest(), Some(deadline(10, 1)));
        timers.replace_earliest(deadline(25, 1));
        assert_eq!(timers.earliest(), Some(deadline(10, 2)));
        timers.remove_earliest();
        let mut rest = Vec::new();
        while let Some(d) = timers.earliest() {
            rest.push(d.at.0);
            timers.remove_earliest();
        }
        assert_eq!(rest, [20, 25, 30]);
    }

    #[test]
    fn dead_entries_are_swept_when_they_prevail() {
        let mut timers = Timers::default();
        for i in 0..3000 {
            timers.add(deadline(i, u64::try_from(i).unwrap()));
        }
        for _ in 0..1400 {
            timers.forget_one();
        }
        timers.sweep(|_| panic!("not yet"));
        for _ in 0..200 {
            timers.forget_one();
        }
        timers.sweep(|d| d.owner >= 1600);
        assert_eq!(timers.heap.len(), 1400);
        assert_eq!(timers.earliest(), Some(deadline(1600, 1600)));
    }
}
