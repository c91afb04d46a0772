//! Quantities with units, their only parser and their only formatter. Imports nothing.
//!
//! Re-exports only; see [`time`], [`display`] and [`calendar`].

pub mod calendar;
pub mod display;
pub mod time;

pub use time::{Nanos, Ticks, UnixNanos};
