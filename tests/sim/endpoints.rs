//! Every endpoint: what it answers, when, and what the ledger says of it. Layouts are checked in `layouts`.

use std::time::Duration;

use base64::Engine;
use hammerscale::sim::ledger::read::Request;
use hammerscale::sim::ledger::{Ending, EventKind, Service};
use serde_json::{Value, json};

use crate::client::{Client, Response, Sim, chat_body, post};

/// The endpoints that generate text, each with its name in the ledger.
const GENERATING: [(&str, Service); 4] = [
    ("/v1/chat/completions", Service::Chat),
    ("/v1/completions", Service::Completions),
    ("/v1/responses", Service::Responses),
    ("/v1/messages", Service::Messages),
];

/// A body that every generating endpoint understands: nine bytes of prompt are three tokens.
fn body(limit: u64, stream: bool) -> Value {
    json!({
        "model": "org/model-8b", "stream": stream, "prompt": "Say that.", "input": "Say that.",
        "messages": [{"role": "user", "content": "Say that."}], "max_tokens": limit, "max_output_tokens": limit,
        "stream_options": {"include_usage": true}, "no_such_field": {"a": [1]}
    })
}

/// The texts of one event: reasoning and content.
fn texts(event: &Value) -> (&str, &str) {
    let text = |value: &'static str| event.pointer(value).and_then(Value::as_str).unwrap_or_default();
    match event["type"].as_str() {
        Some("response.reasoning_text.delta") => (text("/delta"), ""),
        Some("response.output_text.delta") => ("", text("/delta")),
        Some("content_block_delta") => (text("/delta/thinking"), text("/delta/text")),
        Some(_) => ("", ""),
        None => {
            let content = event.pointer("/choices/0/text").and_then(Value::as_str);
            (text("/choices/0/delta/reasoning"), content.unwrap_or_else(|| text("/choices/0/delta/content")))
        }
    }
}

/// Prompt tokens and generated tokens of an answer in one piece, or of the event that has both.
fn usage(answer: &Value) -> Option<(u64, u64)> {
    let usage = [answer, &answer["response"]].into_iter().find_map(|a| a.get("usage"))?;
    let of = |a: &str, b: &str| usage.get(a).or_else(|| usage.get(b)).and_then(Value::as_u64);
    Some((of("prompt_tokens", "input_tokens")?, of("completion_tokens", "output_tokens")?))
}

/// Reasoning and content of an answer in one piece.
fn whole_texts(answer: &Value) -> (String, String) {
    let text = |pointer: &str| answer.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let last = |list: &str| answer[list].as_array().map_or(0, |l| l.len().saturating_sub(1));
    match answer["object"].as_str() {
        Some("chat.completion") => (text("/choices/0/message/reasoning"), text("/choices/0/message/content")),
        Some("text_completion") => (String::new(), text("/choices/0/text")),
        Some("response") => {
            (text("/output/0/content/0/text"), text(&format!("/output/{}/content/0/text", last("output"))))
        }
        _ => (text("/content/0/thinking"), text(&format!("/content/{}/text", last("content")))),
    }
}

fn words(text: &str) -> u64 {
    u64::try_from(text.split_whitespace().count()).unwrap()
}

/// The ledger's row of each event against the event: kind and number of tokens.
fn assert_events_are_the_ledgers(request: &Request, response: &Response) {
    let events = response.named_events();
    assert_eq!(request.events.len(), events.len());
    for (sent, (name, event)) in request.events.iter().zip(&events) {
        let (reasoning, content) = texts(event);
        let expected = match (words(reasoning), words(content)) {
            (0, 0) => (false, sent.kind, 0),
            (n, 0) => (true, EventKind::Reasoning, n),
            (0, n) => (true, EventKind::Content, n),
            both => panic!("{both:?}"),
        };
        assert_eq!((sent.kind.is_output(), sent.kind, u64::from(sent.tokens)), expected, "{event}");
        // A named event names its data's type.
        assert_eq!(name.as_deref(), event["type"].as_str(), "{event}");
    }
    assert_eq!(request.events.last().unwrap().kind, EventKind::Done);
}

