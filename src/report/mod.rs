//! Versioned documents and what people read: the only room that defines serialized forms. It sees rows and summaries,
//! never a record. Each file of a run has one form; [`files`] puts them on disk.

pub mod again;
pub mod anvil;
pub mod calibration;
pub mod csv;
pub mod document;
pub mod events;
pub mod files;
pub mod host;
pub mod inspect;
pub mod markdown;
pub mod ordered;
pub mod recorder;
pub mod requests;
pub mod saved;
pub mod terminal;
pub mod validity;
pub mod warnings;
