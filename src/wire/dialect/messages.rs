//! The dialect of `/messages`: Anthropic's typed events, as vLLM, llama.cpp and gateways send them too.
//!
//! | event | meaning |
//! |---|---|
//! | `content_block_delta` | content (`text_delta`), reasoning (`thinking_delta`), tool call (`input_json_delta`), where its text is not empty; signatures and citations are no output |
//! | `content_block_start` | output where the block is a tool's use, or holds text already |
//! | `message_start`, `message_delta` | usage; the second brings the finish reason, `stop_reason` |
//! | `message_stop` | terminal |
//! | `error` | an error |
//! | `ping`, `content_block_stop` | known, and no output |
//!
//! The `type` in the JSON rules; the event's own type stands in where there is none that is known. A content block's
//! `index` numbers the blocks of one answer: all of it is choice 0.
//!
//! Token counts are kept as they are sent. `output_tokens` counts up over the answer, so its last value is the number
//! of completion tokens; it is never added up. `input_tokens` is what we call prompt tokens, and
//! `cache_read_input_tokens` the cached ones: unlike elsewhere the second is **not a part of the first**. The length
//! of a prompt is `input_tokens + cache_read_input_tokens + cache_creation_input_tokens` (Anthropic's reference of
//! prompt caching; vLLM follows it since vllm-project/vllm#40912): [`Usage::cache_counted_apart`] says so of every usage
//! from here, and [`Usage::whole_prompt_tokens`] adds them up. A server that knows its cache only at the end names the
//! counts again in `message_delta`: each count's last value stands.

use serde_json::Value;

use super::cursor::Cursor;
use super::event::{Protocol, facts_of};
use super::found::Scanned;
use super::full::Parsed;
use super::keys::{Seen, keys};
use super::object::{Object, count_at, elements_of, text_of};
use super::walk::Walk;
use super::{ChoiceShape, EventSink, Facts, JsonText, ServerError};
use crate::record::{OutputKind, Usage};

/// `/messages`.
pub(super) struct Messages;

keys!(EventKey {
    Type = "type", Delta = "delta", Error = "error", Message = "message", Usage = "usage", Object = "object",
} skipped { "index", });

keys!(DeltaKey {
    Type = "type", Text = "text", Thinking = "thinking", PartialJson = "partial_json",
} skipped {});

/// What a type of event says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Delta,
    BlockStart,
    MessageStart,
    MessageDelta,
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
            b"content_block_delta" => Self::Delta,
            b"content_block_start" => Self::BlockStart,
            b"message_start" => Self::MessageStart,
            b"message_delta" => Self::MessageDelta,
            b"message_stop" => Self::Terminal,
            b"error" => Self::Error,
            b"ping" | b"content_block_stop" => Self::Quiet,
            _ => Self::Unknown,
        }
    }
}

/// The kinds of delta that are output, each with the key of its text.
const DELTAS: [(&str, OutputKind, &str); 3] = [
    ("text_delta", OutputKind::Content, "text"),
    ("thinking_delta", OutputKind::Reasoning, "thinking"),
    ("input_json_delta", OutputKind::ToolCall, "partial_json"),
];

