//! One thin file per sub-command: from typed flags to an exit code.

use std::fmt::Display;
use std::io::Write;

use crate::exit::Exit;

pub mod calibrate;
pub mod inspect;
pub mod report;
pub mod run;
pub mod sim;

/// Says in one line on stderr what went wrong.
fn fail(error: &dyn Display, exit: Exit) -> Exit {
    // A closed stderr must not turn a plain failure into a crash.
    let _ = writeln!(std::io::stderr(), "hammerscale: {error}");
    exit
}
