//! How to wait for a due instant: asleep at first, then awake. Pure; whoever waits reads the clock.

use crate::units::Nanos;

/// How long before an instant a worker with a core of its own stays awake. A timer fires up to 75 µs late (99th
/// percentile, measured on two cores), and an idle virtual processor takes 60 µs to wake; a loop that looks all the
/// time is 0.2 µs late. At 1,000 requests a second this is a tenth of the core's time.
pub const SPIN: Nanos = Nanos(100_000);

/// What to do until an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// It has come.
    Over,
    /// Look again at once.
    Spin,
    /// Sleep for so long.
    Sleep(Nanos),
}

/// What to do when an instant is `left` away; `spins` where the core is the worker's own.
#[must_use]
pub const fn wait(left: Nanos, spins: bool) -> Wait {
    match left.0 {
        ..=0 => Wait::Over,
        left if spins && left <= SPIN.0 => Wait::Spin,
        left if spins => Wait::Sleep(Nanos(left - SPIN.0)),
        left => Wait::Sleep(Nanos(left)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_is_spent_awake_where_the_core_is_free() {
        for (left, spinning, sleeping) in [
            (i64::MIN, Wait::Over, Wait::Over),
            (0, Wait::Over, Wait::Over),
            (1, Wait::Spin, Wait::Sleep(Nanos(1))),
            (SPIN.0, Wait::Spin, Wait::Sleep(SPIN)),
            (SPIN.0 + 7, Wait::Sleep(Nanos(7)), Wait::Sleep(Nanos(SPIN.0 + 7))),
            (i64::MAX, Wait::Sleep(Nanos(i64::MAX - SPIN.0)), Wait::Sleep(Nanos(i64::MAX))),
        ] {
            assert_eq!((wait(Nanos(left), true), wait(Nanos(left), false)), (spinning, sleeping), "{left}");
        }
    }
}
