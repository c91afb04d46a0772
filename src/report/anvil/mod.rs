//! The reference artifact: `anvil-serving.benchmark/v1` in its newest shape, built from rows ([`Artifact::of`]), and
//! the same rules applied to an artifact that exists ([`recompute()`]).
//!
//! The meanings are the reference's: which requests are valid (visible content is required), what each field is
//! computed from and in which order. What differs is only what we measure better, and is told where it is done:
//!
//! * stamps ([`timing`]): one stamp per event, so time to first output and time to first token may be equal; latencies
//!   begin when connecting begins on a fresh connection, and at the first byte sent on a kept one;
//! * `sampling` tells what was really sent: without `--compat anvil` and without `--temperature` no temperature is
//!   sent, and then `sent` is false and `effective_request` null (the reference always sends one);
//! * failures ([`failure`]): our outcomes in the words of the reference, one table;
//! * in an open loop, which the reference does not know, `concurrency` is null: nothing limited it, and what it came to be
//!   was not asked for. Latencies begin as above, not at the due instant, which the format has no room for;
//! * requests that the run's own end cut or never let begin, which the reference does not know, are failures.
//!
//! Everything the format has no room for is in `run.json` and `requests.jsonl`. Writing files is not here.

pub mod document;
pub mod encode;
pub mod failure;
mod judged;
mod older;
pub mod recompute;
mod settle;
mod statistics;
pub mod stored;
pub mod timing;

pub use document::{Artifact, RunFacts};
pub use recompute::{Recomputation, recompute};
pub use stored::Stored;

/// The schema of every generation.
pub const SCHEMA: &str = "anvil-serving.benchmark/v1";
