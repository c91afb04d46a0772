//! The direct scan and the memory of a reader against the full parse, on random chunks, random JSON and damage.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

use std::collections::BTreeMap;

use hammerscale::record::OutputKind;
use hammerscale::wire::dialect::chat::{Scanned, read_in_full, scan};
use hammerscale::wire::dialect::{
    ChoiceShape, Dialect, EventReader, EventSink, Facts, JsonText, StreamAccount, TextRule,
};
use proptest::prelude::*;
use proptest::sample::{Index, select};

// ---------------------------------------------------------------------------------------------------------------
// What an event says, in a form in which two readings can be compared.

#[derive(Debug, Clone, PartialEq, Default)]
struct Reading {
    choices: Vec<Choice>,
    facts: Facts,
}

#[derive(Debug, Clone, PartialEq)]
struct Choice {
    index: u32,
    whole: bool,
    /// Texts by kind; the order of different kinds says nothing.
    outputs: BTreeMap<u8, Vec<String>>,
    finish: Vec<String>,
}

impl EventSink for Reading {
    fn choice(&mut self, index: u32, shape: ChoiceShape) {
        let whole = shape == ChoiceShape::Message;
        self.choices.push(Choice { index, whole, outputs: BTreeMap::new(), finish: Vec::new() });
    }

    fn output(&mut self, kind: OutputKind, text: JsonText<'_>) {
        let choice = self.choices.last_mut().expect("an output belongs to a choice");
        assert!(!text.is_empty() || kind == OutputKind::ToolCall, "empty {kind:?}");
        choice.outputs.entry(kind as u8).or_default().push(text.to_text());
    }

    fn finish(&mut self, reason: JsonText<'_>) {
        let choice = self.choices.last_mut().expect("a finish reason belongs to a choice");
        choice.finish.push(reason.to_text());
    }
}

fn by_scan(data: &[u8]) -> Option<Reading> {
    let mut found = Scanned::default();
    scan(data, &mut found)?;
    let mut reading = Reading::default();
    reading.facts = found.report(&mut reading);
    Some(reading)
}

fn by_full_parse(data: &[u8]) -> Reading {
    let mut reading = Reading::default();
    reading.facts = read_in_full(b"", data, &mut reading);
    reading
}

/// Says whether the scan was certain; if it was, it must say what the full parse says.
fn agree(data: &[u8]) -> bool {
    let Some(scanned) = by_scan(data) else { return false };
    assert_eq!(scanned, by_full_parse(data), "{}", String::from_utf8_lossy(data));
    true
}

// ---------------------------------------------------------------------------------------------------------------
// JSON texts with every freedom that the grammar leaves.

#[derive(Debug, Clone)]
enum Json {
    /// A literal or a number, or something that only looks like one.
    Token(String),
    /// The body of a string, as it stands between the quotes.
    Text(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

/// How much white space stands between tokens.
#[derive(Debug, Clone, Copy)]
enum Spacing {
    None,
    Python,
    Wild,
}

impl Json {
    fn render(&self, spacing: Spacing) -> String {
        let mut out = String::new();
        self.write(&mut out, spacing);
        out
    }

    fn write(&self, out: &mut String, spacing: Spacing) {
        let wild = |out: &mut String| {
            if let Spacing::Wild = spacing {
                let spaces = [" ", "", "\n", "\t", "", "\r\n  "];
                out.push_str(spaces[(out.len() * 7 + 3) % spaces.len()]);
            }
        };
        let after = |out: &mut String| match spacing {
            Spacing::Python => out.push(' '),
            _ => wild(out),
        };
        match self {
            Self::Token(token) => out.push_str(token),
            Self::Text(body) => {
                out.push('"');
                out.push_str(body);
                out.push('"');
            }
            Self::Array(items) => {
                out.push('[');
                wild(out);
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                        after(out);
                    }
                    item.write(out, spacing);
                    wild(out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                wild(out);
                for (i, (key, value)) in members.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                        after(out);
                    }
                    out.push('"');
                    out.push_str(key);
                    out.push('"');
                    wild(out);
                    out.push(':');
                    after(out);
                    value.write(out, spacing);
                    wild(out);
                }
                out.push('}');
            }
        }
    }
}

