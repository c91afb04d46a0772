//! Answers that are no event stream although one was asked for, and the bodies of failures.
//!
//! What an answer is, is decided by its first byte more than by its content type: gateways send event streams as
//! `text/plain` and error objects as `text/event-stream`.

use serde_json::Value;

use super::{ServerError, full};
use crate::record::ErrorDetail;

/// White space before the first byte that tells: gateways keep a connection alive with blank lines. Beyond this
/// the content type alone decides.
pub const MAX_UNDECIDED_BYTES: usize = 512;

/// Error bodies beyond this are not parsed. Those of the recorded engines have at most 332 bytes; one that repeats
/// a prompt of a million tokens is longer than this and says nothing in its message that is not cut off anyway.
pub const MAX_ERROR_BODY_BYTES: usize = 1 << 20;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// What the body of an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyKind {
    /// An event stream, whatever the content type says.
    EventStream,
    /// A JSON object or array, or lines of them.
    Json,
    /// HTML, text, anything else.
    Other,
    /// A compressed body, declared or not.
    Compressed,
    /// Too few bytes to tell; ask again with more. At the end of the body it means that there was nothing.
    Undecided,
}

/// Whether a content type is that of event streams; case and parameters do not matter (RFC 9110 section 8.3.1).
#[must_use]
pub fn is_event_stream_type(content_type: &[u8]) -> bool {
    media_type(content_type).eq_ignore_ascii_case(b"text/event-stream")
}

/// Says what a body is from its content type and its first bytes.
#[must_use]
pub fn classify_start(content_type: Option<&[u8]>, first_bytes: &[u8]) -> BodyKind {
    /// RFC 1952 section 2.3.1 and RFC 8878 section 3.1.1. Brotli has no magic number.
    const MAGIC_NUMBERS: [&[u8]; 2] = [&[0x1f, 0x8b], &[0x28, 0xb5, 0x2f, 0xfd]];

    for magic in MAGIC_NUMBERS {
        if first_bytes.starts_with(magic) {
            return BodyKind::Compressed;
        }
        if begins(magic, first_bytes) {
            return BodyKind::Undecided;
        }
    }
    if begins(BYTE_ORDER_MARK, first_bytes) {
        return BodyKind::Undecided;
    }
    let declared = content_type.is_some_and(is_event_stream_type);
    let rest = without_mark(first_bytes).trim_ascii_start();
    // Also when what follows came with it: what a body is must not depend on how it was cut.
    let too_late = first_bytes.len() - rest.len() >= MAX_UNDECIDED_BYTES;
    match rest.first() {
        _ if too_late && declared => BodyKind::EventStream,
        _ if too_late && content_type.is_some_and(is_json_type) => BodyKind::Json,
        _ if too_late => BodyKind::Other,
        None => BodyKind::Undecided,
        Some(b'{' | b'[') => BodyKind::Json,
        Some(b'<') => BodyKind::Other,
        Some(_) if declared => BodyKind::EventStream,
        Some(_) => undeclared_stream(rest),
    }
}

/// Whether a body holds white space only, a byte order mark before it aside.
#[must_use]
pub fn is_blank(body: &[u8]) -> bool {
    without_mark(body).trim_ascii().is_empty()
}

/// The error in a JSON body, in any of the shapes that report one; `None` when the body is not JSON or reports
/// none. Gemini wraps the object in an array.
#[must_use]
pub fn read_error_body(body: &[u8]) -> Option<ErrorDetail> {
    error_in_body(body).map(|error| error.to_detail())
}

/// The same, before it is a detail.
pub(super) fn error_in_body(body: &[u8]) -> Option<ServerError> {
    let value = parse_body(body)?;
    let object = object_of(&value)?;
    ServerError::in_object(object, object.contains_key("choices"))
}

/// What the body of a 4xx or 5xx says, in as few words as it has: the error in it, a bare message, or the text
/// itself. `None` for an empty body and for HTML, which is for a browser.
#[must_use]
pub fn read_failure_body(body: &[u8]) -> Option<ErrorDetail> {
    let text = without_mark(body).trim_ascii();
    if text.is_empty() || text.starts_with(b"<") {
        return None;
    }
    let value = parse_body(text);
    if let Some(object) = value.as_ref().and_then(object_of) {
        let error = ServerError::in_object(object, false);
        return Some(error.unwrap_or_else(|| ServerError::of_object(object)).to_detail());
    }
    Some(ServerError::of_message(&String::from_utf8_lossy(text)).to_detail())
}

