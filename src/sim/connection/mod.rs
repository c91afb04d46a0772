//! One connection's life: requests in, answers out, each event in a send call of its own with a clock reading on
//! either side.
//!
//! Knows nothing of the event loop: it is told that the socket is readable or writable or that its deadline has come,
//! and says whether it lives on, when it wants to be called next, and which readiness it waits for. An event that the
//! kernel does not take whole is finished when the socket is writable again; events that fall due meanwhile are sent
//! after it, one by one, each late and each in the ledger with its own plan.

mod answer;
mod sending;
mod shared;

use std::io::{ErrorKind, Read};
use std::net::{Shutdown, TcpStream};

use sending::{Backlog, Gone, Row, offer};
pub(crate) use shared::Shared;

use crate::sim::endpoint::embeddings::Embeddings;
use crate::sim::endpoint::layout::Template;
use crate::sim::ledger::{ClosedBy, Ending, Record, RequestEnded};
use crate::sim::request::{Progress, RequestReader};
use crate::sim::script::{Answer, Script, Step};
use crate::units::Nanos;

/// Receive calls in a row on one connection, so that a flood on one does not make the others late.
const READS_IN_A_ROW: usize = 4;

/// Pipelined bytes kept while an answer is under way; beyond that nothing more is read until it is done, and the rest
/// waits in the socket. As much as one receive call brings.
const MAX_PIPELINED_BYTES: usize = 64 * 1024;

/// How long a closing connection waits for the peer to close. Closing at once with bytes unread would send a reset,
/// which can destroy the answer at the peer (RFC 9112 9.6).
const DRAIN_TIME: Nanos = Nanos::from_secs(1);

/// Whether a connection lives on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It does.
    Open,
    /// It is over.
    Closed(ClosedBy),
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    number: u64,
    /// Its word in the event loop.
    owner: u64,
    uses: u32,
    reader: RequestReader,
    input: Vec<u8>,
    state: State,
    turn: Turn,
    backlog: Backlog,
    /// The current answer is the last one.
    last: bool,
}

#[derive(Debug)]
enum State {
    /// Waiting for a request.
    Idle,
    /// An answer is under way.
    Answering { number: u64, work: Work },
    /// Closed for writing; waiting for the peer to close.
    Draining { until: Nanos },
}

/// Whether the answer counts among those under way.
#[derive(Debug, Clone, Copy, Default)]
enum Turn {
    /// It does not: there is none, or it takes no time.
    #[default]
    None,
    /// It will: it waits for its turn, and its schedule with it.
    Waiting { since: Nanos },
    /// It does.
    Taken,
}

#[derive(Debug)]
enum Work {
    /// Events, the next of them known.
    Stream(Box<Stream>),
    /// One body, later.
    Whole(Box<Whole>),
    /// Nothing more to compose.
    Over,
}

/// An answer in events.
#[derive(Debug)]
struct Stream {
    template: Template,
    script: Script,
    next: Step,
}

/// An answer in one piece.
#[derive(Debug)]
struct Whole {
    content: WholeContent,
    due: Nanos,
    request_id: Option<String>,
}

/// What an answer in one piece is composed of, when it is due.
#[derive(Debug)]
enum WholeContent {
    Text { template: Template, answer: Answer },
    Vectors { embeddings: Embeddings, id: u64, created: i64 },
}

impl Connection {
    /// A connection that was just accepted; the socket does not block.
    pub(crate) fn new(stream: TcpStream, number: u64, owner: u64) -> Self {
        Self {
            stream,
            number,
            owner,
            uses: 0,
            reader: RequestReader::default(),
            input: Vec::new(),
            state: State::Idle,
            turn: Turn::None,
            backlog: Backlog::default(),
            last: false,
        }
    }