impl Protocol for Messages {
    #[inline]
    fn scan<'a>(data: &'a [u8], found: &mut Scanned<'a>) -> Option<()> {
        found.clear();
        let mut cursor = Cursor::new(data);
        let mut seen = Seen::default();
        let (mut meaning, mut delta) = (Meaning::Unknown, None);
        cursor.object(|cursor| {
            let key = EventKey::read(cursor)?;
            if key == EventKey::Other {
                return cursor.skip_value();
            }
            seen.once(key as u32)?;
            match key {
                EventKey::Type => meaning = Meaning::of(cursor.plain_string()?),
                EventKey::Delta => delta = Some(scan_delta(cursor)?),
                EventKey::Error | EventKey::Message | EventKey::Usage | EventKey::Object => {
                    cursor.only_null()?;
                }
                EventKey::Other => {}
            }
            Some(())
        })?;
        cursor.finish()?;
        found.recognised = true;
        found.not_a_number = cursor.not_a_number();
        match (meaning, delta) {
            (Meaning::Delta, Some((kind, text))) => found.push_only(kind, text),
            (Meaning::Quiet, None) => Some(()),
            _ => None,
        }
    }

    fn read_parsed(event: &[u8], data: &[u8], parsed: &Parsed, sink: &mut impl EventSink) -> Facts {
        let mut facts = facts_of(parsed);
        let Some(top) = parsed.value.as_object() else { return facts };
        let named = text_of(top, "type").unwrap_or_default();
        let own = Meaning::of(named.as_bytes());
        let meaning = if own == Meaning::Unknown { Meaning::of(event) } else { own };
        let known = meaning != Meaning::Unknown;
        let own_type = (own != Meaning::Unknown).then_some(named);
        let mut error =
            ServerError::in_typed_event(data, &parsed.value, meaning == Meaning::Error, known, own_type);
        let object = |key| top.get(key).and_then(Value::as_object);
        match meaning {
            Meaning::Delta => object("delta").into_iter().for_each(|delta| read_delta(delta, sink)),
            Meaning::BlockStart => {
                sink.choice(0, ChoiceShape::Delta);
                object("content_block").into_iter().for_each(|block| read_block(block, sink));
            }
            Meaning::MessageDelta => {
                sink.choice(0, ChoiceShape::Delta);
                error = error.or(object("delta").and_then(|delta| end(delta, sink)));
            }
            Meaning::Terminal => facts.terminal = true,
            Meaning::MessageStart | Meaning::Error | Meaning::Quiet | Meaning::Unknown => {}
        }
        if known {
            let usage = top.get("usage").and_then(usage_of);
            facts.usage = usage.or_else(|| usage_of(object("message")?.get("usage")?));
        }
        facts.recognised = known || error.is_some();
        facts.error = error.map(Box::new);
        facts
    }

    fn read_whole(parsed: &Parsed, sink: &mut impl EventSink) -> Facts {
        let mut facts = facts_of(parsed);
        let Some(top) = parsed.value.as_object() else { return facts };
        let is_message = top.get("content").is_some_and(Value::is_array);
        let mut error = ServerError::in_object(top, is_message);
        if is_message {
            sink.choice(0, ChoiceShape::Message);
            for block in elements_of(top, "content").iter().filter_map(Value::as_object) {
                read_block(block, sink);
            }
            error = error.or(end(top, sink));
            facts.usage = top.get("usage").and_then(usage_of);
        }
        facts.recognised = is_message || error.is_some();
        facts.error = error.map(Box::new);
        facts
    }
}

/// The kind and the text of a delta. Not certain are the kinds that are no output.
#[inline]
fn scan_delta<'a>(cursor: &mut Cursor<'a>) -> Option<(OutputKind, &'a [u8])> {
    let mut seen = Seen::default();
    let mut name: &[u8] = b"";
    let (mut text, mut thinking, mut input): (&[u8], &[u8], &[u8]) = (b"", b"", b"");
    cursor.object(|cursor| {
        let key = DeltaKey::read(cursor)?;
        if key == DeltaKey::Other {
            return cursor.skip_value();
        }
        seen.once(key as u32)?;
        match key {
            DeltaKey::Type => name = cursor.plain_string()?,
            DeltaKey::Text => text = cursor.string()?,
            DeltaKey::Thinking => thinking = cursor.string()?,
            DeltaKey::PartialJson => input = cursor.string()?,
            DeltaKey::Other => {}
        }
        Some(())
    })?;
    match name {
        b"text_delta" => Some((OutputKind::Content, text)),
        b"thinking_delta" => Some((OutputKind::Reasoning, thinking)),
        b"input_json_delta" => Some((OutputKind::ToolCall, input)),
        _ => None,
    }
}

fn read_delta(delta: &Object, sink: &mut impl EventSink) {
    let name = text_of(delta, "type");
    for (_, kind, key) in DELTAS.iter().filter(|(delta, ..)| name == Some(*delta)) {
        if let Some(text) = text_of(delta, key) {
            sink.choice(0, ChoiceShape::Delta);
            sink.output(*kind, JsonText::Decoded(text));
        }
    }
}

