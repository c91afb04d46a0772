//! Events of every dialect, made of what servers send, with something wrong in them now and then.

use hammerscale::wire::dialect::Dialect;
use proptest::prelude::*;
use proptest::sample::select;

use crate::json::{Json, any_json, count, member, object, text};

/// An event and the dialect of which it is one; the older completions have the events of chat.
pub(crate) fn event() -> BoxedStrategy<(Dialect, Json)> {
    prop_oneof![
        4 => chunk().prop_map(|json| (Dialect::Chat, json)),
        1 => chunk().prop_map(|json| (Dialect::Completions, json)),
        3 => of_responses().prop_map(|json| (Dialect::Responses, json)),
        3 => of_messages().prop_map(|json| (Dialect::Messages, json)),
    ]
    .boxed()
}

/// Any dialect that has events.
pub(crate) fn dialect() -> impl Strategy<Value = Dialect> {
    select(&[Dialect::Chat, Dialect::Completions, Dialect::Responses, Dialect::Messages][..])
}

fn word(words: &'static [&'static str]) -> BoxedStrategy<Json> {
    select(words).prop_map(|word| Json::Text(word.into())).boxed()
}

fn error() -> BoxedStrategy<Json> {
    object(vec![member("message", 20, text()), member("type", 20, text()), member("code", 10, text())])
}

fn input_usage() -> BoxedStrategy<Json> {
    object(vec![
        member("input_tokens", 30, count()),
        member("output_tokens", 30, count()),
        member("total_tokens", 10, count()),
        member("input_tokens_details", 8, object(vec![member("cached_tokens", 20, count())])),
        member("output_tokens_details", 8, object(vec![member("reasoning_tokens", 20, count())])),
        member("cache_read_input_tokens", 8, count()),
    ])
}

/// An event of `/responses`.
pub(crate) fn of_responses() -> BoxedStrategy<Json> {
    const DELTAS: &[&str] = &[
        "response.output_text.delta",
        "response.reasoning_text.delta",
        "response.reasoning_summary_text.delta",
        "response.function_call_arguments.delta",
        "response.custom_tool_call_input.delta",
        "response.refusal.delta",
    ];
    const OTHERS: &[&str] = &[
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.output_text.done",
        "response.reasoning_summary_part.done",
        "response.completed",
        "response.incomplete",
        "response.failed",
        "response.audio.delta",
        "response.output_text.delt\\u0061",
        "keepalive",
        "error",
        "response.",
        "response",
        "",
    ];
    let response = object(vec![
        member("status", 20, word(&["completed", "incomplete", "failed", "in_progress"])),
        member("usage", 30, input_usage()),
        member("error", 4, error()),
        member("incomplete_details", 8, object(vec![member("reason", 40, word(&["max_output_tokens", ""]))])),
        member("output", 8, any_json()),
    ]);
    object(vec![
        member("type", 200, prop_oneof![6 => word(DELTAS), 3 => word(OTHERS)]),
        member("delta", 100, prop_oneof![30 => text(), 1 => any_json().boxed()]),
        member("sequence_number", 40, count()),
        member("item_id", 40, text()),
        member("output_index", 40, count()),
        member("content_index", 40, count()),
        member("logprobs", 20, any_json()),
        member("obfuscation", 20, text()),
        member("text", 4, text()),
        member("item", 3, any_json()),
        member("response", 6, response),
        member("error", 1, prop_oneof![error(), any_json().boxed()]),
        member("object", 1, word(&["error", "response"])),
        member("message", 1, any_json()),
        member("code", 1, any_json()),
        member("detail", 1, any_json()),
    ])
}

