//! What the answers look like: the stream's layout, the answer in one piece, reasoning, several tokens in an event,
//! obedience to the prompt.

use hammerscale::sim::ledger::EventKind;
use serde_json::{Value, json};

use crate::client::{Sim, chat_body};

#[test]
fn a_stream_has_the_layout_of_vllm() {
    let sim = Sim::start(&["--ttft=5ms", "--itl=1ms"]);
    let mut client = sim.connect();
    let response = client.chat(&chat_body("Say something.", 4, true), Some("run-0"));
    assert_eq!(response.field("x-request-id"), Some("run-0"));
    let events = response.events();
    assert_eq!(events.len(), 8, "role, 4 contents, finish, usage, [DONE]");
    for event in &events[..7] {
        assert_eq!(event["object"], "chat.completion.chunk");
        assert_eq!(event["model"], "org/model-8b");
        assert_eq!(event["id"], events[0]["id"]);
        assert!(event["id"].as_str().unwrap().starts_with("chatcmpl-"));
        assert!(event["created"].as_i64().unwrap() > 1_760_000_000);
    }
    let choice = |i: usize| &events[i]["choices"][0];
    assert_eq!(choice(0)["delta"], json!({"role": "assistant", "content": ""}));
    for i in 1..5 {
        let content = choice(i)["delta"]["content"].as_str().unwrap();
        assert_eq!(content.starts_with(' '), i > 1, "{content:?}");
        assert_eq!(content.trim().split(' ').count(), 1);
    }
    assert!((0..5).all(|i| choice(i)["finish_reason"].is_null()));
    assert_eq!(
        (&choice(5)["delta"], &choice(5)["finish_reason"]),
        (&json!({"content": ""}), &json!("length"))
    );
    assert_eq!(events[6]["choices"], json!([]));
    assert_eq!(events[6]["usage"], json!({"prompt_tokens": 4, "total_tokens": 8, "completion_tokens": 4}));
    assert_eq!(events[7], "[DONE]");
    // Without the option there is no usage; without a stream there is one object.
    let mut body = chat_body("Say something.", 4, true);
    body["stream_options"] = Value::Null;
    assert_eq!(client.chat(&body, None).events().len(), 7);
    let whole = client.chat(&chat_body("Say something.", 4, false), None);
    assert_eq!(whole.field("content-type"), Some("application/json"));
    let whole = whole.json();
    assert_eq!(
        (&whole["object"], &whole["choices"][0]["finish_reason"]),
        (&json!("chat.completion"), &json!("length"))
    );
    let text = whole["choices"][0]["message"]["content"].as_str().unwrap();
    assert_eq!(text.split(' ').count(), 4);
    assert_eq!(whole["usage"]["total_tokens"], 8);
}

#[test]
fn reasoning_and_several_tokens_in_an_event() {
    let sim = Sim::start(&[
        "--ttft=1ms",
        "--itl=0ms",
        "--reasoning-tokens=5",
        "--tokens=7",
        "--tokens-per-chunk=3",
    ]);
    let mut client = sim.connect();
    let response = client.chat(&chat_body("Think.", 100, true), None);
    let kinds: Vec<_> = response
        .events()
        .iter()
        .map(|e| {
            let delta = &e["choices"][0]["delta"];
            let words = |key: &str| delta[key].as_str().unwrap_or("").split_whitespace().count();
            (words("reasoning"), words("content"))
        })
        .collect();
    assert_eq!(kinds, [(0, 0), (3, 0), (2, 0), (0, 3), (0, 3), (0, 1), (0, 0), (0, 0), (0, 0)]);
    let events = response.events();
    assert_eq!(events[6]["choices"][0]["finish_reason"], "stop");
    assert_eq!(events[7]["usage"]["completion_tokens"], 12);
    assert_eq!(events[7]["usage"]["completion_tokens_details"]["reasoning_tokens"], 5);
    let whole = client.chat(&chat_body("Think.", 100, false), None).json();
    let message = &whole["choices"][0]["message"];
    assert_eq!(message["reasoning"].as_str().unwrap().split(' ').count(), 5);
    assert_eq!(message["content"].as_str().unwrap().split(' ').count(), 7);
    drop(client);
    let ledger = sim.finish();
    let tokens: Vec<_> = ledger.requests[0].events.iter().map(|e| (e.kind, e.tokens)).collect();
    use EventKind::{Content, Done, Finish, Reasoning, Role, Usage};
    assert_eq!(
        tokens,
        [
            (Role, 0),
            (Reasoning, 3),
            (Reasoning, 2),
            (Content, 3),
            (Content, 3),
            (Content, 1),
            (Finish, 0),
            (Usage, 0),
            (Done, 0)
        ]
    );
    assert_eq!(
        (ledger.requests[0].arrived.reasoning_tokens, ledger.requests[0].arrived.content_tokens),
        (5, 7)
    );
    assert_eq!(ledger.requests[1].events[0].tokens, 12);
}

