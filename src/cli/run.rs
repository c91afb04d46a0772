//! `hammerscale run`: one measured run.

use crate::cli::fail;
use crate::config::args::RunArgs;
use crate::config::resolve::run_spec;
use crate::exit::Exit;
use crate::run::execute;

/// Runs the sub-command; what went wrong is one sentence on stderr.
#[must_use]
pub fn run(args: RunArgs) -> Exit {
    let spec = match run_spec(args, &|name| std::env::var_os(name)) {
        Ok(spec) => spec,
        Err(error) => return fail(&error, Exit::Usage),
    };
    match execute(spec) {
        Ok(exit) => exit,
        Err(error) => fail(&error, error.exit()),
    }
}