/// An event stream without its content type: its first line has to look like one.
fn undeclared_stream(rest: &[u8]) -> BodyKind {
    const FIELDS: [&[u8]; 5] = [b"data", b"event", b"id", b"retry", b"error"];

    if rest.starts_with(b":") {
        return BodyKind::EventStream;
    }
    for field in FIELDS {
        if begins(field, rest) || rest == field {
            return BodyKind::Undecided;
        }
        if let Some(after) = rest.strip_prefix(field)
            && matches!(after.first(), Some(b':' | b'\n' | b'\r'))
        {
            return BodyKind::EventStream;
        }
    }
    BodyKind::Other
}

/// Whether `bytes` is a beginning of `whole`, not empty and not all of it.
fn begins(whole: &[u8], bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.len() < whole.len() && whole.starts_with(bytes)
}

pub(super) fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes)
}

fn media_type(content_type: &[u8]) -> &[u8] {
    content_type.split(|b| *b == b';').next().unwrap_or_default().trim_ascii()
}

fn is_json_type(content_type: &[u8]) -> bool {
    let media_type = media_type(content_type).to_ascii_lowercase();
    media_type == b"application/json" || media_type.ends_with(b"+json")
}

fn parse_body(body: &[u8]) -> Option<Value> {
    if body.len() > MAX_ERROR_BODY_BYTES {
        return None;
    }
    full::parse(without_mark(body)).ok().map(|parsed| parsed.value)
}

