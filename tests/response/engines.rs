//! Recorded answers of real servers, byte for byte as curl received them, through the reader of the request that got
//! them. What each must come to is known from the request's own words and from its parsed JSON.

use std::path::{Path, PathBuf};

use crate::reading::{Account, End, Mark, bytewise, pieces_of, read, reader_of};
use hammerscale::record::{Outcome, OutputKind};
use hammerscale::wire::dialect::{Dialect, EventMeaning};
use serde_json::Value;

/// One request of a recording and the bytes of its answer.
struct Recorded {
    place: String,
    /// `POST /v1/chat/completions`; of a recording that names none, a streamed chat.
    path: String,
    request: Value,
    bytes: Vec<u8>,
}

impl Recorded {
    fn streamed(&self) -> bool {
        self.request.is_null() || self.request["stream"] == true
    }

    fn dialect(&self) -> Dialect {
        match self.path.as_str() {
            "/v1/chat/completions" => Dialect::Chat,
            "/v1/completions" => Dialect::Completions,
            "/v1/responses" => Dialect::Responses,
            "/v1/messages" => Dialect::Messages,
            "/v1/embeddings" => Dialect::Embeddings,
            "/v1/models" | "/health" | "/metrics" => Dialect::Http,
            other => panic!("{}: {other}", self.place),
        }
    }

    fn status(&self) -> u16 {
        std::str::from_utf8(&self.bytes[9..12]).unwrap().parse().unwrap()
    }

    /// What the head promises.
    fn length(&self) -> usize {
        let head = String::from_utf8_lossy(&self.bytes).to_lowercase();
        let value = head.lines().find_map(|line| line.strip_prefix("content-length:")).unwrap();
        value.trim().parse().unwrap()
    }

    fn body(&self) -> &[u8] {
        &self.bytes[memchr::memmem::find(&self.bytes, b"\r\n\r\n").unwrap() + 4..]
    }
}

/// The recordings: those of the case files, and those made for this test.
fn files() -> Vec<PathBuf> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let folders =
        ["cases/engines", "data/engines"].map(|folder| std::fs::read_dir(tests.join(folder)).unwrap());
    let mut files: Vec<_> = folders.into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The answers of a recording. Lines that begin with `#####` are the recorder's: what was asked, and how curl ended.
fn recorded(file: &Path) -> Vec<Recorded> {
    const NOTE: &[u8] = b"##### ";

    let bytes = std::fs::read(file).unwrap();
    let name = file.file_stem().unwrap().to_string_lossy().into_owned();
    let mut found: Vec<Recorded> = Vec::new();
    let (mut title, mut path, mut request) = (String::new(), "/v1/chat/completions".to_owned(), Value::Null);
    let mut open = false;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        if let Some(note) = line.strip_prefix(NOTE) {
            let note = String::from_utf8_lossy(note).trim().to_owned();
            if let Some(posted) = note.strip_prefix("POST ") {
                path = posted.to_owned();
            } else if let Some(body) = note.strip_prefix("BODY ") {
                request = serde_json::from_str(body).unwrap_or_else(|_| serde_json::json!({"stream": true}));
            } else if !note.starts_with("curl exit") {
                // A title; of a GET it is all there is.
                title = note;
                request = Value::Null;
                if let Some((_, get)) = title.split_once("GET ") {
                    path = get.split(' ').next().unwrap().to_owned();
                }
            }
            open = false;
        } else if line.starts_with(b"HTTP/1.1 ") {
            open = true;
            let place = format!("{name}: {title}");
            let (path, request) = (path.clone(), request.clone());
            found.push(Recorded { place, path, request, bytes: line.to_vec() });
        } else if line.starts_with(b"curl: (") {
            open = false;
        } else if open {
            found.last_mut().unwrap().bytes.extend_from_slice(line);
        }
    }
    found
}

/// What a recording's bytes come to, whatever the cut.
fn come_to(answer: &Recorded) -> Account {
    let mut reader = reader_of(answer.dialect(), answer.streamed());
    let seen = read(&mut reader, &answer.bytes, &[], End::Eof).account;
    for cuts in [bytewise(&answer.bytes), pieces_of(37, &answer.bytes)] {
        assert_eq!(read(&mut reader, &answer.bytes, &cuts, End::Eof).account, seen, "{}", answer.place);
    }
    seen
}

