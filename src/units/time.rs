//! Time as numbers with a unit in the type. No conversion between the types is implicit: ticks become
//! nanoseconds only in `clock`, and a wall-clock stamp meets the run's axis only there.

use std::num::NonZeroI64;

/// A span, or an instant on the run's axis (nanoseconds since the run's zero), in nanoseconds.
///
/// Signed, because a difference of two stamps may be negative and must then be seen, not clamped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nanos(pub i64);

/// A raw reading of the processor's time stamp counter, as `quanta` returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ticks(pub u64);

/// An instant of CLOCK_REALTIME in nanoseconds since the Unix epoch, never zero: zero is how the kernel says
/// "no stamp", and missing is `None` here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixNanos(NonZeroI64);

impl Nanos {
    /// Nanoseconds in a millisecond.
    pub const PER_MILLI: i64 = 1_000_000;
    /// Nanoseconds in a second.
    pub const PER_SECOND: i64 = 1_000_000_000;

    /// Whole milliseconds as nanoseconds.
    #[must_use]
    pub const fn from_millis(ms: i64) -> Self {
        Self(ms * Self::PER_MILLI)
    }

    /// Whole seconds as nanoseconds.
    #[must_use]
    pub const fn from_secs(s: i64) -> Self {
        Self(s * Self::PER_SECOND)
    }

    /// Milliseconds as a double: the nanosecond count as a double, divided by a million (the reference's rule).
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "below 2^53 ns (104 days) the conversion is exact")]
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Microseconds as a double.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "below 2^53 ns (104 days) the conversion is exact")]
    pub fn as_micros_f64(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// Seconds as a double.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "below 2^53 ns (104 days) the conversion is exact")]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// `self - earlier`, negative when the two are the other way round; `None` on overflow.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Option<Self> {
        match self.0.checked_sub(earlier.0) {
            Some(d) => Some(Self(d)),
            None => None,
        }
    }
}

impl UnixNanos {
    /// `None` for zero, the kernel's "no stamp".
    #[must_use]
    pub const fn new(ns: i64) -> Option<Self> {
        match NonZeroI64::new(ns) {
            Some(n) => Some(Self(n)),
            None => None,
        }
    }

    /// The instant `ns` nanoseconds after the Unix epoch. The epoch itself, which no running clock shows, becomes the
    /// nanosecond after it.
    #[must_use]
    pub const fn at(ns: i64) -> Self {
        match (NonZeroI64::new(ns), NonZeroI64::new(1)) {
            (Some(n), _) | (None, Some(n)) => Self(n),
            (None, None) => Self(NonZeroI64::MAX),
        }
    }

    /// Nanoseconds since the Unix epoch.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0.get()
    }
}
