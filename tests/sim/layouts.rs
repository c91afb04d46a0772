//! The layout of the answers against what real servers sent: every key that the simulator writes is one of theirs, of
//! the same type, and the keys that clients read are all there.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use crate::client::{Sim, chat_body};

fn case(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(name)).unwrap()
}

/// The part of vLLM's transcript that answers this request, as its JSON objects.
fn vllm(title: &str) -> Vec<Value> {
    let transcript = case("engines/vllm.txt");
    let (_, part) = transcript.split_once(&format!(" {title}\n")).unwrap();
    let (part, _) = part.split_once("\n##### curl exit").unwrap();
    let lines = part.lines();
    let lines = lines.map(|line| line.strip_prefix("data: ").unwrap_or(line));
    lines.filter(|line| line.starts_with('{')).map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The data of a transcript's first event of this type.
fn event_of(transcript: &str, kind: &str) -> Value {
    let text = case(&format!("transcripts/{transcript}.sse"));
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let mut events = data.map(|data| serde_json::from_str::<Value>(data).unwrap());
    events.find(|event| event["type"] == kind).unwrap_or_else(|| panic!("{transcript}: {kind}"))
}

/// Every path of a value, with the type that stands there; the elements of a list share one path.
fn shape(value: &Value) -> BTreeSet<String> {
    fn walk(path: &str, value: &Value, paths: &mut BTreeSet<String>) {
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "list",
            Value::Object(_) => "object",
        };
        paths.insert(format!("{path}: {kind}"));
        match value {
            Value::Array(items) => items.iter().for_each(|item| walk(&format!("{path}/*"), item, paths)),
            Value::Object(fields) => {
                fields.iter().for_each(|(key, field)| walk(&format!("{path}/{key}"), field, paths));
            }
            _ => {}
        }
    }
    let mut paths = BTreeSet::new();
    walk("", value, &mut paths);
    paths
}

/// `ours` has what `theirs` has but for the paths that begin with one of `left_out`, and nothing else.
fn assert_same_shape(ours: &Value, theirs: &Value, left_out: &[&str]) {
    let mut expected = shape(theirs);
    expected.retain(|path| !left_out.iter().any(|left_out| path.starts_with(left_out)));
    assert_eq!(shape(ours), expected);
}

/// `ours` has all that `theirs` has but for `left_out`, and may have more.
fn assert_has_shape(ours: &Value, theirs: &Value, left_out: &[&str]) {
    let ours = shape(ours);
    let missing: Vec<_> = shape(theirs)
        .into_iter()
        .filter(|path| !ours.contains(path) && !left_out.iter().any(|left_out| path.starts_with(left_out)))
        .collect();
    assert!(missing.is_empty(), "{missing:#?} are not in {ours:#?}");
}

#[test]
fn chat_chunks_are_vllms() {
    let sim = Sim::start(&["--profile=instant"]);
    let mut client = sim.connect();
    let mut body = chat_body("Count.", 4, true);
    body["stream_options"]["continuous_usage_stats"] = json!(true);
    let ours = client.chat(&body, None).events();
    let theirs = vllm("chat stream continuous_usage_stats");
    assert_same_shape(&ours[0], &theirs[0], &["/prompt_text"]);
    assert_same_shape(&ours[1], &theirs[1], &[]);
    // vLLM's last content carries the finish reason; ours comes alone.
    assert_same_shape(&ours[5], &theirs[6], &[]);
    assert_same_shape(&ours[6], &theirs[7], &["/system_fingerprint"]);
    let theirs = vllm("chat stream include_usage");
    let ours = client.chat(&chat_body("Count.", 4, true), None).events();
    assert_same_shape(&ours[0], &theirs[0], &["/prompt_text"]);
    assert_same_shape(&ours[1], &theirs[1], &[]);
    assert_same_shape(&ours[6], &theirs[17], &["/system_fingerprint"]);
    let ours = client.chat(&chat_body("Count.", 4, false), None).json();
    let theirs = vllm("chat non-stream").remove(0);
    let extra: BTreeSet<_> = shape(&ours).difference(&shape(&theirs)).cloned().collect();
    assert!(extra.is_empty(), "{extra:?}");
    assert_has_shape(&ours, &json!({"choices": [{"message": {"content": ""}, "finish_reason": ""}]}), &[]);
}

