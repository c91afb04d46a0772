//! Off the worker cores: from records to rows, and from rows to what a document says.

pub mod chunk;
pub mod chunk_facts;
pub mod collector;
pub mod concurrency;
pub mod counts;
pub mod open;
pub mod rows;
pub mod sink;
pub mod slots;
pub mod stream;
pub mod summary;
pub mod tokens;
pub mod window;
