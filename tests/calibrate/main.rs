//! `hammerscale calibrate` as a process: its document against a second reading of the files it leaves, its table, its
//! exit codes, and what later runs on the machine take over.
//!
//! Every process here has a data directory of its own, so that no calibration of the machine is read or replaced.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

struct Sandbox(TempDir);

impl Sandbox {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hammerscale"));
        command
            .args(arguments)
            .current_dir(self.0.path())
            .env("XDG_DATA_HOME", self.at("data"))
            .env_remove("OPENAI_BASE_URL")
            .env_remove("OPENAI_API_KEY")
            .env_remove("NO_COLOR")
            .stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn document(&self, dir: &str) -> Value {
        serde_json::from_slice(&fs::read(self.at(dir).join("calibration.json")).unwrap()).unwrap()
    }

    /// The one file that later runs look up.
    fn shared(&self) -> PathBuf {
        let files: Vec<PathBuf> =
            fs::read_dir(self.at("data/hammerscale")).unwrap().map(|entry| entry.unwrap().path()).collect();
        let [file] = files.as_slice() else { panic!("{files:?}") };
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with("calibration-") && name.ends_with(".json"), "{name}");
        file.clone()
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn recomputed(dir: &Path, streams: &[&str]) -> Value {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/calibrate/recompute.py");
    let output = Command::new("python3").args(["-I", script]).arg(dir).args(streams).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The same value; numbers to the last digit but one, because two languages divide in another order.
fn assert_same(path: &str, ours: &Value, theirs: &Value) {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            for (key, theirs) in theirs {
                let ours = ours.get(key).unwrap_or_else(|| panic!("{path}.{key} is missing"));
                assert_same(&format!("{path}.{key}"), ours, theirs);
            }
        }
        (Value::Number(ours), Value::Number(theirs)) => {
            let (ours, theirs) = (ours.as_f64().unwrap(), theirs.as_f64().unwrap());
            let tolerance = 1e-9 * theirs.abs().max(1e-3);
            assert!((ours - theirs).abs() <= tolerance, "{path}: {ours} is not {theirs}");
        }
        _ => assert_eq!(ours, theirs, "{path}"),
    }
}

/// The keys of the document, in their order.
const KEYS: [&str; 8] = ["schema", "created_at", "tool", "host", "cores", "event_bytes", "rows", "ceiling"];
const ROW_KEYS: [&str; 15] = [
    "streams",
    "events",
    "event_rate_asked",
    "event_rate_held",
    "kernel_us",
    "user_us",
    "ttft_bias_us",
    "gap_bias_us",
    "false_zero_gaps",
    "send_lag_us",
    "cpu_us_per_event",
    "coalesced_share",
    "ring_drops",
    "verdict",
    // Not a key: the number of those above is checked too.
    "",
];

