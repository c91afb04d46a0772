//! Versioned documents and what people read: the only room that defines serialized forms. It sees rows and summaries,
//! never a record.

pub mod anvil;
pub mod utc;
