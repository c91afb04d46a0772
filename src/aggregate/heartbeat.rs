//! Whether the whole process stood still: a thread that pauses regularly sees when a pause took too long.
//!
//! A thread that wakes late may have waited for a core; the scheduler counts that, and it is taken off. What is left is
//! time in which nothing of this process could run: it was stopped by a signal, or the machine itself was paused. Such a
//! stop shows in no other figure: no thread of a stopped process is ready to run, and bytes that arrive meanwhile are
//! merged under the stamp of the last of them.

use std::time::Duration;

use crate::clock::{Clock, RunQueue};
use crate::units::Nanos;

/// Pauses of one thread, watched.
#[derive(Debug)]
pub(super) struct Heartbeat {
    clock: Clock,
    queue: Option<RunQueue>,
    longest: Option<Nanos>,
}

impl Heartbeat {
    /// Of the calling thread.
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, queue: RunQueue::open(), longest: None }
    }

    /// Sleeps, and looks how long that took.
    pub(super) fn pause(&mut self, pause: Duration) {
        let before = (self.clock.monotonic(), self.waited());
        std::thread::sleep(pause);
        let after = (self.clock.monotonic(), self.waited());
        let Some((waited, waited_before)) = after.1.zip(before.1) else { return };
        let asked = i64::try_from(pause.as_nanos()).unwrap_or(i64::MAX);
        let late = after.0.0.saturating_sub(before.0.0).saturating_sub(asked);
        let still = late.saturating_sub(waited.0.saturating_sub(waited_before.0)).max(0);
        self.longest = Some(Nanos(self.longest.map_or(still, |longest| longest.0.max(still))));
    }

    /// The longest time by which a pause was too long without waiting for a core; `None` where that is not known.
    pub(super) fn longest(&self) -> Option<Nanos> {
        self.longest
    }

    fn waited(&self) -> Option<Nanos> {
        self.queue.as_ref()?.wait()
    }
}
