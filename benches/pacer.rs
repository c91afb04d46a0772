//! How late the client sends: its own worker in an open loop, with and without looking all the time before a due,
//! against a bare program of the same job (sleep by a timer, look, send on one connection), all to a process on another
//! core that answers each request at once.
//!
//! `cargo bench --bench pacer` sends 1,000 requests a second, evenly and as a Poisson process, for 1.5 seconds a turn,
//! in pairs of all ways, and prints percentiles of send start minus due in microseconds, the median over the pairs.
//! `cargo bench --bench pacer -- --test` runs a small size in about a second; `--pairs N` sets the number of pairs.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use hammerscale::client::affinity::{allowed_cores, pin_to};
use hammerscale::client::route::routes;
use hammerscale::client::transport::Watched;
use hammerscale::client::{OpenLoop, Pool, Reuse, StopSignal, WorkerSetup, stamps};
use hammerscale::clock::{Clock, Forecast, Rate};
use hammerscale::config::spec::{ArrivalProcess, Arrivals};
use hammerscale::record::{Ended, Phase};
use hammerscale::schedule::wait::SPIN;
use hammerscale::schedule::{Pacer, Prepared, Supply};
use hammerscale::units::{Nanos, PerSecond, Ticks};
use hammerscale::wire::dialect::{Dialect, TextRule};
use hammerscale::wire::http1::Method;
use hammerscale::wire::response::AnswerRule;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::{TimeSpec, TimeValLike};
use nix::sys::timer::{Expiration, TimerSetTimeFlags};
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const RATE: f64 = 1_000.0;

/// The promise for a worker with a core of its own, and for one without, in microseconds: p50 and p99.
const PROMISED: [(f64, f64); 2] = [(0.5, 20.0), (25.0, 110.0)];

/// p50, p99, p99.9.
type Percentiles = [f64; 3];

struct Bench {
    clock: Clock,
    rate: Rate,
    server: Server,
    core: usize,
    count: usize,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.iter().any(|a| a == "answer") {
        return answer();
    }
    let small = arguments.iter().any(|a| a == "--test");
    let pairs = arguments.iter().skip_while(|a| *a != "--pairs").nth(1);
    let pairs: usize = pairs.map_or(if small { 1 } else { 5 }, |n| n.parse().unwrap());
    let core = *allowed_cores().last().unwrap();
    let _keeper = stamps::switch_on();
    let clock = Clock::new();
    let first = clock.anchor();
    std::thread::sleep(Duration::from_millis(100));
    let rate = Rate::between(&first, &clock.anchor());
    let count = if small { 100 } else { 1_500 };
    let bench = Bench { clock, rate, server: Server::start(), core, count };

