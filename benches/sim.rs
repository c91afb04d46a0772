//! How fast and how punctual the simulator is: events per second of one core with the ledger on, and lateness (send
//! instant minus planned instant) at several loads. All figures come from the ledger; the reader only drains sockets
//! and checks that every byte arrived.
//!
//! `cargo bench --bench sim` runs everything with the simulator on the last core and the reader on the first;
//! `cargo bench --bench sim -- --test` runs a small size in about a second.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout
)]

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use hammerscale::sim::ledger::{self, Ending};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::unistd::Pid;

struct Load {
    name: &'static str,
    streams: usize,
    gap: &'static str,
    /// Tokens of a stream in a second of the run.
    per_second: f64,
}

const FULL: [Load; 5] = [
    Load { name: "1,000 x 20/s", streams: 1000, gap: "50ms", per_second: 20.0 },
    Load { name: "1,000 x 50/s", streams: 1000, gap: "20ms", per_second: 50.0 },
    Load { name: "9,900 x 10/s", streams: 9900, gap: "100ms", per_second: 10.0 },
    Load { name: "1,000 x 200/s", streams: 1000, gap: "5ms", per_second: 200.0 },
    Load { name: "1,000 streams, saturated", streams: 1000, gap: "1ms", per_second: 250.0 },
];

const SMALL: [Load; 1] = [Load { name: "20 x 50/s", streams: 20, gap: "20ms", per_second: 50.0 }];

/// How long a load lasts unless `--seconds` says otherwise.
const SECONDS: f64 = 5.0;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let small = arguments.iter().any(|a| a == "--test");
    let after = |flag: &str| arguments.iter().skip_while(|a| *a != flag).nth(1);
    let seconds = after("--seconds").map_or(if small { 0.4 } else { SECONDS }, |s| s.parse().unwrap());
    let cores = std::thread::available_parallelism().unwrap().get();
    if cores > 1 {
        let mut first = CpuSet::new();
        first.set(0).unwrap();
        sched_setaffinity(Pid::from_raw(0), &first).unwrap();
    }
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    println!(
        "load                      events/s   lateness us: p50    p99   p99.9     max   send us: p50   p99"
    );
    for load in if small { &SMALL[..] } else { &FULL[..] } {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ledger");
        let before = children_cpu_us();
        let received = run(load, seconds, &path, cores);
        report(load, &path, received, children_cpu_us() - before);
    }
}

fn run(load: &Load, seconds: f64, path: &Path, cores: usize) -> u64 {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hammerscale"));
    command.args(["sim", "--exit-with-stdin", "--ttft", "uniform:1s,1.1s", "--itl", load.gap]);
    command.arg("--ledger").arg(path);
    if cores > 1 {
        command.args(["--cores", &(cores - 1).to_string()]);
    }
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let address = address_of(&mut child);
    let received = drain(load, seconds, address);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    received
}

fn address_of(child: &mut Child) -> SocketAddr {
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    line.trim().strip_prefix("listening http://").unwrap().strip_suffix("/v1").unwrap().parse().unwrap()
}

/// Opens the streams, reads them to their ends and returns how many bytes came.
fn drain(load: &Load, seconds: f64, address: SocketAddr) -> u64 {
    let tokens = (load.per_second * seconds).round().max(2.0);
    let body = format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":"hello"}}],"max_tokens":{tokens},"stream":true}}"#
    );
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: sim\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let epoll = Epoll::new(EpollCreateFlags::empty()).unwrap();
    let mut streams = Vec::with_capacity(load.streams);
    for i in 0..load.streams {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream.set_nonblocking(true).unwrap();
        epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, u64::try_from(i).unwrap())).unwrap();
        assert!(stream.as_raw_fd() > 0);
        streams.push(stream);
    }
    let (mut open, mut received) = (load.streams, 0_u64);
    let mut buffer = vec![0_u8; 64 * 1024];
    let mut events = vec![EpollEvent::empty(); 256];
    while open > 0 {
        let n = epoll.wait(&mut events, EpollTimeout::NONE).unwrap();
        for event in &events[..n] {
            let stream = &mut streams[usize::try_from(event.data()).unwrap()];
            match stream.read(&mut buffer) {
                Ok(0) => panic!("the simulator closed a stream"),
                Ok(n) => {
                    received += u64::try_from(n).unwrap();
                    // The last send call of a stream ends with the last chunk, and no event ends so.
                    if buffer[..n].ends_with(b"\r\n0\r\n\r\n") {
                        open -= 1;
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => panic!("{e}"),
            }
        }
    }
    received
}

/// CPU time of the children that have ended, in microseconds.
fn children_cpu_us() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
    let us = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 * 1e6 + t.tv_usec() as f64;
    us(usage.user_time()) + us(usage.system_time())
}

fn report(load: &Load, path: &Path, received: u64, cpu_us: f64) {
    let ledger = ledger::read(path).unwrap();
    assert!(ledger.is_complete());
    assert!(ledger.requests.iter().all(|r| r.ended.is_some_and(|e| e.ending == Ending::Complete)));
    let heads = ledger.requests.iter().filter_map(|r| r.head.map(|h| u64::from(h.bytes)));
    let events = || ledger.requests.iter().flat_map(|r| &r.events);
    let sent: u64 = heads.sum::<u64>() + events().map(|e| u64::from(e.bytes)).sum::<u64>();
    assert_eq!(sent, received, "every byte of the ledger arrived");
    let mut lateness: Vec<i64> = events().map(|e| e.before.0 - e.planned.0).collect();
    assert!(lateness.iter().all(|&l| l >= 0), "nothing is sent early");
    let mut calls: Vec<i64> = events().map(|e| e.after.0 - e.before.0).collect();
    let mut at: Vec<i64> = events().map(|e| e.before.0).collect();
    lateness.sort_unstable();
    calls.sort_unstable();
    at.sort_unstable();
    // The middle 60% of the events: no ramp, no tail.
    let (from, to) = (at.len() / 5, at.len() * 4 / 5);
    let rate = (to - from) as f64 / ((at[to] - at[from]) as f64 / 1e9);
    let us = |sorted: &[i64], q: f64| {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let place = ((sorted.len() as f64 * q) as usize).min(sorted.len() - 1);
        sorted[place] as f64 / 1e3
    };
    println!(
        "{:25} {rate:9.0} {:16.2} {:7.1} {:7.1} {:7.0} {:13.2} {:6.1} {:14.2}",
        load.name,
        us(&lateness, 0.5),
        us(&lateness, 0.99),
        us(&lateness, 0.999),
        us(&lateness, 1.0),
        us(&calls, 0.5),
        us(&calls, 0.99),
        cpu_us / at.len() as f64,
    );
}
