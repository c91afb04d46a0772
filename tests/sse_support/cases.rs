//! The published cases of `tests/cases/sse/cases.json`, decoded.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// One stream and what must come of it.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) input: Vec<u8>,
    pub(crate) chunkings: Vec<Vec<usize>>,
    pub(crate) events: Vec<ExpectedEvent>,
    pub(crate) comments: u64,
    /// `None` where the file leaves the values open.
    pub(crate) retry: Option<Vec<u64>>,
    pub(crate) last_event_id: String,
    pub(crate) pending_block_at_eof: bool,
    pub(crate) unterminated_tail: Vec<u8>,
}

/// One event; texts are decoded with U+FFFD for malformed UTF-8.
#[derive(Debug)]
pub(crate) struct ExpectedEvent {
    pub(crate) event: String,
    pub(crate) data: String,
    /// The bytes, where they are not the UTF-8 of `data`.
    pub(crate) data_raw: Option<Vec<u8>>,
    pub(crate) id: String,
}

/// Every case of the file; a key this reader does not know fails, so that nothing is skipped silently.
pub(crate) fn load() -> Vec<Case> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/sse/cases.json");
    let file: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    file.as_array().unwrap().iter().map(case).collect()
}

fn case(value: &Value) -> Case {
    let name = text(&value["name"]);
    let expect = &value["expect"];
    let input = match value.get("input_b64") {
        Some(encoded) => bytes(encoded),
        None => value["input_gen"].as_array().unwrap().iter().flat_map(generated).collect(),
    };
    assert_eq!(input.len() as u64, value["input_len"].as_u64().unwrap(), "{name}: length");
    known_keys(
        expect,
        &["events", "comments", "retry", "last_event_id", "pending_block_at_eof", "unterminated_tail_b64"],
    );
    Case {
        input,
        chunkings: value["chunkings"].as_array().unwrap().iter().map(numbers).collect(),
        events: expect["events"].as_array().unwrap().iter().map(expected_event).collect(),
        comments: expect["comments"].as_u64().unwrap(),
        retry: expect.get("retry").map(|list| numbers(list).into_iter().map(|ms| ms as u64).collect()),
        last_event_id: text(&expect["last_event_id"]),
        pending_block_at_eof: expect["pending_block_at_eof"].as_bool().unwrap(),
        unterminated_tail: bytes(&expect["unterminated_tail_b64"]),
        name,
    }
}

fn expected_event(value: &Value) -> ExpectedEvent {
    known_keys(value, &["event", "data", "data_gen", "data_raw_b64", "id"]);
    let data = match value.get("data_gen") {
        Some(part) => text(&part["repeat"]).repeat(usize::try_from(part["times"].as_u64().unwrap()).unwrap()),
        None => text(&value["data"]),
    };
    ExpectedEvent {
        event: text(&value["event"]),
        data,
        data_raw: value.get("data_raw_b64").map(bytes),
        id: text(&value["id"]),
    }
}

/// One part of `input_gen`: literal bytes, or bytes with a repeat count.
fn generated(part: &Value) -> Vec<u8> {
    match part.get("b64") {
        Some(encoded) => bytes(encoded),
        None => bytes(&part["repeat_b64"]).repeat(usize::try_from(part["times"].as_u64().unwrap()).unwrap()),
    }
}

fn known_keys(object: &Value, known: &[&str]) {
    for key in object.as_object().unwrap().keys() {
        assert!(known.contains(&key.as_str()), "unknown key {key}");
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn bytes(value: &Value) -> Vec<u8> {
    STANDARD.decode(value.as_str().unwrap()).unwrap()
}

fn numbers(list: &Value) -> Vec<usize> {
    list.as_array().unwrap().iter().map(|n| usize::try_from(n.as_u64().unwrap()).unwrap()).collect()
}
