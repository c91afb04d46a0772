//! The files of a run before two strangers: Python's JSON parser in its strictest setting, and the independent judge of
//! `tests/replay`, which reads the documents as any user would.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use hammerscale::report::document::RunDocument;
use hammerscale::report::files::{RunDir, RunFile};

use crate::fixture::{self, Run};
use crate::recompute::{events_bin, requests_jsonl};

fn save(run: &Run, path: &Path) {
    let dir = RunDir::create(path, false).unwrap();
    let document: RunDocument = run.document();
    let files = [
        (RunFile::Requests, requests_jsonl(run)),
        (RunFile::Events, events_bin(run)),
        (RunFile::Run, document.to_json().unwrap().into_bytes()),
    ];
    let parts = files.map(|(file, bytes)| {
        let mut part = dir.part(file).unwrap();
        part.write_all(&bytes).unwrap();
        part
    });
    dir.finish(parts.into()).unwrap();
}

fn python(script: &str, args: &[&Path]) -> (bool, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("python3")
        .args(["-B", "-c", script])
        .args(args)
        .env("PYTHONPATH", root.join("tests/replay"))
        .output()
        .expect("this test needs python3");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

const STRICT: &str = r#"
import json, sys
def refuse(x): raise ValueError(x)
def unique(pairs):
    keys = [k for k, _ in pairs]
    if len(keys) != len(set(keys)): raise ValueError("a key twice: %s" % keys)
    return dict(pairs)
def parse(text): return json.loads(text, parse_constant=refuse, object_pairs_hook=unique)
with open(sys.argv[1] + "/run.json", encoding="utf-8", errors="strict") as f: doc = parse(f.read())
with open(sys.argv[1] + "/requests.jsonl", encoding="utf-8", errors="strict") as f: rows = [parse(l) for l in f]
print(doc["schema"], len(rows))
"#;

#[test]
fn the_files_are_strict_json() {
    let tmp = tempfile::tempdir().unwrap();
    for (name, run) in [("normal", fixture::normal()), ("wide", fixture::wide()), ("empty", fixture::empty())]
    {
        let path = tmp.path().join(name);
        save(&run, &path);
        let (success, text) = python(STRICT, &[&path]);
        assert!(success, "{name}: {text}");
        assert_eq!(text.trim(), format!("hammerscale.run/1.1 {}", run.rows.len()), "{name}");
    }
    // The check can fail.
    let path = tmp.path().join("empty");
    File::create(path.join("run.json")).unwrap().write_all(b"{\"schema\": NaN}").unwrap();
    assert!(!python(STRICT, &[&path]).0);
}

/// `general` checks schema, counts against lines, known outcomes, the order of stamps, the summary against the lines,
/// and the exit code.
const JUDGE: &str = r#"
import sys
from kit import Result, Run
import replay
res = Result(Run("saved", ""), ["hammerscale", "run"])
res.out, res.rc = sys.argv[1], int(sys.argv[2])
res.read()
for problem in replay.general(res): print(problem)
"#;

#[test]
fn the_independent_judge_has_no_objection() {
    let tmp = tempfile::tempdir().unwrap();
    for (name, run, exit) in [
        ("normal", fixture::normal(), "1"),
        ("one_sample", fixture::one_sample(), "0"),
        ("all_failed", fixture::all_failed(), "130"),
    ] {
        let path = tmp.path().join(name);
        save(&run, &path);
        assert_eq!(python(JUDGE, &[&path, Path::new(exit)]), (true, String::new()), "{name}");
    }
    // The judge sees a line that is gone.
    let path = tmp.path().join("one_sample/requests.jsonl");
    File::create(&path).unwrap();
    let (_, text) = python(JUDGE, &[path.parent().unwrap(), Path::new("0")]);
    assert!(text.contains("counts.ok is 1 but requests.jsonl has 0"), "{text}");
}
