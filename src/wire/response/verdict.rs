//! What an answer means for its request, from where it stood when it ended and what ended it. The first cause wins.
//!
//! | what is known | decided by |
//! |---|---|
//! | no head | the end: nothing came, a part of it came, it is no HTTP |
//! | a status that is no success, a redirect, a coding | the head, whatever becomes of the body |
//! | a terminal, an error that the server reported | its event, whatever follows |
//! | any other event stream | the end: complete, cut, reset, damaged, a limit |
//! | something that is no stream | the end if that is a fault, unless a whole error object came before it; else the body |
//! | a JSON answer that was not to be streamed | the same, and the body is undecided while it is under way |
//! | anything, over plain HTTP | the end alone |
//!
//! To a request that asked for no stream, `not_a_stream` means nothing: what is no JSON there is `malformed_event`, the
//! one event of such an answer being its body. JSON that breaks off is `truncated_body` however well its framing ends,
//! and JSON that has nothing of an answer is `empty_response`, as is a stream whose events have no meaning.
//!
//! Ends from outside, a deadline for instance, are the caller's: then an answer that is undecided here stays so.

use super::body::{Body, Plain, WHOLE_BODY_BYTES, error_in_stream};
use crate::record::{ErrorDetail, Outcome};
use crate::wire::dialect::plain::{read_error_body, read_failure_body};
use crate::wire::dialect::{BodyEnding, Dialect, MAX_MESSAGE_CHARS};
use crate::wire::http1::{Framing, Head, HttpError, ResponseDecoder};
use crate::wire::sse::SseError;

/// How much of a body that is no stream is kept in a record: the first 4 KiB hold what a person looks for.
pub const BODY_START_BYTES: usize = 4 * 1024;

/// The detail is `None` with [`Outcome::Ok`] alone.
pub(super) type Verdict = (Outcome, Option<ErrorDetail>);

/// What ended an answer.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ending<'a> {
    /// Its body is complete.
    Clean,
    /// The peer closed too early, or the bytes are no HTTP.
    Http(HttpError),
    /// The connection broke, in the kernel's words.
    Reset(&'a str),
    /// A limit of the event stream.
    Limit(SseError),
    /// The limit of an answer that is kept whole.
    TooLong,
    /// Nothing of its own: the caller has read enough, or waited enough.
    GivenUp,
}

/// What the head decides about the body; `None` leaves it to the body's first bytes. Plain HTTP does not look into
/// bodies, so a coding is nothing to it.
pub(super) fn of_head(head: &Head, dialect: Dialect) -> Option<Plain> {
    match head.status() {
        300..400 if head.location().is_some() => Some(Plain::Redirect),
        200..300 if dialect == Dialect::Http => None,
        200..300 if head.content_encoding().is_some() || head.body_is_coded() => Some(Plain::Coded),
        200..300 => None,
        _ => Some(Plain::Failure),
    }
}

/// Judges an answer that ended before its head was complete. `begun`: a byte of it came, an interim answer's too.
pub(super) fn of_head_that_ended(
    decoder: &ResponseDecoder,
    begun: bool,
    ending: Ending<'_>,
) -> Option<Verdict> {
    match ending {
        Ending::Http(error) => Some(of_http(error, decoder)),
        Ending::Reset(message) if begun => Some(says(Outcome::ResetMidstream, message)),
        Ending::Reset(message) => Some(says(Outcome::ResetBeforeResponse, message)),
        Ending::Clean | Ending::Limit(_) | Ending::TooLong | Ending::GivenUp => None,
    }
}

/// Judges an answer whose head was complete.
pub(super) fn of_answer(body: &mut Body, decoder: &ResponseDecoder, ending: Ending<'_>) -> Option<Verdict> {
    match body.plain() {
        None if body.is_only_counted() => of_counted(decoder, ending),
        None if body.is_whole() => of_whole(body, decoder, ending),
        None => of_events(body, decoder, ending),
        Some(Plain::Other) => Some(of_other(body, decoder, ending)),
        Some(plain) => Some(of_refused(plain, body, decoder)),
    }
}

fn of_events(body: &mut Body, decoder: &ResponseDecoder, ending: Ending<'_>) -> Option<Verdict> {
    let account = &mut body.account;
    let until_eof = decoder.head().is_some_and(|head| head.framing() == Framing::UntilEof);
    // What is complete with its terminal cannot be cut behind it when no length was promised.
    let ended_well = until_eof && account.done();
    let cut = if ended_well { BodyEnding::CleanEnd } else { BodyEnding::CutShort };
    if account.is_decided() {
        let ending = if matches!(ending, Ending::Clean) { BodyEnding::CleanEnd } else { cut };
        return Some(account.conclude(ending));
    }
    if matches!(ending, Ending::Clean) {
        Some(account.conclude(BodyEnding::CleanEnd))
    } else {
        of_end(decoder, ending)
    }
}

/// A JSON answer that was not to be streamed.
fn of_whole(body: &mut Body, decoder: &ResponseDecoder, ending: Ending<'_>) -> Option<Verdict> {
    let (outcome, detail) = if matches!(ending, Ending::Clean) {
        body.account.conclude(BodyEnding::CleanEnd)
    } else if let Some(said) = read_error_body(body.whole()) {
        (Outcome::JsonErrorBody, Some(said))
    } else {
        of_end(decoder, ending)?
    };
    Some((outcome, detail.map(|detail| with_start(detail, body.take_start()))))
}

