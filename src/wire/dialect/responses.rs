//! The dialect of `/responses`: typed events as OpenAI, vLLM, llama.cpp and gateways send them.
//!
//! | event | meaning |
//! |---|---|
//! | `response.output_text.delta` | content |
//! | `response.reasoning*_text.delta` | reasoning |
//! | `response.refusal.delta` | refusal |
//! | `response.function_call_arguments.delta`, and what a custom tool, an MCP server or the code interpreter gets | tool call |
//! | `response.completed`, `.incomplete`, `.failed` | terminal, with finish reason and usage in `response` |
//! | `error` | an error |
//! | any other `response.…`, `keepalive` | known, and no output |
//!
//! The `….done` events repeat what was streamed and are no output; neither is `response.output` of the terminal. An
//! unknown `….delta` is counted as unrecognised, so that output of a new kind does not vanish unseen. The `type` in
//! the JSON rules; the event's own type stands in where there is none that is known.
//!
//! `output_index` numbers the items of one answer (reasoning, message, calls), not answers: all of it is choice 0.
//! The finish reason is `response.status`; of an incomplete answer it is the reason in `incomplete_details`.

use serde_json::Value;

use super::cursor::Cursor;
use super::event::{Protocol, facts_of};
use super::found::Scanned;
use super::full::Parsed;
use super::keys::{Seen, keys};
use super::object::{Object, count_at, elements_of, text_of};
use super::server_error::says_something;
use super::walk::Walk;
use super::{ChoiceShape, EventSink, Facts, JsonText, ServerError};
use crate::record::{OutputKind, Usage};

/// `/responses`.
pub(super) struct Responses;

keys!(EventKey {
    Type = "type", Delta = "delta", Error = "error", Response = "response", Object = "object",
} skipped {
    "sequence_number", "item_id", "output_index", "content_index", "logprobs", "obfuscation", "summary_index",
});

/// What a type of event says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Output(OutputKind),
    Terminal,
    Error,
    /// Known, and of no interest.
    Quiet,
    Unknown,
}

impl Meaning {
    #[inline]
    fn of(name: &[u8]) -> Self {
        match name {
            b"response.output_text.delta" => Self::Output(OutputKind::Content),
            b"response.refusal.delta" => Self::Output(OutputKind::Refusal),
            b"response.function_call_arguments.delta"
            | b"response.custom_tool_call_input.delta"
            | b"response.mcp_call_arguments.delta"
            | b"response.code_interpreter_call_code.delta" => Self::Output(OutputKind::ToolCall),
            b"response.completed" | b"response.incomplete" | b"response.failed" => Self::Terminal,
            b"error" => Self::Error,
            b"keepalive" => Self::Quiet,
            _ => match name.strip_prefix(b"response.") {
                Some(rest) if rest.starts_with(b"reasoning") && rest.ends_with(b"_text.delta") => {
                    Self::Output(OutputKind::Reasoning)
                }
                Some(rest) if !rest.ends_with(b".delta") => Self::Quiet,
                _ => Self::Unknown,
            },
        }
    }
}

