//! A saved run computed again: every number that follows from the requests, from `requests.jsonl` and `events.bin`, and
//! where it differs from what `run.json` and `artifact.json` say. Values must be the same to the last digit.
//!
//! What does not follow from the requests is taken over: what was asked for, the machine, the clock. `docs/REPORT.md` is
//! the list.

use std::fs::File;
use std::io::Read;

use serde_json::Value;

use crate::aggregate::summary::Summary;
use crate::aggregate::window;
use crate::report::anvil::{self, Artifact, encode};
use crate::report::document::{RunDocument, SCHEMA};
use crate::report::files::{RunFile, locate};
use crate::report::saved::{MAX_DOCUMENT_BYTES, SavedError, SavedRun};

/// A saved run, computed again.
#[derive(Debug, Clone)]
pub struct Again {
    /// What was measured.
    pub summary: Summary,
    /// `run.json`; `None` when the run did not get that far.
    pub document: Option<RunDocument>,
    /// The text of `artifact.json`; `None` where `run.json` does not hold what it needs.
    pub artifact: Option<String>,
    /// Stored values that do not follow from the requests, in the order of the files.
    pub disagreements: Vec<Disagreement>,
}

/// A stored value that does not follow from the requests.
#[derive(Debug, Clone, PartialEq)]
pub struct Disagreement {
    /// In which file.
    pub file: RunFile,
    /// Where it stands, keys joined by dots; empty for the layout of the whole file.
    pub path: String,
    /// What the file says; `None` where the key is missing. Of a whole file that cannot be read, why not.
    pub stored: Option<Value>,
    /// What follows; `None` where nothing does.
    pub recomputed: Option<Value>,
}

impl Again {
    /// Computes a saved run again. What is missing is added to [`SavedRun::missing`].
    ///
    /// # Errors
    /// [`SavedError`].
    pub fn of(saved: &mut SavedRun) -> Result<Self, SavedError> {
        let summary = saved.summary()?;
        let last_end = saved.rows.iter().map(|row| window::end_of(&row)).max();
        let mut document = saved.document.as_ref().map(|stored| stored.computed_again(&summary, last_end));
        if let Some(document) = &mut document {
            let run_id = saved.run_id.clone().unwrap_or_else(|| document.run_id.clone());
            document.take_slowest(&run_id, &summary);
        }
        let facts = document.as_ref().map(|again| (again.spec.clone(), again.target.clone()));
        let reference = facts.as_ref().zip(document.as_ref()).and_then(|((spec, target), document)| {
            let facts = anvil::RunFacts::of(spec, target, document.zero_unix()?, document.span?)?;
            Some(Artifact::of(&saved.rows, &facts))
        });
        if let Some(document) = &mut document {
            document.take_peers(reference.as_ref().map(Artifact::metrics), &summary);
            document.take_judgement(&summary, reference.as_ref().map(|artifact| artifact.completed() as u64));
        }
        let artifact = reference.and_then(|artifact| encode::to_string(&artifact).ok());
        let mut again = Self { summary, document, artifact, disagreements: Vec::new() };
        again.compare_document(saved);
        again.compare_artifact(saved)?;
        Ok(again)
    }

    fn compare_document(&mut self, saved: &SavedRun) {
        let (Some(again), Some(stored)) = (&self.document, &saved.stored) else { return };
        let Ok(recomputed) = serde_json::to_value(again) else { return };
        // Another minor version has other keys.
        let same_keys = stored.get("schema").and_then(Value::as_str) == Some(SCHEMA);
        let mut compared = Comparison { file: RunFile::Run, same_keys, found: Vec::new() };
        compared.values("", stored, &recomputed);
        if locate(saved.dir(), RunFile::Events).is_none() {
            // What nothing can be computed from does not disagree; that it is missing is said.
            compared.found.retain(|found| found.recomputed.as_ref().is_some_and(|value| !value.is_null()));
        }
        self.disagreements.extend(compared.found);
    }

    fn compare_artifact(&mut self, saved: &mut SavedRun) -> Result<(), SavedError> {
        let Some(again) = &self.artifact else { return Ok(()) };
        let name = RunFile::Artifact.name();
        let Some(located) = locate(saved.dir(), RunFile::Artifact) else {
            saved.missing.push(format!("there is no {name}: nothing to compare with"));
            return Ok(());
        };
        let io = |source| SavedError::Io { path: located.path.clone(), source };
        // The same numbers in another layout take less than this; a larger file is not read to its end.
        let limit = (again.len() as u64).saturating_mul(4).saturating_add(MAX_DOCUMENT_BYTES);
        let mut stored = Vec::new();
        File::open(&located.path).map_err(io)?.take(limit).read_to_end(&mut stored).map_err(io)?;
        if stored == again.as_bytes() {
            return Ok(());
        }
        let mut compared = Comparison { file: RunFile::Artifact, same_keys: true, found: Vec::new() };
        match (serde_json::from_slice(&stored), serde_json::from_str(again)) {
            (Ok(stored), Ok(again)) => compared.values("", &stored, &again),
            _ if located.partial => {
                saved.missing.push(format!("{name} is cut"));
                return Ok(());
            }
            (Err(unreadable), _) => {
                compared.differs(String::new(), Some(&unreadable.to_string().into()), None);
            }
            _ => {}
        }
        if compared.found.is_empty() {
            compared.differs(String::new(), None, None);
        }
        self.disagreements.extend(compared.found);
        Ok(())
    }
}

struct Comparison {
    file: RunFile,
    /// Both sides must have the same keys.
    same_keys: bool,
    found: Vec<Disagreement>,
}

impl Comparison {
    fn values(&mut self, path: &str, stored: &Value, recomputed: &Value) {
        match (stored, recomputed) {
            (Value::Object(a), Value::Object(b)) => {
                for (key, recomputed) in b {
                    match a.get(key) {
                        Some(stored) => self.values(&below(path, key), stored, recomputed),
                        None if self.same_keys => self.differs(below(path, key), None, Some(recomputed)),
                        None => {}
                    }
                }
                let same_keys = self.same_keys;
                for (key, stored) in a.iter().filter(|(key, _)| same_keys && !b.contains_key(*key)) {
                    self.differs(below(path, key), Some(stored), None);
                }
            }
            (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
                for (i, (stored, recomputed)) in a.iter().zip(b).enumerate() {
                    self.values(&below(path, &i.to_string()), stored, recomputed);
                }
            }
            _ if stored == recomputed => {}
            _ => self.differs(path.to_owned(), Some(stored), Some(recomputed)),
        }
    }

    fn differs(&mut self, path: String, stored: Option<&Value>, recomputed: Option<&Value>) {
        let (stored, recomputed) = (stored.cloned(), recomputed.cloned());
        self.found.push(Disagreement { file: self.file, path, stored, recomputed });
    }
}

fn below(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
