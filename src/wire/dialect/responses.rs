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
        let named = text_of(top, "type").unwrap_or_default();
        let own = Meaning::of(named.as_bytes());
        let (meaning, name) =
            if own == Meaning::Unknown { (Meaning::of(event), event) } else { (own, named.as_bytes()) };
        let known = meaning != Meaning::Unknown;
        let own_type = (own != Meaning::Unknown).then_some(named);
        let mut error =
            ServerError::in_typed_event(data, &parsed.value, meaning == Meaning::Error, known, own_type);
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
        ..Usage::default()
    };
    (found != Usage::default()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Outcome;
    use crate::wire::dialect::{BodyEnding, Dialect, EventMeaning, StreamAccount, TextRule};

    fn account() -> StreamAccount {
        let mut account = StreamAccount::new(Dialect::Responses);
        account.start(TextRule::keep(100));
        account
    }

    fn event(account: &mut StreamAccount, json: &str) -> EventMeaning {
        account.on_event(b"", json.as_bytes())
    }

    #[test]
    fn every_kind_of_delta_is_output_and_no_repetition_is() {
        let mut account = account();
        for (name, kind) in [
            ("output_text", OutputKind::Content),
            ("reasoning_text", OutputKind::Reasoning),
            ("reasoning_summary_text", OutputKind::Reasoning),
            ("refusal", OutputKind::Refusal),
            ("function_call_arguments", OutputKind::ToolCall),
            ("custom_tool_call_input", OutputKind::ToolCall),
            ("mcp_call_arguments", OutputKind::ToolCall),
            ("code_interpreter_call_code", OutputKind::ToolCall),
        ] {
            let delta =
                |text| format!(r#"{{"type":"response.{name}.delta","output_index":3,"delta":{text}}}"#);
            assert_eq!(event(&mut account, &delta("\"\\n\"")).output, Some(kind), "{name}");
            for nothing in ["\"\"", "null", "7"] {
                let meaning = event(&mut account, &delta(nothing));
                assert_eq!((meaning.output, meaning.unrecognised), (None, false), "{name} {nothing}");
            }
            let done = format!(r#"{{"type":"response.{name}.done","text":"all","arguments":"{{}}"}}"#);
            assert_eq!(event(&mut account, &done).output, None, "{name}");
        }
        assert_eq!(account.counters().output_chunks, 8);
        assert!(!account.several_choices(), "items are parts of one answer");
        assert!(event(&mut account, r#"{"type":"response.audio.delta","delta":"AAA"}"#).unrecognised);
        assert_eq!(account.counters().unrecognised_events, 1);
    }

    #[test]
    fn the_type_in_the_json_rules_and_the_event_stands_in_for_it() {
        let mut account = account();
        let delta = br#"{"type":"response.output_text.delta","delta":"a"}"#;
        for name in ["", "response.completed", "error", "x"] {
            let meaning = account.on_event(name.as_bytes(), delta);
            assert!(meaning.content && !meaning.terminal && !meaning.error, "{name}");
        }
        assert!(account.on_event(b"response.output_text.delta", br#"{"delta":"b"}"#).content);
        assert!(account.on_event(b"response.refusal.delta", br#"{"type":"","delta":"b"}"#).refusal);
        assert!(account.on_event(b"", br#"{"delta":"b"}"#).unrecognised);
        assert!(account.on_event(b"error", br#"{"type":"server_error","message":"m"}"#).error);
        assert_eq!(account.server_error().unwrap().error_type.as_deref(), Some("server_error"));
    }

    #[test]
    fn the_terminals_end_the_answer_with_reason_and_usage() {
        let usage = r#""usage":{"input_tokens":5,"output_tokens":2,"total_tokens":7}"#;
        for (terminal, reason, outcome) in [
            (r#""type":"response.completed","response":{"status":"completed""#, "completed", Outcome::Ok),
            (r#""type":"response.completed","response":{"x":0"#, "completed", Outcome::Ok),
            (
                r#""type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}"#,
                "max_output_tokens",
                Outcome::Ok,
            ),
            (
                r#""type":"response.incomplete","response":{"incomplete_details":null"#,
                "incomplete",
                Outcome::Ok,
            ),
            (r#""type":"response.failed","response":{"error":null"#, "failed", Outcome::ServerErrorInStream),
            (r#""type":"response.failed","response":{"error":{"code":"c","message":"m"}"#, "failed", {
                Outcome::ServerErrorInStream
            }),
        ] {
            let mut account = account();
            event(&mut account, r#"{"type":"response.output_text.delta","delta":"a"}"#);
            let meaning = event(&mut account, &format!("{{{terminal},{usage}}}}}"));
            assert!(meaning.terminal && meaning.finish && meaning.output.is_none(), "{terminal}");
            assert_eq!(meaning.new_tokens, None);
            assert_eq!(account.finish_reasons().iter().collect::<Vec<_>>(), [(0, reason)], "{terminal}");
            assert_eq!(account.usage().completion_tokens, Some(2), "{terminal}");
            assert_eq!(account.conclude(BodyEnding::CleanEnd).0, outcome, "{terminal}");
        }
    }

    #[test]
    fn errors_come_in_the_shapes_of_this_endpoint_and_of_the_others() {
        for (json, message, code, error_type) in [
            (
                r#"{"type":"error","code":"busy","message":"m","param":null,"sequence_number":2}"#,
                "m",
                Some("busy"),
                None,
            ),
            (r#"{"type":"error","error":{"type":"t","code":"c","message":"m"}}"#, "m", Some("c"), Some("t")),
            (r#"{"error":{"message":"as chat says it","code":503}}"#, "as chat says it", Some("503"), None),
            (r#"{"detail":"Not Found"}"#, "Not Found", None, None),
            (r#"{"type":"response.output_text.delta","delta":"a","error":"beside"}"#, "beside", None, None),
        ] {
            let mut account = account();
            let meaning = event(&mut account, json);
            assert!(meaning.error && !meaning.terminal, "{json}");
            let detail = account.server_error().unwrap().to_detail();
            assert_eq!(detail.message, message, "{json}");
            assert_eq!((detail.code.as_deref(), detail.error_type.as_deref()), (code, error_type), "{json}");
            assert_eq!(account.conclude(BodyEnding::CleanEnd).0, Outcome::ServerErrorInStream);
        }
    }

    #[test]
    fn an_answer_without_its_terminal_is_cut_and_the_one_of_chat_will_do() {
        let mut account = account();
        event(
            &mut account,
            r#"{"type":"response.created","response":{"status":"in_progress","usage":null}}"#,
        );
        event(&mut account, r#"{"type":"response.output_text.delta","delta":"a"}"#);
        assert_eq!(account.conclude(BodyEnding::CleanEnd).0, Outcome::TruncatedStream);
        assert!(event(&mut account, "[DONE]").terminal);
        assert_eq!(account.conclude(BodyEnding::CleanEnd).0, Outcome::Ok);
    }
}
