//! Server transcripts read through the dialect of their endpoint: the case files' expected counts, texts and endings,
//! and the raw recordings of real engines against an independent reading of the same bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hammerscale::record::{ErrorDetail, Outcome};
use hammerscale::wire::dialect::plain::{BodyKind, classify_start, read_error_body, read_failure_body};
use hammerscale::wire::dialect::{BodyEnding, Dialect, ErrorCode, EventMeaning, StreamAccount, TextRule};
use serde_json::{Value, json};

/// The dialect of a transcript's endpoint. Gemini's own protocol has no endpoint here; its chunks are read where chat
/// chunks were asked for.
fn dialect_of(name: &str) -> Dialect {
    match name {
        "anthropic-overloaded" => Dialect::Messages,
        "openai-responses" | "openai-responses-failed" => Dialect::Responses,
        _ => Dialect::Chat,
    }
}

const CAPTURE_LIMIT: usize = 1_000_000;

fn cases(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(folder)
}

// ---------------------------------------------------------------------------------------------------------------
// A reader of event streams by lines, written from WHATWG HTML 9.2.6 for this test alone.

#[derive(Debug, PartialEq)]
enum Item {
    Comment,
    Event {
        event: Vec<u8>,
        data: Vec<u8>,
    },
    /// The block that was open at the end of the body.
    Tail {
        event: Vec<u8>,
        data: Vec<u8>,
    },
}

fn event_stream(body: &[u8]) -> Vec<Item> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let text = body.iter().copied();
    let mut lines: Vec<Vec<u8>> = vec![Vec::new()];
    let mut after_cr = false;
    for byte in text {
        match byte {
            b'\n' if after_cr => {}
            b'\n' | b'\r' => lines.push(Vec::new()),
            _ => lines.last_mut().unwrap().push(byte),
        }
        after_cr = byte == b'\r';
    }
    // What follows the last line end is a line only if there is something.
    let unterminated = lines.pop().unwrap();
    let mut items = Vec::new();
    let (mut event, mut data): (Vec<u8>, Option<Vec<u8>>) = (Vec::new(), None);
    let field = |line: &[u8], event: &mut Vec<u8>, data: &mut Option<Vec<u8>>| {
        let (name, value) = match line.iter().position(|b| *b == b':') {
            Some(colon) => {
                (&line[..colon], line[colon + 1..].strip_prefix(b" ").unwrap_or(&line[colon + 1..]))
            }
            None => (line, &b""[..]),
        };
        match name {
            b"event" => *event = value.to_vec(),
            b"data" => match data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => *data = Some(value.to_vec()),
            },
            _ => {}
        }
    };
    for line in &lines {
        if line.is_empty() {
            let event = std::mem::take(&mut event);
            if let Some(data) = data.take() {
                items.push(Item::Event { event, data });
            }
        } else if line[0] == b':' {
            items.push(Item::Comment);
        } else {
            field(line, &mut event, &mut data);
        }
    }
    if !unterminated.is_empty() {
        field(&unterminated, &mut event, &mut data);
    }
    if let Some(data) = data {
        items.push(Item::Tail { event, data });
    }
    items
}

#[test]
fn the_reader_of_this_test_agrees_with_another_implementation() {
    let mut compared = 0;
    for (name, body) in bodies_of_transcripts() {
        let ours: Vec<(Vec<u8>, Vec<u8>)> = event_stream(&body)
            .into_iter()
            .filter_map(|item| match item {
                Item::Event { event, data } => Some((event, data)),
                _ => None,
            })
            .collect();
        let mut parser = sse_parse::SseParser::new();
        parser.feed(&body);
        let theirs: Vec<(Vec<u8>, Vec<u8>)> = std::iter::from_fn(|| parser.next_event())
            .map(|e| {
                (if e.event == "message" { Vec::new() } else { e.event.into_bytes() }, e.data.into_bytes())
            })
            .collect();
        assert_eq!(ours, theirs, "{name}");
        compared += ours.len();
    }
    assert!(compared > 150, "{compared}");
}

// ---------------------------------------------------------------------------------------------------------------
// One stream through the account, and the account in the words of the case files.