#[test]
fn streams_say_what_the_ledger_says() {
    let sim = Sim::start(&["--ttft=30ms", "--itl=7ms", "--reasoning-tokens=5", "--tokens-per-chunk=2"]);
    let mut client = sim.connect();
    let responses: Vec<Response> =
        GENERATING.iter().map(|(path, _)| client.ask(path, &body(12, true), Some(path))).collect();
    drop(client);
    let ledger = sim.finish();
    for ((path, service), response) in GENERATING.iter().zip(&responses) {
        let request = ledger.request_by_id(path).unwrap();
        let arrived = &request.arrived;
        assert_eq!((arrived.service, arrived.stream, arrived.status), (*service, true, 200), "{path}");
        assert_eq!((arrived.prompt_bytes, arrived.prompt_tokens), (9, 3), "{path}");
        assert_eq!(arrived.model, "org/model-8b");
        assert_eq!(request.ended.unwrap().ending, Ending::Complete);
        assert_events_are_the_ledgers(request, response);
        // Completions have no place for reasoning; everything is text there.
        let (reasoning, content) = if *service == Service::Completions { (0, 12) } else { (5, 7) };
        assert_eq!((arrived.reasoning_tokens, arrived.content_tokens), (reasoning, content), "{path}");
        let counts = response.named_events().iter().rev().find_map(|(_, event)| usage(event)).unwrap();
        assert_eq!(counts, (3, 12), "{path}");
        // Role and first output after 30 ms, an output every 7 ms, the rest with the last; what the responses API
        // sends at once, at once.
        let start = arrived.arrival.0;
        let outputs: Vec<_> = request.events.iter().filter(|e| e.kind.is_output()).collect();
        for (k, output) in (0..).zip(&outputs) {
            assert_eq!(output.planned.0, start + 30_000_000 + k * 7_000_000, "{path}");
        }
        assert_eq!(outputs.len(), if reasoning == 0 { 6 } else { 7 }, "{path}");
        let first = request.events.first().unwrap().planned.0;
        assert_eq!(first, if *service == Service::Responses { start } else { start + 30_000_000 }, "{path}");
        assert_eq!(request.events.last().unwrap().planned, outputs.last().unwrap().planned, "{path}");
        assert!(request.events.windows(2).all(|w| w[1].planned >= w[0].planned && w[1].before >= w[0].after));
        for (sent, (chunk, received)) in request.events.iter().zip(&response.chunks) {
            assert!(sent.before >= sent.planned && *received > sent.before.0);
            assert!(usize::try_from(sent.bytes).unwrap() > chunk.len());
        }
    }
}

#[test]
fn an_answer_in_one_piece_takes_as_long_as_the_stream() {
    let flags = ["--ttft=uniform:20ms,40ms", "--itl=exp:5ms", "--reasoning-tokens=2", "--tokens-per-chunk=2"];
    // The same seed and number give the same schedule and text, streamed or not.
    let [streamed, whole] = [true, false].map(|stream| {
        let sim = Sim::start(&flags);
        let mut client = sim.connect();
        let responses: Vec<Response> =
            GENERATING.iter().map(|(path, _)| client.ask(path, &body(9, stream), Some(path))).collect();
        drop(client);
        (responses, sim.finish())
    });
    for (i, (path, service)) in GENERATING.iter().enumerate() {
        let (streamed_request, request) =
            (streamed.1.request_by_id(path).unwrap(), whole.1.request_by_id(path).unwrap());
        assert_eq!((request.arrived.service, request.arrived.stream), (*service, false));
        assert_eq!(request.head, None);
        let [body] = request.events[..] else { panic!("{path}: one piece") };
        assert_eq!((body.kind, body.tokens), (EventKind::Body, 9));
        let took = |request: &Request| request.events.last().unwrap().planned.0 - request.arrived.arrival.0;
        assert_eq!(took(request), took(streamed_request), "{path}");
        assert!(body.before >= body.planned);
        let answer = whole.0[i].json();
        assert_eq!(usage(&answer), Some((3, 9)), "{path}");
        let events = streamed.0[i].named_events();
        let join = |of: fn((&str, &str)) -> String| -> String {
            events.iter().map(|(_, event)| of(texts(event))).collect()
        };
        let said = (join(|t| t.0.to_owned()), join(|t| t.1.to_owned()));
        let (reasoning, content) = whole_texts(&answer);
        assert_eq!((words(&reasoning) + words(&content), &content), (9, &said.1), "{path}");
        assert_eq!(reasoning, said.0, "{path}");
    }
}

