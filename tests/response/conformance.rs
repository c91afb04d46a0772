//! The case files once more, through the response reader: every HTTP response and every transcript must end in the
//! outcome that its case expects, however it was framed and cut.
//!
//! The HTTP cases know nothing of outcomes; what they come to follows from three facts about each case, looked up
//! here: its status, its codings, and what its body begins with.

use std::collections::BTreeMap;

use crate::reading::{
    ENDS, End, Mark, Seen, TRANSCRIPTS, Transcript, bytewise, chunked, pieces_of, read, reader, reader_of,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hammerscale::record::Outcome;
use hammerscale::wire::response::Reading;
use serde_json::Value;

/// The cuts of every test here.
fn cuts(bytes: &[u8]) -> [Vec<usize>; 3] {
    [Vec::new(), bytewise(bytes), pieces_of(37, bytes)]
}

fn decode(text: &Value) -> Vec<u8> {
    STANDARD.decode(text.as_str().unwrap()).unwrap()
}

struct HttpCase {
    name: String,
    input: Vec<u8>,
    end: End,
    json: Value,
}

fn http_cases() -> Vec<HttpCase> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/http/cases.json");
    let all: Vec<Value> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let case = |json: Value| HttpCase {
        name: json["name"].as_str().unwrap().to_owned(),
        input: decode(&json["input_b64"]),
        end: if json["peer_closes_after_input"] == true { End::Eof } else { End::Silence },
        json,
    };
    all.into_iter().map(case).collect()
}

#[test]
fn every_http_case_ends_in_the_outcome_that_follows_from_it() {
    let mut reader = reader();
    let mut failures = Vec::new();
    let mut met = BTreeMap::<&str, u32>::new();
    for case in http_cases() {
        let whole = read(&mut reader, &case.input, &[], case.end);
        for cuts in cuts(&case.input) {
            let seen = read(&mut reader, &case.input, &cuts, case.end);
            assert_eq!((&seen.account, seen.reading), (&whole.account, whole.reading), "{}", case.name);
        }
        for end in ENDS.into_iter().filter(|_| whole.reading == Reading::Complete) {
            let seen = read(&mut reader, &case.input, &[], end);
            assert_eq!(seen.account, whole.account, "{} and then {end:?}", case.name);
        }
        *met.entry(whole.account.outcome.map_or("undecided", Outcome::name)).or_default() += 1;
        if let Err(why) = judge(&case, &whole) {
            failures.push(format!("{}: {why}", case.name));
        }
    }
    assert!(failures.is_empty(), "{} cases:\n{}", failures.len(), failures.join("\n"));
    for outcome in [
        Outcome::Ok,
        Outcome::TruncatedHead,
        Outcome::EmptyResponse,
        Outcome::TruncatedBody,
        Outcome::NotAStream,
        Outcome::HttpError,
        Outcome::Redirect,
        Outcome::BadStatusLine,
        Outcome::BadHeader,
        Outcome::BadContentLength,
        Outcome::BadChunk,
        Outcome::BadTrailer,
        Outcome::UnexpectedUpgrade,
        Outcome::UnsupportedTransferCoding,
        Outcome::UnsupportedContentCoding,
        Outcome::EofBeforeResponse,
    ] {
        assert!(met.contains_key(outcome.name()), "{}: {met:?}", outcome.name());
    }
}

fn judge(case: &HttpCase, seen: &Seen) -> Result<(), String> {
    let json = &case.json;
    let limit = json.get("limit").is_some() && seen.account.outcome == Some(Outcome::Limit);
    if limit {
        return Ok(());
    }
    if json["class"] == "invalid" {
        return judge_error(&json["expect"], case, seen);
    }
    if json["recommended"] == "reject" {
        return judge_error(&json["expect_alt"], case, seen);
    }
    judge_answer(&json["expect"], seen)
}