struct Run {
    account: StreamAccount,
    meanings: Vec<EventMeaning>,
    outcome: Outcome,
    error: Option<ErrorDetail>,
}

fn run(dialect: Dialect, body: &[u8], ending: BodyEnding) -> Run {
    let mut account = StreamAccount::new(dialect);
    // A used account must be as good as a new one.
    account.start(TextRule::keep(3));
    account.on_event(b"error", b"{\"choices\":[{\"index\":7,\"delta\":{\"content\":\"left over\"}}]}");
    account.start(TextRule::keep(CAPTURE_LIMIT));
    let mut meanings = Vec::new();
    for item in event_stream(body) {
        match item {
            Item::Comment => account.on_comment(),
            Item::Event { event, data } => meanings.push(account.on_event(&event, &data)),
            Item::Tail { event, data } if ending == BodyEnding::CleanEnd => {
                meanings.push(account.on_tail(&event, &data));
            }
            Item::Tail { .. } => {}
        }
    }
    let (outcome, error) = account.conclude(ending);
    Run { account, meanings, outcome, error }
}

/// The fields of an `.expect.json` that an account can tell.
fn described(run: &Run) -> Value {
    let counters = run.account.counters();
    let usage = run.account.usage();
    let first = |which: fn(&EventMeaning) -> bool| run.meanings.iter().position(which);
    let mut finish = BTreeMap::new();
    for (choice, reason) in run.account.finish_reasons().iter() {
        finish.insert(choice.to_string(), reason.to_owned());
    }
    let outcome = match run.outcome {
        Outcome::Ok => "ok",
        Outcome::NoOutput => "ok_no_tokens",
        _ => "failed",
    };
    let error = (outcome == "failed").then(|| {
        let server = run.account.server_error();
        let code = server.and_then(|e| e.code.as_ref()).map(|code| match code {
            ErrorCode::Number(n) => json!(n),
            ErrorCode::Text(text) => json!(text),
        });
        json!({
            "category": run.outcome.name(),
            "message": run.error.as_ref().unwrap().message,
            "code": code,
            "type": server.and_then(|e| e.error_type.as_ref()),
        })
    });
    json!({
        "events": counters.events,
        "content_chunks": counters.content_chunks,
        "reasoning_chunks": counters.reasoning_chunks,
        "tool_call_chunks": counters.tool_call_chunks,
        "refusal_chunks": counters.refusal_chunks,
        "token_events": counters.output_chunks,
        "tokenless_events": counters.events - counters.output_chunks,
        "keepalive_comments": counters.keepalive_comments,
        "content_text": run.account.visible_text().unwrap().text,
        "reasoning_text": run.account.reasoning_text().unwrap().text,
        "tool_arguments": run.account.tool_arguments().unwrap().text,
        "first_token_event": first(|m| m.output.is_some()),
        "first_token_kind": run.account.first_output_kind().map(|kind| kind.name()),
        "first_content_event": first(|m| m.content),
        "last_token_event": run.meanings.iter().rposition(|m| m.output.is_some()),
        "finish_reason": finish,
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "cached_tokens": usage.cached_tokens,
        "done": run.account.done(),
        "events_after_done": counters.events_after_done,
        "malformed_events": counters.malformed_events,
        "error": error,
        "outcome": outcome,
    })
}

fn bodies_of_transcripts() -> Vec<(String, Vec<u8>)> {
    let mut found: Vec<_> = std::fs::read_dir(cases("transcripts"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "sse"))
        .map(|path| (path.file_stem().unwrap().to_string_lossy().into_owned(), std::fs::read(&path).unwrap()))
        .collect();
    found.sort();
    found
}

#[test]
fn every_transcript_gives_what_its_case_expects() {
    let mut read = 0;
    for (name, body) in bodies_of_transcripts() {
        let file = cases("transcripts").join(format!("{name}.expect.json"));
        let expect: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        assert_eq!(expect["transport_end"], "clean", "{name}: only clean ends are known here");
        let run = run(dialect_of(&name), &body, BodyEnding::CleanEnd);
        let described = described(&run);
        for (key, value) in described.as_object().unwrap() {
            assert_eq!(*value, expect[key], "{name}: {key}");
        }
        read += 1;
    }
    assert_eq!(read, 39, "all of them");
}

