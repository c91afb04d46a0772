//! `hammerscale report`: a saved run or a published artifact, computed again, compared, and shown.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, IsTerminal, Read, Write};
use std::path::Path;

use serde_json::Value;

use crate::cli::fail;
use crate::config::report_args::{ReportArgs, ReportFormat};
use crate::exit::Exit;
use crate::report::again::Again;
use crate::report::anvil::stored::{InFull, may_be_object};
use crate::report::anvil::{Stored, encode, recompute};
use crate::report::events::events_jsonl;
use crate::report::files::{RunFile, locate};
use crate::report::saved::SavedRun;
use crate::report::terminal::{self, FilesNote, layout::Style};
use crate::report::{csv, markdown};

/// Largest artifact that is read: a hundred times what the reference's own limit of 10,000 requests comes to.
const MAX_ARTIFACT_BYTES: u64 = 2 << 30;
/// How much is read of what is no object: enough to say what it is instead.
const NO_OBJECT_BYTES: u64 = 16;

/// Runs the sub-command. A stored number that does not follow from the record is named on stderr, and the exit code is 1.
#[must_use]
pub fn run(args: &ReportArgs) -> Exit {
    let shown = if args.input.is_dir() { run_dir(args) } else { artifact(args) };
    match shown {
        Ok(exit) => exit,
        // The reader of a pipe has seen enough.
        Err(Failure::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Ok,
        Err(Failure::Write(error)) => {
            fail(&format!("cannot write to standard output: {error}"), Exit::Internal)
        }
        Err(Failure::Input(sentence)) => fail(&sentence, Exit::Usage),
    }
}

/// Why nothing, or not everything, was shown.
enum Failure {
    /// The input cannot be used, in one sentence.
    Input(String),
    /// Standard output.
    Write(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

fn artifact(args: &ReportArgs) -> Result<Exit, Failure> {
    let path = args.input.display();
    let unreadable = |e: &dyn std::fmt::Display| Failure::Input(format!("{path}: {e}"));
    let meta = fs::metadata(&args.input).map_err(|e| unreadable(&e))?;
    let is = |file: RunFile| args.input.file_name().is_some_and(|name| name == file.name());
    let is_other = RunFile::ALL.into_iter().any(|file| file != RunFile::Artifact && is(file));
    let dir = args.input.parent().filter(|_| is_other || args.format != ReportFormat::Anvil);
    if let Some(dir) = dir.filter(|dir| locate(dir, RunFile::Requests).is_some()) {
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        return Err(unreadable(&format_args!("is one file of a run: give the directory, {}", dir.display())));
    }
    if args.format != ReportFormat::Anvil {
        return Err(unreadable(&"a file is read as an artifact, and only --format anvil prints one"));
    }
    if meta.len() > MAX_ARTIFACT_BYTES {
        return Err(unreadable(&"larger than any artifact"));
    }
    let Stored { value, digits } =
        Stored::read(&read(&args.input).map_err(|e| unreadable(&e))?).map_err(|e| unreadable(&e))?;
    let result = recompute(&value).map_err(|e| unreadable(&e))?;
    let text = encode::to_string(&InFull(&result.artifact, &digits)).map_err(io::Error::from)?;
    print(|out| out.write_all(text.as_bytes()))?;
    for path in &result.copied {
        say(&format!("copied, it does not follow from the file: {path}"));
    }
    for found in &result.disagreements {
        differs(&found.path, Some(&found.stored), Some(&found.recomputed));
    }
    Ok(if result.disagreements.is_empty() { Exit::Ok } else { Exit::SomeFailed })
}

/// The bytes of a file, or of a pipe, which may have no end: what does not begin as an object is not read on.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut input = BufReader::new(File::open(path)?);
    let limit = if may_be_object(input.fill_buf()?) { MAX_ARTIFACT_BYTES } else { NO_OBJECT_BYTES };
    let mut bytes = Vec::new();
    input.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn run_dir(args: &ReportArgs) -> Result<Exit, Failure> {
    let unreadable = |e: &dyn std::fmt::Display| Failure::Input(e.to_string());
    let mut saved = SavedRun::open(&args.input).map_err(|e| unreadable(&e))?;
    let again = Again::of(&mut saved).map_err(|e| unreadable(&e))?;
    for missing in &saved.missing {
        say(missing);
    }
    let lacks = |what: &str| unreadable(&format!("{}: {what}", args.input.display()));
    match (args.format, &again.document, &again.artifact) {
        (ReportFormat::Terminal, Some(document), _) => {
            let text = terminal::render(document, Some(&files(&args.input)), style());
            print(|out| out.write_all(text.as_bytes()))?;
        }
        // Of a run that was killed only the measurements are known.
        (ReportFormat::Terminal | ReportFormat::Md, document, _) => {
            let text = markdown::render(document.as_ref(), &again.summary);
            print(|out| out.write_all(text.as_bytes()))?;
        }
        (ReportFormat::Anvil, _, Some(artifact)) => print(|out| out.write_all(artifact.as_bytes()))?,
        (ReportFormat::Anvil, Some(document), None) if document.span.is_some() => {
            return Err(lacks("its answers are no streamed text, which an artifact cannot hold"));
        }
        (ReportFormat::Anvil, _, None) => {
            return Err(lacks("no artifact without a run.json of version 1.1 or later"));
        }
        (ReportFormat::Json, Some(document), _) => {
            let text = document.to_json().map_err(io::Error::from)?;
            print(|out| out.write_all(text.as_bytes()))?;
        }
        (ReportFormat::Json, None, _) => return Err(lacks("there is no run.json to print")),
        (ReportFormat::Events, ..) => {
            let events = saved.events().map_err(|e| unreadable(&e))?;
            let events = events.ok_or_else(|| lacks("there is no events.bin"))?;
            print(|out| events_jsonl(&saved.rows, &events, out))?;
        }
        (ReportFormat::Csv, ..) => {
            let lines = saved.lines().map_err(|e| unreadable(&e))?;
            print(|out| csv::write(lines, &saved.rows, out))?;
        }
    }
    for found in &again.disagreements {
        let file = found.file.name();
        match (found.path.as_str(), &found.stored) {
            ("", None) => say(&format!("{file}: the numbers are right, the text of the file is another")),
            ("", Some(Value::String(unreadable))) => say(&format!("{file}: not JSON: {unreadable}")),
            (path, stored) => {
                differs(&format!("{file}: {path}"), stored.as_ref(), found.recomputed.as_ref());
            }
        }
    }
    Ok(if again.disagreements.is_empty() { Exit::Ok } else { Exit::SomeFailed })
}

/// Writes to stdout through a buffer.
fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    write(&mut out)?;
    out.flush()
}

/// A line on stderr. A closed stderr must not turn a report into a crash.
fn say(text: &str) {
    let _ = writeln!(io::stderr(), "hammerscale: {text}");
}

fn differs(path: &str, stored: Option<&Value>, recomputed: Option<&Value>) {
    let text = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), Value::to_string);
    say(&format!("{path}: stored {}, recomputed {}", text(stored), text(recomputed)));
}

fn style() -> Style {
    let variable = |name| std::env::var_os(name);
    Style::of(io::stdout().is_terminal(), variable("NO_COLOR").as_deref(), variable("TERM").as_deref())
}

fn files(dir: &Path) -> FilesNote {
    FilesNote { dir: dir.display().to_string(), names: SavedRun::names(dir), beside: Vec::new() }
}
