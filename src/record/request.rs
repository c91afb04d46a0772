//! The record of one request and the stamp of one output chunk.

use crate::record::stamps::Stamps;
use crate::record::{Anomalies, FinishReasons, Outcome, Stamp, StampKind, TransportFacts, Usage};
use crate::units::{Ticks, UnixNanos};

/// What an output chunk carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutputKind {
    /// Reasoning text.
    Reasoning,
    /// Visible content.
    Content,
    /// A tool call's name or arguments (a legacy function call too).
    ToolCall,
    /// A refusal text.
    Refusal,
}

/// In which part of the run a request belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Before the window; never in a statistic.
    Warmup,
    /// Due in the window.
    Measured,
    /// Due in the window and ended after it, in the grace time.
    Drain,
}

/// Counts of one response. All count from zero; a count of zero is a real zero. An answer that was not streamed has no
/// events and no chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Dispatched events, `[DONE]` and an unterminated last event included, events after `[DONE]` not.
    pub events: u64,
    /// Successful receive calls.
    pub reads: u64,
    /// Events with model output (one per event, whatever it carries).
    pub output_chunks: u64,
    /// Events with visible content (one per event, however many choices carry some).
    pub content_chunks: u64,
    /// Events with reasoning.
    pub reasoning_chunks: u64,
    /// Events with a tool call.
    pub tool_call_chunks: u64,
    /// Events with a refusal.
    pub refusal_chunks: u64,
    /// Deltas with visible content, counted per choice: the reference's `content_chunks`.
    pub content_deltas: u64,
    /// Deltas with reasoning, counted per choice: the reference's `reasoning_chunks`.
    pub reasoning_deltas: u64,
    /// Events that carried token counts; more than one means that the server sends usage as it goes.
    pub usage_events: u64,
    /// Output chunks that share a read with an earlier output chunk of the request.
    pub coalesced_chunks: u64,
    /// Events without output whose delta has an empty content and no role (of completions: an empty text): a token
    /// without text of its own.
    pub textless_chunks: u64,
    /// Events that are not JSON.
    pub malformed_events: u64,
    /// Events that are JSON without a meaning we know.
    pub unrecognised_events: u64,
    /// Events, or whole answers, that are JSON only with a tolerant eye: `NaN` or `Infinity` in place of a
    /// number, or more tokens than [`MAX_TOKENS`](crate::record::MAX_TOKENS).
    pub tolerated_events: u64,
    /// Events, or whole answers, with bytes that are not UTF-8.
    pub invalid_utf8_events: u64,
    /// Events after `[DONE]`.
    pub events_after_done: u64,
    /// Comment lines.
    pub keepalive_comments: u64,
    /// Bytes accepted by the kernel for sending.
    pub bytes_sent: u64,
    /// Bytes received, heads and framing included.
    pub bytes_received: u64,
    /// Bytes of the body after the transfer coding was removed.
    pub body_bytes: u64,
}

/// What is known about a failure beyond its [`Outcome`]. Made off the hot path: a failed request has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ErrorDetail {
    /// One sentence, or the server's own message; bounded, without secrets.
    pub message: String,
    /// Byte offset in the response (or body) of the first offending byte, where there is one.
    pub offset: Option<u64>,
    /// The server's error code, as text, where it gave one.
    pub code: Option<String>,
    /// The server's error type, where it gave one.
    pub error_type: Option<String>,
    /// `Retry-After`, as sent.
    pub retry_after: Option<String>,
    /// `Location`, as sent.
    pub location: Option<String>,
    /// The first bytes of a body that was no stream, bounded.
    pub body_start: Vec<u8>,
}

/// One output chunk, as stamped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkStamp {
    /// Which request: [`RequestRecord::serial`].
    pub serial: u64,
    /// When its read returned.
    pub stamp: Stamp,
    /// A counter reading before which this chunk cannot have arrived: the queue was empty at or after it.
    pub not_before: Ticks,
    /// The choice it belongs to (the first one, where an event carries several).
    pub choice: u32,
    /// Whether it was the last event of its read, so that the stamp is its own.
    pub ends_read: bool,
    /// What it carried (the first kind, where it carries several).
    pub kind: OutputKind,
    /// How far the server's count of completion tokens rose since the output chunk before it: the tokens that came
    /// with this chunk. `None` where the server does not count as it goes, or counts over several choices.
    pub tokens: Option<u32>,
}

