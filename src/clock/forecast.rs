//! Which counter readings instants of CLOCK_MONOTONIC that are to come will have: what a schedule is compared with.
//!
//! A rate taken from two anchors a few milliseconds apart is good to some parts per million, which in an hour are
//! milliseconds. So an instant is told from the newest anchor, never from the first one, and the rate from the two
//! furthest apart. What is told of an instant becomes exact as it comes near.

use crate::clock::{Anchor, Clock, Rate};
use crate::units::{Nanos, Ticks};

/// Age of the newest anchor from which on another is worth its four microseconds: even ten parts per million are then
/// one microsecond.
const STALE: Nanos = Nanos::from_millis(100);

/// Tells counter readings.
#[derive(Debug, Clone)]
pub struct Forecast {
    first: Anchor,
    newest: Anchor,
    rate: Rate,
    stale_after: Ticks,
}

impl Forecast {
    /// From an anchor taken now, and the rate as it is known so far.
    #[must_use]
    pub fn new(clock: &Clock, rate: Rate) -> Self {
        let first = clock.anchor();
        Self { first, newest: first, rate, stale_after: rate.ticks(STALE) }
    }

    /// The reading at an instant.
    #[must_use]
    pub fn ticks_at(&self, at: Nanos) -> Ticks {
        let ahead = at.0.saturating_sub(self.newest.monotonic.0);
        let span = self.rate.ticks(Nanos(ahead.saturating_abs())).0;
        let from = self.newest.ticks.0;
        Ticks(if ahead < 0 { from.saturating_sub(span) } else { from.saturating_add(span) })
    }

    /// Whether another anchor is worth taking, where four microseconds do not matter.
    #[must_use]
    pub fn is_stale(&self, now: Ticks) -> bool {
        now.0.saturating_sub(self.newest.ticks.0) > self.stale_after.0
    }

    /// Whether it is worth it anywhere: the newest one is twice as old as that.
    #[must_use]
    pub fn is_old(&self, now: Ticks) -> bool {
        now.0.saturating_sub(self.newest.ticks.0) > self.stale_after.0.saturating_mul(2)
    }

    /// Takes another anchor.
    pub fn refresh(&mut self, clock: &Clock) {
        self.newest = clock.anchor();
        if self.newest.ticks.0.saturating_sub(self.first.ticks.0) >= self.stale_after.0 {
            self.rate = Rate::between(&self.first, &self.newest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ticks: u64, ns: i64) -> Anchor {
        Anchor {
            ticks: Ticks(ticks),
            monotonic: Nanos(ns),
            wall_offset: Nanos(0),
            width: Ticks(0),
            wall_width: Nanos(0),
        }
    }

    #[test]
    fn instants_are_told_from_the_newest_anchor_on_both_sides() {
        // Three ticks a nanosecond, and a rate that is wrong by a thousandth.
        let (first, newest) = (at(1_000, 0), at(3_000_001_000, 1_000_000_000));
        let wrong = Rate::between(&at(0, 0), &at(3_003, 1_000));
        let forecast = Forecast { first, newest, rate: wrong, stale_after: Ticks(300) };
        assert_eq!(forecast.ticks_at(newest.monotonic), newest.ticks);
        assert_eq!(forecast.ticks_at(Nanos(1_000_001_000)), Ticks(3_000_001_000 + 3_003));
        assert_eq!(forecast.ticks_at(Nanos(999_999_000)), Ticks(3_000_001_000 - 3_003));
        assert!(!forecast.is_stale(Ticks(3_000_001_300)) && forecast.is_stale(Ticks(3_000_001_301)));
        assert!(!forecast.is_old(Ticks(3_000_001_600)) && forecast.is_old(Ticks(3_000_001_601)));
    }

    #[test]
    fn an_instant_that_has_come_had_the_reading_that_was_told() {
        let clock = Clock::new();
        let early = clock.anchor();
        std::thread::sleep(std::time::Duration::from_millis(2));
        let mut forecast = Forecast::new(&clock, Rate::between(&early, &clock.anchor()));
        for _ in 0..3 {
            std::thread::sleep(std::time::Duration::from_millis(110));
            assert!(forecast.is_stale(clock.ticks()));
            forecast.refresh(&clock);
            let later = clock.anchor();
            let told = forecast.ticks_at(later.monotonic);
            let off = forecast.rate.nanos(Ticks(told.0.abs_diff(later.ticks.0)));
            // Two brackets around the kernel's clock; a virtual machine may be stopped within one.
            assert!(off < Nanos(20_000), "{off:?}");
        }
    }
}
