//! Requests well-formed and not: the services, persistence, cuts, pipelining, refusals.

use std::time::Duration;

use hammerscale::sim::ledger::{ClosedBy, Ending, EventKind, Service};
use serde_json::json;

use crate::client::{Sim, chat_body, post_chat};

const FAST: &[&str] = &["--ttft=1ms", "--itl=0ms"];

#[test]
fn models_health_and_everything_else() {
    let sim = Sim::start(FAST);
    let mut client = sim.connect();
    client.send(b"GET /v1/models HTTP/1.1\r\nHost: sim\r\nX-Request-Id: probe\r\n\r\n");
    let response = client.receive();
    assert_eq!((response.status, response.field("content-type")), (200, Some("application/json")));
    assert_eq!(response.field("x-request-id"), Some("probe"));
    assert!(response.field("date").unwrap().ends_with(" GMT"));
    let models = response.json();
    assert_eq!(models["object"], "list");
    assert_eq!(models["data"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&models["data"][0]["id"], &models["data"][0]["max_model_len"]),
        (&json!("sim"), &json!(1_048_576))
    );
    for (request, status, allow) in [
        ("GET /health", 200, None),
        ("GET /v1/models?limit=1", 200, None),
        ("GET /v1/nothing", 404, None),
        ("GET /", 404, None),
        ("GET /v1/chat/completions", 405, Some("POST")),
        ("POST /v1/models", 405, Some("GET")),
        ("DELETE /health", 405, Some("GET")),
    ] {
        client.send(format!("{request} HTTP/1.1\r\nHost: sim\r\n\r\n").as_bytes());
        let response = client.receive();
        assert_eq!((response.status, response.field("allow")), (status, allow), "{request}");
        if status != 200 {
            assert_eq!(response.json()["error"]["code"], status, "{request}");
        }
    }
    drop(client);
    let ledger = sim.finish();
    assert_eq!(ledger.requests.len(), 8);
    let services: Vec<_> = ledger.requests.iter().map(|r| r.arrived.service).collect();
    assert_eq!(services[..3], [Service::Models, Service::Health, Service::Models]);
    assert!(services[3..].iter().all(|s| *s == Service::Refused));
    for request in &ledger.requests {
        assert_eq!(request.events.len(), 1);
        assert_eq!(request.events[0].kind, EventKind::Body);
        assert_eq!(request.ended.unwrap().ending, Ending::Complete);
    }
}

