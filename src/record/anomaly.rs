//! What was accepted of a response although it is not quite right: one name per oddity, kept as a bit set.
//!
//! An anomaly never changes what the response means; it says that the RFC let us choose, and what we chose.

/// One accepted oddity. The order is that of the names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Anomaly {
    /// A header line ended in a lone LF (RFC 9112 2.2).
    BareLfHeader,
    /// The status line ended in a lone LF (RFC 9112 2.2).
    BareLfStatusLine,
    /// A trailer line ended in a lone LF (RFC 9112 2.2).
    BareLfTrailer,
    /// `Content-Length` more than once with the same value (RFC 9110 8.6).
    ContentLengthRepeated,
    /// The peer closed after the last chunk and before the end of the trailer section (RFC 9112 8).
    EofBeforeFinalCrlf,
    /// Empty lines before the status line.
    LeadingEmptyLine,
    /// Chunk extensions that do not follow the grammar; they are ignored either way (RFC 9112 7.1.1).
    MalformedChunkExtension,
    /// A minor version above 1, read as 1.1 (RFC 9110 2.5).
    NewerMinorVersion,
    /// No space after the status code (RFC 9112 4).
    NoSpaceAfterCode,
    /// A field value folded over several lines (RFC 9112 5.2).
    ObsFold,
    /// A status outside 100 to 599 (RFC 9110 15).
    StatusOutOfRange,
    /// `Transfer-Encoding` together with `Content-Length`, which is then ignored (RFC 9112 6.3).
    TransferEncodingAndContentLength,
    /// `Transfer-Encoding` whose last coding is not chunked: the body ends with the connection (RFC 9112 6.3).
    ChunkedNotLast,
    /// `Transfer-Encoding` in an HTTP/1.0 response: the framing is taken as faulty (RFC 9112 6.1).
    TransferEncodingInHttp10,
    /// Another transfer coding before chunked: the framing is known, the body is still coded.
    OtherCodingBeforeChunked,
    /// Bytes that no request had asked for: behind this answer, or on the kept connection that was to carry this request.
    /// Which answer the next bytes belong to cannot be told then, so the connection is closed (RFC 9112 9.2).
    UnaskedBytes,
    /// White space between a chunk size and the line's end.
    SpaceAfterChunkSize,
}

/// A set of anomalies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Anomalies(u32);

impl Anomaly {
    /// Every anomaly, in the order of declaration.
    pub const ALL: [Self; 17] = [
        Self::BareLfHeader,
        Self::BareLfStatusLine,
        Self::BareLfTrailer,
        Self::ContentLengthRepeated,
        Self::EofBeforeFinalCrlf,
        Self::LeadingEmptyLine,
        Self::MalformedChunkExtension,
        Self::NewerMinorVersion,
        Self::NoSpaceAfterCode,
        Self::ObsFold,
        Self::StatusOutOfRange,
        Self::TransferEncodingAndContentLength,
        Self::ChunkedNotLast,
        Self::TransferEncodingInHttp10,
        Self::OtherCodingBeforeChunked,
        Self::UnaskedBytes,
        Self::SpaceAfterChunkSize,
    ];

    /// The name in documents and case files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BareLfHeader => "bare_lf_header",
            Self::BareLfStatusLine => "bare_lf_status_line",
            Self::BareLfTrailer => "bare_lf_trailer",
            Self::ContentLengthRepeated => "cl_repeated",
            Self::EofBeforeFinalCrlf => "eof_before_final_crlf",
            Self::LeadingEmptyLine => "leading_empty_line",
            Self::MalformedChunkExtension => "malformed_chunk_ext",
            Self::NewerMinorVersion => "newer_minor_version",
            Self::NoSpaceAfterCode => "no_sp_after_code",
            Self::ObsFold => "obs_fold",
            Self::StatusOutOfRange => "status_out_of_range",
            Self::TransferEncodingAndContentLength => "te_and_cl",
            Self::ChunkedNotLast => "te_chunked_not_last",
            Self::TransferEncodingInHttp10 => "te_in_http_1_0",
            Self::OtherCodingBeforeChunked => "te_other_before_chunked",
            Self::UnaskedBytes => "unasked_bytes",
            Self::SpaceAfterChunkSize => "ws_after_chunk_size",
        }
    }

    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

impl Anomalies {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// Adds one.
    pub const fn insert(&mut self, anomaly: Anomaly) {
        self.0 |= anomaly.bit();
    }

    /// Adds those of another set.
    pub const fn merge(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Whether `anomaly` is in the set.
    #[must_use]
    pub const fn contains(self, anomaly: Anomaly) -> bool {
        self.0 & anomaly.bit() != 0
    }

    /// The set as bits, one per anomaly in the order of declaration.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The set of these bits; those of no anomaly are dropped.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits & ((1 << Anomaly::ALL.len()) - 1))
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The members in order of their names.
    pub fn iter(self) -> impl Iterator<Item = Anomaly> {
        Anomaly::ALL.into_iter().filter(move |&anomaly| self.contains(anomaly))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_complete_and_in_the_order_of_the_names() {
        for (i, anomaly) in Anomaly::ALL.into_iter().enumerate() {
            assert_eq!(anomaly as usize, i, "{anomaly:?} is out of order");
        }
        assert!(Anomaly::ALL.windows(2).all(|w| w[0].name() < w[1].name()));
    }

    #[test]
    fn a_set_holds_what_was_inserted() {
        let mut set = Anomalies::NONE;
        assert!(set.is_empty());
        set.insert(Anomaly::ObsFold);
        set.insert(Anomaly::BareLfHeader);
        set.insert(Anomaly::ObsFold);
        assert_eq!(set.iter().collect::<Vec<_>>(), [Anomaly::BareLfHeader, Anomaly::ObsFold]);
        assert!(!set.contains(Anomaly::SpaceAfterChunkSize));
    }
}
