//! How fast the client makes connections: its own way of doing it, all options set and every connection watched and
//! stamped, against a bare loop of blocking connects of the same program, both to a bare accept loop on another core.
//!
//! `cargo bench --bench connect` makes 30,000 connections from three local addresses, at most 10,000 open at a time
//! (a process may be limited to 20,000 descriptors), in pairs of both ways, and prints both rates and their ratio; then
//! it makes 18,000 from one address, past the 14,000 where the kernel has used up half of its port numbers.
//! `cargo bench --bench connect -- --test` runs a small size in about a second; `--pairs N` sets the number of pairs.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods
)]

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use hammerscale::client::affinity::{allowed_cores, pin_to};
use hammerscale::client::limits::raise_descriptor_limit;
use hammerscale::client::ports::Ports;
use hammerscale::client::route::{Route, routes};
use hammerscale::client::transport::Watched;
use hammerscale::client::{Pool, Reuse, StopSignal, WorkerHealth, WorkerSetup, stamps};
use hammerscale::clock::{Clock, Rate};
use hammerscale::schedule::Supply;
use hammerscale::units::{Nanos, Ticks};
use hammerscale::wire::response::AnswerRule;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, SockRef, Socket, Type};

const SOURCES: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1)),
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)),
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3)),
];

/// What the acceptor keeps open: more than a batch, fewer than the descriptors of a process.
const KEPT: usize = 18_500;

/// What the acceptor has not taken yet: the kernel's usual largest.
const QUEUE: i32 = 4_096;

/// Connections of the client and of the bare loop at a time, how often, and those of one address.
struct Size {
    batch: usize,
    batches: usize,
    alone: usize,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.iter().any(|a| a == "accept") {
        return accept();
    }
    let small = arguments.iter().any(|a| a == "--test");
    let pairs = arguments.iter().skip_while(|a| *a != "--pairs").nth(1);
    let pairs: usize = pairs.map_or(if small { 1 } else { 5 }, |n| n.parse().unwrap());
    let size = if small {
        Size { batch: 200, batches: 3, alone: 400 }
    } else {
        Size { batch: 10_000, batches: 3, alone: 18_000 }
    };
    let _ = raise_descriptor_limit();
    let cores = allowed_cores();
    pin_to(&[*cores.last().unwrap()]).unwrap();
    let _keeper = stamps::switch_on();
    let clock = Clock::new();
    let first = clock.anchor();
    std::thread::sleep(Duration::from_millis(100));
    let rate = Rate::between(&first, &clock.anchor());

    println!(
        "{} connections from {} addresses, /s    client      bare   ratio",
        size.batch * size.batches,
        SOURCES.len()
    );
    let mut ratios = Vec::new();
    for pair in 1..=pairs {
        // The order changes from pair to pair, so that a machine that gets slower favours nobody.
        let (client, bare);
        if pair % 2 == 0 {
            bare = per_second(&size, |routes| bare_loop(routes, size.batch));
            client = per_second(&size, |routes| client_loop(routes, size.batch, rate).0);
        } else {
            client = per_second(&size, |routes| client_loop(routes, size.batch, rate).0);
            bare = per_second(&size, |routes| bare_loop(routes, size.batch));
        }
        println!("pair {pair:<36} {client:9.0} {bare:9.0} {:7.2}", client / bare);
        ratios.push(client / bare);
    }
    ratios.sort_by(f64::total_cmp);
    println!("median {:>61.2}", ratios[ratios.len() / 2]);
    alone(&size, rate);
}

/// Connections a second over all batches.
fn per_second(size: &Size, make: impl Fn(&[Route]) -> Duration) -> f64 {
    let acceptor = Acceptor::start();
    let routes = routes(&SOURCES, &[acceptor.address]);
    let took: Duration = (0..size.batches).map(|_| make(&routes)).sum();
    (size.batch * size.batches) as f64 / took.as_secs_f64()
}

