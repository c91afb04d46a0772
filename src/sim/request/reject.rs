//! Why a request is refused, and what the peer is told.

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reject {
    /// The request line is not `method SP target SP version`.
    RequestLine,
    /// A header field is malformed.
    Field,
    /// Not exactly one Host field.
    Host,
    /// Content-Length is no number, or there are differing ones.
    ContentLength,
    /// Both Content-Length and Transfer-Encoding.
    ConflictingFraming,
    /// A chunk is malformed.
    Chunk,
    /// An expectation other than `100-continue`.
    Expectation,
    /// The head is longer than [`MAX_HEAD_BYTES`](super::MAX_HEAD_BYTES) or has more fields than
    /// [`MAX_FIELDS`](super::MAX_FIELDS).
    HeadTooLarge,
    /// The body is longer than [`MAX_BODY_BYTES`](super::MAX_BODY_BYTES).
    BodyTooLarge,
    /// A transfer coding other than `chunked`.
    TransferCoding,
    /// A version other than HTTP/1.1.
    Version,
}

impl Reject {
    /// Status code of the answer.
    pub(crate) const fn status(self) -> u16 {
        match self {
            Self::RequestLine
            | Self::Field
            | Self::Host
            | Self::ContentLength
            | Self::ConflictingFraming
            | Self::Chunk => 400,
            Self::BodyTooLarge => 413,
            Self::Expectation => 417,
            Self::HeadTooLarge => 431,
            Self::TransferCoding => 501,
            Self::Version => 505,
        }
    }

    /// One sentence for the answer's body.
    pub(crate) const fn message(self) -> &'static str {
        match self {
            Self::RequestLine => "The request line is not 'method target version'.",
            Self::Field => "A header field is malformed.",
            Self::Host => "The request must have exactly one Host field.",
            Self::ContentLength => "Content-Length is not one number.",
            Self::ConflictingFraming => "Content-Length and Transfer-Encoding exclude each other.",
            Self::Chunk => "A chunk of the body is malformed.",
            Self::Expectation => "The only expectation understood is 100-continue.",
            Self::HeadTooLarge => "The request head is too large.",
            Self::BodyTooLarge => "The request body is too large.",
            Self::TransferCoding => "The only transfer coding understood is chunked.",
            Self::Version => "The only version spoken is HTTP/1.1.",
        }
    }
}
