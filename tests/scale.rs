//! Many streams on one worker: the binary, as a process, against the simulator, which is another.
//!
//! An unoptimised build runs 2,000 streams, an optimised one the 10,000 that are promised; a hard limit of descriptors
//! that is too low for that is an error here, not an excuse. What is asserted does not depend on how fast the machine
//! is: every request is valid, every connection was made before the window, nothing was lost, and memory is bounded.
//! What does depend on it (read delay, verdict) is printed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// What one stream may hold of this process's memory, all told: records, rows, documents, rings.
const BYTES_PER_STREAM: u64 = 16 * 1024;

/// What a process of this program holds however few streams it has, its code included.
const BYTES_OF_ITS_OWN: u64 = 16 << 20;

fn run(scratch: &Path, descriptors: Option<u64>, flags: &[&str]) -> Output {
    let limit = descriptors.map_or_else(String::new, |n| format!("ulimit -n {n}; "));
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{limit}exec \"$@\""), "sh", env!("CARGO_BIN_EXE_hammerscale"), "run"]);
    command.args(flags).args(["--progress", "none", "--format", "json", "--out"]).arg(scratch.join("run"));
    command.env_remove("OPENAI_BASE_URL").env_remove("OPENAI_API_KEY").output().unwrap()
}

#[test]
fn one_worker_holds_as_many_streams_as_promised() {
    let optimised = !cfg!(debug_assertions);
    // Half a minute of patience for a machine that is busy elsewhere: the run itself takes some seconds.
    let (streams, gap) = if optimised { (10_000, "100ms") } else { (2_000, "100ms") };
    let scratch = tempfile::tempdir().unwrap();
    let output = run(
        scratch.path(),
        None,
        &[
            &format!("--sim=ttft=uniform:500ms,600ms;itl={gap}"),
            &format!("--requests={streams}"),
            &format!("--concurrency={streams}"),
            "--workers=1",
            "--prewarm",
            "--ctx-tokens=64",
            "--max-tokens=32",
        ],
    );
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (counts, instrument, prewarm) = (&document["counts"], &document["instrument"], &document["prewarm"]);
    assert_eq!((&counts["ok"], &counts["stale_connections"]), (&streams.into(), &0.into()));
    assert_eq!((&prewarm["made"], &prewarm["failed"]), (&streams.into(), &0.into()), "{prewarm}");
    for lost in ["ring_drops", "unresolved", "inverted_requests"] {
        assert_eq!(instrument[lost], 0, "{lost}");
    }
    assert_eq!((&counts["dropped"], &counts["dropped_stamps"]), (&0.into(), &0.into()));
    // All of them at once, and each over the connection that was there before.
    assert_eq!(document["rates"]["concurrency_max"], f64::from(streams));
    let lines = std::fs::read_to_string(scratch.path().join("run/requests.jsonl")).unwrap();
    let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(rows.iter().all(|row| row["connect_ns"].is_null() && row["connection_use"] == 0));
    let mut connections: Vec<u64> = rows.iter().map(|row| row["connection_id"].as_u64().unwrap()).collect();
    connections.sort_unstable();
    assert!(connections.into_iter().eq(0..u64::try_from(streams).unwrap()));
    let peak = instrument["peak_rss_bytes"].as_u64().unwrap();
    say(&format!(
        "{streams} streams: {} MiB resident at most, {} s of processor time, {} connects/s; {}: {}; read delay {}",
        peak >> 20,
        instrument["cpu_time_s"],
        prewarm["connections_per_s"],
        instrument["verdict"],
        instrument["reasons"],
        instrument["read_delay_us"]
    ));
    let allowed = u64::try_from(streams).unwrap() * BYTES_PER_STREAM;
    let own = if optimised { 0 } else { BYTES_OF_ITS_OWN };
    assert!(peak <= allowed + own, "{peak} bytes for {streams} streams");
}

#[test]
fn too_few_descriptors_are_told_before_the_simulator_is_asked_anything() {
    let scratch = tempfile::tempdir().unwrap();
    let output = run(scratch.path(), Some(200), &["--sim", "--requests=300", "--concurrency=300"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--concurrency 300") && said.contains("may have 200"), "{said}");
    assert!(!scratch.path().join("run").exists());
}

/// Straight to standard error: what a passing test prints is otherwise held back, and these figures are for the log.
fn say(line: &str) {
    writeln!(std::io::stderr().lock(), "{line}").unwrap();
}