    /// The socket has bytes, or its end.
    pub(crate) fn on_readable(&mut self, shared: &mut Shared) -> Fate {
        for _ in 0..READS_IN_A_ROW {
            match self.stream.read(&mut shared.inbox) {
                Ok(0) => return self.lose_peer(shared),
                Ok(n) => {
                    shared.update_now();
                    let bytes = shared.inbox.get(..n).unwrap_or_default();
                    if !matches!(self.state, State::Draining { .. }) {
                        self.input.extend_from_slice(bytes);
                    }
                    if n < shared.inbox.len() || !self.wants_input() {
                        break;
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.lose_peer(shared),
            }
        }
        self.go_on(shared)
    }

    /// The socket takes bytes again.
    pub(crate) fn on_writable(&mut self, shared: &mut Shared) -> Fate {
        if self.backlog.bytes.is_empty() {
            return Fate::Open;
        }
        let (before, result, after) = offer(&self.stream, &self.backlog.bytes);
        shared.now = after;
        match result {
            Ok(n) if n == self.backlog.bytes.len() => {
                self.backlog.bytes = Vec::new();
                std::mem::take(&mut self.backlog.row).enter(before, after, &mut shared.book);
                self.go_on(shared)
            }
            Ok(n) => {
                self.backlog.bytes.drain(..n);
                Fate::Open
            }
            Err(Gone) => self.lose_peer(shared),
        }
    }

    /// The instant that [`Self::deadline`] named has come.
    pub(crate) fn on_deadline(&mut self, shared: &mut Shared) -> Fate {
        let sent = match &mut self.state {
            State::Draining { .. } => return Fate::Closed(ClosedBy::Simulator),
            State::Answering { number, work: Work::Stream(stream) } => {
                let (request, step) = (*number, stream.next);
                let start = stream.template.write_event(&step, stream.script.answer(), &mut shared.outbox);
                let next = stream.script.next(&shared.options);
                let planned = step.planned;
                let sent = self.send(start, |bytes| Row::Event { request, planned, bytes }, shared);
                self.set_next_step(next);
                sent
            }
            State::Answering { number, work: work @ Work::Whole(_) } => {
                let request = *number;
                let Work::Whole(whole) = std::mem::replace(work, Work::Over) else { return Fate::Open };
                self.send_whole(request, &whole, shared)
            }
            State::Idle | State::Answering { work: Work::Over, .. } => return Fate::Open,
        };
        match sent {
            Ok(()) => self.go_on(shared),
            Err(Gone) => self.lose_peer(shared),
        }
    }

    /// Its answer, which waited, is one of those under way now: its schedule begins.
    pub(crate) fn begin_turn(&mut self, shared: &Shared) {
        let Turn::Waiting { since } = std::mem::replace(&mut self.turn, Turn::Taken) else { return };
        let by = Nanos(shared.now.0.saturating_sub(since.0));
        match &mut self.state {
            State::Answering { work: Work::Stream(stream), .. } => {
                stream.script.postpone(by);
                stream.next.planned.due = Nanos(stream.next.planned.due.0.saturating_add(by.0));
            }
            State::Answering { work: Work::Whole(whole), .. } => {
                whole.due = Nanos(whole.due.0.saturating_add(by.0));
            }
            _ => {}
        }
    }

    /// The simulator ends: what was under way is entered as stopped.
    pub(crate) fn stop(&mut self, shared: &mut Shared) {
        self.end_request(Ending::Stopped, shared);
    }

    /// The peer closed, reset or vanished: what was under way is entered as given up.
    pub(crate) fn lose_peer(&mut self, shared: &mut Shared) -> Fate {
        shared.update_now();
        let by = match self.state {
            State::Draining { .. } => ClosedBy::Simulator,
            _ => ClosedBy::Peer,
        };
        self.end_request(Ending::PeerGone, shared);
        Fate::Closed(by)
    }

    /// When this connection wants to be called, `None` when only the peer can bring it on.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        match &self.state {
            State::Draining { until } => Some(*until),
            // What is due waits behind what the kernel has not taken.
            _ if !self.backlog.bytes.is_empty() => None,
            _ if matches!(self.turn, Turn::Waiting { .. }) => None,
            State::Answering { work: Work::Stream(stream), .. } => Some(stream.next.planned.due),
            State::Answering { work: Work::Whole(whole), .. } => Some(whole.due),
            State::Idle | State::Answering { work: Work::Over, .. } => None,
        }
    }

