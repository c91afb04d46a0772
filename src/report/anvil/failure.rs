//! `failures`: which requests the reference would not have counted, and what it would have said about them.
//!
//! The reference's rules are not ours: it needs visible content, ignores a broken event, and reads on after an error
//! object only in its older versions. So a request is judged here from its row, in the reference's order; our outcome
//! decides alone only where the reference's client would have raised an exception. That mapping is one table,
//! `exception`; messages are those of CPython 3.11's `urllib` and `http.client` on Linux.

use std::borrow::Cow;

use serde::Serialize;

use crate::metrics::row::RequestRow;
use crate::record::Outcome;
use crate::report::anvil::timing::{Canary, ControlledOutput, Timing, token_source};

/// Longest error message, in characters.
const MAX_MESSAGE_CHARS: usize = 2048;

/// The reference has no end of a run that cuts requests; this is what a cancelled future of its pool raises.
const CANCELLED: &str = "CancelledError";

/// One failed request. Fields are in the order of the document's keys; what the reference leaves out is left out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Failure {
    /// Controlled output, when it was evaluated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controlled_output: Option<ControlledOutput>,
    /// From due (a slot was free) to the end of the request; absent when the runner itself failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elapsed_ms: Option<Option<f64>>,
    /// One sentence.
    pub error_message: String,
    /// The message was longer.
    pub error_message_truncated: bool,
    /// The exception's class in Python.
    pub error_type: &'static str,
    /// Which contract was broken.
    pub failure_class: Class,
    /// Always false.
    pub performance_eligible: bool,
    /// The plan's context target; absent when the runner itself failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub planned_context_tokens: Option<Option<u64>>,
    /// Canary, when it was evaluated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_canary: Option<Canary>,
    /// Position in the plan.
    pub request_index: u64,
    /// What the response was; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_metadata: Option<ResponseMetadata>,
    /// The stream was read to its end.
    pub response_received: bool,
    /// The row it would have been; absent without a response, null when it has no time to first token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_timing: Option<Option<Timing>>,
}

/// Which contract a failed request broke, in the order of evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// An exception while streaming.
    RequestError,
    /// No visible content, or no terminal.
    StreamValidationFailed,
    /// The canary did not pass.
    RequestCanaryFailed,
    /// The policy is strict and the output is not exact.
    ControlledOutputFailed,
    /// An exception of the runner.
    RunnerError,
}

/// `response_metadata`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ResponseMetadata {
    /// Deltas with visible content.
    pub content_chunks: u64,
    /// Finish reasons, in order of arrival.
    pub finish_reasons: Vec<String>,
    /// Where the output tokens come from.
    pub output_token_source: &'static str,
    /// Deltas with reasoning.
    pub reasoning_chunks: u64,
    /// `[DONE]` or a finish reason was seen.
    pub stream_terminal_observed: bool,
    /// What the server counted.
    pub usage: UsageMetadata,
    /// The captured text is not all of it.
    pub visible_content_truncated: bool,
}

/// `response_metadata.usage`: only what the server sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UsageMetadata {
    /// `completion_tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_tokens: Option<u64>,
    /// `prompt_tokens`, as in the timing of a valid request: of the whole prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u64>,
    /// `total_tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_tokens: Option<u64>,
}

/// Why a request does not count.
struct Reason {
    class: Class,
    error_type: &'static str,
    message: Cow<'static, str>,
}

impl Failure {
    /// Judges a request by the reference's rules; `None` when it is valid.
    #[must_use]
    pub fn of(row: &RequestRow) -> Option<Self> {
        let reason = judge(row)?;
        let received = !matches!(reason.class, Class::RequestError | Class::RunnerError);
        let observed = matches!(reason.class, Class::RequestCanaryFailed | Class::ControlledOutputFailed);
        let by_worker = reason.class != Class::RunnerError;
        let (error_message, error_message_truncated) = bounded(&reason.message);
        let timing = Timing::of(row).map(|timing| if observed { timing.observed(row) } else { timing });
        Some(Self {
            controlled_output: row.controlled_output.as_ref().filter(|_| observed).map(ControlledOutput::of),
            elapsed_ms: by_worker.then(|| elapsed_ms(row)),
            error_message,
            error_message_truncated,
            error_type: reason.error_type,
            failure_class: reason.class,
            performance_eligible: false,
            planned_context_tokens: by_worker.then_some(row.planned_context_tokens),
            request_canary: row.canary.as_ref().filter(|_| observed).map(Canary::of),
            request_index: row.request_index,
            response_metadata: received.then(|| ResponseMetadata::of(row)),
            response_received: received,
            response_timing: received.then_some(timing),
        })
    }
}