fn spacing() -> impl Strategy<Value = Spacing> {
    prop_oneof![4 => Just(Spacing::None), 2 => Just(Spacing::Python), 2 => Just(Spacing::Wild)]
}

fn body() -> impl Strategy<Value = String> {
    let pieces = select(vec![
        "",
        "a",
        " ",
        "The river",
        "é",
        "😀",
        "漢字",
        "\\n",
        "\\\"",
        "\\\\",
        "\\/",
        "\\u0041",
        "\\ud83d\\ude00",
        "\\ud83d",
        "\\ude00",
        "\\u0000",
        "\u{7f}",
        "[DONE]",
        "{\\\"choices\\\":",
        "'",
        "0123456789abcdef",
    ]);
    prop_oneof![
        2 => Just(String::new()),
        8 => prop::collection::vec(pieces, 1..5).prop_map(|p| p.concat()),
        1 => "[ !#-\\[\\]-~é😀]{0,40}",
    ]
}

fn number() -> impl Strategy<Value = String> {
    let odd = select(vec![
        "0",
        "-0",
        "-1",
        "1.5",
        "1e3",
        "1E-2",
        "0.0",
        "18446744073709551615",
        "18446744073709551616",
        "123456789012345678901234567890",
        "1e400",
        "-1e400",
        "4294967295",
        "4294967296",
        "9999999999999999999",
    ]);
    prop_oneof![60 => (0_u64..5000).prop_map(|n| n.to_string()), 2 => odd.prop_map(str::to_owned)]
}

fn scalar() -> impl Strategy<Value = Json> {
    let literals = select(vec!["null", "true", "false", "NaN", "Infinity", "-Infinity"]);
    prop_oneof![
        4 => Just(Json::Token("null".into())),
        2 => literals.prop_map(|t| Json::Token(t.into())),
        3 => number().prop_map(Json::Token),
        1 => "-?[0-9]{1,3}(\\.[0-9]{1,2})?([eE][+-]?[0-9]{1,3})?".prop_map(Json::Token),
        3 => body().prop_map(Json::Text),
    ]
}

fn any_json() -> impl Strategy<Value = Json> {
    scalar().prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::Array),
            prop::collection::vec((any_key(), inner), 0..4).prop_map(Json::Object),
        ]
    })
}

/// Every word that some reader of some shape looks for, and a few that nobody does.
fn any_key() -> impl Strategy<Value = String> {
    select(vec![
        "choices",
        "usage",
        "object",
        "error",
        "detail",
        "message",
        "x_groq",
        "timings",
        "id",
        "created",
        "model",
        "index",
        "delta",
        "finish_reason",
        "text",
        "content",
        "role",
        "reasoning_content",
        "reasoning",
        "refusal",
        "tool_calls",
        "function_call",
        "function",
        "custom",
        "name",
        "arguments",
        "input",
        "type",
        "code",
        "prompt_tokens",
        "completion_tokens",
        "total_tokens",
        "prompt_n",
        "cache_n",
        "predicted_n",
        "logprobs",
        "prompt_tokens_details",
        "completion_tokens_details",
        "cached_tokens",
        "reasoning_tokens",
        "thinking",
        "prompt_cache_hit_tokens",
        "token_ids",
        "service_tier",
        "obfuscation",
        "x",
        "",
        "cont\\u0065nt",
        "é",
        "contents",
        "choice",
        "error_type",
        "stop_reason",
    ])
    .prop_map(str::to_owned)
}

