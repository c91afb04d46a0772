//! Every ending of a request that a loop over plain TCP can meet, and every kind of request that it sends, made by a raw server and
//! told by the real binary: outcome, status, stamps, counts, exit code, and what became of the connection.
//!
//! Why from outside: what an answer means is proved on bytes elsewhere; here sockets, timers, the slot and its
//! connections, and the documents are between the bytes and the verdict. The server shares no code with the product:
//! it writes what its script says, byte for byte, and notes when. Every wait is bounded.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    missing_docs
)]

mod ahead;
mod answers;
mod connections;
mod counts;
mod deadlines;
mod endings;
mod models;
mod open;
mod requests;
mod run;
mod secrets;
mod server;