impl Failure {
    /// A request of the plan that was never sent, because the run ended before its turn. Its context target is not known
    /// any more.
    #[must_use]
    pub fn never_sent(request_index: u64) -> Self {
        Self {
            controlled_output: None,
            elapsed_ms: Some(Some(0.0)),
            error_message: "not sent: the run ended before".to_owned(),
            error_message_truncated: false,
            error_type: CANCELLED,
            failure_class: Class::RequestError,
            performance_eligible: false,
            planned_context_tokens: Some(None),
            request_canary: None,
            request_index,
            response_metadata: None,
            response_received: false,
            response_timing: None,
        }
    }
}

impl ResponseMetadata {
    fn of(row: &RequestRow) -> Self {
        Self {
            content_chunks: row.counters.content_deltas,
            finish_reasons: row.finish_reasons.iter().map(|(_, reason)| reason.clone()).collect(),
            output_token_source: token_source(row),
            reasoning_chunks: row.counters.reasoning_deltas,
            stream_terminal_observed: terminal_observed(row),
            usage: UsageMetadata {
                completion_tokens: row.usage.completion_tokens,
                prompt_tokens: row.usage.whole_prompt_tokens(),
                total_tokens: row.usage.total_tokens,
            },
            visible_content_truncated: row.visible_content_truncated,
        }
    }
}

fn judge(row: &RequestRow) -> Option<Reason> {
    let value_error =
        |class, message| Some(Reason { class, error_type: "ValueError", message: Cow::Borrowed(message) });
    if let Some(reason) = exception(row) {
        return Some(reason);
    }
    if row.counters.content_deltas == 0 {
        return value_error(Class::StreamValidationFailed, "stream completed without visible content");
    }
    if !terminal_observed(row) {
        return value_error(
            Class::StreamValidationFailed,
            "stream ended without a terminal event or finish reason",
        );
    }
    if row.canary.as_ref().is_some_and(|canary| !canary.passed) {
        return value_error(Class::RequestCanaryFailed, "request canary validation failed");
    }
    if row.controlled_output.as_ref().is_some_and(|output| !output.passed) {
        return value_error(Class::ControlledOutputFailed, "controlled output validation failed");
    }
    None
}

fn terminal_observed(row: &RequestRow) -> bool {
    row.at.terminal.is_some() || !row.finish_reasons.is_empty()
}

