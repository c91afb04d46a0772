//! `hammerscale inspect` as a process: every published case gives what it expects, field by field, whole and cut.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

#[path = "sse_support/cases.rs"]
#[expect(dead_code, reason = "the command cuts into equal pieces only")]
mod sse_cases;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Whole, byte by byte, and in pieces that fall anywhere.
const CUTS: [&str; 3] = ["0", "1", "7"];
/// Processes at a time.
const WORKERS: usize = 4;

/// Transcripts of another endpoint than chat completions.
const OTHER_ENDPOINTS: [(&str, &str); 3] = [
    ("anthropic-overloaded", "messages"),
    ("openai-responses", "responses"),
    ("openai-responses-failed", "responses"),
];

/// Judges what was printed.
type Judge = Box<dyn Fn(&Value) -> Result<(), String> + Send + Sync>;

/// A call of the command and what must come of it.
struct Job {
    name: String,
    input: Vec<u8>,
    args: Vec<String>,
    judge: Judge,
}

fn binary(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hammerscale"));
    command.arg("inspect").args(args);
    command
}

/// The command with these bytes on its standard input.
fn with_stdin(args: &[&str], input: &[u8]) -> Output {
    let mut child = binary(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // A command that refuses its flags closes its end unread.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

/// Runs every job under every cut, some at a time; the complaints.
fn complaints(jobs: &[Job]) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let found = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(at) else { break };
                    let file = dir.path().join(at.to_string());
                    std::fs::write(&file, &job.input).unwrap();
                    if let Err(why) = run(job, &file) {
                        found.lock().unwrap().push(format!("{}: {why}", job.name));
                    }
                }
            });
        }
    });
    found.into_inner().unwrap()
}

fn run(job: &Job, file: &Path) -> Result<(), String> {
    let mut whole = None;
    for cut in CUTS {
        let output =
            binary(&[file.to_str().unwrap(), "--json", "--cut", cut]).args(&job.args).output().unwrap();
        if output.status.code() != Some(0) || !output.stderr.is_empty() {
            return Err(format!("--cut {cut}: {output:?}"));
        }
        let value: Value = serde_json::from_slice(&output.stdout).map_err(|e| e.to_string())?;
        (job.judge)(&value).map_err(|why| format!("--cut {cut}: {why}"))?;
        // Not assert_eq: the text may be megabytes.
        if *whole.get_or_insert_with(|| output.stdout.clone()) != output.stdout {
            return Err(format!("--cut {cut} gives another text"));
        }
    }
    Ok(())
}

fn assert_none(complaints: &[String]) {
    assert!(complaints.is_empty(), "{} cases:\n{}", complaints.len(), complaints.join("\n"));
}

/// Every key of `expect` has its value in `got`, and `got` has no key beyond those and `more`.
fn same(got: &Value, expect: &Value, more: &[&str]) -> Result<(), String> {
    let (got, expect) = (got.as_object().ok_or("not an object")?, expect.as_object().unwrap());
    for (key, value) in expect {
        if got.get(key) != Some(value) {
            return Err(format!("{key}: expected {}, got {}", short(Some(value)), short(got.get(key))));
        }
    }
    match got.keys().find(|key| !expect.contains_key(*key) && !more.contains(&key.as_str())) {
        Some(key) => Err(format!("unexpected key {key}")),
        None => Ok(()),
    }
}

fn short(value: Option<&Value>) -> String {
    value.map_or("nothing".to_owned(), |value| value.to_string().chars().take(90).collect())
}

fn strings(args: &[&str]) -> Vec<String> {
    args.iter().map(ToString::to_string).collect()
}

