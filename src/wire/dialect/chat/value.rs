//! The meaning of one chat chunk as a parsed value: the slow twin of the scan, and the judge of everything the
//! scan is not certain of.

use serde_json::Value;

use crate::record::{OutputKind, Usage};
use crate::wire::dialect::event::facts_of;
use crate::wire::dialect::full::Parsed;
use crate::wire::dialect::object::{Object, text_of};
use crate::wire::dialect::server_error::says_something;
use crate::wire::dialect::text::JsonText;
use crate::wire::dialect::{ChoiceShape, EventSink, Facts, ServerError, gemini};

/// Reads a parsed event, or the parsed body of an answer that was not streamed.
pub(super) fn read_parsed(parsed: &Parsed, sink: &mut impl EventSink) -> Facts {
    let mut facts = facts_of(parsed);
    let Some(top) = parsed.value.as_object() else {
        return facts;
    };
    let choices = top.get("choices").and_then(Value::as_array);
    let mut choice_error = None;
    if let Some(choices) = choices {
        facts.recognised = choices.is_empty();
        for (position, choice) in choices.iter().enumerate() {
            let Some(choice) = choice.as_object() else { continue };
            let index = choice.get("index").and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
            let index = index.unwrap_or_else(|| u32::try_from(position).unwrap_or(u32::MAX));
            read_choice(choice, index, sink, &mut facts);
            choice_error = choice_error.or_else(|| error_of_choice(choice));
        }
    }
    facts.usage = usage_in(top, choices);
    let groq_error = top.get("x_groq").and_then(|groq| groq.get("error")).filter(|e| says_something(e));
    facts.error = ServerError::in_object(top, choices.is_some())
        .or(choice_error)
        .or_else(|| groq_error.map(|error| ServerError::of_value(error, top)))
        .map(Box::new);
    facts.recognised |= facts.usage.is_some() || facts.error.is_some();
    if !facts.recognised {
        gemini::read(top, sink, &mut facts);
    }
    facts
}

fn read_choice(choice: &Object, index: u32, sink: &mut impl EventSink, facts: &mut Facts) {
    let delta = choice.get("delta").filter(|delta| !delta.is_null());
    let (message, shape) = match (delta, choice.get("message")) {
        (None, Some(Value::Object(message))) => (Some(message), ChoiceShape::Message),
        _ => (delta.and_then(Value::as_object), ChoiceShape::Delta),
    };
    sink.choice(index, shape);
    let mut content = false;
    if let Some(message) = message {
        facts.recognised = true;
        facts.role |= text_of(message, "role").is_some();
        facts.empty_content |= shape == ChoiceShape::Delta
            && message.get("content").is_some_and(|content| content == "")
            && !message.contains_key("role");
        content = read_message(message, sink);
    }
    if let Some(Value::String(text)) = choice.get("text") {
        facts.recognised = true;
        facts.empty_content |= text.is_empty();
        if !content && !text.is_empty() {
            sink.output(OutputKind::Content, JsonText::Decoded(text));
        }
    }
    if let Some(reason) = text_of(choice, "finish_reason") {
        facts.recognised = true;
        sink.finish(JsonText::Decoded(reason));
    }
}

/// Reports the output in a delta or a message; says whether there was visible content.
fn read_message(message: &Object, sink: &mut impl EventSink) -> bool {
    let mut content = false;
    match message.get("content") {
        Some(Value::String(text)) if !text.is_empty() => {
            content = true;
            sink.output(OutputKind::Content, JsonText::Decoded(text));
        }
        Some(Value::Array(parts)) => {
            for part in parts {
                content |= read_part(part, sink);
            }
        }
        _ => {}
    }
    if let Some(text) = text_of(message, "reasoning_content").or_else(|| text_of(message, "reasoning")) {
        sink.output(OutputKind::Reasoning, JsonText::Decoded(text));
    }
    if let Some(text) = text_of(message, "refusal") {
        sink.output(OutputKind::Refusal, JsonText::Decoded(text));
    }
    if let Some(calls) = message.get("tool_calls").and_then(Value::as_array) {
        for call in calls {
            for key in ["function", "custom"] {
                read_function(call.get(key), sink);
            }
        }
    }
    read_function(message.get("function_call"), sink);
    content
}

