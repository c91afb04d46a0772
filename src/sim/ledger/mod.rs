//! The ledger: the truth about what the simulator wrote, and when.
//!
//! Every instant is CLOCK_MONOTONIC in nanoseconds, read right before and right after the send call that carried the
//! last byte of what the row describes. *Before* is the truth of an event's arrival: over loopback the bytes are in
//! the peer's socket when the call returns, and the call itself takes a few microseconds.
//!
//! # File layout, version 2
//!
//! All numbers are little-endian. The file starts with the magic `HSLEDGER` (8 bytes), the version (`u16`), the
//! length of the rest of the header (`u16`), and the header: seed `u64`, process id `u32`, CLOCK_MONOTONIC `i64` and
//! CLOCK_REALTIME `i64` at the start. Records follow to the end of the file, each as tag `u8`, payload length `u16`,
//! payload. A payload may be longer than stated here and a tag may be unknown: later versions add, readers skip.
//!
//! | tag | record | payload |
//! |---|---|---|
//! | 1 | connection opened | number `u64`, instant `i64`, family `u8` (4 or 6), address (16 bytes, IPv4 in the first four), port `u16` |
//! | 2 | request arrived | number `u64`, connection `u64`, uses of the connection before `u32`, instant of completeness `i64`, service `u8`, status `u16`, flags `u8` (1 streamed, 2 has an id), prompt bytes `u64`, prompt tokens `u64`, reasoning tokens planned `u64`, content tokens planned `u64`, id and model, each as length `u16` and UTF-8 |
//! | 3 | response head sent | request `u64`, planned `i64`, before `i64`, after `i64`, bytes `u32` |
//! | 4 | event sent | kind `u8`, tokens `u32`, index `u32`, request `u64`, planned `i64`, before `i64`, after `i64`, bytes `u32` |
//! | 5 | request ended | number `u64`, instant `i64`, ending `u8` |
//! | 6 | connection closed | number `u64`, instant `i64`, side `u8` (0 the peer, 1 the simulator) |
//! | 7 | end of the ledger | connections `u64`, requests `u64`, events `u64` |
//!
//! Numbers count from 0 without gaps, in the order of the records. A record about a request or a connection comes
//! after the one that opens it. A file without record 7 was cut short (the simulator was killed): everything before
//! the cut is good. A response that is no stream is one event of the kind `body`, head included.

mod codec;
pub mod dump;
pub mod read;
mod write;

use std::net::SocketAddr;

pub use dump::dump_json_lines;
pub use read::{Ledger, LedgerError, LedgerReader, read};
pub(crate) use write::{Book, LedgerWriter};

use crate::units::Nanos;

/// The first bytes of a ledger.
pub const MAGIC: [u8; 8] = *b"HSLEDGER";

/// The layout's version. Raised when a reader of the former version could no longer read the file. Version 2 has the
/// event kind `frame` and the services from `completions` on.
pub const VERSION: u16 = 2;

/// What an event of a response was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EventKind {
    /// The event that announces the answer, without text: the role chunk, `message_start`, `response.created`.
    Role = 0,
    /// An event with reasoning.
    Reasoning = 1,
    /// An event with visible content.
    Content = 2,
    /// The event with the finish reason.
    Finish = 3,
    /// The chunk with the token counts, where they come alone.
    Usage = 4,
    /// The terminal (`[DONE]`, `message_stop`, `response.completed`), and in the same send call the end of the chunked
    /// body.
    Done = 5,
    /// A whole response that is no stream, head included.
    Body = 6,
    /// An event that is none of these: it opens or closes a block, repeats it, or keeps the connection alive.
    Frame = 7,
}

/// Which service a request went to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Service {
    /// A chat completion that was answered.
    Chat = 0,
    /// The list of models.
    Models = 1,
    /// The health check.
    Health = 2,
    /// Anything that was answered with an error.
    Refused = 3,
    /// A completion that was answered.
    Completions = 4,
    /// A response of the responses API that was answered.
    Responses = 5,
    /// A message of Anthropic's API that was answered.
    Messages = 6,
    /// Embeddings that were answered.
    Embeddings = 7,
    /// A count of tokens that was answered.
    Tokenize = 8,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ending {
    /// Everything was handed to the kernel.
    Complete = 0,
    /// The peer closed or reset the connection before that.
    PeerGone = 1,
    /// The simulator was stopped before that.
    Stopped = 2,
}

/// Which side ended a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ClosedBy {
    /// The peer closed or reset it.
    Peer = 0,
    /// The simulator closed it: asked to by the request, after a refused request, or at its own end.
    Simulator = 1,
}

/// How the ledger began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The layout's version.
    pub version: u16,
    /// The simulator's seed.
    pub seed: u64,
    /// The simulator's process id.
    pub pid: u32,
    /// CLOCK_MONOTONIC at the start.
    pub monotonic: Nanos,
    /// CLOCK_REALTIME at the same moment, since the Unix epoch.
    pub realtime: Nanos,
}

