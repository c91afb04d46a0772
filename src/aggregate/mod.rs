//! Off the worker cores: from records to rows, and from rows to what a document says.

pub mod chunk;
