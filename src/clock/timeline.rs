//! Ticks and kernel stamps on one axis: nanoseconds of CLOCK_MONOTONIC since the run's zero.
//!
//! Between two anchors the scale is linear; before the first and after the last the nearest pair is extended. A kernel
//! stamp is moved by the offset of the wall clock that held when it was made: the one of the anchors around it that
//! puts it before its own user-space reading, which decides the case of a step between two anchors.
//!
//! Every reading of a run is scaled, so scaling is fast: a segment keeps its slope as a factor, and most readings are of
//! the newest segment, where nothing is searched. The result is that of the division, to the nanosecond.

use crate::clock::Anchor;
use crate::units::{Nanos, Ticks, UnixNanos};

/// A change of the wall clock's offset beyond this is a step, not reading noise (anchors are good to about 100 ns;
/// the kernel keeps both clocks at the same rate).
const STEP: Nanos = Nanos(100_000);

/// How far a kernel stamp may seem to lie after the user-space reading of the same read before another offset is
/// tried: the noise of two brackets.
const STAMP_NOISE: Nanos = Nanos(2_000);

/// The anchors of a run, in order, and the run's zero.
#[derive(Debug, Clone)]
pub struct Timeline {
    anchors: Vec<Anchor>,
    /// The slope from each anchor to the next one.
    slopes: Vec<Slope>,
    /// Readings that nothing is scaled by.
    readings: Vec<Anchor>,
    zero: Nanos,
}

/// Nanoseconds per tick between two anchors.
#[derive(Debug, Clone, Copy)]
struct Slope {
    rise: u64,
    run: u64,
    /// `rise / run` in units of 2 to the power of −[`FACTOR_BITS`], rounded down.
    factor: u64,
}

/// Room for four nanoseconds a tick, a counter of 250 MHz.
const FACTOR_BITS: u32 = 62;

/// What the end of the run says about the clock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClockCheck {
    /// Largest difference between a reading of CLOCK_MONOTONIC and this axis at the same ticks, over readings that the
    /// axis is not made from; `None` without any.
    pub error: Option<Nanos>,
    /// How far the two clocks may have been apart when they were read, at most: half the widest bracket around a reading
    /// or an anchor. An error below this is no more than the reading's own.
    pub bracket: Nanos,
    /// The same for the wall clock, by which kernel stamps are moved onto the axis.
    pub wall_bracket: Nanos,
    /// Distance of the first and the last anchor.
    pub compared_over: Nanos,
    /// The error in parts per million of that distance; `None` without readings.
    pub drift_ppm: Option<f64>,
    /// Anchors at which the counter or CLOCK_MONOTONIC had gone back.
    pub inversions: u64,
    /// Steps of the wall clock.
    pub wall_steps: u64,
}

impl Timeline {
    /// A timeline whose zero is the first anchor.
    #[must_use]
    pub fn new(first: Anchor) -> Self {
        Self { anchors: vec![first], slopes: Vec::new(), readings: Vec::new(), zero: first.monotonic }
    }

    /// Adds an anchor taken after all others.
    pub fn push(&mut self, anchor: Anchor) {
        self.slopes.push(Slope::between(self.last(), &anchor));
        self.anchors.push(anchor);
    }

    /// Keeps a reading to check the axis by. It takes no part in the scaling, so it does not testify for itself.
    pub fn check_against(&mut self, reading: Anchor) {
        self.readings.push(reading);
    }

    /// CLOCK_MONOTONIC at the run's zero.
    #[must_use]
    pub fn zero_monotonic(&self) -> Nanos {
        self.zero
    }

    /// CLOCK_REALTIME at the run's zero.
    #[must_use]
    pub fn zero_unix(&self) -> Nanos {
        Nanos(self.zero.0.saturating_add(self.first().wall_offset.0))
    }

    /// CLOCK_REALTIME at an instant of the run, by the offset at the run's start: steps of the wall clock during the
    /// run do not show.
    #[must_use]
    pub fn unix_at(&self, at: Nanos) -> Nanos {
        Nanos(self.zero_unix().0.saturating_add(at.0))
    }

