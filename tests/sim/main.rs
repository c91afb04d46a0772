//! The simulator from outside: a child process, raw sockets with reading written by hand, Python's HTTP client as a
//! second witness, and the ledger against what arrived.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::disallowed_methods,
    missing_docs
)]

mod client;
mod command_line;
mod endpoints;
mod http;
mod layouts;
mod python;
mod scale;
mod streams;
mod truth;