/// Damage decides, unless the head was whole and decided before.
fn judge_error(expect: &Value, case: &HttpCase, seen: &Seen) -> Result<(), String> {
    let head_done = seen.marks.iter().any(|(mark, _)| *mark == Mark::HeadDone);
    let status = status_of(&case.input);
    let expected = match (expect["error"].as_str().unwrap(), expect["rule"].as_str().unwrap()) {
        _ if head_done && status.is_some_and(|status| !(200..300).contains(&status)) => "http_error",
        ("unexpected_eof", "eof_before_response") => "eof_before_response",
        ("unexpected_eof", "eof_in_status_line" | "eof_in_header" | "eof_after_interim") => "truncated_head",
        ("unexpected_eof", _) => "truncated_body",
        (category, _) => category,
    };
    same("outcome", &outcome_of(seen), &expected)?;
    if seen.reading == Reading::Complete {
        return Err("complete".to_owned());
    }
    let detail = seen.account.detail.as_ref().ok_or("no detail")?;
    if detail.message.is_empty() { Err("no message".to_owned()) } else { Ok(()) }
}

/// The status of an input without interim answers.
fn status_of(input: &[u8]) -> Option<u16> {
    std::str::from_utf8(input.get(9..12)?).ok()?.parse().ok()
}

fn judge_answer(expect: &Value, seen: &Seen) -> Result<(), String> {
    let headers = expect["headers"].as_array().unwrap();
    let field = |name: &str| {
        let found = headers.iter().find(|pair| pair[0].as_str().unwrap().eq_ignore_ascii_case(name));
        found.map(|pair| pair[1].as_str().unwrap())
    };
    let body = decode(&expect["body_b64"]);
    let status = expect["status"].as_u64().unwrap();
    let coded = field("transfer-encoding").is_some_and(|value| {
        let codings = value.split(',').map(|coding| coding.trim().to_lowercase());
        codings.filter(|coding| !coding.is_empty()).any(|coding| coding != "chunked" && coding != "identity")
    });
    let finished = memchr::memmem::find(&body, b"\"finish_reason\":\"").is_some();
    let expected = match status {
        300..400 if field("location").is_some() => "redirect",
        200..300 if coded || field("content-encoding").is_some_and(|c| c != "identity") => {
            "unsupported_content_coding"
        }
        200..300 if body.is_empty() => "empty_response",
        200..300 if body.starts_with(b"data:") && (finished || body.ends_with(b"[DONE]\n\n")) => "ok",
        200..300 if body.starts_with(b"data: {") => "truncated_stream",
        200..300 if body.starts_with(b"data: ") => "malformed_event",
        200..300 if field("content-type").is_some_and(|t| t.starts_with("text/event-stream")) => {
            "empty_response"
        }
        200..300 => "not_a_stream",
        _ => "http_error",
    };
    same("outcome", &outcome_of(seen), &expected)?;
    same("status", &seen.account.http_status.map(u64::from), &Some(status))?;
    same("body bytes", &seen.account.counters.body_bytes, &(body.len() as u64))?;
    let leftover = !decode(&expect["leftover_b64"]).is_empty();
    let keep_alive = expect["keep_alive"] == true && !leftover;
    same("may_keep_alive", &seen.account.may_keep_alive, &keep_alive)?;
    let interims = seen.marks.iter().filter(|(mark, _)| *mark == Mark::Interim).count();
    same("interims", &interims, &expect["interim"].as_array().unwrap().len())
}

fn outcome_of(seen: &Seen) -> &'static str {
    seen.account.outcome.map_or("undecided", Outcome::name)
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: &T, expected: &T) -> Result<(), String> {
    if got == expected { Ok(()) } else { Err(format!("{what}: got {got:?}, expected {expected:?}")) }
}

// ---------------------------------------------------------------------------------------------------------------

/// A transcript as an answer: in one chunk, in a chunk per byte, in chunks of some size, by its length, until the
/// close. Each comes with the end of its connection.
fn framings(transcript: &Transcript) -> Vec<(&'static str, Vec<u8>, End)> {
    let body = &transcript.body;
    let head = |framing: &str| {
        format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n{framing}\r\n")
            .into_bytes()
    };
    let in_chunks =
        |sizes: &[usize]| [head("transfer-encoding: chunked\r\n"), chunked(body, sizes, "", 0).0].concat();
    vec![
        ("one chunk", in_chunks(&[]), End::Silence),
        ("a chunk per byte", in_chunks(&vec![1; body.len()]), End::Silence),
        ("chunks of 50", in_chunks(&vec![50; body.len()]), End::Eof),
        (
            "a length",
            [head(&format!("content-length: {}\r\n", body.len())), body.clone()].concat(),
            End::Silence,
        ),
        ("until the close", [head(""), body.clone()].concat(), End::Eof),
    ]
}

