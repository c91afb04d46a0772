//! The composition root of `hammerscale calibrate`: row by row, look for the rate, measure it, audit it.
//!
//! Each row is an ordinary run against a simulator of its own, with the same workers, rings and collector, and its files
//! stay beside the ledger, so that whoever doubts a figure can compute it again. Rows that cannot be measured are left
//! out and told.

mod load;
mod measure;
mod search;

use std::fs;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

use self::load::Load;
use self::measure::{Halt, Measured, Place, measure};
use crate::audit::Bounded;
use crate::client::affinity::allowed_cores;
use crate::clock::Clock;
use crate::config::calibrate_args::CalibrateSpec;
use crate::config::spec::{OutputFormat, ProgressMode};
use crate::exit::Exit;
use crate::record::RunId;
use crate::report::calibration::table::{self, Notes};
use crate::report::calibration::{
    CalibrationDoc, CalibrationFacts, CoresDoc, FILE_NAME, RowDoc, lookup, promise,
};
use crate::report::files::FilesError;
use crate::report::host::{self, Host, Tool};
use crate::report::terminal::layout::Style;
use crate::report::validity::Verdict;
use crate::run::cores::Cores;
use crate::run::error::RunError;
use crate::run::{Control, OUT, RUNS_DIR, finish};
use crate::units::{Nanos, PerSecond, UnixNanos, display};

/// From this share of a rate on, a try that did not hold it is repeated, once in a search: a machine that stops for 50 ms
/// at the end of a try shows no limit.
const NEARLY_HELD: f64 = 0.95;

/// How long rates are tried in all: on a machine that does nothing else the search takes half of it. On one that holds no
/// rate it would go on for minutes; then the floor, or what held, is taken.
const SEARCH_BUDGET: Nanos = Nanos::from_secs(40);

/// How often a row that did not hold its rate in the whole time is measured again, slower.
const MEASURED_AGAIN: u32 = 2;
/// By how much slower.
const SLOWER: f64 = 0.75;

/// A calibration that goes on.
struct Calibration<'a> {
    spec: &'a CalibrateSpec,
    dir: PathBuf,
    /// All that this process may use.
    cores: Vec<usize>,
    control: Control,
    clock: Clock,
    /// How long rates were tried so far.
    searched: Nanos,
    rows: Vec<RowDoc>,
    remarks: Vec<String>,
    output_bytes: u64,
    output_events: u64,
    /// The first row that was left out.
    left_out: Option<RunError>,
}

/// Calibrates this machine and writes and shows the result.
///
/// # Errors
/// When it cannot be carried out at all: no row can be measured, or the result cannot be written.
pub fn calibrate(spec: &CalibrateSpec) -> Result<Exit, RunError> {
    let clock = Clock::new();
    let now = || {
        let now = clock.anchor();
        UnixNanos::at(now.monotonic.0.saturating_add(now.wall_offset.0))
    };
    let dir = spec
        .output
        .dir
        .clone()
        .unwrap_or_else(|| PathBuf::from(RUNS_DIR).join(format!("{}-calibration", RunId::unique(now()))));
    let mut calibration = Calibration {
        spec,
        dir,
        cores: allowed_cores(),
        control: Control::new()?,
        clock: clock.clone(),
        searched: Nanos(0),
        rows: Vec::new(),
        remarks: Vec::new(),
        output_bytes: 0,
        output_events: 0,
        left_out: None,
    };
    // Before the first run, which takes the cores apart.
    let cores = calibration.divide_cores()?;
    prepare(&calibration.dir, spec.output.overwrite)?;
    let interrupted = calibration.measure_rows()?;
    if let Some(error) = calibration.left_out.take_if(|_| calibration.rows.is_empty() && !interrupted) {
        return Err(error);
    }
    let (bytes, events) = (calibration.output_bytes, calibration.output_events);
    let document = CalibrationDoc::of(CalibrationFacts {
        created: now(),
        tool: Tool::THIS,
        host: Host::read(),
        cores,
        #[expect(clippy::cast_precision_loss, reason = "bytes of a few seconds are far below 2^53")]
        event_bytes: (events > 0).then(|| bytes as f64 / events as f64),
        rows: std::mem::take(&mut calibration.rows),
    });
    calibration.publish(&document, interrupted)?;
    Ok(exit(spec, &document, calibration.left_out.is_some(), interrupted))
}

