//! The only reader of time.
//!
//! Hot paths store raw ticks of the time stamp counter ([`Clock::ticks`]); they become nanoseconds later, on the axis
//! of CLOCK_MONOTONIC, by a [`Timeline`] of anchors taken through the run. quanta's own scaling is not used: its
//! start-up calibration was seen to be off by up to 253 ppm (15 ms in a minute), while two anchors 100 ms apart agree
//! within 0.02 ppm. Kernel receive stamps are CLOCK_REALTIME; the anchors carry the offset of that clock too, so that
//! a step of the wall clock moves no latency.

pub mod anchor;
pub mod forecast;
pub mod scheduler;
pub mod timeline;

use crate::units::{Nanos, Ticks};

pub use anchor::Anchor;
pub use forecast::Forecast;
pub use scheduler::{RunQueue, Scheduling};
pub use timeline::{ClockCheck, Timeline};

/// Reads raw ticks and kernel clocks. Cheap to clone; every thread has its own.
#[derive(Debug, Clone)]
pub struct Clock {
    counter: quanta::Clock,
}

impl Clock {
    /// A clock. The counter's source is the TSC where the processor has an invariant one, else CLOCK_MONOTONIC.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this room is the reader of time")]
    pub fn new() -> Self {
        Self { counter: quanta::Clock::new() }
    }

    /// The raw counter, now: about 15 ns.
    #[inline]
    #[must_use]
    pub fn ticks(&self) -> Ticks {
        Ticks(self.counter.raw())
    }

    /// CLOCK_MONOTONIC in nanoseconds, now; for control-plane decisions, not for stamps.
    #[must_use]
    pub fn monotonic(&self) -> Nanos {
        anchor::read_monotonic()
    }

    /// Processor time of the calling thread so far, in user space and in the kernel.
    #[must_use]
    pub fn thread_cpu(&self) -> Nanos {
        anchor::read_thread_cpu()
    }

    /// Reads counter and kernel clocks as close together as the machine allows.
    #[must_use]
    pub fn anchor(&self) -> Anchor {
        Anchor::take(self)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

/// Ticks per nanosecond, for arming timers in ticks: two anchors a millisecond apart give it to about 100 ppm. Never
/// used for a reported span.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    ticks_per_ns: f64,
}

impl Rate {
    /// The rate between two anchors; one tick per nanosecond when they are the same instant.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a rate needs seven digits, a double has fifteen")]
    pub fn between(first: &Anchor, second: &Anchor) -> Self {
        let ticks = second.ticks.0.saturating_sub(first.ticks.0) as f64;
        let ns = second.monotonic.0.saturating_sub(first.monotonic.0) as f64;
        Self { ticks_per_ns: if ns > 0.0 && ticks > 0.0 { ticks / ns } else { 1.0 } }
    }

    /// How many ticks a span takes; zero for a negative span.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "float to integer saturates, and a timer that far away is never"
    )]
    pub fn ticks(self, span: Nanos) -> Ticks {
        Ticks((span.0.max(0) as f64 * self.ticks_per_ns) as u64)
    }

    /// About how long a number of ticks is; for decisions such as how long to wait, never for a reported span.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "float to integer saturates, and a wait that long is never"
    )]
    pub fn nanos(self, ticks: Ticks) -> Nanos {
        Nanos((ticks.0 as f64 / self.ticks_per_ns) as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_turns_spans_into_ticks_and_back() {
        let clock = Clock::new();
        let first = clock.anchor();
        std::thread::sleep(std::time::Duration::from_millis(1));
        let rate = Rate::between(&first, &clock.anchor());
        let second = rate.nanos(rate.ticks(Nanos::from_secs(1)));
        assert!((second.0 - Nanos::PER_SECOND).abs() < 10, "{second:?}");
        assert_eq!(rate.ticks(Nanos(-5)), Ticks(0));
    }

    #[test]
    fn the_processor_time_of_a_thread_is_its_own() {
        let clock = Clock::new();
        let before = clock.thread_cpu();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let asleep = clock.thread_cpu();
        assert!((asleep.0 - before.0) < 10_000_000, "sleeping takes no processor time");
        let until = clock.monotonic().0 + 20_000_000;
        while clock.monotonic().0 < until {}
        assert!(clock.thread_cpu() > asleep);
    }

    #[test]
    fn ticks_do_not_go_back() {
        let clock = Clock::new();
        let mut last = clock.ticks();
        for _ in 0..10_000 {
            let now = clock.ticks();
            assert!(now >= last);
            last = now;
        }
    }
}