/// A body that is not looked into.
fn of_counted(decoder: &ResponseDecoder, ending: Ending<'_>) -> Option<Verdict> {
    if matches!(ending, Ending::Clean) { Some((Outcome::Ok, None)) } else { of_end(decoder, ending) }
}

/// What an end says by itself about a body that decided nothing; `None` when it says nothing either.
fn of_end(decoder: &ResponseDecoder, ending: Ending<'_>) -> Option<Verdict> {
    let limit = |message: String, offset: u64| {
        let detail = ErrorDetail { message, offset: Some(offset), ..ErrorDetail::default() };
        (Outcome::Limit, Some(detail))
    };
    match ending {
        Ending::Clean | Ending::GivenUp => None,
        Ending::Http(error) => Some(of_http(error, decoder)),
        Ending::Reset(message) => Some(says(Outcome::ResetMidstream, message)),
        Ending::Limit(error) => Some(limit(error.to_string(), error.offset())),
        Ending::TooLong => {
            let message = format!("the answer has more than {WHOLE_BODY_BYTES} bytes");
            Some(limit(message, WHOLE_BODY_BYTES as u64))
        }
    }
}

/// Something else than was asked for, with a success for its status.
fn of_other(body: &mut Body, decoder: &ResponseDecoder, ending: Ending<'_>) -> Verdict {
    let start = body.take_start();
    if let Some(said) = read_error_body(&start) {
        return (Outcome::JsonErrorBody, Some(with_start(said, start)));
    }
    let content_type = decoder.head().and_then(Head::content_type);
    if let Some(said) = error_in_stream(content_type, &start) {
        return (Outcome::ServerErrorInStream, Some(with_start(said, start)));
    }
    let (outcome, detail) = match ending {
        Ending::Http(error) => of_http(error, decoder),
        Ending::Reset(message) => says(Outcome::ResetMidstream, message),
        Ending::Clean | Ending::Limit(_) | Ending::TooLong | Ending::GivenUp => {
            let content_type = content_type.map_or("none".to_owned(), lossy);
            let (outcome, what) = if body.is_stream_expected() {
                (Outcome::NotAStream, "event stream")
            } else {
                (Outcome::MalformedEvent, "JSON")
            };
            says(
                outcome,
                &format!("the answer is no {what} (content type: {content_type}): {}", beginning(&start)),
            )
        }
    };
    (outcome, Some(with_start(detail.unwrap_or_default(), start)))
}

/// A body that was no stream before it was read, or is compressed.
fn of_refused(plain: Plain, body: &mut Body, decoder: &ResponseDecoder) -> Verdict {
    let start = body.take_start();
    let Some(head) = decoder.head() else { return (Outcome::Internal, None) };
    let coded = coding(plain, head);
    let outcome = match plain {
        Plain::Redirect => Outcome::Redirect,
        Plain::Coded => Outcome::UnsupportedContentCoding,
        Plain::Failure | Plain::Other => Outcome::HttpError,
    };
    // What is compressed says nothing to a reader.
    let said = if coded.is_some() { None } else { read_failure_body(&start) };
    let mut detail = with_start(said.unwrap_or_default(), start);
    detail.retry_after = head.retry_after().map(lossy);
    detail.location = head.location().map(lossy);
    if detail.message.is_empty() {
        detail.message = match coded {
            Some(coding) if plain == Plain::Coded => coding,
            _ => format!("status {} {}", head.status(), lossy(head.reason())).trim().to_owned(),
        };
    }
    (outcome, Some(detail))
}

/// How the body is coded, in a sentence; `None` when it is not.
fn coding(plain: Plain, head: &Head) -> Option<String> {
    if let Some(coding) = head.content_encoding() {
        return Some(format!("the body is coded although identity was asked for: {}", lossy(coding)));
    }
    if head.body_is_coded() {
        return Some("the body has a transfer coding beside chunked".to_owned());
    }
    (plain == Plain::Coded).then(|| "the body is compressed and no field of the head says so".to_owned())
}

fn of_http(error: HttpError, decoder: &ResponseDecoder) -> Verdict {
    let (_, detail) = says(error.outcome(), &error.to_string());
    let offset = decoder.error_offset();
    (error.outcome(), detail.map(|detail| ErrorDetail { offset, ..detail }))
}

fn says(outcome: Outcome, message: &str) -> Verdict {
    (outcome, Some(ErrorDetail { message: message.to_owned(), ..ErrorDetail::default() }))
}

/// How a body begins, for a person to recognise it.
pub fn beginning(start: &[u8]) -> String {
    /// Enough to tell a page of HTML from a line of text.
    const CHARS: usize = 40;

    let text: String = lossy(start).chars().take(CHARS).collect();
    format!("it begins with {text:?}")
}

fn with_start(detail: ErrorDetail, mut start: Vec<u8>) -> ErrorDetail {
    start.truncate(BODY_START_BYTES);
    start.shrink_to_fit();
    ErrorDetail { body_start: start, ..detail }
}

/// A field as text, bounded: a peer may fill its head with one.
fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().take(MAX_MESSAGE_CHARS).collect()
}