    /// The counter at the newest anchor: what is not later can be scaled for good.
    #[must_use]
    pub fn covered_until(&self) -> Ticks {
        self.last().ticks
    }

    /// A counter reading on the run's axis.
    #[must_use]
    pub fn at(&self, ticks: Ticks) -> Nanos {
        let segment = self.segment(ticks);
        let (a, b) = self.ends(segment);
        let fast =
            self.slopes.get(segment).and_then(|slope| slope.rise_after(ticks.0.checked_sub(a.ticks.0)?));
        let at = fast.map_or_else(|| interpolate(a, b, ticks), |rise| a.monotonic.0.saturating_add(rise));
        Nanos(at.saturating_sub(self.zero.0))
    }

    /// A kernel stamp on the run's axis. `user` is the reading right after the receive call that brought it.
    #[must_use]
    pub fn kernel_at(&self, stamp: UnixNanos, user: Ticks) -> Nanos {
        let (a, b) = self.ends(self.segment(user));
        let by = |anchor: &Anchor| {
            Nanos(stamp.get().saturating_sub(anchor.wall_offset.0).saturating_sub(self.zero.0))
        };
        let (first, second) = (by(a), by(b));
        if (second.0 - first.0).abs() < STEP.0 {
            return second;
        }
        // The wall clock was stepped between the two anchors. A stamp is made before its read, so the later of the
        // candidates that are not after the read is the one.
        let seen = self.at(user);
        let plausible = |n: &Nanos| n.0 <= seen.0.saturating_add(STAMP_NOISE.0);
        [first, second].into_iter().filter(plausible).max().unwrap_or(seen)
    }

    /// Judges the anchors: see [`ClockCheck`].
    #[must_use]
    pub fn check(&self) -> ClockCheck {
        let compared_over = Nanos(self.last().monotonic.0.saturating_sub(self.zero.0));
        let all = || self.anchors.iter().chain(&self.readings);
        let widest = all().map(|a| a.width).max().unwrap_or_default();
        let wall_bracket = self.anchors.iter().map(|a| a.wall_width).max().unwrap_or_default();
        let mut check = ClockCheck {
            error: None,
            bracket: Nanos(self.span(widest).0 / 2),
            wall_bracket: Nanos(wall_bracket.0 / 2),
            compared_over,
            drift_ppm: None,
            inversions: 0,
            wall_steps: 0,
        };
        for pair in self.anchors.windows(2) {
            if let [a, b] = pair {
                check.inversions += u64::from(b.ticks < a.ticks || b.monotonic < a.monotonic);
                check.wall_steps += u64::from((b.wall_offset.0 - a.wall_offset.0).abs() >= STEP.0);
            }
        }
        let read_at = |reading: &Anchor| Nanos(reading.monotonic.0.saturating_sub(self.zero.0));
        let errors = self.readings.iter().map(|r| Nanos((self.at(r.ticks).0 - read_at(r).0).abs()));
        check.error = errors.max();
        let share = |error: Nanos| error.as_secs_f64() / compared_over.as_secs_f64() * 1e6;
        check.drift_ppm = check.error.filter(|_| compared_over.0 > 0).map(share);
        check
    }

    /// How long a few ticks are.
    fn span(&self, ticks: Ticks) -> Nanos {
        let start = self.first().ticks;
        Nanos(self.at(Ticks(start.0.saturating_add(ticks.0))).0.saturating_sub(self.at(start).0))
    }

    /// The number of the segment of a reading: that of its first anchor.
    fn segment(&self, ticks: Ticks) -> usize {
        let newest = self.anchors.len().saturating_sub(2);
        if self.anchors.get(newest).is_some_and(|a| a.ticks <= ticks) {
            return newest;
        }
        self.anchors.partition_point(|a| a.ticks <= ticks).saturating_sub(1).min(newest)
    }

    /// The anchors of a segment; twice the same one where there is no other.
    fn ends(&self, segment: usize) -> (&Anchor, &Anchor) {
        (
            self.anchors.get(segment).unwrap_or_else(|| self.first()),
            self.anchors.get(segment + 1).unwrap_or_else(|| self.last()),
        )
    }

