//! The binary as a process, and what it left behind.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// No run of these tests takes a tenth of this; a hang must end by itself.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(3);

/// Stamps in the order of their meaning, as `requests.jsonl` names them.
const STAMPS: [&str; 8] = [
    "send_start_ns",
    "first_byte_ns",
    "head_done_ns",
    "first_event_ns",
    "first_output_ns",
    "last_output_ns",
    "terminal_ns",
    "end_ns",
];

/// The kernel's stamps are put on the axis of ours with an error of less than this.
const STAMP_ERROR_NS: i64 = 100_000;

/// How far an answer came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reached {
    /// Not even the request went out.
    NotSent,
    Sent,
    FirstByte,
    Head,
    Event,
    Output,
}

/// A run under way. It ends with this value.
pub(crate) struct Running {
    child: Child,
    dir: Option<tempfile::TempDir>,
}

/// A run that ended.
pub(crate) struct Run {
    code: i32,
    /// The lines of `requests.jsonl`, by number.
    pub(crate) rows: Vec<Value>,
    /// `run.json`.
    pub(crate) document: Value,
    pub(crate) stderr: String,
    dir: tempfile::TempDir,
}

/// Runs `requests` requests over `concurrency` slots to their end.
pub(crate) fn run(base_url: &str, requests: usize, concurrency: usize, flags: &[&str]) -> Run {
    start(base_url, requests, concurrency, flags, &[]).wait()
}

/// Runs `requests` requests at `rate` a second to their end.
pub(crate) fn run_open(base_url: &str, requests: usize, rate: &str, flags: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hammerscale"));
    command.env_remove("OPENAI_API_KEY");
    launch(command, base_url, requests, ["--rate", rate], flags).wait()
}

/// Starts a run with more environment variables.
pub(crate) fn start(
    base_url: &str,
    requests: usize,
    concurrency: usize,
    flags: &[&str],
    env: &[(&str, &str)],
) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hammerscale"));
    command.env_remove("OPENAI_API_KEY").envs(env.iter().copied());
    launch(command, base_url, requests, ["--concurrency", &concurrency.to_string()], flags)
}

/// Starts a run that may have so many descriptors.
pub(crate) fn start_limited(
    descriptors: usize,
    base_url: &str,
    requests: usize,
    concurrency: usize,
) -> Running {
    let mut command = Command::new("sh");
    let script = format!("ulimit -n {descriptors}; exec \"$@\"");
    command.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_hammerscale")]);
    launch(command, base_url, requests, ["--concurrency", &concurrency.to_string()], &[])
}

fn launch(
    mut command: Command,
    base_url: &str,
    requests: usize,
    driven: [&str; 2],
    flags: &[&str],
) -> Running {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| File::create(dir.path().join(name)).unwrap();
    let length: &[&str] = if flags.contains(&"--max-model-len") { &[] } else { &["--max-model-len", "8192"] };
    // Plain requests name no model, and have no prompt that could be too long for one.
    let plain = flags.contains(&"http");
    let model: &[&str] = if plain || flags.contains(&"--model") { &[] } else { &["--model", "m"] };
    let length = if plain { &[] } else { length };
    let child = command
        .args(["run", "--base-url", base_url])
        .args(model)
        .args(length)
        .args(["--requests", &requests.to_string()])
        .args(driven)
        .args(["--progress", "none", "--format", "json", "--out"])
        .arg(dir.path().join("run"))
        .args(flags)
        .env_remove("OPENAI_BASE_URL")
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .stdout(file("stdout"))
        .stderr(file("stderr"))
        .spawn()
        .unwrap();
    Running { child, dir: Some(dir) }
}