/// A member that is there sometimes, now and then with something wrong in it, now and then twice.
fn member(
    key: &'static str,
    often: u32,
    value: impl Strategy<Value = Json> + 'static,
) -> BoxedStrategy<Vec<(String, Json)>> {
    let value = prop_oneof![120 => value, 8 => Just(Json::Token("null".into())), 1 => any_json()].boxed();
    let one = value.clone().prop_map(move |v| vec![(key.to_owned(), v)]);
    let two = (value.clone(), value).prop_map(move |(a, b)| vec![(key.to_owned(), a), (key.to_owned(), b)]);
    prop_oneof![200 => Just(Vec::new()), 20 * often => one, 1 => two].boxed()
}

/// An object of some of the members in any order.
fn object(members: Vec<BoxedStrategy<Vec<(String, Json)>>>) -> BoxedStrategy<Json> {
    let junk = prop_oneof![
        40 => Just(Vec::new()),
        1 => (any_key(), any_json()).prop_map(|member| vec![member]),
    ];
    (members, junk)
        .prop_map(|(groups, junk)| groups.into_iter().flatten().chain(junk).collect::<Vec<_>>())
        .prop_shuffle()
        .prop_map(Json::Object)
        .boxed()
}

fn text() -> BoxedStrategy<Json> {
    body().prop_map(Json::Text).boxed()
}

fn count() -> BoxedStrategy<Json> {
    number().prop_map(Json::Token).boxed()
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

fn chunk() -> BoxedStrategy<Json> {
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

// ---------------------------------------------------------------------------------------------------------------
// The properties.

proptest! {
    #[test]
    fn on_chunks_the_scan_says_what_the_full_parse_says(chunk in chunk(), spacing in spacing()) {
        agree(chunk.render(spacing).as_bytes());
    }

    #[test]
    fn on_any_json_the_scan_says_what_the_full_parse_says(json in any_json(), spacing in spacing()) {
        agree(json.render(spacing).as_bytes());
    }

    #[test]
    fn damage_never_makes_the_two_disagree(
        chunk in chunk(),
        spacing in spacing(),
        damage in prop::collection::vec((any::<Index>(), any::<u8>(), 0_u8..4), 1..4),
    ) {
        let mut bytes = chunk.render(spacing).into_bytes();
        for (place, byte, how) in damage {
            let at = place.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 => drop(bytes.remove(at)),
                _ => bytes.truncate(at),
            }
            if bytes.is_empty() {
                break;
            }
        }
        agree(&bytes);
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200), event in "(error|x)?") {
        agree(&bytes);
        let mut account = StreamAccount::new(Dialect::Chat);
        account.start(TextRule::keep(10));
        account.on_event(event.as_bytes(), &bytes);
        account.on_error_field(&bytes);
    }

    #[test]
    fn a_reader_with_a_memory_says_what_one_without_says(
        chunk in chunk(),
        spacing in spacing(),
        bodies in prop::collection::vec(prop_oneof![3 => body(), 1 => "[\\x00-\\x7f]{0,6}"], 1..6),
        damage in prop::option::of((any::<Index>(), any::<u8>())),
    ) {
        // A stream whose events differ in the text of one place, whatever that place is, some of them damaged.
        let json = chunk.render(spacing);
        let quotes: Vec<usize> = json.match_indices('"').map(|(at, _)| at).collect();
        let mut reader = EventReader::new(Dialect::Chat);
        let mut events = vec![json.clone().into_bytes(), json.clone().into_bytes()];
        for body in bodies {
            for pair in quotes.windows(2) {
                let mut event = json[..=pair[0]].to_owned() + &body + &json[pair[1]..];
                if let Some((place, byte)) = damage
                    && byte.is_ascii()
                    && event.is_char_boundary(place.index(event.len()))
                {
                    event.insert(place.index(event.len()), char::from(byte));
                }
                events.push(json.clone().into_bytes());
                events.push(event.into_bytes());
            }
        }
        for event in &events {
            let event = event.trim_ascii();
            if event == b"[DONE]" {
                continue;
            }
            let mut reading = Reading::default();
            reading.facts = reader.read(b"", event, &mut reading);
            prop_assert_eq!(reading, by_full_parse(event), "{}", String::from_utf8_lossy(event));
        }
    }
}