/// An event of `/messages`.
pub(crate) fn of_messages() -> BoxedStrategy<Json> {
    const OTHERS: &[&str] = &[
        "content_block_start",
        "content_block_stop",
        "message_start",
        "message_delta",
        "message_stop",
        "ping",
        "error",
        "content_block",
        "pin\\u0067",
        "",
    ];
    const DELTAS: &[&str] = &["text_delta", "thinking_delta", "input_json_delta"];
    let of_one_kind =
        [("text_delta", "text"), ("thinking_delta", "thinking"), ("input_json_delta", "partial_json")].map(
            |(kind, key)| {
                object(vec![member("type", 200, Just(Json::Text(kind.into()))), member(key, 200, text())])
            },
        );
    let [texts, thoughts, inputs] = of_one_kind;
    let any_delta = object(vec![
        member(
            "type",
            100,
            prop_oneof![8 => word(DELTAS), 1 => word(&["signature_delta", "citations_delta", ""])],
        ),
        member("text", 20, text()),
        member("thinking", 20, text()),
        member("partial_json", 20, text()),
        member("signature", 3, text()),
        member("stop_reason", 3, word(&["end_turn", "max_tokens", "error", ""])),
    ]);
    let block = object(vec![
        member("type", 60, word(&["text", "thinking", "tool_use", "server_tool_use", "redacted_thinking"])),
        member("text", 20, text()),
        member("thinking", 20, text()),
        member("name", 20, text()),
        member("input", 20, object(vec![member("a", 20, count())])),
    ]);
    let message = object(vec![member("usage", 60, input_usage()), member("role", 20, text())]);
    object(vec![
        member("type", 200, prop_oneof![6 => word(&["content_block_delta"]), 3 => word(OTHERS)]),
        member("index", 60, count()),
        member(
            "delta",
            100,
            prop_oneof![3 => texts, 1 => thoughts, 1 => inputs, 2 => any_delta, 1 => any_json().boxed()],
        ),
        member("content_block", 2, block),
        member("message", 1, prop_oneof![20 => message, 1 => any_json().boxed()]),
        member("usage", 2, input_usage()),
        member("error", 1, prop_oneof![error(), any_json().boxed()]),
        member("object", 1, word(&["error", "message"])),
        member("detail", 1, any_json()),
    ])
}

fn usage() -> BoxedStrategy<Json> {
    object(vec![
        member("prompt_tokens", 30, count()),
        member("completion_tokens", 30, count()),
        member("total_tokens", 30, count()),
        member("prompt_tokens_details", 8, object(vec![member("cached_tokens", 20, count())])),
        member("completion_tokens_details", 8, object(vec![member("reasoning_tokens", 20, count())])),
        member("reasoning_tokens", 4, count()),
        member("cached_tokens", 4, count()),
        member("prompt_cache_hit_tokens", 4, count()),
    ])
}

fn function() -> BoxedStrategy<Json> {
    let arguments = prop_oneof![20 => text(), 1 => any_json()];
    object(vec![member("name", 20, text()), member("arguments", 30, arguments), member("input", 2, text())])
}

fn delta() -> BoxedStrategy<Json> {
    let call = object(vec![
        member("index", 10, count()),
        member("id", 10, text()),
        member("function", 40, function()),
        member("custom", 3, function()),
    ]);
    let part = prop_oneof![
        object(vec![member("type", 20, text()), member("text", 20, text()), member("thinking", 10, text())]),
        text(),
    ];
    let content = prop_oneof![30 => text(), 1 => prop::collection::vec(part, 0..3).prop_map(Json::Array)];
    object(vec![
        member("role", 8, text()),
        member("content", 40, content),
        member("reasoning", 8, text()),
        member("reasoning_content", 8, text()),
        member("refusal", 4, text()),
        member("tool_calls", 8, prop::collection::vec(call, 0..3).prop_map(Json::Array)),
        member("function_call", 3, function()),
    ])
}

pub(crate) fn chunk() -> BoxedStrategy<Json> {
    let reasons = prop_oneof![
        12 => select(vec!["", "stop", "length", "tool_calls", "eos_token"]),
        1 => select(vec!["error", "st\\u006fp"]),
    ];
    let choice = object(vec![
        member("index", 40, (0_u32..3).prop_map(|n| Json::Token(n.to_string()))),
        member("delta", 60, delta()),
        member("message", 1, delta()),
        member("text", 3, text()),
        member("logprobs", 10, any_json()),
        member("finish_reason", 30, reasons.prop_map(|r| Json::Text(r.into()))),
        member("usage", 2, usage()),
        member("error", 1, any_json()),
    ]);
    let name =
        prop_oneof![12 => select(vec!["chat.completion.chunk", "text_completion"]), 1 => Just("error")];
    object(vec![
        member("id", 40, text()),
        member("object", 40, name.prop_map(|n| Json::Text(n.into()))),
        member("created", 40, count()),
        member("model", 40, text()),
        member("choices", 80, prop::collection::vec(choice, 0..3).prop_map(Json::Array)),
        member("usage", 15, usage()),
        member("x_groq", 3, object(vec![member("usage", 10, usage()), member("error", 1, any_json())])),
        member("timings", 3, {
            object(vec![
                member("prompt_n", 20, count()),
                member("cache_n", 20, count()),
                member("predicted_n", 20, count()),
                member("prompt_ms", 20, count()),
            ])
        }),
        member("error", 1, any_json()),
        member("detail", 1, any_json()),
        member("message", 1, any_json()),
    ])
}
