//! Single answers whose verdict, kept bytes or marks are easily got wrong. Random answers and every cut of them:
//! `tests/response/properties.rs`; the case files: `tests/response/conformance.rs`.

use super::*;
use crate::record::Phase;
use crate::units::Ticks;
use crate::wire::sse::LINE_LIMIT_BYTES;

const STREAM: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
const TOKEN: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";
const ERROR: &str = "data: {\"error\":{\"message\":\"boom\"}}\n\n";
const DONE: &str = "data: [DONE]\n\n";

#[derive(Debug, Default, PartialEq)]
struct Names(Vec<&'static str>);

impl Marks for Names {
    fn first_byte(&mut self) {
        self.0.push("first byte");
    }

    fn interim(&mut self) {
        self.0.push("interim");
    }

    fn head_done(&mut self) {
        self.0.push("head");
    }

    fn event(&mut self, meaning: &EventMeaning) {
        self.0.push(if meaning.terminal { "terminal" } else { "event" });
    }
}

fn until_eof(body: &str) -> String {
    format!("{STREAM}\r\n{body}")
}

fn chunk(data: &str) -> String {
    format!("{:x}\r\n{data}\r\n", data.len())
}

fn chunked(chunks: &[&str]) -> String {
    let chunks: String = chunks.iter().map(|data| chunk(data)).collect();
    format!("{STREAM}Transfer-Encoding: chunked\r\n\r\n{chunks}")
}

/// Reads these pieces and nothing else.
fn after(pieces: &[&[u8]]) -> (ResponseReader, Names, Reading) {
    let mut reader = ResponseReader::new(AnswerRule::default());
    let mut names = Names::default();
    let readings: Vec<_> = pieces.iter().map(|piece| reader.read(piece, &mut names)).collect();
    (reader, names, *readings.last().unwrap())
}

fn given_up(text: &str) -> Option<Outcome> {
    after(&[text.as_bytes()]).0.conclude().map(|(outcome, _)| outcome)
}

fn closed(text: &str) -> (Outcome, ErrorDetail) {
    let (mut reader, mut names, _) = after(&[text.as_bytes()]);
    reader.end_of_stream(&mut names);
    let (outcome, detail) = reader.conclude().unwrap();
    (outcome, detail.unwrap_or_default())
}

fn record(reader: &mut ResponseReader) -> RequestRecord {
    let mut record = RequestRecord::new(0, Phase::Measured, 0, Ticks(0));
    reader.write_to(&mut record);
    record
}

#[test]
fn bytes_that_come_with_the_first_telling_one_are_not_lost() {
    let body = TOKEN.repeat(2_000) + DONE;
    let (mut reader, names, _) = after(&[until_eof("\n").as_bytes(), body.as_bytes()]);
    assert_eq!(record(&mut reader).counters.output_chunks, 2_000);
    assert_eq!(record(&mut reader).counters.body_bytes, body.len() as u64 + 1);
    assert_eq!(names.0.last(), Some(&"terminal"));
}

#[test]
fn bytes_that_tell_nothing_are_counted_all_the_same() {
    let (mut reader, _, _) = after(&[until_eof("\n\n\n").as_bytes()]);
    assert_eq!(record(&mut reader).counters.body_bytes, 3);
    let (mut reader, mut names, _) = after(&[until_eof("\u{feff}").as_bytes()]);
    reader.end_of_stream(&mut names);
    assert_eq!(record(&mut reader).counters.body_bytes, 3);
    assert_eq!(reader.conclude().unwrap().0, Outcome::EmptyResponse);
}

#[test]
fn an_interim_answer_takes_the_first_byte_back_wherever_it_is_cut() {
    let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let last = until_eof(DONE);
    let whole = [interim, &last].concat();
    let expected = ["first byte", "interim", "first byte", "head", "terminal"];
    for at in 1..whole.len() {
        let (left, right) = whole.as_bytes().split_at(at);
        assert_eq!(after(&[left, right]).1.0, expected, "{at}");
    }
    assert_eq!(after(&[interim.as_bytes()]).1.0, ["first byte", "interim"]);
}

#[test]
fn an_end_after_an_interim_answer_is_no_end_before_the_answer() {
    let interim = "HTTP/1.1 100 Continue\r\n\r\n";
    assert_eq!(closed(interim).0, Outcome::TruncatedHead);
    let (mut reader, _, _) = after(&[interim.as_bytes()]);
    assert_eq!(reader.reset("gone"), Reading::Failed);
    assert_eq!(reader.conclude().unwrap().0, Outcome::ResetMidstream);
}

#[test]
fn an_end_before_the_answer_is_told_apart_from_one_in_its_head() {
    let mut reader = ResponseReader::new(AnswerRule::default());
    assert_eq!(reader.end_of_stream(&mut Names::default()), Reading::Failed);
    let (outcome, detail) = reader.conclude().unwrap();
    assert_eq!(outcome, Outcome::EofBeforeResponse);
    assert!(!detail.unwrap().message.is_empty());
    reader.start();
    assert_eq!(reader.reset("reset by peer"), Reading::Failed);
    let (outcome, detail) = reader.conclude().unwrap();
    assert_eq!((outcome, detail.unwrap().message.as_str()), (Outcome::ResetBeforeResponse, "reset by peer"));
    assert_eq!(closed("H").0, Outcome::TruncatedHead);
    assert_eq!(given_up(""), None);
    assert_eq!(given_up("HTTP/1.1 200 OK\r\n"), None);
}

#[test]
fn what_the_server_reported_comes_before_what_happened_to_the_connection() {
    let text = chunked(&[TOKEN, ERROR]);
    assert_eq!(given_up(&text), Some(Outcome::ServerErrorInStream));
    let (outcome, detail) = closed(&format!("{text}nonsense\r\n"));
    assert_eq!((outcome, detail.message.as_str()), (Outcome::ServerErrorInStream, "boom"));
    assert_eq!(given_up(&chunked(&[TOKEN])), None, "a stream that goes on is undecided");
    let opened = format!("data: {{\"choices\":[\n{ERROR}");
    assert_eq!(given_up(&chunked(&[&opened])), Some(Outcome::MalformedEvent));
}

#[test]
fn an_overlong_line_is_a_limit_unless_the_answer_was_complete() {
    let flood = "x".repeat(LINE_LIMIT_BYTES + 3);
    let text = until_eof(&format!("{TOKEN}{flood}"));
    let (mut reader, _, reading) = after(&[text.as_bytes()]);
    assert_eq!(reading, Reading::Failed);
    let limit_at = (TOKEN.len() + LINE_LIMIT_BYTES) as u64;
    assert_eq!(record(&mut reader).counters.body_bytes, limit_at);
    let (outcome, detail) = reader.conclude().unwrap();
    assert_eq!((outcome, detail.unwrap().offset), (Outcome::Limit, Some(limit_at)));
    let (head, tail) = text.as_bytes().split_at(text.len() - 1);
    let (mut cut, _, _) = after(&[head, tail]);
    assert_eq!(record(&mut cut).counters.body_bytes, limit_at, "it does not depend on the read");

    let text = chunked(&[TOKEN, DONE, &flood]);
    let (mut reader, _, reading) = after(&[text.as_bytes()]);
    assert_eq!(reading, Reading::Failed);
    assert!(record(&mut reader).cut_after_terminal);
    assert_eq!(reader.conclude(), Some((Outcome::Ok, None)));
    assert!(!reader.may_keep_alive());
}

#[test]
fn the_record_knows_of_a_cut_after_the_terminal_before_the_verdict_is_asked_for() {
    let (mut reader, _, reading) = after(&[chunked(&[TOKEN, DONE]).as_bytes()]);
    assert_eq!(reading, Reading::Going);
    assert!(record(&mut reader).cut_after_terminal);
    assert_eq!(reader.conclude(), Some((Outcome::Ok, None)));
    let (mut reader, _, _) = after(&[until_eof(&[TOKEN, DONE].concat()).as_bytes()]);
    assert!(!record(&mut reader).cut_after_terminal, "without a length there is nothing to cut");
    assert_eq!(reader.conclude(), Some((Outcome::Ok, None)));
}

#[test]
fn damage_after_the_terminal_leaves_a_success_without_a_detail() {
    let text = chunked(&[TOKEN, DONE]) + "oops\r\n";
    let (mut reader, _, reading) = after(&[text.as_bytes()]);
    assert_eq!(reading, Reading::Failed);
    assert_eq!(reader.conclude(), Some((Outcome::Ok, None)));
    assert!(!reader.may_keep_alive());
}

#[test]
fn a_status_that_is_no_success_survives_a_damaged_body() {
    let head = "HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\nRetry-After: 7\r\n\r\n";
    for rest in ["", "oops\r\n", "5\r\nhel", "5\r\nhelloXX", "0\r\nBad Name: x\r\n\r\n"] {
        let (outcome, detail) = closed(&[head, rest].concat());
        assert_eq!(outcome, Outcome::HttpError, "{rest}");
        assert_eq!(detail.retry_after.as_deref(), Some("7"));
        assert!(!detail.message.is_empty());
    }
    assert_eq!(closed(&[head, ""].concat()).1.message, "status 503 Busy");
    assert_eq!(given_up(head), Some(Outcome::HttpError));
}

#[test]
fn a_redirect_needs_a_place_to_go() {
    let answer = |fields: &str| {
        closed(&format!("HTTP/1.1 307 Temporary Redirect\r\n{fields}Content-Length: 0\r\n\r\n"))
    };
    let (outcome, detail) = answer("Location: /v1/chat/completions/\r\n");
    assert_eq!(outcome, Outcome::Redirect);
    assert_eq!(detail.location.as_deref(), Some("/v1/chat/completions/"));
    assert_eq!(answer("").0, Outcome::HttpError);
    let long = answer(&format!("Location: /{}\r\n", "x".repeat(60_000))).1;
    assert_eq!(long.location.unwrap().chars().count(), crate::wire::dialect::MAX_MESSAGE_CHARS);
}

#[test]
fn a_compressed_body_is_named_and_not_read_as_text() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
    let (outcome, detail) = closed(&format!("{head}Content-Encoding: br\r\n\r\n\u{1}\u{2}"));
    assert_eq!(outcome, Outcome::UnsupportedContentCoding);
    assert!(detail.message.ends_with(": br"), "{}", detail.message);
    let (mut reader, mut names, _) = after(&[head.as_bytes(), b"\r\n\x1f", b"\x8b\x08\0\0"]);
    reader.end_of_stream(&mut names);
    let (outcome, detail) = reader.conclude().unwrap();
    let detail = detail.unwrap();
    assert_eq!(outcome, Outcome::UnsupportedContentCoding);
    assert!(detail.message.is_ascii(), "{}", detail.message);
    assert_eq!(detail.body_start, b"\x1f\x8b\x08\0\0");
    let (outcome, detail) = closed("HTTP/1.1 500 Oops\r\nContent-Encoding: gzip\r\n\r\n\u{1f}garbage");
    assert_eq!((outcome, detail.message.as_str()), (Outcome::HttpError, "status 500 Oops"));
}