    /// Whether it wants to know that the socket has bytes.
    pub(crate) fn wants_input(&self) -> bool {
        !matches!(self.state, State::Answering { .. }) || self.input.len() < MAX_PIPELINED_BYTES
    }

    /// Whether it wants to know that the socket takes bytes.
    pub(crate) fn wants_output(&self) -> bool {
        !self.backlog.bytes.is_empty()
    }

    /// Its number in the ledger.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// The socket.
    pub(crate) const fn stream(&self) -> &TcpStream {
        &self.stream
    }

    fn set_next_step(&mut self, next: Option<Step>) {
        if let State::Answering { work, .. } = &mut self.state {
            match (next, &mut *work) {
                (Some(next), Work::Stream(stream)) => stream.next = next,
                _ => *work = Work::Over,
            }
        }
    }

    /// Ends an answer that is over, and takes up requests that are here, until one has a schedule.
    fn go_on(&mut self, shared: &mut Shared) -> Fate {
        loop {
            if !self.backlog.bytes.is_empty() {
                return Fate::Open;
            }
            if matches!(self.state, State::Answering { work: Work::Over, .. }) {
                self.end_request(Ending::Complete, shared);
                self.uses = self.uses.saturating_add(1);
                if self.last {
                    // The peer may be gone already; then the next read says so.
                    let _ = self.stream.shutdown(Shutdown::Write);
                    self.state = State::Draining { until: Nanos(shared.now.0.saturating_add(DRAIN_TIME.0)) };
                    self.input = Vec::new();
                }
            }
            if !matches!(self.state, State::Idle) || self.input.is_empty() {
                return Fate::Open;
            }
            let sent = match self.reader.advance(&self.input) {
                Ok(Progress::More { expected }) => {
                    if let Some(expected) = expected {
                        self.input.reserve(expected.saturating_sub(self.input.len()));
                    }
                    return Fate::Open;
                }
                Ok(Progress::Continue) => {
                    shared.outbox.clear();
                    shared.outbox.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                    self.send(0, |_| Row::None, shared)
                }
                Ok(Progress::Complete(request)) => self.take_up(request, shared),
                Err(reject) => self.refuse(reject, shared),
            };
            if sent.is_err() {
                return self.lose_peer(shared);
            }
        }
    }

    /// Offers the outbox from `start` to the kernel; what it does not take goes to the backlog. Must not be called while
    /// there is one.
    fn send(&mut self, start: usize, row: impl FnOnce(u32) -> Row, shared: &mut Shared) -> Result<(), Gone> {
        let bytes = shared.outbox.get(start..).unwrap_or_default();
        let row = row(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        let (before, result, after) = offer(&self.stream, bytes);
        shared.now = after;
        let taken = result?;
        if taken == bytes.len() {
            row.enter(before, after, &mut shared.book);
        } else {
            self.backlog = Backlog { bytes: bytes.get(taken..).unwrap_or_default().to_vec(), row };
        }
        Ok(())
    }

    /// Enters the end of the current request, if there is one.
    fn end_request(&mut self, ending: Ending, shared: &mut Shared) {
        if let State::Answering { number, .. } = self.state {
            let ended = RequestEnded { number, at: shared.now, ending };
            shared.book.enter(&Record::RequestEnded(ended));
            // The line gives a turn back for who is gone when it comes.
            if let Turn::Taken = std::mem::take(&mut self.turn) {
                shared.turns.give_back();
            }
            self.state = State::Idle;
        }
    }
}
