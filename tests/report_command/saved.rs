//! Saved runs: the same files again, whatever was changed in them, and what a killed process left behind.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::run::{Finished, REQUESTS};
use crate::{report, stderr, stdout};

#[test]
fn a_run_gives_its_own_files_again() {
    let run = Finished::new();
    let document: Value = serde_json::from_slice(&run.read("run.json")).unwrap();
    for block in ["counts", "failures", "window", "metrics", "rates", "tokens"] {
        assert!(document[block].as_object().is_some_and(|block| !block.is_empty()), "{block}: {document}");
    }
    assert!(document["counts"]["failed"].as_u64() > Some(0) && document["counts"]["ok"].as_u64() > Some(0));
    for (format, file) in [("anvil", "artifact.json"), ("json", "run.json")] {
        let output = report(&run.path(), format);
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""), "{format}");
        assert!(output.stdout == run.read(file), "{format} is not {file}");
    }
    // It follows from itself as well.
    let alone = report(&run.path().join("artifact.json"), "anvil");
    assert_eq!(alone.status.code(), Some(0), "{}", stderr(&alone));
    assert!(alone.stdout == run.read("artifact.json"));
    let artifact: Value = serde_json::from_slice(&run.read("artifact.json")).unwrap();
    let reasons =
        |f: &Value| f["response_metadata"]["finish_reasons"] == serde_json::json!(["length", "stop", "stop"]);
    assert!(artifact["failures"].as_array().unwrap().iter().any(reasons), "the order of arrival is kept");
    assert!(artifact["metrics"]["prefix_cache_hit_avg"].is_number());

    let terminal = report(&run.path(), "terminal");
    assert_eq!(terminal.status.code(), Some(0), "{}", stderr(&terminal));
    for part in ["ok", "Time to first", "Failures", "http_error", "requests.jsonl  events.bin"] {
        assert!(stdout(&terminal).contains(part), "{part}: {}", stdout(&terminal));
    }
    let plain =
        Command::new(env!("CARGO_BIN_EXE_hammerscale")).arg("report").arg(run.path()).output().unwrap();
    assert_eq!(plain.stdout, terminal.stdout, "the default");
}

#[test]
fn a_run_without_an_artifact_says_why_there_is_none() {
    let (run, tmp) = (Finished::new(), tempfile::tempdir().unwrap());
    let mut document: Value = serde_json::from_slice(&run.read("run.json")).unwrap();
    document["spec"]["body"]["stream"] = false.into();
    let dir = tmp.path().join("whole");
    run.copy_with(&dir, "run.json", &serde_json::to_vec(&document).unwrap());
    let output = report(&dir, "anvil");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("no streamed text"), "{}", stderr(&output));
    document["spec"]["body"]["stream"] = true.into();
    document["span"] = Value::Null;
    run.copy_with(&dir, "run.json", &serde_json::to_vec(&document).unwrap());
    let output = report(&dir, "anvil");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("version 1.1"), "{}", stderr(&output));
}

/// The first moments of a run, and a full disk, leave files without a byte.
#[test]
fn files_without_a_byte_are_told_and_the_rest_is_shown() {
    let (run, tmp) = (Finished::new(), tempfile::tempdir().unwrap());
    let dir = tmp.path().join("empty");
    for (file, said) in [
        ("events.bin", "events.bin ends early, at byte 0"),
        ("run.json", "there is nothing of use in run.json"),
    ] {
        run.copy_with(&dir, file, b"");
        let output = report(&dir, "csv");
        assert!(stderr(&output).contains(said), "{file}: {}", stderr(&output));
        assert_eq!(stdout(&output).lines().count(), REQUESTS + 1, "{file}");
    }
    run.copy_with(&dir, "run.json", &run.read("run.json"));
    fs::remove_file(dir.join("events.bin")).unwrap();
    let output = report(&dir, "terminal");
    assert!(stderr(&output).contains("there is no events.bin"), "{}", stderr(&output));
    assert!(!stderr(&output).contains("recomputed null"), "{}", stderr(&output));
}