#[test]
fn every_transcript_gives_what_its_case_expects_in_every_framing_and_cut() {
    assert_eq!(TRANSCRIPTS.len(), 39);
    for transcript in TRANSCRIPTS.iter() {
        let mut reader = reader_of(transcript.dialect, true);
        for (framing, bytes, end) in framings(transcript) {
            for cuts in cuts(&bytes) {
                let seen = read(&mut reader, &bytes, &cuts, end);
                check_transcript(&format!("{} in {framing}", transcript.name), transcript, &seen);
                let complete = framing != "until the close";
                assert_eq!(seen.reading == Reading::Complete, complete, "{} {framing}", transcript.name);
                assert_eq!(seen.account.may_keep_alive, complete, "{} {framing}", transcript.name);
            }
        }
    }
}

fn check_transcript(name: &str, transcript: &Transcript, seen: &Seen) {
    let expect = &transcript.expect;
    let account = &seen.account;
    let counters = account.counters;
    let expected = match expect["outcome"].as_str().unwrap() {
        "ok" => "ok",
        "ok_no_tokens" => "no_output",
        _ => expect["error"]["category"].as_str().unwrap(),
    };
    assert_eq!(outcome_of(seen), expected, "{name}");
    assert_eq!(counters.body_bytes, transcript.body.len() as u64, "{name}");
    for (key, count) in [
        ("events", counters.events),
        ("content_chunks", counters.content_chunks),
        ("reasoning_chunks", counters.reasoning_chunks),
        ("tool_call_chunks", counters.tool_call_chunks),
        ("refusal_chunks", counters.refusal_chunks),
        ("token_events", counters.output_chunks),
        ("keepalive_comments", counters.keepalive_comments),
        ("events_after_done", counters.events_after_done),
        ("malformed_events", counters.malformed_events),
    ] {
        assert_eq!(expect[key], count, "{name}: {key}");
    }
    for (key, tokens) in [
        ("prompt_tokens", account.usage.prompt_tokens),
        ("completion_tokens", account.usage.completion_tokens),
        ("reasoning_tokens", account.usage.reasoning_tokens),
        ("cached_tokens", account.usage.cached_tokens),
    ] {
        assert_eq!(expect[key].as_u64(), tokens, "{name}: {key}");
    }
    assert_eq!(expect["done"], account.terminal_seen, "{name}");
    assert_eq!(expect["content_text"], account.text.as_ref().unwrap().text, "{name}");
    assert_eq!(expect["first_token_kind"].as_str(), account.first_output_kind.map(|k| k.name()), "{name}");
    let finish: BTreeMap<_, _> = account.finish.iter().map(|(c, reason)| (c.to_string(), reason)).collect();
    assert_eq!(expect["finish_reason"], serde_json::to_value(finish).unwrap(), "{name}");
    if let Some(detail) = &account.detail {
        assert_eq!(expect["error"]["message"], detail.message, "{name}");
        let code = expect["error"]["code"].as_str().map(str::to_owned);
        let code = code.or_else(|| expect["error"]["code"].as_i64().map(|n| n.to_string()));
        assert_eq!(code, detail.code, "{name}");
        assert_eq!(expect["error"]["type"].as_str(), detail.error_type.as_deref(), "{name}");
    }
    let events: Vec<_> = seen
        .marks
        .iter()
        .filter_map(|(mark, _)| match mark {
            Mark::Event(meaning) => Some(meaning),
            _ => None,
        })
        .collect();
    assert_eq!(events.len() as u64, counters.events, "{name}: a mark per event");
    let position = |at: Option<usize>| at.map_or(Value::Null, |at| at.into());
    let content = events.iter().position(|meaning| meaning.content);
    assert_eq!(expect["first_content_event"], position(content), "{name}");
    let output = events.iter().rposition(|meaning| meaning.output.is_some());
    assert_eq!(expect["last_token_event"], position(output), "{name}");
}
