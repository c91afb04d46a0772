//! The hammerscale binary: reads the command line, runs one sub-command, and ends with its exit code.

use std::io::Write;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use hammerscale::cli;
use hammerscale::config::args::{RunArgs, sentence};
use hammerscale::config::calibrate_args::CalibrateArgs;
use hammerscale::config::inspect_args::InspectArgs;
use hammerscale::config::report_args::ReportArgs;
use hammerscale::config::sim_args::SimArgs;
use hammerscale::exit::Exit;

/// A load generator for LLM serving endpoints that is built like a measuring instrument.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure a server, or the embedded simulator, once.
    Run(Box<RunArgs>),
    /// The ground-truth server on its own.
    Sim(Box<SimArgs>),
    /// Find out how large this machine's own error is.
    Calibrate(CalibrateArgs),
    /// Read captured bytes with the client's own parsers and show what they are.
    Inspect(InspectArgs),
    /// Compute a saved run or a published artifact again, compare, and show it.
    Report(ReportArgs),
}

fn main() -> ExitCode {
    let exit = match Arguments::try_parse() {
        Ok(Arguments { command: Command::Run(args) }) => cli::run::run(*args),
        Ok(Arguments { command: Command::Sim(args) }) => cli::sim::run(*args),
        Ok(Arguments { command: Command::Calibrate(args) }) => cli::calibrate::run(args),
        Ok(Arguments { command: Command::Inspect(args) }) => cli::inspect::run(&args),
        Ok(Arguments { command: Command::Report(args) }) => cli::report::run(&args),
        Err(error) => refuse(&error),
    };
    ExitCode::from(exit.code())
}

/// Help and version go to stdout as clap renders them; a mistake is one sentence that names the flag and repeats no
/// value, since a value may be a secret.
fn refuse(error: &clap::Error) -> Exit {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            | ErrorKind::MissingSubcommand
    ) {
        let _ = error.print();
        return if error.use_stderr() { Exit::Usage } else { Exit::Ok };
    }
    let _ = writeln!(std::io::stderr(), "hammerscale: {}", sentence(error));
    Exit::Usage
}