#[test]
fn a_later_run_that_did_not_finish_is_told() {
    let (run, tmp) = (Finished::new(), tempfile::tempdir().unwrap());
    let dir = tmp.path().join("both");
    run.copy_with(&dir, "requests.jsonl.part", b"");
    let output = report(&dir, "terminal");
    assert_eq!(output.status.code(), Some(0));
    assert!(
        stderr(&output).contains("another run into this directory did not finish"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn one_file_of_a_run_is_answered_with_its_directory() {
    let run = Finished::new();
    for (file, format) in [
        ("run.json", "terminal"),
        ("run.json", "anvil"),
        ("requests.jsonl", "csv"),
        ("artifact.json", "terminal"),
    ] {
        let output = report(&run.path().join(file), format);
        assert_eq!((output.status.code(), stdout(&output)), (Some(2), ""), "{file}");
        let hint = format!("is one file of a run: give the directory, {}\n", run.path().display());
        assert!(stderr(&output).ends_with(&hint), "{file}: {}", stderr(&output));
    }
    assert_eq!(report(&run.path().join("artifact.json"), "anvil").status.code(), Some(0));
}

#[test]
fn the_tables_hold_what_the_files_hold() {
    let run = Finished::new();
    let csv = report(&run.path(), "csv");
    assert_eq!(csv.status.code(), Some(0), "{}", stderr(&csv));
    let script = r#"
import csv, io, json, sys
rows = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
table = list(csv.DictReader(io.StringIO(sys.stdin.buffer.read().decode("utf-8"), newline="")))
rows.sort(key=lambda row: (row["phase"] != "warmup", row["request_index"]))
assert len(table) == len(rows), (len(table), len(rows))
for cells, row in zip(table, rows):
    user = row.pop("user")
    row.update({"user." + k: v for k, v in user.items()})
    derived = {key for key in cells if key.endswith("_ms")}
    assert set(cells) - derived == set(row), set(cells) ^ set(row)
    since = lambda stamp, of: None if row[stamp] is None or row["outcome"] != "ok" else (row[stamp] - row[of]) / 1e6
    for key, want in {
        "ttft_ms": since("first_content_ns", "send_start_ns"),
        "time_to_first_output_ms": since("first_output_ns", "send_start_ns"),
        "ttft_from_due_ms": since("first_content_ns", "due_ns"),
        "time_to_last_output_ms": since("last_output_ns", "send_start_ns"),
        "e2e_ms": since("terminal_ns", "send_start_ns"),
    }.items():
        assert cells[key] == "" if want is None else abs(float(cells[key]) - want) < 1e-9, (key, cells[key], want)
    has_tpot = row["outcome"] == "ok" and row["output_chunks"] > 1 and not row["one_output_read"]
    assert (cells["tpot_ms"] != "") == has_tpot, cells
    for key, value in row.items():
        want = "" if value is None else value if isinstance(value, str) else None
        got = cells[key]
        assert got == want if want is not None else json.loads(got) == value, (key, got, value)
print(len(rows))
"#;
    let mut python = Command::new("python3")
        .args(["-I", "-c", script])
        .arg(run.path().join("requests.jsonl"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is there");
    python.stdin.take().unwrap().write_all(&csv.stdout).unwrap();
    let judged = python.wait_with_output().unwrap();
    assert!(judged.status.success());
    assert_eq!(String::from_utf8_lossy(&judged.stdout).trim(), REQUESTS.to_string());

    let md = report(&run.path(), "md");
    assert_eq!(md.status.code(), Some(0));
    let document: Value = serde_json::from_slice(&run.read("run.json")).unwrap();
    for name in document["metrics"].as_object().unwrap().keys() {
        assert_eq!(stdout(&md).matches(&format!("| {name} |")).count(), 1, "{name}");
    }
    // Every line of a table has as many cells as its heading.
    let mut cells = 0;
    for line in stdout(&md).lines() {
        let here = line.matches('|').count();
        assert!(here == 0 || cells == 0 || here == cells, "{line}");
        cells = here;
    }
}

#[test]
fn a_change_in_the_record_shows_in_both_documents() {
    let run = Finished::new();
    let tmp = tempfile::tempdir().unwrap();
    let lines = String::from_utf8(run.read("requests.jsonl")).unwrap();
    let mut rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ok = rows.iter_mut().find(|row| row["outcome"] == "ok").unwrap();
    ok["first_content_ns"] = (ok["first_content_ns"].as_i64().unwrap() + 1).into();
    let changed: String = rows.iter().map(|row| format!("{row}\n")).collect();
    run.copy_with(&tmp.path().join("a"), "requests.jsonl", changed.as_bytes());
    let output = report(&tmp.path().join("a"), "terminal");
    assert_eq!(output.status.code(), Some(1));
    for key in ["run.json: metrics.ttft_ms.mean: stored", "artifact.json: metrics.ttft_mean_ms: stored"] {
        assert!(stderr(&output).contains(key), "{key}: {}", stderr(&output));
    }
    // Another layout is told, though every number is right.
    let artifact: Value = serde_json::from_slice(&run.read("artifact.json")).unwrap();
    run.copy_with(&tmp.path().join("b"), "artifact.json", artifact.to_string().as_bytes());
    let output = report(&tmp.path().join("b"), "json");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("artifact.json: the numbers are right"), "{}", stderr(&output));
    // And so is one that cannot be read; the run is shown all the same.
    run.copy_with(&tmp.path().join("c"), "artifact.json", b"{\"wall_clock_ms\": NaN}");
    let output = report(&tmp.path().join("c"), "anvil");
    assert_eq!((output.status.code(), &output.stdout), (Some(1), &run.read("artifact.json")));
    assert!(stderr(&output).contains("artifact.json: not JSON: expected value"), "{}", stderr(&output));
}

#[test]
fn a_killed_run_is_shown_as_far_as_it_went() {
    let run = Finished::new();
    let tmp = tempfile::tempdir().unwrap();
    let cut = |name: &str| {
        let bytes = run.read(name);
        fs::write(tmp.path().join(format!("{name}.part")), &bytes[..bytes.len() * 3 / 4]).unwrap();
    };
    cut("requests.jsonl");
    cut("events.bin");
    for format in ["terminal", "md", "csv", "events"] {
        let output = report(tmp.path(), format);
        assert_eq!(output.status.code(), Some(0), "{format}: {}", stderr(&output));
        for word in ["did not finish", "requests.jsonl is cut", "no run.json", "events.bin ends early"] {
            assert!(stderr(&output).contains(word), "{format}, {word}: {}", stderr(&output));
        }
        let lines = stdout(&output).lines().count();
        assert!(lines > 5, "{format}: {}", stdout(&output));
    }
    assert!(stdout(&report(tmp.path(), "terminal")).contains("| ttft_ms |"));
    for format in ["anvil", "json"] {
        let output = report(tmp.path(), format);
        assert_eq!((output.status.code(), stdout(&output)), (Some(2), ""));
        assert!(stderr(&output).contains("run.json"), "{}", stderr(&output));
    }
    fs::remove_file(tmp.path().join("events.bin.part")).unwrap();
    assert_eq!(report(tmp.path(), "events").status.code(), Some(2));
    assert_eq!(report(tmp.path(), "md").status.code(), Some(0));
}