#[test]
fn connections_are_kept_until_asked_to_close() {
    let sim = Sim::start(FAST);
    let mut client = sim.connect();
    for i in 0..3 {
        let response = client.chat(&chat_body("a", 2, i != 1), None);
        assert_eq!((response.status, response.field("connection")), (200, None));
    }
    let body = chat_body("a", 2, true).to_string();
    let head = "POST /v1/chat/completions HTTP/1.1\r\nHost: sim\r\nConnection: close\r\n";
    client.send(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
    let response = client.receive();
    assert_eq!((response.status, response.field("connection")), (200, Some("close")));
    assert!(client.is_closed());
    drop(client);
    let ledger = sim.finish();
    assert_eq!(ledger.connections.len(), 1);
    assert_eq!(ledger.connections[0].closed.unwrap().by, ClosedBy::Simulator);
    let uses: Vec<_> =
        ledger.requests.iter().map(|r| (r.arrived.connection, r.arrived.connection_use)).collect();
    assert_eq!(uses, [(0, 0), (0, 1), (0, 2), (0, 3)]);
}

#[test]
fn a_request_byte_by_byte_is_one_request() {
    let sim = Sim::start(FAST);
    let mut client = sim.connect();
    for byte in post_chat(&chat_body("one byte at a time", 3, true), Some("drip")) {
        client.send(&[byte]);
    }
    assert_eq!(client.receive().events().len(), 7);
    drop(client);
    let ledger = sim.finish();
    assert_eq!(ledger.requests.len(), 1);
    assert_eq!(ledger.requests[0].arrived.request_id.as_deref(), Some("drip"));
    assert_eq!(ledger.requests[0].arrived.prompt_bytes, 18);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let sim = Sim::start(FAST);
    let mut client = sim.connect();
    let mut all = Vec::new();
    for i in 0..5 {
        all.extend(post_chat(&chat_body("x", 1 + i, i % 2 == 0), Some(&format!("p{i}"))));
    }
    all.extend_from_slice(b"GET /health HTTP/1.1\r\nHost: sim\r\n\r\n");
    client.send(&all);
    for i in 0..5 {
        let response = client.receive();
        let usage = if i % 2 == 0 { response.events()[4 + i].clone() } else { response.json() };
        let completion = if i % 2 == 0 { &response.events()[3 + i]["usage"] } else { &usage["usage"] };
        assert_eq!(completion["completion_tokens"], 1 + i, "answer {i}");
    }
    assert_eq!(client.receive().status, 200);
    drop(client);
    let ledger = sim.finish();
    let ids: Vec<_> = ledger.requests.iter().filter_map(|r| r.arrived.request_id.as_deref()).collect();
    assert_eq!(ids, ["p0", "p1", "p2", "p3", "p4"]);
    for pair in ledger.requests.windows(2) {
        assert!(
            pair[1].arrived.arrival >= pair[0].events.last().unwrap().after,
            "taken up after the answer before it"
        );
    }
}

#[test]
fn chunked_request_bodies_and_expectations() {
    let sim = Sim::start(FAST);
    let mut client = sim.connect();
    let body = chat_body("in pieces", 2, false).to_string();
    let (a, b) = body.split_at(20);
    let head = "POST /v1/chat/completions HTTP/1.1\r\nHost: sim\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.send(format!("{head}{:x}\r\n{a}\r\n{:X};ext=1\r\n{b}\r\n0\r\n\r\n", a.len(), b.len()).as_bytes());
    assert_eq!(client.receive().json()["usage"]["completion_tokens"], 2);
    let head = "POST /v1/chat/completions HTTP/1.1\r\nHost: sim\r\nExpect: 100-continue\r\n";
    client.send(format!("{head}Content-Length: {}\r\n\r\n", body.len()).as_bytes());
    assert_eq!(client.receive().status, 100);
    client.send(body.as_bytes());
    assert_eq!(client.receive().json()["object"], "chat.completion");
    drop(client);
    assert_eq!(sim.finish().requests.len(), 2);
}

#[test]
fn bad_bodies_are_refused_and_the_connection_lives_on() {
    let sim = Sim::start(FAST);
    let mut client = sim.connect();
    for body in ["", "{", "null", "{\"model\":\"m\"}", "{\"model\":\"m\",\"messages\":[]}", "\u{1}"] {
        let length = body.len();
        client.send(
            format!(
                "POST /v1/chat/completions HTTP/1.1\r\nHost: s\r\nContent-Length: {length}\r\n\r\n{body}"
            )
            .as_bytes(),
        );
        let response = client.receive();
        assert_eq!((response.status, response.field("connection")), (400, None), "{body:?}");
        let error = response.json()["error"].clone();
        assert_eq!((&error["type"], &error["code"]), (&json!("BadRequestError"), &json!(400)));
        assert!(error["message"].as_str().unwrap().len() > 10);
    }
    assert_eq!(client.chat(&chat_body("fine", 1, false), None).status, 200);
    drop(client);
    let statuses: Vec<_> = sim.finish().requests.iter().map(|r| r.arrived.status).collect();
    assert_eq!(statuses, [400, 400, 400, 400, 400, 400, 200]);
}

#[test]
fn malformed_and_oversized_requests_are_refused_and_the_connection_ends() {
    let sim = Sim::start(FAST);
    let long_field = format!("GET / HTTP/1.1\r\nHost: s\r\nX: {}", "x".repeat(70_000));
    let many_fields = format!("GET / HTTP/1.1\r\nHost: s\r\n{}\r\n", "X: y\r\n".repeat(300));
    let cases: [(&str, u16); 9] = [
        ("hello\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: s\r\nContent-Length: x\r\n\r\n", 400),
        ("GET / HTTP/1.0\r\nHost: s\r\n\r\n", 505),
        ("POST / HTTP/1.1\r\nHost: s\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        ("POST / HTTP/1.1\r\nHost: s\r\nExpect: more\r\n\r\n", 417),
        ("POST / HTTP/1.1\r\nHost: s\r\nContent-Length: 99999999\r\n\r\nthe beginning of it", 413),
        (&long_field, 431),
        (&many_fields, 431),
    ];
    for (request, status) in cases {
        let mut client = sim.connect();
        client.send(request.as_bytes());
        let response = client.receive();
        assert_eq!((response.status, response.field("connection")), (status, Some("close")), "{request:.60}");
        assert_eq!(response.json()["error"]["code"], status);
        assert!(client.is_closed());
    }
    let ledger = sim.finish();
    assert_eq!(ledger.requests.len(), cases.len());
    assert!(ledger.requests.iter().zip(&cases).all(|(r, (_, status))| r.arrived.status == *status));
}

#[test]
fn a_lingering_peer_is_dropped_after_a_refusal() {
    let sim = Sim::start(FAST);
    let mut client = sim.connect();
    client.send(b"nonsense\r\n\r\n");
    assert_eq!(client.receive().status, 400);
    assert!(client.is_closed());
    // Our side stays open: the simulator must not wait for it for ever.
    std::thread::sleep(Duration::from_millis(3000));
    let ledger = sim.finish();
    let closed = ledger.connections[0].closed.unwrap();
    let lingered = closed.at.0 - ledger.requests[0].ended.unwrap().at.0;
    assert!((900_000_000..2_900_000_000).contains(&lingered), "{lingered} ns");
    assert_eq!(closed.by, ClosedBy::Simulator);
    drop(client);
}