impl Running {
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// What the run wrote into a file so far; empty where there is none.
    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.as_ref().unwrap().path().join(name)).unwrap_or_default()
    }

    /// Waits for the end and reads what was written.
    pub(crate) fn wait(mut self) -> Run {
        let code = self.wait_for_code();
        let stderr = self.read("stderr");
        let said = format!("ended with {code}: {stderr}");
        let lines = self.read("run/requests.jsonl");
        let mut rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        rows.sort_by_key(|row| row["request_index"].as_u64());
        let document = self.read("run/run.json");
        let document = serde_json::from_str(&document).unwrap_or_else(|e| panic!("{e}: {said}"));
        let printed: Option<Value> = serde_json::from_str(&self.read("stdout")).ok();
        assert_eq!(printed.as_ref(), Some(&document), "{said}");
        Run { code, rows, document, stderr, dir: self.dir.take().unwrap() }
    }

    /// Waits for the end.
    pub(crate) fn wait_for_code(&mut self) -> i32 {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            assert!(begun.elapsed() < PATIENCE, "the run did not end within {PATIENCE:?}");
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Run {
    /// Every file of the run, and what it printed.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        files_below(self.dir.path())
    }

    /// Its directory.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    /// One of the files in it.
    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).unwrap()
    }

    /// The outcomes, by number.
    pub(crate) fn outcomes(&self) -> Vec<&str> {
        self.rows.iter().map(|row| row["outcome"].as_str().unwrap()).collect()
    }

    /// Fails unless every request is `ok` and the run says so.
    #[track_caller]
    pub(crate) fn all_ok(&self, requests: usize) {
        self.check_all_ok(requests).unwrap_or_else(|why| panic!("{why}"));
    }

    /// The same, without failing.
    pub(crate) fn check_all_ok(&self, requests: usize) -> Result<(), String> {
        let failed = self.rows.iter().filter(|row| row["outcome"] != "ok");
        let told: Vec<_> = failed.map(brief).collect();
        let (count, ok, code) = (self.rows.len(), &self.document["counts"]["ok"], self.code);
        if told.is_empty() && count == requests && *ok == requests && code == 0 {
            return Ok(());
        }
        let first = told.get(..5).unwrap_or(&told).join("\n");
        Err(format!("{} of {count} failed, {ok} are ok, exit code {code}: {first}", told.len()))
    }

    /// Fails unless the process ended with this code.
    #[track_caller]
    pub(crate) fn ended_with(&self, code: i32) {
        let instrument = &self.document["instrument"];
        let verdict = format!("{}: {}", instrument["verdict"], instrument["reasons"]);
        assert_eq!(self.code, code, "instrument {verdict}; {}", self.stderr);
    }

    /// Fails unless the counts of the document are those of the lines.
    #[track_caller]
    pub(crate) fn counts_agree(&self) {
        let counts = &self.document["counts"];
        let outcomes = self.outcomes();
        let count = |outcome: &str| outcomes.iter().filter(|o| **o == outcome).count();
        for (outcome, counted) in counts["by_outcome"].as_object().unwrap() {
            assert_eq!(*counted, count(outcome), "{outcome}");
        }
        let listed: u64 = counts["by_outcome"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
        assert_eq!(listed, self.rows.len() as u64);
        let (ok, incomplete) = (count("ok"), count("incomplete"));
        assert_eq!(counts["ok"], ok);
        assert_eq!(counts["incomplete"], incomplete);
        assert_eq!(counts["failed"], self.rows.len() - ok - incomplete);
        assert_eq!(counts["dropped"], 0);
        let statuses = counts["by_status"].as_object().unwrap();
        for row in &self.rows {
            if let Some(status) = row["http_status"].as_u64() {
                assert!(statuses.contains_key(&status.to_string()), "{status} of {statuses:?}");
            }
        }
    }
}

/// Lets a test that a busy machine can disturb try again. What is wrong is wrong each time.
#[track_caller]
pub(crate) fn within_three_tries(attempt: impl Fn() -> Result<(), String>) {
    let failures: Vec<String> = std::iter::repeat_with(attempt).take(3).map_while(Result::err).collect();
    assert!(failures.len() < 3, "{}", failures.join("\nand then: "));
}

/// A row in a line.
pub(crate) fn brief(row: &Value) -> String {
    let keys = ["request_index", "outcome", "reused", "connection_id", "body_bytes", "error"];
    keys.map(|key| format!("{key} {}", row[key])).join(", ")
}

/// Checks that the stamps up to there are kept, in order, and that there are no others. `done`: `[DONE]` was read.
pub(crate) fn check_stamps(row: &Value, reached: Reached, done: bool) -> Result<(), String> {
    let has = |name: &str| match name {
        "send_start_ns" => reached >= Reached::Sent,
        "first_byte_ns" => reached >= Reached::FirstByte,
        "head_done_ns" => reached >= Reached::Head,
        "first_event_ns" => reached >= Reached::Event,
        "first_output_ns" | "last_output_ns" => reached >= Reached::Output,
        "terminal_ns" => done,
        _ => true,
    };
    let user = &row["user"];
    for (clock, names) in [(row, &STAMPS[..]), (user, &STAMPS[1..])] {
        let mut before = row["due_ns"].as_i64().unwrap();
        for name in names {
            let stamp = clock[name].as_i64();
            if stamp.is_some() != has(name) {
                return Err(format!("{name} is {stamp:?}, reached {reached:?}, done: {done}"));
            }
            if let Some(stamp) = stamp {
                if stamp + STAMP_ERROR_NS < before {
                    return Err(format!("{name} is before the stamp in front of it"));
                }
                before = stamp;
            }
        }
    }
    Ok(())
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files_below(&path)) } else { found.push(path) }
    }
    found
}
