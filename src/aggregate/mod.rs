//! Off the worker cores: from records to rows, and from rows to what a document says.

pub mod chunk;
pub mod chunk_facts;
pub mod collector;
pub mod concurrency;
pub mod counts;
mod heartbeat;
pub mod lateness;
pub mod open;
pub mod rows;
pub mod schedule;
pub mod sink;
pub mod slots;
pub mod slowest;
pub mod stream;
pub mod summary;
pub mod tokens;
pub mod window;
