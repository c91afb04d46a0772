//! Ten thousand connections at once from one client, what they cost while they are idle, and what happens when there
//! are more than descriptors.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use hammerscale::sim::ledger::{self, Ending, EventKind};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};

use crate::client::{Client, PATIENCE, Sim, chat_body, post_chat};

const TOKENS: u64 = 32;

/// What an idle connection may cost in user space.
const MAX_IDLE_BYTES: u64 = 8 * 1024;

/// A connection attempt from one of three addresses, without waiting for it.
fn connect_from(number: usize, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let host = 1 + u8::try_from(number % 3).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), 0)).into()).unwrap();
    socket.set_nonblocking(true).unwrap();
    match socket.connect(&to.into()) {
        Err(e) if e.raw_os_error() != Some(Errno::EINPROGRESS as i32) => panic!("{e}"),
        _ => socket.into(),
    }
}

/// Opens so many connections at once, asks on each for one stream and reads all of them to their ends. Returns the
/// connections and how many bytes came.
fn streams_at_once(count: usize, address: SocketAddr, request: &[u8]) -> (Vec<TcpStream>, u64) {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
    let watch = |i: usize, flags| EpollEvent::new(flags, u64::try_from(i).unwrap());
    let mut streams: Vec<TcpStream> = Vec::with_capacity(count);
    for i in 0..count {
        let stream = connect_from(i, address);
        epoll.add(&stream, watch(i, EpollFlags::EPOLLOUT)).unwrap();
        streams.push(stream);
    }
    let (mut open, mut received) = (count, 0_u64);
    let mut buffer = vec![0_u8; 64 * 1024];
    let mut ready = vec![EpollEvent::empty(); 256];
    while open > 0 {
        let n = epoll.wait(&mut ready, EpollTimeout::try_from(PATIENCE).unwrap()).unwrap();
        assert!(n > 0, "{open} streams stand still");
        for event in &ready[..n] {
            let i = usize::try_from(event.data()).unwrap();
            if event.events().contains(EpollFlags::EPOLLOUT) {
                streams[i].write_all(request).unwrap();
                epoll.modify(&streams[i], &mut watch(i, EpollFlags::EPOLLIN)).unwrap();
                continue;
            }
            match streams[i].read(&mut buffer) {
                Ok(n) => {
                    assert!(n > 0, "closed in the middle of an answer");
                    received += u64::try_from(n).unwrap();
                    open -= usize::from(buffer[..n].ends_with(b"\r\n0\r\n\r\n"));
                }
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
        }
    }
    (streams, received)
}

#[test]
fn ten_thousand_connections_at_once() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    // Descriptors for the test's own files and for the tests beside this one.
    let count = usize::try_from(hard.saturating_sub(500)).unwrap_or(usize::MAX).min(10_000);
    let sim = Sim::start(&["--ttft=uniform:1s,2s", "--itl=20ms"]);
    // One request, so that the buffers that all connections share exist.
    assert_eq!(sim.connect().chat(&chat_body("Hello.", 1, true), None).events().len(), 5);
    let before = sim.resident_bytes();
    let request = post_chat(&chat_body("Hello.", TOKENS, true), None);
    let (streams, received) = streams_at_once(count, sim.address, &request);
    let grown = sim.resident_bytes().saturating_sub(before);
    let each = grown / u64::try_from(count).unwrap();
    assert!(each < MAX_IDLE_BYTES, "an idle connection costs {each} bytes");
    drop(streams);
    let ledger = sim.finish();
    assert_eq!((ledger.connections.len(), ledger.requests.len()), (count + 1, count + 1));
    let mut sent = 0;
    for request in &ledger.requests[1..] {
        assert_eq!(request.ended.unwrap().ending, Ending::Complete);
        let tokens: u64 =
            request.events.iter().filter(|e| e.kind == EventKind::Content).map(|e| u64::from(e.tokens)).sum();
        assert_eq!(tokens, TOKENS);
        assert!(request.events.iter().all(|e| e.before >= e.planned && e.after >= e.before));
        sent += u64::from(request.head.unwrap().bytes);
        sent += request.events.iter().map(|e| u64::from(e.bytes)).sum::<u64>();
    }
    assert_eq!(sent, received, "every byte of the ledger arrived");
    for host in 1..=3_u8 {
        let address = Ipv4Addr::new(127, 0, 0, host);
        let from = ledger.connections.iter().filter(|c| c.opened.peer.ip() == address).count();
        assert!(from >= count / 3, "{from} from {address}");
    }
}

#[test]
fn connections_beyond_the_descriptor_limit_wait_their_turn() {
    let mut sim = Sim::start_limited("-n 40", &["--ttft=1ms", "--itl=0ms"]);
    let mut clients: Vec<Client> = (0..100).map(|_| sim.connect()).collect();
    // They wait without work: the loop does not turn round the connections that it cannot take.
    std::thread::sleep(Duration::from_millis(200));
    let before = sim.processor_ticks();
    std::thread::sleep(Duration::from_secs(1));
    let used = sim.processor_ticks() - before;
    assert!(used < 30, "{used} of 100 ticks while nothing happens");
    for client in &mut clients {
        client.send(&post_chat(&chat_body("Hello.", 2, true), None));
    }
    let started = std::time::Instant::now();
    for mut client in clients {
        assert_eq!(client.receive().chunks.len(), 6);
    }
    // A closed connection makes room at once; looking again every 100 ms would take seven seconds.
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    sim.close_stdin();
    assert!(sim.wait().success());
    let complaint = sim.complaint();
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    assert!(complaint.contains("Too many open files") && complaint.contains("is 40"), "{complaint}");
    let ledger = ledger::read(&sim.ledger_path()).unwrap();
    assert!(ledger.is_complete());
    assert_eq!(ledger.connections.len(), 100);
}