#[test]
fn an_error_body_is_read_further_than_it_is_kept() {
    let text = "e".repeat(3 * BODY_START_BYTES);
    for (status, outcome) in [(200, Outcome::JsonErrorBody), (429, Outcome::HttpError)] {
        let body = format!("{{\"input\":\"{text}\",\"error\":{{\"message\":\"too long\",\"code\":429}}}}");
        let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n", body.len());
        let (got, detail) = closed(&[head, body].concat());
        assert_eq!(
            (got, detail.message.as_str(), detail.code.as_deref()),
            (outcome, "too long", Some("429"))
        );
        assert_eq!(detail.body_start.len(), BODY_START_BYTES);
    }
    let (outcome, detail) = closed("HTTP/1.1 200 OK\r\n\r\n\u{feff}{\"error\":\"marked\"}");
    assert_eq!((outcome, detail.message.as_str()), (Outcome::JsonErrorBody, "marked"));
}

#[test]
fn half_of_something_else_is_a_cut_answer_and_its_beginning_is_kept() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 99\r\n\r\n";
    let (outcome, detail) = closed(&format!("{head}<html>"));
    assert_eq!((outcome, detail.body_start.as_slice()), (Outcome::TruncatedBody, &b"<html>"[..]));
    // A whole error object says what went wrong, whatever became of the rest.
    assert_eq!(closed(&format!("{head}{{\"error\":\"full\"}}")).0, Outcome::JsonErrorBody);
    assert_eq!(given_up(&format!("{head}<html>")), Some(Outcome::NotAStream));
    let (outcome, detail) = closed("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>");
    assert_eq!(outcome, Outcome::NotAStream);
    assert!(detail.message.contains("text/html"), "{}", detail.message);
}

