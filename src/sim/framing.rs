//! How responses look on the wire, whatever they say: heads, chunks, error objects, the pieces of JSON. What an
//! endpoint's events look like is in `endpoint`. Sans-IO. Shares nothing with `wire`.

use std::io::Write;

use crate::sim::endpoint::ErrorShape;
use crate::sim::options::{MAX_MODEL_LEN, MODEL_ID};

/// Room for a chunk-size line in front of an event: eight digits and CR LF.
const SIZE_ROOM: usize = 10;

/// Fields of a response head that vary.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeadFields<'a> {
    /// The `Date` value.
    pub(crate) date: &'a str,
    /// The request's id, echoed.
    pub(crate) request_id: Option<&'a str>,
    /// Whether the connection ends with this response.
    pub(crate) close: bool,
}

/// Begins a chunk in `out`, which is emptied first: the room for its size line. The data follow.
pub(crate) fn begin_chunk(out: &mut Vec<u8>) {
    out.clear();
    out.resize(SIZE_ROOM, 0);
}

/// Ends the chunk, and with the last one the body. Returns where the chunk starts in `out`.
pub(crate) fn end_chunk(last: bool, out: &mut Vec<u8>) -> usize {
    let start = write_size(out);
    out.extend_from_slice(if last { b"\r\n0\r\n\r\n".as_slice() } else { b"\r\n".as_slice() });
    start
}

/// Appends the head of a stream.
pub(crate) fn write_stream_head(fields: HeadFields<'_>, out: &mut Vec<u8>) {
    write_text(
        out,
        format_args!(
            "HTTP/1.1 200 OK\r\nDate: {}\r\nServer: hammerscale-sim\r\nContent-Type: text/event-stream; charset=utf-8\r\n\
             Cache-Control: no-store\r\nTransfer-Encoding: chunked\r\n",
            fields.date
        ),
    );
    write_common_fields(fields, out);
}

/// Appends a whole response with a JSON body.
pub(crate) fn write_response(
    status: u16,
    allow: Option<&str>,
    fields: HeadFields<'_>,
    body: &[u8],
    out: &mut Vec<u8>,
) {
    write_text(
        out,
        format_args!(
            "HTTP/1.1 {status} {}\r\nDate: {}\r\nServer: hammerscale-sim\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n",
            reason(status),
            fields.date,
            body.len()
        ),
    );
    if let Some(methods) = allow {
        write_text(out, format_args!("Allow: {methods}\r\n"));
    }
    write_common_fields(fields, out);
    out.extend_from_slice(body);
}

/// Appends an error object.
pub(crate) fn write_error(shape: ErrorShape, status: u16, message: &str, out: &mut Vec<u8>) {
    match shape {
        ErrorShape::OpenAi => {
            out.extend_from_slice(br#"{"error":{"message":"#);
            write_json_string(message, out);
            let kind = match status {
                404 => "NotFoundError",
                400..=499 => "BadRequestError",
                _ => "NotImplementedError",
            };
            write_text(out, format_args!(r#","type":"{kind}","param":null,"code":{status}}}}}"#));
        }
        ErrorShape::Anthropic => {
            let kind = match status {
                404 => "not_found_error",
                413 => "request_too_large",
                400..=499 => "invalid_request_error",
                _ => "api_error",
            };
            write_text(out, format_args!(r#"{{"type":"error","error":{{"type":"{kind}","message":"#));
            write_json_string(message, out);
            out.extend_from_slice(b"}}");
        }
    }
}

/// Appends the list of models: one, with its context length.
pub(crate) fn write_models(created: i64, out: &mut Vec<u8>) {
    write_text(
        out,
        format_args!(
            r#"{{"object":"list","data":[{{"id":"{MODEL_ID}","object":"model","created":{created},"owned_by":"hammerscale","root":"{MODEL_ID}","parent":null,"max_model_len":{MAX_MODEL_LEN}}}]}}"#
        ),
    );
}

fn write_common_fields(fields: HeadFields<'_>, out: &mut Vec<u8>) {
    if let Some(id) = fields.request_id {
        write_text(out, format_args!("X-Request-Id: {id}\r\n"));
    }
    if fields.close {
        out.extend_from_slice(b"Connection: close\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes the size line so that it ends where the event begins; the event is the rest of `out`. Returns where the
/// line starts.
fn write_size(out: &mut [u8]) -> usize {
    let mut size = out.len().saturating_sub(SIZE_ROOM);
    let mut digits = [0_u8; SIZE_ROOM];
    let mut start = SIZE_ROOM - 2;
    let [.., cr, lf] = &mut digits;
    (*cr, *lf) = (b'\r', b'\n');
    for place in digits.iter_mut().rev().skip(2) {
        *place = b"0123456789abcdef".get(size % 16).copied().unwrap_or(b'0');
        size /= 16;
        start -= 1;
        if size == 0 {
            break;
        }
    }
    if let Some(room) = out.first_chunk_mut::<SIZE_ROOM>() {
        *room = digits;
    }
    start
}

const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        413 => "Content Too Large",
        417 => "Expectation Failed",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}

/// Appends formatted text.
pub(crate) fn write_text(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to a Vec cannot fail.
    let _ = out.write_fmt(text);
}

/// Appends a text as a JSON string.
pub(crate) fn write_json_string(text: &str, out: &mut Vec<u8>) {
    // Neither can writing a string to a Vec.
    let _ = serde_json::to_writer(out, text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_lines_are_hexadecimal_without_leading_zeros() {
        for (len, line) in [(0, "0"), (1, "1"), (15, "f"), (16, "10"), (258, "102"), (0x12_3456, "123456")] {
            let mut out = vec![b'x'; SIZE_ROOM + len];
            let start = write_size(&mut out);
            assert_eq!(out[start..SIZE_ROOM], *format!("{line}\r\n").as_bytes());
        }
    }

    #[test]
    fn chunks_have_their_size_and_the_last_one_ends_the_body() {
        let mut out = b"left over".to_vec();
        for (last, end) in [(false, "\r\n"), (true, "\r\n0\r\n\r\n")] {
            begin_chunk(&mut out);
            out.extend_from_slice(b"seventeen letters");
            let start = end_chunk(last, &mut out);
            assert_eq!(out[start..], *format!("11\r\nseventeen letters{end}").as_bytes());
        }
    }

    #[test]
    fn texts_are_escaped() {
        let mut out = Vec::new();
        write_json_string("a\"b\\c\nd", &mut out);
        assert_eq!(out, br#""a\"b\\c\nd""#);
    }
}
