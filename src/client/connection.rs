//! One connection of a slot: its socket, what it is doing, and the exchange on it.

use nix::errno::Errno;

use crate::client::exchange::{Exchange, Progress};
use crate::client::socket::{ReadBuffer, StreamSocket};
use crate::client::timers::Armed;
use crate::client::transport::{Counted, Gate};
use crate::clock::{Clock, Rate};
use crate::record::{Outcome, Outlet, RequestRecord, Stamp};
use crate::schedule::Outgoing;
use crate::units::{Nanos, Ticks, UnixNanos};
use crate::wire::response::AnswerRule;

/// A kept connection that was idle longer is not used again when the server did not say how long it keeps it: the
/// shortest default in use is 5 s (uvicorn, llama.cpp), and a request must not race the server's close.
const DEFAULT_KEEP_ALIVE: Nanos = Nanos::from_secs(4);

/// Safety distance to a keep-alive time that the server announced.
const KEEP_ALIVE_MARGIN: Nanos = Nanos::from_secs(1);

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// No socket.
    Closed,
    /// The handshake is under way, and a request waits for it.
    Connecting,
    /// The handshake is under way, and no request waits for it.
    Warming,
    /// A request is ready to be written, and its due has not come.
    Staged,
    /// A request is being written or its answer read.
    Busy,
    /// The answer's terminal was read, its body is not complete yet: the slot is free, the connection is not.
    Draining {
        /// When the terminal was read.
        since: Ticks,
        /// When the rest is given up.
        until: Ticks,
    },
    /// Ready for a request.
    Idle,
}

/// A connection and the exchange on it.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: Option<StreamSocket>,
    pub(crate) state: State,
    /// Number of the connection in the run.
    pub(crate) id: u64,
    /// Requests it carried before the present one.
    pub(crate) uses: u32,
    /// When the present request began on it: the start of connecting, or of sending.
    pub(crate) began: Ticks,
    /// When a byte last came or went.
    pub(crate) last_byte: Ticks,
    /// What is in the next read arrived after this.
    pub(crate) not_before: Ticks,
    /// Its entries among the deadlines.
    pub(crate) armed: Armed,
    /// Tells events of this socket from late ones of an earlier socket in the same place.
    generation: u32,
    index: usize,
    idle_since: Ticks,
    keep_alive: Nanos,
    /// The kernel stamps what is sent.
    stamps_sends: bool,
    /// Bytes written to the socket, modulo 2^32: the kernel names stamps of sent bytes by it.
    written: u32,
    /// The byte whose stamp is still to come.
    awaited: Option<u32>,
    /// What the kernel had counted when the request before ended.
    counted: Counted,
    exchange: Exchange,
}

/// Entries taken from an error queue at once. A send call makes one, and sending again one more.
const STAMPS_AT_ONCE: u32 = 64;

impl Connection {
    pub(crate) fn new(answer_rule: AnswerRule) -> Self {
        Self {
            socket: None,
            state: State::Closed,
            id: 0,
            uses: 0,
            began: Ticks(0),
            last_byte: Ticks(0),
            not_before: Ticks(0),
            armed: Armed::default(),
            generation: 0,
            index: 0,
            idle_since: Ticks(0),
            keep_alive: DEFAULT_KEEP_ALIVE,
            stamps_sends: false,
            written: 0,
            awaited: None,
            counted: Counted::default(),
            exchange: Exchange::new(answer_rule),
        }
    }

    /// Takes a socket that is being connected; returns the token of its events.
    pub(crate) fn open(&mut self, socket: StreamSocket, id: u64, index: usize, began: Ticks) -> u64 {
        self.socket = Some(socket);
        self.state = State::Warming;
        self.began = began;
        self.id = id;
        self.uses = 0;
        self.index = index;
        self.keep_alive = DEFAULT_KEEP_ALIVE;
        (self.stamps_sends, self.written, self.awaited) = (false, 0, None);
        self.counted = Counted::default();
        self.generation = self.generation.wrapping_add(1);
        self.token()
    }

    /// Closes the socket; the kernel forgets its events.
    pub(crate) fn close(&mut self) {
        self.socket = None;
        self.state = State::Closed;
    }

