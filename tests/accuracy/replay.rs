//! The replay server (`tests/replay/server.py`) as the witness, and `score.py` as the judge of its log: Python, another
//! author's HTTP, another ledger. Neither shares a line with the product.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use hammerscale::audit::Budget;

use crate::product::{Guarded, run_to_its_end};
use crate::{Load, say};

/// The server is one Python thread, good to about 10,000 writes a second: 200 streams × 20 content chunks a second are
/// 4,000.
const STREAMS: usize = 200;
const EVENTS: usize = 60;
const GAP_MS: u64 = 50;
const FIRST_MS: u64 = 100;
/// Streams begin this far apart, so that their chunks spread evenly over a gap.
const STEP_MS: f64 = 0.25;

/// The promise for kernel stamps, of the median. `score.py` counts a stamp inside the send call, from the reading before
/// it to the one after it, as 0 and one outside by its distance. That call with its two readings takes some 10 to 50 µs
/// here, which is why the simulator's ledger, whose readings are closer, is the stricter witness. A stamp on a wrong
/// axis, or one of a wrong event, is off by milliseconds; noise of the machine moves tails, not medians.
const MEDIAN_US: f64 = 5.0;

/// How far apart the client's median errors against the two witnesses may be: the simulator's ledger counts the send
/// call as error, 1 to 2 µs of it, and the replay server's log does not.
const WITNESSES_US: f64 = 3.0;

/// The same load for the simulator.
pub(crate) const LOAD: Load =
    Load { streams: STREAMS, events: EVENTS, first: "uniform:100ms,150ms", gap: "50ms" };

/// # Panics
/// When the product's stamps are not what the server logged, or its error is another one than `budget` says, which is
/// that against the simulator's ledger at the same load.
pub(crate) fn judge(budget: &Budget) {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    let server = Server::start(scratch.path());
    let flags = [
        &format!("--base-url=http://127.0.0.1:{}/v1", server.port),
        "--model=test-model",
        &format!("--requests={STREAMS}"),
        &format!("--concurrency={STREAMS}"),
        &format!("--max-tokens={EVENTS}"),
    ];
    let run = run_to_its_end(scratch.path(), &flags, |_| ());
    let ledger = server.finish();
    run.write_events(&path("events.jsonl"));
    let score = score(&ledger, &run.dir.join("requests.jsonl"), &path("events.jsonl"), &path("score.json"));

    assert_eq!((&score["joined"], &score["records"]), (&json!(STREAMS), &json!(STREAMS)));
    assert_eq!(score["clock"], "mono", "both sides are on one clock");
    assert_eq!(score["short_gaps"]["gaps"], STREAMS * (EVENTS - 1));
    for (key, samples) in [
        ("first_output_abs_us", STREAMS),
        ("last_output_abs_us", STREAMS),
        ("terminal_abs_us", STREAMS),
        ("span_us", STREAMS),
        ("gap_us", STREAMS * (EVENTS - 1)),
    ] {
        assert_eq!(score[key]["n"], samples, "{key}");
        let median = score[key]["p50"].as_f64().unwrap();
        assert!(median <= MEDIAN_US, "{key}: median error {median} µs, promised {MEDIAN_US} µs");
    }
    for (key, simulated) in [
        ("first_output_abs_us", &budget.first_output),
        ("terminal_abs_us", &budget.end),
        ("gap_us", &budget.gaps.error),
    ] {
        let (theirs, ours) = (score[key]["p50"].as_f64().unwrap(), simulated.magnitude.median_us().unwrap());
        let apart = (theirs - ours).abs();
        assert!(apart <= WITNESSES_US, "{key}: {theirs} µs by the replay server, {ours} µs by the simulator");
    }
}

/// A running replay server.
struct Server {
    process: Guarded,
    port: u64,
    ledger: PathBuf,
    /// It says more later, and takes a closed pipe for a fault of the connection it serves.
    _stdout: BufReader<ChildStdout>,
}

impl Server {
    fn start(scratch: &Path) -> Self {
        let (config, ledger) = (scratch.join("server.json"), scratch.join("ledger.jsonl"));
        let end_ms = FIRST_MS + EVENTS as u64 * GAP_MS;
        let script = json!([
            ["role", FIRST_MS / 2],
            ["content", FIRST_MS, EVENTS, GAP_MS, 1],
            ["finish", end_ms, "stop"],
            ["usage_if_requested", end_ms, {"completion_tokens": EVENTS}],
            ["done", end_ms],
        ]);
        fs::write(&config, json!({"script": script, "delay_step_ms": STEP_MS}).to_string()).unwrap();
        let child = Command::new("python3")
            .arg(replay_dir().join("server.py"))
            .arg("--config")
            .arg(&config)
            .arg("--ledger")
            .arg(&ledger)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("python3: {e}"));
        let mut process = Guarded(child);
        leave_the_last_core(process.pid());
        let mut line = String::new();
        let mut stdout = BufReader::new(process.0.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("first line {line:?}: {e}"));
        let ports = ready["ready"].as_object().unwrap();
        let port = ports.values().next().unwrap().as_u64().unwrap();
        Self { process, port, ledger, _stdout: stdout }
    }

    /// Ends it in order; its ledger is complete then.
    fn finish(mut self) -> PathBuf {
        kill(self.process.pid(), Signal::SIGTERM).unwrap();
        let status = self.process.end().expect("the server did not end in time");
        assert!(status.success(), "{status}");
        self.ledger
    }
}

/// The product's worker takes the last core; a server that the scheduler puts there too would be measured instead of
/// the stamps.
fn leave_the_last_core(pid: Pid) {
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let cores: Vec<usize> = (0..CpuSet::count()).filter(|core| allowed.is_set(*core).unwrap()).collect();
    if let [others @ .., _] = cores.as_slice()
        && !others.is_empty()
    {
        let mut set = CpuSet::new();
        others.iter().for_each(|core| set.set(*core).unwrap());
        sched_setaffinity(pid, &set).unwrap();
    }
}

/// Lets the judge compare, and gives what it found.
fn score(ledger: &Path, requests: &Path, events: &Path, result: &Path) -> Value {
    let output = Command::new("python3")
        .arg(replay_dir().join("score.py"))
        .args([Path::new("--ledger"), ledger, Path::new("--requests"), requests])
        .args([Path::new("--events"), events, Path::new("--json"), result])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let (said, complaint) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}:\n{said}{complaint}", output.status);
    say(&format!("{STREAMS} streams × {} events/s against the replay server", 1_000 / GAP_MS));
    said.lines().for_each(|line| say(&format!("  {line}")));
    serde_json::from_str(&fs::read_to_string(result).unwrap()).unwrap()
}

fn replay_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/replay")
}
