//! Python's `http.client` reads what the simulator sends: an HTTP implementation that shares nothing with ours.

use std::process::Command;

use serde_json::{Value, json};

use crate::client::{Sim, chat_body};

/// Prints one JSON object per request: status, content type, data lines, body length, whether the socket was kept.
const SCRIPT: &str = r#"
import http.client, json, sys
host, port = sys.argv[1], int(sys.argv[2])
connection = http.client.HTTPConnection(host, port, timeout=60)
first_socket = None
def ask(method, path, body=None, headers={}, encode_chunked=False):
    global first_socket
    connection.request(method, path, body=body, headers=headers, encode_chunked=encode_chunked)
    first_socket = first_socket or connection.sock
    kept = connection.sock is first_socket
    response = connection.getresponse()
    raw = response.read()
    lines = [l[6:].decode() for l in raw.split(b"\n") if l.startswith(b"data: ")]
    print(json.dumps({"status": response.status, "type": response.getheader("content-type"), "lines": lines,
                      "text": raw.decode(), "kept": kept, "version": response.version}))
def chat(stream, tokens):
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": "h\u00e9llo"}], "max_tokens": tokens,
                       "stream": stream, "stream_options": {"include_usage": True}}).encode()
ask("GET", "/v1/models")
ask("POST", "/v1/chat/completions", chat(True, 5))
ask("POST", "/v1/chat/completions", iter([chat(True, 6)[:30], chat(True, 6)[30:]]), {"Transfer-Encoding": "chunked"}, True)
ask("POST", "/v1/chat/completions", chat(False, 7))
ask("POST", "/v1/chat/completions", b"{")
ask("GET", "/nowhere")
ask("GET", "/health")
"#;

