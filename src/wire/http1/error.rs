//! Why a response cannot be read: one variant per rule that was broken.
//!
//! The same rule always ends in the same variant, whatever the cuts between reads were. How the variants are grouped
//! and counted stands in the neighbouring `category`.

/// A broken rule of HTTP/1.x, a response that ended early, or a limit of ours that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum HttpError {
    /// The first line does not begin with `HTTP/`.
    #[error("the answer does not begin with HTTP/")]
    NotHttp,
    /// The answer begins with the type byte of a TLS alert or handshake (RFC 8446 5.1): the port wants https.
    #[error("the answer begins like TLS, not with HTTP/: the port may speak https")]
    Tls,
    /// The version is not digit, point, digit.
    #[error("the HTTP version is not of the form 1.1")]
    BadVersion,
    /// A major version other than 1.
    #[error("the major HTTP version is not 1")]
    UnsupportedVersion,
    /// Something other than a space stands behind the version.
    #[error("no space after the HTTP version")]
    NoSpaceAfterVersion,
    /// The status is not exactly three digits.
    #[error("the status code is not three digits")]
    BadStatusCode,
    /// A control character in the reason phrase.
    #[error("control character in the reason phrase")]
    ControlInReason,
    /// CR without LF in the status line.
    #[error("CR without LF in the status line")]
    BareCrStatusLine,
    /// A header field is damaged.
    #[error("header field: {0}")]
    Header(FieldRule),
    /// `Content-Length` is not a list of digit strings.
    #[error("Content-Length is not a number")]
    ContentLengthNotDigits,
    /// `Content-Length` values differ.
    #[error("Content-Length has differing values")]
    ContentLengthDiffers,
    /// `Content-Length` does not fit 64 bits.
    #[error("Content-Length does not fit 64 bits")]
    ContentLengthOverflow,
    /// The chunked coding was applied more than once.
    #[error("Transfer-Encoding names chunked more than once")]
    ChunkedTwice,
    /// The chunked coding has parameters; it defines none.
    #[error("Transfer-Encoding names chunked with parameters")]
    ChunkedParameters,
    /// 101 although no upgrade was asked for.
    #[error("the server switches protocols without having been asked")]
    SwitchingProtocols,
    /// A chunk line does not begin with a hex number that ends in white space, an extension or the line's end.
    #[error("the chunk size is not a hex number")]
    BadChunkSize,
    /// A chunk size does not fit 64 bits.
    #[error("the chunk size does not fit 64 bits")]
    ChunkSizeOverflow,
    /// CR without LF in a chunk line.
    #[error("CR without LF in a chunk line")]
    BareCrChunkLine,
    /// A chunk line ends in a lone LF (refused: RFC 9112 7.1 and erratum 7633).
    #[error("a chunk line ends in LF without CR")]
    BareLfChunkLine,
    /// Something other than CR LF stands behind the data of a chunk.
    #[error("no CR LF after the data of a chunk")]
    NoCrlfAfterChunkData,
    /// A lone LF stands behind the data of a chunk.
    #[error("LF without CR after the data of a chunk")]
    BareLfChunkData,
    /// A trailer field is damaged.
    #[error("trailer field: {0}")]
    Trailer(FieldRule),
    /// The peer closed before the first byte of a response.
    #[error("the connection ended before the first byte of the answer")]
    EofBeforeResponse,
    /// The peer closed after interim responses and before the final one.
    #[error("the connection ended after an interim response")]
    EofAfterInterim,
    /// The peer closed in the status line.
    #[error("the connection ended in the status line")]
    EofInStatusLine,
    /// The peer closed in the header section.
    #[error("the connection ended in the header section")]
    EofInHeader,
    /// The peer closed before `Content-Length` bytes.
    #[error("the connection ended before Content-Length bytes")]
    EofInBody,
    /// The peer closed in or right behind the data of a chunk.
    #[error("the connection ended in a chunk")]
    EofInChunk,
    /// The peer closed where a chunk line was due, or in one.
    #[error("the connection ended where a chunk size was due")]
    EofInChunkLine,
    /// The peer closed in a trailer line.
    #[error("the connection ended in a trailer line")]
    EofInTrailer,
    /// A limit of ours.
    #[error("limit: {0}")]
    Limit(SizeLimit),
}