    fn token(&self) -> u64 {
        // An index is far below 2^31 (it is bounded by the descriptors of a process).
        (u64::from(self.generation) << 32) | (self.index as u64 & u64::from(u32::MAX))
    }

    /// The place of the connection whose event this is.
    pub(crate) fn index_of(token: u64) -> Option<usize> {
        usize::try_from(token & u64::from(u32::MAX)).ok()
    }

    /// Whether an event is of the present socket.
    pub(crate) fn is_token(&self, token: u64) -> bool {
        self.socket.is_some() && self.token() == token
    }

    /// The handshake is done, and no request waited for it.
    pub(crate) fn warmed(&mut self, now: Ticks) {
        self.state = State::Idle;
        self.idle_since = now;
    }

    /// Asks for the kernel's stamps of what will be sent, right after the handshake.
    pub(crate) fn ask_transmit_stamps(&mut self) {
        self.stamps_sends = self.socket.as_ref().is_some_and(|s| s.ask_transmit_stamps().is_ok());
    }

    /// Begins a request.
    pub(crate) fn begin(&mut self, bytes: Outgoing, record: RequestRecord, now: Ticks) {
        self.awaited = None;
        self.began = now;
        self.last_byte = now;
        self.not_before = now;
        self.exchange.begin(bytes, record);
    }

    /// The due of a staged request has come.
    pub(crate) fn unleash(&mut self, serial: u64, due: Ticks, now: Ticks) {
        (self.began, self.last_byte, self.not_before) = (now, now, now);
        self.state = State::Busy;
        self.exchange.number(serial, due);
    }

    /// Takes a staged request back.
    pub(crate) fn unstage(&mut self) -> Option<RequestRecord> {
        self.state = State::Idle;
        self.exchange.take_back()
    }

    /// The handshake is done.
    pub(crate) fn connected(&mut self, now: Ticks) {
        self.state = State::Busy;
        self.last_byte = now;
        self.exchange.connected(now);
    }

    /// Whether the peer has spoken before anything was asked.
    pub(crate) fn has_early_answer(&self) -> bool {
        self.socket.as_ref().is_some_and(StreamSocket::has_bytes)
    }

    /// Keeps the request from a peer that has spoken already: what it says can be no answer to it.
    pub(crate) fn withhold(&mut self) {
        self.exchange.withhold();
    }

    /// Whether part of the request is not written yet.
    pub(crate) fn has_unsent(&self) -> bool {
        matches!(self.state, State::Busy) && !self.exchange.unsent().is_empty()
    }

    /// Writes what the kernel takes. `buffer` is for the stamp of what was sent.
    pub(crate) fn write(&mut self, clock: &Clock, buffer: &mut ReadBuffer) -> Result<(), Errno> {
        let Some(socket) = self.socket.as_ref() else { return Err(Errno::EBADF) };
        while !self.exchange.unsent().is_empty() {
            let unsent = self.exchange.unsent();
            let before = clock.ticks();
            match socket.send(unsent.next(), unsent.more_follows()) {
                Ok(taken) => {
                    self.last_byte = clock.ticks();
                    self.exchange.sent(taken, before, self.last_byte);
                    // Modulo 2^32, as the kernel counts.
                    self.written = self.written.wrapping_add(u32::try_from(taken).unwrap_or(u32::MAX));
                }
                Err(Errno::EINTR) => {}
                Err(error) => {
                    self.exchange.offered(before);
                    return Err(error);
                }
            }
        }
        self.awaited = self.stamps_sends.then(|| self.written.wrapping_sub(1));
        while self.awaited.is_some() && self.take_stamp(buffer) {}
        Ok(())
    }

    /// Empties the error queue of stamps; whether there was anything in it.
    pub(crate) fn take_stamps(&mut self, buffer: &mut ReadBuffer) -> bool {
        (0..STAMPS_AT_ONCE).take_while(|_| self.take_stamp(buffer)).count() > 0
    }

