//! Documents of a run: the only room that defines serialized forms.
//!
//! Input is what `aggregate` computed; a record never gets here. Each file has one form: [`files`] puts them on disk.

pub mod document;
pub mod events;
pub mod files;
pub mod host;
pub mod ordered;
pub mod recorder;
pub mod requests;
pub mod saved;
pub mod terminal;
pub mod validity;
pub mod warnings;