/// The table: which of our outcomes are exceptions in the reference's client, and which. `None` for the outcomes with
/// which it would have read the stream to its end and judged what it saw.
fn exception(row: &RequestRow) -> Option<Reason> {
    let raised = |error_type, message: Cow<'static, str>| {
        Some(Reason { class: Class::RequestError, error_type, message })
    };
    let fixed = |error_type, message: &'static str| raised(error_type, Cow::Borrowed(message));
    let url_error = |cause: &str| raised("URLError", format!("<urlopen error {cause}>").into());
    match row.outcome {
        Outcome::Ok
        | Outcome::NoOutput
        | Outcome::EmptyResponse
        | Outcome::TruncatedStream
        | Outcome::JsonErrorBody
        | Outcome::NotAStream
        | Outcome::MalformedEvent
        | Outcome::CanaryFailed
        | Outcome::ControlledOutputFailed => None,
        Outcome::HttpError | Outcome::Redirect => raised("HTTPError", http_error(row)),
        Outcome::Dns => url_error("[Errno -2] Name or service not known"),
        Outcome::ConnectRefused => url_error("[Errno 111] Connection refused"),
        Outcome::NoLocalPort => url_error("[Errno 99] Cannot assign requested address"),
        Outcome::NoFileDescriptor => url_error("[Errno 24] Too many open files"),
        Outcome::TimeoutConnect => url_error("timed out"),
        Outcome::ConnectFailed | Outcome::Tls => url_error(&detail(row)),
        Outcome::TimeoutFirstOutput | Outcome::TimeoutIdle | Outcome::TimeoutTotal => {
            fixed("TimeoutError", "timed out")
        }
        Outcome::EofBeforeResponse | Outcome::TruncatedHead => {
            fixed("RemoteDisconnected", "Remote end closed connection without response")
        }
        Outcome::ResetBeforeResponse | Outcome::ResetMidstream => {
            fixed("ConnectionResetError", "[Errno 104] Connection reset by peer")
        }
        Outcome::TruncatedBody | Outcome::BadChunk | Outcome::BadTrailer => {
            fixed("IncompleteRead", "IncompleteRead(0 bytes read)")
        }
        Outcome::ServerErrorInStream => {
            raised("ValueError", format!("upstream sent an SSE error: {}", detail(row)).into())
        }
        Outcome::BadStatusLine => raised("BadStatusLine", detail(row).into()),
        Outcome::Limit => raised("LineTooLong", detail(row).into()),
        Outcome::BadHeader
        | Outcome::BadContentLength
        | Outcome::ConflictingFraming
        | Outcome::UnexpectedUpgrade
        | Outcome::UnsupportedTransferCoding
        | Outcome::UnsupportedContentCoding => raised("HTTPException", detail(row).into()),
        Outcome::Incomplete | Outcome::Cancelled => raised(CANCELLED, detail(row).into()),
        Outcome::Internal => Some(Reason {
            class: Class::RunnerError,
            error_type: "RuntimeError",
            message: detail(row).into(),
        }),
    }
}

/// What is known, else the name of the outcome.
fn detail(row: &RequestRow) -> String {
    let message = row.error.as_ref().map(|error| error.message.trim()).filter(|message| !message.is_empty());
    message.unwrap_or(row.outcome.name()).to_owned()
}

/// `str` of an `HTTPError`.
fn http_error(row: &RequestRow) -> Cow<'static, str> {
    match row.http_status {
        Some(status) => format!("HTTP Error {status}: {}", reason_phrase(status)).into(),
        None => detail(row).into(),
    }
}

/// From due to the end.
fn elapsed_ms(row: &RequestRow) -> Option<f64> {
    Some(row.at.end.or(row.at.terminal)?.since(row.due)?.as_millis_f64())
}

fn bounded(message: &str) -> (String, bool) {
    let mut chars = message.chars();
    let kept: String = chars.by_ref().take(MAX_MESSAGE_CHARS).collect();
    let truncated = chars.next().is_some();
    if kept.is_empty() { ("<empty exception message>".to_owned(), truncated) } else { (kept, truncated) }
}