#[test]
fn every_endpoint_obeys_its_limit() {
    let sim = Sim::start(&["--profile=instant", "--tokens=4"]);
    let mut client = sim.connect();
    let reason = |answer: &Value| {
        let pointers = ["/choices/0/finish_reason", "/stop_reason", "/incomplete_details/reason", "/status"];
        pointers.iter().find_map(|p| answer.pointer(p).and_then(Value::as_str)).unwrap().to_owned()
    };
    for (path, own_end, cut) in [
        ("/v1/chat/completions", "stop", "length"),
        ("/v1/completions", "stop", "length"),
        ("/v1/responses", "completed", "max_output_tokens"),
        ("/v1/messages", "end_turn", "max_tokens"),
    ] {
        for (limit, extra, tokens, ending) in [
            (9, json!({}), 4, own_end),
            (3, json!({}), 3, cut),
            (9, json!({"ignore_eos": true}), 9, cut),
            (9, json!({"min_tokens": 6}), 6, own_end),
        ] {
            let mut body = body(limit, false);
            body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            let answer = client.ask(path, &body, None).json();
            assert_eq!(
                (usage(&answer).unwrap().1, reason(&answer).as_str()),
                (tokens, ending),
                "{path} {body}"
            );
        }
    }
    let mut newer = chat_body("x", 9, false);
    newer["max_completion_tokens"] = json!(2);
    assert_eq!(usage(&client.chat(&newer, None).json()), Some((1, 2)));
}

#[test]
fn running_counts_follow_the_tokens() {
    let sim = Sim::start(&["--profile=instant", "--reasoning-tokens=3", "--tokens-per-chunk=uniform:1,4"]);
    let mut client = sim.connect();
    for (path, _) in &GENERATING[..2] {
        let mut body = body(20, true);
        body["stream_options"]["continuous_usage_stats"] = json!(true);
        let events = client.ask(path, &body, Some(path)).events();
        let (done, chunks) = events.split_last().unwrap();
        assert_eq!(done, "[DONE]");
        let mut so_far = 0;
        for chunk in chunks {
            let (reasoning, content) = texts(chunk);
            so_far += words(reasoning) + words(content);
            assert_eq!(usage(chunk), Some((3, so_far)), "{chunk}");
            assert_eq!(chunk["usage"]["total_tokens"], 3 + so_far, "{chunk}");
        }
        assert_eq!(so_far, 20);
        assert!(chunks.iter().any(|c| c["choices"][0]["finish_reason"] == "length"));
        // Only together with the counts at the end.
        body["stream_options"] = json!({"continuous_usage_stats": true});
        assert!(client.ask(path, &body, None).events().iter().all(|e| e.get("usage").is_none()));
    }
}

