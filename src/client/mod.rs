//! The only room with client sockets: pinned workers, one epoll loop each, connections that never move.
//!
//! A worker knows bytes, stamps and outcomes; it knows no metric, no histogram, no document and no terminal.
//!
//! ```text
//! supply ─► worker: slot ─► connection (socket) ─► exchange (sans-IO) ─► record ─► ring
//! ```

pub mod affinity;
mod connection;
mod connections;
mod exchange;
pub mod limits;
pub mod pool;
pub mod ports;
pub mod probe;
pub mod resolve;
pub mod route;
pub mod setup;
mod socket;
pub mod stamps;
pub mod stop;
mod timers;
pub mod transport;
mod trust;
mod worker;

pub use pool::{Pool, PoolError};
pub use route::Route;
pub use setup::{OpenLoop, Prewarm, Reads, Reuse, WorkerHealth, WorkerSetup};
pub use stop::StopSignal;