#[test]
fn every_recorded_request_comes_to_what_its_words_and_its_json_say() {
    let (mut streams, mut wholes, mut failures, mut plain, mut only_begun) = (0, 0, 0, 0, 0);
    for answer in files().iter().flat_map(|file| recorded(file)) {
        let seen = come_to(&answer);
        let place = &answer.place;
        assert_eq!(seen.http_status, Some(answer.status()), "{place}");
        if answer.dialect() == Dialect::Http {
            let cut = answer.body().len() < answer.length();
            let expected = if cut { Outcome::TruncatedBody } else { Outcome::Ok };
            assert_eq!(seen.outcome, Some(expected), "{place}");
            assert_eq!(seen.counters.body_bytes, answer.length().min(answer.body().len()) as u64, "{place}");
            only_begun += u32::from(cut);
            assert_eq!((seen.counters.events, seen.first_output_kind), (0, None), "{place}");
            plain += 1;
        } else if answer.status() >= 400 {
            assert_eq!(seen.outcome, Some(Outcome::HttpError), "{place}");
            let body: Value = serde_json::from_slice(answer.body().trim_ascii()).unwrap();
            let message = body["error"]["message"].as_str().or(body["detail"].as_str()).unwrap();
            let kept: String = message.chars().take(2048).collect();
            assert_eq!(seen.detail.unwrap().message, kept, "{place}");
            failures += 1;
        } else if answer.streamed() {
            check_stream(&answer, &seen);
            streams += 1;
        } else {
            check_whole(&answer, &seen);
            wholes += 1;
        }
    }
    // Of three bodies only the beginning was recorded.
    assert_eq!((streams, wholes, failures, plain, only_begun), (31, 9, 14, 6, 3));
}

fn check_stream(answer: &Recorded, seen: &Account) {
    let place = &answer.place;
    let expected = match place.as_str() {
        "llmock-fault-disconnect: llmock --stream-fault disconnect=1" => Outcome::TruncatedBody,
        "llmock-fault-truncate: llmock --stream-fault truncate=1" => Outcome::TruncatedStream,
        _ => Outcome::Ok,
    };
    assert_eq!(seen.outcome, Some(expected), "{place}");
    assert!(!seen.streamed_unasked, "{place}");
    let counters = seen.counters;
    assert!(counters.output_chunks > 0 && !seen.text.as_ref().unwrap().text.is_empty(), "{place}");
    assert_eq!((counters.malformed_events, counters.unrecognised_events), (0, 0), "{place}");
    assert_eq!(seen.terminal_seen, expected == Outcome::Ok, "{place}");
    if matches!(answer.dialect(), Dialect::Responses | Dialect::Messages) {
        check_typed_stream(answer, seen);
    }
    let asked =
        ["max_tokens", "max_completion_tokens", "max_output_tokens"].map(|key| answer.request[key].as_u64());
    let Some(most) = asked.into_iter().flatten().next() else { return };
    let choices = answer.request["n"].as_u64().unwrap_or(1);
    let usage_asked = answer.request["stream_options"]["include_usage"] == true;
    if let Some(tokens) = seen.usage.completion_tokens {
        assert!(tokens > 0 && tokens <= most * choices, "{place}: {tokens}");
        // llama.cpp counts each of several choices by itself, and the last count stands.
        assert!(choices > 1 || counters.content_deltas <= tokens, "{place}");
    } else {
        assert!(!usage_asked, "{place}: usage was asked for");
    }
    assert_eq!(seen.finish.len() as u64, choices, "{place}");
    if answer.request["ignore_eos"] == true {
        assert_eq!(seen.usage.completion_tokens, Some(most), "{place}");
    }
}

/// The events' data as JSON: in these recordings no chunk ends within a line.
fn data_of(answer: &Recorded) -> Vec<Value> {
    let lines = answer.bytes.split(|byte| *byte == b'\n');
    let data =
        lines.filter_map(|line| line.strip_prefix(b"data: ")).filter(|data| !data.starts_with(b"[DONE]"));
    data.map(|data| serde_json::from_slice(data).unwrap()).collect()
}

fn check_typed_stream(answer: &Recorded, seen: &Account) {
    let place = &answer.place;
    let events = data_of(answer);
    assert_eq!(seen.counters.events, events.len() as u64, "{place}");
    let text = |event: &Value| match event["type"].as_str().unwrap() {
        "response.output_text.delta" => event["delta"].as_str().unwrap().to_owned(),
        "content_block_delta" => event["delta"]["text"].as_str().unwrap().to_owned(),
        _ => String::new(),
    };
    let texts: Vec<_> = events.iter().map(text).filter(|text| !text.is_empty()).collect();
    assert_eq!(seen.text.as_ref().unwrap().text, texts.concat(), "{place}");
    assert_eq!(seen.counters.output_chunks, texts.len() as u64, "{place}");
    assert_eq!(seen.counters.content_deltas, texts.len() as u64, "{place}");
    let last = |pointer: &str| events.iter().rev().find_map(|event| event.pointer(pointer)?.as_u64());
    let (prompt, completion, cached) = if answer.dialect() == Dialect::Responses {
        let usage = "/response/usage";
        (
            last(&format!("{usage}/input_tokens")),
            last(&format!("{usage}/output_tokens")),
            last(&format!("{usage}/input_tokens_details/cached_tokens")),
        )
    } else {
        (
            last("/usage/input_tokens").or(last("/message/usage/input_tokens")),
            last("/usage/output_tokens"),
            last("/message/usage/cache_read_input_tokens"),
        )
    };
    assert!(prompt.is_some() && completion.is_some(), "{place}");
    assert_eq!((seen.usage.prompt_tokens, seen.usage.completion_tokens), (prompt, completion), "{place}");
    assert_eq!(seen.usage.cached_tokens, cached, "{place}");
    check_whole_prompt(answer, seen, prompt, cached);
}

