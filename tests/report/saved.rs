//! A run from its first record to its files, and back: finished, killed half-way, damaged.

use std::fs;
use std::path::Path;

use hammerscale::aggregate::sink::RowSink;
use hammerscale::report::files::{FilesError, RunFile};
use hammerscale::report::recorder::RunRecorder;
use hammerscale::report::saved::{SavedError, SavedRun};

use crate::fixture::{self, Run};
use crate::peers::counted;

fn record(run: &Run, path: &Path, until: usize) -> RunRecorder {
    let mut recorder = RunRecorder::open(path, false, run.id()).unwrap();
    for (row, chunks) in run.rows.iter().zip(&run.chunks).take(until) {
        recorder.chunks(row, chunks).unwrap();
        recorder.row(row).unwrap();
    }
    recorder
}

#[test]
fn a_run_is_recorded_finished_and_rendered_again() {
    let tmp = tempfile::tempdir().unwrap();
    for (name, run) in [
        ("normal", fixture::normal()),
        ("empty", fixture::empty()),
        ("all_failed", fixture::all_failed()),
        ("counted", counted()),
    ] {
        let path = tmp.path().join(name);
        let recorded = record(&run, &path, usize::MAX).close().unwrap();
        let chunks = recorded.chunk_facts(&run.rows, &run.facts).unwrap();
        let summary = hammerscale::aggregate::summary::Summary::of(&run.rows, chunks, run.facts);
        assert_eq!(summary, run.summary(), "{name}");
        let document = run.document_of(&summary);
        recorded.finish(&[(RunFile::Run, document.to_json().unwrap().as_bytes())]).unwrap();
        let mut names: Vec<_> = fs::read_dir(&path).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["events.bin", "requests.jsonl", "run.json"], "{name}");

        let mut saved = SavedRun::open(&path).unwrap();
        assert_eq!(saved.document.as_ref(), Some(&document), "{name}");
        assert_eq!(saved.facts(), run.facts, "{name}");
        assert_eq!(saved.summary().unwrap(), summary, "{name}");
        assert!(saved.missing.is_empty(), "{name}: {:?}", saved.missing);
    }
}

#[test]
fn a_killed_run_is_read_as_far_as_it_went_and_says_what_is_missing() {
    let tmp = tempfile::tempdir().unwrap();
    let path = tmp.path().join("run");
    let run = fixture::normal();
    let mut recorder = record(&run, &path, 30);
    recorder.flush().unwrap();
    std::mem::forget(recorder);
    let lines = path.join("requests.jsonl.part");
    let text = fs::read(&lines).unwrap();
    fs::write(&lines, &text[..text.len() - 20]).unwrap();

    let mut saved = SavedRun::open(&path).unwrap();
    assert_eq!((saved.rows.len(), saved.document.is_none()), (29, true));
    let summary = saved.summary().unwrap();
    assert_eq!(summary.counts.started + summary.counts.warmup, 29);
    assert!(summary.gaps.exact.count > 1_000);
    for word in ["did not finish", "line 30", "no run.json", "events.bin ends early"] {
        assert!(saved.missing.iter().any(|m| m.contains(word)), "{word}: {:?}", saved.missing);
    }

    fs::write(path.join("run.json.part"), "{\"schema\": \"hammersc").unwrap();
    assert!(SavedRun::open(&path).unwrap().document.is_none());
    fs::remove_file(path.join("events.bin.part")).unwrap();
    let mut saved = SavedRun::open(&path).unwrap();
    assert_eq!(saved.summary().unwrap().gaps.exact.count, 0);
    assert!(saved.missing.iter().any(|m| m.contains("no events.bin")), "{:?}", saved.missing);
    assert!(matches!(
        RunRecorder::open(&path, false, run.id()),
        Err(FilesError::Exists { what: "a run that did not finish", .. })
    ));
}

#[test]
fn what_is_no_run_is_named() {
    let tmp = tempfile::tempdir().unwrap();
    assert!(matches!(SavedRun::open(tmp.path()), Err(SavedError::NoRun { .. })));
    let write = |name: &str, text: &str| fs::write(tmp.path().join(name), text).unwrap();
    write("requests.jsonl", "{}\n");
    let error = SavedRun::open(tmp.path()).unwrap_err();
    assert!(matches!(&error, SavedError::Requests { .. }), "{error}");
    assert!(error.to_string().contains("requests.jsonl: line 1"), "{error}");
    write("requests.jsonl", "");
    write("run.json", "[]");
    let error = SavedRun::open(tmp.path()).unwrap_err();
    assert!(matches!(&error, SavedError::Document { .. }), "{error}");
    fs::remove_file(tmp.path().join("run.json")).unwrap();
    write("events.bin", "HSEVENT5");
    let error = SavedRun::open(tmp.path()).unwrap().summary().unwrap_err();
    assert!(matches!(&error, SavedError::Events { .. }), "{error}");
    write("events.bin", "HSEVENTS");
    let mut begun = SavedRun::open(tmp.path()).unwrap();
    begun.summary().unwrap();
    assert!(begun.missing.contains(&"events.bin ends early, at byte 8".to_owned()), "{:?}", begun.missing);
}

#[test]
fn an_interrupted_run_keeps_its_window() {
    let tmp = tempfile::tempdir().unwrap();
    let path = tmp.path().join("run");
    let mut run = fixture::normal();
    run.facts.stop = Some(hammerscale::units::Nanos(3_000_000_000));
    let recorded = record(&run, &path, usize::MAX).close().unwrap();
    let document = run.document().to_json().unwrap();
    recorded.finish(&[(RunFile::Run, document.as_bytes())]).unwrap();
    let mut saved = SavedRun::open(&path).unwrap();
    assert_eq!(saved.facts(), run.facts);
    assert_eq!(saved.summary().unwrap(), run.summary());
}
