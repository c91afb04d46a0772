//! Ledger against records: how far what the client wrote down is from what the simulator really did.
//!
//! [`pair()`] joins the two sides request by request and event by event, [`Budget`] takes the differences, [`Deviation`] says
//! how they are distributed. Plain data in, plain data out: files are read by their own rooms, and what a document says
//! about the result is not decided here.

mod budget;
mod pair;
mod spread;
#[cfg(test)]
pub(crate) mod testing;

pub use budget::{Bounded, Budget, FALSE_GAP_TOLERANCE, Gaps, ZERO_GAP};
pub use pair::{ClientRequest, Mismatches, PairedChunk, PairedRequest, Pairing, SeenChunk, pair};
pub use spread::{Deviation, Spread};
