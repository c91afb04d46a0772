//! One connection's life: requests in, answers out, each event in a send call of its own with a clock reading on
//! either side.
//!
//! Knows nothing of the event loop: it is told that the socket is readable or writable or that its deadline has come,
//! and says whether it lives on, when it wants to be called next, and which readiness it waits for. An event that the
//! kernel does not take whole is finished when the socket is writable again; events that fall due meanwhile are sent
//! after it, one by one, each late and each in the ledger with its own plan.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

use crate::sim::chat::ChatRequest;
use crate::sim::clock;
use crate::sim::framing::{self, HeadFields, Template};
use crate::sim::ledger::{
    Book, ClosedBy, Ending, EventKind, EventSent, HeadSent, Record, RequestArrived, RequestEnded, Service,
};
use crate::sim::options::SimOptions;
use crate::sim::random::{Lane, Purpose};
use crate::sim::request::{Body, Head, Progress, Reject, Request, RequestReader};
use crate::sim::script::{Answer, Script, Step};
use crate::units::Nanos;

/// Bytes taken by one receive call, shared by all connections.
const INBOX_BYTES: usize = 64 * 1024;

/// Receive calls in a row on one connection, so that a flood on one does not make the others late.
const READS_IN_A_ROW: usize = 4;

/// Pipelined bytes kept while an answer is under way; beyond that nothing more is read until it is done.
const MAX_PIPELINED_BYTES: usize = 64 * 1024;

/// An input buffer larger than this is given back after its request: ten thousand connections with long prompts
/// would otherwise keep all of them.
const KEPT_INPUT_BYTES: usize = 4 * 1024;

/// How long a closing connection waits for the peer to close. Closing at once with bytes unread would send a reset,
/// which can destroy the answer at the peer (RFC 9112 9.6).
const DRAIN_TIME: Nanos = Nanos::from_secs(1);

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// What the simulator is told to do.
    pub(crate) options: SimOptions,
    /// The ledger.
    pub(crate) book: Book,
    /// The latest reading of the clock.
    pub(crate) now: Nanos,
    /// CLOCK_REALTIME at the start.
    started: Nanos,
    /// Requests so far, and those among them that are chat completions with an answer.
    requests: u64,
    chats: u64,
    inbox: Vec<u8>,
    /// What is sent next.
    outbox: Vec<u8>,
    body: Vec<u8>,
    date: String,
    date_second: i64,
}

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
    uses: u32,
    reader: RequestReader,
    input: Vec<u8>,
    state: State,
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

#[derive(Debug)]
enum Work {
    /// Events, the next of them known.
    Stream(Box<Stream>),
    /// One body, later.
    Whole(Box<Whole>),
    /// Nothing more to compose.
    Over,
}

#[derive(Debug)]
struct Stream {
    template: Template,
    script: Script,
    next: Step,
}

#[derive(Debug)]
struct Whole {
    template: Template,
    answer: Answer,
    due: Nanos,
    request_id: Option<String>,
}

/// Bytes the kernel did not take yet, and the row to enter once it has.
#[derive(Debug, Default)]
struct Backlog {
    bytes: Vec<u8>,
    row: Row,
}

/// What a sent piece is called in the ledger.
#[derive(Debug, Clone, Copy, Default)]
enum Row {
    #[default]
    None,
    Head {
        request: u64,
        planned: Nanos,
        bytes: u32,
    },
    Event {
        request: u64,
        step: Step,
        bytes: u32,
    },
}

/// The peer is gone: the socket gives an error.
struct Gone;

/// The rest of an answer that needs no schedule.
struct PlainAnswer<'a> {
    service: Service,
    status: u16,
    allow: Option<&'static str>,
    request_id: Option<String>,
    message: Option<&'a str>,
}

impl Shared {
    /// At the start of a simulator.
    pub(crate) fn new(options: SimOptions, book: Book) -> Self {
        Self {
            options,
            book,
            now: clock::monotonic(),
            started: clock::realtime(),
            requests: 0,
            chats: 0,
            inbox: vec![0; INBOX_BYTES],
            outbox: Vec::with_capacity(INBOX_BYTES),
            body: Vec::new(),
            date: String::new(),
            date_second: 0,
        }
    }

    /// Reads the clock.
    pub(crate) fn update_now(&mut self) {
        self.now = clock::monotonic();
    }

