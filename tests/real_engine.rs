//! Runs against a server that nobody here wrote: llama.cpp's own, with a tiny model.
//!
//! Why: the simulator and the case files show that the client reads what we think servers write. This shows that it
//! reads what a server writes, on every endpoint that the server has, and that its token counts are the server's. The
//! witness is the server's own counter, fetched over a plain socket.
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
/// Requests of the first run.
const REQUESTS: u64 = 64;
/// Output limit of each of them.
const MAX_TOKENS: u64 = 64;
/// Requests of each run that looks at one endpoint: each of eight slots gets a second one.
const FEW: u64 = 16;
/// Output limit of each of them.
const FEW_TOKENS: u64 = 16;
/// What is asked for, which of them are streamed, and how they say that the limit ended the answer. llama.cpp's
/// `/responses` says `completed` even then.
const GENERATING: [(&str, &str); 4] =
    [("chat", "length"), ("completions", "length"), ("responses", "completed"), ("messages", "max_tokens")];
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
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let engine = Engine::start(scratch.path(), &[]);
    let flags = ["--requests", "64", "--concurrency", "8", "--ctx-tokens", "256", "--max-tokens", "64"];
    let run = engine.measure(&flags);
    assert_eq!(run.code, Some(0), "{}", run.log);
    assert_eq!(run.requests.len() as u64, REQUESTS);
    for request in &run.requests {
        assert_eq!(request["outcome"], "ok", "{request}");
        assert_eq!(request["phase"], "measured", "{request}");
        assert_eq!(request["output_token_source"], "usage", "{request}");
        let tokens = request["output_tokens"].as_u64().unwrap();
        assert!((1..=MAX_TOKENS).contains(&tokens), "{request}");
        assert!(request["prompt_tokens"].as_u64().unwrap() > 0, "{request}");
    }
    assert_eq!(run.tokens(), run.counted, "completion and prompt tokens, client and server");

    assert_eq!(run.document["schema"], "hammerscale.run/1.2");
    assert_eq!(run.document["counts"]["ok"], REQUESTS);
    assert_eq!(run.document["counts"]["failed"], 0);
    assert_eq!(run.document["counts"]["by_status"]["200"], REQUESTS);

    let artifact = run.artifact.as_ref().unwrap();
    assert_eq!(artifact["schema"], "anvil-serving.benchmark/v1");
    assert_eq!(artifact["requests"], REQUESTS);
    assert_eq!(artifact["completed"], REQUESTS);
    assert_eq!(artifact["failed"], 0);
    assert_eq!(artifact["performance_eligible"], true);
    assert_eq!(artifact["request_timings"].as_array().unwrap().len() as u64, REQUESTS);
    assert_eq!(artifact["metrics"]["output_tokens"], run.counted.0);
    assert_eq!(artifact["metrics"]["output_token_sources"]["usage"], REQUESTS);
}

/// The second run of an endpoint finds the prompts of the first in the server's cache, so that its counts have the
/// cached tokens in them, by each endpoint's own rules.
#[test]
fn every_endpoint_of_llama_cpp_counts_what_the_server_counts_streamed_and_not() {
    if !switched_on() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let engine = Engine::start(scratch.path(), &[]);
    for (endpoint, finish) in GENERATING {
        for streamed in [true, false] {
            let mut flags = vec!["--endpoint", endpoint, "--requests", "16", "--concurrency", "8"];
            flags.extend(["--ctx-tokens", "128", "--max-tokens", "16"]);
            flags.extend((!streamed).then_some("--no-stream"));
            if matches!(endpoint, "chat" | "completions") {
                flags.push("--ignore-eos");
            }
            let run = engine.measure(&flags);
            let place = format!("{flags:?}: {}", run.log);
            run.succeeded(FEW, &place);
            for request in &run.requests {
                check_answer(request, streamed, finish, &place);
            }
            if flags.contains(&"--ignore-eos") {
                assert_eq!(run.counted.0, FEW * FEW_TOKENS, "the server generated what was planned: {place}");
            }
            let cached = run.document["metrics"]["prefix_cache_hit"]["max"].as_f64();
            assert!(cached.is_some_and(|share| (0.0..1.0).contains(&share)), "{cached:?} {place}");
            // The stream comes first, and every prompt of the other run begins like one of its.
            assert!(streamed || cached > Some(0.0), "{cached:?} {place}");
            assert_eq!(run.artifact.is_some(), streamed, "{place}");
        }
    }

    // It has the path of this one, and says why it does not serve it.
    let refused = engine.measure(&["--endpoint", "embeddings", "--requests", "8", "--concurrency", "2"]);
    assert_eq!(refused.code, Some(3), "nothing valid was measured: {}", refused.log);
    assert_eq!(refused.document["counts"]["by_outcome"]["http_error"], 8);
    assert_eq!(refused.document["counts"]["by_status"]["501"], 8);
    let said = refused.log.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("status 501, This server does not support embeddings"), "{}", refused.log);
    assert_eq!(refused.counted, (0, 0));
}