/// The usual phrase of a status (RFC 9110 section 15, RFC 6585, RFC 7538; names as CPython 3.11 has them). The phrase that was sent is not
/// kept, because it means nothing in HTTP; the reference prints it.
const fn reason_phrase(status: u16) -> &'static str {
    match status {
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        305 => "Use Proxy",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Request Entity Too Large",
        414 => "Request-URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Requested Range Not Satisfiable",
        417 => "Expectation Failed",
        418 => "I'm a Teapot",
        421 => "Misdirected Request",
        422 => "Unprocessable Entity",
        424 => "Failed Dependency",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        508 => "Loop Detected",
        510 => "Not Extended",
        511 => "Network Authentication Required",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::row::{CanaryObservation, ControlledOutputObservation};
    use crate::metrics::testing::row;
    use crate::record::{ErrorDetail, Usage};
    use crate::units::Nanos;

    fn ended(outcome: Outcome) -> RequestRow {
        let mut row = row(3);
        row.outcome = outcome;
        row.error = Some(ErrorDetail { message: "what was seen".to_owned(), ..ErrorDetail::default() });
        row
    }

    fn judged(row: &RequestRow) -> (Class, &'static str, String) {
        let failure = Failure::of(row).unwrap();
        (failure.failure_class, failure.error_type, failure.error_message)
    }

    #[test]
    fn a_plain_success_is_valid() {
        assert_eq!(Failure::of(&row(0)), None);
    }

    #[test]
    fn every_outcome_has_its_words() {
        use Outcome::*;
        for outcome in Outcome::ALL {
            let mut row = ended(outcome);
            row.http_status = Some(503);
            let want = match outcome {
                // The reference would have found nothing wrong with the stream of this row.
                Ok
                | NoOutput
                | EmptyResponse
                | TruncatedStream
                | JsonErrorBody
                | NotAStream
                | MalformedEvent
                | CanaryFailed
                | ControlledOutputFailed => None,
                HttpError | Redirect => Some(("HTTPError", "HTTP Error 503: Service Unavailable")),
                Dns => Some(("URLError", "<urlopen error [Errno -2] Name or service not known>")),
                ConnectRefused => Some(("URLError", "<urlopen error [Errno 111] Connection refused>")),
                NoLocalPort => {
                    Some(("URLError", "<urlopen error [Errno 99] Cannot assign requested address>"))
                }
                NoFileDescriptor => Some(("URLError", "<urlopen error [Errno 24] Too many open files>")),
                TimeoutConnect => Some(("URLError", "<urlopen error timed out>")),
                ConnectFailed | Tls => Some(("URLError", "<urlopen error what was seen>")),
                TimeoutFirstOutput | TimeoutIdle | TimeoutTotal => Some(("TimeoutError", "timed out")),
                EofBeforeResponse | TruncatedHead => {
                    Some(("RemoteDisconnected", "Remote end closed connection without response"))
                }
                ResetBeforeResponse | ResetMidstream => {
                    Some(("ConnectionResetError", "[Errno 104] Connection reset by peer"))
                }
                TruncatedBody | BadChunk | BadTrailer => {
                    Some(("IncompleteRead", "IncompleteRead(0 bytes read)"))
                }
                ServerErrorInStream => Some(("ValueError", "upstream sent an SSE error: what was seen")),
                BadStatusLine => Some(("BadStatusLine", "what was seen")),
                Limit => Some(("LineTooLong", "what was seen")),
                BadHeader
                | BadContentLength
                | ConflictingFraming
                | UnexpectedUpgrade
                | UnsupportedTransferCoding
                | UnsupportedContentCoding => Some(("HTTPException", "what was seen")),
                Incomplete | Cancelled => Some(("CancelledError", "what was seen")),
                Internal => Some(("RuntimeError", "what was seen")),
            };
            let failure = Failure::of(&row);
            let got = failure.as_ref().map(|f| (f.error_type, f.error_message.as_str()));
            assert_eq!(got, want, "{outcome:?}");
            let Some(failure) = failure else { continue };
            let class = if outcome == Internal { Class::RunnerError } else { Class::RequestError };
            assert_eq!(failure.failure_class, class, "{outcome:?}");
            // A broken request keeps no partial timing and no observation, and the keys are absent, not null.
            let keys = serde_json::to_value(&failure).unwrap();
            let mut want = vec!["error_message", "error_message_truncated", "error_type", "failure_class"];
            want.extend(["performance_eligible", "request_index", "response_received"]);
            if outcome != Internal {
                want.extend(["elapsed_ms", "planned_context_tokens"]);
            }
            want.sort_unstable();
            assert_eq!(keys.as_object().unwrap().keys().collect::<Vec<_>>(), want, "{outcome:?}");
            assert_eq!((failure.response_received, failure.request_index), (false, 3));
        }
    }

    #[test]
    fn messages_without_detail_name_the_outcome() {
        let mut row = ended(Outcome::Tls);
        row.error = None;
        assert_eq!(judged(&row).2, "<urlopen error tls>");
        row.outcome = Outcome::HttpError;
        row.http_status = None;
        assert_eq!(judged(&row).2, "http_error");
        row.http_status = Some(599);
        assert_eq!(judged(&row).2, "HTTP Error 599: ");
    }

    #[test]
    fn long_messages_are_cut_by_characters() {
        let mut row = ended(Outcome::Limit);
        row.error = Some(ErrorDetail { message: "é".repeat(2049), ..ErrorDetail::default() });
        let failure = Failure::of(&row).unwrap();
        assert_eq!(failure.error_message, "é".repeat(2048));
        assert!(failure.error_message_truncated);
        row.error = Some(ErrorDetail { message: "é".repeat(2048), ..ErrorDetail::default() });
        assert!(!Failure::of(&row).unwrap().error_message_truncated);
        assert_eq!(bounded(""), ("<empty exception message>".to_owned(), false));
    }

    #[test]
    fn visible_content_and_a_terminal_are_required_in_this_order() {
        let mut row = row(0);
        row.finish_reasons.clear();
        row.at.terminal = None;
        let want = "stream ended without a terminal event or finish reason";
        assert_eq!(judged(&row), (Class::StreamValidationFailed, "ValueError", want.to_owned()));
        // Reasoning alone is ok for us and not for the reference.
        row.counters.content_deltas = 0;
        row.at.first_content = None;
        let want = "stream completed without visible content";
        assert_eq!(judged(&row), (Class::StreamValidationFailed, "ValueError", want.to_owned()));
        let failure = Failure::of(&row).unwrap();
        assert!(failure.response_received);
        assert_eq!(failure.response_timing, Some(None), "null without a time to first token");
        let metadata = failure.response_metadata.unwrap();
        assert_eq!((metadata.reasoning_chunks, metadata.stream_terminal_observed), (2, false));
    }

    #[test]
    fn a_finish_reason_alone_or_done_alone_is_a_terminal() {
        let mut by_reason = row(0);
        by_reason.at.terminal = None;
        assert_eq!(Failure::of(&by_reason), None);
        let mut by_done = row(0);
        by_done.finish_reasons.clear();
        assert_eq!(Failure::of(&by_done), None);
    }

    fn observed(canary_passed: bool, output_passed: bool) -> RequestRow {
        let mut row = row(0);
        row.canary = Some(CanaryObservation {
            marker: "ANVIL_REQ_0_00000".to_owned(),
            marker_at_start: canary_passed,
            observed_marker_count: 1,
            foreign_marker_count: 0,
            capture_complete: true,
            passed: canary_passed,
        });
        row.controlled_output = Some(ControlledOutputObservation {
            requested_words: 64,
            strict: true,
            observed_code_words: 63,
            observed_extra_words: 0,
            capture_complete: true,
            exact_adherence: Some(output_passed),
            passed: output_passed,
        });
        row
    }

    #[test]
    fn the_canary_is_judged_before_controlled_output_and_both_are_kept() {
        assert_eq!(Failure::of(&observed(true, true)), None);
        assert_eq!(judged(&observed(true, false)).0, Class::ControlledOutputFailed);
        assert_eq!(judged(&observed(false, true)).0, Class::RequestCanaryFailed);
        let failure = Failure::of(&observed(false, false)).unwrap();
        assert_eq!(failure.failure_class, Class::RequestCanaryFailed);
        assert_eq!(failure.error_message, "request canary validation failed");
        let timing = failure.response_timing.unwrap().unwrap();
        assert_eq!(timing.request_canary, failure.request_canary);
        assert_eq!(timing.controlled_output, failure.controlled_output);
        assert!(failure.request_canary.is_some() && failure.controlled_output.is_some());
    }

    #[test]
    fn a_stream_that_is_not_valid_has_no_observations() {
        let mut row = observed(false, false);
        row.finish_reasons.clear();
        row.at.terminal = None;
        let failure = Failure::of(&row).unwrap();
        assert_eq!(failure.failure_class, Class::StreamValidationFailed);
        assert_eq!((failure.request_canary, failure.controlled_output), (None, None));
        assert_eq!(failure.response_timing.unwrap().unwrap().request_canary, None);
    }

    #[test]
    fn elapsed_time_runs_from_due_and_only_counts_that_were_sent_stand_in_usage() {
        let mut row = ended(Outcome::TimeoutTotal);
        row.due = Nanos::from_millis(-4);
        assert_eq!(Failure::of(&row).unwrap().elapsed_ms, Some(Some(136.0)));
        let mut row = observed(false, true);
        row.usage = Usage { prompt_tokens: Some(7), ..Usage::default() };
        let metadata = Failure::of(&row).unwrap().response_metadata.unwrap();
        assert_eq!(serde_json::to_value(metadata.usage).unwrap(), serde_json::json!({"prompt_tokens": 7}));
        assert_eq!(metadata.output_token_source, "content_chunks");
    }
}