/// One part of content: text, thinking (Mistral: a text, or parts of its own) or a refusal. Says whether it was
/// visible text.
fn read_part(part: &Value, sink: &mut impl EventSink) -> bool {
    match part {
        Value::String(text) => visible(text, sink),
        Value::Object(object) => {
            match object.get("thinking").or_else(|| object.get("reasoning")) {
                Some(Value::Array(parts)) => {
                    for text in parts.iter().filter_map(|part| text_of(part.as_object()?, "text")) {
                        sink.output(OutputKind::Reasoning, JsonText::Decoded(text));
                    }
                }
                Some(Value::String(text)) if !text.is_empty() => {
                    sink.output(OutputKind::Reasoning, JsonText::Decoded(text));
                }
                _ => {}
            }
            if let Some(text) = text_of(object, "refusal") {
                sink.output(OutputKind::Refusal, JsonText::Decoded(text));
            }
            let Some(text) = text_of(object, "text") else { return false };
            if matches!(text_of(object, "type"), Some("thinking" | "reasoning")) {
                sink.output(OutputKind::Reasoning, JsonText::Decoded(text));
                return false;
            }
            visible(text, sink)
        }
        _ => false,
    }
}

fn visible(text: &str, sink: &mut impl EventSink) -> bool {
    if !text.is_empty() {
        sink.output(OutputKind::Content, JsonText::Decoded(text));
    }
    !text.is_empty()
}

/// A call with a name or arguments. Arguments may be an object instead of its text (Ollama, Gemini).
fn read_function(function: Option<&Value>, sink: &mut impl EventSink) {
    let Some(function) = function.and_then(Value::as_object) else { return };
    let arguments = ["arguments", "input"].iter().find_map(|key| match function.get(*key)? {
        Value::String(text) => (!text.is_empty()).then(|| text.clone()),
        structured @ (Value::Object(_) | Value::Array(_)) => Some(structured.to_string()),
        _ => None,
    });
    if arguments.is_some() || text_of(function, "name").is_some() {
        sink.output(OutputKind::ToolCall, JsonText::Decoded(arguments.as_deref().unwrap_or("")));
    }
}

/// OpenRouter puts the error beside a choice, or says it with the finish reason.
fn error_of_choice(choice: &Object) -> Option<ServerError> {
    if let Some(error) = choice.get("error").filter(|error| says_something(error)) {
        return Some(ServerError::of_value(error, choice));
    }
    (text_of(choice, "finish_reason") == Some("error"))
        .then(|| ServerError::of_message("the finish reason is \"error\""))
}

/// The token counts of an event: the top level, else the first choice that has some (Moonshot), else `x_groq`,
/// else llama.cpp's `timings`.
fn usage_in(top: &Object, choices: Option<&Vec<Value>>) -> Option<Usage> {
    let of_choices = || choices?.iter().find_map(|choice| usage_of(choice.get("usage")));
    usage_of(top.get("usage"))
        .or_else(of_choices)
        .or_else(|| usage_of(top.get("x_groq")?.get("usage")))
        .or_else(|| {
            let timings = top.get("timings")?;
            let count = |key| timings.get(key).and_then(Value::as_u64);
            let usage = usage_of_timings(count("prompt_n"), count("cache_n"), count("predicted_n"));
            (usage != Usage::default()).then_some(usage)
        })
}

/// The counts in a usage object; `None` when it has none that can be read.
pub(in crate::wire::dialect) fn usage_of(usage: Option<&Value>) -> Option<Usage> {
    let usage = usage?.as_object()?;
    let count = |key: &str| usage.get(key).and_then(Value::as_u64);
    let detail = |details: &str, key: &str| usage.get(details)?.get(key)?.as_u64();
    let found = Usage {
        prompt_tokens: count("prompt_tokens"),
        completion_tokens: count("completion_tokens"),
        total_tokens: count("total_tokens"),
        // SGLang has it beside the counts.
        reasoning_tokens: detail("completion_tokens_details", "reasoning_tokens")
            .or_else(|| count("reasoning_tokens")),
        // Moonshot has it beside the counts, DeepSeek under a name of its own.
        cached_tokens: detail("prompt_tokens_details", "cached_tokens")
            .or_else(|| count("cached_tokens"))
            .or_else(|| count("prompt_cache_hit_tokens")),
        ..Usage::default()
    };
    (found != Usage::default()).then_some(found)
}

/// llama.cpp's timings: `prompt_n` were computed and `cache_n` read from the cache.
pub(super) fn usage_of_timings(prompt: Option<u64>, cached: Option<u64>, predicted: Option<u64>) -> Usage {
    Usage {
        prompt_tokens: prompt.map(|n| n.saturating_add(cached.unwrap_or(0))),
        completion_tokens: predicted,
        cached_tokens: cached,
        ..Usage::default()
    }
}
