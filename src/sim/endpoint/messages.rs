//! `POST /v1/messages`: Anthropic's typed events. A message of content blocks, thinking first; the counts come with
//! the stop reason, and `message_stop` is the end.

use std::borrow::Cow;

use serde::Deserialize;

use super::ask::{self, Ask, BadBody};
use super::conversation::{Content, Conversation};
use super::layout::{Block, Frame, Layout, Template, write_all_text, write_delta};
use crate::sim::framing::{write_json_string, write_text};
use crate::sim::ledger::{EventKind, Service};
use crate::sim::script::{Answer, Step};

/// What stands where the real one proves that the thinking is the server's own.
const SIGNATURE: &str = "c2ltdWxhdGVk";

/// The endpoint.
pub(super) static LAYOUT: Layout = Layout {
    service: Service::Messages,
    read,
    prepare,
    at_once: &[],
    opening: &[Frame::new(EventKind::Role, write_message_start), Frame::new(EventKind::Frame, write_ping)],
    reasoning: Some(Block {
        open: &[Frame::new(EventKind::Frame, write_thinking_start)],
        delta: Frame::new(EventKind::Reasoning, write_thinking_delta),
        close: &[
            Frame::new(EventKind::Frame, write_signature_delta),
            Frame::new(EventKind::Frame, write_thinking_stop),
        ],
    }),
    content: Block {
        open: &[Frame::new(EventKind::Frame, write_text_start)],
        delta: Frame::new(EventKind::Content, write_text_delta),
        close: &[Frame::new(EventKind::Frame, write_text_stop)],
    },
    closing: &[
        Frame::new(EventKind::Finish, write_message_delta),
        Frame::new(EventKind::Done, write_message_stop),
    ],
    write_body,
};

#[derive(Deserialize)]
struct RawBody<'a> {
    #[serde(borrow)]
    model: Cow<'a, str>,
    messages: Conversation,
    #[serde(default)]
    system: Content,
    /// The one endpoint that demands a limit.
    max_tokens: u64,
    min_tokens: Option<u64>,
    ignore_eos: Option<bool>,
    stream: Option<bool>,
}

fn read(body: &[u8]) -> Result<Ask, BadBody> {
    let body: RawBody<'_> = ask::parse(body)?;
    if body.messages.messages == 0 {
        return Err(BadBody("messages: there must be at least one message.".to_owned()));
    }
    let mut prompt = body.system.size;
    prompt.add(body.messages.content.size);
    let ask = Ask {
        model: ask::model_name(body.model)?,
        prompt,
        limit: Some(body.max_tokens),
        min_tokens: body.min_tokens.unwrap_or(0),
        ignore_eos: body.ignore_eos.unwrap_or(false),
        stream: body.stream.unwrap_or(false),
        wish: body.messages.content.wish,
        ..Ask::default()
    };
    ask.checked("max_tokens")
}