#[test]
fn the_generator_reaches_both_the_scan_and_the_full_parse() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let (mut certain, mut with_output, mut with_usage, mut errors) = (0, 0, 0, 0);
    for _ in 0..1000 {
        let json = chunk().new_tree(&mut runner).unwrap().current().render(Spacing::None);
        let full = by_full_parse(json.as_bytes());
        errors += u32::from(full.facts.error.is_some());
        if let Some(scanned) = by_scan(json.as_bytes()) {
            certain += 1;
            with_output += u32::from(scanned.choices.iter().any(|choice| !choice.outputs.is_empty()));
            with_usage += u32::from(scanned.facts.usage.is_some());
        }
    }
    let counts = (certain, with_output, with_usage, errors);
    assert!(certain > 300 && certain < 950, "{counts:?}");
    assert!(with_output > 80 && with_usage > 50 && errors > 50, "{counts:?}");
}

#[test]
fn the_chunks_of_common_servers_never_need_the_full_parse() {
    let vllm = r#"{"id":"chatcmpl-9bd2","object":"chat.completion.chunk","created":1796002992,"model":"m","choices":"#;
    let chunks = [
        format!(r#"{vllm}[{{"index":0,"delta":{{"role":"assistant","content":""}},"logprobs":null,"finish_reason":null}}],"prompt_token_ids":null,"prompt_text":null}}"#),
        format!(r#"{vllm}[{{"index":0,"delta":{{"content":"\n\u00e9 \ud83d"}},"logprobs":null,"finish_reason":null,"token_ids":null}}]}}"#),
        format!(r#"{vllm}[{{"index":0,"delta":{{"reasoning":"x","reasoning_content":"x","content":null}},"finish_reason":null}}]}}"#),
        format!(r#"{vllm}[{{"index":0,"delta":{{"tool_calls":[{{"id":"c","type":"function","index":0,"function":{{"name":"f","arguments":"{{\"a\""}}}}]}},"finish_reason":null}}]}}"#),
        format!(r#"{vllm}[{{"index":0,"delta":{{"content":"x"}},"logprobs":{{"content":[{{"token":"x","logprob":-0.5,"bytes":[120],"top_logprobs":[{{"token":"y","logprob":NaN,"bytes":null}}]}}]}},"finish_reason":"length","stop_reason":null}}]}}"#),
        format!(r#"{vllm}[],"usage":{{"prompt_tokens":17,"total_tokens":22,"completion_tokens":5,"prompt_tokens_details":{{"cached_tokens":16}}}}}}"#),
        r#"{"choices":[{"finish_reason":"stop","index":0,"delta":{}}],"created":1796003665,"id":"chatcmpl-I0","model":"tiny","system_fingerprint":"b0-unknown","object":"chat.completion.chunk","timings":{"cache_n":0,"prompt_n":9,"prompt_ms":41.5,"prompt_per_token_ms":4.61,"predicted_n":6}}"#.to_owned(),
        r#"{"id":"x","object":"chat.completion.chunk","created":1,"model":"gpt","service_tier":"default","system_fingerprint":"fp","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"aB3"}"#.to_owned(),
        r#"{"id":"5d41","object":"chat.completion.chunk","created":1760000002,"model":"m","choices":[{"index":0,"delta":{"role":null,"content":"The","reasoning_content":null,"tool_calls":null},"logprobs":null,"finish_reason":null,"matched_stop":null}],"usage":null}"#.to_owned(),
    ];
    for chunk in &chunks {
        assert!(agree(chunk.as_bytes()), "not certain: {chunk}");
    }
}
