//! The test's own hands: starting and ending a simulator, and an HTTP client that knows just enough.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use hammerscale::sim::ledger::{self, Ledger};
use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// No test waits longer than this for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A simulator as a child process with a ledger in a folder of its own.
pub(crate) struct Sim {
    child: Child,
    pub(crate) address: SocketAddr,
    dir: tempfile::TempDir,
}

impl Sim {
    /// Starts one with these flags; it ends with this value at the latest.
    pub(crate) fn start(flags: &[&str]) -> Self {
        Self::launch(Command::new(env!("CARGO_BIN_EXE_hammerscale")), flags)
    }

    /// Starts one under a limit of the shell's `ulimit`.
    pub(crate) fn start_limited(limit: &str, flags: &[&str]) -> Self {
        let mut command = Command::new("sh");
        let script = format!("trap '' XFSZ; ulimit {limit}; exec \"$@\"");
        command.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_hammerscale")]);
        Self::launch(command, flags)
    }

    fn launch(mut command: Command, flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        command.args(["sim", "--exit-with-stdin"]).args(flags);
        command.arg("--ledger").arg(dir.path().join("ledger"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.strip_prefix("listening http://").and_then(|l| l.strip_suffix("/v1\n"));
        let address = address.unwrap_or_else(|| panic!("first line {line:?}")).parse().unwrap();
        Self { child, address, dir }
    }

    /// What it has written to standard error, to its end.
    pub(crate) fn complaint(&mut self) -> String {
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }

    pub(crate) fn ledger_path(&self) -> PathBuf {
        self.dir.path().join("ledger")
    }

    /// Its resident memory.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        1024 * line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap()
    }

    /// Its processor time so far, in ticks of a hundredth of a second.
    pub(crate) fn processor_ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        // proc_pid_stat(5): fields 14 and 15, and the name in field 2 may hold anything.
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        fields.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    /// Closes its standard input, which asks it to end.
    pub(crate) fn close_stdin(&mut self) {
        drop(self.child.stdin.take());
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Ends it in order and reads its ledger.
    pub(crate) fn finish(mut self) -> Ledger {
        self.close_stdin();
        assert!(self.wait().success());
        let ledger = ledger::read(&self.ledger_path()).unwrap();
        assert!(ledger.is_complete());
        ledger
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address)
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        // Only does something after a failed assertion.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection and the bytes read from it but not used yet.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    rest: Vec<u8>,
}

/// One response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The chunks of a chunked body, each with CLOCK_MONOTONIC when its last byte was there.
    pub(crate) chunks: Vec<(Vec<u8>, i64)>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream, rest: Vec::new() }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Reads one whole response.
    pub(crate) fn receive(&mut self) -> Response {
        let head = self.take_until(b"\r\n\r\n");
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let status_line = lines.next().unwrap();
        assert!(status_line.starts_with("HTTP/1.1 "), "{status_line}");
        let status = status_line[9..12].parse().unwrap();
        let fields: Vec<_> = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let mut response = Response { status, fields, body: Vec::new(), chunks: Vec::new() };
        if response.field("transfer-encoding") == Some("chunked") {
            loop {
                let line = String::from_utf8(self.take_until(b"\r\n")).unwrap();
                let size = usize::from_str_radix(line.trim_end(), 16).unwrap();
                let data = self.take(size + 2);
                let (data, ending) = data.split_at(size);
                assert_eq!(ending, b"\r\n");
                if size == 0 {
                    break;
                }
                response.body.extend_from_slice(data);
                response.chunks.push((data.to_vec(), monotonic()));
            }
        } else if let Some(length) = response.field("content-length") {
            response.body = self.take(length.parse().unwrap());
        }
        response
    }

    /// Sends a chat completion and reads its answer.
    pub(crate) fn chat(&mut self, body: &Value, id: Option<&str>) -> Response {
        self.send(&post_chat(body, id));
        self.receive()
    }

