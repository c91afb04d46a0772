//! The flags of `hammerscale calibrate`: what was typed ([`CalibrateArgs`]) becomes what will be measured
//! ([`CalibrateSpec`]). Nothing is measured here.

use std::path::PathBuf;

use clap::Args;

use super::args::{self, CoreList, RunArgs};
use super::spec::{OutputFormat, OutputSpec, ProgressMode};
use super::usage::UsageError;
use super::{defaults, outputs, resolve};
use crate::units::text::{format_duration, parse_count, parse_duration, parse_rate};
use crate::units::{Nanos, PerSecond};

/// Numbers of streams unless told otherwise: from the slow path of a sender that sleeps to what one core carries.
pub const STREAMS: [u32; 5] = [1, 10, 100, 1_000, 10_000];

/// Rows of one calibration; each takes seconds.
const MAX_ROWS: usize = 64;
/// Events per second: far beyond what any machine's loopback carries, and a gap that still is a nanosecond long.
const MAX_EVENT_RATE: PerSecond = PerSecond(1e9);
/// Shortest measured time of a row: a tenth of a second has several events of every stream at the usual rates.
const MIN_DURATION: Nanos = Nanos::from_millis(100);
/// Longest measured time of a row: at the highest rate that is searched for it has [`MAX_EVENTS`].
const MAX_DURATION: Nanos = Nanos::from_secs(60);
/// Events of a row: the audit holds them in memory, some 120 bytes each.
const MAX_EVENTS: f64 = 24e6;
/// Longest gap between two events of a stream, in seconds: every row waits for two of them.
const MAX_GAP_S: f64 = 30.0;
/// How long a row with many events is measured unless told otherwise.
pub const DURATION: Nanos = Nanos::from_secs(6);

/// This machine's error budget: measures the embedded simulator at rising numbers of streams and compares every stamp
/// with what the simulator really did.
#[derive(Debug, Clone, Default, Args)]
pub struct CalibrateArgs {
    /// Numbers of streams, one row each [default: 1,10,100,1000,10000]
    #[arg(long, value_name = "LIST", value_parser = stream_list, allow_hyphen_values = true)]
    pub streams: Option<StreamList>,
    /// Events per second over all streams [default: the highest that holds, at most 50 per stream]
    #[arg(long, value_name = "R", value_parser = parse_rate, allow_hyphen_values = true)]
    pub event_rate: Option<PerSecond>,
    /// How long each row is measured [default: 6s, longer where few streams have few events]
    #[arg(long, value_name = "D", value_parser = parse_duration, allow_hyphen_values = true)]
    pub duration: Option<Nanos>,
    /// Cores for the workers, like 2,4-7; the simulator gets the others
    #[arg(long, value_name = "LIST", value_parser = super::lists::core_list, allow_hyphen_values = true)]
    pub cores: Option<CoreList>,
    /// End with code 4 when a promise is missed or a verdict is not valid
    #[arg(long)]
    pub strict_instrument: bool,
    /// Directory for calibration.json and, row by row, the run and the ledger it is made from [default:
    /// hammerscale-runs/ID-calibration]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Replace an existing calibration
    #[arg(long)]
    pub overwrite: bool,
    /// No result on stdout, no progress
    #[arg(long)]
    pub quiet: bool,
    /// How progress is shown on stderr [default: auto]
    #[arg(long, value_name = "HOW", value_parser = args::progress())]
    pub progress: Option<ProgressMode>,
    /// What stdout carries [default: text]
    #[arg(long, value_name = "FORMAT", value_parser = args::output_format())]
    pub format: Option<OutputFormat>,
}

/// Numbers of streams in the order given, none twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamList(pub Vec<u32>);

/// A calibration with every default filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct CalibrateSpec {
    /// Numbers of streams.
    pub streams: Vec<u32>,
    /// Events per second over all streams; `None` looks for the highest that holds.
    pub event_rate: Option<PerSecond>,
    /// How long each row is measured; `None` follows from its rate.
    pub duration: Option<Nanos>,
    /// Cores of the workers; empty lets the affinity mask choose.
    pub cores: Vec<u32>,
    /// A promise that is missed fails the command.
    pub strict: bool,
    /// Where results go.
    pub output: OutputSpec,
}

impl CalibrateArgs {
    /// Fills in defaults, checks ranges, refuses contradictions. The file system is asked only whether the directory
    /// exists.
    ///
    /// # Errors
    /// [`UsageError`]: one sentence that names the flag.
    pub fn resolve(self) -> Result<CalibrateSpec, UsageError> {
        if self.event_rate.is_some_and(|rate| rate > MAX_EVENT_RATE || rate <= PerSecond(0.0)) {
            return Err(UsageError::range("--event-rate", "more than 0 and at most 1,000,000,000"));
        }
        if self.duration.is_some_and(|d| !(MIN_DURATION..=MAX_DURATION).contains(&d)) {
            let [least, most] = [MIN_DURATION, MAX_DURATION].map(format_duration);
            return Err(UsageError::range("--duration", format!("between {least} and {most}")));
        }
        let seconds = self.duration.unwrap_or(DURATION).as_secs_f64();
        if self.event_rate.is_some_and(|rate| rate.0 * seconds > MAX_EVENTS) {
            let reason = "a row of more than 24,000,000 events does not fit in memory";
            return Err(UsageError::clash("--event-rate", "this --duration", reason));
        }
        let most =
            self.streams.as_ref().map_or(&STREAMS[..], |list| &list.0).iter().max().copied().unwrap_or(1);
        if self.event_rate.is_some_and(|rate| f64::from(most) > rate.0 * MAX_GAP_S) {
            let reason = format!("leaves each of {most} streams an event in more than 30 s");
            return Err(UsageError::clash("--event-rate", "this --streams", reason));
        }
        let run = RunArgs {
            out: self.out,
            overwrite: self.overwrite,
            quiet: self.quiet,
            progress: self.progress,
            format: self.format,
            ..RunArgs::default()
        };
        Ok(CalibrateSpec {
            streams: self.streams.map_or_else(|| STREAMS.to_vec(), |list| list.0),
            event_rate: self.event_rate,
            duration: self.duration,
            cores: self.cores.map(|list| list.0).unwrap_or_default(),
            strict: self.strict_instrument,
            output: outputs::output(&run)?,
        })
    }
}

/// Reads `1,10,1k`.
fn stream_list(text: &str) -> Result<StreamList, String> {
    let most = u64::from(defaults::MAX_CONCURRENCY);
    let mut streams = Vec::new();
    for part in text.split(',') {
        let count = parse_count(part).map_err(|_| "is not a list of numbers (like 1,10,100)")?;
        let count = resolve::within("--streams", count, 1, most).ok().and_then(|n| u32::try_from(n).ok());
        let count = count.ok_or_else(|| format!("has a number that is not between 1 and {most}"))?;
        if streams.contains(&count) {
            return Err(format!("names {count} twice"));
        }
        if streams.len() == MAX_ROWS {
            return Err(format!("has more than {MAX_ROWS} numbers"));
        }
        streams.push(count);
    }
    Ok(StreamList(streams))
}
