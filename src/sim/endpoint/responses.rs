//! `POST /v1/responses`: typed events, each with its name in an `event` line and a sequence number in its data.
//!
//! The beginning is sent at once, before there is any output, and the end is always `response.completed`, as vLLM does
//! both; that the limit cut the answer is told by the status `incomplete` inside. There is no `[DONE]`.

use std::borrow::Cow;

use serde::Deserialize;

use super::ask::{self, Ask, BadBody};
use super::conversation::{Content, ConversationOrText};
use super::layout::{Block, Frame, Layout, Template, write_all_text, write_delta};
use crate::sim::framing::{write_json_string, write_text};
use crate::sim::ledger::{EventKind, Service};
use crate::sim::script::{Answer, Step};

/// The endpoint.
pub(super) static LAYOUT: Layout = Layout {
    service: Service::Responses,
    read,
    prepare,
    at_once: &[Frame::new(EventKind::Role, write_created), Frame::new(EventKind::Frame, write_in_progress)],
    opening: &[],
    reasoning: Some(Block {
        open: &[
            Frame::new(EventKind::Frame, write_reasoning_item_added),
            Frame::new(EventKind::Frame, write_reasoning_part_added),
        ],
        delta: Frame::new(EventKind::Reasoning, write_reasoning_delta),
        close: &[
            Frame::new(EventKind::Frame, write_reasoning_text_done),
            Frame::new(EventKind::Frame, write_reasoning_part_done),
            Frame::new(EventKind::Frame, write_reasoning_item_done),
        ],
    }),
    content: Block {
        open: &[
            Frame::new(EventKind::Frame, write_message_item_added),
            Frame::new(EventKind::Frame, write_message_part_added),
        ],
        delta: Frame::new(EventKind::Content, write_content_delta),
        close: &[
            Frame::new(EventKind::Frame, write_content_text_done),
            Frame::new(EventKind::Frame, write_message_part_done),
            Frame::new(EventKind::Frame, write_message_item_done),
        ],
    },
    closing: &[Frame::new(EventKind::Done, write_completed)],
    write_body,
};

#[derive(Deserialize)]
struct RawBody<'a> {
    #[serde(borrow)]
    model: Cow<'a, str>,
    input: ConversationOrText,
    #[serde(default)]
    instructions: Content,
    max_output_tokens: Option<u64>,
    min_tokens: Option<u64>,
    ignore_eos: Option<bool>,
    stream: Option<bool>,
}

fn read(body: &[u8]) -> Result<Ask, BadBody> {
    let body: RawBody<'_> = ask::parse(body)?;
    let ConversationOrText(input) = body.input;
    if input.messages == 0 {
        return Err(BadBody("There must be at least one input item.".to_owned()));
    }
    let mut prompt = body.instructions.size;
    prompt.add(input.content.size);
    let ask = Ask {
        model: ask::model_name(body.model)?,
        prompt,
        limit: body.max_output_tokens,
        min_tokens: body.min_tokens.unwrap_or(0),
        ignore_eos: body.ignore_eos.unwrap_or(false),
        stream: body.stream.unwrap_or(false),
        wish: input.content.wish,
        ..Ask::default()
    };
    ask.checked("max_output_tokens")
}