fn assert_keys(object: &Value, keys: &[&str]) {
    let found: Vec<&String> = object.as_object().unwrap().keys().collect();
    let mut expected: Vec<&str> = keys.iter().copied().filter(|key| !key.is_empty()).collect();
    // `serde_json::Value` sorts them.
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn the_document_is_what_the_files_say() {
    let sandbox = Sandbox::new();
    let output = sandbox.run(&["calibrate", "--streams", "1,20", "--duration", "2s", "--out", "out"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let document = sandbox.document("out");
    assert_keys(&document, &KEYS);
    assert_eq!(document["schema"], "hammerscale.calibration/1.0");
    assert!(document["cores"]["client"].as_array().is_some_and(|cores| !cores.is_empty()));
    let rows = document["rows"].as_array().unwrap();
    let theirs = recomputed(&sandbox.at("out"), &["1", "20"]);
    assert_same("event_bytes", &document["event_bytes"], &theirs["event_bytes"]);
    assert_eq!(rows.len(), 2);
    for (ours, theirs) in rows.iter().zip(theirs["rows"].as_array().unwrap()) {
        assert_keys(ours, &ROW_KEYS);
        assert_same("row", ours, theirs);
        // 50 events a second of each stream, for two seconds.
        let streams = ours["streams"].as_u64().unwrap();
        assert_eq!(
            (ours["events"].as_u64(), ours["event_rate_asked"].as_f64()),
            (Some(100 * streams), Some(50.0 * streams as f64))
        );
        assert!(ours["kernel_us"]["count"].as_u64().unwrap() > 80 * streams, "{ours}");
        // Processor time per event: more than a clock reading, less than the gap.
        let cpu = ours["cpu_us_per_event"].as_f64().unwrap();
        assert!(cpu > 0.1 && cpu < 20_000.0, "{cpu}");
    }
    // The simulator's truth, not the client's word: a row whose stamps are moved would not be recomputed.
    assert!(rows[1]["kernel_us"]["p50"].as_f64().unwrap() < 1_000.0, "{}", rows[1]);
    let ceiling = &document["ceiling"];
    let held: Vec<&Value> = rows.iter().filter(|row| row["verdict"] == "valid").collect();
    assert!(
        ceiling.is_null() || held.iter().any(|row| row["event_rate_held"] == ceiling["event_rate"]),
        "{ceiling}"
    );
    let table = text(&output.stdout);
    for streams in ["1", "20"] {
        let lines = table.lines().filter(|line| line.split_whitespace().next() == Some(streams));
        assert_eq!(lines.count(), 3, "a line of load, of errors and of promises:\n{table}");
    }
    assert!(table.lines().all(|line| line.chars().count() <= 80 || line.contains('/')), "{table}");
    assert!(
        text(&output.stderr).contains("20 streams, measuring 1,000 events/s"),
        "{}",
        text(&output.stderr)
    );
    assert!(!sandbox.at("out/probe").exists());
    // Each row is a run like any other.
    let report = sandbox.run(&["report", "out/streams-20"]);
    assert_eq!(report.status.code(), Some(0), "{}", text(&report.stderr));
}

#[test]
fn later_runs_on_this_machine_take_it_over_and_those_on_another_do_not() {
    let sandbox = Sandbox::new();
    let flags = ["--streams", "1,4", "--event-rate", "200", "--duration", "500ms", "--quiet"];
    let output = sandbox.run(&[&["calibrate"], &flags[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
    let shared = sandbox.shared();
    let document: Value = serde_json::from_slice(&fs::read(&shared).unwrap()).unwrap();
    let run = |name: &str, concurrency: &str| {
        let load = [
            "--sim=fast",
            "--model",
            "m",
            "--requests",
            "6",
            "--max-tokens",
            "4",
            "--concurrency",
            concurrency,
        ];
        let output = sandbox.run(&[&["run"], &load[..], &["--out", name]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let run: Value =
            serde_json::from_slice(&fs::read(sandbox.at(name).join("run.json")).unwrap()).unwrap();
        (run["instrument"]["calibration"].clone(), text(&output.stdout).to_owned())
    };
    for (name, concurrency, row) in [("a", "1", 0), ("b", "2", 1), ("c", "5", 1)] {
        let (note, summary) = run(name, concurrency);
        let row = &document["rows"][row];
        let expected = json!({
            "path": shared,
            "date": document["created_at"],
            "streams": row["streams"],
            "kernel_us": {"p50": row["kernel_us"]["p50"], "p99": row["kernel_us"]["p99"]},
            "user_us": {"p50": row["user_us"]["p50"], "p99": row["user_us"]["p99"]},
            "ttft_bias_us": row["ttft_bias_us"],
            "gap_bias_us": row["gap_bias_us"],
        });
        assert_eq!(note, expected, "{concurrency}");
        let day = document["created_at"].as_str().unwrap().split_once('T').unwrap().0;
        assert!(summary.contains(&format!("calibrated {day} at ")), "{summary}");
        // And the saved run says it again, wherever it is read.
        let report = sandbox.run(&["report", name]);
        assert_eq!((report.status.code(), text(&report.stdout)), (Some(0), &*summary));
    }
    for (key, value) in
        [("kernel", json!("0.0.0-other")), ("cpu", json!("Other CPU")), ("cores", json!(4_095))]
    {
        let mut other = document.clone();
        other["host"][key] = value;
        fs::write(&shared, other.to_string()).unwrap();
        let (note, summary) = run(key, "2");
        assert_eq!(note, Value::Null, "{key}");
        assert!(!summary.contains("calibrated"), "{summary}");
    }
    fs::rename(&shared, shared.with_file_name("calibration-0123456789abcdef.json")).unwrap();
    assert_eq!(run("renamed", "2").0, Value::Null);
}

#[test]
fn json_goes_to_stdout_and_everything_else_does_not() {
    let sandbox = Sandbox::new();
    let flags = ["--streams=3", "--event-rate=300", "--duration=300ms", "--format=json", "--out=out"];
    let output = sandbox.run(&[&["calibrate"], &flags[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(output.stdout, fs::read(sandbox.at("out/calibration.json")).unwrap());
    // It stands, unless it is to be replaced.
    let again = sandbox.run(&[&["calibrate"], &flags[..]].concat());
    assert_eq!(again.status.code(), Some(2));
    let replaced = sandbox.run(&[&["calibrate"], &flags[..], &["--overwrite", "--progress=none"]].concat());
    assert_eq!((replaced.status.code(), text(&replaced.stderr)), (Some(0), ""));
}

#[test]
fn mistakes_are_told_and_nothing_is_made() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.at("file"), "").unwrap();
    for (flags, told) in [
        (&["--streams", "0"][..], "--streams"),
        (&["--streams", ""], "--streams"),
        (&["--streams", "1,1"], "--streams \"1,1\" names 1 twice"),
        (&["--streams", "1,x"], "--streams \"1,x\" is not a list of numbers (like 1,10,100)"),
        (&["--streams", "2000000"], "--streams \"2000000\" has a number that is not between 1 and 1000000"),
        (&["--event-rate", "0"], "--event-rate must be more than 0"),
        (&["--event-rate", "-5"], "--event-rate"),
        (&["--event-rate", "2e9"], "--event-rate"),
        (&["--event-rate", "2000M"], "--event-rate must be more than 0 and at most 1,000,000,000"),
        (
            &["--event-rate", "10M", "--duration", "3s"],
            "--event-rate does not go together with this --duration",
        ),
        (&["--duration", "1ms"], "--duration must be between 100ms and"),
        (&["--duration", "1h"], "--duration must be between 100ms and"),
        (&["--cores", "4000"], "--cores"),
        (&["--cores", "1023"], "--cores names core 1023, which this process may not use"),
        (&["--out", "file"], "--out"),
        (&["--out", "."], "--out names a directory that exists already"),
        (&["--quiet", "--format", "json"], "--quiet does not go together with --format"),
        (&["--quiet", "--progress", "plain"], "--quiet does not go together with --progress plain"),
        (&["--format", "xml"], "--format must be one of"),
        (&["--requests", "5"], "there is no flag --requests"),
    ] {
        let output = sandbox.run(&[&["calibrate"], flags].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {said}");
        assert!(
            said.starts_with("hammerscale: ") && said.contains(told) && said.lines().count() == 1,
            "{flags:?}: {said}"
        );
        assert!(output.stdout.is_empty(), "{flags:?}");
    }
    let made: Vec<_> =
        fs::read_dir(sandbox.0.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(made, ["file"]);
}

#[test]
fn a_row_that_needs_more_descriptors_than_there_are_is_left_out_and_told() {
    let sandbox = Sandbox::new();
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let limited = |arguments: &str| {
        let limit = hard.min(400);
        let script = format!("ulimit -n {limit} && exec \"$0\" calibrate {arguments}");
        let mut command = sandbox.command(&[]);
        let program = command.get_program().to_owned();
        let data = sandbox.at("data");
        command = Command::new("sh");
        command.args(["-c", &script]).arg(program).current_dir(sandbox.0.path()).env("XDG_DATA_HOME", data);
        command.output().unwrap()
    };
    let rest = "--event-rate 200 --duration 300ms";
    let output = limited(&format!("--streams 2,5000 {rest} --out some"));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let table = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(table.contains("! 5,000 streams left out: they need 5,048 file descriptors"), "{table}");
    let rows = sandbox.document("some")["rows"].clone();
    assert_eq!((rows.as_array().unwrap().len(), &rows[0]["streams"]), (1, &json!(2)));
    let output = limited(&format!("--streams 5000 {rest} --out none"));
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("5,000") || text(&output.stderr).contains("5000"), "{output:?}");
    assert!(!sandbox.at("none/calibration.json").exists());
}

#[test]
fn on_one_core_it_runs_too_and_says_that_the_core_is_shared() {
    let sandbox = Sandbox::new();
    let flags = ["--streams", "2", "--event-rate", "100", "--duration", "300ms", "--out", "out"];
    let output = std::thread::scope(|scope| {
        // A child has the cores of the thread that starts it.
        let pinned = scope.spawn(|| {
            let mut first = CpuSet::new();
            let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
            let core = (0..CpuSet::count()).find(|core| allowed.is_set(*core).unwrap()).unwrap();
            first.set(core).unwrap();
            sched_setaffinity(Pid::from_raw(0), &first).unwrap();
            sandbox.run(&[&["calibrate"], &flags[..]].concat())
        });
        pinned.join().unwrap()
    });
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let cores = &sandbox.document("out")["cores"];
    assert_eq!((cores["client"].as_array().unwrap().len(), &cores["client"]), (1, &cores["server"]));
    assert!(text(&output.stdout).contains("! client and simulator share their cores"), "{output:?}");
}

#[test]
fn an_interrupted_calibration_keeps_the_rows_it_has_and_is_not_looked_up() {
    let sandbox = Sandbox::new();
    let flags = ["--streams", "2,3", "--event-rate", "100", "--duration", "20s", "--out", "out"];
    let child = sandbox.command(&[&["calibrate"], &flags[..]].concat());
    let mut child = { child }.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1_500));
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(sandbox.document("out")["rows"], json!([]));
    assert!(!sandbox.at("data").exists());
}

#[test]
fn a_promise_that_is_missed_fails_only_where_that_is_asked_for() {
    let sandbox = Sandbox::new();
    // Two events of one stream at this distance come in one read: no gap is exact, so that its promise cannot be kept.
    let flags = ["--streams", "1", "--event-rate", "1M", "--duration", "100ms"];
    let plain = sandbox.run(&[&["calibrate"], &flags[..], &["--out", "plain"]].concat());
    let strict =
        sandbox.run(&[&["calibrate"], &flags[..], &["--out", "strict", "--strict-instrument"]].concat());
    let row = sandbox.document("strict")["rows"][0].clone();
    assert!(row["event_rate_held"].as_f64().unwrap() < 0.9e6, "{row}");
    assert_eq!((plain.status.code(), strict.status.code()), (Some(0), Some(4)), "{row}");
    assert!(text(&strict.stdout).contains("missed"), "{}", text(&strict.stdout));
}
