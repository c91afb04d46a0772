//! How responses look on the wire: heads, SSE events in chunked framing, JSON bodies.
//!
//! The layout of the stream is vLLM's. What is the same in every event of a response is rendered once per request
//! ([`Template`]); an event is then a few copies into a buffer that is used again and again. Sans-IO. Shares nothing
//! with `wire`.

use std::io::Write;

use crate::sim::ledger::EventKind;
use crate::sim::options::{MAX_MODEL_LEN, MODEL_ID};
use crate::sim::script::{Answer, Step};

/// Room for a chunk-size line in front of an event: eight digits and CR LF.
const SIZE_ROOM: usize = 10;

/// What is the same in all events of one response, and what `usage` will say.
#[derive(Debug)]
pub(crate) struct Template {
    /// Up to and including `"choices":[`, as it stands in an event.
    prefix: Vec<u8>,
    id: u64,
    created: i64,
    model: String,
    prompt_tokens: u64,
}

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

impl Template {
    /// For a response with this id, made at `created` (seconds since the Unix epoch).
    pub(crate) fn new(id: u64, created: i64, model: String, prompt_tokens: u64) -> Self {
        let mut template = Self { prefix: b"data: ".to_vec(), id, created, model, prompt_tokens };
        let mut prefix = std::mem::take(&mut template.prefix);
        template.write_opening("chat.completion.chunk", &mut prefix);
        template.prefix = prefix;
        template
    }

    /// Renders one event, chunk framing included, into `out`, which is emptied first. Returns where the event starts
    /// in it (the room for the size line is rarely used up).
    pub(crate) fn write_event(&self, step: &Step, answer: &Answer, out: &mut Vec<u8>) -> usize {
        out.clear();
        out.resize(SIZE_ROOM, 0);
        if step.kind == EventKind::Done {
            out.extend_from_slice(b"data: [DONE]\n\n");
        } else {
            out.extend_from_slice(&self.prefix);
            self.write_choice(step, answer, out);
            out.extend_from_slice(b"}\n\n");
        }
        let start = write_size(out);
        out.extend_from_slice(b"\r\n");
        if step.kind == EventKind::Done {
            out.extend_from_slice(b"0\r\n\r\n");
        }
        start
    }

    /// Renders the body of an answer in one piece.
    pub(crate) fn write_body(&self, answer: &Answer, out: &mut Vec<u8>) {
        self.write_opening("chat.completion", out);
        out.extend_from_slice(br#"{"index":0,"message":{"role":"assistant","#);
        if answer.reasoning_tokens > 0 {
            out.extend_from_slice(br#""reasoning":""#);
            write_all_text(answer, EventKind::Reasoning, answer.reasoning_tokens, out);
            out.extend_from_slice(br#"","#);
        }
        out.extend_from_slice(br#""content":""#);
        write_all_text(answer, EventKind::Content, answer.content_tokens, out);
        out.extend_from_slice(br#""},"logprobs":null,"finish_reason":""#);
        out.extend_from_slice(finish_reason(answer).as_bytes());
        out.extend_from_slice(br#"","stop_reason":null}],"#);
        self.write_usage(answer, out);
        out.push(b'}');
    }

    fn write_opening(&self, object: &str, out: &mut Vec<u8>) {
        write_text(
            out,
            format_args!(
                r#"{{"id":"chatcmpl-{:016x}","object":"{object}","created":{},"model":"#,
                self.id, self.created
            ),
        );
        write_json_string(&self.model, out);
        out.extend_from_slice(br#","choices":["#);
    }

    /// Everything between `"choices":[` and the closing brace.
    fn write_choice(&self, step: &Step, answer: &Answer, out: &mut Vec<u8>) {
        match step.kind {
            EventKind::Role => out.extend_from_slice(
                br#"{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null"#,
            ),
            EventKind::Reasoning | EventKind::Content => {
                out.extend_from_slice(if step.kind == EventKind::Content {
                    br#"{"index":0,"delta":{"content":""#
                } else {
                    br#"{"index":0,"delta":{"reasoning":""#
                });
                answer.write_text(step.kind, step.first_token, step.tokens, out);
                out.extend_from_slice(br#""},"logprobs":null,"finish_reason":null,"token_ids":null}]"#);
            }
            EventKind::Finish => {
                out.extend_from_slice(br#"{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":""#);
                out.extend_from_slice(finish_reason(answer).as_bytes());
                out.extend_from_slice(br#"","stop_reason":null,"token_ids":null}]"#);
            }
            EventKind::Usage => {
                out.extend_from_slice(b"],");
                self.write_usage(answer, out);
            }
            EventKind::Done | EventKind::Body => {}
        }
    }

    fn write_usage(&self, answer: &Answer, out: &mut Vec<u8>) {
        let completion = answer.reasoning_tokens + answer.content_tokens;
        write_text(
            out,
            format_args!(
                r#""usage":{{"prompt_tokens":{},"total_tokens":{},"completion_tokens":{completion}"#,
                self.prompt_tokens,
                self.prompt_tokens + completion
            ),
        );
        if answer.reasoning_tokens > 0 {
            write_text(
                out,
                format_args!(
                    r#","completion_tokens_details":{{"reasoning_tokens":{}}}"#,
                    answer.reasoning_tokens
                ),
            );
        }
        out.push(b'}');
    }
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

/// Appends an error object in vLLM's form.
pub(crate) fn write_error(status: u16, message: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"error":{"message":"#);
    write_json_string(message, out);
    let kind = match status {
        404 => "NotFoundError",
        400..=499 => "BadRequestError",
        _ => "NotImplementedError",
    };
    write_text(out, format_args!(r#","type":"{kind}","param":null,"code":{status}}}}}"#));
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

const fn finish_reason(answer: &Answer) -> &'static str {
    if answer.cut_by_limit { "length" } else { "stop" }
}

fn write_all_text(answer: &Answer, kind: EventKind, tokens: u64, out: &mut Vec<u8>) {
    answer.write_text(kind, 0, u32::try_from(tokens).unwrap_or(u32::MAX), out);
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

fn write_text(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to a Vec cannot fail.
    let _ = out.write_fmt(text);
}

fn write_json_string(text: &str, out: &mut Vec<u8>) {
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
    fn model_names_are_escaped() {
        let template = Template::new(1, 2, "a\"b\\c\nd".to_owned(), 3);
        let text = std::str::from_utf8(&template.prefix).unwrap();
        assert_eq!(
            text,
            "data: {\"id\":\"chatcmpl-0000000000000001\",\"object\":\"chat.completion.chunk\",\"created\":2,\
             \"model\":\"a\\\"b\\\\c\\nd\",\"choices\":["
        );
    }
}
