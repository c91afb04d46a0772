//! How a request ended: one variant per cause, so that endings are counted by variant and never by text.

/// The ending of one request. The first cause wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// 2xx, output, a terminal (or a finish reason and a clean end), no error anywhere.
    Ok,
    /// The answer ended inside its head.
    TruncatedHead,
    /// Well-formed and terminated, but nothing was generated.
    NoOutput,
    /// 2xx without an event (or only `[DONE]`), without usage and finish reason.
    EmptyResponse,
    /// Ended cleanly without a terminal and without a finish reason.
    TruncatedStream,
    /// A body of declared length or in chunks was cut short.
    TruncatedBody,
    /// The server reported an error inside the event stream.
    ServerErrorInStream,
    /// A JSON error object came as a plain body with a 2xx status.
    JsonErrorBody,
    /// Another answer than an event stream to a streamed request.
    NotAStream,
    /// An event was not JSON, and no terminal and no finish reason came.
    MalformedEvent,
    /// A status of 4xx or 5xx, or a 3xx without `Location`.
    HttpError,
    /// A 3xx with `Location`, not followed.
    Redirect,
    /// The status line cannot be read.
    BadStatusLine,
    /// A header field cannot be read.
    BadHeader,
    /// `Content-Length` is not a number, or differs between its values.
    BadContentLength,
    /// `Content-Length` and `Transfer-Encoding` contradict each other in a way that cannot be resolved.
    ConflictingFraming,
    /// The chunked coding is damaged.
    BadChunk,
    /// The trailer section is damaged.
    BadTrailer,
    /// 101 without having asked for an upgrade.
    UnexpectedUpgrade,
    /// A transfer coding other than chunked.
    UnsupportedTransferCoding,
    /// A content coding although identity was asked for.
    UnsupportedContentCoding,
    /// A size limit of ours was hit; the detail names it.
    Limit,
    /// The host name could not be resolved.
    Dns,
    /// The target refused the connection.
    ConnectRefused,
    /// The connection could not be made for another reason.
    ConnectFailed,
    /// The TLS handshake or its verification failed.
    Tls,
    /// This machine ran out of local ports.
    NoLocalPort,
    /// This process ran out of file descriptors.
    NoFileDescriptor,
    /// The peer closed before the first byte of the answer.
    EofBeforeResponse,
    /// The peer reset the connection before the first byte of the answer.
    ResetBeforeResponse,
    /// The peer reset the connection after the first byte of the answer.
    ResetMidstream,
    /// The connection was not made in time.
    TimeoutConnect,
    /// No output came in time.
    TimeoutFirstOutput,
    /// No byte came in time.
    TimeoutIdle,
    /// The request took longer than its deadline.
    TimeoutTotal,
    /// The answer does not begin with its own marker, or holds another request's.
    CanaryFailed,
    /// The answer is not the text that was asked for, and the policy is strict.
    ControlledOutputFailed,
    /// Cut by the run's own end.
    Incomplete,
    /// Cut on purpose, by the plan.
    Cancelled,
    /// A fault of our own.
    Internal,
}

/// Whose fault an ending is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// Nobody's: the request succeeded, or we ended it on purpose.
    Nobody,
    /// The server or something between it and us.
    Server,
    /// This machine or this process: such endings make the verdict invalid.
    Client,
}

impl Outcome {
    /// Every outcome, in the order of declaration.
    pub const ALL: [Self; 40] = [
        Self::Ok,
        Self::TruncatedHead,
        Self::NoOutput,
        Self::EmptyResponse,
        Self::TruncatedStream,
        Self::TruncatedBody,
        Self::ServerErrorInStream,
        Self::JsonErrorBody,
        Self::NotAStream,
        Self::MalformedEvent,
        Self::HttpError,
        Self::Redirect,
        Self::BadStatusLine,
        Self::BadHeader,
        Self::BadContentLength,
        Self::ConflictingFraming,
        Self::BadChunk,
        Self::BadTrailer,
        Self::UnexpectedUpgrade,
        Self::UnsupportedTransferCoding,
        Self::UnsupportedContentCoding,
        Self::Limit,
        Self::Dns,
        Self::ConnectRefused,
        Self::ConnectFailed,
        Self::Tls,
        Self::NoLocalPort,
        Self::NoFileDescriptor,
        Self::EofBeforeResponse,
        Self::ResetBeforeResponse,
        Self::ResetMidstream,
        Self::TimeoutConnect,
        Self::TimeoutFirstOutput,
        Self::TimeoutIdle,
        Self::TimeoutTotal,
        Self::CanaryFailed,
        Self::ControlledOutputFailed,
        Self::Incomplete,
        Self::Cancelled,
        Self::Internal,
    ];

    /// The name in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::TruncatedHead => "truncated_head",
            Self::NoOutput => "no_output",
            Self::EmptyResponse => "empty_response",
            Self::TruncatedStream => "truncated_stream",
            Self::TruncatedBody => "truncated_body",
            Self::ServerErrorInStream => "server_error_in_stream",
            Self::JsonErrorBody => "json_error_body",
            Self::NotAStream => "not_a_stream",
            Self::MalformedEvent => "malformed_event",
            Self::HttpError => "http_error",
            Self::Redirect => "redirect",
            Self::BadStatusLine => "bad_status_line",
            Self::BadHeader => "bad_header",
            Self::BadContentLength => "bad_content_length",
            Self::ConflictingFraming => "conflicting_framing",
            Self::BadChunk => "bad_chunk",
            Self::BadTrailer => "bad_trailer",
            Self::UnexpectedUpgrade => "unexpected_upgrade",
            Self::UnsupportedTransferCoding => "unsupported_transfer_coding",
            Self::UnsupportedContentCoding => "unsupported_content_coding",
            Self::Limit => "limit",
            Self::Dns => "dns",
            Self::ConnectRefused => "connect_refused",
            Self::ConnectFailed => "connect_failed",
            Self::Tls => "tls",
            Self::NoLocalPort => "no_local_port",
            Self::NoFileDescriptor => "no_file_descriptor",
            Self::EofBeforeResponse => "eof_before_response",
            Self::ResetBeforeResponse => "reset_before_response",
            Self::ResetMidstream => "reset_midstream",
            Self::TimeoutConnect => "timeout_connect",
            Self::TimeoutFirstOutput => "timeout_first_output",
            Self::TimeoutIdle => "timeout_idle",
            Self::TimeoutTotal => "timeout_total",
            Self::CanaryFailed => "canary_failed",
            Self::ControlledOutputFailed => "controlled_output_failed",
            Self::Incomplete => "incomplete",
            Self::Cancelled => "cancelled",
            Self::Internal => "internal",
        }
    }

    /// Whether the ending counts as failed: everything except `ok`, `incomplete` and `cancelled`.
    #[must_use]
    pub const fn is_failed(self) -> bool {
        !matches!(self, Self::Ok | Self::Incomplete | Self::Cancelled)
    }

    /// Whose fault the ending is.
    #[must_use]
    pub const fn fault(self) -> Fault {
        match self {
            Self::Ok | Self::Incomplete | Self::Cancelled => Fault::Nobody,
            Self::NoLocalPort | Self::NoFileDescriptor | Self::Internal => Fault::Client,
            _ => Fault::Server,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_is_listed_once_and_has_its_own_name() {
        let mut names: Vec<_> = Outcome::ALL.iter().map(|o| o.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Outcome::ALL.len());
        for (i, o) in Outcome::ALL.iter().enumerate() {
            assert_eq!(*o as usize, i, "{o:?} is out of order");
        }
    }
}