#[test]
fn event_stream_cases() {
    let jobs: Vec<Job> = sse_cases::load()
        .into_iter()
        .map(|case| {
            let events: Vec<Value> = case
                .events
                .iter()
                .map(|event| {
                    let mut doc = json!({"event": event.event, "data": event.data, "id": event.id});
                    if let Some(raw) = &event.data_raw {
                        doc["data_raw_b64"] = STANDARD.encode(raw).into();
                    }
                    doc
                })
                .collect();
            let mut expect = json!({
                "events": events,
                "comments": case.comments,
                "last_event_id": case.last_event_id,
                "pending_block_at_eof": case.pending_block_at_eof,
                "unterminated_tail_b64": STANDARD.encode(&case.unterminated_tail),
            });
            if let Some(retry) = &case.retry {
                expect["retry"] = retry.clone().into();
            }
            Job {
                name: case.name,
                input: case.input,
                args: strings(&["--as", "sse"]),
                judge: Box::new(move |got| same(got, &expect, &["retry"])),
            }
        })
        .collect();
    assert!(jobs.len() >= 170);
    assert_none(&complaints(&jobs));
}

#[test]
fn http_cases() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/http/cases.json");
    let cases: Vec<Value> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(cases.len(), 197);
    let jobs: Vec<Job> = cases
        .into_iter()
        .map(|case| {
            let mut args = strings(&["--as", "http", "--method", case["request_method"].as_str().unwrap()]);
            if case["peer_closes_after_input"] == true {
                args.push("--eof".to_owned());
            }
            Job {
                name: case["name"].as_str().unwrap().to_owned(),
                input: STANDARD.decode(case["input_b64"].as_str().unwrap()).unwrap(),
                args,
                judge: Box::new(move |got| judge_http(&case, got)),
            }
        })
        .collect();
    assert_none(&complaints(&jobs));
}

fn judge_http(case: &Value, got: &Value) -> Result<(), String> {
    if case.get("limit").is_some() && got["error"] == "limit" {
        return Ok(());
    }
    if case["class"] == "invalid" || case["recommended"] == "reject" {
        let expect = if case["class"] == "invalid" { &case["expect"] } else { &case["expect_alt"] };
        return same(got, expect, &[]);
    }
    same(got, &case["expect"], &["flags"])?;
    let none = json!([]);
    let flags = got.get("flags").unwrap_or(&none);
    let expected = case.get("flags").unwrap_or(&none);
    if flags == expected { Ok(()) } else { Err(format!("flags: expected {expected}, got {flags}")) }
}

#[test]
fn transcripts() {
    // About the file, or about a layer that a bare body has not.
    const NOT_OURS: [&str; 9] = [
        "server",
        "layout_from",
        "text",
        "note",
        "http_status",
        "content_type",
        "transport_end",
        "bytes",
        "unterminated_final_event",
    ];
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/transcripts"));
    let mut jobs = Vec::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "sse") {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let mut expect: Value =
            serde_json::from_slice(&std::fs::read(folder.join(format!("{name}.expect.json"))).unwrap())
                .unwrap();
        expect.as_object_mut().unwrap().retain(|key, _| !NOT_OURS.contains(&key.as_str()));
        let endpoint = OTHER_ENDPOINTS.iter().find(|(other, _)| *other == name).map_or("chat", |(_, e)| e);
        let body = std::fs::read(&path).unwrap();
        // The same body inside a response, in chunks of 5 bytes.
        let mut response = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n".to_vec();
        response.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
        for piece in body.chunks(5) {
            response.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            response.extend_from_slice(piece);
            response.extend_from_slice(b"\r\n");
        }
        response.extend_from_slice(b"0\r\n\r\n");
        let in_response = {
            let mut expect = expect.clone();
            expect["http_status"] = 200.into();
            expect
        };
        for (input, expect, flag) in [(body, expect, "--as"), (response, in_response, "--endpoint")] {
            jobs.push(Job {
                name: name.clone(),
                input,
                args: strings(&[flag, endpoint]),
                judge: Box::new(move |got| same(got, &expect, &[])),
            });
        }
    }
    assert_eq!(jobs.len(), 2 * 39);
    assert_none(&complaints(&jobs));
}

#[test]
fn standard_input_is_read_like_a_file() {
    let input = b"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]\n\n";
    let output = with_stdin(&["-", "--json"], input);
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&value["outcome"], &value["content_text"]),
        (&json!("ok"), &json!("a")),
        "chat is the default"
    );
    let empty = with_stdin(&["-", "--as", "sse", "--json"], b"");
    let value: Value = serde_json::from_slice(&empty.stdout).unwrap();
    assert_eq!((empty.status.code(), &value["events"]), (Some(0), &json!([])));
}

