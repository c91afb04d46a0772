//! How many plain requests a second one core asks: `hammerscale run --endpoint http` with every record it keeps, against
//! a bare epoll loop of the same job and against wrk, all to the same bare server on another core.
//!
//! `cargo bench --bench http` measures 1, 64 and 1,000 connections in five rounds of all three, in changing order, and
//! prints the rates, and the medians of the ratios. `-- --test` is a small size without wrk; `--rounds N` and
//! `--connections N` change the size. Without wrk on the path its column is left out.
//!
//! The server answers each read with a fixed answer and looks at nothing else, so that on two cores the client is the
//! limit as long as it can be. The client's collector, its feeder and its control thread have no core but the server's.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods
)]

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use hammerscale::client::affinity::{allowed_cores, pin_to};
use hammerscale::client::limits::raise_descriptor_limit;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nServer: bare\r\nContent-Type: text/plain\r\nContent-Length: 12\r\n\r\nHello World\n";

/// What the bare loop sends: as long as wrk's request with the identity that ours carries.
const REQUEST: &[u8] = b"GET /hello HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nAccept: */*\r\n\
    X-Request-Id: 0123456789abcdef-0000001\r\n\r\n";

/// The listener's token among those of connections.
const LISTENER: u64 = u64::MAX;

struct Size {
    connections: Vec<usize>,
    requests: usize,
    rounds: usize,
    wrk: bool,
}

impl Size {
    /// How many are asked: with one connection every answer is waited for, at a tenth of the rate.
    fn requests(&self, connections: usize) -> usize {
        if connections == 1 { self.requests / 10 } else { self.requests.max(connections) }
    }
}

/// Requests a second of one way to ask.
type Way = fn(SocketAddr, usize, &Size) -> Option<f64>;

const WAYS: [(&str, Way); 3] = [("hammerscale", product), ("bare", bare), ("wrk", wrk)];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.iter().any(|a| a == "serve") {
        return serve();
    }
    let number =
        |flag: &str| arguments.iter().skip_while(|a| *a != flag).nth(1).map(|n| n.parse::<usize>().unwrap());
    let small = arguments.iter().any(|a| a == "--test");
    let mut size = if small {
        Size { connections: vec![1, 8], requests: 500, rounds: 1, wrk: false }
    } else {
        Size { connections: vec![1, 64, 1_000], requests: 400_000, rounds: 5, wrk: true }
    };
    size.rounds = number("--rounds").unwrap_or(size.rounds);
    size.requests = number("--requests").unwrap_or(size.requests);
    size.connections = number("--connections").map_or(size.connections, |n| vec![n]);
    let _ = raise_descriptor_limit();
    let server = Server::start();
    println!("connections  round {}", WAYS.map(|(name, _)| format!("{name:>12}")).concat());
    for &connections in &size.connections {
        let rounds: Vec<[Option<f64>; 3]> = (0..size.rounds)
            .map(|round| {
                let mut rates = [None; 3];
                // The order changes from round to round, so that a machine that gets slower favours nobody.
                for turn in 0..WAYS.len() {
                    let way = (turn + round) % WAYS.len();
                    rates[way] = WAYS[way].1(server.address, connections, &size);
                }
                let shown = rates.map(|r| r.map_or(format!("{:>12}", "-"), |r| format!("{r:12.0}")));
                println!("{connections:11}  {round:5} {}", shown.concat());
                rates
            })
            .collect();
        for (other, (name, _)) in WAYS.iter().enumerate().skip(1) {
            let mut ratios: Vec<f64> =
                rounds.iter().filter_map(|rates| Some(rates[0]? / rates[other]?)).collect();
            ratios.sort_by(f64::total_cmp);
            if let Some(median) = ratios.get(ratios.len() / 2) {
                println!("{connections:11}  median of hammerscale / {name}: {median:.3}");
            }
        }
    }
}

/// The core of whoever asks; everything else has the others.
fn client_core() -> usize {
    *allowed_cores().last().unwrap()
}

/// The product, as a process: the measured span of its own document, and every request of the plan in it.
fn product(server: SocketAddr, connections: usize, size: &Size) -> Option<f64> {
    let requests = size.requests(connections);
    let dir = tempfile::tempdir().unwrap();
    let done = Command::new(env!("CARGO_BIN_EXE_hammerscale"))
        .args(["run", "--endpoint", "http", "--prewarm", "--format", "json", "--progress", "none"])
        .args(["--base-url", &format!("http://{server}/hello")])
        .args(["--requests", &requests.to_string(), "--concurrency", &connections.to_string()])
        .args(["--workers", "1", "--cores", &client_core().to_string()])
        .arg("--out")
        .arg(dir.path().join("run"))
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let run: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(run["counts"]["ok"], requests, "{}", run["counts"]);
    assert_eq!(run["instrument"]["ring_drops"], 0);
    let lines = BufReader::new(std::fs::File::open(dir.path().join("run/requests.jsonl")).unwrap());
    assert_eq!(lines.lines().count(), requests, "every request has its line");
    run["rates"]["request_rate"].as_f64()
}