/// The prefix is the response object's; the middles of the two output events name their items.
fn prepare(template: &mut Template) {
    let mut prefix = Vec::new();
    write_text(
        &mut prefix,
        format_args!(
            r#"{{"id":"resp_{:016x}","object":"response","created_at":{},"model":"#,
            template.id, template.created
        ),
    );
    write_json_string(&template.model, &mut prefix);
    template.prefix = prefix;
    let id = template.id;
    write_text(
        &mut template.reasoning_delta,
        format_args!(r#","item_id":"rs_{id:016x}","output_index":0,"content_index":0,"#),
    );
    // A message that follows reasoning is the second item; which it is shows only in the answer.
    write_text(
        &mut template.content_delta,
        format_args!(r#","item_id":"msg_{id:016x}","content_index":0,"output_index":"#),
    );
}

/// Appends an event up to and including its sequence number.
fn begin(name: &str, step: &Step, out: &mut Vec<u8>) {
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\ndata: {\"type\":\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(br#"","sequence_number":"#);
    write_text(out, format_args!("{}", step.planned.index));
}

fn end(out: &mut Vec<u8>) {
    out.extend_from_slice(b"}\n\n");
}

fn write_created(template: &Template, step: &Step, answer: &Answer, out: &mut Vec<u8>) {
    write_response_event("response.created", Status::InProgress, template, step, answer, out);
}

fn write_in_progress(template: &Template, step: &Step, answer: &Answer, out: &mut Vec<u8>) {
    write_response_event("response.in_progress", Status::InProgress, template, step, answer, out);
}

fn write_completed(template: &Template, step: &Step, answer: &Answer, out: &mut Vec<u8>) {
    write_response_event("response.completed", Status::of(answer), template, step, answer, out);
}

fn write_reasoning_delta(template: &Template, step: &Step, answer: &Answer, out: &mut Vec<u8>) {
    begin("response.reasoning_text.delta", step, out);
    out.extend_from_slice(&template.reasoning_delta);
    out.extend_from_slice(br#""delta":""#);
    write_delta(step, answer, out);
    out.push(b'"');
    end(out);
}

fn write_content_delta(template: &Template, step: &Step, answer: &Answer, out: &mut Vec<u8>) {
    begin("response.output_text.delta", step, out);
    write_message_place(template, answer, out);
    out.extend_from_slice(br#""delta":""#);
    write_delta(step, answer, out);
    out.extend_from_slice(br#"","logprobs":[]"#);
    end(out);
}

fn write_reasoning_text_done(template: &Template, step: &Step, answer: &Answer, out: &mut Vec<u8>) {
    begin("response.reasoning_text.done", step, out);
    out.extend_from_slice(&template.reasoning_delta);
    out.extend_from_slice(br#""text":""#);
    write_all_text(answer, EventKind::Reasoning, out);
    out.push(b'"');
    end(out);
}

fn write_content_text_done(template: &Template, step: &Step, answer: &Answer, out: &mut Vec<u8>) {
    begin("response.output_text.done", step, out);
    write_message_place(template, answer, out);
    out.extend_from_slice(br#""text":""#);
    write_all_text(answer, EventKind::Content, out);
    out.extend_from_slice(br#"","logprobs":[]"#);
    end(out);
}

fn write_reasoning_part_added(template: &Template, step: &Step, answer: &Answer, out: &mut Vec<u8>) {
    write_part_event("response.content_part.added", EventKind::Reasoning, false, template, step, answer, out);
}

fn write_reasoning_part_done(template: &Template, step: &Step, answer: &Answer, out: &mut Vec<u8>) {
    write_part_event("response.content_part.done", EventKind::Reasoning, true, template, step, answer, out);
}

fn write_message_part_added(template: &Template, step: &Step, answer: &Answer, out: &mut Vec<u8>) {
    write_part_event("response.content_part.added", EventKind::Content, false, template, step, answer, out);
}

fn write_message_part_done(template: &Template, step: &Step, answer: &Answer, out: &mut Vec<u8>) {
    write_part_event("response.content_part.done", EventKind::Content, true, template, step, answer, out);
}

fn write_reasoning_item_added(template: &Template, step: &Step, answer: &Answer, out: &mut Vec<u8>) {
    begin("response.output_item.added", step, out);
    out.extend_from_slice(br#","output_index":0,"item":"#);
    write_reasoning_item(Status::InProgress, template, answer, out);
    end(out);
}

fn write_reasoning_item_done(template: &Template, step: &Step, answer: &Answer, out: &mut Vec<u8>) {
    begin("response.output_item.done", step, out);
    out.extend_from_slice(br#","output_index":0,"item":"#);
    write_reasoning_item(Status::of_item(EventKind::Reasoning, answer), template, answer, out);
    end(out);
}

fn write_message_item_added(template: &Template, step: &Step, answer: &Answer, out: &mut Vec<u8>) {
    begin("response.output_item.added", step, out);
    out.extend_from_slice(br#","output_index":"#);
    out.push(message_index(answer));
    out.extend_from_slice(br#","item":"#);
    write_message_item(Status::InProgress, template, answer, out);
    end(out);
}

fn write_message_item_done(template: &Template, step: &Step, answer: &Answer, out: &mut Vec<u8>) {
    begin("response.output_item.done", step, out);
    out.extend_from_slice(br#","output_index":"#);
    out.push(message_index(answer));
    out.extend_from_slice(br#","item":"#);
    write_message_item(Status::of_item(EventKind::Content, answer), template, answer, out);
    end(out);
}

fn write_body(template: &Template, answer: &Answer, out: &mut Vec<u8>) {
    write_response(Status::of(answer), template, answer, out);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    InProgress,
    Completed,
    Incomplete,
}

impl Status {
    const fn of(answer: &Answer) -> Self {
        if answer.cut_by_limit { Self::Incomplete } else { Self::Completed }
    }

    /// Only the item that the limit cut is incomplete: the last one.
    const fn of_item(kind: EventKind, answer: &Answer) -> Self {
        if matches!(kind, EventKind::Reasoning) && answer.content_tokens > 0 {
            return Self::Completed;
        }
        Self::of(answer)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Incomplete => "incomplete",
        }
    }
}

/// The message's place among the items, as a digit.
const fn message_index(answer: &Answer) -> u8 {
    if answer.reasoning_tokens > 0 { b'1' } else { b'0' }
}

fn write_message_place(template: &Template, answer: &Answer, out: &mut Vec<u8>) {
    out.extend_from_slice(&template.content_delta);
    out.push(message_index(answer));
    out.push(b',');
}

fn write_part_event(
    name: &str,
    kind: EventKind,
    done: bool,
    template: &Template,
    step: &Step,
    answer: &Answer,
    out: &mut Vec<u8>,
) {
    begin(name, step, out);
    if kind == EventKind::Reasoning {
        out.extend_from_slice(&template.reasoning_delta);
    } else {
        write_message_place(template, answer, out);
    }
    out.extend_from_slice(br#""part":"#);
    write_part(kind, done, answer, out);
    end(out);
}

/// Appends a part of an item's content, with its text when it is done.
fn write_part(kind: EventKind, done: bool, answer: &Answer, out: &mut Vec<u8>) {
    out.extend_from_slice(if kind == EventKind::Reasoning {
        br#"{"type":"reasoning_text","text":""#.as_slice()
    } else {
        br#"{"type":"output_text","annotations":[],"logprobs":[],"text":""#.as_slice()
    });
    if done {
        write_all_text(answer, kind, out);
    }
    out.extend_from_slice(b"\"}");
}

fn write_reasoning_item(status: Status, template: &Template, answer: &Answer, out: &mut Vec<u8>) {
    write_text(
        out,
        format_args!(
            r#"{{"id":"rs_{:016x}","type":"reasoning","summary":[],"status":"{}","content":["#,
            template.id,
            status.name()
        ),
    );
    if status != Status::InProgress {
        write_part(EventKind::Reasoning, true, answer, out);
    }
    out.extend_from_slice(b"]}");
}

fn write_message_item(status: Status, template: &Template, answer: &Answer, out: &mut Vec<u8>) {
    write_text(
        out,
        format_args!(
            r#"{{"id":"msg_{:016x}","type":"message","role":"assistant","status":"{}","content":["#,
            template.id,
            status.name()
        ),
    );
    if status != Status::InProgress {
        write_part(EventKind::Content, true, answer, out);
    }
    out.extend_from_slice(b"]}");
}

fn write_response_event(
    name: &str,
    status: Status,
    template: &Template,
    step: &Step,
    answer: &Answer,
    out: &mut Vec<u8>,
) {
    begin(name, step, out);
    out.extend_from_slice(br#","response":"#);
    write_response(status, template, answer, out);
    end(out);
}

/// Appends the response object: without output and usage while it is in progress.
fn write_response(status: Status, template: &Template, answer: &Answer, out: &mut Vec<u8>) {
    out.extend_from_slice(&template.prefix);
    write_text(out, format_args!(r#","status":"{}","incomplete_details":"#, status.name()));
    out.extend_from_slice(if status == Status::Incomplete {
        br#"{"reason":"max_output_tokens"}"#.as_slice()
    } else {
        b"null".as_slice()
    });
    out.extend_from_slice(
        br#","error":null,"instructions":null,"metadata":null,"parallel_tool_calls":true,"tool_choice":"auto","tools":[],"output":["#,
    );
    if status == Status::InProgress {
        out.extend_from_slice(br#"],"usage":null}"#);
        return;
    }
    if answer.reasoning_tokens > 0 {
        write_reasoning_item(Status::of_item(EventKind::Reasoning, answer), template, answer, out);
    }
    if answer.content_tokens > 0 {
        if answer.reasoning_tokens > 0 {
            out.push(b',');
        }
        write_message_item(Status::of_item(EventKind::Content, answer), template, answer, out);
    }
    write_text(
        out,
        format_args!(
            r#"],"usage":{{"input_tokens":{},"input_tokens_details":{{"cached_tokens":0}},"output_tokens":{},"output_tokens_details":{{"reasoning_tokens":{}}},"total_tokens":{}}}}}"#,
            template.prompt_tokens,
            answer.tokens(),
            answer.reasoning_tokens,
            template.prompt_tokens + answer.tokens()
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
    fn input_is_a_text_or_a_list_of_items() {
        let ask = read(
            r#"{"model":"m","input":"12345","instructions":"abc","max_output_tokens":9,"stream":true,
               "temperature":0,"store":false}"#,
        )
        .unwrap();
        assert_eq!((ask.prompt.bytes, ask.limit, ask.stream), (8, Some(9), true));
        let ask = read(
            r##"{"model":"m","ignore_eos":true,"input":[{"role":"system","content":"ab"},{"type":"reasoning","summary":[]},
               {"role":"user","content":[{"type":"input_text","text":"c"},{"type":"input_image","image_url":"x"},
               {"type":"input_text","text":"\n# request 0: Begin with the exact marker k, followed by one space. x"}]}]}"##,
        )
        .unwrap();
        assert_eq!(
            (ask.prompt.bytes, ask.limit, ask.stream, ask.ignore_eos),
            (2 + 1 + 69, None, false, true)
        );
        assert_eq!(ask.wish.marker.as_deref(), Some("k"));
    }

    #[test]
    fn bad_bodies_are_refused_with_a_sentence() {
        for (body, word) in [
            (r#"{"model":"m"}"#, "input"),
            (r#"{"model":"m","input":[]}"#, "input item"),
            (r#"{"model":"m","input":7}"#, "a text or a list"),
            (r#"{"input":"a"}"#, "model"),
            (r#"{"model":"m","input":"a","max_output_tokens":0}"#, "max_output_tokens"),
            (r#"{"model":"m","input":"a","max_output_tokens":1048576}"#, "context length"),
        ] {
            let BadBody(message) = read(body).unwrap_err();
            assert!(message.contains(word), "{body}: {message}");
        }
    }
}
