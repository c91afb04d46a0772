//! Runs of every kind, against the binary's own simulator: each one agrees with itself.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::run::request;
use crate::{report, stderr, stdout};

/// Starts a run that writes to `dir`.
pub(crate) fn start(dir: &Path, args: &[&str]) -> Child {
    start_driven(dir, ["--concurrency", "3"], args)
}

fn start_driven(dir: &Path, driven: [&str; 2], args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hammerscale"));
    command.args(["run", "--quiet"]).args(driven).arg("--out").arg(dir).args(args);
    command.env("NO_PROXY", "*").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Starts a long run, and sends it a signal once its first answers are written down; its exit code.
pub(crate) fn signalled(dir: &Path, signal: Signal) -> Option<i32> {
    let args = ["--sim=ttft=5ms;itl=5ms", "--model", "m", "--requests", "300", "--max-tokens", "50"];
    let mut run = start(dir, &args);
    let lines = dir.join("requests.jsonl.part");
    while fs::metadata(&lines).map_or(0, |meta| meta.len()) == 0 {
        assert!(run.try_wait().unwrap().is_none(), "it ended before anything was written");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    kill(Pid::from_raw(run.id().try_into().unwrap()), signal).unwrap();
    run.wait().unwrap().code()
}

/// The arguments of a run of plain requests.
pub(crate) fn plain(url: &str) -> [&str; 10] {
    ["--endpoint", "http", "--base-url", url, "--method", "POST", "--body", "Cargo.toml", "--requests", "12"]
}

/// The URL of a server of one page. Its threads end with the process.
pub(crate) fn page() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                while request(&stream).is_some() {
                    (&stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
                }
            });
        }
    });
    url
}

/// Every document of the run comes out of its record byte for byte.
pub(crate) fn agrees_with_itself(dir: &Path) {
    let name = dir.display();
    let output = report(dir, "json");
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""), "{name}");
    assert!(output.stdout == fs::read(dir.join("run.json")).unwrap(), "{name}: run.json");
    let artifact = report(dir, "anvil");
    if let Ok(stored) = fs::read(dir.join("artifact.json")) {
        assert_eq!((artifact.status.code(), stderr(&artifact)), (Some(0), ""), "{name}");
        assert!(artifact.stdout == stored, "{name}: artifact.json");
        let alone = report(&dir.join("artifact.json"), "anvil");
        assert_eq!(alone.status.code(), Some(0), "{name}: {}", stderr(&alone));
        assert!(alone.stdout == stored, "{name}: artifact.json alone");
    } else {
        assert_eq!(artifact.status.code(), Some(2), "{name}");
        assert!(stderr(&artifact).contains("no streamed text"), "{name}: {}", stderr(&artifact));
    }
    for format in ["terminal", "md", "csv", "events"] {
        let output = report(dir, format);
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""), "{name} {format}");
    }
}

#[test]
fn a_run_of_every_kind_agrees_with_itself() {
    let tmp = tempfile::tempdir().unwrap();
    let kinds: [(&str, &[&str], bool); 12] = [
        ("chat", &["--endpoint", "chat"], true),
        ("completions", &["--endpoint", "completions"], true),
        ("responses", &["--endpoint", "responses"], true),
        ("messages", &["--endpoint", "messages"], true),
        ("embeddings", &["--endpoint", "embeddings"], false),
        ("no_stream", &["--no-stream"], false),
        ("no_stream_messages", &["--no-stream", "--endpoint", "messages"], false),
        ("continuous_usage", &["--continuous-usage"], true),
        ("prewarm", &["--prewarm"], true),
        ("fresh", &["--connection", "fresh"], true),
        ("user_stamps", &["--stamps", "user"], true),
        ("compat", &["--compat", "anvil"], true),
    ];
    for (name, args, has_artifact) in kinds {
        let dir = tmp.path().join(name);
        let common = ["--sim=ttft=2ms;itl=1ms", "--requests", "12"];
        let prompted = ["--model", "m", "--ctx-tokens", "64", "--max-tokens", "8"];
        let prompted: &[&str] = match name {
            "embeddings" => &prompted[..4],
            _ => &prompted,
        };
        let args = [&common, prompted, args].concat();
        assert_eq!(start(&dir, &args).wait().unwrap().code(), Some(0), "{name}");
        assert_eq!(dir.join("artifact.json").exists(), has_artifact, "{name}");
        agrees_with_itself(&dir);
        let document: Value = serde_json::from_slice(&fs::read(dir.join("run.json")).unwrap()).unwrap();
        assert_eq!(
            (&document["counts"]["ok"], &document["instrument"]["clock"]["inversions"]),
            (&12.into(), &0.into())
        );
        let codes = document["warnings"].as_array().unwrap().iter().map(|w| w["code"].as_str().unwrap());
        assert!(codes.into_iter().any(|code| code == "simulated_target"), "{name}: {document}");
    }
}