/// What is wrong with a field line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum FieldRule {
    /// The first line of the section begins with white space.
    #[error("the first line begins with white space")]
    SpaceBeforeFirst,
    /// No colon.
    #[error("no colon")]
    NoColon,
    /// Nothing before the colon.
    #[error("the name is empty")]
    EmptyName,
    /// White space between name and colon.
    #[error("white space before the colon")]
    SpaceBeforeColon,
    /// The name is not a token.
    #[error("the name is not a token")]
    BadName,
    /// CR without LF.
    #[error("CR without LF")]
    BareCr,
    /// NUL in the value.
    #[error("NUL in the value")]
    NulInValue,
    /// Another control character in the value.
    #[error("control character in the value")]
    ControlInValue,
}

/// Which limit was reached; the numbers are in [`super::limits`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum SizeLimit {
    /// [`HEAD_BYTES_MAX`](super::limits::HEAD_BYTES_MAX).
    #[error("bytes of a response head")]
    HeadBytes,
    /// [`FIELDS_MAX`](super::limits::FIELDS_MAX), in a head.
    #[error("header fields")]
    HeadFields,
    /// [`INTERIM_MAX`](super::limits::INTERIM_MAX).
    #[error("interim responses")]
    InterimResponses,
    /// [`CHUNK_SIZE_BYTES_MAX`](super::limits::CHUNK_SIZE_BYTES_MAX).
    #[error("bytes of a chunk size")]
    ChunkSizeBytes,
    /// [`CHUNK_EXTENSION_BYTES_MAX`](super::limits::CHUNK_EXTENSION_BYTES_MAX).
    #[error("bytes of chunk extensions")]
    ChunkExtensionBytes,
    /// [`TRAILER_BYTES_MAX`](super::limits::TRAILER_BYTES_MAX).
    #[error("bytes of a trailer section")]
    TrailerBytes,
    /// [`FIELDS_MAX`](super::limits::FIELDS_MAX), in a trailer section.
    #[error("trailer fields")]
    TrailerFields,
}

impl HttpError {
    /// Every error, in the order of declaration.
    pub fn all() -> impl Iterator<Item = Self> {
        let before = [
            Self::NotHttp,
            Self::Tls,
            Self::BadVersion,
            Self::UnsupportedVersion,
            Self::NoSpaceAfterVersion,
            Self::BadStatusCode,
            Self::ControlInReason,
            Self::BareCrStatusLine,
        ];
        let between = [
            Self::ContentLengthNotDigits,
            Self::ContentLengthDiffers,
            Self::ContentLengthOverflow,
            Self::ChunkedTwice,
            Self::ChunkedParameters,
            Self::SwitchingProtocols,
            Self::BadChunkSize,
            Self::ChunkSizeOverflow,
            Self::BareCrChunkLine,
            Self::BareLfChunkLine,
            Self::NoCrlfAfterChunkData,
            Self::BareLfChunkData,
        ];
        let ends = [
            Self::EofBeforeResponse,
            Self::EofAfterInterim,
            Self::EofInStatusLine,
            Self::EofInHeader,
            Self::EofInBody,
            Self::EofInChunk,
            Self::EofInChunkLine,
            Self::EofInTrailer,
        ];
        let headers = FieldRule::ALL.into_iter().map(Self::Header);
        let trailers = FieldRule::ALL.into_iter().map(Self::Trailer);
        let limits = SizeLimit::ALL.into_iter().map(Self::Limit);
        before.into_iter().chain(headers).chain(between).chain(trailers).chain(ends).chain(limits)
    }