/// One request, as a worker saw it.
#[derive(Debug, Clone)]
pub struct RequestRecord {
    /// Number of the request within its worker's stream of records; joins [`ChunkStamp`]s to it.
    pub serial: u64,
    /// Position in the plan.
    pub index: u64,
    /// Part of the run.
    pub phase: Phase,
    /// Slot of the closed loop.
    pub slot: u32,
    /// Connection, numbered per run over all workers.
    pub connection_id: u64,
    /// How many requests the connection carried before this one.
    pub connection_use: u32,
    /// Kept connections found closed before reuse and replaced, for this request.
    pub stale_connections: u32,
    /// How it ended.
    pub outcome: Outcome,
    /// Status of the final response.
    pub http_status: Option<u16>,
    /// When the plan wanted it to start.
    pub due: Ticks,
    /// Start and end of connecting, when this request made a connection.
    pub connect: Option<(Ticks, Option<Ticks>)>,
    /// First byte offered to the socket.
    pub send_start: Option<Ticks>,
    /// Last byte accepted by the kernel.
    pub send_end: Option<Ticks>,
    /// The kernel's stamp of the last byte of the request leaving this host's stack; `None` where it gave none.
    pub sent_wire: Option<UnixNanos>,
    /// What the kernel says about the connection.
    pub transport: TransportFacts,
    pub(super) stamps: Stamps,
    /// Whether a read with bytes came without a kernel stamp.
    pub user_stamps_only: bool,
    /// What the first output chunk carried; of an answer that was not streamed, what it begins with.
    pub first_output_kind: Option<OutputKind>,
    /// Whether more than one choice index was seen.
    pub several_choices: bool,
    /// Counts.
    pub counters: Counters,
    /// Token counts.
    pub usage: Usage,
    /// Finish reasons.
    pub finish: FinishReasons,
    /// A declared or chunked body was cut after the terminal.
    pub cut_after_terminal: bool,
    /// The first event was a chunk that announces only a role.
    pub role_chunk_first: bool,
    /// The answer came as an event stream although none was asked for.
    pub streamed_unasked: bool,
    /// What was accepted of its framing.
    pub anomalies: Anomalies,
    /// What is known about a failure.
    pub error: Option<Box<ErrorDetail>>,
    /// The visible text went beyond the limit of characters, kept or not.
    pub text_truncated: bool,
    /// The visible text, when it was asked for.
    pub text: Option<Box<CapturedText>>,
}

/// Visible text kept for canaries and controlled output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CapturedText {
    /// The text so far.
    pub text: String,
    /// Whether a chunk did not fit.
    pub truncated: bool,
}

impl RequestRecord {
    /// A record of a request that has not begun.
    #[must_use]
    pub fn new(index: u64, phase: Phase, slot: u32, due: Ticks) -> Self {
        Self {
            serial: 0,
            index,
            phase,
            slot,
            connection_id: 0,
            connection_use: 0,
            stale_connections: 0,
            outcome: Outcome::Internal,
            http_status: None,
            due,
            connect: None,
            send_start: None,
            send_end: None,
            sent_wire: None,
            transport: TransportFacts::default(),
            stamps: Stamps::default(),
            user_stamps_only: false,
            first_output_kind: None,
            several_choices: false,
            counters: Counters::default(),
            usage: Usage::default(),
            finish: FinishReasons::default(),
            cut_after_terminal: false,
            role_chunk_first: false,
            streamed_unasked: false,
            anomalies: Anomalies::NONE,
            error: None,
            text_truncated: false,
            text: None,
        }
    }

    /// The receive stamp of one kind.
    #[must_use]
    pub fn stamp(&self, kind: StampKind) -> Option<Stamp> {
        self.stamps.get(kind)
    }

    /// Sets a stamp.
    #[inline]
    pub fn set(&mut self, kind: StampKind, stamp: Stamp) {
        self.stamps.set(kind, stamp);
    }

    /// Forgets a stamp.
    pub fn unset(&mut self, kind: StampKind) {
        self.stamps.unset(kind);
    }

    /// Sets a stamp unless it is set already.
    #[inline]
    pub fn set_first(&mut self, kind: StampKind, stamp: Stamp) {
        if !self.stamps.has(kind) {
            self.stamps.set(kind, stamp);
        }
    }
}

impl OutputKind {
    /// The name in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reasoning => "reasoning",
            Self::Content => "content",
            Self::ToolCall => "tool_call",
            Self::Refusal => "refusal",
        }
    }
}

impl Phase {
    /// The name in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Warmup => "warmup",
            Self::Measured => "measured",
            Self::Drain => "drain",
        }
    }
}
