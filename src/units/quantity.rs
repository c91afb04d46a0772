//! Sizes and rates as numbers with a unit in the type. No arithmetic lives here: whoever adds or divides says so
//! where it happens.

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(pub u64);

/// Events per second. What [`parse_rate`](super::text::parse_rate) returns is finite and not negative.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct PerSecond(pub f64);
