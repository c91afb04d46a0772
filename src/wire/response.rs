//! One answer, from its first byte to its verdict: HTTP, then the kind of body, then events, then their meaning.
//!
//! ```text
//! bytes ─► ResponseDecoder ─► head: status, content type ─► events (sse) ─► meaning (dialect) ─► account ─► outcome
//!                                                      └──► plain body: first bytes kept, rest counted
//! ```
//!
//! The caller stamps reads; [`Marks`] tells it what each read completed. How the answer was cut into reads changes
//! only that. Nothing is allocated for an answer that goes well once the storage is warm.

use crate::record::{ErrorDetail, Outcome, RequestRecord};
use crate::units::Nanos;
use crate::wire::dialect::plain::{BodyKind, classify_start, read_error_body, read_failure_body};
use crate::wire::dialect::{BodyEnding, Dialect, EventMeaning, StreamAccount};
use crate::wire::http1::{Head, HttpError, Method, Part, ResponseDecoder};
use crate::wire::sse::{Event, Limits, Parser, Sink, SseError};

/// How much of a body that is no stream is kept: the first 4 KiB hold every error message seen.
pub const BODY_START_BYTES: usize = 4 * 1024;

/// How much of a body that is no stream is read for the sake of keeping the connection; a longer one costs more than a
/// new connection.
pub const BODY_DISCARD_BYTES: u64 = 1024 * 1024;

/// Learns what a read completed, in order.
pub trait Marks {
    /// The first byte of the final answer is in this read.
    fn first_byte(&mut self);
    /// What was taken for the first byte belonged to an interim answer (1xx).
    fn interim(&mut self);
    /// The head is complete.
    fn head_done(&mut self);
    /// An event is complete.
    fn event(&mut self, meaning: &EventMeaning);
}

/// Where an answer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// More bytes are to come.
    Going,
    /// The answer is complete; [`ResponseReader::may_keep_alive`] says whether the connection is of use.
    Complete,
    /// The answer is over and the connection is of no use.
    Failed,
}

/// What the body turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    /// Not known before its first bytes.
    Undecided,
    /// Events.
    Events,
    /// Something else, with what it means for the request.
    Plain(Outcome),
}

/// Reads answers one after the other; the storage is reused.
#[derive(Debug)]
pub struct ResponseReader {
    decoder: ResponseDecoder,
    parser: Parser,
    account: StreamAccount,
    capture_limit: Option<usize>,
    body: Body,
    body_bytes: u64,
    body_start: Vec<u8>,
    head_done: bool,
    any_byte: bool,
    /// Bytes came after the end of the answer.
    leftover: bool,
    complete: bool,
    decided: Option<(Outcome, Option<ErrorDetail>)>,
}

/// Hands events from the parser to the account and their meaning to the caller.
struct EventSink<'a, M: Marks> {
    account: &'a mut StreamAccount,
    marks: &'a mut M,
}

impl<M: Marks> Sink for EventSink<'_, M> {
    #[inline]
    fn event(&mut self, event: Event<'_>) {
        let meaning = self.account.on_event(event.event, event.data);
        if !meaning.after_terminal {
            self.marks.event(&meaning);
        }
    }

    fn comment(&mut self, _text: &[u8]) {
        self.account.on_comment();
    }

    fn error_field(&mut self, value: &[u8]) {
        self.account.on_error_field(value);
    }
}

impl ResponseReader {
    /// A reader that keeps this many characters of visible text; `None` keeps none.
    #[must_use]
    pub fn new(capture_limit: Option<usize>) -> Self {
        Self {
            decoder: ResponseDecoder::new(),
            parser: Parser::new(Limits::default()),
            account: StreamAccount::new(Dialect::Chat),
            capture_limit,
            body: Body::Undecided,
            body_bytes: 0,
            body_start: Vec::new(),
            head_done: false,
            any_byte: false,
            leftover: false,
            complete: false,
            decided: None,
        }
    }

    /// Forgets the last answer.
    pub fn start(&mut self) {
        self.decoder.start(Method::Post);
        self.parser.reset();
        self.account.start(self.capture_limit);
        self.body = Body::Undecided;
        self.body_bytes = 0;
        self.body_start.clear();
        self.head_done = false;
        self.any_byte = false;
        self.leftover = false;
        self.complete = false;
        self.decided = None;
    }

    /// Takes in the bytes of one read.
    pub fn read(&mut self, bytes: &[u8], marks: &mut impl Marks) -> Reading {
        if self.complete {
            self.leftover |= !bytes.is_empty();
            return Reading::Failed;
        }
        if !self.any_byte && !bytes.is_empty() {
            self.any_byte = true;
            marks.first_byte();
        }
        let mut rest = bytes;
        loop {
            let decoded = match self.decoder.decode(rest) {
                Ok(decoded) => decoded,
                Err(error) => return self.broken(error),
            };
            rest = rest.get(decoded.consumed..).unwrap_or_default();
            match decoded.part {
                Part::NeedMore => return Reading::Going,
                Part::Interim(_) => {
                    marks.interim();
                    self.any_byte = !rest.is_empty();
                    if self.any_byte {
                        marks.first_byte();
                    }
                }
                Part::Head => {
                    self.head_done = true;
                    marks.head_done();
                    self.judge_head();
                }
                Part::Data(data) => {
                    if let Some(reading) = self.on_data(data, marks) {
                        return reading;
                    }
                }
                Part::End => {
                    self.leftover = !rest.is_empty();
                    self.end_of_body(marks);
                    return Reading::Complete;
                }
            }
        }
    }

