//! What kind of error each broken rule is, and how a request that met it is counted.

use super::error::HttpError;
use crate::record::Outcome;

/// The case files' kinds of error. `conflicting_framing` is none of them: `Transfer-Encoding` beside
/// `Content-Length` is accepted and flagged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Category {
    /// The status line cannot be read.
    BadStatusLine,
    /// A header field cannot be read.
    BadHeader,
    /// `Content-Length` cannot be used.
    BadContentLength,
    /// `Transfer-Encoding` cannot be used.
    UnsupportedTransferCoding,
    /// 101 without having asked.
    UnexpectedUpgrade,
    /// The chunked coding is damaged.
    BadChunk,
    /// A trailer field cannot be read.
    BadTrailer,
    /// The end came inside declared body data.
    TruncatedBody,
    /// The end came elsewhere.
    UnexpectedEof,
    /// A limit of ours.
    Limit,
}

impl Category {
    /// The name in the case files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BadStatusLine => "bad_status_line",
            Self::BadHeader => "bad_header",
            Self::BadContentLength => "bad_content_length",
            Self::UnsupportedTransferCoding => "unsupported_transfer_coding",
            Self::UnexpectedUpgrade => "unexpected_upgrade",
            Self::BadChunk => "bad_chunk",
            Self::BadTrailer => "bad_trailer",
            Self::TruncatedBody => "truncated_body",
            Self::UnexpectedEof => "unexpected_eof",
            Self::Limit => "limit",
        }
    }
}

impl HttpError {
    /// The category of the case files.
    #[must_use]
    pub const fn category(self) -> Category {
        match self {
            Self::NotHttp
            | Self::Tls
            | Self::BadVersion
            | Self::UnsupportedVersion
            | Self::NoSpaceAfterVersion
            | Self::BadStatusCode
            | Self::ControlInReason
            | Self::BareCrStatusLine => Category::BadStatusLine,
            Self::Header(_) => Category::BadHeader,
            Self::ContentLengthNotDigits | Self::ContentLengthDiffers | Self::ContentLengthOverflow => {
                Category::BadContentLength
            }
            Self::ChunkedTwice | Self::ChunkedParameters => Category::UnsupportedTransferCoding,
            Self::SwitchingProtocols => Category::UnexpectedUpgrade,
            Self::BadChunkSize
            | Self::ChunkSizeOverflow
            | Self::BareCrChunkLine
            | Self::BareLfChunkLine
            | Self::NoCrlfAfterChunkData
            | Self::BareLfChunkData => Category::BadChunk,
            Self::Trailer(_) => Category::BadTrailer,
            Self::EofInBody | Self::EofInChunk => Category::TruncatedBody,
            Self::EofBeforeResponse
            | Self::EofAfterInterim
            | Self::EofInStatusLine
            | Self::EofInHeader
            | Self::EofInChunkLine
            | Self::EofInTrailer => Category::UnexpectedEof,
            Self::Limit(_) => Category::Limit,
        }
    }

    /// How a request that met this is counted.
    #[must_use]
    pub const fn outcome(self) -> Outcome {
        match self {
            Self::EofBeforeResponse => Outcome::EofBeforeResponse,
            Self::EofAfterInterim | Self::EofInStatusLine | Self::EofInHeader => Outcome::TruncatedHead,
            _ => match self.category() {
                Category::BadStatusLine => Outcome::BadStatusLine,
                Category::BadHeader => Outcome::BadHeader,
                Category::BadContentLength => Outcome::BadContentLength,
                Category::UnsupportedTransferCoding => Outcome::UnsupportedTransferCoding,
                Category::UnexpectedUpgrade => Outcome::UnexpectedUpgrade,
                Category::BadChunk => Outcome::BadChunk,
                Category::BadTrailer => Outcome::BadTrailer,
                Category::TruncatedBody | Category::UnexpectedEof => Outcome::TruncatedBody,
                Category::Limit => Outcome::Limit,
            },
        }
    }
}