    /// Sends a POST with a JSON body and reads its answer.
    pub(crate) fn ask(&mut self, path: &str, body: &Value, id: Option<&str>) -> Response {
        self.send(&post(path, body, id));
        self.receive()
    }

    /// Whether the simulator has closed the connection, with nothing more on it.
    pub(crate) fn is_closed(&mut self) -> bool {
        assert!(self.rest.is_empty());
        matches!(self.stream.read(&mut [0; 16]), Ok(0))
    }

    fn take_until(&mut self, end: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = self.rest.windows(end.len()).position(|w| w == end) {
                return self.take(at + end.len());
            }
            self.read_more();
        }
    }

    fn take(&mut self, n: usize) -> Vec<u8> {
        while self.rest.len() < n {
            self.read_more();
        }
        let rest = self.rest.split_off(n);
        std::mem::replace(&mut self.rest, rest)
    }

    fn read_more(&mut self) {
        let mut buffer = [0; 16 * 1024];
        let n = self.stream.read(&mut buffer).unwrap();
        assert!(n > 0, "the simulator closed the connection early");
        self.rest.extend_from_slice(&buffer[..n]);
    }
}

impl Response {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The events of a stream: each chunk must be exactly one event, without a name. `[DONE]` is a JSON string here.
    pub(crate) fn events(&self) -> Vec<Value> {
        let unnamed = |(name, data): (Option<String>, Value)| {
            assert_eq!(name, None);
            data
        };
        self.named_events().into_iter().map(unnamed).collect()
    }

    /// The events of a stream, each with its name if it has one: each chunk must be exactly one event.
    pub(crate) fn named_events(&self) -> Vec<(Option<String>, Value)> {
        assert_eq!(
            (self.status, self.field("content-type")),
            (200, Some("text/event-stream; charset=utf-8"))
        );
        let event = |(chunk, _): &(Vec<u8>, i64)| {
            let text = std::str::from_utf8(chunk).unwrap().strip_suffix("\n\n").unwrap();
            let (name, line) = match text.strip_prefix("event: ") {
                Some(rest) => rest.split_once('\n').map(|(n, line)| (Some(n.to_owned()), line)).unwrap(),
                None => (None, text),
            };
            let data = line.strip_prefix("data: ").unwrap();
            assert!(!data.contains('\n'));
            (name, if data == "[DONE]" { json!("[DONE]") } else { serde_json::from_str(data).unwrap() })
        };
        self.chunks.iter().map(event).collect()
    }

    /// The joined deltas of one kind.
    pub(crate) fn text(&self, key: &str) -> String {
        let events = self.events();
        events.iter().filter_map(|e| e["choices"][0]["delta"][key].as_str()).collect()
    }
}

/// A body with one user message.
pub(crate) fn chat_body(prompt: &str, max_tokens: u64, stream: bool) -> Value {
    json!({
        "model": "org/model-8b", "messages": [{"role": "user", "content": prompt}], "max_tokens": max_tokens,
        "stream": stream, "stream_options": {"include_usage": true}
    })
}

/// The bytes of a chat completion request.
pub(crate) fn post_chat(body: &Value, id: Option<&str>) -> Vec<u8> {
    post("/v1/chat/completions", body, id)
}

/// The bytes of a POST with a JSON body.
pub(crate) fn post(path: &str, body: &Value, id: Option<&str>) -> Vec<u8> {
    let body = body.to_string();
    let id = id.map(|id| format!("X-Request-Id: {id}\r\n")).unwrap_or_default();
    format!(
        "POST {path} HTTP/1.1\r\nHost: sim\r\nContent-Type: application/json\r\n{id}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The same clock as the ledger's, read by other code.
pub(crate) fn monotonic() -> i64 {
    let t = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
    t.tv_sec() * 1_000_000_000 + t.tv_nsec()
}

/// The median of a list that is not empty.
pub(crate) fn median(mut values: Vec<i64>) -> i64 {
    values.sort_unstable();
    values[values.len() / 2]
}
