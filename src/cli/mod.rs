//! One thin file per sub-command: from typed flags to an exit code.

pub mod run;
pub mod sim;