    /// Seconds since the Unix epoch; renders the `Date` value when they have changed.
    fn update_date(&mut self) -> i64 {
        let now = clock::realtime();
        let second = now.0 / Nanos::PER_SECOND;
        if second != self.date_second || self.date.is_empty() {
            self.date = framing::http_date(now);
            self.date_second = second;
        }
        second
    }

    fn next_request(&mut self) -> u64 {
        let number = self.requests;
        self.requests += 1;
        number
    }
}

impl Connection {
    /// A connection that was just accepted; the socket does not block.
    pub(crate) fn new(stream: TcpStream, number: u64) -> Self {
        Self {
            stream,
            number,
            uses: 0,
            reader: RequestReader::default(),
            input: Vec::new(),
            state: State::Idle,
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
                let sent = self.send(start, |bytes| Row::Event { request, step, bytes }, shared);
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
            State::Answering { work: Work::Stream(stream), .. } => Some(stream.next.due),
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

    fn take_up(&mut self, request: Request, shared: &mut Shared) -> Result<(), Gone> {
        let Request { head, body, consumed } = request;
        self.last = !head.keep_alive;
        let chat = match (head.path.as_str(), head.method.as_str()) {
            ("/v1/chat/completions", "POST") => Some(ChatRequest::from_body(match &body {
                Body::Input(range) => self.input.get(range.clone()).unwrap_or_default(),
                Body::Joined(bytes) => bytes,
            })),
            _ => None,
        };
        self.input.drain(..consumed.min(self.input.len()));
        if self.input.is_empty() && self.input.capacity() > KEPT_INPUT_BYTES {
            self.input = Vec::new();
        }
        match chat {
            Some(Ok(chat)) => self.begin_chat(chat, head.request_id, shared),
            Some(Err(bad)) => self.answer(PlainAnswer::error(400, &bad.0, head.request_id), shared),
            None => self.answer_other(head, shared),
        }
    }

    fn begin_chat(
        &mut self,
        chat: ChatRequest,
        request_id: Option<String>,
        shared: &mut Shared,
    ) -> Result<(), Gone> {
        let (request, arrival) = (shared.next_request(), shared.now);
        let number = shared.chats;
        shared.chats += 1;
        let created = shared.update_date();
        let answer = Answer::new(&shared.options, &chat, number);
        let record = RequestArrived {
            number: request,
            connection: self.number,
            connection_use: self.uses,
            arrival,
            service: Service::Chat,
            status: 200,
            stream: chat.stream,
            prompt_bytes: chat.prompt_bytes,
            prompt_tokens: chat.prompt_tokens(),
            reasoning_tokens: answer.reasoning_tokens,
            content_tokens: answer.content_tokens,
            request_id: request_id.clone(),
            model: chat.model.clone(),
        };
        shared.book.enter(&Record::RequestArrived(record));
        let id = Lane::new(shared.options.seed, number, Purpose::Id).bits(0);
        let prompt_tokens = chat.prompt_tokens();
        let template = Template::new(id, created, chat.model, prompt_tokens);
        let mut script = Script::new(&shared.options, answer.clone(), number, arrival, chat.include_usage);
        if !chat.stream {
            let due = script.last_due(&shared.options);
            let whole = Box::new(Whole { template, answer, due, request_id });
            self.state = State::Answering { number: request, work: Work::Whole(whole) };
            return Ok(());
        }
        let work = match script.next(&shared.options) {
            Some(next) => Work::Stream(Box::new(Stream { template, script, next })),
            None => Work::Over,
        };
        self.state = State::Answering { number: request, work };
        shared.outbox.clear();
        let fields = HeadFields { date: &shared.date, request_id: request_id.as_deref(), close: self.last };
        framing::write_stream_head(fields, &mut shared.outbox);
        self.send(0, |bytes| Row::Head { request, planned: arrival, bytes }, shared)
    }

    fn send_whole(&mut self, request: u64, whole: &Whole, shared: &mut Shared) -> Result<(), Gone> {
        shared.update_date();
        shared.body.clear();
        whole.template.write_body(&whole.answer, &mut shared.body);
        let fields =
            HeadFields { date: &shared.date, request_id: whole.request_id.as_deref(), close: self.last };
        shared.outbox.clear();
        framing::write_response(200, None, fields, &shared.body, &mut shared.outbox);
        let tokens = whole.answer.reasoning_tokens + whole.answer.content_tokens;
        let step = Step::body(whole.due, tokens);
        self.send(0, |bytes| Row::Event { request, step, bytes }, shared)
    }

    fn answer_other(&mut self, head: Head, shared: &mut Shared) -> Result<(), Gone> {
        let Head { method, path, request_id, .. } = head;
        let (service, allow) = match path.as_str() {
            "/v1/models" => (Service::Models, "GET"),
            "/health" => (Service::Health, "GET"),
            "/v1/chat/completions" => (Service::Chat, "POST"),
            _ => {
                return self
                    .answer(PlainAnswer::error(404, "There is nothing at this path.", request_id), shared);
            }
        };
        if method == allow {
            let answer = PlainAnswer { service, status: 200, allow: None, request_id, message: None };
            return self.answer(answer, shared);
        }
        let refusal = PlainAnswer::error(405, "This path does not serve this method.", request_id);
        self.answer(PlainAnswer { allow: Some(allow), ..refusal }, shared)
    }

    /// Answers a request that cannot be read. What follows it cannot be told from its rest, so the connection ends.
    fn refuse(&mut self, reject: Reject, shared: &mut Shared) -> Result<(), Gone> {
        self.last = true;
        self.answer(PlainAnswer::error(reject.status(), reject.message(), None), shared)
    }

    fn answer(&mut self, answer: PlainAnswer<'_>, shared: &mut Shared) -> Result<(), Gone> {
        let (request, arrival) = (shared.next_request(), shared.now);
        shared.update_date();
        shared.body.clear();
        match (answer.message, answer.service) {
            (Some(message), _) => framing::write_error(answer.status, message, &mut shared.body),
            (None, Service::Models) => {
                framing::write_models(shared.started.0 / Nanos::PER_SECOND, &mut shared.body);
            }
            (None, _) => shared.body.extend_from_slice(b"{}"),
        }
        let fields =
            HeadFields { date: &shared.date, request_id: answer.request_id.as_deref(), close: self.last };
        shared.outbox.clear();
        framing::write_response(answer.status, answer.allow, fields, &shared.body, &mut shared.outbox);
        shared.book.enter(&Record::RequestArrived(RequestArrived {
            number: request,
            connection: self.number,
            connection_use: self.uses,
            arrival,
            service: answer.service,
            status: answer.status,
            stream: false,
            prompt_bytes: 0,
            prompt_tokens: 0,
            reasoning_tokens: 0,
            content_tokens: 0,
            request_id: answer.request_id,
            model: String::new(),
        }));
        self.state = State::Answering { number: request, work: Work::Over };
        let step = Step::body(arrival, 0);
        self.send(0, |bytes| Row::Event { request, step, bytes }, shared)
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
            self.state = State::Idle;
        }
    }
}

impl<'a> PlainAnswer<'a> {
    const fn error(status: u16, message: &'a str, request_id: Option<String>) -> Self {
        Self { service: Service::Refused, status, allow: None, request_id, message: Some(message) }
    }
}

impl Row {
    fn enter(self, before: Nanos, after: Nanos, book: &mut Book) {
        match self {
            Self::None => {}
            Self::Head { request, planned, bytes } => {
                book.enter(&Record::HeadSent(HeadSent { request, planned, before, after, bytes }));
            }
            Self::Event { request, step, bytes } => book.event(&EventSent {
                request,
                index: step.index,
                kind: step.kind,
                tokens: step.tokens,
                planned: step.due,
                before,
                after,
                bytes,
            }),
        }
    }
}

impl Step {
    /// An answer in one piece, as an event of its own.
    fn body(due: Nanos, tokens: u64) -> Self {
        let tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
        Self { kind: EventKind::Body, index: 0, due, first_token: 0, tokens }
    }
}

/// One send call between two clock readings. A full socket buffer is a call that took nothing.
fn offer(mut stream: &TcpStream, bytes: &[u8]) -> (Nanos, Result<usize, Gone>, Nanos) {
    loop {
        let before = clock::monotonic();
        let result = stream.write(bytes);
        let after = clock::monotonic();
        let taken = match result {
            Ok(n) => Ok(n),
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(0),
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(io::Error { .. }) => Err(Gone),
        };
        return (before, taken, after);
    }
}
