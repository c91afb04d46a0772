//! The flags of `hammerscale report`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// What was typed.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The directory of a run, or an artifact of the reference tool (with `--format anvil`).
    #[arg(value_name = "RUN|FILE")]
    pub input: PathBuf,
    /// What to print.
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "terminal")]
    pub format: ReportFormat,
}

/// What to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// The summary that the run showed.
    Terminal,
    /// The reference artifact.
    Anvil,
    /// The run document.
    Json,
    /// The stamps of every request's output chunks, one JSON object a line.
    Events,
    /// One line of comma-separated values per request.
    Csv,
    /// The summary as Markdown tables.
    Md,
}