    #[expect(clippy::indexing_slicing, reason = "a timeline is made with one anchor and never loses one")]
    fn first(&self) -> &Anchor {
        &self.anchors[0]
    }

    fn last(&self) -> &Anchor {
        self.anchors.last().unwrap_or_else(|| self.first())
    }
}

impl Slope {
    /// The slope between two anchors; one without a factor where they do not follow each other.
    fn between(a: &Anchor, b: &Anchor) -> Self {
        let run = b.ticks.0.saturating_sub(a.ticks.0);
        let rise = b.monotonic.0.checked_sub(a.monotonic.0).and_then(|rise| u64::try_from(rise).ok());
        let rise = rise.unwrap_or(0);
        let factor = (u128::from(rise) << FACTOR_BITS).checked_div(u128::from(run));
        Self { rise, run, factor: factor.and_then(|factor| u64::try_from(factor).ok()).unwrap_or(0) }
    }

    /// `offset · rise / run`, rounded down, without a division; `None` where the factor is not good enough for it.
    ///
    /// The factor is too small by less than 2^-62, so the product with fewer than 2^62 ticks is too small by less than
    /// one, and one look at the remainder decides. The remainder is below `2 · run` and may be computed modulo 2^64
    /// where `run` is below 2^63.
    fn rise_after(&self, offset: u64) -> Option<i64> {
        if self.factor == 0 || offset >> FACTOR_BITS != 0 || self.run >> 63 != 0 {
            return None;
        }
        let low = u64::try_from((u128::from(offset) * u128::from(self.factor)) >> FACTOR_BITS).ok()?;
        let left = offset.wrapping_mul(self.rise).wrapping_sub(low.wrapping_mul(self.run));
        i64::try_from(low).ok()?.checked_add(i64::from(left >= self.run))
    }
}

