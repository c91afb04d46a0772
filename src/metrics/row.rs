//! One request on the run's axis: what the formulas read. `aggregate` makes rows from records; nothing here is a
//! clock reading any more.

use crate::record::{Anomalies, Counters, ErrorDetail, Outcome, OutputKind, Phase, TransportFacts, Usage};
use crate::units::Nanos;

/// Which clock the receive stamps of a request come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StampSource {
    /// The kernel's receive stamps.
    Kernel,
    /// The user-space clock, because a read came without a kernel stamp or because it was asked for.
    User,
}

/// Receive stamps in nanoseconds since the run's zero. `None` where the response never got there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReceiveStamps {
    /// First byte of the final response.
    pub first_byte: Option<Nanos>,
    /// Head complete.
    pub head_done: Option<Nanos>,
    /// First event of any kind.
    pub first_event: Option<Nanos>,
    /// First output chunk of any kind.
    pub first_output: Option<Nanos>,
    /// First reasoning chunk.
    pub first_reasoning: Option<Nanos>,
    /// First visible content chunk.
    pub first_content: Option<Nanos>,
    /// First tool call chunk.
    pub first_tool_call: Option<Nanos>,
    /// Last output chunk.
    pub last_output: Option<Nanos>,
    /// First event that counts a completion token, where the server counted before the first output or with it.
    pub first_usage_token: Option<Nanos>,
    /// First textless chunk.
    pub first_textless: Option<Nanos>,
    /// Last textless chunk.
    pub last_textless: Option<Nanos>,
    /// `[DONE]`, or the endpoint's own terminal.
    pub terminal: Option<Nanos>,
    /// Body complete, or the moment the request was given up.
    pub end: Option<Nanos>,
}

/// Where a request's output token count comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TokenSource {
    /// The server's usage object.
    Usage,
    /// Usage sent with every chunk.
    ContinuousUsage,
    /// A tokenizer, after the run.
    Tokenizer,
    /// The number of output chunks, of whatever kind: an estimate.
    ContentChunks,
    /// Nothing is known.
    Unknown,
}

/// Whether an answer began with its own marker (the reference's rule).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CanaryObservation {
    /// The marker that was asked for.
    pub marker: String,
    /// The answer starts with it and ends there or goes on with white space.
    pub marker_at_start: bool,
    /// All markers found.
    pub observed_marker_count: u64,
    /// Markers of other requests found.
    pub foreign_marker_count: u64,
    /// The capture was not truncated.
    pub capture_complete: bool,
    /// All of it holds.
    pub passed: bool,
}

/// Whether an answer is the text that was asked for (the reference's rule).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlledOutputObservation {
    /// How many words were asked for.
    pub requested_words: u64,
    /// `observe` or `strict`.
    pub strict: bool,
    /// Words that are exactly `code`.
    pub observed_code_words: u64,
    /// Other words.
    pub observed_extra_words: u64,
    /// The capture was not truncated.
    pub capture_complete: bool,
    /// Exactly the words asked for; `None` when the capture was truncated.
    pub exact_adherence: Option<bool>,
    /// Exact under `strict`, always under `observe`.
    pub passed: bool,
}

/// One request on the run's axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRow {
    /// Position in the plan.
    pub request_index: u64,
    /// Slot of the closed loop.
    pub slot: u32,
    /// Worker that carried it.
    pub worker: u32,
    /// Connection, numbered per run.
    pub connection_id: u64,
    /// How many requests the connection carried before.
    pub connection_use: u32,
    /// Kept connections found closed before reuse and replaced.
    pub stale_connections: u32,
    /// Part of the run.
    pub phase: Phase,
    /// How it ended.
    pub outcome: Outcome,
    /// Status of the final response.
    pub http_status: Option<u16>,
    /// When it was due.
    pub due: Nanos,
    /// Span of the name look-up, when this request made one.
    pub dns: Option<Nanos>,
    /// When connecting began, when this request made a connection.
    pub connect_start: Option<Nanos>,
    /// Span of connecting, when this request made a connection and it succeeded.
    pub connect: Option<Nanos>,
    /// Span of the TLS handshake.
    pub tls: Option<Nanos>,
    /// First byte offered to the socket.
    pub send_start: Option<Nanos>,
    /// Last byte accepted by the kernel.
    pub send_end: Option<Nanos>,
    /// Last byte of the request handed to the device, by the kernel's stamp; `None` where it gave none.
    pub sent_wire: Option<Nanos>,
    /// What the kernel counted on the connection.
    pub transport: TransportFacts,
    /// Receive stamps by [`RequestRow::stamp_source`].
    pub at: ReceiveStamps,
    /// The same by the user-space clock.
    pub user: ReceiveStamps,
    /// Which clock `at` comes from.
    pub stamp_source: StampSource,
    /// What the first output chunk carried.
    pub first_output_kind: Option<OutputKind>,
    /// More than one choice index was seen.
    pub several_choices: bool,
    /// First and last output came in the same read.
    pub one_output_read: bool,
    /// Counts.
    pub counters: Counters,
    /// Token counts as the server reported them.
    pub usage: Usage,
    /// Output tokens by the best source there is.
    pub output_tokens: Option<u64>,
    /// That source.
    pub output_token_source: TokenSource,
    /// Tokens that came with the first output chunk, by the server's count as it goes; `None` without such a count.
    pub first_chunk_tokens: Option<u32>,
    /// Tokens that came with output chunks; `None` unless each of them has its count.
    pub chunk_tokens: Option<u64>,
    /// Finish reasons by choice, in order of arrival.
    pub finish_reasons: Vec<(u32, String)>,
    /// The plan's context target.
    pub planned_context_tokens: Option<u64>,
    /// The output limit that was sent.
    pub requested_max_tokens: Option<u64>,
    /// Canary observation, when canaries were asked for and a response came.
    pub canary: Option<CanaryObservation>,
    /// Controlled output observation, when it was asked for and a response came.
    pub controlled_output: Option<ControlledOutputObservation>,
    /// The captured text was truncated.
    pub visible_content_truncated: bool,
    /// A body was cut after the terminal.
    pub cut_after_terminal: bool,
    /// The first event announced only a role.
    pub role_chunk_first: bool,
    /// The answer came as an event stream although none was asked for.
    pub streamed_unasked: bool,
    /// What was accepted of the response's framing.
    pub anomalies: Anomalies,
    /// What is known about a failure.
    pub error: Option<ErrorDetail>,
}

impl StampSource {
    /// The name in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::User => "user",
        }
    }
}

impl TokenSource {
    /// The name in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::ContinuousUsage => "continuous_usage",
            Self::Tokenizer => "tokenizer",
            Self::ContentChunks => "content_chunks",
            Self::Unknown => "unknown",
        }
    }
}
