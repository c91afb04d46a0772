//! What a body is, and its bytes: events go to the account, a JSON answer that was not to be streamed is kept whole, of
//! everything else the beginning is kept.
//!
//! The head may have refused the body already; else its first bytes tell what it is, and until they do they are held
//! back. Plain HTTP does not look into the body of a success at all. This does not know how the answer ends, and judges
//! nothing.

use super::{AnswerRule, Marks};
use crate::record::ErrorDetail;
use crate::wire::dialect::plain::{BodyKind, classify_start, is_blank};
use crate::wire::dialect::{Dialect, EventMeaning, ServerError, StreamAccount, TextRule, full};
use crate::wire::http1::Head;
use crate::wire::sse::{EVENT_LIMIT_BYTES, Event, Limits, Parser, Sink, SseError};

/// How much of a body that is no stream is read for what it says: an error that repeats a prompt of twenty thousand
/// tokens fits, and ten thousand connections that all get one hold 640 MiB and not more.
pub const BODY_READ_BYTES: usize = 64 * 1024;

/// How much of a body that is no stream is taken for the sake of keeping the connection; a longer one costs more than
/// a new connection.
pub const BODY_DISCARD_BYTES: u64 = 1024 * 1024;

/// The largest body of an answer that is not streamed: what an event of a streamed one may hold, 16 MiB. A batch of
/// four hundred vectors of 1,536 numbers each, 22 bytes a number, stays below it. The body is held in one buffer that
/// grows by doubling, and read once, at its end; of the buffer at most [`BODY_READ_BYTES`] outlive the answer.
pub const WHOLE_BODY_BYTES: usize = EVENT_LIMIT_BYTES;

/// Why a body is not read as events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plain {
    /// The status is no success.
    Failure,
    /// The status says that the answer is elsewhere.
    Redirect,
    /// It is compressed, says the head or its first bytes.
    Coded,
    /// Its first bytes are of something else.
    Other,
}

/// Why no more of a body is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// A limit of the event stream.
    Limit(SseError),
    /// [`WHOLE_BODY_BYTES`].
    TooLong,
    /// [`BODY_DISCARD_BYTES`].
    Enough,
}

/// What a rule expects in the body of a success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Events,
    /// One JSON text.
    Whole,
    /// Anything: only its length counts.
    Bytes,
}

/// One body after the other; the storage is reused.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) account: StreamAccount,
    parser: Parser,
    rule: AnswerRule,
    kind: Kind,
    /// Bytes taken, without what is held back.
    bytes: u64,
    /// What is held back while undecided, the beginning of a plain body, or all of a whole one.
    start: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Not known before its first bytes.
    Undecided,
    Events,
    /// A JSON text, kept until it is complete.
    Whole,
    /// Counted, and not looked into.
    Bytes,
    Plain(Plain),
}

impl Body {
    /// A body that is read by a rule.
    pub(super) fn new(rule: AnswerRule) -> Self {
        Self {
            account: StreamAccount::new(rule.dialect),
            parser: Parser::new(Limits::default()),
            rule,
            kind: Kind::Undecided,
            bytes: 0,
            start: Vec::new(),
        }
    }

    /// Forgets the last body.
    pub(super) fn start(&mut self) {
        self.account.start(self.rule.text);
        self.parser.reset();
        self.kind = if self.expected() == Expected::Bytes { Kind::Bytes } else { Kind::Undecided };
        self.bytes = 0;
        self.start.clear();
        // Ten thousand connections that each once got a huge answer must not keep it.
        self.start.shrink_to(BODY_READ_BYTES);
    }

    fn expected(&self) -> Expected {
        match self.rule.dialect {
            Dialect::Http => Expected::Bytes,
            Dialect::Embeddings => Expected::Whole,
            _ if self.rule.streamed => Expected::Events,
            _ => Expected::Whole,
        }
    }

    /// The head says that this is no stream.
    pub(super) fn refuse(&mut self, plain: Plain) {
        self.kind = Kind::Plain(plain);
    }