    println!("{count} sends at {RATE}/s, send start - due, us      p50       p99     p99.9");
    for process in [ArrivalProcess::Constant, ArrivalProcess::Poisson] {
        for (spins, (p50, p99)) in [true, false].into_iter().zip(PROMISED) {
            let (mut worker, mut bare) = (Vec::new(), Vec::new());
            for pair in 0..pairs {
                // The order changes from pair to pair, so that a machine that gets slower favours nobody.
                if pair % 2 == 0 {
                    worker.push(bench.worker(process, spins));
                    bare.push(bench.bare(process, spins));
                } else {
                    bare.push(bench.bare(process, spins));
                    worker.push(bench.worker(process, spins));
                }
            }
            let way = if spins { "awake before a due" } else { "asleep until due" };
            for (who, turns) in [("worker", &worker), ("bare", &bare)] {
                let [a, b, c] = [0, 1, 2].map(|i| median(turns.iter().map(|turn| turn[i]).collect()));
                println!("{:8} {way:18} {who:14} {a:9.2} {b:9.2} {c:9.2}", process.name());
            }
            println!("{:8} {way:18} promised       {p50:9.2} {p99:9.2}", process.name());
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

impl Bench {
    fn dues(&self, process: ArrivalProcess) -> impl Iterator<Item = Nanos> {
        Pacer::new(Arrivals { rate: PerSecond(RATE), process }, 7).take(self.count)
    }

    fn percentiles(&self, late: impl Iterator<Item = (Ticks, Ticks)>) -> Percentiles {
        let mut us: Vec<f64> = late
            .map(|(sent, due)| self.rate.nanos(Ticks(sent.0.checked_sub(due.0).unwrap())).as_micros_f64())
            .collect();
        us.sort_by(f64::total_cmp);
        assert_eq!(us.len(), self.count);
        [0.5, 0.99, 0.999].map(|q| us[((us.len() as f64 * q).ceil() as usize).max(1) - 1])
    }

    /// The client's own worker.
    fn worker(&self, process: ArrivalProcess, spin: bool) -> Percentiles {
        let setup = WorkerSetup {
            worker: 0,
            core: Some(self.core),
            open: Some(OpenLoop { start: Arc::new(OnceLock::new()), spin, workers: 1 }),
            slots: 0,
            first_slot: 0,
            routes: routes(&[], &[self.server.address]).into(),
            ports: None,
            unresolved: None,
            connection_numbers: Arc::new(AtomicU64::new(0)),
            reuse: Reuse::Keep,
            prewarm: false,
            kernel_stamps: true,
            transmit_stamps: false,
            watched: Watched::Nothing,
            answer_rule: AnswerRule {
                dialect: Dialect::Http,
                streamed: false,
                method: Method::Get,
                text: TextRule { limit_chars: 0, keep: false },
            },
            timeout: Nanos::from_secs(60),
            idle_timeout: Nanos::from_secs(60),
            connect_timeout: Nanos::from_secs(60),
        };
        let supply = Arc::new(Supply::new(self.count));
        for (index, due) in (0..).zip(self.dues(process)) {
            let bytes = Bytes::from_static(REQUEST).into();
            supply.push(Prepared { index, phase: Phase::Measured, due: Some(due), bytes }).unwrap();
        }
        supply.close();
        let stop = Arc::new(StopSignal::new().unwrap());
        let (pool, mut inlets) = Pool::new(vec![setup], &supply, &stop, self.rate).unwrap();
        pool.start();
        let health = pool.join().remove(0).expect("the worker lives");
        assert_eq!(health.pinned_core, Some(self.core));
        let records = std::iter::from_fn(|| inlets[0].pop().map(Ended::into_record));
        self.percentiles(records.map(|record| (record.send_start.unwrap(), record.due)))
    }

    /// The same job and nothing else.
    fn bare(&self, process: ArrivalProcess, spin: bool) -> Percentiles {
        std::thread::scope(|scope| {
            let sends = scope.spawn(|| {
                pin_to(&[self.core]).unwrap();
                self.bare_sends(process, spin)
            });
            self.percentiles(sends.join().unwrap().into_iter())
        })
    }

    fn bare_sends(&self, process: ArrivalProcess, spin: bool) -> Vec<(Ticks, Ticks)> {
        let mut stream = TcpStream::connect(self.server.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_nonblocking(true).unwrap();
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK).unwrap();
        for (fd, token) in [(stream.as_fd(), 0), (timer.as_fd(), 1)] {
            epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, token)).unwrap();
        }
        let mut forecast = Forecast::new(&self.clock, self.rate);
        let start = self.clock.monotonic().0 + Nanos::PER_MILLI;
        let mut events = [EpollEvent::empty(); 8];
        let mut buffer = [0; 4_096];
        let mut look = |timeout: EpollTimeout, stream: &mut TcpStream| {
            let count = epoll.wait(&mut events, timeout).unwrap();
            if events[..count].iter().any(|event| event.data() == 0) {
                let _ = stream.read(&mut buffer);
            }
        };
        let mut sent = Vec::with_capacity(self.count);
        for due in self.dues(process) {
            let at = start + due.0;
            if forecast.is_stale(self.clock.ticks()) {
                forecast.refresh(&self.clock);
            }
            let due = forecast.ticks_at(Nanos(at));
            let asleep_until = at - if spin { SPIN.0 } else { 0 };
            let wake = TimeSpec::nanoseconds(asleep_until);
            timer.set(Expiration::OneShot(wake), TimerSetTimeFlags::TFD_TIMER_ABSTIME).unwrap();
            let awake_from = forecast.ticks_at(Nanos(asleep_until));
            while self.clock.ticks() < awake_from {
                look(EpollTimeout::NONE, &mut stream);
            }
            while self.clock.ticks() < due {
                look(EpollTimeout::ZERO, &mut stream);
            }
            let now = self.clock.ticks();
            stream.write_all(REQUEST).unwrap();
            sent.push((now, due));
        }
        sent
    }
}

/// A process on the first core that answers every request at once.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg("answer")
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

fn answer() {
    pin_to(&allowed_cores()[..1]).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    println!("{}", listener.local_addr().unwrap());
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        stream.set_nodelay(true).unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 4_096];
            while let Ok(count) = stream.read(&mut buffer) {
                if count == 0 || stream.write_all(ANSWER).is_err() {
                    return;
                }
            }
        });
    }
}