/// The instant of `ticks` on the line through two anchors, in whole nanoseconds, rounded towards the first anchor.
/// With one anchor (or two of the same instant) a tick counts as a nanosecond.
#[expect(clippy::cast_possible_truncation, reason = "the quotient is below the span of the run")]
fn interpolate(a: &Anchor, b: &Anchor, ticks: Ticks) -> i64 {
    let run = i128::from(b.ticks.0) - i128::from(a.ticks.0);
    let rise = i128::from(b.monotonic.0) - i128::from(a.monotonic.0);
    let offset = i128::from(ticks.0) - i128::from(a.ticks.0);
    let (rise, run) = if run > 0 { (rise, run) } else { (1, 1) };
    a.monotonic.0.saturating_add((offset * rise / run) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use proptest::prelude::*;

    fn anchor(ticks: u64, monotonic: i64, wall_offset: i64) -> Anchor {
        Anchor {
            ticks: Ticks(ticks),
            monotonic: Nanos(monotonic),
            wall_offset: Nanos(wall_offset),
            width: Ticks(60),
            wall_width: Nanos(80),
        }
    }

    fn line(anchors: &[Anchor]) -> Timeline {
        let mut timeline = Timeline::new(anchors[0]);
        anchors[1..].iter().for_each(|a| timeline.push(*a));
        timeline
    }

    #[test]
    fn ticks_are_interpolated_between_anchors_and_extended_beyond_them() {
        let t = line(&[anchor(1000, 5000, 0), anchor(3000, 6000, 0), anchor(4000, 7000, 0)]);
        assert_eq!(t.at(Ticks(1000)), Nanos(0));
        assert_eq!(t.at(Ticks(2000)), Nanos(500));
        assert_eq!(t.at(Ticks(3500)), Nanos(1500));
        assert_eq!(t.at(Ticks(5000)), Nanos(3000));
        assert_eq!(t.at(Ticks(0)), Nanos(-500));
        assert_eq!(t.check().inversions, 0);
    }

    proptest! {
        /// The fast way is the division, wherever anchors and readings are.
        #[test]
        fn scaling_is_the_division_of_the_anchors(
            steps in prop::collection::vec((0_u64..3_000_000_000, 0_i64..1_500_000_000), 0..6),
            wide: bool,
            readings in prop::collection::vec(any::<u64>(), 1..50),
        ) {
            let (mut ticks, mut ns) = (1_u64 << 40, 1_i64 << 41);
            let mut t = Timeline::new(anchor(ticks, ns, 0));
            for (run, rise) in &steps {
                ticks += run;
                ns += rise;
                t.push(anchor(ticks, ns, 0));
            }
            for reading in readings {
                let near = (1 << 40) - 1_000_000 + reading % 16_000_000_000;
                let ticks = Ticks(if wide { reading >> 8 } else { near });
                let after = t.anchors.partition_point(|a| a.ticks <= ticks);
                let high = after.clamp(1.min(t.anchors.len() - 1), t.anchors.len() - 1);
                let exact = interpolate(&t.anchors[high.saturating_sub(1)], &t.anchors[high], ticks);
                prop_assert_eq!(t.at(ticks), Nanos(exact.saturating_sub(t.zero.0)), "{:?}", ticks);
            }
        }
    }

    #[test]
    fn one_anchor_alone_still_orders_readings() {
        let t = line(&[anchor(1000, 5000, 0)]);
        assert!(t.at(Ticks(1001)) > t.at(Ticks(1000)));
    }

    #[test]
    fn a_step_of_the_wall_clock_moves_no_stamp() {
        let hour = 3_600 * Nanos::PER_SECOND;
        for step in [hour, -2 * hour] {
            // Ticks are nanoseconds here; the wall clock is stepped at 1.5 s, anchors stand at 1 s and 2 s.
            let s = Nanos::PER_SECOND;
            let t = line(&[
                anchor(0, 0, 1000 * s),
                anchor(s.cast_unsigned(), s, 1000 * s),
                anchor((2 * s).cast_unsigned(), 2 * s, 1000 * s + step),
            ]);
            for (at, offset) in [(s + 100_000, 1000 * s), (s + 900_000_000, 1000 * s + step)] {
                let stamp = UnixNanos::new(at + offset).unwrap();
                assert_eq!(
                    t.kernel_at(stamp, Ticks((at + 8_000).cast_unsigned())),
                    Nanos(at),
                    "step {step} at {at}"
                );
            }
            assert_eq!(t.check().wall_steps, 1);
        }
    }

    #[test]
    fn a_bent_clock_is_seen() {
        let s = Nanos::PER_SECOND;
        // The counter is fast for a second and slow for another; two anchors alone do not show it.
        let mut t = line(&[anchor(0, 0, 0), anchor((2 * s).cast_unsigned(), 2 * s, 0)]);
        assert_eq!((t.check().error, t.check().drift_ppm), (None, None));
        t.check_against(anchor(s.cast_unsigned() / 2, s / 2 - 500, 0));
        t.check_against(anchor(s.cast_unsigned(), s - 1_000, 0));
        assert_eq!(t.at(Ticks(s.cast_unsigned())), Nanos(s), "a reading bends no axis");
        let check = t.check();
        assert_eq!(check.error, Some(Nanos(1_000)));
        assert_eq!((check.bracket, check.wall_bracket), (Nanos(30), Nanos(40)));
        assert!((check.drift_ppm.unwrap() - 0.5).abs() < 1e-9);
        assert_eq!(check.compared_over, Nanos(2 * s));
    }

    #[test]
    fn a_real_timeline_agrees_with_the_kernel_between_its_anchors() {
        let clock = Clock::new();
        let mut t = Timeline::new(clock.anchor());
        let mut readings = Vec::new();
        for _ in 0..20 {
            std::thread::sleep(std::time::Duration::from_millis(2));
            let reading = clock.anchor();
            readings.push(reading);
        }
        t.push(clock.anchor());
        let mut errors: Vec<i64> = readings
            .iter()
            .map(|r| (t.at(r.ticks).0 - (r.monotonic.0 - t.zero_monotonic().0)).abs())
            .collect();
        errors.sort_unstable();
        assert!(errors[errors.len() / 2] < 1_000, "{errors:?}");
    }
}
