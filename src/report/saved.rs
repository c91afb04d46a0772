//! A saved run, read back: to render it again, or to see what a killed process left behind.
//!
//! `.part` files are read as far as they go, and what is missing is said in words. No file is believed: sizes are
//! bounded, and damage is an answer, not a panic.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde_json::Value;
use thiserror::Error;

use crate::aggregate::chunk_facts::ChunkFacts;
use crate::aggregate::summary::{Facts, Summary};
use crate::metrics::rows::{RowSource, Rows};
use crate::report::document::{DocumentError, RunDocument};
use crate::report::events::{Ending, EventsError, EventsReader, RunEvents, Walk};
use crate::report::files::{RunFile, has_part, locate};
use crate::report::requests::read::{ReadError, read_rows};
use crate::units::{Nanos, display};

/// Longest `run.json` that is read. Its size does not depend on the number of requests; 64 workers take some kilobytes.
pub const MAX_DOCUMENT_BYTES: u64 = 64 * 1024 * 1024;

/// A saved run.
#[derive(Debug, Clone)]
pub struct SavedRun {
    /// Every request of which there is a line.
    pub rows: Rows,
    /// The run that the lines name; `None` without lines.
    pub run_id: Option<String>,
    /// The document; `None` when the run did not get that far.
    pub document: Option<RunDocument>,
    /// The document as it stands in the file, with keys that this version does not know.
    pub stored: Option<Value>,
    /// What is missing, one sentence each; none for a finished run.
    pub missing: Vec<String>,
    dir: PathBuf,
}

/// Why a directory is no saved run.
#[derive(Debug, Error)]
pub enum SavedError {
    /// There is no `requests.jsonl`, finished or not.
    #[error("{} holds no run: there is no {}", dir.display(), RunFile::Requests.name())]
    NoRun {
        /// The directory.
        dir: PathBuf,
    },
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file is not what its name says.
    #[error("{}: {source}", path.display())]
    Requests {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: ReadError,
    },
    /// A file is not what its name says.
    #[error("{}: {source}", path.display())]
    Events {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: EventsError,
    },
    /// A file is not what its name says.
    #[error("{}: {source}", path.display())]
    Document {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: DocumentError,
    },
}