#[test]
fn every_key_of_a_case_is_checked_or_known_to_say_nothing_about_the_dialect() {
    // About the file itself, or about a layer below.
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
    let described = described(&run(Dialect::Chat, b"data: [DONE]\n\n", BodyEnding::CleanEnd));
    for (name, _) in bodies_of_transcripts() {
        let file = cases("transcripts").join(format!("{name}.expect.json"));
        let expect: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        for key in expect.as_object().unwrap().keys() {
            assert!(NOT_OURS.contains(&key.as_str()) || described.get(key).is_some(), "{name}: {key}");
        }
    }
}

#[test]
fn the_odd_shapes_are_counted_as_unrecognised() {
    let body = std::fs::read(cases("transcripts").join("delta-not-an-object.sse")).unwrap();
    let run = run(Dialect::Chat, &body, BodyEnding::CleanEnd);
    assert_eq!(run.account.counters().unrecognised_events, 4);
    let unrecognised: Vec<_> = run.meanings.iter().map(|m| m.unrecognised).collect();
    assert_eq!(unrecognised, [true, true, true, true, false, false, false]);
}

#[test]
fn an_answer_in_another_dialect_than_asked_for_is_no_success_and_no_crash() {
    const ALL: [Dialect; 4] = [Dialect::Chat, Dialect::Completions, Dialect::Responses, Dialect::Messages];
    let mut strangers = 0;
    for (name, body) in bodies_of_transcripts() {
        let own = dialect_of(&name);
        for dialect in ALL {
            let run = run(dialect, &body, BodyEnding::CleanEnd);
            let like_own = dialect == own || own == Dialect::Chat && dialect == Dialect::Completions;
            if !like_own && run.account.server_error().is_none() {
                assert_ne!(run.outcome, Outcome::Ok, "{name} as {dialect:?}");
                strangers += 1;
            }
            if name == "anthropic-overloaded" {
                // The shape of an error is the same everywhere.
                assert_eq!(run.outcome, Outcome::ServerErrorInStream);
                assert_eq!(run.error.unwrap().message, "Overloaded");
            }
        }
    }
    assert!(strangers > 50, "{strangers}");
}

