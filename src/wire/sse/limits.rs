//! How much of a stream is held at most, and how much storage outlives one.

/// Default for [`Limits::line_bytes`]: 8 MiB. Servers that send a whole answer or a base64 image as one `data` line
/// reach megabytes; a line that is still open after 8 MiB is a flood.
pub const LINE_LIMIT_BYTES: usize = 8 << 20;

/// Default for [`Limits::event_bytes`]: 16 MiB, two of the longest lines. Real events of that size are not known.
pub const EVENT_LIMIT_BYTES: usize = 16 << 20;

/// What each buffer of a parser may keep over [`Parser::reset`](super::Parser::reset): 16 KiB. An output chunk with
/// logprobs stays below it, and ten thousand connections that each once saw a huge event must not keep it.
pub const RETAINED_BYTES: usize = 16 << 10;

/// Bounds for what a stream can make the parser hold.
///
/// A parser's storage stays below five lines plus three events of these sizes (the joined tail at the end of a
/// stream included), whatever is fed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest line in bytes, its line end not counted. Holds for every line, comments and unknown fields too.
    pub line_bytes: usize,
    /// Largest event in bytes: its `data` values joined by LF.
    pub event_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { line_bytes: LINE_LIMIT_BYTES, event_bytes: EVENT_LIMIT_BYTES }
    }
}
