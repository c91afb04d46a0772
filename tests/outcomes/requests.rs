//! What each endpoint's requests are on the wire: request line, fields, body, and that nothing else was asked.

use serde_json::{Value, json};

use crate::answers::good;
use crate::run::{Run, start};
use crate::server::{Request, Server, Then};

const REQUESTS: usize = 3;
const KEY: (&str, &str) = ("OPENAI_API_KEY", "KEY-77");

/// Runs three requests and returns what the server got.
fn sent(flags: &[&str]) -> (Run, Vec<Request>) {
    let server = Server::start(|peer, _| {
        peer.say(good());
        Then::Keep
    });
    let run = start(&server.base_url(), REQUESTS, 1, flags, &[KEY]).wait();
    let requests = server.requests();
    assert_eq!(requests.len(), REQUESTS, "nothing else is asked: {flags:?}");
    (run, requests)
}

fn field<'a>(request: &'a Request, name: &str) -> Option<&'a str> {
    request.head.lines().skip(1).find_map(|line| {
        let (key, value) = line.split_once(": ")?;
        key.eq_ignore_ascii_case(name).then_some(value)
    })
}

#[test]
fn every_endpoint_is_asked_in_its_own_words() {
    let user = |body: &Value| json!([{"role": "user", "content": body["messages"][0]["content"]}]);
    for (name, path, keys) in [
        ("chat", "/v1/chat/completions", "max_tokens messages model stream stream_options"),
        ("completions", "/v1/completions", "max_tokens model prompt stream stream_options"),
        ("responses", "/v1/responses", "input max_output_tokens model stream"),
        ("messages", "/v1/messages", "max_tokens messages model stream"),
        ("embeddings", "/v1/embeddings", "input model"),
    ] {
        let (run, requests) = sent(&["--endpoint", name]);
        for (index, request) in requests.iter().enumerate() {
            assert!(request.head.starts_with(&format!("POST {path} HTTP/1.1\r\n")), "{}", request.head);
            let accept = if name == "embeddings" { "application/json" } else { "text/event-stream" };
            assert_eq!(field(request, "accept"), Some(accept), "{name}");
            assert_eq!(field(request, "content-type"), Some("application/json"), "{name}");
            let is_messages = name == "messages";
            let bearer = field(request, "authorization");
            assert_eq!(bearer, (!is_messages).then_some("Bearer KEY-77"), "{name}");
            assert_eq!(field(request, "x-api-key"), is_messages.then_some("KEY-77"), "{name}");
            assert_eq!(field(request, "anthropic-version"), is_messages.then_some("2023-06-01"), "{name}");
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            let found: Vec<&str> = body.as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(found.join(" "), keys, "{name}");
            let prompt = [&body["messages"][0]["content"], &body["prompt"], &body["input"]];
            let prompt = prompt.into_iter().find_map(Value::as_str).unwrap();
            assert!(prompt.starts_with(&format!("# unique benchmark request {index}\n")), "{name}: {prompt}");
            if body.get("messages").is_some() {
                assert_eq!(body["messages"], user(&body), "{name}");
            }
        }
        let spec = &run.document["spec"];
        assert_eq!((&spec["target"]["endpoint"], &spec["target"]["path"]), (&json!(name), &json!(path)));
        let limit = if name == "embeddings" { Value::Null } else { json!(128) };
        assert_eq!(spec["prompt"]["max_tokens"], limit, "{name}");
        assert_eq!(run.rows[0]["requested_max_tokens"], limit, "{name}");
        let artifact = run.files().iter().any(|path| path.ends_with("artifact.json"));
        assert_eq!(artifact, name != "embeddings", "{name}");
        if name == "chat" || name == "completions" {
            run.all_ok(REQUESTS);
        }
    }
}

#[test]
fn one_body_is_asked_for_without_a_stream() {
    let (run, requests) = sent(&["--no-stream", "--extra-body", r#"{"n": 2, "api_key": "EXTRA-SECRET-5"}"#]);
    for request in &requests {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        assert_eq!(
            (&body["stream"], &body["n"], body.get("stream_options")),
            (&json!(false), &json!(2), None)
        );
        assert_eq!(body["api_key"], "EXTRA-SECRET-5");
        assert_eq!(field(request, "accept"), Some("application/json"));
    }
    let body = &run.document["spec"]["body"];
    assert_eq!((&body["stream"], &body["extra_body"]), (&json!(false), &json!({"n": 2, "api_key": "***"})));
    let files = run.files();
    assert!(!files.iter().any(|path| path.ends_with("artifact.json")), "{files:?}");
    for file in files {
        let text = std::fs::read(&file).unwrap();
        assert!(!String::from_utf8_lossy(&text).contains("EXTRA-SECRET"), "{}", file.display());
    }
}

/// A small body goes out with its head, a large one behind it from the bytes that all requests share.
#[test]
fn plain_requests_carry_the_file_and_nothing_of_a_model() {
    let dir = tempfile::tempdir().unwrap();
    for bytes in [0_usize, 17, 4_096, 3_000_000] {
        let body: Vec<u8> = (0..bytes).map(|i| u8::try_from(i % 251).unwrap()).collect();
        let file = dir.path().join("body");
        std::fs::write(&file, &body).unwrap();
        let file = file.to_str().unwrap();
        let flags = [
            "--endpoint",
            "http",
            "--method",
            "PUT",
            "--body",
            file,
            "--header",
            "Content-Type: a/b",
            "--endpoint-path",
        ];
        let (run, requests) = sent(&[&flags[..], &["/x?y=1"]].concat());
        for request in &requests {
            assert!(request.head.starts_with("PUT /x?y=1 HTTP/1.1\r\n"), "{}", request.head);
            assert_eq!(request.body, body, "{bytes}");
            assert_eq!(
                (field(request, "content-type"), field(request, "accept")),
                (Some("a/b"), Some("*/*"))
            );
            assert_eq!(field(request, "authorization"), None, "a key goes only where it was sent on purpose");
        }
        let document = &run.document;
        assert_eq!(document["target"]["model"], Value::Null);
        assert_eq!((&document["spec"]["prompt"], &document["spec"]["body"]), (&Value::Null, &Value::Null));
        let plain = json!({"method": "PUT", "body_file": file, "body_bytes": bytes});
        assert_eq!(document["spec"]["plain"], plain);
        let sent = run.rows[0]["bytes_sent"].as_u64().unwrap();
        assert_eq!(sent, (requests[0].head.len() + bytes) as u64);
        assert_eq!(run.rows[0]["requested_max_tokens"], Value::Null);
    }
}

#[test]
fn a_plain_get_is_the_base_as_it_is() {
    let server = Server::start(|peer, _| {
        peer.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
        Then::Keep
    });
    let base = format!("http://{}/a//b/?c=d", server.address);
    let run = start(&base, REQUESTS, 1, &["--endpoint", "http"], &[]).wait();
    let requests = server.requests();
    assert_eq!(requests.len(), REQUESTS);
    for request in &requests {
        assert!(request.head.starts_with("GET /a//b/?c=d HTTP/1.1\r\n"), "{}", request.head);
        assert_eq!((field(request, "content-length"), field(request, "content-type")), (None, None));
    }
    assert_eq!(run.document["target"]["endpoint"], "/a//b/?c=d");
    assert_eq!(run.document["plan"]["distinct_prompts"], 0);
}