    /// Takes the next bytes; the head says what type it was declared to be.
    #[inline]
    pub(super) fn take(
        &mut self,
        data: &[u8],
        head: Option<&Head>,
        marks: &mut impl Marks,
    ) -> Result<(), Stop> {
        match self.kind {
            Kind::Events => self.take_events(data, marks).map_err(Stop::Limit),
            Kind::Whole => self.take_whole(data),
            Kind::Bytes => {
                self.bytes += data.len() as u64;
                Ok(())
            }
            Kind::Plain(_) => self.take_plain(data),
            Kind::Undecided => self.take_first(data, head, marks),
        }
    }

    /// The body is complete. The standard discards a block without its blank line; it is often `[DONE]` or the usage
    /// of a server that forgets the last line, so it is looked at.
    pub(super) fn finish(&mut self, marks: &mut impl Marks) -> Result<(), SseError> {
        match self.kind {
            // A number or a string is JSON too, if no answer.
            Kind::Plain(Plain::Other) if self.is_other_json() => self.kind = Kind::Whole,
            Kind::Plain(_) | Kind::Bytes => return Ok(()),
            // Half a field name or half a magic number, and nothing more.
            Kind::Undecided if !is_blank(&self.start) => {
                self.bytes = self.start.len() as u64;
                self.kind = Kind::Plain(Plain::Other);
                return Ok(());
            }
            Kind::Undecided if self.expected() == Expected::Whole => {
                self.bytes = self.start.len() as u64;
                self.kind = Kind::Whole;
            }
            Kind::Undecided => {
                self.kind = Kind::Events;
                self.release(marks)?;
            }
            Kind::Events | Kind::Whole => {}
        }
        if self.kind == Kind::Whole {
            self.account.on_whole(&self.start);
            return Ok(());
        }
        let tail = self.parser.finish();
        if let Some(value) = tail.error {
            self.account.on_error_field(value);
        }
        if let Some(event) = tail.pending {
            let meaning = self.account.on_tail(event.event, event.data);
            marks.seen(&event, &meaning);
            if !meaning.after_terminal {
                marks.event(&meaning);
            }
        }
        Ok(())
    }

    /// Why it is not read as events; `None` for events, and as long as nothing is known.
    pub(super) fn plain(&self) -> Option<Plain> {
        match self.kind {
            Kind::Plain(plain) => Some(plain),
            Kind::Undecided | Kind::Events | Kind::Whole | Kind::Bytes => None,
        }
    }

    /// Whether it is a JSON text that is kept whole.
    pub(super) fn is_whole(&self) -> bool {
        self.kind == Kind::Whole
    }

    /// As much as came of a body that is kept whole.
    pub(super) fn whole(&self) -> &[u8] {
        &self.start
    }

    /// Whether it is not looked into.
    pub(super) fn is_only_counted(&self) -> bool {
        self.kind == Kind::Bytes
    }

    /// Whether the rule asked for an event stream.
    pub(super) fn is_stream_expected(&self) -> bool {
        self.expected() == Expected::Events
    }

    /// Whether it is an event stream that nobody asked for.
    pub(super) fn is_unasked_stream(&self) -> bool {
        self.kind == Kind::Events && !self.is_stream_expected()
    }

    /// Bytes taken.
    pub(super) fn bytes(&self) -> u64 {
        if self.kind == Kind::Undecided { self.start.len() as u64 } else { self.bytes }
    }