fn object_of(value: &Value) -> Option<&serde_json::Map<String, Value>> {
    match value {
        Value::Array(values) => values.first().and_then(Value::as_object),
        _ => value.as_object(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type ContentType = Option<&'static [u8]>;

    const STREAM: ContentType = Some(b"text/event-stream");
    const JSON: ContentType = Some(b"application/json");
    const TEXT: ContentType = Some(b"text/plain; charset=utf-8");

    #[test]
    fn the_first_byte_says_more_than_the_content_type() {
        use BodyKind::{Compressed, EventStream, Json, Other};
        let cases: [(ContentType, &[u8], BodyKind); 22] = [
            (STREAM, b"data: {}", EventStream),
            (STREAM, b"d", EventStream),
            (STREAM, b"\n\n: ping", EventStream),
            (STREAM, b"\xef\xbb\xbfdata:x", EventStream),
            (Some(b"Text/Event-Stream; charset=UTF-8"), b"x", EventStream),
            (STREAM, b"{\"error\":1}", Json),
            (STREAM, b" \n[{}]", Json),
            (STREAM, b"<html>", Other),
            (JSON, b"{\"a\":1}", Json),
            (Some(b"application/x-ndjson"), b"{\"a\":1}\n{\"a\":2}", Json),
            (JSON, b"data: {}", EventStream),
            (TEXT, b"data:{}", EventStream),
            (TEXT, b"event: error", EventStream),
            (TEXT, b": comment", EventStream),
            (TEXT, b"data\n", EventStream),
            (TEXT, b"database", Other),
            (TEXT, b"Internal Server Error", Other),
            (None, b"retry: 5", EventStream),
            (None, b"<!doctype html>", Other),
            (None, b"{", Json),
            (STREAM, b"\x1f\x8b\x08", Compressed),
            (JSON, b"\x28\xb5\x2f\xfd", Compressed),
        ];
        for (content_type, bytes, kind) in cases {
            assert_eq!(classify_start(content_type, bytes), kind, "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn too_few_bytes_are_undecided_and_every_prefix_leads_to_the_same_answer() {
        let wholes: [(ContentType, &[u8]); 8] = [
            (STREAM, b"\r\n\r\ndata: x"),
            (TEXT, b"\xef\xbb\xbf event: x"),
            (TEXT, b"retry: 1"),
            (None, b"error: {}"),
            (None, b"\x1f\x8b\x08"),
            (None, b"\x28\xb5\x2f\xfd"),
            (JSON, b"\n\n\n{\"a\":1}"),
            (None, b"idle"),
        ];
        for (content_type, whole) in wholes {
            let kind = classify_start(content_type, whole);
            assert_ne!(kind, BodyKind::Undecided);
            for end in 0..whole.len() {
                let early = classify_start(content_type, &whole[..end]);
                assert!(early == BodyKind::Undecided || early == kind, "{end} of {whole:x?}: {early:?}");
            }
        }
        assert_eq!(classify_start(STREAM, b""), BodyKind::Undecided);
    }

    #[test]
    fn endless_blank_lines_are_decided_by_the_content_type() {
        let blank = vec![b'\n'; MAX_UNDECIDED_BYTES];
        assert_eq!(classify_start(STREAM, &blank), BodyKind::EventStream);
        assert_eq!(classify_start(Some(b"application/problem+json"), &blank), BodyKind::Json);
        assert_eq!(classify_start(None, &blank), BodyKind::Other);
        assert_eq!(classify_start(None, &blank[1..]), BodyKind::Undecided);
        // However much comes with them.
        assert_eq!(classify_start(STREAM, &[&blank, &b"{\"error\":1}"[..]].concat()), BodyKind::EventStream);
        assert_eq!(classify_start(TEXT, &[&blank, &b"data: x"[..]].concat()), BodyKind::Other);
        assert_eq!(classify_start(TEXT, &[&blank[1..], &b"data: x"[..]].concat()), BodyKind::EventStream);
    }

    #[test]
    fn error_bodies_of_real_servers_are_read() {
        let read = |body: &str| {
            let detail = read_error_body(body.as_bytes())?;
            Some((detail.message, detail.code, detail.error_type))
        };
        let owned = |m: &str, c: Option<&str>, t: Option<&str>| {
            Some((m.to_owned(), c.map(str::to_owned), t.map(str::to_owned)))
        };
        assert_eq!(
            read(r#"{"error":{"message":"busy","type":"T","code":503}}"#),
            owned("busy", Some("503"), Some("T"))
        );
        assert_eq!(read(r#"[{"error":{"code":429,"message":"q"}}]"#), owned("q", Some("429"), None));
        assert_eq!(read(r#"{"detail":"Not Found"}"#), owned("Not Found", None, None));
        assert_eq!(read(r#"{"error":"model 'x' not found"}"#), owned("model 'x' not found", None, None));
        assert_eq!(read(r#"{"id":"x","object":"chat.completion","choices":[]}"#), None);
        assert_eq!(read(r#"{"message":"hello"}"#), None);
        assert_eq!(read("\u{feff}{\"error\":\"marked\"}"), owned("marked", None, None));
        assert_eq!(read("<html>"), None);
        assert_eq!(read(""), None);
        assert!(is_blank("\u{feff} \r\n".as_bytes()) && is_blank(b"") && !is_blank(b" x"));
    }

    #[test]
    fn the_body_of_a_failure_always_says_something_unless_it_is_html_or_empty() {
        let message = |body: &[u8]| read_failure_body(body).map(|detail| detail.message);
        assert_eq!(message(b"Internal Server Error\n").as_deref(), Some("Internal Server Error"));
        assert_eq!(message(br#"{"message":"no Route matched"}"#).as_deref(), Some("no Route matched"));
        assert_eq!(message(br#"{"error":{"message":"down"}}"#).as_deref(), Some("down"));
        assert_eq!(message(br#"{"a":1}"#).as_deref(), Some(r#"{"a":1}"#));
        assert_eq!(message(br#"{"error":{"message":"cut in the mid"#).as_deref(), {
            Some(r#"{"error":{"message":"cut in the mid"#)
        });
        assert_eq!(message(b"a\xffb").as_deref(), Some("a\u{fffd}b"));
        assert_eq!(message(b"<html>"), None);
        assert_eq!(message(b" \n"), None);
    }

    #[test]
    fn a_body_beyond_the_limit_is_kept_as_text() {
        let mut body = b"{\"error\":\"".to_vec();
        body.resize(MAX_ERROR_BODY_BYTES, b'x');
        body.extend(b"\"}");
        assert_eq!(read_error_body(&body), None);
        let kept = read_failure_body(&body).unwrap().message;
        assert_eq!(kept.chars().count(), crate::wire::dialect::MAX_MESSAGE_CHARS);
    }
}
