//! A small run against a small server of its own: answers of every kind, so that every block of the documents has
//! something to say.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Answers by the order of arrival, over and over.
const ANSWERS: usize = 6;
pub(crate) const REQUESTS: usize = 24;

/// A finished run. The directory goes with it.
pub(crate) struct Finished {
    dir: tempfile::TempDir,
}

impl Finished {
    /// Runs it.
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        // The thread ends with the process; it holds nothing but a listener.
        std::thread::spawn(move || serve(&listener));
        let dir = tempfile::tempdir().unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_hammerscale"))
            .args(["run", "--base-url", &url, "--model", "m", "--compat", "anvil", "--quiet"])
            .args(["--requests", &REQUESTS.to_string(), "--concurrency", "3", "--ctx-tokens", "256"])
            .args(["--response-words", "4", "--max-tokens", "16", "--temperature", "0.1"])
            .args(["--prompt-cache-mode", "unique", "--request-canaries", "--seed", "-3"])
            .args(["--engine", "test, \"é\"", "--label", "k=v"])
            .arg("--out")
            .arg(dir.path().join("run"))
            .env("NO_PROXY", "*")
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code().is_some_and(|code| code != 2 && code != 70), "{stderr}");
        Self { dir }
    }

    /// Its directory.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path().join(name)).unwrap()
    }

    /// A copy with one file replaced.
    pub(crate) fn copy_with(&self, to: &Path, name: &str, bytes: &[u8]) {
        copy_with(&self.path(), to, name, bytes);
    }
}

/// A copy of a run with one file replaced.
pub(crate) fn copy_with(run: &Path, to: &Path, name: &str, bytes: &[u8]) {
    std::fs::create_dir_all(to).unwrap();
    for file in std::fs::read_dir(run).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
    std::fs::write(to.join(name), bytes).unwrap();
}

fn serve(listener: &TcpListener) {
    let arrived = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for stream in listener.incoming().map_while(Result::ok) {
            let arrived = &arrived;
            scope.spawn(move || while answer(&stream, arrived).is_some() {});
        }
    });
}

/// Answers one request; `None` when the connection is of no more use.
fn answer(mut stream: &TcpStream, arrived: &AtomicUsize) -> Option<()> {
    let body = request(stream)?;
    let marker = body.find("ANVIL_REQ_").map(|at| body[at..].split([' ', '\\', '"', ',']).next().unwrap());
    let text = format!("{} code code code code", marker?);
    let event = |choices: &str| format!("data: {{\"choices\":[{choices}]}}\n\n");
    let delta = |key: &str, value: &str| {
        event(&format!("{{\"index\":0,\"delta\":{{\"{key}\":{}}}}}", serde_json::json!(value)))
    };
    let finish = |choice: u32, reason: &str| {
        event(&format!("{{\"index\":{choice},\"delta\":{{}},\"finish_reason\":\"{reason}\"}}"))
    };
    let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":250,\"completion_tokens\":9,\"total_tokens\":259,\"prompt_tokens_details\":{\"cached_tokens\":100}}}\n\n";
    let done = "data: [DONE]\n\n";
    let (first, second) = text.split_at(20);
    let parts = match arrived.fetch_add(1, Ordering::SeqCst) % ANSWERS {
        0 | 3 => vec![
            delta("reasoning", "hm"),
            delta("content", first),
            delta("content", second) + &finish(0, "stop") + usage + done,
        ],
        // Exact, without usage.
        1 => vec![delta("content", first), delta("content", second) + &finish(0, "length") + done],
        // Finish reasons in an order that a map by choice does not tell, and nothing visible.
        2 => vec![finish(1, "length") + &finish(0, "stop"), finish(1, "stop") + usage + done],
        // Not the words that were asked for, by a server that reports an error.
        4 => vec![
            delta("content", "code, \"quoted\"\n"),
            "data: {\"error\":{\"message\":\"full, \\\"busy\\\"\",\"code\":503}}\n\n".to_owned(),
        ],
        _ => {
            stream.write_all(b"HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 4\r\n\r\nlate").ok()?;
            return Some(());
        }
    };
    stream
        .write_all(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
        )
        .ok()?;
    for part in parts {
        stream.write_all(format!("{:x}\r\n{part}\r\n", part.len()).as_bytes()).ok()?;
        std::thread::sleep(std::time::Duration::from_millis(3));
    }
    stream.write_all(b"0\r\n\r\n").ok()
}

/// The body of the next request; `None` when there is none.
pub(crate) fn request(mut stream: &TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let head = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(head) = head {
            let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
            let length =
                text.lines().find_map(|line| line.strip_prefix("content-length: "))?.parse::<usize>();
            if bytes.len() >= head + 4 + length.ok()? {
                return String::from_utf8(bytes.split_off(head + 4)).ok();
            }
        }
        match stream.read(&mut buffer) {
            Ok(n) if n > 0 => bytes.extend_from_slice(&buffer[..n]),
            _ => return None,
        }
    }
}