/// A content block: a whole one, or the beginning of one. Every use of a tool (`tool_use`, `server_tool_use`,
/// `mcp_tool_use`) is output by its name alone; its `input` is empty where it is still to come.
fn read_block(block: &Object, sink: &mut impl EventSink) {
    if let Some(text) = text_of(block, "text") {
        sink.output(OutputKind::Content, JsonText::Decoded(text));
    }
    if let Some(text) = text_of(block, "thinking") {
        sink.output(OutputKind::Reasoning, JsonText::Decoded(text));
    }
    if text_of(block, "type").is_some_and(|name| name.ends_with("tool_use")) {
        let input = block.get("input").filter(|input| input.as_object().is_some_and(|o| !o.is_empty()));
        let input = input.map_or(String::new(), Value::to_string);
        sink.output(OutputKind::ToolCall, JsonText::Decoded(&input));
    }
}

/// Reports the finish reason of a message. Says whether it is an error.
fn end(message: &Object, sink: &mut impl EventSink) -> Option<ServerError> {
    let reason = text_of(message, "stop_reason")?;
    sink.finish(JsonText::Decoded(reason));
    (reason == "error").then(|| ServerError::of_message("the stop reason is \"error\""))
}

fn usage_of(usage: &Value) -> Option<Usage> {
    let found = Usage {
        prompt_tokens: count_at(usage, &["input_tokens"]),
        completion_tokens: count_at(usage, &["output_tokens"]),
        cached_tokens: count_at(usage, &["cache_read_input_tokens"]),
        cache_creation_tokens: count_at(usage, &["cache_creation_input_tokens"]),
        ..Usage::default()
    };
    (found != Usage::default()).then_some(Usage { cache_counted_apart: true, ..found })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Outcome;
    use crate::wire::dialect::{BodyEnding, Dialect, EventMeaning, StreamAccount, TextRule};

    fn account() -> StreamAccount {
        let mut account = StreamAccount::new(Dialect::Messages);
        account.start(TextRule::keep(100));
        account
    }

    fn event(account: &mut StreamAccount, json: &str) -> EventMeaning {
        account.on_event(b"", json.as_bytes())
    }

    fn delta(account: &mut StreamAccount, delta: &str) -> EventMeaning {
        event(account, &format!(r#"{{"type":"content_block_delta","index":2,"delta":{delta}}}"#))
    }

    #[test]
    fn deltas_are_output_where_they_have_a_text_of_their_kind() {
        let mut account = account();
        for (json, kind) in [
            (r#"{"type":"text_delta","text":" "}"#, Some(OutputKind::Content)),
            (r#"{"text":"b","type":"text_delta","thinking":"no"}"#, Some(OutputKind::Content)),
            (r#"{"type":"thinking_delta","thinking":"h"}"#, Some(OutputKind::Reasoning)),
            (r#"{"type":"input_json_delta","partial_json":"{\"a\""}"#, Some(OutputKind::ToolCall)),
            (r#"{"type":"input_json_delta","partial_json":""}"#, None),
            (r#"{"type":"text_delta","text":""}"#, None),
            (r#"{"type":"text_delta"}"#, None),
            (r#"{"type":"signature_delta","signature":"abc"}"#, None),
            (r#"{"type":"citations_delta","citation":{"cited_text":"x"}}"#, None),
            ("null", None),
        ] {
            let meaning = delta(&mut account, json);
            assert_eq!((meaning.output, meaning.unrecognised), (kind, false), "{json}");
        }
        assert_eq!(account.visible_text().unwrap().text, " b");
        assert_eq!(account.tool_arguments().unwrap().text, "{\"a\"");
        assert!(!account.several_choices(), "blocks are parts of one answer");
    }

    #[test]
    fn a_block_that_begins_is_output_where_it_is_a_call_or_holds_text() {
        let mut account = account();
        for (block, kind) in [
            (r#"{"type":"tool_use","id":"t","name":"f","input":{}}"#, Some(OutputKind::ToolCall)),
            (r#"{"type":"server_tool_use","name":"web_search","input":{"q":1}}"#, Some(OutputKind::ToolCall)),
            (r#"{"type":"text","text":""}"#, None),
            (r#"{"type":"text","text":"a"}"#, Some(OutputKind::Content)),
            (r#"{"type":"thinking","thinking":"","signature":""}"#, None),
            (r#"{"type":"redacted_thinking","data":"x"}"#, None),
        ] {
            let json = format!(r#"{{"type":"content_block_start","index":0,"content_block":{block}}}"#);
            assert_eq!(event(&mut account, &json).output, kind, "{block}");
        }
        assert_eq!(account.tool_arguments().unwrap().text, r#"{"q":1}"#);
    }

    #[test]
    fn counts_go_up_over_the_answer_and_each_keeps_its_last_value() {
        let mut account = account();
        assert_eq!(account.usage(), Usage::default());
        let start = r#"{"type":"message_start","message":{"role":"assistant","content":[],"usage":{"input_tokens":12,"cache_creation_input_tokens":7,"cache_read_input_tokens":4,"output_tokens":1}}}"#;
        assert!(!event(&mut account, start).unrecognised);
        assert_eq!(delta(&mut account, r#"{"type":"text_delta","text":"a"}"#).new_tokens, None);
        event(&mut account, r#"{"type":"ping"}"#);
        event(
            &mut account,
            r#"{"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":5}}"#,
        );
        let usage = account.usage();
        assert_eq!(
            (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens),
            (Some(12), Some(4), Some(5))
        );
        assert_eq!((usage.cache_creation_tokens, usage.whole_prompt_tokens()), (Some(7), Some(23)));
        // A server that knows its cache only now.
        let end = r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{"input_tokens":10,"cache_read_input_tokens":6,"output_tokens":8}}"#;
        assert!(event(&mut account, end).finish);
        let usage = account.usage();
        assert_eq!(
            (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens),
            (Some(10), Some(6), Some(8))
        );
        assert_eq!((usage.cache_creation_tokens, usage.whole_prompt_tokens()), (Some(7), Some(23)));
        assert!(event(&mut account, r#"{"type":"message_stop"}"#).terminal);
        assert_eq!(account.finish_reasons().iter().collect::<Vec<_>>(), [(0, "max_tokens")]);
        assert_eq!(account.counters().unrecognised_events, 0);
        assert_eq!(account.conclude(BodyEnding::CleanEnd).0, Outcome::Ok);
    }

    #[test]
    fn the_type_in_the_json_rules_and_the_event_stands_in_for_it() {
        let mut account = account();
        let text = br#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}"#;
        for name in ["", "message_stop", "error", "ping"] {
            let meaning = account.on_event(name.as_bytes(), text);
            assert!(meaning.content && !meaning.terminal && !meaning.error, "{name}");
        }
        let untyped = br#"{"delta":{"type":"text_delta","text":"a"}}"#;
        assert!(account.on_event(b"content_block_delta", untyped).content);
        assert!(account.on_event(b"", untyped).unrecognised);
        assert!(account.on_event(b"message_stop", b"{}").terminal);
    }

    #[test]
    fn errors_come_in_the_shapes_of_this_endpoint_and_of_the_others() {
        for (name, json, message) in [
            ("", r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#, "m"),
            ("error", r#"{"error":{"message":"as chat says it","code":503}}"#, "as chat says it"),
            ("", r#"{"error":"text"}"#, "text"),
            ("error", "upstream timed out", "upstream timed out"),
            (
                "",
                r#"{"type":"message_delta","delta":{"stop_reason":"error"}}"#,
                "the stop reason is \"error\"",
            ),
        ] {
            let mut account = account();
            delta(&mut account, r#"{"type":"text_delta","text":"a"}"#);
            assert!(account.on_event(name.as_bytes(), json.as_bytes()).error, "{json}");
            assert_eq!(account.server_error().unwrap().message, message);
            event(&mut account, r#"{"type":"message_stop"}"#);
            assert_eq!(account.conclude(BodyEnding::CleanEnd).0, Outcome::ServerErrorInStream, "{json}");
        }
    }

    #[test]
    fn an_answer_that_only_stops_is_cut() {
        let mut account = account();
        delta(&mut account, r#"{"type":"text_delta","text":"a"}"#);
        assert_eq!(account.conclude(BodyEnding::CleanEnd).0, Outcome::TruncatedStream);
        event(&mut account, r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#);
        assert_eq!(account.conclude(BodyEnding::CleanEnd).0, Outcome::Ok);
    }
}
