//! Gemini's own chunks (`streamGenerateContent?alt=sse`), which come where chat chunks were asked for when a gateway
//! passes them on untranslated. The chat dialect turns to them when an event is no chat chunk.
//!
//! Layout: `candidates[].content.parts[]` with `text` (reasoning where `thought` is true) or `functionCall`,
//! `candidates[].finishReason`, and `usageMetadata`, repeated in every chunk. There is no terminal. Token counts are
//! kept as they are sent: `candidatesTokenCount` leaves the thoughts out, `thoughtsTokenCount` counts them.

use serde_json::Value;

use super::object::{Object, count_at, elements_of, text_of};
use super::{ChoiceShape, EventSink, Facts, JsonText};
use crate::record::{OutputKind, Usage};

/// Reads a chunk, if it is one.
pub(super) fn read(top: &Object, sink: &mut impl EventSink, facts: &mut Facts) {
    for (position, candidate) in elements_of(top, "candidates").iter().enumerate() {
        let Some(object) = candidate.as_object() else { continue };
        facts.recognised = true;
        let index = count_at(candidate, &["index"]).and_then(|n| u32::try_from(n).ok());
        sink.choice(index.or_else(|| u32::try_from(position).ok()).unwrap_or(u32::MAX), ChoiceShape::Delta);
        let parts =
            object.get("content").and_then(Value::as_object).map(|content| elements_of(content, "parts"));
        for part in parts.unwrap_or_default().iter().filter_map(Value::as_object) {
            read_part(part, sink);
        }
        if let Some(reason) = text_of(object, "finishReason") {
            sink.finish(JsonText::Decoded(reason));
        }
    }
    facts.usage = top.get("usageMetadata").and_then(usage_of);
    facts.recognised |= facts.usage.is_some();
}

fn read_part(part: &Object, sink: &mut impl EventSink) {
    if let Some(text) = text_of(part, "text") {
        let thought = part.get("thought").and_then(Value::as_bool) == Some(true);
        let kind = if thought { OutputKind::Reasoning } else { OutputKind::Content };
        sink.output(kind, JsonText::Decoded(text));
    }
    if let Some(call) = part.get("functionCall").and_then(Value::as_object) {
        let arguments = call.get("args").map_or(String::new(), Value::to_string);
        sink.output(OutputKind::ToolCall, JsonText::Decoded(&arguments));
    }
}

fn usage_of(usage: &Value) -> Option<Usage> {
    let found = Usage {
        prompt_tokens: count_at(usage, &["promptTokenCount"]),
        completion_tokens: count_at(usage, &["candidatesTokenCount"]),
        total_tokens: count_at(usage, &["totalTokenCount"]),
        reasoning_tokens: count_at(usage, &["thoughtsTokenCount"]),
        cached_tokens: count_at(usage, &["cachedContentTokenCount"]),
        ..Usage::default()
    };
    (found != Usage::default()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::dialect::{Dialect, StreamAccount, TextRule};

    fn account() -> StreamAccount {
        let mut account = StreamAccount::new(Dialect::Chat);
        account.start(TextRule::keep(100));
        account
    }

    #[test]
    fn thoughts_calls_and_choices_are_told_apart() {
        let mut account = account();
        let meaning = account.on_event(
            b"",
            br#"{"candidates":[{"content":{"parts":[{"text":"hm","thought":true},{"text":"a"},
                {"functionCall":{"name":"f","args":{"x":1}}}]}},{"index":1,"finishReason":"SAFETY"}],
                "usageMetadata":{"promptTokenCount":9,"cachedContentTokenCount":3}}"#,
        );
        assert_eq!(meaning.output, Some(OutputKind::Reasoning));
        assert!(meaning.content && meaning.tool_call && meaning.finish && !meaning.unrecognised);
        assert_eq!(account.tool_arguments().unwrap().text, r#"{"x":1}"#);
        assert_eq!(account.finish_reasons().iter().collect::<Vec<_>>(), [(1, "SAFETY")]);
        assert_eq!((account.usage().prompt_tokens, account.usage().cached_tokens), (Some(9), Some(3)));
        assert!(account.several_choices());
    }

    #[test]
    fn what_is_a_chat_chunk_is_none_of_these() {
        let mut account = account();
        let both =
            br#"{"choices":[{"delta":{"content":"a"}}],"candidates":[{"content":{"parts":[{"text":"b"}]}}]}"#;
        account.on_event(b"", both);
        assert_eq!(account.visible_text().unwrap().text, "a");
        for odd in [r#"{"candidates":[]}"#, r#"{"candidates":[7]}"#, r#"{"usageMetadata":{}}"#] {
            assert!(account.on_event(b"", odd.as_bytes()).unrecognised, "{odd}");
        }
    }
}
