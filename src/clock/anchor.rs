//! One point where the counter and the kernel's clocks were read together.

use nix::time::{ClockId, clock_gettime};

use crate::clock::Clock;
use crate::units::{Nanos, Ticks};

/// The counter, CLOCK_MONOTONIC and CLOCK_REALTIME at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Anchor {
    /// The counter in the middle of the bracket.
    pub ticks: Ticks,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub monotonic: Nanos,
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC, nanoseconds.
    pub wall_offset: Nanos,
    /// Ticks between the two counter readings around the kernel's clock: the anchor is good to half of it.
    pub width: Ticks,
    /// Time between the two readings of CLOCK_MONOTONIC around the wall clock: its offset is good to half of it.
    pub wall_width: Nanos,
}

/// A bracket that was not interrupted is found within a few tries; this many keep the chance of a bad one low even
/// with two busy programs on each core (of 400 anchors the widest was 66 ns there), and cost about 3 µs.
const TRIES: u32 = 24;

impl Anchor {
    /// The tightest of a few brackets.
    #[must_use]
    pub fn take(clock: &Clock) -> Self {
        let mut best = Self::bracket(clock);
        for _ in 1..TRIES {
            let next = Self::bracket(clock);
            if next.width < best.width {
                best = next;
            }
        }
        (best.wall_width, best.wall_offset) = wall_offset();
        best
    }

    fn bracket(clock: &Clock) -> Self {
        let before = clock.ticks();
        let monotonic = read_monotonic();
        let after = clock.ticks();
        let width = Ticks(after.0.saturating_sub(before.0));
        Self {
            ticks: Ticks(before.0 + width.0 / 2),
            monotonic,
            wall_offset: Nanos(0),
            width,
            wall_width: Nanos(0),
        }
    }
}

/// How wide the bracket was, and CLOCK_REALTIME − CLOCK_MONOTONIC, from the tightest of a few brackets: NTP slews both alike, so it changes only when
/// the wall clock is stepped.
fn wall_offset() -> (Nanos, Nanos) {
    let mut best = (Nanos(i64::MAX), Nanos(0));
    for _ in 0..TRIES {
        let before = read_monotonic().0;
        let wall = read_wall().0;
        let after = read_monotonic().0;
        let width = Nanos(after.saturating_sub(before));
        if width < best.0 {
            best = (width, Nanos(wall.saturating_sub(before.saturating_add(width.0 / 2))));
        }
    }
    best
}

/// CLOCK_MONOTONIC, nanoseconds.
pub(crate) fn read_monotonic() -> Nanos {
    read(ClockId::CLOCK_MONOTONIC)
}

/// CLOCK_REALTIME, nanoseconds since the Unix epoch.
fn read_wall() -> Nanos {
    read(ClockId::CLOCK_REALTIME)
}

/// Processor time of the calling thread so far.
pub(crate) fn read_thread_cpu() -> Nanos {
    read(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

#[expect(clippy::disallowed_methods, reason = "this room is the reader of time")]
fn read(id: ClockId) -> Nanos {
    // These clocks exist on every Linux; an error here cannot happen and would show as a stamp of zero.
    clock_gettime(id)
        .map_or(Nanos(0), |t| Nanos(t.tv_sec().saturating_mul(Nanos::PER_SECOND).saturating_add(t.tv_nsec())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two busy threads for every core: a few brackets are interrupted, and the tightest of some is not.
    #[test]
    fn full_load_makes_no_anchor_wide() {
        use std::sync::atomic::{AtomicBool, Ordering};
        const ANCHORS: usize = 60;

        let done = AtomicBool::new(false);
        let cores = std::thread::available_parallelism().unwrap().get();
        let mut widths = std::thread::scope(|scope| {
            for _ in 0..2 * cores {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let clock = Clock::new();
            let anchors = (0..ANCHORS).map(|_| {
                std::thread::sleep(std::time::Duration::from_millis(2));
                clock.anchor()
            });
            let widths: Vec<i64> = anchors.map(|anchor| anchor.wall_width.0).collect();
            done.store(true, Ordering::Relaxed);
            widths
        });
        widths.sort_unstable();
        // About 70 ns as a rule. A time slice is a thousand microseconds, so an interrupted bracket would not hide; a
        // machine that is not ours alone may spoil one anchor.
        assert!(widths[ANCHORS - 2] < 2_000, "{widths:?}");
    }

    #[test]
    fn an_anchor_lies_between_readings_of_the_same_clocks() {
        let clock = Clock::new();
        let (t0, m0) = (clock.ticks(), read_monotonic());
        let anchor = clock.anchor();
        let (t1, m1) = (clock.ticks(), read_monotonic());
        assert!(t0 <= anchor.ticks && anchor.ticks <= t1);
        assert!(m0 <= anchor.monotonic && anchor.monotonic <= m1);
    }
}
