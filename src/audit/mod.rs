//! Ledger against records: how far what the client wrote down is from what the simulator really did.
//!
//! [`truth`] reads the ledger, [`mod@pair`] joins the two sides request by request and event by event, [`budget`] takes the differences, [`spread`] says
//! how they are distributed. Plain data in, plain data out: files are read by their own rooms, and what a document says
//! about the result is not decided here.

pub mod budget;
pub mod pair;
pub mod spread;
#[cfg(test)]
pub(crate) mod testing;
pub mod truth;

pub use budget::{Bounded, Budget, Gaps};
pub use pair::{ClientRequest, Mismatches, PairedChunk, PairedRequest, Pairing, SeenChunk, pair};
pub use spread::{Deviation, Spread};
pub use truth::{Sent, Truth, TruthRequest};
