//! What a body is, and its bytes: events go to the account, of everything else the beginning is kept.
//!
//! The head may have refused the body already; else its first bytes tell what it is, and until they do they are held
//! back. This does not know how the answer ends, and judges nothing.

use super::{AnswerRule, Marks};
use crate::wire::dialect::StreamAccount;
use crate::wire::dialect::plain::{BodyKind, classify_start, is_blank};
use crate::wire::http1::Head;
use crate::wire::sse::{Event, Limits, Parser, Sink, SseError};

/// How much of a body that is no stream is read for what it says: an error that repeats a prompt of twenty thousand
/// tokens fits, and ten thousand connections that all get one hold 640 MiB and not more.
pub const BODY_READ_BYTES: usize = 64 * 1024;

/// How much of a body that is no stream is taken for the sake of keeping the connection; a longer one costs more than
/// a new connection.
pub const BODY_DISCARD_BYTES: u64 = 1024 * 1024;

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
    /// [`BODY_DISCARD_BYTES`].
    Enough,
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
    /// What is held back while undecided, or the beginning of a plain body.
    start: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Not known before its first bytes.
    Undecided,
    Events,
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
        self.kind = Kind::Undecided;
        self.bytes = 0;
        self.start.clear();
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
            Kind::Plain(_) => self.take_plain(data),
            Kind::Undecided => self.take_first(data, head, marks),
        }
    }

    /// The body is complete. The standard discards a block without its blank line; it is often `[DONE]` or the usage
    /// of a server that forgets the last line, so it is looked at.
    pub(super) fn finish(&mut self, marks: &mut impl Marks) -> Result<(), SseError> {
        match self.kind {
            Kind::Plain(_) => return Ok(()),
            Kind::Undecided if is_blank(&self.start) => {
                self.kind = Kind::Events;
                self.release(marks)?;
            }
            // Half a field name or half a magic number, and nothing more.
            Kind::Undecided => {
                self.bytes = self.start.len() as u64;
                self.kind = Kind::Plain(Plain::Other);
                return Ok(());
            }
            Kind::Events => {}
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
            Kind::Undecided | Kind::Events => None,
        }
    }

    /// Bytes taken.
    pub(super) fn bytes(&self) -> u64 {
        if self.kind == Kind::Undecided { self.start.len() as u64 } else { self.bytes }
    }

    /// The beginning of a plain body, at most [`BODY_READ_BYTES`]; it is gone then.
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
        if self.bytes <= BODY_DISCARD_BYTES {
            return Ok(());
        }
        self.bytes = BODY_DISCARD_BYTES;
        Err(Stop::Enough)
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
            BodyKind::EventStream => Kind::Events,
            BodyKind::Compressed => Kind::Plain(Plain::Coded),
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

    fn keep(&mut self, data: &[u8]) {
        let room = BODY_READ_BYTES.saturating_sub(self.start.len());
        self.start.extend_from_slice(data.get(..room).unwrap_or(data));
    }
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