impl SavedRun {
    /// Reads the lines and the document of a run.
    ///
    /// # Errors
    /// [`SavedError`].
    pub fn open(dir: &Path) -> Result<Self, SavedError> {
        let lines =
            locate(dir, RunFile::Requests).ok_or_else(|| SavedError::NoRun { dir: dir.to_owned() })?;
        let mut missing = Vec::new();
        let path = lines.path;
        let rows = read_rows(BufReader::new(open(&path)?))
            .map_err(|source| SavedError::Requests { path: path.clone(), source })?;
        if !lines.partial && has_part(dir) {
            let name = "another run into this directory did not finish: its files, whose names end in .part, are not shown";
            missing.push(name.to_owned());
        }
        if lines.partial {
            missing.push("the run did not finish: requests that had not ended are not recorded".to_owned());
        }
        if let Some(line) = rows.cut_line {
            missing.push(format!("line {line} of {} is cut", RunFile::Requests.name()));
        }
        let (document, stored) = read_document(dir)?.unzip();
        if document.is_none() {
            let name = RunFile::Run.name();
            let there = if locate(dir, RunFile::Run).is_some() { "nothing of use in" } else { "no" };
            missing.push(format!(
                "there is {there} {name}: what was asked for and the instrument's facts are unknown"
            ));
        }
        Ok(Self { rows: rows.rows, run_id: rows.run_id, document, stored, missing, dir: dir.to_owned() })
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The names of the files of a run that are there, in the order in which a run shows them.
    #[must_use]
    pub fn names(dir: &Path) -> Vec<String> {
        let shown = [RunFile::Artifact, RunFile::Run, RunFile::Requests, RunFile::Events];
        let there =
            shown.into_iter().filter_map(|file| locate(dir, file)?.path.file_name().map(ToOwned::to_owned));
        there.map(|name| name.to_string_lossy().into_owned()).collect()
    }

    /// The lines of `requests.jsonl` as they stand.
    ///
    /// # Errors
    /// [`SavedError`].
    pub fn lines(&self) -> Result<impl BufRead + use<>, SavedError> {
        let located = locate(&self.dir, RunFile::Requests);
        let path = located.ok_or_else(|| SavedError::NoRun { dir: self.dir.clone() })?.path;
        Ok(BufReader::new(open(&path)?))
    }

    /// The chunks of every request; `None` without `events.bin`.
    ///
    /// # Errors
    /// [`SavedError`].
    pub fn events(&self) -> Result<Option<RunEvents>, SavedError> {
        let Some(located) = locate(&self.dir, RunFile::Events) else { return Ok(None) };
        let events = RunEvents::read(BufReader::new(open(&located.path)?));
        events.map(Some).map_err(|source| SavedError::Events { path: located.path, source })
    }

    /// What the document says that the rows do not; without a document, the run as far as it went.
    #[must_use]
    pub fn facts(&self) -> Facts {
        let measured = self.rows.measured();
        let Some(document) = &self.document else {
            return Facts { planned: measured.fold(0, |n, _| n + 1), ..Facts::default() };
        };
        // Documents before 1.1 have no span; there the window of a run that was stopped ends at the stop.
        let stopped = || document.window.as_ref().filter(|window| window.drain_s.is_some());
        let stop = match document.span {
            Some(span) => span.stopped_ns,
            None => stopped().map(|window| window.end_ns),
        };
        Facts {
            planned: document.spec.load.requests,
            asked_concurrency: document.spec.load.concurrency,
            open_loop: document.spec.load.rate.is_some(),
            stop: stop.map(Nanos),
        }
    }

    /// Computes the summary again. What is missing of the chunks is added to [`SavedRun::missing`].
    ///
    /// # Errors
    /// [`SavedError`]. A damaged tail of `events.bin` is no error.
    pub fn summary(&mut self) -> Result<Summary, SavedError> {
        let facts = self.facts();
        let Some(located) = locate(&self.dir, RunFile::Events) else {
            self.missing.push(format!("there is no {}: gaps are unknown", RunFile::Events.name()));
            return Ok(Summary::of(&self.rows, ChunkFacts::of_rows_alone(&self.rows, &facts), facts));
        };
        let path = located.path;
        let failed = |source| SavedError::Events { path: path.clone(), source };
        open(&path)?;
        let reader = || EventsReader::new(BufReader::new(File::open(&path)?));
        let chunks = Walk::new(&self.rows, reader).map_err(failed)?;
        let found = ChunkFacts::gather(&self.rows, &facts, |visit| chunks.each(visit)).map_err(failed)?;
        let name = RunFile::Events.name();
        match chunks.ending() {
            Ending::Complete => {}
            Ending::Cut { offset } => {
                self.missing.push(format!("{name} ends early, at byte {}", display::whole(offset)));
            }
            Ending::Damaged { offset, reason } => {
                self.missing.push(format!("{name} is damaged at byte {}: {reason}", display::whole(offset)));
            }
        }
        Ok(Summary::of(&self.rows, found, facts))
    }
}

fn open(path: &Path) -> Result<File, SavedError> {
    File::open(path).map_err(|source| SavedError::Io { path: path.to_owned(), source })
}

fn read_document(dir: &Path) -> Result<Option<(RunDocument, Value)>, SavedError> {
    let Some(located) = locate(dir, RunFile::Run) else { return Ok(None) };
    let path = located.path;
    let failed = |source| SavedError::Io { path: path.clone(), source };
    if fs::metadata(&path).map_err(failed)?.len() > MAX_DOCUMENT_BYTES {
        return Err(failed(io::Error::new(io::ErrorKind::InvalidData, "larger than any run document")));
    }
    let text = fs::read_to_string(&path).map_err(failed)?;
    match RunDocument::from_json(&text).and_then(|read| Ok((read, serde_json::from_str(&text)?))) {
        Ok(document) => Ok(Some(document)),
        // A document that was being written when the process ended, or for which the disk had no room.
        Err(_) if located.partial || text.is_empty() => Ok(None),
        Err(source) => Err(SavedError::Document { path, source }),
    }
}
