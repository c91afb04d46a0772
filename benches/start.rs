//! From the start of the process to its first request, and how large the program is.
//!
//! `cargo bench --bench start` starts the program 21 times before a listener and takes the time from just before the start
//! to the first byte of the request that was asked for; `-- --test` does it once. The size is that of the file without
//! its symbols, by `strip`, where there is one.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods
)]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_hammerscale");

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n\
    data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

fn main() {
    let small = std::env::args().any(|a| a == "--test");
    let rounds = if small { 1 } else { 21 };
    let mut spans: Vec<Duration> = (0..rounds).map(|_| once()).collect();
    spans.sort();
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    println!(
        "start to first request: median {:.1} ms, fastest {:.1} ms, slowest {:.1} ms of {rounds}",
        ms(spans[rounds / 2]),
        ms(spans[0]),
        ms(spans[rounds - 1])
    );
    println!("size without symbols: {}", size());
}

/// One run of one request; the time until it came.
fn once() -> Duration {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let mut child = Command::new(PROGRAM)
        .args(["run", "--base-url", &format!("http://{address}/v1"), "--model", "m", "--requests", "1"])
        .args(["--concurrency", "1", "--quiet", "--progress", "none", "--out"])
        .arg(dir.path().join("run"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // Connections before it ask what the target is; they end by being closed.
    let came = loop {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 16 * 1024];
        let length = stream.read(&mut request).unwrap();
        if request[..length].starts_with(b"POST ") {
            let came = began.elapsed();
            stream.write_all(ANSWER).unwrap();
            break came;
        }
    };
    assert!(child.wait().unwrap().success(), "the request is answered");
    came
}

fn size() -> String {
    let dir = tempfile::tempdir().unwrap();
    let stripped = dir.path().join("stripped");
    let done = Command::new("strip").arg("-o").arg(&stripped).arg(PROGRAM).status();
    match done {
        Ok(status) if status.success() => {
            format!("{:.1} MB", std::fs::metadata(stripped).unwrap().len() as f64 / 1e6)
        }
        _ => "not known here, there is no strip".to_owned(),
    }
}