/// The reference's checks of its own request, from its rules: the text starts with the marker and white space, holds no
/// other marker, and the rest is exactly so many words `code`.
fn obeys(text: &str, marker: &str, words: usize) -> bool {
    let Some(rest) = text.strip_prefix(marker) else { return false };
    let starts = rest.chars().next().is_none_or(char::is_whitespace);
    let found: Vec<&str> = rest.split_whitespace().collect();
    starts && found.len() == words && found.iter().all(|w| *w == "code")
}

#[test]
fn the_references_prompt_is_obeyed() {
    let sim = Sim::start(&["--profile=instant", "--tokens-per-chunk=uniform:1,5"]);
    let filler = "def helper_3():\n    return compute(3)  # routine specialist context\n".repeat(100);
    let mut client = sim.connect();
    for (index, words) in [(0, 64), (1, 1), (2, 1000)] {
        let marker = format!("ANVIL_REQ_-5_{index:05}");
        let prompt = format!(
            "# unique benchmark request {marker}\n\n{filler}\n# request {index}: Begin with the exact marker {marker}, followed by one space. Then emit exactly {words} repetitions of the lowercase word code, separated by single spaces. Do not add other text and do not stop early."
        );
        for stream in [true, false] {
            let response = client.chat(&chat_body(&prompt, 4096, stream), None);
            let (text, reason) = if stream {
                (
                    response.text("content"),
                    response
                        .events()
                        .iter()
                        .find_map(|e| e["choices"][0]["finish_reason"].as_str().map(str::to_owned)),
                )
            } else {
                let choice = response.json()["choices"][0].clone();
                (
                    choice["message"]["content"].as_str().unwrap().to_owned(),
                    choice["finish_reason"].as_str().map(str::to_owned),
                )
            };
            assert!(obeys(&text, &marker, words), "{text:.80}");
            assert!(text.starts_with(&format!("{marker} code")), "one space");
            assert_eq!(reason.as_deref(), Some("stop"));
        }
    }
    // Marker without words; words without marker; and a limit that cuts.
    let prompt = format!(
        "{filler}\n# request 9: Begin with the exact marker ANVIL_REQ_1_00009, followed by one space. Summarize the above in one line."
    );
    let text = client.chat(&chat_body(&prompt, 16, true), None).text("content");
    assert!(text.starts_with("ANVIL_REQ_1_00009 ") && text.split(' ').count() == 16);
    let prompt = format!(
        "{filler}\n# request 9: Then emit exactly 12 repetitions of the lowercase word code, separated by single spaces. Do not add other text and do not stop early."
    );
    assert_eq!(client.chat(&chat_body(&prompt, 16, true), None).text("content"), ["code"; 12].join(" "));
    let cut = client.chat(&chat_body(&prompt, 5, true), None);
    assert_eq!(cut.text("content"), ["code"; 5].join(" "));
    assert_eq!(cut.events()[cut.events().len() - 3]["choices"][0]["finish_reason"], "length");
}

#[test]
fn the_seed_fixes_lengths_texts_and_plans() {
    let run = |seed: &str| {
        let sim = Sim::start(&[
            "--seed",
            seed,
            "--ttft=exp:2ms",
            "--itl=exp:200us",
            "--tokens=uniform:5,40",
            "--tokens-per-chunk=uniform:1,3",
        ]);
        let mut client = sim.connect();
        let texts: Vec<String> =
            (0..5).map(|_| client.chat(&chat_body("same", 100, true), None).text("content")).collect();
        drop(client);
        let ledger = sim.finish();
        let plans: Vec<Vec<i64>> = ledger
            .requests
            .iter()
            .map(|r| r.events.iter().map(|e| e.planned.0 - r.arrived.arrival.0).collect())
            .collect();
        (texts, plans)
    };
    let (first, again, other) = (run("7"), run("7"), run("8"));
    assert_eq!(first, again);
    assert_ne!(first.0, other.0);
    assert_ne!(first.1, other.1);
    let lengths: std::collections::BTreeSet<usize> = first.0.iter().map(|t| t.split(' ').count()).collect();
    assert!(lengths.len() > 1, "requests differ from each other: {lengths:?}");
}
