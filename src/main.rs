//! The hammerscale binary.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use hammerscale::cli;
use hammerscale::config::sim_args::SimArgs;

/// A load generator for LLM serving endpoints that is built like a measuring instrument.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The ground-truth server on its own.
    Sim(Box<SimArgs>),
}

fn main() -> ExitCode {
    let exit = match Arguments::parse().command {
        Command::Sim(args) => cli::sim::run(*args),
    };
    ExitCode::from(exit.code())
}