/// Kept, missed, and cut short by its operator.
#[test]
fn an_open_loop_agrees_with_itself() {
    let tmp = tempfile::tempdir().unwrap();
    let path = |name: &str| tmp.path().join(name);
    let document = |name: &str| -> Value {
        serde_json::from_slice(&fs::read(path(name).join("run.json")).unwrap()).unwrap()
    };
    let common = ["--sim=ttft=2ms;itl=1ms", "--model", "m", "--ctx-tokens", "64", "--max-tokens", "8"];
    for (name, rate, more) in [
        ("kept", "50", &["--requests", "20", "--arrival", "constant"][..]),
        ("missed", "1M", &["--requests", "500"]),
    ] {
        let ended = start_driven(&path(name), ["--rate", rate], &[&common, more].concat()).wait().unwrap();
        // A busy machine makes late sends.
        assert!([Some(0), Some(4)].contains(&ended.code()), "{name}: {ended}");
        agrees_with_itself(&path(name));
        let run = document(name);
        assert_eq!((&run["plan"]["loop"], &run["counts"]["failed"]), (&"open".into(), &0.into()), "{name}");
    }
    let warnings = document("missed")["warnings"].to_string();
    assert!(warnings.contains("rate_not_reached"), "{warnings}");

    let cut = path("cut");
    let mut run = start_driven(&cut, ["--rate", "100"], &[&common[..], &["--requests", "5000"]].concat());
    while fs::metadata(cut.join("requests.jsonl.part")).map_or(0, |meta| meta.len()) == 0 {
        assert!(run.try_wait().unwrap().is_none(), "it ended before anything was written");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    kill(Pid::from_raw(run.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(130));
    agrees_with_itself(&cut);
    let run = document("cut");
    assert_eq!((&run["counts"]["planned"], &run["interrupted"]), (&5_000.into(), &true.into()));
    assert!(!run["instrument"]["reasons"].to_string().contains("were begun"), "{run}");
}

#[test]
fn a_run_of_plain_requests_agrees_with_itself() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("run");
    assert_eq!(start(&dir, &plain(&page())).wait().unwrap().code(), Some(0));
    agrees_with_itself(&dir);
}

/// A server that answers at once leaves the time between two requests to the client.
#[test]
fn a_client_that_is_the_bottleneck_says_so_and_says_it_again() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("run");
    let url = page();
    let args = [&plain(&url)[..8], &["--requests", "12000", "--prewarm"]].concat();
    assert_eq!(start(&dir, &args).wait().unwrap().code(), Some(0));
    agrees_with_itself(&dir);
    let document: Value = serde_json::from_slice(&fs::read(dir.join("run.json")).unwrap()).unwrap();
    let instrument = &document["instrument"];
    let share = instrument["slot_wait_share"].as_f64().unwrap();
    assert!(share > 0.1, "{instrument}");
    assert!(instrument["notes"].to_string().contains("slots waited for it"), "{instrument}");
    // By a second way: what is not in flight of the concurrency that was asked for, but for the run's ends.
    let held = document["rates"]["concurrency_mean"].as_f64().unwrap() / 3.0;
    assert!((held - (1.0 - share)).abs() < 0.1, "{held} held, {share} waited");
}

#[test]
fn a_run_that_was_interrupted_or_reached_nobody_agrees_with_itself() {
    let tmp = tempfile::tempdir().unwrap();
    let path = |name: &str| tmp.path().join(name);
    let nobody = ["--base-url", "http://127.0.0.1:1/v1", "--requests", "5"];
    // With a model nobody is asked for one: the requests themselves fail.
    let refused = [&nobody[..], &["--model", "m"]].concat();
    for (name, args) in [("unreachable", &nobody[..]), ("refused", &refused)] {
        assert_eq!(start(&path(name), args).wait().unwrap().code(), Some(6), "{name}");
        agrees_with_itself(&path(name));
    }
    let shown = report(&path("unreachable"), "terminal");
    assert!(stdout(&shown).contains("cannot reach http://127.0.0.1:1/v1"), "{}", stdout(&shown));
    assert_eq!(signalled(&path("interrupted"), Signal::SIGINT), Some(130));
    agrees_with_itself(&path("interrupted"));
    let document: Value = serde_json::from_slice(&fs::read(path("interrupted/run.json")).unwrap()).unwrap();
    assert_eq!(document["span"]["stopped_ns"], document["window"]["end_ns"]);
}

#[test]
fn a_run_that_was_killed_is_shown_as_far_as_it_went() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("run");
    assert_eq!(signalled(&dir, Signal::SIGKILL), None);
    for format in ["terminal", "md", "csv"] {
        let output = report(&dir, format);
        assert_eq!(output.status.code(), Some(0), "{format}: {}", stderr(&output));
        for word in ["did not finish", "no run.json"] {
            assert!(stderr(&output).contains(word), "{format}, {word}: {}", stderr(&output));
        }
        assert!(!stderr(&output).contains("stored"), "{format}: {}", stderr(&output));
        assert!(stdout(&output).lines().count() > 1, "{format}: {}", stdout(&output));
    }
    for format in ["anvil", "json"] {
        let output = report(&dir, format);
        assert_eq!((output.status.code(), stdout(&output)), (Some(2), ""), "{format}");
    }
}
