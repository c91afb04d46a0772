//! Quantities with units, their only parser and their only formatter. Imports nothing.
//!
//! Re-exports only; see [`time`], [`quantity`], [`text`], [`display`] and [`calendar`].

pub mod calendar;
pub mod display;
pub mod quantity;
pub mod text;
pub mod time;

pub use quantity::{Bytes, PerSecond};
pub use time::{Nanos, Ticks, UnixNanos};
