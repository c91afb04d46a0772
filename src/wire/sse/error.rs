//! Why a stream cannot be read on. Every byte sequence is a valid event stream, so only limits can end one.

/// A limit was exceeded. The stream cannot be read further; the parser repeats the error until it is reset.
///
/// Which error comes, and its offset, depends on the bytes alone and not on how they were cut into reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    /// A line has more bytes before its line end than [`Limits::line_bytes`](super::Limits::line_bytes).
    #[error("event stream line too long at byte {offset}")]
    LineTooLong {
        /// Stream offset of the first byte beyond the limit.
        offset: u64,
    },
    /// The joined data of one event has more bytes than [`Limits::event_bytes`](super::Limits::event_bytes).
    #[error("event too large at byte {offset}")]
    EventTooLarge {
        /// Stream offset of the line end that completed the line beyond the limit.
        offset: u64,
    },
}

impl SseError {
    /// Where in the stream the limit was exceeded, in bytes from its first byte (a byte order mark counts).
    pub fn offset(self) -> u64 {
        match self {
            SseError::LineTooLong { offset } | SseError::EventTooLarge { offset } => offset,
        }
    }
}
