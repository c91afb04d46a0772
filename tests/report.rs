//! The documents of a run, end to end over files: golden texts, recomputation, strict JSON, the independent judge.
//!
//! `HAMMERSCALE_BLESS=1 cargo test --test report` writes the golden files anew; the difference is then read in review.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

#[path = "report/fixture.rs"]
mod fixture;
#[path = "report/golden.rs"]
mod golden;
#[path = "report/judge.rs"]
mod judge;
#[path = "report/kinds.rs"]
mod kinds;
#[path = "report/lines.rs"]
mod lines;
#[path = "report/peers.rs"]
mod peers;
#[path = "report/recompute.rs"]
mod recompute;
#[path = "report/results.rs"]
mod results;
#[path = "report/saved.rs"]
mod saved;
#[path = "report/warned.rs"]
mod warned;