    /// Takes one entry from the error queue; whether there was one. A stamp belongs to the request whose last byte it
    /// names; of a byte that was sent again the first stamp counts, and any other entry is none of ours.
    fn take_stamp(&mut self, buffer: &mut ReadBuffer) -> bool {
        let taken = loop {
            match self.socket.as_ref().filter(|_| self.stamps_sends).map(|s| s.transmitted(buffer)) {
                Some(Err(Errno::EINTR)) => {}
                Some(Ok(taken)) => break taken,
                Some(Err(_)) | None => return false,
            }
        };
        if let Some(sent) = taken.filter(|sent| self.awaited == Some(sent.last_byte)) {
            self.awaited = None;
            self.exchange.left_host(sent.at);
        }
        true
    }

    /// Takes in what one read brought.
    #[inline]
    pub(crate) fn on_read(
        &mut self,
        bytes: &[u8],
        kernel: Option<UnixNanos>,
        user: Ticks,
        outlet: &mut Outlet,
    ) -> Progress {
        self.last_byte = user;
        if matches!(self.state, State::Idle) {
            return Progress::Unexpected;
        }
        self.exchange.on_read(bytes, Stamp { user, kernel }, self.not_before, outlet)
    }

    /// The peer closed its side.
    pub(crate) fn on_end_of_stream(&mut self, now: Ticks, outlet: &mut Outlet) -> Progress {
        self.exchange.on_end_of_stream(now, outlet)
    }

    /// The connection broke.
    pub(crate) fn on_reset(&mut self, error: Errno, now: Ticks) -> Progress {
        self.exchange.on_reset(error.desc(), now)
    }

    /// Ends the exchange as it stands and writes its record down; whether there was one.
    pub(crate) fn finish(&mut self, now: Ticks, gate: &mut Gate, outlet: &mut Outlet) -> bool {
        self.uses = self.uses.saturating_add(1);
        self.idle_since = now;
        if let Some(span) = self.exchange.announced_keep_alive() {
            self.keep_alive = Nanos(span.0.saturating_sub(KEEP_ALIVE_MARGIN.0).max(0));
        }
        let Some(record) = self.exchange.finish(now) else { return false };
        match self.socket.as_ref() {
            Some(socket) if gate.admits(record) => record.transport = self.counted.advance(socket),
            _ => self.counted.is_behind = true,
        }
        self.exchange.hand_over(outlet);
        true
    }

    /// Ends the exchange with an outcome of our own, as [`Connection::finish`].
    pub(crate) fn give_up(
        &mut self,
        outcome: Outcome,
        message: &str,
        now: Ticks,
        gate: &mut Gate,
        outlet: &mut Outlet,
    ) -> bool {
        self.exchange.give_up(outcome, message, now);
        self.finish(now, gate, outlet)
    }

    /// Whether the answer read so far allows to keep the connection, once its body is complete.
    pub(crate) fn may_be_reused(&self) -> bool {
        self.exchange.may_be_reused()
    }

    /// Whether a kept connection can carry a request now: the server has not closed it, and is not about to.
    pub(crate) fn fit_for_reuse(&self, now: Ticks, rate: Rate) -> bool {
        // In the turn in which it became idle the socket was just read empty; a look at it would cost a system call
        // per request at full speed.
        now == self.idle_since
            || (self.is_in_time(now, rate) && self.socket.as_ref().is_some_and(StreamSocket::is_quiet))
    }

    /// Whether it was not idle for longer than the server keeps it. How long that is after an answer says nothing about
    /// a connection that has not carried any.
    pub(crate) fn is_in_time(&self, now: Ticks, rate: Rate) -> bool {
        self.is_unused() || rate.nanos(Ticks(now.0.saturating_sub(self.idle_since.0))) < self.keep_alive
    }

