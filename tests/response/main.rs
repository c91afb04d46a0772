//! One answer through the response reader, from its first byte to its verdict: the case files, and random answers.
//!
//! The reader is the product's; how answers are put together, cut, and what they must come to is known here.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

mod conformance;
mod engines;
mod properties;
mod reading;
mod whole;