/// The prefix is the message object's, up to its content.
fn prepare(template: &mut Template) {
    let mut prefix = Vec::new();
    write_text(
        &mut prefix,
        format_args!(r#"{{"id":"msg_{:016x}","type":"message","role":"assistant","model":"#, template.id),
    );
    write_json_string(&template.model, &mut prefix);
    prefix.extend_from_slice(br#","content":["#);
    template.prefix = prefix;
}

fn write_message_start(template: &Template, _: &Step, _: &Answer, out: &mut Vec<u8>) {
    out.extend_from_slice(b"event: message_start\ndata: {\"type\":\"message_start\",\"message\":");
    out.extend_from_slice(&template.prefix);
    out.extend_from_slice(br#"],"stop_reason":null,"stop_sequence":null,"#);
    write_usage(template, 0, out);
    out.extend_from_slice(b"}}\n\n");
}

fn write_ping(_: &Template, _: &Step, _: &Answer, out: &mut Vec<u8>) {
    out.extend_from_slice(b"event: ping\ndata: {\"type\":\"ping\"}\n\n");
}

fn write_thinking_start(_: &Template, _: &Step, _: &Answer, out: &mut Vec<u8>) {
    out.extend_from_slice(
        b"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\
          \"content_block\":{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}\n\n",
    );
}

fn write_thinking_delta(_: &Template, step: &Step, answer: &Answer, out: &mut Vec<u8>) {
    out.extend_from_slice(
        b"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\
          \"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"",
    );
    write_delta(step, answer, out);
    out.extend_from_slice(b"\"}}\n\n");
}

fn write_signature_delta(_: &Template, _: &Step, _: &Answer, out: &mut Vec<u8>) {
    out.extend_from_slice(
        b"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\
          \"delta\":{\"type\":\"signature_delta\",\"signature\":\"",
    );
    out.extend_from_slice(SIGNATURE.as_bytes());
    out.extend_from_slice(b"\"}}\n\n");
}

fn write_thinking_stop(_: &Template, _: &Step, _: &Answer, out: &mut Vec<u8>) {
    write_block_stop(b'0', out);
}

fn write_text_start(_: &Template, _: &Step, answer: &Answer, out: &mut Vec<u8>) {
    out.extend_from_slice(b"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":");
    out.push(text_index(answer));
    out.extend_from_slice(b",\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n");
}

fn write_text_delta(_: &Template, step: &Step, answer: &Answer, out: &mut Vec<u8>) {
    out.extend_from_slice(b"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":");
    out.push(text_index(answer));
    out.extend_from_slice(b",\"delta\":{\"type\":\"text_delta\",\"text\":\"");
    write_delta(step, answer, out);
    out.extend_from_slice(b"\"}}\n\n");
}

fn write_text_stop(_: &Template, _: &Step, answer: &Answer, out: &mut Vec<u8>) {
    write_block_stop(text_index(answer), out);
}

fn write_message_delta(template: &Template, _: &Step, answer: &Answer, out: &mut Vec<u8>) {
    out.extend_from_slice(
        b"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"",
    );
    out.extend_from_slice(stop_reason(answer).as_bytes());
    out.extend_from_slice(br#"","stop_sequence":null},"#);
    write_usage(template, answer.tokens(), out);
    out.extend_from_slice(b"}\n\n");
}

fn write_message_stop(_: &Template, _: &Step, _: &Answer, out: &mut Vec<u8>) {
    out.extend_from_slice(b"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
}

fn write_body(template: &Template, answer: &Answer, out: &mut Vec<u8>) {
    out.extend_from_slice(&template.prefix);
    if answer.reasoning_tokens > 0 {
        out.extend_from_slice(br#"{"type":"thinking","thinking":""#);
        write_all_text(answer, EventKind::Reasoning, out);
        write_text(out, format_args!(r#"","signature":"{SIGNATURE}"}}"#));
    }
    if answer.content_tokens > 0 {
        if answer.reasoning_tokens > 0 {
            out.push(b',');
        }
        out.extend_from_slice(br#"{"type":"text","text":""#);
        write_all_text(answer, EventKind::Content, out);
        out.extend_from_slice(b"\"}");
    }
    write_text(out, format_args!(r#"],"stop_reason":"{}","stop_sequence":null,"#, stop_reason(answer)));
    write_usage(template, answer.tokens(), out);
    out.push(b'}');
}

/// The text's place among the content blocks, as a digit.
const fn text_index(answer: &Answer) -> u8 {
    if answer.reasoning_tokens > 0 { b'1' } else { b'0' }
}

fn write_block_stop(index: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(b"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":");
    out.push(index);
    out.extend_from_slice(b"}\n\n");
}

const fn stop_reason(answer: &Answer) -> &'static str {
    if answer.cut_by_limit { "max_tokens" } else { "end_turn" }
}

fn write_usage(template: &Template, output_tokens: u64, out: &mut Vec<u8>) {
    write_text(
        out,
        format_args!(
            r#""usage":{{"input_tokens":{},"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":{output_tokens}}}"#,
            template.prompt_tokens
        ),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<Ask, BadBody> {
        super::read(body.as_bytes())
    }

    #[test]
    fn the_system_text_is_part_of_the_prompt() {
        for system in [r#""abcd""#, r#"[{"type":"text","text":"abcd"}]"#] {
            let body = format!(
                r#"{{"model":"m","system":{system},"max_tokens":7,"stream":true,"metadata":{{}},
                    "thinking":{{"type":"enabled","budget_tokens":1024}},
                    "messages":[{{"role":"user","content":[{{"type":"text","text":"12"}}]}},{{"role":"assistant","content":"3"}}]}}"#
            );
            let ask = read(&body).unwrap();
            assert_eq!((ask.prompt.bytes, ask.limit, ask.stream), (7, Some(7), true));
        }
    }

    #[test]
    fn bad_bodies_are_refused_with_a_sentence() {
        for (body, word) in [
            (r#"{"model":"m","messages":[{"role":"user","content":"a"}]}"#, "max_tokens"),
            (r#"{"model":"m","max_tokens":1}"#, "messages"),
            (r#"{"model":"m","max_tokens":1,"messages":"hi"}"#, "list of messages"),
            (r#"{"model":"m","max_tokens":1,"messages":[]}"#, "at least one"),
            (r#"{"model":"m","max_tokens":0,"messages":[{"content":"a"}]}"#, "at least 1"),
            (r#"{"max_tokens":1,"messages":[{"content":"a"}]}"#, "model"),
        ] {
            let BadBody(message) = read(body).unwrap_err();
            assert!(message.contains(word), "{body}: {message}");
        }
    }
}
