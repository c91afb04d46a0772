//! A server that reads a request, says what its script says, and notes when.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a waiting thread looks whether the test is over.
const LOOK: Duration = Duration::from_millis(10);
/// No connection outlives this.
const PATIENCE: Duration = Duration::from_secs(20);

/// What becomes of the connection when the script has said its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// It waits for the next request.
    Keep,
    Close,
    Reset,
    /// It stays open and says nothing more.
    Hang,
}

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// Its number in the plan, from `X-Request-Id`.
    pub(crate) index: usize,
    /// The connection it came on, in order of acceptance.
    pub(crate) connection: usize,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// When its first byte was read.
    pub(crate) at: Instant,
}

/// The other end of one connection, for a script.
pub(crate) struct Peer {
    stream: TcpStream,
    stop: Arc<AtomicBool>,
}

impl Peer {
    /// Writes; a client that has gone is no fault of the script.
    pub(crate) fn say(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref());
    }

    /// Writes as much as the client takes before it has taken nothing for `limit`; how much that was.
    pub(crate) fn say_while_taken(&mut self, bytes: &[u8], limit: Duration) -> usize {
        self.stream.set_write_timeout(Some(limit)).unwrap();
        let mut said = 0;
        while let Some(rest) = bytes.get(said..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(count) => said += count,
                Err(_) => break,
            }
        }
        self.stream.set_write_timeout(Some(PATIENCE)).unwrap();
        said
    }

    /// Waits that long, or until the test is over.
    pub(crate) fn pause(&self, ms: u64) {
        let until = Instant::now() + Duration::from_millis(ms);
        while Instant::now() < until && !self.stop.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK.min(until.saturating_duration_since(Instant::now())));
        }
    }

    /// Says that nothing more will come.
    pub(crate) fn close_writing(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Waits until the client closes; how long that took, `None` when it did not.
    pub(crate) fn wait_for_close(&mut self) -> Option<Duration> {
        let begun = Instant::now();
        let mut buffer = [0; 4096];
        while begun.elapsed() < PATIENCE && !self.stop.load(Ordering::Relaxed) {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Some(begun.elapsed()),
                Ok(_) => {}
                Err(error) if is_wait(&error) => {}
                Err(_) => return Some(begun.elapsed()),
            }
        }
        None
    }
}

/// A server and its log. It ends with this value.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    log: Arc<Log>,
    stop: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Clone, Copy)]
struct Manners {
    /// A connection without a request for so long is closed.
    idle: Duration,
    /// Requests are read whole before they are answered.
    whole: bool,
    /// It takes one connection, waits for what comes over it, and then sees how many more the kernel has for it: that
    /// does not depend on how fast it is.
    gathers: bool,
    /// Said as soon as a connection is accepted, to so many of them.
    greeting: (&'static str, usize),
}

impl Manners {
    /// Answers whole requests, and says nothing before.
    const GOOD: Self = Self { idle: PATIENCE, whole: true, gathers: false, greeting: ("", 0) };
}

#[derive(Default)]
struct Log {
    /// The client's ends, in order of acceptance.
    accepted: Mutex<Vec<SocketAddr>>,
    /// Connections that were there when the first one brought its request.
    there: AtomicUsize,
    requests: Mutex<Vec<Request>>,
}

impl Log {
    /// Notes a connection; its number.
    fn accept(&self, from: SocketAddr) -> usize {
        let mut accepted = self.accepted.lock().unwrap();
        accepted.push(from);
        accepted.len() - 1
    }
}

impl Server {
    /// A server that gives every request to a script.
    pub(crate) fn start(script: impl Fn(&mut Peer, &Request) -> Then + Send + Sync + 'static) -> Self {
        Self::start_idle(PATIENCE, script)
    }

    /// The same, and a connection without a request for so long is closed.
    pub(crate) fn start_idle(
        idle: Duration,
        script: impl Fn(&mut Peer, &Request) -> Then + Send + Sync + 'static,
    ) -> Self {
        Self::start_with(Manners { idle, ..Manners::GOOD }, script)
    }

    /// The same, and a request goes to the script when its head was read; its body never is.
    pub(crate) fn start_hasty(script: impl Fn(&mut Peer, &Request) -> Then + Send + Sync + 'static) -> Self {
        Self::start_with(Manners { whole: false, ..Manners::GOOD }, script)
    }

    /// The same, and when the first request comes it is seen how many connections are there.
    pub(crate) fn start_gathering(
        script: impl Fn(&mut Peer, &Request) -> Then + Send + Sync + 'static,
    ) -> Self {
        Self::start_with(Manners { gathers: true, ..Manners::GOOD }, script)
    }

    /// A server that speaks before it is asked, on its first so many connections.
    pub(crate) fn start_greeting(
        greeting: &'static str,
        connections: usize,
        script: impl Fn(&mut Peer, &Request) -> Then + Send + Sync + 'static,
    ) -> Self {
        Self::start_with(Manners { greeting: (greeting, connections), ..Manners::GOOD }, script)
    }