#[test]
fn vectors_and_plain_pages_of_llama_cpp_are_measured_too() {
    if !switched_on() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let engine = Engine::start(scratch.path(), &[("EMBEDDINGS", "1")]);
    let flags = ["--endpoint", "embeddings", "--requests", "16", "--concurrency", "8", "--ctx-tokens", "128"];
    let vectors = engine.measure(&flags);
    vectors.succeeded(FEW, &vectors.log);
    assert!(vectors.counted.1 > 0 && vectors.counted.0 == 0, "{:?}", vectors.counted);
    let health = format!("http://{}/health", engine.address);
    let flags = ["--endpoint", "http", "--base-url", &health, "--requests", "16", "--concurrency", "8"];
    let pages = engine.measure(&flags);
    pages.succeeded(FEW, &pages.log);
    assert!(pages.requests.iter().all(|r| r["body_bytes"] == r#"{"status":"ok"}"#.len()), "{}", pages.log);
    for run in [vectors, pages] {
        assert!(run.requests.iter().all(|r| r["output_tokens"].is_null() && r["first_output_ns"].is_null()));
        assert!(run.artifact.is_none(), "{}", run.log);
    }
}

/// What every answer has: its tokens within the limit, its finish, and stamps of output where it came as a stream.
fn check_answer(request: &Value, streamed: bool, finish: &str, place: &str) {
    assert_eq!(request["output_token_source"], "usage", "{request} {place}");
    let tokens = request["output_tokens"].as_u64().unwrap();
    assert!((1..=FEW_TOKENS).contains(&tokens), "{request} {place}");
    assert_eq!(request["requested_max_tokens"], FEW_TOKENS, "{request} {place}");
    if tokens == FEW_TOKENS {
        assert_eq!(request["finish_reasons"]["0"], finish, "{request} {place}");
    }
    let chunks = request["output_chunks"].as_u64().unwrap();
    // A token whose text is held back makes fewer.
    let wanted = if streamed { 1..=tokens } else { 0..=0 };
    assert!(wanted.contains(&chunks), "{request} {place}");
    for stamp in ["first_event_ns", "first_output_ns", "first_content_ns", "last_output_ns", "terminal_ns"] {
        assert_eq!(request[stamp].is_u64(), streamed, "{stamp}: {request} {place}");
    }
    assert!(request["first_byte_ns"].is_u64() && request["end_ns"].is_u64(), "{request} {place}");
    assert_eq!(request["unrecognised_events"], 0, "{request} {place}");
}

/// Whether the engine is there. Says so when the test is left out.
///
/// # Panics
/// When the switch has a value that means neither on nor off: a misspelt switch must not leave the test out.
fn switched_on() -> bool {
    match std::env::var(SWITCH).as_deref() {
        Err(_) | Ok("" | "0") => {
            // Not `eprintln!`: the test harness would swallow it, and a test that is left out must say so.
            let mut stderr = std::io::stderr();
            let setup = "tests/engines/engines.sh setup llamacpp";
            writeln!(stderr, "real_engine: left out. To run it: `{setup}`, then {SWITCH}=1").unwrap();
            false
        }
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
struct Engine<'a> {
    child: Child,
    address: SocketAddr,
    scratch: &'a Path,
}

/// A finished run.
struct Run {
    code: Option<i32>,
    requests: Vec<Value>,
    document: Value,
    artifact: Option<Value>,
    /// Completion and prompt tokens by which the server's counters rose.
    counted: (u64, u64),
    /// What it said.
    log: String,
}

impl Run {
    /// Completion and prompt tokens of all requests. A count that stands apart from the cache's lacks what it gave.
    fn tokens(&self) -> (u64, u64) {
        let sum = |requests: &[Value], keys: &[&str]| -> u64 {
            requests.iter().flat_map(|r| keys.iter().filter_map(|key| r[*key].as_u64())).sum()
        };
        let apart = |r: &&Value| r["cache_counted_apart"] == true;
        let apart: Vec<Value> = self.requests.iter().filter(apart).cloned().collect();
        let cached = sum(&apart, &["cached_tokens", "cache_creation_tokens"]);
        (sum(&self.requests, &["completion_tokens"]), sum(&self.requests, &["prompt_tokens"]) + cached)
    }

    /// Fails unless all of so many requests are ok, and counts are the server's in the lines and in the document.
    fn succeeded(&self, requests: u64, place: &str) {
        assert_eq!(self.code, Some(0), "{place}");
        assert_eq!(self.requests.len() as u64, requests, "{place}");
        assert!(self.requests.iter().all(|request| request["outcome"] == "ok"), "{place}");
        assert_eq!(self.document["counts"]["by_status"]["200"], requests, "{place}");
        assert_eq!(self.tokens(), self.counted, "completion and prompt tokens, client and server: {place}");
        let metrics = &self.document["metrics"];
        for (metric, counted) in [("output_tokens", self.counted.0), ("prompt_tokens", self.counted.1)] {
            let sum = metrics[metric]["mean"].as_f64().unwrap_or(0.0) * requests as f64;
            assert!((sum - counted as f64).abs() < 0.5, "{metric}: {sum} {counted} {place}");
        }
    }
}

impl<'a> Engine<'a> {
    /// Starts the server on a free port and waits until it is ready.
    fn start(scratch: &'a Path, settings: &[(&str, &str)]) -> Self {
        // The port is free now and may be taken by the time the server binds it, so the server gets three tries.
        for _ in 0..3 {
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let address = free.local_addr().unwrap();
            drop(free);
            let mut engine =
                Self { child: spawn_engine(address.port(), scratch, settings), address, scratch };
            if engine.wait_until_ready(scratch) {
                return engine;
            }
        }
        panic!("the server ended before it was ready:\n{}", log_of(scratch, "engine"));
    }

    /// Whether the server became ready; `false` when it ended instead, as it does when its port is taken.
    ///
    /// # Panics
    /// When it does neither in time.
    fn wait_until_ready(&mut self, scratch: &Path) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < READY_WITHIN {
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            // Whoever took the port in between may be healthy too, but does not count so.
            let ready = |(status, text): (u16, String)| status == 200 && text.contains("\nllamacpp:");
            if self.get("/health").is_ok_and(|(status, _)| status == 200)
                && self.get("/metrics").is_ok_and(ready)
            {
                return true;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        panic!("not ready within {READY_WITHIN:?}:\n{}", log_of(scratch, "engine"));
    }

    /// Runs the product to its end, and lets it compute the run again.
    fn measure(&self, flags: &[&str]) -> Run {
        let before = self.counters();
        let out = self.scratch.join("run");
        let status = run_hammerscale(self.address, &out, self.scratch, flags);
        let requests: Vec<Value> =
            read(&out, "requests.jsonl").lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        let completed: u64 = requests.iter().filter_map(|r| r["completion_tokens"].as_u64()).sum();
        let after =
            self.counters_when(|c| c.requests_processing == 0 && c.predicted >= before.predicted + completed);
        let again = Command::new(env!("CARGO_BIN_EXE_hammerscale")).arg("report").arg(&out).output().unwrap();
        let said = String::from_utf8_lossy(&again.stderr);
        assert!(again.status.success() && said.is_empty(), "{flags:?} does not follow from itself: {said}");
        Run {
            code: status.code(),
            requests,
            document: document(&out, "run.json"),
            artifact: out.join("artifact.json").exists().then(|| document(&out, "artifact.json")),
            counted: (after.predicted - before.predicted, after.prompt - before.prompt),
            log: log_of(self.scratch, "hammerscale"),
        }
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

impl Drop for Engine<'_> {
    fn drop(&mut self) {
        // The script replaces itself by the server, so this is the server, and it has no children.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn_engine(port: u16, scratch: &Path, settings: &[(&str, &str)]) -> Child {
    let log = File::create(scratch.join("engine.log")).unwrap();
    Command::new(ENGINES)
        .args(["start", "llamacpp", &port.to_string()])
        .envs([("MODEL", MODEL), ("SLOTS", "8"), ("CTX", "2048")])
        .envs(settings.iter().copied())
        .env_remove("API_KEY")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap_or_else(|e| panic!("{ENGINES}: {e}"))
}

/// Runs the product to its end.
fn run_hammerscale(engine: SocketAddr, out: &Path, scratch: &Path, flags: &[&str]) -> ExitStatus {
    let log = File::create(scratch.join("hammerscale.log")).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_hammerscale"))
        .args(["run", "--overwrite"])
        .args(flags)
        .arg("--out")
        .arg(out)
        .env("OPENAI_BASE_URL", format!("http://{engine}/v1"))
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