#[test]
fn completion_chunks_are_vllms() {
    let sim = Sim::start(&["--profile=instant"]);
    let body = json!({"model": "m", "prompt": "Once upon a time", "max_tokens": 3, "stream": true,
                      "stream_options": {"include_usage": true}});
    let ours = sim.connect().ask("/v1/completions", &body, None).events();
    let theirs = vllm("legacy completions stream");
    assert_same_shape(&ours[0], &theirs[0], &[]);
    let last_text = theirs.iter().find(|e| e["choices"][0]["finish_reason"] == "length").unwrap();
    assert_same_shape(&ours[3], last_text, &["/system_fingerprint"]);
    assert_same_shape(&ours[4], theirs.last().unwrap(), &["/system_fingerprint"]);
    assert_eq!(ours[0]["object"], theirs[0]["object"]);
}

#[test]
fn responses_events_have_the_keys_of_the_reference() {
    let sim = Sim::start(&["--profile=instant", "--reasoning-tokens=1"]);
    let body = json!({"model": "m", "input": "Count.", "max_output_tokens": 4, "stream": true});
    let events = sim.connect().ask("/v1/responses", &body, None).named_events();
    for (number, (name, event)) in events.iter().enumerate() {
        assert_eq!((&event["sequence_number"], name.as_deref()), (&json!(number), event["type"].as_str()));
    }
    for kind in [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.completed",
    ] {
        // The last of the type: the message's, not the reasoning's.
        let ours = events.iter().map(|(_, event)| event).rfind(|event| event["type"] == kind).unwrap();
        assert_has_shape(ours, &event_of("openai-responses", kind), &["/obfuscation"]);
    }
    let names: Vec<_> = events.iter().map(|(name, _)| name.as_deref().unwrap()).collect();
    assert_eq!(names.last(), Some(&"response.completed"));
    // What is said at the end is what was said before, piece by piece.
    let response = &events.last().unwrap().1["response"];
    let text = |kind: &str| -> String {
        events.iter().filter(|e| e.1["type"] == kind).map(|e| e.1["delta"].as_str().unwrap()).collect()
    };
    let done = |kind: &str| events.iter().map(|e| &e.1).find(|e| e["type"] == kind).unwrap()["text"].clone();
    for (place, kind) in ["response.reasoning_text", "response.output_text"].iter().enumerate() {
        let said = json!(text(&format!("{kind}.delta")));
        assert_eq!(done(&format!("{kind}.done")), said);
        assert_eq!(response["output"][place]["content"][0]["text"], said);
        let item = &response["output"][place]["id"];
        let items = events.iter().map(|e| &e.1).filter(|e| e["type"] == format!("{kind}.delta"));
        items.for_each(|e| assert_eq!((&e["item_id"], &e["output_index"]), (item, &json!(place))));
    }
}

#[test]
fn messages_events_have_the_keys_of_the_reference() {
    let sim = Sim::start(&["--profile=instant", "--reasoning-tokens=2"]);
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "Count."}], "max_tokens": 4,
                      "stream": true});
    let events = sim.connect().ask("/v1/messages", &body, None).named_events();
    let names: Vec<_> = events.iter().map(|(name, _)| name.as_deref().unwrap()).collect();
    assert_eq!(
        names,
        [
            "message_start",
            "ping",
            "content_block_start",
            "content_block_delta",
            "content_block_delta",
            "content_block_delta",
            "content_block_stop",
            "content_block_start",
            "content_block_delta",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop"
        ]
    );
    assert!(events.iter().all(|(name, event)| name.as_deref() == event["type"].as_str()));
    let reference = |kind: &str| event_of("anthropic-overloaded", kind);
    assert_has_shape(&events[0].1, &reference("message_start"), &["/message/usage/service_tier"]);
    assert_same_shape(&events[7].1, &reference("content_block_start"), &[]);
    assert_same_shape(&events[8].1, &reference("content_block_delta"), &[]);
    let kinds: Vec<_> =
        events.iter().filter_map(|(_, e)| e["delta"]["type"].as_str().map(|k| (k, &e["index"]))).collect();
    let (thinking, text) = (json!(0), json!(1));
    assert_eq!(
        kinds,
        [
            ("thinking_delta", &thinking),
            ("thinking_delta", &thinking),
            ("signature_delta", &thinking),
            ("text_delta", &text),
            ("text_delta", &text)
        ]
    );
    assert_eq!(events[11].1["delta"], json!({"stop_reason": "max_tokens", "stop_sequence": null}));
    assert_eq!(
        (&events[0].1["message"]["usage"]["output_tokens"], &events[11].1["usage"]["output_tokens"]),
        (&json!(0), &json!(4))
    );
}