/// Only messages count the cache beside the prompt. None of the recorded servers says what it wrote to its cache.
fn check_whole_prompt(answer: &Recorded, seen: &Account, prompt: Option<u64>, cached: Option<u64>) {
    let apart = answer.dialect() == Dialect::Messages;
    assert_eq!(seen.usage.cache_counted_apart, apart, "{}", answer.place);
    assert_eq!(seen.usage.cache_creation_tokens, None, "{}", answer.place);
    let whole = prompt.map(|prompt| prompt + cached.filter(|_| apart).unwrap_or(0));
    assert_eq!(seen.usage.whole_prompt_tokens(), whole, "{}", answer.place);
}

fn check_whole(answer: &Recorded, seen: &Account) {
    let place = &answer.place;
    let body: Value = serde_json::from_slice(answer.body().trim_ascii()).unwrap();
    let usage = &body["usage"];
    let at = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (text, finish, tokens, cached) = match answer.dialect() {
        Dialect::Responses => (
            at("/output/0/content/0/text"),
            // vLLM names the reason, llama.cpp knows none.
            if body["status"] == "incomplete" { at("/incomplete_details/reason") } else { at("/status") },
            ["input_tokens", "output_tokens"],
            &usage["input_tokens_details"]["cached_tokens"],
        ),
        Dialect::Messages => (
            at("/content/0/text"),
            at("/stop_reason"),
            ["input_tokens", "output_tokens"],
            &usage["cache_read_input_tokens"],
        ),
        _ => (
            if body.pointer("/choices/0/text").is_some() {
                at("/choices/0/text")
            } else {
                at("/choices/0/message/content")
            },
            at("/choices/0/finish_reason"),
            ["prompt_tokens", "completion_tokens"],
            &usage["prompt_tokens_details"]["cached_tokens"],
        ),
    };
    let vectors = answer.dialect() == Dialect::Embeddings;
    assert_eq!(seen.outcome, Some(Outcome::Ok), "{place}");
    assert_eq!(seen.first_output_kind, (!vectors).then_some(OutputKind::Content), "{place}");
    assert_eq!(seen.text.as_ref().unwrap().text, text, "{place}");
    assert_eq!(vectors, text.is_empty(), "{place}");
    let reasons: Vec<_> = seen.finish.iter().map(|(choice, reason)| (*choice, reason.as_str())).collect();
    let expected = if vectors { vec![] } else { vec![(0, finish)] };
    assert_eq!(reasons, expected, "{place}");
    let counts = [seen.usage.prompt_tokens, seen.usage.completion_tokens];
    assert_eq!(counts, tokens.map(|key| usage[key].as_u64()), "{place}");
    assert!(counts[0].is_some() && (vectors || counts[1].is_some()), "{place}");
    assert_eq!(seen.usage.cached_tokens, cached.as_u64(), "{place}");
    check_whole_prompt(answer, seen, counts[0], cached.as_u64());
    let counters = seen.counters;
    assert_eq!((counters.events, counters.output_chunks, counters.content_deltas), (0, 0, 0), "{place}");
}

#[test]
fn a_server_that_counts_as_it_goes_tells_the_tokens_of_every_chunk() {
    let mut answers = 0;
    for answer in files().iter().flat_map(|file| recorded(file)) {
        if answer.request["stream_options"]["continuous_usage_stats"] != true
            || !answer.place.starts_with("vllm")
        {
            continue;
        }
        let mut reader = reader_of(answer.dialect(), true);
        let seen = read(&mut reader, &answer.bytes, &[], End::Eof);
        let meanings = seen.marks.iter().filter_map(|(mark, _)| match mark {
            Mark::Event(meaning) => Some(meaning),
            _ => None,
        });
        let (output, other): (Vec<&EventMeaning>, Vec<_>) =
            meanings.partition(|meaning| meaning.output.is_some());
        let rises: Option<Vec<u64>> =
            output.iter().map(|meaning| meaning.new_tokens.map(u64::from)).collect();
        assert_eq!(
            rises.map(|rises| rises.iter().sum()),
            seen.account.usage.completion_tokens,
            "{}",
            answer.place
        );
        assert!(other.iter().all(|meaning| meaning.new_tokens.is_none()), "{}", answer.place);
        answers += 1;
    }
    assert_eq!(answers, 2);
}

#[test]
fn an_answer_that_was_asked_for_otherwise_is_read_as_what_it_is() {
    for answer in files().iter().flat_map(|file| recorded(file)) {
        if answer.status() != 200 || matches!(answer.dialect(), Dialect::Http | Dialect::Embeddings) {
            continue;
        }
        let as_asked = come_to(&answer);
        let mut reader = reader_of(answer.dialect(), !answer.streamed());
        let otherwise = read(&mut reader, &answer.bytes, &[], End::Eof).account;
        if answer.streamed() {
            // A stream is a stream, with a flag.
            assert_eq!(otherwise, Account { streamed_unasked: true, ..as_asked }, "{}", answer.place);
        } else {
            assert_eq!(otherwise.outcome, Some(Outcome::NotAStream), "{}", answer.place);
        }
    }
}