/// One connection of the bare loop: how much of its answer is still to come.
struct Asked {
    stream: TcpStream,
    missing: usize,
}

/// Send, wait, read; nothing is looked at but the number of bytes.
fn bare(server: SocketAddr, connections: usize, size: &Size) -> Option<f64> {
    let (core, requests) = (client_core(), size.requests(connections));
    let loop_on_its_core = move || {
        pin_to(&[core]).unwrap();
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
        let mut all: Vec<Asked> = (0..connections)
            .map(|index| {
                let stream = TcpStream::connect(server).unwrap();
                stream.set_nodelay(true).unwrap();
                stream.set_nonblocking(true).unwrap();
                let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
                epoll.add(&stream, EpollEvent::new(flags, index as u64)).unwrap();
                Asked { stream, missing: ANSWER.len() }
            })
            .collect();
        let (mut sent, mut done) = (0, 0);
        let began = Instant::now();
        for asked in &mut all {
            assert_eq!(asked.stream.write(REQUEST).unwrap(), REQUEST.len());
            sent += 1;
        }
        let mut buffer = vec![0; 64 * 1024];
        let mut events = [EpollEvent::empty(); 512];
        while done < requests {
            let count = epoll.wait(&mut events, EpollTimeout::NONE).unwrap();
            for event in &events[..count] {
                let asked = &mut all[usize::try_from(event.data()).unwrap()];
                let got = asked.stream.read(&mut buffer).unwrap();
                assert!(got > 0 && got <= asked.missing, "one answer to one request");
                asked.missing -= got;
                if asked.missing == 0 {
                    asked.missing = ANSWER.len();
                    done += 1;
                    if sent < requests {
                        assert_eq!(asked.stream.write(REQUEST).unwrap(), REQUEST.len());
                        sent += 1;
                    }
                }
            }
        }
        began.elapsed()
    };
    let took = std::thread::spawn(loop_on_its_core).join().unwrap();
    Some(requests as f64 / took.as_secs_f64())
}

/// wrk with one thread on the client's core; `None` where there is none.
fn wrk(server: SocketAddr, connections: usize, size: &Size) -> Option<f64> {
    if !size.wrk {
        return None;
    }
    let done = Command::new("taskset")
        .args(["-c", &client_core().to_string(), "wrk", "-t1", "-d3s", "-c", &connections.to_string()])
        .arg(format!("http://{server}/hello"))
        .output()
        .ok()
        .filter(|done| done.status.success())?;
    let text = String::from_utf8(done.stdout).unwrap();
    assert!(!text.contains("Socket errors") && !text.contains("Non-2xx"), "{text}");
    text.lines().find_map(|line| line.strip_prefix("Requests/sec:"))?.trim().parse().ok()
}

/// The bare server in a process on the first core.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg("serve")
            .stdout(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, address: line.trim().parse().unwrap() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Answers every read that ends a request.
fn serve() {
    let _ = raise_descriptor_limit();
    pin_to(&allowed_cores()[..1]).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    println!("{}", listener.local_addr().unwrap());
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
    epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER)).unwrap();
    let mut all: Vec<Option<TcpStream>> = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    let mut events = [EpollEvent::empty(); 512];
    loop {
        let count = epoll.wait(&mut events, EpollTimeout::NONE).unwrap();
        for event in &events[..count] {
            if event.data() == LISTENER {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true).unwrap();
                    stream.set_nodelay(true).unwrap();
                    let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
                    epoll.add(&stream, EpollEvent::new(flags, all.len() as u64)).unwrap();
                    all.push(Some(stream));
                }
                continue;
            }
            let place = &mut all[usize::try_from(event.data()).unwrap()];
            let Some(stream) = place.as_mut() else { continue };
            match stream.read(&mut buffer) {
                Ok(got) if got > 0 => {
                    if buffer[..got].ends_with(b"\r\n\r\n") && stream.write(ANSWER).is_err() {
                        *place = None;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                _ => *place = None,
            }
        }
    }
}