#[test]
fn embeddings_come_after_the_time_to_first_token() {
    let sim = Sim::start(&["--ttft=25ms"]);
    let mut client = sim.connect();
    let path = "/v1/embeddings";
    let input = json!(["The river.", "A town.", "The river."]);
    let ask = json!({"model": "e", "input": input, "user": "u"});
    let answer = client.ask(path, &ask, Some("floats")).json();
    assert_eq!((&answer["object"], &answer["model"]), (&json!("list"), &json!("e")));
    // 10, 7 and 10 bytes: each input is rounded up by itself.
    assert_eq!(answer["usage"]["prompt_tokens"], 3 + 2 + 3);
    let vector = |answer: &Value, i: usize| -> Vec<f64> {
        let entry = &answer["data"][i];
        assert_eq!((&entry["index"], &entry["object"]), (&json!(i), &json!("embedding")));
        entry["embedding"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
    };
    let vectors: Vec<_> = (0..3).map(|i| vector(&answer, i)).collect();
    assert_eq!(answer["data"].as_array().unwrap().len(), 3);
    for vector in &vectors {
        let length = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
        assert!(vector.len() == 384 && (length - 1.0).abs() < 1e-6, "{} of {length}", vector.len());
    }
    assert!(vectors[0] == vectors[2] && vectors[0] != vectors[1]);
    // The same numbers in base64, four bytes each.
    let ask = json!({"model": "e", "input": "A town.", "encoding_format": "base64"});
    let answer = client.ask(path, &ask, None).json();
    let bytes = answer["data"][0]["embedding"].as_str().unwrap();
    let bytes = base64::engine::general_purpose::STANDARD.decode(bytes).unwrap();
    let numbers: Vec<f32> = bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    assert_eq!(numbers.len(), 384);
    for (a, b) in numbers.iter().zip(&vectors[1]) {
        assert!((f64::from(*a) - b).abs() < 1e-6);
    }
    let ask = json!({"model": "e", "input": [[1, 2, 3], [4]], "dimensions": 5});
    let answer = client.ask(path, &ask, None).json();
    assert_eq!((vector(&answer, 1).len(), &answer["usage"]["total_tokens"]), (5, &json!(4)));
    drop(client);
    let ledger = sim.finish();
    let request = ledger.request_by_id("floats").unwrap();
    let arrived = &request.arrived;
    assert_eq!((arrived.service, arrived.prompt_bytes, arrived.prompt_tokens), (Service::Embeddings, 27, 8));
    let [body] = request.events[..] else { panic!("one piece") };
    assert_eq!(
        (body.kind, body.tokens, body.planned.0),
        (EventKind::Body, 0, arrived.arrival.0 + 25_000_000)
    );
    assert!(body.before >= body.planned);
}

#[test]
fn tokens_are_counted_at_once_and_as_in_a_completion() {
    let sim = Sim::start(&["--ttft=200ms", "--itl=0ms"]);
    let mut client = sim.connect();
    let text = "The river bends — twice.";
    let answer = client.ask("/tokenize", &json!({"model": "m", "prompt": text}), Some("count")).json();
    let tokens = answer["tokens"].as_array().unwrap();
    assert_eq!((&answer["count"], &answer["max_model_len"]), (&json!(tokens.len()), &json!(1_048_576)));
    let completion =
        client.ask("/v1/completions", &json!({"model": "m", "prompt": text, "max_tokens": 1}), None);
    assert_eq!(completion.json()["usage"]["prompt_tokens"], answer["count"]);
    // Token numbers are a prompt, too.
    let again = json!({"model": "m", "prompt": tokens, "max_tokens": 1});
    assert_eq!(client.ask("/v1/completions", &again, None).json()["usage"]["prompt_tokens"], answer["count"]);
    drop(client);
    let ledger = sim.finish();
    let request = ledger.request_by_id("count").unwrap();
    assert_eq!(request.arrived.service, Service::Tokenize);
    assert_eq!(usize::try_from(request.arrived.prompt_tokens).unwrap(), tokens.len());
    assert_eq!(request.events[0].planned, request.arrived.arrival);
}

#[test]
fn refusals_have_the_endpoints_own_form() {
    let sim = Sim::start(&["--profile=instant"]);
    let mut client = sim.connect();
    for path in [
        "/v1/completions",
        "/v1/responses",
        "/v1/embeddings",
        "/tokenize",
        "/v1/chat/completions",
        "/v1/messages",
    ] {
        let anthropic = path == "/v1/messages";
        let mut check = |request: &[u8], status: u16, kind: &str| {
            client.send(request);
            let response = client.receive();
            assert_eq!((response.status, response.field("content-type")), (status, Some("application/json")));
            let answer = response.json();
            let error = &answer["error"];
            if anthropic {
                assert_eq!((&answer["type"], &error["type"]), (&json!("error"), &json!(kind)), "{answer}");
            } else {
                assert_eq!(
                    (answer.as_object().unwrap().len(), &error["code"]),
                    (1, &json!(status)),
                    "{answer}"
                );
            }
            assert!(error["message"].as_str().unwrap().len() > 10, "{answer}");
        };
        for body in ["", "{", "[]", "null", "{}", "{\"model\":5}"] {
            let length = body.len();
            let request =
                format!("POST {path} HTTP/1.1\r\nHost: s\r\nContent-Length: {length}\r\n\r\n{body}");
            check(request.as_bytes(), 400, "invalid_request_error");
        }
        check(format!("GET {path} HTTP/1.1\r\nHost: s\r\n\r\n").as_bytes(), 405, "invalid_request_error");
        check(format!("GET {path}/x HTTP/1.1\r\nHost: s\r\n\r\n").as_bytes(), 404, "not_found_error");
    }
    drop(client);
    let ledger = sim.finish();
    assert_eq!((ledger.connections.len(), ledger.requests.len()), (1, 6 * 8));
    assert!(ledger.requests.iter().all(|r| r.arrived.service == Service::Refused && r.arrived.status >= 400));
}

#[test]
fn requests_beyond_the_limit_wait_their_turn() {
    let sim = Sim::start(&["--ttft=20ms", "--itl=10ms", "--max-in-flight=2"]);
    let address = sim.address;
    // Nine answers of 60 ms each on nine connections at once; one of those that wait gives up.
    let mut leaver = None;
    let mut clients: Vec<Client> = (0..9).map(|_| Client::connect(address)).collect();
    for (i, client) in clients.iter_mut().enumerate() {
        let path = if i == 4 { "/v1/embeddings" } else { GENERATING[i % 4].0 };
        client.send(&post(path, &body(5, i != 6), Some(&format!("q{i}"))));
        std::thread::sleep(Duration::from_millis(2));
        if i == 5 {
            leaver = Some(Client::connect(address));
            leaver.as_mut().unwrap().send(&post("/v1/completions", &body(5, true), Some("leaver")));
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    drop(leaver);
    // What takes no time does not wait.
    let mut prompt = Client::connect(address);
    prompt.send(&post("/tokenize", &body(1, false), Some("prompt")));
    assert_eq!(prompt.receive().status, 200);
    for client in &mut clients {
        assert_eq!(client.receive().status, 200);
    }
    drop((clients, prompt));
    let ledger = sim.finish();
    let gone = ledger.request_by_id("leaver").unwrap();
    assert_eq!((gone.ended.unwrap().ending, gone.events.len()), (Ending::PeerGone, 0));
    let answers: Vec<&Request> = (0..9).map(|i| ledger.request_by_id(&format!("q{i}")).unwrap()).collect();
    // An answer is under way from the start of its schedule to its end.
    let span = |i: usize| {
        let took = match answers[i].arrived.service {
            Service::Embeddings => 20_000_000,
            _ => 60_000_000,
        };
        let last = answers[i].events.last().unwrap();
        (last.planned.0 - took, answers[i].ended.unwrap().at.0)
    };
    let spans: Vec<_> = (0..9).map(span).collect();
    for (i, (start, end)) in spans.iter().enumerate() {
        assert_eq!(answers[i].ended.unwrap().ending, Ending::Complete);
        assert!(*start >= answers[i].arrived.arrival.0 && end > start);
        let others =
            spans.iter().enumerate().filter(|(k, (s, e))| *k != i && s <= start && e > start).count();
        assert!(others <= 1, "{others} others are under way when answer {i} begins");
    }
    assert_eq!(spans[0].0, answers[0].arrived.arrival.0);
    assert!(spans.windows(2).all(|w| w[0].0 <= w[1].0), "first come, first served: {spans:?}");
    let begun_late = (2..9).filter(|&i| spans[i].0 > answers[i].arrived.arrival.0 + 5_000_000).count();
    assert!(begun_late >= 6, "{begun_late} had to wait");
    let prompt = ledger.request_by_id("prompt").unwrap();
    assert!(prompt.ended.unwrap().at.0 < spans[8].0, "answered before the last one began");
}