#[test]
fn pythons_client_reads_every_answer_on_one_connection() {
    let sim = Sim::start(&["--ttft=5ms", "--itl=1ms"]);
    let output = Command::new("python3")
        .args(["-c", SCRIPT, &sim.address.ip().to_string(), &sim.address.port().to_string()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answers: Vec<Value> =
        String::from_utf8(output.stdout).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let statuses: Vec<_> = answers.iter().map(|a| a["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 400, 404, 200]);
    assert!(answers.iter().all(|a| a["kept"] == true && a["version"] == 11));
    let json = |text: &Value| serde_json::from_str::<Value>(text.as_str().unwrap()).unwrap();
    assert_eq!(json(&answers[0]["text"])["data"][0]["id"], "sim");
    for (answer, tokens) in [(&answers[1], 5), (&answers[2], 6)] {
        assert_eq!(answer["type"], "text/event-stream; charset=utf-8");
        let lines = answer["lines"].as_array().unwrap();
        assert_eq!(lines.len(), tokens + 4);
        assert_eq!(lines.last().unwrap(), "[DONE]");
        let contents = lines[1..=tokens].iter().map(|l| json(l)["choices"][0]["delta"]["content"].clone());
        let text: String = contents.map(|c| c.as_str().unwrap().to_owned()).collect();
        assert_eq!(text.split(' ').count(), tokens);
        // Six bytes of prompt are two tokens.
        assert_eq!(json(&lines[tokens + 2])["usage"]["prompt_tokens"], 2);
    }
    assert_eq!(json(&answers[3]["text"])["usage"]["completion_tokens"], 7);
    let ledger = sim.finish();
    assert_eq!((ledger.connections.len(), ledger.requests.len()), (1, 7));
    let events: Vec<_> = ledger.requests.iter().map(|r| r.events.len()).collect();
    assert_eq!(events, [1, 9, 10, 1, 1, 1, 1]);
}

/// Reads the streams of the other endpoints line by line, as the WHATWG text describes, and prints for each the list of
/// (event name, data, instant on CLOCK_MONOTONIC).
const STREAM_SCRIPT: &str = r#"
import http.client, json, sys, time
connection = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=60)
body = json.dumps({"model": "m", "prompt": "four", "input": "four", "messages": [{"role": "user", "content": "four"}],
                   "max_tokens": 9, "max_output_tokens": 9, "stream": True, "stream_options": {"include_usage": True}})
for path in sys.argv[3:]:
    connection.request("POST", path, body=body, headers={"x-request-id": path})
    response = connection.getresponse()
    events, name, data = [], "", []
    while line := response.readline():
        line = line.decode().rstrip("\n")
        if line == "":
            data = "\n".join(data)
            events.append([name, None if data == "[DONE]" else json.loads(data), time.monotonic_ns()])
            name, data = "", []
        elif line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            data.append(line[6:])
        else:
            raise ValueError(line)
    print(json.dumps(events))
"#;

#[test]
fn pythons_client_reads_every_endpoints_stream() {
    let paths = ["/v1/completions", "/v1/responses", "/v1/messages"];
    let sim = Sim::start(&["--ttft=20ms", "--itl=4ms", "--reasoning-tokens=3"]);
    let output = Command::new("python3")
        .args(["-c", STREAM_SCRIPT, &sim.address.ip().to_string(), &sim.address.port().to_string()])
        .args(paths)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let streams: Vec<Vec<(String, Value, i64)>> =
        String::from_utf8(output.stdout).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let ledger = sim.finish();
    assert_eq!((ledger.connections.len(), streams.len()), (1, 3));
    for (path, events) in paths.iter().zip(&streams) {
        let request = ledger.request_by_id(path).unwrap();
        assert_eq!(request.events.len(), events.len(), "{path}");
        for (sent, (name, data, seen)) in request.events.iter().zip(events) {
            assert!(*seen > sent.before.0, "{path}: seen after it was sent");
            let kind = data["type"].as_str().unwrap_or_default();
            assert_eq!(name, kind, "{path}");
        }
        let outputs = request.events.iter().filter(|e| e.kind.is_output()).map(|e| u64::from(e.tokens));
        assert_eq!(outputs.sum::<u64>(), 9, "{path}");
    }
    let counts = |events: &[(String, Value, i64)], pointer: &str| {
        events.iter().filter_map(|e| e.1.pointer(pointer)).filter_map(Value::as_u64).next_back()
    };
    assert_eq!(counts(&streams[0], "/usage/completion_tokens"), Some(9));
    assert_eq!(counts(&streams[1], "/response/usage/output_tokens"), Some(9));
    assert_eq!(counts(&streams[2], "/usage/output_tokens"), Some(9));
}

/// A reader of the ledger made from its documented layout alone: prints the header, and the events as lists.
const LEDGER_SCRIPT: &str = r#"
import json, struct, sys
data = open(sys.argv[1], "rb").read()
magic, version, length = struct.unpack_from("<8sHH", data)
header = struct.unpack_from("<QIqq", data, 12)
at, events, requests, tags = 12 + length, [], [], []
while at < len(data):
    tag, size = struct.unpack_from("<BH", data, at)
    at += 3
    tags.append(tag)
    if tag == 2:
        fixed = struct.unpack_from("<QQIqBHBQQQQ", data, at)
        place, texts = at + struct.calcsize("<QQIqBHBQQQQ"), []
        for _ in range(2):
            (n,) = struct.unpack_from("<H", data, place)
            texts.append(data[place + 2:place + 2 + n].decode())
            place += 2 + n
        requests.append([*fixed, *texts])
    elif tag == 4:
        events.append(struct.unpack_from("<BIIQqqqI", data, at))
    at += size
print(json.dumps({"magic": magic.decode(), "version": version, "header": header, "tags": tags, "requests": requests,
                  "events": events, "rest": len(data) - at}))
"#;

#[test]
fn the_ledgers_layout_is_the_documented_one() {
    let mut sim = Sim::start(&["--profile=instant", "--seed=77", "--reasoning-tokens=2"]);
    let mut client = sim.connect();
    client.chat(&chat_body("four", 5, true), Some("id-é"));
    drop(client);
    sim.close_stdin();
    assert!(sim.wait().success());
    let path = sim.ledger_path();
    let output =
        Command::new("python3").args(["-c", LEDGER_SCRIPT, path.to_str().unwrap()]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    let ledger = hammerscale::sim::ledger::read(&path).unwrap();
    let header = ledger.header;
    assert_eq!((&seen["magic"], &seen["version"], &seen["rest"]), (&json!("HSLEDGER"), &json!(2), &json!(0)));
    assert_eq!(seen["header"], json!([77, header.pid, header.monotonic.0, header.realtime.0]));
    let request = &ledger.requests[0];
    let arrival = request.arrived.arrival.0;
    // Number, connection, its uses, arrival, chat, status, streamed with an id, prompt bytes and tokens, tokens, texts.
    assert_eq!(seen["requests"], json!([[0, 0, 0, arrival, 0, 200, 3, 4, 1, 2, 3, "id-é", "org/model-8b"]]));
    let events: Vec<Value> = request
        .events
        .iter()
        .map(|e| json!([e.kind as u8, e.tokens, e.index, 0, e.planned.0, e.before.0, e.after.0, e.bytes]))
        .collect();
    assert_eq!(seen["events"], json!(events));
    assert_eq!(seen["tags"], json!([1, 2, 3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 5, 6, 7]));
}
