//! The direct scan and the memory of a reader against the full parse, on random events of
//! every dialect, random JSON and damage.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

mod events;
mod json;

use std::collections::BTreeMap;

use hammerscale::record::OutputKind;
use hammerscale::wire::dialect::{
    ChoiceShape, Dialect, EventReader, EventSink, Facts, JsonText, Scanned, StreamAccount, TextRule,
};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::events::{chunk, dialect, event};
use crate::json::{Spacing, any_json, body, spacing};

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

fn by_scan(dialect: Dialect, data: &[u8]) -> Option<Reading> {
    let mut found = Scanned::default();
    dialect.scan(data, &mut found)?;
    let mut reading = Reading::default();
    reading.facts = found.report(&mut reading);
    Some(reading)
}

fn by_full_parse(dialect: Dialect, event: &[u8], data: &[u8]) -> Reading {
    let mut reading = Reading::default();
    reading.facts = dialect.read_in_full(event, data, &mut reading);
    reading
}

/// Says whether the scan was certain; if it was, it must say what the full parse says, whatever the event's type.
fn agree(dialect: Dialect, data: &[u8]) -> bool {
    let Some(scanned) = by_scan(dialect, data) else { return false };
    for event in [&b""[..], b"response.output_text.delta", b"content_block_delta"] {
        let full = by_full_parse(dialect, event, data);
        assert_eq!(scanned, full, "{dialect:?} {}", String::from_utf8_lossy(data));
    }
    true
}

// ---------------------------------------------------------------------------------------------------------------
// The properties.

proptest! {
    #[test]
    fn on_events_the_scan_says_what_the_full_parse_says((dialect, event) in event(), spacing in spacing()) {
        agree(dialect, event.render(spacing).as_bytes());
    }

    #[test]
    fn on_any_json_the_scan_says_what_the_full_parse_says(
        dialect in dialect(),
        json in prop_oneof![any_json(), event().prop_map(|(_, json)| json)],
        spacing in spacing(),
    ) {
        agree(dialect, json.render(spacing).as_bytes());
    }

    #[test]
    fn damage_never_makes_the_two_disagree(
        (dialect, event) in event(),
        spacing in spacing(),
        damage in prop::collection::vec((any::<Index>(), any::<u8>(), 0_u8..4), 1..4),
    ) {
        let mut bytes = event.render(spacing).into_bytes();
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
        agree(dialect, &bytes);
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(
        dialect in dialect(),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        event in "(error|x)?",
    ) {
        agree(dialect, &bytes);
        let mut account = StreamAccount::new(dialect);
        account.start(TextRule::keep(10));
        account.on_whole(&bytes);
        account.start(TextRule::keep(10));
        account.on_event(event.as_bytes(), &bytes);
        account.on_error_field(&bytes);
    }

    #[test]
    fn a_reader_with_a_memory_says_what_one_without_says(
        (dialect, event) in event(),
        spacing in spacing(),
        bodies in prop::collection::vec(prop_oneof![3 => body(), 1 => "[\\x00-\\x7f]{0,6}"], 1..6),
        damage in prop::option::of((any::<Index>(), any::<u8>())),
    ) {
        // A stream whose events differ in the text of one place, whatever that place is, some of them damaged.
        let json = event.render(spacing);
        let quotes: Vec<usize> = json.match_indices('"').map(|(at, _)| at).collect();
        let mut reader = EventReader::new(dialect);
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
            prop_assert_eq!(reading, by_full_parse(dialect, b"", event), "{}", String::from_utf8_lossy(event));
        }
    }
}

#[test]
fn the_generators_reach_both_the_scan_and_the_full_parse() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    for (dialect, strategy, usage_without_scan) in [
        (Dialect::Chat, chunk(), false),
        (Dialect::Responses, events::of_responses(), true),
        (Dialect::Messages, events::of_messages(), true),
    ] {
        let (mut certain, mut with_output, mut with_usage, mut errors) = (0, 0, 0, 0);
        for _ in 0..1000 {
            let json = strategy.new_tree(&mut runner).unwrap().current().render(Spacing::None);
            let full = by_full_parse(dialect, b"", json.as_bytes());
            errors += u32::from(full.facts.error.is_some());
            with_usage += u32::from(usage_without_scan && full.facts.usage.is_some());
            if let Some(scanned) = by_scan(dialect, json.as_bytes()) {
                certain += 1;
                with_output += u32::from(scanned.choices.iter().any(|choice| !choice.outputs.is_empty()));
                with_usage += u32::from(scanned.facts.usage.is_some());
            }
        }
        let counts = (dialect, certain, with_output, with_usage, errors);
        assert!(certain > 150 && certain < 950, "{counts:?}");
        assert!(with_output > 80 && with_usage > 40 && errors > 40, "{counts:?}");
    }
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
        assert!(agree(Dialect::Chat, chunk.as_bytes()), "not certain: {chunk}");
    }
}

#[test]
fn the_deltas_of_the_typed_dialects_never_need_the_full_parse() {
    let responses = [
        r#"{"type":"response.output_text.delta","sequence_number":4,"item_id":"msg_1","output_index":0,"content_index":0,"delta":"The","logprobs":[],"obfuscation":"VLM"}"#,
        r#"{"content_index":0,"delta":"\n\u00e9","item_id":"msg_1","logprobs":[],"output_index":1,"sequence_number":12,"type":"response.output_text.delta"}"#,
        r#"{"type":"response.reasoning_summary_text.delta","item_id":"rs_1","output_index":0,"summary_index":0,"delta":"**"}"#,
        r#"{"type":"response.function_call_arguments.delta","item_id":"fc_1","output_index":0,"delta":"{\"a","sequence_number":3}"#,
        r#"{"type": "response.output_text.done", "item_id": "m", "text": "The river", "output_index": 0}"#,
        r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"m","type":"message","status":"in_progress","content":[]}}"#,
    ];
    let messages = [
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"The"}}"#,
        r#"{"type": "content_block_delta", "index": 1, "delta": {"type": "thinking_delta", "thinking": "Hm"}}"#,
        r#"{"delta":{"partial_json":"{\"a\"","type":"input_json_delta"},"index":2,"type":"content_block_delta"}"#,
        r#"{"type":"ping"}"#,
        r#"{"type":"content_block_stop","index":0}"#,
    ];
    let both = [(Dialect::Responses, &responses[..]), (Dialect::Messages, &messages[..])];
    for (dialect, events) in both {
        for event in events {
            assert!(agree(dialect, event.as_bytes()), "not certain: {event}");
        }
    }
}