    /// The peer closed its side.
    pub fn end_of_stream(&mut self, marks: &mut impl Marks) -> Reading {
        if self.complete {
            return Reading::Complete;
        }
        if !self.any_byte {
            self.decide(Outcome::EofBeforeResponse, None);
            return self.close(Reading::Failed);
        }
        match self.decoder.eof() {
            Ok(()) => self.end_of_body(marks),
            Err(error) if !self.head_done => self.decide_http(error),
            Err(error) => self.cut_short(BodyEnding::CutShort, Some(error)),
        }
        self.close(Reading::Failed)
    }

    /// The connection broke; `message` is the kernel's word for it.
    pub fn reset(&mut self, message: &str) -> Reading {
        if !self.any_byte {
            self.decide(Outcome::ResetBeforeResponse, Some(says(message)));
        } else if self.head_done {
            self.cut_short(BodyEnding::Reset, None);
        } else {
            self.decide(Outcome::ResetMidstream, Some(says(message)));
        }
        self.close(Reading::Failed)
    }

    /// Whether the terminal (`[DONE]`) was read.
    #[must_use]
    pub fn terminal_seen(&self) -> bool {
        self.account.done()
    }

    /// Whether the connection may carry another request: so far, and for good once the answer is complete.
    #[must_use]
    pub fn may_keep_alive(&self) -> bool {
        let persistent = self.decoder.head().is_some_and(Head::is_persistent);
        persistent && !self.leftover && (!self.complete || self.decoder.reusable())
    }

    /// How long the server said it keeps an idle connection (`Keep-Alive: timeout=`).
    #[must_use]
    pub fn announced_keep_alive(&self) -> Option<Nanos> {
        self.decoder.head()?.keep_alive_timeout()
    }

    /// Status of the final answer.
    #[must_use]
    pub fn http_status(&self) -> Option<u16> {
        self.decoder.head().map(Head::status)
    }

    /// Fills in what the answer said: counts, usage, finish reasons, text.
    pub fn write_to(&mut self, record: &mut RequestRecord) {
        record.counters.body_bytes = self.body_bytes;
        self.account.write_to(record);
    }

    /// The verdict on the answer; `None` while nothing has decided it. `[DONE]` decides, whatever happens to the bytes
    /// after it; a status that is no success decides before its body is read.
    pub fn conclude(&mut self) -> Option<(Outcome, Option<ErrorDetail>)> {
        if self.decided.is_none() && self.account.done() {
            let ending = if self.complete { BodyEnding::CleanEnd } else { BodyEnding::CutShort };
            self.decided = Some(self.account.conclude(ending));
        }
        if self.decided.is_none()
            && let Body::Plain(outcome) = self.body
        {
            self.decide_plain(outcome);
        }
        self.decided.take()
    }

    /// What the status and the fields of the head decide.
    fn judge_head(&mut self) {
        let Some(head) = self.decoder.head() else { return };
        let status = head.status();
        if (300..400).contains(&status) && head.location().is_some() {
            self.body = Body::Plain(Outcome::Redirect);
        } else if !(200..300).contains(&status) {
            self.body = Body::Plain(Outcome::HttpError);
        } else if head.content_encoding().is_some() || head.body_is_coded() {
            self.body = Body::Plain(Outcome::UnsupportedContentCoding);
        }
    }

    #[inline]
    fn on_data(&mut self, data: &[u8], marks: &mut impl Marks) -> Option<Reading> {
        self.body_bytes += data.len() as u64;
        if self.body == Body::Undecided {
            return self.first_data(data, marks);
        }
        if self.body == Body::Events { self.on_events(data, marks) } else { self.on_plain(data) }
    }

    fn on_events(&mut self, data: &[u8], marks: &mut impl Marks) -> Option<Reading> {
        let mut sink = EventSink { account: &mut self.account, marks };
        match self.parser.feed(data, &mut sink) {
            Ok(()) => None,
            Err(error) => {
                self.decide(Outcome::Limit, Some(limit(error)));
                Some(self.close(Reading::Failed))
            }
        }
    }

