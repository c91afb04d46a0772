//! The binary before an independent judge: `tests/replay/replay.py` serves scripted cases and compares what the
//! binary reports with what its own server wrote.
//!
//! Why through a process: the judge shares no line with the product, so a misunderstanding cannot be on both sides.
//! Needs Python 3.11 and nothing else. The judge ends with 0 also when a case was skipped or when no case had the
//! asked name, so its results are read and every expected case must stand there as passed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

/// Public bug reports that a loop of chat completions can meet, by their id in `reports/open.jsonl`; in the last one
/// an open loop goes on while the wall clock is set.
const REPORTS: [&str; 12] = ["1", "2", "7", "8", "11", "13", "14", "16", "17", "23", "25", "43"];

/// Both tests judge instants on a machine with few cores: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// `report:7` to its status and the reason the judge gives for it.
type Verdicts = BTreeMap<String, (String, String)>;

#[test]
fn bug_reports_of_other_tools_do_not_happen_here() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let verdicts = judge("reports/open.jsonl", &REPORTS.join(","));
    assert_eq!(not_passed(&verdicts, "report", &REPORTS.map(str::to_owned)), [""; 0]);
}

#[test]
fn stamps_counts_and_outcomes_are_what_the_server_wrote() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let names = timing_cases();
    assert_eq!(names.len(), 12, "tests/cases/timing.json has other cases than it had: {names:?}");
    let mut verdicts = judge("timing.json", &names.join(","));
    // The judge plays a failed report case again by itself, a timing case not; both for the same reason: a shared
    // machine stops processes for tens of milliseconds. A wrong stamp is wrong both times.
    let again: Vec<&str> =
        names.iter().map(String::as_str).filter(|n| !passed(&verdicts, "timing", n)).collect();
    if !again.is_empty() {
        verdicts.extend(judge("timing.json", &again.join(",")));
    }
    assert_eq!(not_passed(&verdicts, "timing", &names), [""; 0]);
}

/// Lets the judge play the cases of these names.
///
/// # Panics
/// When the judge itself fails: no Python, no results.
fn judge(cases: &str, names: &str) -> Verdicts {
    let scratch = tempfile::tempdir().unwrap();
    let results = scratch.path().join("results.json");
    let output = Command::new("python3")
        .arg(tests().join("replay/replay.py"))
        .args(["--bin", env!("CARGO_BIN_EXE_hammerscale"), "--only", names, "--cases"])
        .arg(tests().join("cases").join(cases))
        .arg("--json")
        .arg(&results)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap_or_else(|e| panic!("python3: {e}"));
    let results = fs::read_to_string(&results).unwrap_or_else(|e| {
        let said = String::from_utf8_lossy(&output.stderr);
        panic!("the judge ended with {} and left no results ({e}):\n{said}", output.status)
    });
    verdicts(&serde_json::from_str(&results).unwrap())
}

fn verdicts(results: &Value) -> Verdicts {
    let text = |case: &Value, key: &str| case[key].as_str().unwrap().to_owned();
    let cases = results["cases"].as_array().unwrap().iter();
    cases
        .map(|c| (format!("{}:{}", text(c, "kind"), text(c, "id")), (text(c, "status"), text(c, "why"))))
        .collect()
}

fn passed(verdicts: &Verdicts, kind: &str, name: &str) -> bool {
    verdicts.get(&format!("{kind}:{name}")).is_some_and(|(status, _)| status == "PASS")
}

/// One line for each of the cases that did not pass, was skipped, or was never played.
fn not_passed(verdicts: &Verdicts, kind: &str, names: &[String]) -> Vec<String> {
    let bad = names.iter().filter(|n| !passed(verdicts, kind, n));
    bad.map(|n| format!("{kind}:{n}: {:?}", verdicts.get(&format!("{kind}:{n}")))).collect()
}

fn timing_cases() -> Vec<String> {
    let text = fs::read_to_string(tests().join("cases/timing.json")).unwrap();
    let cases: Value = serde_json::from_str(&text).unwrap();
    cases.as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap().to_owned()).collect()
}

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

#[test]
fn a_case_that_was_skipped_failed_or_never_played_does_not_pass() {
    let results = serde_json::json!({"cases": [
        {"kind": "report", "id": "1", "status": "PASS", "why": "theme"},
        {"kind": "report", "id": "2", "status": "SKIP", "why": "no tool"},
        {"kind": "report", "id": "3", "status": "FAIL", "why": "wrong"},
    ]});
    let verdicts = verdicts(&results);
    let names = ["1", "2", "3", "4"].map(str::to_owned);
    assert_eq!(not_passed(&verdicts, "report", &names[..1]), [""; 0]);
    assert_eq!(not_passed(&verdicts, "report", &names).len(), 3);
}
