//! What servers count and how they answer, up to the documents: the tokens of a cache that is counted beside the prompt,
//! and streams that nobody asked for. A saved run gives the same numbers again.

use std::process::Command;

use serde_json::{Value, json};

use crate::answers::{HEAD, LAST, chunks, good};
use crate::run::{Run, run};
use crate::server::{Server, Then};

const REQUESTS: usize = 6;

/// What llama.cpp says of a prompt of 38 tokens, of which it has 37; and what Anthropic's own server says of one of which
/// it keeps a part for the next request.
const USAGES: [&str; 2] = [
    r#"{"cache_read_input_tokens":37,"input_tokens":1,"output_tokens":0}"#,
    r#"{"input_tokens":3,"cache_creation_input_tokens":25,"cache_read_input_tokens":10,"output_tokens":1}"#,
];

fn event(name: &str, rest: &str) -> String {
    format!("event: {name}\ndata: {{\"type\":\"{name}\"{rest}}}\n\n")
}

/// A message of two words in a stream.
fn message(usage: &str) -> String {
    let start = event("message_start", &format!(r#","message":{{"content":[],"usage":{usage}}}"#));
    let delta = |text: &str| {
        let delta = format!(r#","index":0,"delta":{{"type":"text_delta","text":"{text}"}}"#);
        event("content_block_delta", &delta)
    };
    let end = event("message_delta", r#","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}"#);
    chunks(&[&start, &delta("a"), &delta(" b"), &end, &event("message_stop", "")]) + LAST
}

/// The run's documents follow from its records.
#[track_caller]
fn follows_from_its_records(run: &Run) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hammerscale"));
    let output = command.arg("report").arg(run.path()).args(["--format", "json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap(), run.document);
}

#[test]
fn a_prompt_is_whole_whichever_way_its_cache_is_counted() {
    let server = Server::start(|peer, request| {
        peer.say(message(USAGES[request.index % 2]));
        Then::Keep
    });
    let run = run(&server.base_url(), REQUESTS, 1, &["--endpoint", "messages"]);
    run.all_ok(REQUESTS);
    for row in &run.rows {
        let raw = ["prompt_tokens", "cached_tokens", "cache_creation_tokens", "cache_counted_apart"];
        let sent = match row["request_index"].as_u64().unwrap() % 2 {
            0 => json!([1, 37, null, true]),
            _ => json!([3, 10, 25, true]),
        };
        assert_eq!(Value::from(raw.map(|key| row[key].clone()).to_vec()), sent, "as it was sent");
    }
    let (metrics, half) = (&run.document["metrics"], REQUESTS / 2);
    for stat in ["min", "p50", "mean", "max"] {
        assert_eq!(metrics["prompt_tokens"][stat].as_f64(), Some(38.0), "{stat}");
    }
    let hit = &metrics["prefix_cache_hit"];
    assert_eq!((hit["min"].as_f64(), hit["max"].as_f64()), (Some(10.0 / 38.0), Some(37.0 / 38.0)));
    let tokens = &run.document["tokens"];
    assert_eq!(tokens["prompt"]["received"], 38 * REQUESTS);
    let cached = &tokens["cached"];
    assert_eq!(
        (&cached["prompt"], &cached["cached"], &cached["created"], &cached["counted_apart"]),
        (&json!(38 * REQUESTS), &json!(47 * half), &json!(25 * half), &json!(REQUESTS))
    );
    let rates = &run.document["rates"];
    let per_output = rates["total_tok_s"].as_f64().unwrap() / rates["output_tok_s"].as_f64().unwrap();
    assert!((per_output - 20.0).abs() < 1e-9, "38 + 2 tokens for every 2: {rates}");
    let compat = |peer: &str, metric: &str| run.document["compat"][peer]["metrics"][metric].clone();
    assert_eq!(compat("vllm", "total_input_tokens"), 38 * REQUESTS);
    assert_eq!(compat("aiperf", "input_sequence_length")["avg"].as_f64(), Some(38.0));
    assert_eq!(compat("guideLLM", "prompt_token_count")["mean"].as_f64(), Some(38.0));
    let artifact: Value = serde_json::from_str(&run.read("artifact.json")).unwrap();
    assert_eq!(artifact["metrics"]["prompt_tokens"], 38 * REQUESTS);
    let average = artifact["metrics"]["prefix_cache_hit_avg"].as_f64().unwrap();
    assert!((average - 47.0 / 76.0).abs() < 1e-12, "{average}");
    follows_from_its_records(&run);
}

/// Two of three answers are streams: one as chat sends it, one with every oddity that is no failure.
#[test]
fn a_stream_that_nobody_asked_for_is_told() {
    let odd = [
        ": waiting\n: still\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"logprob\":NaN}]}\n\n",
        "data: {\"x\":1}\n\n",
        "data: nonsense\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"b\"}}]}\n\n",
        "data: [DONE]\n\ndata: {\"late\":1}\n\n",
    ];
    let odd = chunks(&odd) + LAST;
    let body = r#"{"choices":[{"index":0,"message":{"content":"a b"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2}}"#;
    let whole = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let server = Server::start(move |peer, request| {
        match request.index % 3 {
            0 => peer.say(&whole),
            1 => peer.say(good()),
            _ => peer.say(&odd),
        }
        Then::Keep
    });
    let run = run(&server.base_url(), REQUESTS, 1, &["--no-stream"]);
    run.all_ok(REQUESTS);
    for (index, row) in run.rows.iter().enumerate() {
        assert_eq!(row["streamed_unasked"], index % 3 != 0, "{index}");
    }
    let stream = &run.document["stream"];
    let odd = (REQUESTS / 3) as u64;
    for (key, per_odd_answer) in [
        ("keepalive_comments", 2),
        ("tolerated_events", 1),
        ("unrecognised_events", 1),
        ("malformed_events", 1),
        ("events_after_done", 1),
    ] {
        assert_eq!(stream[key], per_odd_answer * odd, "{key}");
    }
    // Of the plain stream six events and two with content, of the odd one five and two.
    assert_eq!((&stream["events"], &stream["content_chunks"]), (&json!(11 * odd), &json!(4 * odd)));
    let requests = &stream["requests"];
    assert_eq!(
        (&requests["streamed_unasked"], &requests["missing_finish_reason"]),
        (&json!(2 * odd), &json!(odd))
    );
    assert_eq!((&requests["missing_done"], &requests["role_chunk_first"]), (&json!(0), &json!(odd)));
    let warnings = run.document["warnings"].as_array().unwrap();
    let warning = warnings.iter().find(|warning| warning["code"] == "streamed_unasked").unwrap();
    let text = warning["text"].as_str().unwrap();
    assert!(text.starts_with("4 of 6 requests got an event stream that was not asked for"), "{text}");
    follows_from_its_records(&run);
}

/// Asked for, a stream is no surprise; one without its terminal and one that was cut behind it are counted.
#[test]
fn streams_that_end_oddly_are_counted_and_no_failures() {
    const FINISHED: &str =
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\n";
    let server = Server::start(|peer, request| match request.index % 3 {
        0 => {
            peer.say(chunks(&[FINISHED]).replace("Transfer", "X-Folded: a\r\n b\r\nTransfer") + "0\r\n");
            Then::Close
        }
        1 => {
            peer.say(format!("{HEAD}Content-Length: 9999\r\n\r\n{FINISHED}data: [DONE]\n\n"));
            Then::Close
        }
        _ => {
            peer.say(good());
            Then::Keep
        }
    });
    let run = run(&server.base_url(), REQUESTS, 1, &[]);
    run.all_ok(REQUESTS);
    let requests = &run.document["stream"]["requests"];
    let expected = json!({
        "missing_done": 2, "missing_finish_reason": 0, "cut_after_terminal": 2, "streamed_unasked": 0,
        "role_chunk_first": 2, "hidden_reasoning": 0, "several_choices": 0,
    });
    assert_eq!(*requests, expected);
    // The RFC lets a client take a folded field, and a body that ends with its last chunk and the connection.
    assert_eq!(run.document["stream"]["anomalies"], json!({"eof_before_final_crlf": 2, "obs_fold": 2}));
    assert_eq!(run.rows[0]["anomalies"], json!(["eof_before_final_crlf", "obs_fold"]));
    assert_eq!(run.rows[1]["anomalies"], json!([]));
    let warnings = run.document["warnings"].as_array().unwrap();
    assert!(warnings.iter().all(|warning| warning["code"] != "streamed_unasked"), "{warnings:?}");
    follows_from_its_records(&run);
}