    /// Whether it has carried no request yet.
    pub(crate) fn is_unused(&self) -> bool {
        self.uses == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::route::Route;
    use crate::client::transport::Watched;
    use crate::record::{Phase, rings};
    use bytes::Bytes;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    struct Bench {
        connection: Connection,
        peer: TcpStream,
        buffer: ReadBuffer,
        clock: Clock,
        gate: Gate,
    }

    impl Bench {
        fn new(stamps: bool) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let route = Route { source: None, address: listener.local_addr().unwrap() };
            let (socket, _) = StreamSocket::connect(route, None, true).unwrap();
            let (peer, _) = listener.accept().unwrap();
            let mut connection = Connection::new(AnswerRule::default());
            connection.open(socket, 0, 0, Ticks(0));
            connection.warmed(Ticks(0));
            if stamps {
                connection.ask_transmit_stamps();
            }
            let gate = Gate::new(Watched::Every);
            Self { connection, peer, buffer: ReadBuffer::new(), clock: Clock::new(), gate }
        }

        fn begin(&mut self, request: Outgoing) {
            let now = self.clock.ticks();
            self.connection.begin(request, RequestRecord::new(0, Phase::Measured, 0, now), now);
            self.connection.state = State::Busy;
        }

        fn write(&mut self) -> Result<(), Errno> {
            self.connection.write(&self.clock, &mut self.buffer)
        }

        fn record(&mut self) -> RequestRecord {
            let (mut outlet, mut inlet) = rings();
            assert!(self.connection.finish(self.clock.ticks(), &mut self.gate, &mut outlet));
            inlet.pop().unwrap().into_record()
        }
    }

    #[test]
    fn each_request_of_a_kept_connection_has_its_own_stamp() {
        let mut bench = Bench::new(true);
        let mut last = None;
        for size in [300, 7, 20_000] {
            bench.begin(Bytes::from(vec![b'x'; size]).into());
            assert_eq!(bench.write(), Ok(()));
            bench.peer.read_exact(&mut vec![0; size]).unwrap();
            let record = bench.record();
            assert!(record.sent_wire.is_some() && record.sent_wire > last, "{size}");
            assert!(record.transport.rtt_us.is_some());
            assert_eq!(record.transport.retransmits, Some(0));
            last = record.sent_wire;
        }
        bench.begin(Outgoing::sharing(Bytes::from_static(b"head"), Bytes::from_static(b"body")));
        assert_eq!(bench.write(), Ok(()));
        assert!(bench.record().sent_wire > last, "two pieces");
    }

    #[test]
    fn the_stamp_of_a_request_in_many_parts_is_that_of_its_last_byte() {
        let mut bench = Bench::new(true);
        // More than a socket's buffers at both ends take.
        let size = 40_000_000;
        bench.begin(Bytes::from(vec![b'x'; size]).into());
        assert_eq!(bench.write(), Err(Errno::EAGAIN));
        let mut peer = bench.peer.try_clone().unwrap();
        let reader = std::thread::spawn(move || peer.read_exact(&mut vec![0; size]));
        let before = bench.clock.anchor();
        while bench.write() == Err(Errno::EAGAIN) {
            bench.connection.take_stamps(&mut bench.buffer);
            std::thread::sleep(Duration::from_millis(1));
        }
        reader.join().unwrap().unwrap();
        bench.connection.take_stamps(&mut bench.buffer);
        let record = bench.record();
        let stamp = record.sent_wire.expect("a stamp").get();
        assert!(stamp > before.monotonic.0 + before.wall_offset.0, "not that of an earlier part");
    }

    #[test]
    fn a_late_stamp_is_not_given_to_the_next_request() {
        let mut bench = Bench::new(true);
        // As with a device that sends later: what is sent here past the connection leaves its stamps in the queue.
        let late = Bytes::from_static(b"of an earlier request");
        assert_eq!(bench.connection.socket.as_ref().unwrap().send(&late, false), Ok(late.len()));
        bench.connection.written = u32::try_from(late.len()).unwrap();
        bench.begin(Bytes::from_static(b"of this one").into());
        let before = bench.clock.anchor();
        assert_eq!(bench.write(), Ok(()));
        let stamp = bench.record().sent_wire.expect("its own").get();
        assert!(stamp >= before.monotonic.0 + before.wall_offset.0 - 1_000);
        assert!(!bench.connection.take_stamps(&mut bench.buffer), "the earlier one was thrown away");
    }

    #[test]
    fn without_being_asked_for_there_are_no_stamps() {
        let mut bench = Bench::new(false);
        bench.begin(Bytes::from_static(b"x").into());
        assert_eq!(bench.write(), Ok(()));
        assert!(!bench.connection.take_stamps(&mut bench.buffer));
        assert_eq!(bench.record().sent_wire, None);
    }
}