    fn start_with(
        manners: Manners,
        script: impl Fn(&mut Peer, &Request) -> Then + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (log, stop) = (Arc::new(Log::default()), Arc::new(AtomicBool::new(false)));
        let acceptor = std::thread::spawn({
            let (log, stop) = (Arc::clone(&log), Arc::clone(&stop));
            let script = Arc::new(script);
            move || {
                let mut threads = Vec::new();
                let mut gathered = if manners.gathers { gather(&listener) } else { VecDeque::new() };
                log.there.store(gathered.len(), Ordering::Relaxed);
                while let Ok((stream, from)) = gathered.pop_front().map_or_else(|| listener.accept(), Ok) {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let number = log.accept(from);
                    let (log, script, stop) = (Arc::clone(&log), Arc::clone(&script), Arc::clone(&stop));
                    threads.push(std::thread::spawn(move || {
                        serve(Peer { stream, stop }, number, &log, manners, script.as_ref());
                    }));
                }
                threads.into_iter().for_each(|thread| thread.join().unwrap());
            }
        });
        Self { address, log, stop, acceptor: Some(acceptor) }
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Connections accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.accepted().len()
    }

    /// The same, in order.
    pub(crate) fn accepted(&self) -> Vec<SocketAddr> {
        self.log.accepted.lock().unwrap().clone()
    }

    /// Of a server that gathers: the connections that were there when the first one brought its request.
    pub(crate) fn there_at_first_request(&self) -> usize {
        self.log.there.load(Ordering::Relaxed)
    }

    /// Requests so far, in the order in which they came.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.log.requests.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the acceptor.
        let _ = TcpStream::connect(self.address);
        let ended = self.acceptor.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking(), "the server's script failed");
    }
}

/// The first connection, once something came over it, and those that are there by then.
fn gather(listener: &TcpListener) -> VecDeque<(TcpStream, SocketAddr)> {
    let first = listener.accept().unwrap();
    first.0.peek(&mut [0]).unwrap();
    listener.set_nonblocking(true).unwrap();
    let there = std::iter::from_fn(|| listener.accept().ok());
    let there = [first].into_iter().chain(there).collect();
    listener.set_nonblocking(false).unwrap();
    there
}

fn serve(
    mut peer: Peer,
    connection: usize,
    log: &Log,
    manners: Manners,
    script: &(dyn Fn(&mut Peer, &Request) -> Then + Send + Sync),
) {
    peer.stream.set_nodelay(true).unwrap();
    peer.stream.set_read_timeout(Some(LOOK)).unwrap();
    peer.stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let (greeting, greeted) = manners.greeting;
    if connection < greeted {
        peer.say(greeting);
    }
    let mut unread = Vec::new();
    while let Some(request) = read_request(&mut peer, connection, &mut unread, manners) {
        log.requests.lock().unwrap().push(request.clone());
        match script(&mut peer, &request) {
            Then::Keep => {}
            Then::Close => return,
            Then::Reset => return reset(&peer.stream),
            Then::Hang => {
                peer.wait_for_close();
                return;
            }
        }
    }
}

/// The close that follows is a reset.
pub(crate) fn reset(stream: &TcpStream) {
    socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO)).unwrap();
}

/// Reads one request; `None` when the client closed, was silent for too long, or the test is over.
fn read_request(
    peer: &mut Peer,
    connection: usize,
    unread: &mut Vec<u8>,
    manners: Manners,
) -> Option<Request> {
    let begun = Instant::now();
    let mut at = (!unread.is_empty()).then_some(begun);
    let mut buffer = [0; 64 * 1024];
    loop {
        if let Some(request) = complete(connection, unread, manners.whole, at.unwrap_or(begun)) {
            return Some(request);
        }
        if begun.elapsed() > manners.idle || peer.stop.load(Ordering::Relaxed) {
            return None;
        }
        match peer.stream.read(&mut buffer) {
            Ok(0) => return None,
            Ok(count) => {
                at.get_or_insert_with(Instant::now);
                unread.extend_from_slice(&buffer[..count]);
            }
            Err(error) if is_wait(&error) => {}
            Err(_) => return None,
        }
    }
}

/// Takes a complete request from the front of what was read.
fn complete(connection: usize, unread: &mut Vec<u8>, whole: bool, at: Instant) -> Option<Request> {
    let head_end = unread.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = String::from_utf8(unread[..head_end].to_vec()).unwrap();
    let field = |name: &str| {
        head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    };
    let length: usize = field("content-length").map_or(0, |value| value.parse().unwrap());
    let length = if whole { length } else { 0 };
    if unread.len() < head_end + length {
        return None;
    }
    let index = field("x-request-id").and_then(|id| id.rsplit_once('-')?.1.parse().ok()).unwrap();
    let body = unread[head_end..head_end + length].to_vec();
    unread.drain(..head_end + length);
    Some(Request { index, connection, head, body, at })
}

fn is_wait(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