#[test]
fn a_long_body_that_is_no_stream_is_not_read_to_its_end() {
    let limit = usize::try_from(BODY_DISCARD_BYTES).unwrap();
    for (length, reading) in [(limit, Reading::Complete), (limit + 1, Reading::Failed)] {
        let text = format!("HTTP/1.1 404 X\r\nContent-Length: {length}\r\n\r\n{}", "y".repeat(length));
        for piece in [text.len(), 60_000] {
            let pieces: Vec<_> = text.as_bytes().chunks(piece).collect();
            let (mut reader, _, got) = after(&pieces);
            assert_eq!(got, reading);
            assert_eq!(reader.may_keep_alive(), reading == Reading::Complete);
            assert_eq!(record(&mut reader).counters.body_bytes, BODY_DISCARD_BYTES);
            let (outcome, detail) = reader.conclude().unwrap();
            assert_eq!((outcome, detail.unwrap().body_start.len()), (Outcome::HttpError, BODY_START_BYTES));
        }
    }
}

#[test]
fn what_comes_behind_the_answer_costs_the_connection_and_nothing_else() {
    let text = chunked(&[TOKEN, DONE]) + "0\r\n\r\n";
    let (mut reader, mut names, reading) = after(&[text.as_bytes()]);
    assert_eq!(reading, Reading::Complete);
    assert!(reader.may_keep_alive());
    assert_eq!(reader.read(b"", &mut names), Reading::Failed);
    assert!(reader.may_keep_alive());
    assert_eq!(reader.read(b"HTTP/1.1 408 Slow\r\n\r\n", &mut names), Reading::Failed);
    assert!(!reader.may_keep_alive());
    assert_eq!(reader.reset("late"), Reading::Failed);
    assert_eq!(reader.conclude(), Some((Outcome::Ok, None)));
    let (mut reader, mut names, _) = after(&[text.as_bytes()]);
    assert_eq!(reader.end_of_stream(&mut names), Reading::Failed);
    assert!(!reader.may_keep_alive());
    assert_eq!(reader.conclude(), Some((Outcome::Ok, None)));
}

