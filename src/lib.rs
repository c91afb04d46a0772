//! hammerscale: a load generator for LLM serving endpoints that is built like a measuring instrument.
//!
//! The picture of a run, every arrow pointing one way:
//!
//! ```text
//! args ─► RunSpec ─► Plan ─► [ per core: exchange (write│read│parse) ─► record ─► ring ] ─► collector ─► Summary ─► documents
//!                                 ▲ clock (TSC)                               formulas (one catalog) ▲
//! sim: script ─► framing ─► socket ─► ledger ──────────────────► audit ◄────── records
//! ```
//!
//! Rooms and their layers are listed in `docs/ARCHITECTURE.md`; a room imports only lower layers, and
//! `tests/tidy.rs` fails when one does not.

pub mod aggregate;
pub mod audit;
pub mod cli;
pub mod client;
pub mod clock;
pub mod config;
pub mod exit;
pub mod inspect;
pub mod metrics;
pub mod plan;
pub mod record;
pub mod report;
pub mod run;
pub mod schedule;
pub mod sim;
pub mod units;
pub mod wire;