#[test]
fn no_cut_of_a_transcript_is_a_success_before_its_terminal() {
    for (name, body) in bodies_of_transcripts() {
        for end in 0..body.len() {
            let run = run(dialect_of(&name), &body[..end], BodyEnding::CutShort);
            if !run.account.done() {
                assert!(run.outcome.is_failed(), "{name} cut at {end}: {:?}", run.outcome);
            }
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------
// Raw recordings of real engines: several `curl -i -N --raw` answers in a file.

struct Recorded {
    title: String,
    /// The path of the request; empty where the recording does not name it.
    path: String,
    status: u16,
    content_type: String,
    body: Vec<u8>,
    ending: BodyEnding,
}

/// The answers of a recording, chunked coding removed.
fn recorded(file: &Path) -> Vec<Recorded> {
    let bytes = std::fs::read(file).unwrap();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(offset) = memchr::memmem::find(&bytes[at..], b"HTTP/1.1 ") {
        let start = at + offset;
        let head_end = start + memchr::memmem::find(&bytes[start..], b"\r\n\r\n").unwrap() + 4;
        let head = String::from_utf8(bytes[start..head_end].to_vec()).unwrap();
        let field = |name: &str| {
            head.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
            })
        };
        let title = bytes[..start].rsplit(|b| *b == b'\n').find(|line| line.starts_with(b"##### "));
        let title = String::from_utf8_lossy(title.unwrap_or_default()).into_owned();
        let since = bytes[..start]
            .rsplit(|b| *b == b'\n')
            .take_while(|line| line.starts_with(b"##### ") || line.is_empty());
        let request = since.map(|line| String::from_utf8_lossy(line).into_owned());
        let path =
            request.filter_map(|line| Some(line.split_once(" /")?.1.split(' ').next()?.to_owned())).next();
        let (body, end, ending) = match field("content-length") {
            Some(length) => {
                let end = head_end + length.parse::<usize>().unwrap();
                // Of the metrics only the beginning was recorded.
                let end = end.min(bytes.len());
                (bytes[head_end..end].to_vec(), end, BodyEnding::CleanEnd)
            }
            None => chunked(&bytes, head_end),
        };
        found.push(Recorded {
            title,
            path: path.unwrap_or_default(),
            status: head[9..12].parse().unwrap(),
            content_type: field("content-type").unwrap_or_default(),
            body,
            ending,
        });
        at = end;
    }
    found
}

fn chunked(bytes: &[u8], mut at: usize) -> (Vec<u8>, usize, BodyEnding) {
    let mut body = Vec::new();
    loop {
        let Some(line_end) = memchr::memmem::find(&bytes[at..], b"\r\n") else {
            return (body, bytes.len(), BodyEnding::CutShort);
        };
        let size = std::str::from_utf8(&bytes[at..at + line_end]).ok();
        let Some(size) = size.and_then(|text| usize::from_str_radix(text, 16).ok()) else {
            return (body, at, BodyEnding::CutShort);
        };
        at += line_end + 2;
        if size == 0 {
            return (body, at, BodyEnding::CleanEnd);
        }
        let Some(chunk) = bytes.get(at..at + size) else {
            return (body, bytes.len(), BodyEnding::CutShort);
        };
        body.extend_from_slice(chunk);
        at += size + 2;
    }
}

/// The dialect of the endpoint that a recording asked; those that do not say asked for chat.
fn dialect_of_request(answer: &Recorded) -> Dialect {
    match answer.path.as_str() {
        "v1/completions" => Dialect::Completions,
        "" | "v1/chat/completions" => Dialect::Chat,
        _ => Dialect::Http,
    }
}

/// What another reading of the same body finds: a walk over parsed values, without any of the crate's code.
#[derive(Debug, Default, PartialEq)]
struct Walk {
    events: u64,
    content_chunks: u64,
    reasoning_chunks: u64,
    content_deltas: u64,
    content: String,
    finish: Vec<(u64, String)>,
    completion_tokens: Option<u64>,
    prompt_tokens: Option<u64>,
    usage_events: u64,
    choices: Vec<u64>,
}

fn walk(body: &[u8]) -> Walk {
    let mut walk = Walk::default();
    for item in event_stream(body) {
        let (Item::Event { data, .. } | Item::Tail { data, .. }) = item else { continue };
        walk.events += 1;
        if data == b"[DONE]" {
            continue;
        }
        let value: Value = serde_json::from_slice(&data).unwrap();
        let (mut content, mut reasoning) = (false, false);
        for choice in value["choices"].as_array().unwrap() {
            let index = choice["index"].as_u64().unwrap();
            if !walk.choices.contains(&index) {
                walk.choices.push(index);
            }
            let text = choice["delta"]["content"].as_str().or(choice["text"].as_str()).unwrap_or("");
            walk.content.push_str(text);
            content |= !text.is_empty();
            walk.content_deltas += u64::from(!text.is_empty());
            for key in ["reasoning", "reasoning_content"] {
                reasoning |= choice["delta"][key].as_str().is_some_and(|text| !text.is_empty());
            }
            if let Some(reason) = choice["finish_reason"].as_str() {
                walk.finish.push((index, reason.to_owned()));
            }
        }
        walk.content_chunks += u64::from(content);
        walk.reasoning_chunks += u64::from(reasoning);
        let timings = &value["timings"];
        if value["usage"].is_object() {
            walk.completion_tokens = value["usage"]["completion_tokens"].as_u64();
            walk.prompt_tokens = value["usage"]["prompt_tokens"].as_u64();
            walk.usage_events += 1;
        } else if timings.is_object() {
            walk.completion_tokens = timings["predicted_n"].as_u64();
            walk.prompt_tokens =
                Some(timings["prompt_n"].as_u64().unwrap() + timings["cache_n"].as_u64().unwrap());
            walk.usage_events += 1;
        }
    }
    walk
}

fn walk_of_account(run: &Run) -> Walk {
    let counters = run.account.counters();
    let finish = run.account.finish_reasons().iter().map(|(c, r)| (u64::from(c), r.to_owned())).collect();
    Walk {
        events: counters.events,
        content_chunks: counters.content_chunks,
        reasoning_chunks: counters.reasoning_chunks,
        content_deltas: counters.content_deltas,
        content: run.account.visible_text().unwrap().text.clone(),
        finish,
        completion_tokens: run.account.usage().completion_tokens,
        prompt_tokens: run.account.usage().prompt_tokens,
        usage_events: counters.usage_events,
        choices: Vec::new(),
    }
}

#[test]
fn recordings_of_real_engines_read_as_an_independent_walk_does() {
    let mut streams = 0;
    let mut tokens = 0;
    for entry in std::fs::read_dir(cases("engines")).unwrap() {
        let file = entry.unwrap().path();
        for answer in recorded(&file) {
            let place = format!("{} {}", file.display(), answer.title);
            let kind = classify_start(Some(answer.content_type.as_bytes()), &answer.body);
            assert_eq!(
                kind == BodyKind::EventStream,
                answer.content_type.starts_with("text/event-stream"),
                "{place}"
            );
            if kind != BodyKind::EventStream {
                continue;
            }
            let expected = walk(&answer.body);
            let run = run(dialect_of_request(&answer), &answer.body, answer.ending);
            assert_eq!(run.account.several_choices(), expected.choices.len() > 1, "{place}");
            assert_eq!(
                Walk { choices: expected.choices.clone(), ..walk_of_account(&run) },
                expected,
                "{place}"
            );
            assert_eq!(run.account.counters().malformed_events, 0, "{place}");
            assert_eq!(run.account.counters().unrecognised_events, 0, "{place}");
            let outcome = match file.file_stem().unwrap().to_str().unwrap() {
                "llmock-fault-disconnect" => Outcome::TruncatedBody,
                "llmock-fault-truncate" => Outcome::TruncatedStream,
                _ => Outcome::Ok,
            };
            assert_eq!(run.outcome, outcome, "{place}");
            assert_eq!(run.outcome == Outcome::Ok, run.error.is_none(), "{place}");
            streams += 1;
            tokens += run.account.usage().completion_tokens.unwrap_or(0);
        }
    }
    assert!(streams >= 20, "{streams}");
    assert!(tokens > 500, "{tokens}");
}

#[test]
fn error_answers_of_real_engines_tell_their_message() {
    let mut errors = 0;
    for entry in std::fs::read_dir(cases("engines")).unwrap() {
        for answer in recorded(&entry.unwrap().path()).iter().filter(|answer| answer.status >= 400) {
            let value: Value = serde_json::from_slice(&answer.body).unwrap();
            let expected = value["error"]["message"].as_str().unwrap();
            let detail = read_error_body(&answer.body).expect("an error body");
            assert_eq!(detail.message, expected.chars().take(2048).collect::<String>(), "{}", answer.title);
            assert_eq!(detail.error_type.as_deref(), value["error"]["type"].as_str(), "{}", answer.title);
            let code = &value["error"]["code"];
            let code = code.as_str().map_or_else(|| code.to_string(), str::to_owned);
            assert_eq!(detail.code, Some(code), "{}", answer.title);
            assert_eq!(read_failure_body(&answer.body), Some(detail));
            errors += 1;
        }
    }
    assert!(errors >= 8, "{errors}");
}

#[test]
fn answers_that_are_no_streams_report_no_error() {
    let mut bodies = 0;
    for file in ["vllm.txt", "xllamacpp.txt"] {
        for answer in recorded(&cases("engines").join(file)) {
            if answer.status == 200
                && answer.content_type.starts_with("application/json")
                && !answer.body.is_empty()
            {
                assert_eq!(read_error_body(&answer.body), None, "{}", answer.title);
                bodies += 1;
            }
        }
    }
    assert!(bodies >= 2, "{bodies}");
}