#[test]
fn the_last_chunk_and_an_end_are_a_complete_answer_on_a_dead_connection() {
    let text =
        chunked(&[TOKEN, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"]);
    let (mut reader, mut names, reading) = after(&[text.as_bytes(), b"0\r\n"]);
    assert_eq!(reading, Reading::Going);
    assert_eq!(reader.end_of_stream(&mut names), Reading::Failed);
    assert!(!record(&mut reader).cut_after_terminal);
    assert_eq!(reader.conclude(), Some((Outcome::Ok, None)));
    assert_eq!(closed(&text).0, Outcome::TruncatedBody);
}

#[test]
fn a_used_reader_is_as_good_as_a_new_one() {
    let mut reader = ResponseReader::new(AnswerRule::keeping(100));
    let mut names = Names::default();
    for text in [
        format!("HTTP/1.1 500 X\r\n\r\n{}", "z".repeat(9_000)),
        until_eof("\n"),
        chunked(&[TOKEN, "data: half"]),
        "nonsense\r\n".to_owned(),
    ] {
        reader.start();
        reader.read(text.as_bytes(), &mut names);
        reader.end_of_stream(&mut names);
        reader.start();
        let mut names = Names::default();
        let text = chunked(&[TOKEN, DONE]) + "0\r\n\r\n";
        assert_eq!(reader.read(text.as_bytes(), &mut names), Reading::Complete);
        let record = record(&mut reader);
        assert_eq!((record.counters.events, record.text.unwrap().text.as_str()), (2, "a"));
        assert_eq!(names.0, ["first byte", "head", "event", "terminal"]);
        assert_eq!(reader.conclude(), Some((Outcome::Ok, None)));
        assert_eq!(reader.conclude(), None, "a verdict is given once");
    }
}
