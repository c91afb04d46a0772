//! What the events of a stream mean, and answers that were not streamed: what is output, what carries token counts,
//! what ends the answer, what reports an error.
//!
//! ```text
//! event name + data ─► EventReader ─► scan (certain?) ─► EventSink + Facts ─► StreamAccount ─► EventMeaning
//!                                         └─ not certain ─► full parse ─┘                    └─ conclude ─► Outcome
//! ```
//!
//! Each dialect is one file or folder that implements `event::Protocol`. A direct scan of the bytes answers for
//! everything that servers send every day; it is either certain, and then says exactly what the full parse would say,
//! or leaves the event to the full parse. An answer that was not streamed is one JSON body, read in full at its end
//! (`whole`).
//!
//! This module does not find events (that is the event stream parser's), knows no clock and no HTTP, and keeps text
//! only when asked to.

mod capture;
mod chat;
mod cursor;
mod embeddings;
mod event;
mod found;
pub mod full;
mod gemini;
mod keys;
mod messages;
mod object;
pub mod plain;
mod responses;
mod server_error;
mod stream;
mod tally;
mod template;
mod text;
mod verdict;
mod walk;
mod whole;
mod word;

pub use capture::TextRule;
pub use found::Scanned;
pub use server_error::{ErrorCode, MAX_IDENTIFIER_CHARS, MAX_MESSAGE_CHARS, ServerError};
pub use stream::{EventMeaning, StreamAccount};
pub use text::{JsonText, Piece, Pieces};
pub use verdict::BodyEnding;
pub use whole::EMPTY_BODY;

use crate::record::{OutputKind, Usage};
use chat::Chat;
use event::Protocol;
use messages::Messages;
use responses::Responses;
use template::Template;

/// How the answers of an endpoint are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Dialect {
    /// `/chat/completions`; reads the `text` of `/completions` as well.
    #[default]
    Chat,
    /// `/completions`.
    Completions,
    /// `/responses`: typed events.
    Responses,
    /// `/messages`: Anthropic's typed events.
    Messages,
    /// `/embeddings`: one JSON body, never a stream.
    Embeddings,
    /// Plain HTTP: only the status and the framing are judged.
    Http,
}

/// Calls a function of the protocol of a dialect. The endpoints that never stream have no events; what comes as one
/// all the same is read as chat, whose error shapes are everybody's.
macro_rules! by_protocol {
    ($dialect:expr, $protocol:ident => $call:expr) => {
        match $dialect {
            Dialect::Chat | Dialect::Completions | Dialect::Embeddings | Dialect::Http => {
                type $protocol = Chat;
                $call
            }
            Dialect::Responses => {
                type $protocol = Responses;
                $call
            }
            Dialect::Messages => {
                type $protocol = Messages;
                $call
            }
        }
    };
}

impl Dialect {
    /// Scans the data of one event, white space trimmed, into `found`, and forgets what was in there. `None`: not
    /// certain, and `found` means nothing. A scan that is certain says what [`read_in_full`](Self::read_in_full) says.
    #[must_use]
    pub fn scan<'a>(self, data: &'a [u8], found: &mut Scanned<'a>) -> Option<()> {
        by_protocol!(self, P => P::scan(data, found))
    }

    /// Reads one event (not `[DONE]`) by the full parse alone.
    pub fn read_in_full(self, event: &[u8], data: &[u8], sink: &mut impl EventSink) -> Facts {
        by_protocol!(self, P => event::read_in_full::<P>(event, data, sink))
    }

    /// Reads the parsed body of an answer that was not streamed.
    fn read_whole(self, parsed: &full::Parsed, sink: &mut impl EventSink) -> Facts {
        by_protocol!(self, P => P::read_whole(parsed, sink))
    }
}

/// Reads the events of one stream after the other in one dialect. What it remembers makes it fast and changes no
/// answer.
#[derive(Debug, Default)]
pub struct EventReader {
    dialect: Dialect,
    template: Template,
}

impl EventReader {
    /// A reader of one dialect.
    #[must_use]
    pub fn new(dialect: Dialect) -> Self {
        Self { dialect, template: Template::default() }
    }

    /// Begins a new stream.
    pub fn start(&mut self) {
        self.template.start();
    }

    /// Reads one event. `event` is its type (empty: a plain message), `data` its data.
    ///
    /// Output and finish reasons go to `sink`, everything else is in the facts.
    pub fn read(&mut self, event: &[u8], data: &[u8], sink: &mut impl EventSink) -> Facts {
        by_protocol!(self.dialect, P => event::read::<P>(event, data, &mut self.template, sink))
    }

    /// The dialect.
    #[must_use]
    pub const fn dialect(&self) -> Dialect {
        self.dialect
    }
}

/// Where a dialect reports what the choices of an event carry.
pub trait EventSink {
    /// A choice begins; what follows belongs to it.
    fn choice(&mut self, index: u32, shape: ChoiceShape);
    /// Output of the current choice; never empty, except a tool call's that has only a name. Several pieces of one
    /// kind are parts of one delta; the order of different kinds says nothing.
    fn output(&mut self, kind: OutputKind, text: JsonText<'_>);
    /// The finish reason of the current choice; never empty.
    fn finish(&mut self, reason: JsonText<'_>);
}

/// What a choice holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChoiceShape {
    /// What is new.
    Delta,
    /// A whole message: an answer that was not streamed, or a repetition of what was.
    Message,
}

/// What an event says besides output and finish reasons.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// It ends the answer.
    pub terminal: bool,
    /// It is not JSON.
    pub malformed: Option<Box<Malformed>>,
    /// It has a meaning we know. An event can be JSON and still mean nothing to us.
    pub recognised: bool,
    /// It announces a role.
    pub role: bool,
    /// A delta has an empty content and no key for a role, or a choice an empty text: how servers report a token that has no text of its own, or
    /// whose text they hold back.
    pub empty_content: bool,
    /// The token counts it carries.
    pub usage: Option<Usage>,
    /// The error it reports.
    pub error: Option<Box<ServerError>>,
    /// `NaN` or `Infinity` stood where a number should.
    pub not_a_number: bool,
    /// It holds bytes that are not UTF-8.
    pub invalid_utf8: bool,
}

/// What is known about an event that is not JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Malformed {
    /// What the parser objects to.
    pub reason: String,
    /// The error in one of its lines: servers write an error into an event that was still open.
    pub error: Option<ServerError>,
}
