//! `hammerscale calibrate`: this machine's error budget.

use crate::cli::fail;
use crate::config::calibrate_args::CalibrateArgs;
use crate::exit::Exit;
use crate::run::calibrate::calibrate;

/// Runs the sub-command; what went wrong is one sentence on stderr.
#[must_use]
pub fn run(args: CalibrateArgs) -> Exit {
    let spec = match args.resolve() {
        Ok(spec) => spec,
        Err(error) => return fail(&error, Exit::Usage),
    };
    match calibrate(&spec) {
        Ok(exit) => exit,
        Err(error) => fail(&error, error.exit()),
    }
}
