//! Every value of a real run's documents: either it stands in the list of `docs/REPORT.md`, or a change of it is named.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use hammerscale::report::document::RunDocument;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::kinds::{page, plain, signalled, start};
use crate::run::{Finished, copy_with};
use crate::{changed, complaints, leaves, report, stderr, stdout};

/// What is taken as given, by the page.
fn given() -> Vec<String> {
    let page = include_str!("../../docs/REPORT.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    let paths: Vec<String> = rows.map(|(path, _)| path.to_owned()).collect();
    assert!(paths.len() > 20, "{paths:?}");
    paths
}

/// A leaf's name in messages.
fn name(leaf: &str) -> String {
    leaf[1..].replace('/', ".")
}

/// Whether it is in the list, or one of the exceptions that the page tells below it.
fn is_given(given: &[String], name: &str, document: &Value) -> bool {
    let of_plain_requests = name == "plan.seed" && document["spec"]["prompt"].is_null();
    let of_no_requests =
        ["run_id", "span.ended_ns"].contains(&name) && document["counts"]["by_outcome"] == json!({});
    let is_listed = given.iter().any(|path| name == path || name.starts_with(&format!("{path}.")));
    is_listed || of_plain_requests || of_no_requests
}

/// A metric without a value.
fn metric() -> Value {
    let names =
        ["mean", "stddev", "min", "p1", "p5", "p25", "p50", "p75", "p90", "p95", "p99", "p99_9", "max"];
    let mut metric: Value = names.iter().map(|name| (*name, Value::Null)).collect();
    metric["unit"] = "ms".into();
    metric["count"] = 0.into();
    metric["independence"] = Value::Null;
    metric["ci95"] = json!({"mean": null, "p50": null, "p90": null, "p95": null, "p99": null});
    metric
}

/// Another value for a leaf, of a kind that the document can hold there.
fn another(document: &Value, leaf: &str) -> Value {
    let stored = document.pointer(leaf).unwrap();
    let candidates = match stored {
        // An option: what it could hold is tried out.
        Value::Null => vec![
            json!(7.5),
            json!(7),
            json!("x"),
            json!([0.5, 1.5]),
            json!({"lag1_spearman": null, "z": null, "dependent": true}),
            json!({"count": 1, "share": null}),
            json!({"prompt": 1, "cached": 1, "share": null}),
            json!({"requests": 1, "requested": 1, "received": 1, "ratio": null}),
            json!({"start_ns": 1, "end_ns": 2, "span_s": 1.0, "held_share": null, "rates": {}}),
            json!({"count": 1, "mean": null, "p50": null, "p99": null, "p99_9": null, "max": null}),
            json!({"start_ns": 1, "end_ns": 2, "warmup_s": null, "measured_s": 1.0, "drain_s": null, "steady_state": null}),
            json!({"path": "x", "date": "y", "streams": 1, "kernel_us": {"p50": 1.5, "p99": null},
                "user_us": {"p50": null, "p99": null}, "ttft_bias_us": {"mean": null, "p50": null, "p99": null},
                "gap_bias_us": {"mean": null, "p50": null, "p99": null}}),
            json!({"k": "v"}),
        ],
        // Of an empty list or map it is not known what it holds.
        Value::Array(_) => vec![
            json!(["x"]),
            json!([1]),
            json!([{"code": "x", "text": "y"}]),
            json!([{"request_index": 1, "request_id": "x", "client_ms": 1.0, "network_ms": 1.0, "server_ms": 1.0, "label": "y"}]),
        ],
        Value::Object(_) => vec![
            json!({"x": 1}),
            json!({"x": metric()}),
            json!({"x": {"value": 1.0, "unit": "ms"}}),
            json!({"x": {"count": 1, "request_index": 0, "http_status": null, "detail": null}}),
        ],
        other => return changed(other, None),
    };
    let fits = |value: &Value| {
        let mut document = document.clone();
        *document.pointer_mut(leaf).unwrap() = value.clone();
        RunDocument::from_json(&document.to_string()).is_ok()
    };
    candidates.into_iter().find(fits).unwrap_or_else(|| panic!("nothing fits in {leaf}: {stored}"))
}

/// Real runs whose documents have every block: answers of all kinds, connections made before, an operator who cut it
/// short, and nobody there.
fn runs(tmp: &Path, finished: &Finished) -> Vec<PathBuf> {
    let at = |name: &str| tmp.join(name);
    let prewarm = ["--sim=ttft=2ms;itl=1ms", "--model", "m", "--requests", "12", "--prewarm"];
    assert_eq!(start(&at("prewarm"), &prewarm).wait().unwrap().code(), Some(0));
    let nobody = ["--base-url", "http://127.0.0.1:1/v1", "--requests", "5"];
    assert_eq!(start(&at("nobody"), &nobody).wait().unwrap().code(), Some(6));
    assert_eq!(start(&at("plain"), &plain(&page())).wait().unwrap().code(), Some(0));
    assert_eq!(signalled(&at("interrupted"), Signal::SIGINT), Some(130));
    vec![finished.path(), at("prewarm"), at("nobody"), at("plain"), at("interrupted")]
}

fn document(run: &Path, file: &str) -> Value {
    serde_json::from_slice(&fs::read(run.join(file)).unwrap()).unwrap()
}

/// All values at once: none of those that are computed is computed from another one.
#[test]
fn every_value_that_is_not_given_is_named_when_it_is_changed() {
    let (tmp, finished, given) = (tempfile::tempdir().unwrap(), Finished::new(), given());
    let mut met = Vec::new();
    let mut total = 0;
    for run in runs(tmp.path(), &finished) {
        for file in ["run.json", "artifact.json"] {
            if !run.join(file).exists() {
                continue;
            }
            let original = document(&run, file);
            let mut all = Vec::new();
            leaves(&original, "", &mut all);
            if file == "run.json" {
                met.extend(all.iter().map(|leaf| name(leaf)));
                all.retain(|leaf| !is_given(&given, &name(leaf), &original));
            }
            let mut document = original.clone();
            for leaf in &all {
                *document.pointer_mut(leaf).unwrap() = match file {
                    "run.json" => another(&original, leaf),
                    _ => changed(original.pointer(leaf).unwrap(), None),
                };
            }
            let copy = tmp.path().join("copy");
            copy_with(&run, &copy, file, &serde_json::to_vec_pretty(&document).unwrap());
            let output = report(&copy, if file == "run.json" { "json" } else { "anvil" });
            fs::remove_dir_all(&copy).unwrap();
            let run = run.display();
            assert_eq!(output.status.code(), Some(1), "{run} {file}: {}", stderr(&output));
            let named: HashSet<&str> = stderr(&output)
                .lines()
                .map(|line| {
                    let path = line.strip_prefix("hammerscale: ").and_then(|line| line.strip_prefix(file));
                    path.and_then(|path| path.strip_prefix(": ")?.split_once(": stored ")).expect(line).0
                })
                .collect();
            // A map that was empty has a key now.
            let added: HashSet<String> =
                named.iter().filter_map(|path| Some(path.rsplit_once('.')?.0.to_owned())).collect();
            let missing: Vec<String> = all
                .iter()
                .map(|leaf| name(leaf))
                .filter(|leaf| !(named.contains(&**leaf) || added.contains(leaf)))
                .collect();
            assert!(missing.is_empty(), "{run} {file}: {missing:?} of {}", all.len());
            // And what is printed is what was there before.
            let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert!(printed == original, "{run} {file}");
            total += all.len();
        }
    }
    assert!(total > 2_000, "{total}");
    let unmet: Vec<&String> = given
        .iter()
        .filter(|path| !met.iter().any(|leaf| leaf == *path || leaf.starts_with(&format!("{path}."))))
        .collect();
    assert!(unmet.is_empty(), "in the list and in no run: {unmet:?}");
}

/// The list is no longer than it must be.
#[test]
fn no_value_that_is_given_is_named() {
    let (tmp, finished, given) = (tempfile::tempdir().unwrap(), Finished::new(), given());
    let original = document(&finished.path(), "run.json");
    let mut all = Vec::new();
    leaves(&original, "", &mut all);
    all.retain(|leaf| is_given(&given, &name(leaf), &original));
    assert!(all.len() > 60, "{}", all.len());
    let found = complaints(&all, |i, leaf| {
        let mut document = original.clone();
        *document.pointer_mut(leaf).unwrap() = another(&original, leaf);
        let copy = tmp.path().join(i.to_string());
        finished.copy_with(&copy, "run.json", &serde_json::to_vec_pretty(&document).unwrap());
        let output = report(&copy, "md");
        fs::remove_dir_all(&copy).unwrap();
        let key = format!("run.json: {}: stored", name(leaf));
        match output.status.code() {
            Some(0 | 1) if !stderr(&output).contains(&key) && !stdout(&output).is_empty() => Ok(()),
            code => Err(format!("{key}: {code:?} {}", stderr(&output))),
        }
    });
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// What is given shows in what is judged by it.
#[test]
fn a_changed_fact_shows_in_the_judgement() {
    let (tmp, finished) = (tempfile::tempdir().unwrap(), Finished::new());
    let original = document(&finished.path(), "run.json");
    for (leaf, value, named) in [
        ("/instrument/ring_drops", json!(1), "instrument.reasons"),
        ("/instrument/unresolved", json!(1), "instrument.reasons"),
        ("/instrument/clock/drift_ppm", json!(1e9), "instrument.reasons"),
        ("/instrument/clock/inversions", json!(1), "instrument.reasons"),
        ("/instrument/clock/wall_steps", json!(1), "instrument.notes"),
        ("/plan/repeats", json!(1), "warnings"),
        ("/target/unreachable", json!("nobody is there"), "warnings"),
        ("/spec/target/sim", json!({"ttft": "1ms"}), "target.simulated"),
        ("/spec/load/requests", json!(25), "counts.planned: stored 24, recomputed 25"),
        ("/span/stopped_ns", json!(1), "interrupted: stored false, recomputed true"),
        ("/span/stopped_ns", json!(1), "window.end_ns"),
    ] {
        let mut document = original.clone();
        let (parent, key) = leaf.rsplit_once('/').unwrap();
        document.pointer_mut(parent).unwrap()[key] = value;
        let copy = tmp.path().join("copy");
        finished.copy_with(&copy, "run.json", &serde_json::to_vec_pretty(&document).unwrap());
        let output = report(&copy, "terminal");
        assert_eq!(output.status.code(), Some(1), "{leaf}");
        assert!(stderr(&output).contains(&format!("run.json: {named}")), "{leaf}: {}", stderr(&output));
    }
}

/// Documents of another minor version were judged by other rules.
#[test]
fn the_judgement_of_another_version_is_taken_as_it_stands() {
    let (tmp, finished) = (tempfile::tempdir().unwrap(), Finished::new());
    for schema in ["hammerscale.run/1.0", "hammerscale.run/1.3"] {
        let mut document = document(&finished.path(), "run.json");
        document["schema"] = schema.into();
        document["of_tomorrow"] = 1.into();
        document["warnings"] = json!([{"code": "of_tomorrow", "text": "a finding"}]);
        document["instrument"]["verdict"] = "suspect".into();
        if schema.ends_with("1.0") {
            for path in ["", "/target"] {
                let block = document.pointer_mut(path).unwrap().as_object_mut().unwrap();
                block.remove("span");
                block.remove("unreachable");
            }
        }
        let copy = tmp.path().join("copy");
        finished.copy_with(&copy, "run.json", document.to_string().as_bytes());
        let output = report(&copy, "md");
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""), "{schema}");
        assert!(stdout(&output).contains("of_tomorrow: a finding") && stdout(&output).contains("suspect"));
    }
}