/// One batch by the client's own worker; how long it took, and the worker's account.
fn client_loop(routes: &[Route], count: usize, rate: Rate) -> (Duration, WorkerHealth) {
    let setup = WorkerSetup {
        worker: 0,
        core: None,
        open: None,
        slots: count,
        first_slot: 0,
        routes: routes.into(),
        ports: Ports::of_system(),
        unresolved: None,
        connection_numbers: Arc::new(AtomicU64::new(0)),
        reuse: Reuse::Keep,
        prewarm: true,
        kernel_stamps: true,
        transmit_stamps: false,
        watched: Watched::Nothing,
        answer_rule: AnswerRule::default(),
        timeout: Nanos::from_secs(60),
        idle_timeout: Nanos::from_secs(60),
        connect_timeout: Nanos::from_secs(60),
    };
    let supply = Arc::new(Supply::new(1));
    supply.close();
    let stop = Arc::new(StopSignal::new().unwrap());
    let (pool, _inlets) = Pool::new(vec![setup], &supply, &stop, rate).unwrap();
    pool.start();
    let health = pool.join().remove(0).expect("the worker lives");
    let made = health.prewarm.as_ref().unwrap();
    assert_eq!((made.made.len(), made.failed), (count, 0), "{:?}", made.failure);
    (span(rate, made.began, made.ended), health)
}

fn span(rate: Rate, from: Ticks, to: Ticks) -> Duration {
    Duration::from_nanos(rate.nanos(Ticks(to.0 - from.0)).0.unsigned_abs())
}

/// One batch by a loop that does nothing but connect.
fn bare_loop(routes: &[Route], count: usize) -> Duration {
    let mut made = Vec::with_capacity(count);
    let begun = Instant::now();
    for route in routes.iter().cycle().take(count) {
        let socket = Socket::new(Domain::IPV4, Type::STREAM.cloexec(), None).unwrap();
        setsockopt(&socket, sockopt::IpBindAddressNoPort, &true).unwrap();
        socket.bind(&SocketAddr::new(route.source.unwrap(), 0).into()).unwrap();
        socket.connect(&route.address.into()).unwrap();
        made.push(socket);
    }
    begun.elapsed()
}

/// From one address, past the number of connections where the kernel searches long for a free port.
fn alone(size: &Size, rate: Rate) {
    let acceptor = Acceptor::start();
    let (took, health) = client_loop(&routes(&SOURCES[..1], &[acceptor.address]), size.alone, rate);
    let made = health.prewarm.unwrap().made;
    let part = size.alone / 9;
    println!(
        "{} from one address: {:.0}/s; by the {part}, /s:",
        size.alone,
        size.alone as f64 / took.as_secs_f64()
    );
    for (number, some) in made.chunks(part).enumerate() {
        let took = span(rate, some[0].0, some[some.len() - 1].1);
        println!("{:8} {:9.0}", number * part, some.len() as f64 / took.as_secs_f64());
    }
}

/// A process on the first core that accepts, and keeps what it accepted.
struct Acceptor {
    child: Child,
    address: SocketAddr,
}

impl Acceptor {
    /// Each listens on a port of its own: what an earlier one left behind is not in its way.
    fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg("accept")
            .stdout(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, address: line.trim().parse().unwrap() }
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn accept() {
    let _ = raise_descriptor_limit();
    pin_to(&allowed_cores()[..1]).unwrap();
    let listener = Socket::new(Domain::IPV4, Type::STREAM.cloexec(), None).unwrap();
    listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    // The standard library's queue of 128 runs over whenever this process is stopped for two milliseconds.
    listener.listen(QUEUE).unwrap();
    let listener = TcpListener::from(listener);
    // What it accepts inherits this: its close is a reset, and leaves nothing that waits for a minute.
    SockRef::from(&listener).set_linger(Some(Duration::ZERO)).unwrap();
    println!("{}", listener.local_addr().unwrap());
    let mut kept: VecDeque<TcpStream> = VecDeque::with_capacity(KEPT + 1);
    for stream in listener.incoming() {
        kept.push_back(stream.unwrap());
        if kept.len() > KEPT {
            kept.pop_front();
        }
    }
}
