//! Server-Sent Events: a push parser after WHATWG HTML 9.2.6, "Interpreting an event stream".
//!
//! [`Parser::feed`] takes the bytes of one read as they are and calls a [`Sink`] for every event, comment and
//! reconnection time that is complete by then. How the stream was cut into reads never changes what comes out, with
//! one exception that is the point of the design: *when*. An event is handed out at the first byte of its blank
//! line, so a CR dispatches at once and the LF that may belong to it is swallowed later. A parser that waits for
//! that LF reports the event one read late, and the time stamp with it.
//!
//! An event that lies in one read and has one `data` line is borrowed from that read; only what a read leaves
//! unfinished is copied. Values are bytes: the standard decodes the stream as UTF-8 first, but every byte that means
//! something to the grammar is ASCII and no ASCII byte is ever part of a longer sequence, so decoding a value later
//! gives the same text, and a reader of JSON need not decode at all.
//!
//! What this module does not do: no reconnection (a repeated POST would run the generation again), no check of the
//! content type, no decision about UTF-8, no opinion on what an event means (`[DONE]` is data like any other).

mod block;
mod error;
mod field;
mod limits;
mod parser;
mod storage;

pub use error::SseError;
pub use limits::{EVENT_LIMIT_BYTES, LINE_LIMIT_BYTES, Limits, RETAINED_BYTES};
pub use parser::Parser;

/// One dispatched event. The slices live as long as the call that hands them out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// Value of the block's last `event` field; empty means the default type, `message`.
    pub event: &'a [u8],
    /// Values of the block's `data` fields, joined by LF. May be empty: a block with one empty `data` field is an
    /// event.
    pub data: &'a [u8],
    /// The last event ID buffer at dispatch: the latest `id` field of the stream, not only of this block. Empty when
    /// none came.
    pub id: &'a [u8],
}

/// Receives what the parser finds, in stream order.
pub trait Sink {
    /// An event is complete.
    fn event(&mut self, event: Event<'_>);

    /// A comment line is complete; `text` is everything after its colon, a leading space included.
    fn comment(&mut self, text: &[u8]) {
        let _ = text;
    }

    /// A field named `error` is complete; the standard ignores it, and so does what is parsed. Some servers report
    /// their errors in one.
    fn error_field(&mut self, value: &[u8]) {
        let _ = value;
    }

    /// A valid `retry` field set the reconnection time to `ms` milliseconds.
    fn retry(&mut self, ms: u64) {
        let _ = ms;
    }
}

/// What a stream leaves behind when it ends; see [`Parser::finish`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tail<'a> {
    /// The event that a further line end and blank line would have dispatched: the open block, with the
    /// unterminated last line read as if it were whole. `None` when no `data` field is in it. The standard discards
    /// this; a client that measures must look at it, because it is often `[DONE]` or the usage of a server that
    /// forgets the last blank line.
    pub pending: Option<Event<'a>>,
    /// The value of the unterminated last line, when that is an `error` field: see [`Sink::error_field`].
    pub error: Option<&'a [u8]>,
    /// A terminated `data` line waits for its blank line. Unlike [`pending`](Tail::pending) this does not count the
    /// unterminated last line.
    pub block_open: bool,
    /// Bytes after the last line end, without a byte order mark. Empty when the stream ended with a line end.
    pub unterminated: &'a [u8],
    /// The last event ID buffer: the value of the last terminated `id` line, whether or not an event followed it.
    pub last_event_id: &'a [u8],
}