#[test]
fn a_failure_of_the_server_or_of_the_bytes_is_a_verdict() {
    for (args, input, outcome) in [
        (
            ["-", "--json", "--as", "chat"],
            &b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"[..],
            "http_error",
        ),
        (
            ["-", "--json", "--as", "chat"],
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ndata",
            "truncated_body",
        ),
        (["-", "--json", "--as", "chat"], b"HTTP/1.1 2", "truncated_head"),
        (["-", "--json", "--as", "chat"], b"{\"error\":{\"message\":\"no\"}}", "json_error_body"),
        (["-", "--json", "--as", "chat"], b"", "empty_response"),
    ] {
        let output = with_stdin(&args, input);
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert_eq!((&value["outcome"], &value["error"]["category"]), (&json!("failed"), &json!(outcome)));
    }
    // Nothing says that the peer closed, so the response is not cut, only unfinished.
    let open =
        with_stdin(&["-", "--json", "--as", "http"], b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ndata");
    let value: Value = serde_json::from_slice(&open.stdout).unwrap();
    assert_eq!(
        (&value["status"], &value["unfinished"], value.get("error")),
        (&json!(200), &json!(true), None)
    );
}

#[test]
fn of_a_bare_file_only_what_was_seen_is_told() {
    let told = |input: &[u8]| {
        let value: Value =
            serde_json::from_slice(&with_stdin(&["-", "--json", "--as", "chat"], input).stdout).unwrap();
        assert_eq!(value["error"]["category"], "not_a_stream");
        value["error"]["message"].as_str().unwrap().to_owned()
    };
    assert_eq!(told(b"<html>502</html>"), "the file is no event stream: it begins with \"<html>502</html>\"");
    let headed = told(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n<html>");
    assert!(headed.contains("content type: text/event-stream"), "{headed}");
}

#[test]
fn a_limit_is_told_with_its_place() {
    let mut input = b"data: a\n\n:".to_vec();
    input.resize(9 + (8 << 20) + 1, b'x');
    for cut in ["0", "4096"] {
        let output = with_stdin(&["-", "--json", "--as", "sse", "--cut", cut], &input);
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(value["events"].as_array().unwrap().len(), 1);
        assert_eq!(
            (&value["error"]["category"], &value["error"]["offset"]),
            (&json!("limit"), &json!(9 + (8 << 20)))
        );
    }
}

#[test]
fn a_listing_shows_every_event_and_no_control_character() {
    let body = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/transcripts/vllm-tools.sse"))
        .unwrap();
    let text = String::from_utf8(with_stdin(&["-"], &body).stdout).unwrap();
    for part in [
        "     0  message       role",
        "tool call",
        "terminal               [DONE]",
        "outcome                 ok",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let hostile = b"event: \x1b[2J\xe2\x80\xae\ndata: \x1b]0;x\x07\xff\n\n: \x1b\n\ndata: \x00";
    for form in ["sse", "chat"] {
        let text = String::from_utf8(with_stdin(&["-", "--as", form], hostile).stdout).unwrap();
        assert!(text.contains("comment"), "{text}");
        let bad = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
        assert!(!text.contains(bad), "{text:?}");
        // A reason stays whole.
        let mut lines = text.lines().filter(|line| !line.starts_with("why "));
        assert!(lines.all(|line| line.chars().count() <= 80), "{text}");
    }
    let response = b"HTTP/1.1 200 \x80\r\nX: \xff\tz\r\nContent-Length: 3\r\n\r\n\x1b[J";
    let text = String::from_utf8(with_stdin(&["-", "--as", "http"], response).stdout).unwrap();
    assert!(text.contains("reusable") && !text.contains(|c: char| c != '\n' && c.is_control()), "{text:?}");
}

/// One JSON body, bare or in a response, asked for as such.
#[test]
fn answers_in_one_body_are_read() {
    let chat = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}"#;
    let vectors = r#"{"object":"list","data":[{"index":0,"embedding":[0.5]}],"usage":{"prompt_tokens":5,"total_tokens":5}}"#;
    for (args, body, text, completion) in
        [(&["--no-stream"][..], chat, "Hi", json!(2)), (&["--as", "embeddings"], vectors, "", json!(null))]
    {
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        for (input, status) in [(body.to_owned(), json!(null)), (format!("{head}{body}"), json!(200))] {
            for cut in CUTS {
                let output = with_stdin(&[&["-", "--json", "--cut", cut], args].concat(), input.as_bytes());
                let got: Value = serde_json::from_slice(&output.stdout).unwrap();
                let seen = [&got["outcome"], &got["content_text"], &got["http_status"]];
                assert_eq!(seen, [&json!("ok"), &json!(text), &status], "{args:?} {got}");
                assert_eq!(
                    (&got["prompt_tokens"], &got["completion_tokens"]),
                    (&json!(5), &completion),
                    "{got}"
                );
            }
            let listing = with_stdin(&[&["-"], args].concat(), input.as_bytes()).stdout;
            let listing = String::from_utf8(listing).unwrap();
            assert!(
                listing.contains("outcome                 ok") && !listing.contains("terminal"),
                "{listing}"
            );
        }
    }
    // Without the flag it is no stream, and the whole reason is told.
    let text = String::from_utf8(with_stdin(&["-"], chat.as_bytes()).stdout).unwrap();
    assert!(text.contains(r#"not_a_stream: the file is no event stream: it begins with "{"#), "{text}");
}

#[test]
fn a_body_whose_chunks_were_taken_out_is_answered_with_the_flag_that_leaves_them() {
    const HINT: &str =
        "the chunk size is not a hex number (curl -i takes the chunks out; capture with --raw)\n";
    let interim = "HTTP/1.1 100 Continue\r\n\r\n";
    for (head, body, is_hinted) in [
        ("", "data: {}\n\n", true),
        (interim, "{\"a\":1}", true),
        ("", "5\r\nhello\r\nx\r\n", false),
        ("", "5;a\r\nhello\r\nx\r\n", false),
    ] {
        let input = format!(
            "{head}HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n{body}"
        );
        for form in ["chat", "http"] {
            let text = with_stdin(&["-", "--as", form], input.as_bytes()).stdout;
            let text = String::from_utf8(text).unwrap();
            assert!(text.contains("bad_chunk"), "{text}");
            assert_eq!(text.contains(HINT), is_hinted, "{form}: {text}");
            let json = with_stdin(&["-", "--json", "--as", form], input.as_bytes()).stdout;
            assert!(!String::from_utf8(json).unwrap().contains("curl"));
        }
    }
}

#[test]
fn mistakes_are_one_sentence_and_exit_2() {
    let missing = "/nowhere/at/all";
    for (args, word) in [
        (&["-", "--as", "xml"][..], "--as"),
        (&["-", "--as", "sse", "--no-stream"], "--no-stream"),
        (&["-", "--cut", "-1"], "--cut"),
        (&["-", "--cut", "x"], "--cut"),
        (&["-", "--method", "BREW"], "--method"),
        (&["-", "--as", "sse", "--no-stream"], "--no-stream does not go together with --as sse"),
        (&["-", "--as", "http", "--no-stream"], "--no-stream does not go together with --as http"),
        (&["-", "--what"], "--what"),
        (&[], "FILE"),
        (&[missing], missing),
        (&["/"], "/: "),
    ] {
        let output = with_stdin(args, b"data: x\n\n");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.starts_with("hammerscale: ") && stderr.lines().count() == 1, "{args:?}: {stderr}");
        assert!(stderr.contains(word) && output.stdout.is_empty(), "{args:?}: {stderr}");
    }
}

/// Recorded answers of real servers, against a reading by Python's own means.
#[test]
fn recordings_of_real_servers() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let output = Command::new("python3")
        .args(["-I", "tests/inspect_engines/recordings.py", env!("CARGO_BIN_EXE_hammerscale")])
        .args(["cases/engines", "data/engines"].map(|folder| tests.join(folder)))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("python3 is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let counts: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(counts, json!({"failures": 12, "plain": 9, "streams": 31, "whole": 8}));
}