    /// Decides what the body is. Bytes that do not decide it yet are kept: a byte order mark, white space.
    fn first_data(&mut self, data: &[u8], marks: &mut impl Marks) -> Option<Reading> {
        let held = !self.body_start.is_empty();
        if held {
            self.keep(data);
        }
        let content_type = self.decoder.head().and_then(Head::content_type);
        let seen = if held { self.body_start.as_slice() } else { data };
        let kind = classify_start(content_type, seen);
        self.body = match kind {
            BodyKind::Undecided if self.body_start.len() < BODY_START_BYTES => {
                if !held {
                    self.keep(data);
                }
                return None;
            }
            BodyKind::EventStream => Body::Events,
            BodyKind::Compressed => Body::Plain(Outcome::UnsupportedContentCoding),
            BodyKind::Json | BodyKind::Other | BodyKind::Undecided => Body::Plain(Outcome::NotAStream),
        };
        if self.body == Body::Events {
            let start = std::mem::take(&mut self.body_start);
            let reading = self.on_events(if held { &start } else { data }, marks);
            self.body_start = start;
            self.body_start.clear();
            return reading;
        }
        if held { None } else { self.on_plain(data) }
    }

    fn on_plain(&mut self, data: &[u8]) -> Option<Reading> {
        self.keep(data);
        (self.body_bytes > BODY_DISCARD_BYTES).then(|| self.close(Reading::Failed))
    }

    fn keep(&mut self, data: &[u8]) {
        let room = BODY_START_BYTES.saturating_sub(self.body_start.len());
        self.body_start.extend_from_slice(data.get(..room.min(data.len())).unwrap_or_default());
    }

    /// The body is complete.
    fn end_of_body(&mut self, marks: &mut impl Marks) {
        self.complete = true;
        match self.body {
            Body::Plain(outcome) => self.decide_plain(outcome),
            Body::Undecided if !self.body_start.is_empty() => {
                // White space only, or half a byte order mark: as an event stream it says nothing.
                let start = std::mem::take(&mut self.body_start);
                let _ = self.on_events(&start, marks);
                self.body_start = start;
                self.end_of_events(marks);
            }
            Body::Undecided | Body::Events => self.end_of_events(marks),
        }
    }

    /// The stream ended cleanly. The standard discards a block without its blank line; it is often `[DONE]` or the
    /// usage of a server that forgets the last line, so it is looked at.
    fn end_of_events(&mut self, marks: &mut impl Marks) {
        let tail = self.parser.finish();
        if let Some(value) = tail.error {
            self.account.on_error_field(value);
        }
        if let Some(event) = tail.pending {
            let meaning = self.account.on_tail(event.event, event.data);
            if !meaning.after_terminal {
                marks.event(&meaning);
            }
        }
        if self.decided.is_none() {
            self.decided = Some(self.account.conclude(BodyEnding::CleanEnd));
        }
    }

    /// The body did not come to its end.
    fn cut_short(&mut self, ending: BodyEnding, error: Option<HttpError>) {
        if self.decided.is_some() {
            return;
        }
        if let Body::Plain(outcome) = self.body {
            return self.decide_plain(outcome);
        }
        let (outcome, detail) = self.account.conclude(ending);
        let detail = detail.or_else(|| error.map(|e| self.http_detail(e)));
        self.decided = Some((outcome, detail));
    }

    /// The bytes are no HTTP.
    fn broken(&mut self, error: HttpError) -> Reading {
        // What a complete answer is followed by is not its fault; after `[DONE]` the answer is complete.
        if self.account.done() {
            self.cut_short(BodyEnding::CutShort, Some(error));
        } else {
            self.decide_http(error);
        }
        self.close(Reading::Failed)
    }

    fn close(&mut self, reading: Reading) -> Reading {
        self.complete = true;
        reading
    }

    fn decide(&mut self, outcome: Outcome, detail: Option<ErrorDetail>) {
        self.decided.get_or_insert((outcome, detail));
    }

    fn decide_http(&mut self, error: HttpError) {
        let detail = self.http_detail(error);
        self.decide(error.outcome(), Some(detail));
    }

    fn http_detail(&self, error: HttpError) -> ErrorDetail {
        ErrorDetail {
            message: error.to_string(),
            offset: self.decoder.error_offset(),
            ..ErrorDetail::default()
        }
    }

    /// A body that is no stream: what it says, and what the head said.
    fn decide_plain(&mut self, outcome: Outcome) {
        if self.decided.is_some() {
            return;
        }
        let said = if outcome == Outcome::NotAStream {
            read_error_body(&self.body_start)
        } else {
            read_failure_body(&self.body_start)
        };
        let outcome =
            if outcome == Outcome::NotAStream && said.is_some() { Outcome::JsonErrorBody } else { outcome };
        let mut detail = said.unwrap_or_default();
        detail.body_start = std::mem::take(&mut self.body_start);
        if let Some(head) = self.decoder.head() {
            detail.retry_after = head.retry_after().map(lossy);
            detail.location = head.location().map(lossy);
            if detail.message.is_empty() {
                detail.message =
                    format!("status {} {}", head.status(), lossy(head.reason())).trim().to_owned();
            }
        }
        self.decided = Some((outcome, Some(detail)));
    }
}

fn says(message: &str) -> ErrorDetail {
    ErrorDetail { message: message.to_owned(), ..ErrorDetail::default() }
}

fn limit(error: SseError) -> ErrorDetail {
    ErrorDetail { message: error.to_string(), offset: Some(error.offset()), ..ErrorDetail::default() }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
