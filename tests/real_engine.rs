//! One run against a server that nobody here wrote: llama.cpp's own, with a tiny model.
//!
//! Why: the simulator and the case files show that the client reads what we think servers write. This shows that it
//! reads what a server writes, and that its token counts are the server's. The witness is the server's own counter,
//! fetched over a plain socket.
//!
//! This server is also a hard case for kept connections: it promises `Keep-Alive: timeout=5`, and then closes the
//! connection within microseconds of each streamed answer. A client that sends its next request into that gap loses
//! it, and 64 valid answers show that ours does not.
//!
//! The engine takes a minute to install, so the test runs only with `HAMMERSCALE_ENGINE_TESTS=1` and says so when it
//! is left out. With the variable set, everything it needs is mandatory. It judges no latency: a model on a shared
//! processor has none worth judging.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]
// Deadlines of this test; nothing is measured by them.
#![allow(clippy::disallowed_methods)]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Switches the test on.
const SWITCH: &str = "HAMMERSCALE_ENGINE_TESTS";
/// The script that installs and starts engines.
const ENGINES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/engines/engines.sh");
/// The model's name, for the script and for requests.
const MODEL: &str = "tiny";
/// Requests of the run.
const REQUESTS: u64 = 64;
/// Output limit of each request.
const MAX_TOKENS: u64 = 64;
/// The server loads its model in one to three seconds; a busy machine gets twenty times that.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// The run takes two to four seconds on two cores; a hang must not outlive the test.
const RUN_WITHIN: Duration = Duration::from_secs(120);
/// The server adds to its counters when it frees a slot, just after the answer's last byte.
const COUNTED_WITHIN: Duration = Duration::from_secs(10);
/// Longest silence of the server on a request for its health or its counters.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// How often anything is looked at again while waiting.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