    /// The exact rule, by the name the case files give it.
    #[must_use]
    pub const fn rule(self) -> &'static str {
        match self {
            Self::NotHttp => "not_http",
            Self::Tls => "tls_record",
            Self::BadVersion => "bad_version",
            Self::UnsupportedVersion => "unsupported_version",
            Self::NoSpaceAfterVersion => "no_sp_after_version",
            Self::BadStatusCode => "bad_status_code",
            Self::ControlInReason => "ctl_in_reason",
            Self::BareCrStatusLine => "bare_cr_status_line",
            Self::Header(rule) => rule.names().0,
            Self::ContentLengthNotDigits => "not_digits",
            Self::ContentLengthDiffers => "differing_values",
            Self::ContentLengthOverflow => "content_length_overflow",
            Self::ChunkedTwice => "te_chunked_twice",
            Self::ChunkedParameters => "te_chunked_params",
            Self::SwitchingProtocols => "status_101",
            Self::BadChunkSize => "bad_chunk_size",
            Self::ChunkSizeOverflow => "chunk_size_overflow",
            Self::BareCrChunkLine => "bare_cr_chunk_line",
            Self::BareLfChunkLine => "bare_lf_chunk_line",
            Self::NoCrlfAfterChunkData => "no_crlf_after_chunk_data",
            Self::BareLfChunkData => "bare_lf_chunk_data",
            Self::Trailer(rule) => rule.names().1,
            Self::EofBeforeResponse => "eof_before_response",
            Self::EofAfterInterim => "eof_after_interim",
            Self::EofInStatusLine => "eof_in_status_line",
            Self::EofInHeader => "eof_in_header",
            Self::EofInBody => "eof_in_body",
            Self::EofInChunk => "eof_in_chunk",
            Self::EofInChunkLine => "eof_in_chunk_line",
            Self::EofInTrailer => "eof_in_trailer",
            Self::Limit(limit) => limit.name(),
        }
    }
}

impl FieldRule {
    /// Every rule.
    pub const ALL: [Self; 8] = [
        Self::SpaceBeforeFirst,
        Self::NoColon,
        Self::EmptyName,
        Self::SpaceBeforeColon,
        Self::BadName,
        Self::BareCr,
        Self::NulInValue,
        Self::ControlInValue,
    ];

    /// The names in the case files: of a broken header field, of a broken trailer field.
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::SpaceBeforeFirst => ("ws_before_first_header", "ws_before_first_trailer"),
            Self::NoColon => ("no_colon", "no_colon"),
            Self::EmptyName => ("empty_field_name", "empty_field_name"),
            Self::SpaceBeforeColon => ("ws_before_colon", "ws_before_colon"),
            Self::BadName => ("bad_field_name", "bad_field_name"),
            Self::BareCr => ("bare_cr_header", "bare_cr_trailer"),
            Self::NulInValue => ("nul_in_value", "nul_in_value"),
            Self::ControlInValue => ("ctl_in_value", "ctl_in_value"),
        }
    }
}

impl SizeLimit {
    /// Every limit.
    pub const ALL: [Self; 7] = [
        Self::HeadBytes,
        Self::HeadFields,
        Self::InterimResponses,
        Self::ChunkSizeBytes,
        Self::ChunkExtensionBytes,
        Self::TrailerBytes,
        Self::TrailerFields,
    ];

    /// The name in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::HeadBytes => "head_bytes",
            Self::HeadFields => "head_fields",
            Self::InterimResponses => "interim_responses",
            Self::ChunkSizeBytes => "chunk_size_bytes",
            Self::ChunkExtensionBytes => "chunk_extension_bytes",
            Self::TrailerBytes => "trailer_bytes",
            Self::TrailerFields => "trailer_fields",
        }
    }
}

/// An error and the offset of the first offending byte, counted from the first byte of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) error: HttpError,
    /// `None` where no single byte is to blame.
    pub(super) offset: Option<u64>,
}