/// A connection was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionOpened {
    /// Its number, from 0.
    pub number: u64,
    /// When it was taken from the listening socket's queue (the handshake may be older).
    pub at: Nanos,
    /// The peer's address.
    pub peer: SocketAddr,
}

/// A request was complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestArrived {
    /// Its number, from 0, over all services.
    pub number: u64,
    /// Its connection.
    pub connection: u64,
    /// How many requests the connection carried before this one.
    pub connection_use: u32,
    /// Right after the receive call that brought its last byte; for a pipelined request that had to wait, the end of
    /// the answer before it.
    pub arrival: Nanos,
    /// Where it went.
    pub service: Service,
    /// The status of the answer.
    pub status: u16,
    /// Whether the answer is a stream.
    pub stream: bool,
    /// UTF-8 bytes of all message texts; 0 for requests without messages.
    pub prompt_bytes: u64,
    /// The prompt's estimated tokens, as reported in `usage`; 0 for requests without messages.
    pub prompt_tokens: u64,
    /// Tokens of reasoning the answer will have.
    pub reasoning_tokens: u64,
    /// Tokens of visible content the answer will have.
    pub content_tokens: u64,
    /// `X-Request-Id`.
    pub request_id: Option<String>,
    /// The model's name; empty for requests without one.
    pub model: String,
}

/// The head of a streamed response was sent, alone, at once after the request's arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadSent {
    /// The request.
    pub request: u64,
    /// The arrival.
    pub planned: Nanos,
    /// Right before the send call.
    pub before: Nanos,
    /// Right after the send call.
    pub after: Nanos,
    /// Its length.
    pub bytes: u32,
}

/// An event was sent, in a send call of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventSent {
    /// The request.
    pub request: u64,
    /// Position among the response's events, from 0.
    pub index: u32,
    /// What it was.
    pub kind: EventKind,
    /// How many tokens its text has; 0 for events without text.
    pub tokens: u32,
    /// When it was due.
    pub planned: Nanos,
    /// Right before the send call that carried its last byte: the truth of its arrival.
    pub before: Nanos,
    /// Right after that call.
    pub after: Nanos,
    /// Its length on the wire, chunk framing included.
    pub bytes: u32,
}

/// A request was finished or given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestEnded {
    /// The request.
    pub number: u64,
    /// When.
    pub at: Nanos,
    /// How.
    pub ending: Ending,
}

/// A connection was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionClosed {
    /// The connection.
    pub number: u64,
    /// When.
    pub at: Nanos,
    /// By whom.
    pub by: ClosedBy,
}

/// The last record: how much there must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Connections opened.
    pub connections: u64,
    /// Requests arrived.
    pub requests: u64,
    /// Events sent (heads not counted).
    pub events: u64,
}

/// One record, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// A connection was accepted.
    ConnectionOpened(ConnectionOpened),
    /// A request was complete.
    RequestArrived(RequestArrived),
    /// A response head was sent.
    HeadSent(HeadSent),
    /// An event was sent.
    EventSent(EventSent),
    /// A request was finished or given up.
    RequestEnded(RequestEnded),
    /// A connection was closed.
    ConnectionClosed(ConnectionClosed),
    /// The ledger is complete.
    End(Totals),
}

impl EventKind {
    /// Every kind, in the order of their codes.
    pub const ALL: [Self; 8] = [
        Self::Role,
        Self::Reasoning,
        Self::Content,
        Self::Finish,
        Self::Usage,
        Self::Done,
        Self::Body,
        Self::Frame,
    ];

    /// The name in the JSON lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Role => "role",
            Self::Reasoning => "reasoning",
            Self::Content => "content",
            Self::Finish => "finish",
            Self::Usage => "usage",
            Self::Done => "done",
            Self::Body => "body",
            Self::Frame => "frame",
        }
    }

    /// Whether it carries model output.
    #[must_use]
    pub const fn is_output(self) -> bool {
        matches!(self, Self::Reasoning | Self::Content)
    }
}

impl Service {
    /// Every service, in the order of their codes.
    pub const ALL: [Self; 9] = [
        Self::Chat,
        Self::Models,
        Self::Health,
        Self::Refused,
        Self::Completions,
        Self::Responses,
        Self::Messages,
        Self::Embeddings,
        Self::Tokenize,
    ];

    /// The name in the JSON lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Models => "models",
            Self::Health => "health",
            Self::Refused => "refused",
            Self::Completions => "completions",
            Self::Responses => "responses",
            Self::Messages => "messages",
            Self::Embeddings => "embeddings",
            Self::Tokenize => "tokenize",
        }
    }
}

impl Ending {
    /// Every ending, in the order of their codes.
    pub const ALL: [Self; 3] = [Self::Complete, Self::PeerGone, Self::Stopped];

    /// The name in the JSON lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::PeerGone => "peer_gone",
            Self::Stopped => "stopped",
        }
    }
}

impl ClosedBy {
    /// Both sides, in the order of their codes.
    pub const ALL: [Self; 2] = [Self::Peer, Self::Simulator];

    /// The name in the JSON lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Peer => "peer",
            Self::Simulator => "simulator",
        }
    }
}