#[test]
fn llama_cpp_and_the_client_count_the_same_tokens() {
    if !switched_on() {
        // Not `eprintln!`: the test harness would swallow it, and a test that is left out must say so.
        let mut stderr = std::io::stderr();
        let setup = "tests/engines/engines.sh setup llamacpp";
        writeln!(stderr, "real_engine: left out. To run it: `{setup}`, then {SWITCH}=1").unwrap();
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let engine = Engine::start(scratch.path());
    let before = engine.counters();
    let out = scratch.path().join("run");
    let status = run_hammerscale(engine.address, &out, scratch.path());
    assert_eq!(status.code(), Some(0), "{}", log_of(scratch.path(), "hammerscale"));

    let requests: Vec<Value> =
        read(&out, "requests.jsonl").lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(requests.len() as u64, REQUESTS);
    for request in &requests {
        assert_eq!(request["outcome"], "ok", "{request}");
        assert_eq!(request["phase"], "measured", "{request}");
        assert_eq!(request["output_token_source"], "usage", "{request}");
        let tokens = request["output_tokens"].as_u64().unwrap();
        assert!((1..=MAX_TOKENS).contains(&tokens), "{request}");
        assert!(request["prompt_tokens"].as_u64().unwrap() > 0, "{request}");
    }
    let completion_sum: u64 = requests.iter().map(|r| r["output_tokens"].as_u64().unwrap()).sum();
    let prompt_sum: u64 = requests.iter().map(|r| r["prompt_tokens"].as_u64().unwrap()).sum();

    let after = engine
        .counters_when(|c| c.requests_processing == 0 && c.predicted >= before.predicted + completion_sum);
    assert_eq!(after.predicted - before.predicted, completion_sum, "completion tokens, server and client");
    assert_eq!(after.prompt - before.prompt, prompt_sum, "prompt tokens, server and client");

    let run = document(&out, "run.json");
    assert_eq!(run["schema"], "hammerscale.run/1.1");
    assert_eq!(run["counts"]["ok"], REQUESTS);
    assert_eq!(run["counts"]["failed"], 0);
    assert_eq!(run["counts"]["by_status"]["200"], REQUESTS);

    let artifact = document(&out, "artifact.json");
    assert_eq!(artifact["schema"], "anvil-serving.benchmark/v1");
    assert_eq!(artifact["requests"], REQUESTS);
    assert_eq!(artifact["completed"], REQUESTS);
    assert_eq!(artifact["failed"], 0);
    assert_eq!(artifact["performance_eligible"], true);
    assert_eq!(artifact["request_timings"].as_array().unwrap().len() as u64, REQUESTS);
    assert_eq!(artifact["metrics"]["output_tokens"], completion_sum);
    assert_eq!(artifact["metrics"]["output_token_sources"]["usage"], REQUESTS);
}

/// # Panics
/// When the switch has a value that means neither on nor off: a misspelt switch must not leave the test out.
fn switched_on() -> bool {
    match std::env::var(SWITCH).as_deref() {
        Err(_) | Ok("" | "0") => false,
        Ok("1") => true,
        Ok(other) => panic!("{SWITCH} is `{other}`: set it to 1, or not at all"),
    }
}

/// The server's own counters.
#[derive(Debug, Clone, Copy)]
struct Counters {
    /// Tokens it generated.
    predicted: u64,
    /// Prompt tokens it processed or found in its cache.
    prompt: u64,
    /// Requests it is working on.
    requests_processing: u64,
}

/// A running server; ends with the value.
struct Engine {
    child: Child,
    address: SocketAddr,
}

impl Engine {
    /// Starts the server on a free port and waits until it is ready.
    fn start(scratch: &Path) -> Self {
        // The port is free now and may be taken by the time the server binds it, so the server gets three tries.
        for _ in 0..3 {
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let address = free.local_addr().unwrap();
            drop(free);
            let mut engine = Self { child: spawn_engine(address.port(), scratch), address };
            if engine.wait_until_ready(scratch) {
                return engine;
            }
        }
        panic!("the server ended before it was ready:\n{}", log_of(scratch, "engine"));
    }

    /// Whether the server became ready; `false` when it ended instead.
    ///
    /// # Panics
    /// When it does neither in time.
    fn wait_until_ready(&mut self, scratch: &Path) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < READY_WITHIN {
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            if matches!(self.get("/health"), Ok((200, _))) {
                return true;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        panic!("not ready within {READY_WITHIN:?}:\n{}", log_of(scratch, "engine"));
    }

    fn counters(&self) -> Counters {
        let (status, text) = self.get("/metrics").unwrap();
        assert_eq!(status, 200, "{text}");
        let value = |name: &str| {
            let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
            let value = line.unwrap_or_else(|| panic!("no {name} in:\n{text}"));
            value.trim().parse::<u64>().unwrap_or_else(|e| panic!("{name} {value}: {e}"))
        };
        Counters {
            predicted: value("llamacpp:tokens_predicted_total"),
            prompt: value("llamacpp:prompt_tokens_total") + value("llamacpp:prompt_tokens_cached_total"),
            requests_processing: value("llamacpp:requests_processing"),
        }
    }

    /// The counters once they are `settled`, or as they stand when the time for that is over.
    fn counters_when(&self, settled: impl Fn(&Counters) -> bool) -> Counters {
        let begun = Instant::now();
        loop {
            let counters = self.counters();
            if settled(&counters) || begun.elapsed() > COUNTED_WITHIN {
                return counters;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Status and body of a GET, read to the end of the connection.
    fn get(&self, path: &str) -> std::io::Result<(u16, String)> {
        let mut stream = TcpStream::connect_timeout(&self.address, ANSWER_WITHIN)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
        Ok((status, body.to_owned()))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // The script replaces itself by the server, so this is the server, and it has no children.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn_engine(port: u16, scratch: &Path) -> Child {
    let log = File::create(scratch.join("engine.log")).unwrap();
    Command::new(ENGINES)
        .args(["start", "llamacpp", &port.to_string()])
        .envs([("MODEL", MODEL), ("SLOTS", "8"), ("CTX", "2048")])
        .env_remove("API_KEY")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap_or_else(|e| panic!("{ENGINES}: {e}"))
}

/// Runs the product to its end.
fn run_hammerscale(engine: SocketAddr, out: &Path, scratch: &Path) -> ExitStatus {
    let log = File::create(scratch.join("hammerscale.log")).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_hammerscale"))
        .args(["run", "--base-url", &format!("http://{engine}/v1"), "--model", MODEL])
        .args(["--requests", &REQUESTS.to_string(), "--concurrency", "8"])
        .args(["--ctx-tokens", "256", "--max-tokens", &MAX_TOKENS.to_string()])
        .arg("--out")
        .arg(out)
        .env_remove("OPENAI_BASE_URL")
        .env_remove("OPENAI_API_KEY")
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while begun.elapsed() < RUN_WITHIN {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    panic!("no end within {RUN_WITHIN:?}:\n{}", log_of(scratch, "hammerscale"));
}

fn document(out: &Path, name: &str) -> Value {
    serde_json::from_str(&read(out, name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn read(out: &Path, name: &str) -> String {
    fs::read_to_string(out.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The end of what a process wrote.
fn log_of(scratch: &Path, process: &str) -> String {
    /// More than a stack trace, less than a server's chatter about 64 requests.
    const TAIL_LINES: usize = 40;
    let text = fs::read(scratch.join(format!("{process}.log"))).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}