impl Protocol for Responses {
    #[inline]
    fn scan<'a>(data: &'a [u8], found: &mut Scanned<'a>) -> Option<()> {
        found.clear();
        let mut cursor = Cursor::new(data);
        let mut seen = Seen::default();
        let (mut meaning, mut delta): (_, &[u8]) = (Meaning::Unknown, b"");
        cursor.object(|cursor| {
            let key = EventKey::read(cursor)?;
            if key == EventKey::Other {
                return cursor.skip_value();
            }
            seen.once(key as u32)?;
            match key {
                EventKey::Type => meaning = Meaning::of(cursor.plain_string()?),
                EventKey::Delta => delta = cursor.text_or_null()?,
                EventKey::Error | EventKey::Response | EventKey::Object => cursor.only_null()?,
                EventKey::Other => {}
            }
            Some(())
        })?;
        cursor.finish()?;
        found.recognised = true;
        found.not_a_number = cursor.not_a_number();
        match meaning {
            Meaning::Output(kind) => found.push_only(kind, delta),
            Meaning::Quiet => Some(()),
            Meaning::Terminal | Meaning::Error | Meaning::Unknown => None,
        }
    }

    fn read_parsed(event: &[u8], data: &[u8], parsed: &Parsed, sink: &mut impl EventSink) -> Facts {
        let mut facts = facts_of(parsed);
        let Some(top) = parsed.value.as_object() else { return facts };
        let name = text_of(top, "type").unwrap_or_default();
        let (meaning, name) = match Meaning::of(name.as_bytes()) {
            Meaning::Unknown => (Meaning::of(event), event),
            meaning => (meaning, name.as_bytes()),
        };
        let known = meaning != Meaning::Unknown;
        let mut error = ServerError::in_object(top, known);
        if meaning == Meaning::Error {
            error = Some(ServerError::in_error_event(data, Some(&parsed.value)).without_type("error"));
        }
        if let Meaning::Output(kind) = meaning
            && let Some(text) = text_of(top, "delta")
        {
            sink.choice(0, ChoiceShape::Delta);
            sink.output(kind, JsonText::Decoded(text));
        }
        let response = top.get("response").and_then(Value::as_object).filter(|_| known);
        if meaning == Meaning::Terminal {
            facts.terminal = true;
            let status = name.strip_prefix(b"response.").and_then(|name| str::from_utf8(name).ok());
            sink.choice(0, ChoiceShape::Delta);
            error = error.or(end(response, status.unwrap_or_default(), sink));
        }
        facts.usage = response.and_then(|response| response.get("usage")).and_then(usage_of);
        facts.recognised = known || error.is_some();
        facts.error = error.map(Box::new);
        facts
    }

    fn read_whole(parsed: &Parsed, sink: &mut impl EventSink) -> Facts {
        let mut facts = facts_of(parsed);
        let Some(top) = parsed.value.as_object() else { return facts };
        let is_response = top.get("output").is_some_and(Value::is_array);
        let mut error = ServerError::in_object(top, is_response);
        if is_response {
            sink.choice(0, ChoiceShape::Message);
            for item in elements_of(top, "output").iter().filter_map(Value::as_object) {
                read_item(item, sink);
            }
            error = error.or(end(Some(top), "", sink));
            facts.usage = top.get("usage").and_then(usage_of);
        }
        facts.recognised = is_response || error.is_some();
        facts.error = error.map(Box::new);
        facts
    }
}

/// Reports how an answer ended: by its object where it says so, else by `status`. Says whether that is an error.
fn end(response: Option<&Object>, status: &str, sink: &mut impl EventSink) -> Option<ServerError> {
    let status = response.and_then(|response| text_of(response, "status")).unwrap_or(status);
    let details = response.and_then(|response| response.get("incomplete_details")).and_then(Value::as_object);
    let reason = match (status, details.and_then(|details| text_of(details, "reason"))) {
        ("incomplete", Some(reason)) => reason,
        _ => status,
    };
    // A background answer that is asked for early is still under way.
    if !matches!(reason, "" | "in_progress" | "queued") {
        sink.finish(JsonText::Decoded(reason));
    }
    let error = response.and_then(|response| Some((response.get("error")?, response)));
    match error.filter(|(error, _)| says_something(error)) {
        Some((Value::Object(error), _)) => Some(ServerError::of_object(error)),
        Some((error, response)) => Some(ServerError::of_value(error, response)),
        None => (status == "failed").then(|| ServerError::of_message("the response failed")),
    }
}

/// One item of an answer that was not streamed.
fn read_item(item: &Object, sink: &mut impl EventSink) {
    let reasoning = text_of(item, "type") == Some("reasoning");
    for key in ["summary", "content"] {
        for part in elements_of(item, key).iter().filter_map(Value::as_object) {
            if let Some(text) = text_of(part, "text") {
                let kind = if reasoning { OutputKind::Reasoning } else { OutputKind::Content };
                sink.output(kind, JsonText::Decoded(text));
            }
            if let Some(text) = text_of(part, "refusal") {
                sink.output(OutputKind::Refusal, JsonText::Decoded(text));
            }
        }
    }
    let call = ["arguments", "input", "code"].iter().find_map(|key| text_of(item, key));
    if call.is_some() || text_of(item, "name").is_some() {
        sink.output(OutputKind::ToolCall, JsonText::Decoded(call.unwrap_or_default()));
    }
}

fn usage_of(usage: &Value) -> Option<Usage> {
    let found = Usage {
        prompt_tokens: count_at(usage, &["input_tokens"]),
        completion_tokens: count_at(usage, &["output_tokens"]),
        total_tokens: count_at(usage, &["total_tokens"]),
        reasoning_tokens: count_at(usage, &["output_tokens_details", "reasoning_tokens"]),
        cached_tokens: count_at(usage, &["input_tokens_details", "cached_tokens"]),
    };
    (found != Usage::default()).then_some(found)
}