    /// The beginning of a plain body, at most [`BODY_READ_BYTES`], or all of a whole one; it is gone then.
    pub(super) fn take_start(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.start)
    }

    #[inline]
    fn take_events(&mut self, data: &[u8], marks: &mut impl Marks) -> Result<(), SseError> {
        self.bytes += data.len() as u64;
        let fed = self.parser.feed(data, &mut EventSink { account: &mut self.account, marks });
        if let Err(error) = fed {
            // Up to there it was read, whatever else came with the same read.
            self.bytes = error.offset();
        }
        fed
    }

    fn take_plain(&mut self, data: &[u8]) -> Result<(), Stop> {
        self.keep(data);
        self.bytes += data.len() as u64;
        // Plain HTTP measures transfers: there the end of a body is what was asked for, however far it is.
        if self.bytes <= BODY_DISCARD_BYTES || self.expected() == Expected::Bytes {
            return Ok(());
        }
        self.bytes = BODY_DISCARD_BYTES;
        Err(Stop::Enough)
    }

    fn take_whole(&mut self, data: &[u8]) -> Result<(), Stop> {
        let room = WHOLE_BODY_BYTES.saturating_sub(self.start.len());
        self.start.extend_from_slice(data.get(..room).unwrap_or(data));
        self.bytes = self.start.len() as u64;
        if data.len() > room { Err(Stop::TooLong) } else { Ok(()) }
    }

    /// Decides what the body is, unless these bytes are still too few: blank lines, half a byte order mark.
    fn take_first(&mut self, data: &[u8], head: Option<&Head>, marks: &mut impl Marks) -> Result<(), Stop> {
        let content_type = head.and_then(Head::content_type);
        let held = self.start.len();
        let kind = if held == 0 {
            classify_start(content_type, data)
        } else {
            self.keep(data);
            let kind = classify_start(content_type, &self.start);
            self.start.truncate(held);
            kind
        };
        self.kind = match kind {
            BodyKind::Undecided => {
                self.keep(data);
                return Ok(());
            }
            // Vectors are never streamed: whatever this is, it is no answer.
            BodyKind::EventStream if self.rule.dialect == Dialect::Embeddings => Kind::Plain(Plain::Other),
            BodyKind::EventStream => Kind::Events,
            BodyKind::Compressed => Kind::Plain(Plain::Coded),
            BodyKind::Json if self.expected() == Expected::Whole => Kind::Whole,
            BodyKind::Json | BodyKind::Other => Kind::Plain(Plain::Other),
        };
        if self.kind == Kind::Events {
            self.release(marks).map_err(Stop::Limit)?;
        } else {
            self.bytes += held as u64;
        }
        self.take(data, head, marks)
    }

    /// Reads what was held back as events.
    fn release(&mut self, marks: &mut impl Marks) -> Result<(), SseError> {
        let start = std::mem::take(&mut self.start);
        let fed = self.take_events(&start, marks);
        self.start = start;
        self.start.clear();
        fed
    }

    /// Whether it is all there, and JSON that does not begin as an answer does, where one JSON text was asked for.
    fn is_other_json(&self) -> bool {
        self.expected() == Expected::Whole
            && self.bytes == self.start.len() as u64
            && full::parse(self.start.trim_ascii()).is_ok()
    }

    fn keep(&mut self, data: &[u8]) {
        let room = BODY_READ_BYTES.saturating_sub(self.start.len());
        self.start.extend_from_slice(data.get(..room).unwrap_or(data));
    }
}

/// The error that an event stream reports, where none could be an answer; `None` also for what is no such stream.
pub(super) fn error_in_stream(content_type: Option<&[u8]>, start: &[u8]) -> Option<ErrorDetail> {
    if classify_start(content_type, start) != BodyKind::EventStream {
        return None;
    }
    let mut stream = Body { kind: Kind::Events, ..Body::new(AnswerRule::default()) };
    stream.account.start(TextRule::default());
    // A limit stops the reading, not what was found before it.
    let _ = stream.take_events(start, &mut Unmarked);
    let _ = stream.finish(&mut Unmarked);
    stream.account.server_error().map(ServerError::to_detail)
}

/// For reading outside a run.
struct Unmarked;

impl Marks for Unmarked {
    fn first_byte(&mut self) {}
    fn interim(&mut self) {}
    fn head_done(&mut self) {}
    fn event(&mut self, _: &EventMeaning) {}
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
        self.marks.seen(&event, &meaning);
        if !meaning.after_terminal {
            self.marks.event(&meaning);
        }
    }

    fn comment(&mut self, text: &[u8]) {
        self.account.on_comment();
        self.marks.comment(text);
    }

    fn error_field(&mut self, value: &[u8]) {
        self.account.on_error_field(value);
    }
}