/// Makes the directory. An older calibration in it must not stand beside rows of this one.
fn prepare(dir: &Path, overwrite: bool) -> Result<(), RunError> {
    let refused = |source| RunError::Files { flag: OUT, source };
    fs::create_dir_all(dir).map_err(|e| refused(FilesError::of("create", dir, e)))?;
    let file = dir.join(FILE_NAME);
    match fs::remove_file(&file) {
        Err(e) if overwrite && e.kind() != ErrorKind::NotFound => {
            Err(refused(FilesError::of("replace", &file, e)))
        }
        _ => Ok(()),
    }
}

impl Calibration<'_> {
    /// Which cores the runs will use. Says so where client and simulator have to share them.
    fn divide_cores(&mut self) -> Result<CoresDoc, RunError> {
        let most = self.spec.streams.iter().max().copied().unwrap_or(1);
        let load = Load::to_measure(most, PerSecond(1.0), None);
        let place = self.probe();
        let spec = load.run_spec(self.spec, &place.dir, &place.ledger)?;
        let Cores { workers, control } = Cores::divide(&spec)?;
        let server = if control.is_empty() { &self.cores } else { &control };
        if control.is_empty() {
            let what =
                "client and simulator share their cores: every error holds the waits of each for the other";
            self.remarks.push(what.to_owned());
        }
        let numbers =
            |cores: &mut dyn Iterator<Item = usize>| cores.filter_map(|c| u32::try_from(c).ok()).collect();
        Ok(CoresDoc {
            client: numbers(&mut workers.into_iter().flatten()),
            server: numbers(&mut server.iter().copied()),
        })
    }

    /// Measures all rows; whether an operator ended it before.
    fn measure_rows(&mut self) -> Result<bool, RunError> {
        for streams in &self.spec.streams {
            match self.measure_row(*streams) {
                Ok(Measured { row, output_bytes, output_events, censored }) => {
                    self.output_bytes += output_bytes;
                    self.output_events += output_events;
                    self.tell_censored(row.streams, censored);
                    self.rows.push(row);
                }
                Err(Halt::Interrupted) => return Ok(true),
                Err(Halt::Failed(error @ RunError::Descriptors { .. })) => self.leave_out(*streams, error),
                Err(Halt::Failed(error)) if self.rows.is_empty() => return Err(error),
                // What was measured until then is kept.
                Err(Halt::Failed(error)) => self.leave_out(*streams, error),
            }
        }
        Ok(false)
    }

    fn measure_row(&mut self, streams: u32) -> Result<Measured, Halt> {
        let mut rate = match self.spec.event_rate {
            Some(rate) => rate,
            None => self.search(streams)?,
        };
        let place = Place::below(&self.dir, &format!("streams-{streams}"));
        let mut measured = self.measure_at(streams, rate, &place)?;
        for _ in 0..MEASURED_AGAIN {
            let slower = PerSecond((rate.0 * SLOWER).max(search::FLOOR.0));
            if self.spec.event_rate.is_some() || measured.row.is_held() || slower >= rate {
                break;
            }
            rate = slower;
            measured = self.measure_at(streams, rate, &place)?;
        }
        Ok(measured)
    }

    fn measure_at(&mut self, streams: u32, rate: PerSecond, place: &Place) -> Result<Measured, Halt> {
        let load = Load::to_measure(streams, rate, self.spec.duration);
        self.say(&load, "measuring");
        measure(&load, self.spec, place, &self.cores, &mut self.control)
    }

    /// The highest rate that holds for a short while.
    fn search(&mut self, streams: u32) -> Result<PerSecond, Halt> {
        let mut second_try = true;
        let found = search::highest(streams, |rate| {
            let row = match self.try_rate(streams, rate, "trying")? {
                None => return Ok(false),
                Some(row) => row,
            };
            let nearly = row.event_rate_held.is_some_and(|held| held >= NEARLY_HELD * rate.0);
            if row.is_held() || !(nearly && std::mem::take(&mut second_try)) {
                return Ok(row.is_held());
            }
            Ok(self.try_rate(streams, rate, "trying again")?.is_some_and(|row| row.is_held()))
        });
        self.probe().clear();
        found
    }

    /// Measures a rate for a short while; `None` when there was enough of that.
    fn try_rate(&mut self, streams: u32, rate: PerSecond, what: &str) -> Result<Option<RowDoc>, Halt> {
        if self.searched >= SEARCH_BUDGET {
            return Ok(None);
        }
        let load = Load { streams, rate, measured: load::TRIED };
        self.say(&load, what);
        let began = self.clock.monotonic();
        let tried = measure(&load, self.spec, &self.probe(), &self.cores, &mut self.control);
        self.searched = Nanos(self.searched.0 + self.clock.monotonic().0.saturating_sub(began.0));
        Ok(Some(tried?.row))
    }

    /// Where tries go.
    fn probe(&self) -> Place {
        Place::below(&self.dir, "probe")
    }

    fn leave_out(&mut self, streams: u32, error: RunError) {
        let streams = display::counted(u64::from(streams), "stream");
        let why = match &error {
            RunError::Descriptors { needed, limit, .. } => {
                let (needed, limit) = (display::counted(*needed, "file descriptor"), display::whole(*limit));
                format!("they need {needed} and this process may have {limit} (ulimit -Hn)")
            }
            other => other.to_string(),
        };
        self.remarks.push(format!("{streams} left out: {why}"));
        self.left_out.get_or_insert(error);
    }

    /// Events that share a read have no error of their own; what can be said of them is said here.
    fn tell_censored(&mut self, streams: u64, censored: Bounded) {
        if censored.outside == 0 {
            return;
        }
        let streams = display::counted(streams, "stream");
        let (outside, count) =
            (display::whole(censored.outside as u64), display::whole(censored.count as u64));
        let worst = display::span_ms(censored.worst.as_millis_f64());
        self.remarks.push(format!(
            "at {streams}, {outside} of {count} events that share a read with a later one were sent outside their \
             bounds, at most {worst}"
        ));
    }

    fn say(&self, load: &Load, what: &str) {
        if self.spec.output.quiet || self.spec.output.progress == ProgressMode::None {
            return;
        }
        let (streams, rate) =
            (display::counted(u64::from(load.streams), "stream"), display::significant(load.rate.0, 3));
        let seconds = display::span_ms(load.measured.as_millis_f64());
        // Progress is a courtesy: a closed stderr must not end a measurement.
        let _ = writeln!(std::io::stderr(), "hammerscale: {streams}, {what} {rate} events/s for {seconds}");
    }

    /// Writes the document to its places and shows it. One that was interrupted is not what later runs look up.
    fn publish(&self, document: &CalibrationDoc, interrupted: bool) -> Result<(), RunError> {
        let failed = |source: std::io::Error| RunError::System { what: "cannot write the document", source };
        let text = document.to_json().map_err(|e| failed(e.into()))?;
        let mut notes = Notes { remarks: self.remarks.clone(), files: Vec::new() };
        let own = self.dir.join(FILE_NAME);
        lookup::save(&text, &own).map_err(RunError::Results)?;
        notes.files.push(own.display().to_string());
        let shared = lookup::place(&host::mark(), &|name| std::env::var_os(name));
        if let Some(path) = shared.filter(|_| !interrupted) {
            match lookup::save(&text, &path) {
                Ok(()) => notes.files.push(format!("{} (for later runs on this machine)", path.display())),
                Err(error) => {
                    notes.remarks.push(format!("later runs on this machine will not find it: {error}"));
                }
            }
        }
        if self.spec.output.quiet {
            return Ok(());
        }
        match self.spec.output.format {
            OutputFormat::Json => {
                // The document has no place for these.
                notes.remarks.iter().for_each(|remark| {
                    let _ = writeln!(std::io::stderr(), "hammerscale: {remark}");
                });
                finish::print(&text)
            }
            OutputFormat::Text => {
                let variable = |name| std::env::var_os(name);
                let is_terminal = std::io::stdout().is_terminal();
                let style =
                    Style::of(is_terminal, variable("NO_COLOR").as_deref(), variable("TERM").as_deref());
                finish::print(&table::render(document, &notes, style))
            }
        }
    }
}

/// The first that applies in the order of the table's page: 130, 3, 4, 1, 0.
fn exit(spec: &CalibrateSpec, document: &CalibrationDoc, left_out: bool, interrupted: bool) -> Exit {
    let is_good = |row: &RowDoc| row.verdict == Verdict::Valid.name() && promise::are_kept(row);
    if interrupted {
        Exit::Interrupted
    } else if document.rows.iter().all(|row| row.events == 0) {
        Exit::NothingValid
    } else if spec.strict && !document.rows.iter().all(is_good) {
        Exit::Instrument
    } else if left_out {
        Exit::SomeFailed
    } else {
        Exit::Ok
    }
}
