//! Every ending that an answer itself decides. All cases are served in one run, each between two good answers: a
//! failure must stay with its own request. Once more with a fresh connection per request.

use std::sync::Arc;

use serde_json::Value;

use crate::run::{Reached, Run, brief, check_stamps, run};
use crate::server::{Peer, Request, Server, Then};

pub(crate) const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
pub(crate) const ROLE: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
pub(crate) const TOKEN: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";
const THOUGHT: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning\":\"a\"}}]}\n\n";
const FINISH: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\n";
const ERROR: &str = "data: {\"error\":{\"message\":\"boom\",\"code\":503,\"type\":\"Overloaded\"}}\n\n";
pub(crate) const DONE: &str = "data: [DONE]\n\n";
/// Of an answer in chunks, the last one.
pub(crate) const LAST: &str = "0\r\n\r\n";

/// The reader's limits, from the design: bytes of a head, fields of a head, bytes of a line, interim answers, bytes
/// kept of a body that is no stream.
const HEAD_LIMIT: usize = 64 * 1024;
const FIELD_LIMIT: usize = 256;
const LINE_LIMIT: usize = 8 << 20;
const INTERIM_LIMIT: usize = 16;
const KEPT_OF_BODY: usize = 4096;

/// Head and chunks, without the last chunk.
pub(crate) fn chunks(parts: &[&str]) -> String {
    let chunks: String = parts.iter().map(|part| format!("{:x}\r\n{part}\r\n", part.len())).collect();
    format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n{chunks}")
}

/// A whole answer in chunks.
pub(crate) fn good() -> String {
    chunks(&[ROLE, TOKEN, TOKEN, FINISH, USAGE, DONE]) + LAST
}

fn length(parts: &[&str]) -> String {
    let body = parts.concat();
    format!("{HEAD}Content-Length: {}\r\n\r\n{body}", body.len())
}

fn until_close(parts: &[&str]) -> String {
    format!("{HEAD}\r\n{}", parts.concat())
}

/// Another answer than a stream.
fn plain(status: &str, fields: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())
}

/// A row's further check.
type Check = fn(&Value) -> bool;

struct Case {
    name: &'static str,
    answer: Vec<u8>,
    then: Then,
    outcome: &'static str,
    status: Option<u64>,
    reached: Reached,
    done: bool,
    check: Check,
}

/// An answer that is read up to there; further facts are added to it.
fn case(
    name: &'static str,
    answer: impl Into<Vec<u8>>,
    then: Then,
    outcome: &'static str,
    reached: Reached,
) -> Case {
    Case {
        name,
        answer: answer.into(),
        then,
        outcome,
        status: (reached >= Reached::Head).then_some(200),
        reached,
        done: false,
        check: |_| true,
    }
}

impl Case {
    fn done(self) -> Self {
        Self { done: true, ..self }
    }

    fn status(self, status: u64) -> Self {
        Self { status: Some(status), ..self }
    }

    fn check(self, check: Check) -> Self {
        Self { check, ..self }
    }

    /// Compares a row with what the case expects.
    fn judge(&self, row: &Value) -> Result<(), String> {
        let error = &row["error"];
        if row["outcome"] != self.outcome {
            return Err(format!("ended as {}, expected {}: {error}", row["outcome"], self.outcome));
        }
        if row["http_status"].as_u64() != self.status {
            return Err(format!("status {}, expected {:?}", row["http_status"], self.status));
        }
        check_stamps(row, self.reached, self.done)?;
        if self.outcome == "ok" {
            if !error.is_null() {
                return Err(format!("an error with a success: {error}"));
            }
        } else {
            if error["class"] != self.outcome || error["fault"] != "server" {
                return Err(format!("an error of another class: {error}"));
            }
            if error["detail"].as_str().is_none_or(str::is_empty) {
                return Err(format!("an error that says nothing: {error}"));
            }
        }
        if (self.check)(row) { Ok(()) } else { Err(format!("the row's own check: {row}")) }
    }
}

#[expect(clippy::too_many_lines, reason = "a table: one answer an entry")]
fn successes() -> Vec<Case> {
    use Reached::Output;
    use Then::{Close, Keep, Reset};

    let two = |row: &Value| row["output_chunks"] == 2 && row["output_tokens"] == 2 && row["events"] == 6;
    let cut = |row: &Value| row["cut_after_terminal"] == true && row["output_chunks"] == 1;
    let uncut = |row: &Value| row["cut_after_terminal"] == false && row["finish_reasons"]["0"] == "stop";
    vec![
        case("in chunks", good(), Keep, "ok", Output).done().check(two),
        case("by length", length(&[ROLE, TOKEN, TOKEN, FINISH, USAGE, DONE]), Keep, "ok", Output)
            .done()
            .check(two),
        case("until the close", until_close(&[ROLE, TOKEN, TOKEN, FINISH, USAGE, DONE]), Close, "ok", Output)
            .done()
            .check(two),
        case("in chunks, no [DONE]", chunks(&[TOKEN, FINISH]) + LAST, Keep, "ok", Output).check(uncut),
        case("by length, no [DONE]", length(&[TOKEN, FINISH]), Keep, "ok", Output).check(uncut),
        case("until the close, no [DONE]", until_close(&[TOKEN, FINISH]), Close, "ok", Output).check(uncut),
        case("[DONE] without a finish reason", chunks(&[TOKEN, DONE]) + LAST, Keep, "ok", Output).done(),
        case("[DONE] without its blank line", until_close(&[TOKEN, "data: [DONE]"]), Close, "ok", Output)
            .done(),
        case(
            "[DONE] without its blank line, in chunks",
            chunks(&[TOKEN, "data: [DONE]\n"]) + LAST,
            Keep,
            "ok",
            Output,
        )
        .done()
        .check(|row| row["events"] == 2),
        case("reasoning alone", chunks(&[THOUGHT, FINISH, DONE]) + LAST, Keep, "ok", Output).done().check(
            |row| {
                row["first_output_kind"] == "reasoning"
                    && row["first_content_ns"].is_null()
                    && row["content_chunks"] == 0
            },
        ),
        case("cut after [DONE]", chunks(&[TOKEN, DONE]), Close, "ok", Output).done().check(cut),
        case(
            "cut after [DONE], by length",
            format!("{HEAD}Content-Length: 999\r\n\r\n{TOKEN}{DONE}"),
            Close,
            "ok",
            Output,
        )
        .done()
        .check(cut),
        case("reset after [DONE]", chunks(&[TOKEN, DONE]), Reset, "ok", Output).done().check(cut),
        case("damaged after [DONE]", chunks(&[TOKEN, DONE]) + "oops\r\n", Close, "ok", Output)
            .done()
            .check(cut),
        case("the last chunk and the end", chunks(&[TOKEN, FINISH]) + "0\r\n", Close, "ok", Output)
            .check(uncut),
        case("events after [DONE]", chunks(&[TOKEN, DONE, ERROR, TOKEN]) + LAST, Keep, "ok", Output)
            .done()
            .check(|row| row["events_after_done"] == 2 && row["output_chunks"] == 1),
        case(
            "comments, a byte order mark, CR LF",
            chunks(&["\u{feff}: ping\r\n\r\n", &TOKEN.replace('\n', "\r\n"), DONE]) + LAST,
            Keep,
            "ok",
            Output,
        )
        .done()
        .check(|row| row["keepalive_comments"] == 1 && row["output_chunks"] == 1),
        case(
            "interim answers first",
            format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n{}", good()),
            Keep,
            "ok",
            Output,
        )
        .done(),
    ]
}

#[expect(clippy::too_many_lines, reason = "a table: one answer an entry")]
fn stream_failures() -> Vec<Case> {
    use Reached::{Event, Head, Output};
    use Then::{Close, Keep, Reset};

    vec![
        case("nothing generated", chunks(&[ROLE, FINISH, USAGE, DONE]) + LAST, Keep, "no_output", Event)
            .done(),
        case("only [DONE]", chunks(&[DONE]) + LAST, Keep, "empty_response", Event).done(),
        case("no event", chunks(&[]) + LAST, Keep, "empty_response", Head),
        case("no body", plain("204 No Content", "", ""), Keep, "empty_response", Head).status(204),
        case("stops in chunks", chunks(&[TOKEN]) + LAST, Keep, "truncated_stream", Output),
        case("stops at the close", until_close(&[TOKEN]), Close, "truncated_stream", Output),
        case(
            "half an event at the close",
            until_close(&[TOKEN, "data: {\"choi"]),
            Close,
            "truncated_stream",
            Output,
        )
        .check(|row| row["malformed_events"] == 1),
        case("cut in chunks", chunks(&[TOKEN, FINISH]), Close, "truncated_body", Output),
        case("cut in a chunk", chunks(&[TOKEN]) + "ff\r\ndata: ", Close, "truncated_body", Output),
        case(
            "cut by length",
            format!("{HEAD}Content-Length: 999\r\n\r\n{TOKEN}{FINISH}"),
            Close,
            "truncated_body",
            Output,
        ),
        case("cut behind the head", chunks(&[]), Close, "truncated_body", Head),
        case("an error first", chunks(&[ERROR, DONE]) + LAST, Keep, "server_error_in_stream", Event)
            .done()
            .check(says_boom),
        case("an error later", chunks(&[TOKEN, ERROR, DONE]) + LAST, Keep, "server_error_in_stream", Output)
            .done()
            .check(says_boom),
        case("an error and the cut", chunks(&[TOKEN, ERROR]), Close, "server_error_in_stream", Output)
            .check(says_boom),
        case("an error and a reset", chunks(&[TOKEN, ERROR]), Reset, "server_error_in_stream", Output)
            .check(says_boom),
        case(
            "an error and damage",
            chunks(&[TOKEN, ERROR]) + "oops\r\n",
            Close,
            "server_error_in_stream",
            Output,
        )
        .check(says_boom),
        case(
            "an error field",
            until_close(&["error: {\"code\":503,\"message\":\"boom\"}\n\n"]),
            Close,
            "server_error_in_stream",
            Head,
        ),
        case(
            "not JSON",
            chunks(&[TOKEN, "data: {broken\n\n", TOKEN]) + LAST,
            Keep,
            "malformed_event",
            Output,
        )
        .check(|row| row["malformed_events"] == 1 && row["error"]["body_start"] == "{broken"),
        case(
            "an error in an open event",
            chunks(&["data: {\"choices\":[\n", ERROR, DONE]) + LAST,
            Keep,
            "malformed_event",
            Event,
        )
        .done(),
        case("reset in the stream", chunks(&[TOKEN]), Reset, "reset_midstream", Output),
        case("reset behind the head", chunks(&[]), Reset, "reset_midstream", Head),
    ]
}

fn says_boom(row: &Value) -> bool {
    let error = &row["error"];
    error["detail"] == "boom" && error["code"] == "503" && error["type"] == "Overloaded"
}

#[expect(clippy::too_many_lines, reason = "a table: one answer an entry")]
fn other_answers() -> Vec<Case> {
    use Reached::Head;
    use Then::{Close, Keep};

    let json = "Content-Type: application/json\r\n";
    let html = "Content-Type: text/html\r\n";
    let long = format!("{{\"error\":{{\"message\":\"{}\",\"code\":429}}}}", "w".repeat(6_000));
    let gzip = [
        plain("200 OK", "Content-Type: text/event-stream\r\n", "")
            .replace("Content-Length: 0", "Content-Length: 5")
            .into_bytes(),
        b"\x1f\x8b\x08\0\0".to_vec(),
    ]
    .concat();
    vec![
        case(
            "an error body",
            plain("200 OK", json, "{\"error\":{\"message\":\"boom\",\"code\":503,\"type\":\"Overloaded\"}}"),
            Keep,
            "json_error_body",
            Head,
        )
        .check(says_boom),
        case(
            "a whole completion",
            plain("200 OK", json, "{\"object\":\"chat.completion\",\"choices\":[]}"),
            Keep,
            "not_a_stream",
            Head,
        )
        .check(|row| row["error"]["body_start"].as_str().unwrap().starts_with("{\"object\"")),
        case("a page", plain("200 OK", html, "<html>hello</html>"), Keep, "not_a_stream", Head),
        case(
            "half a page",
            plain("200 OK", html, "<html>").replace("Length: 6", "Length: 60"),
            Close,
            "truncated_body",
            Head,
        ),
        case(
            "429",
            plain("429 Too Many Requests", &format!("{json}Retry-After: 7\r\n"), &long),
            Keep,
            "http_error",
            Head,
        )
        .status(429)
        .check(|row| {
            let error = &row["error"];
            let kept = error["body_start"].as_str().unwrap();
            error["retry_after"] == "7" && error["code"] == "429" && kept.len() == KEPT_OF_BODY
        }),
        case("500 with a page", plain("500 Internal Server Error", html, "<html>"), Keep, "http_error", Head)
            .status(500)
            .check(|row| row["error"]["detail"] == "status 500 Internal Server Error"),
        case("503 without a body", plain("503 Busy", "", ""), Keep, "http_error", Head).status(503),
        case(
            "503 that is cut",
            plain("503 Busy", "", "").replace("Length: 0", "Length: 60"),
            Close,
            "http_error",
            Head,
        )
        .status(503),
        case(
            "502 that is damaged",
            "HTTP/1.1 502 Bad Gateway\r\nTransfer-Encoding: chunked\r\n\r\noops\r\n",
            Close,
            "http_error",
            Head,
        )
        .status(502),
        case(
            "307",
            plain("307 Temporary Redirect", "Location: /v1/chat/completions/\r\n", ""),
            Keep,
            "redirect",
            Head,
        )
        .status(307)
        .check(|row| row["error"]["location"] == "/v1/chat/completions/"),
        case("302 to nowhere", plain("302 Found", "", ""), Keep, "http_error", Head).status(302),
        case(
            "a declared coding",
            plain("200 OK", "Content-Type: text/event-stream\r\nContent-Encoding: gzip\r\n", "....."),
            Keep,
            "unsupported_content_coding",
            Head,
        ),
        case("an undeclared coding", gzip, Keep, "unsupported_content_coding", Head),
        case(
            "a coding below the chunks",
            format!("{HEAD}Transfer-Encoding: gzip, chunked\r\n\r\n{LAST}"),
            Keep,
            "unsupported_content_coding",
            Head,
        ),
    ]
}

fn damaged() -> Vec<Case> {
    use Reached::{FirstByte, Head, Output, Sent};
    use Then::{Close, Reset};

    let chunked = |rest: &str| chunks(&[TOKEN]) + rest;
    let interims = "HTTP/1.1 102 Processing\r\n\r\n".repeat(INTERIM_LIMIT + 1);
    let fields = "X-A: b\r\n".repeat(FIELD_LIMIT + 1);
    let line = "x".repeat(LINE_LIMIT + 1);
    vec![
        case("no byte", "", Close, "eof_before_response", Sent),
        case("no byte and a reset", "", Reset, "reset_before_response", Sent),
        case("cut in the status line", "HTTP/1.1 20", Close, "truncated_head", FirstByte),
        case("cut in the fields", HEAD, Close, "truncated_head", FirstByte),
        case("cut after an interim answer", "HTTP/1.1 100 Continue\r\n\r\n", Close, "truncated_head", Sent),
        case("reset in the head", HEAD, Reset, "reset_midstream", FirstByte),
        case("not HTTP", "SSH-2.0-OpenSSH_9.6\r\n", Close, "bad_status_line", FirstByte),
        case("TLS", "\x15\x03\x03\0\x02\x02\x46", Close, "bad_status_line", FirstByte),
        case("HTTP/2", "HTTP/2 200 OK\r\n\r\n", Close, "bad_status_line", FirstByte),
        case("a bad field", "HTTP/1.1 200 OK\r\nNo colon\r\n\r\n", Close, "bad_header", FirstByte),
        case(
            "a bad length",
            "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
            Close,
            "bad_content_length",
            FirstByte,
        )
        .status(200),
        case(
            "two lengths",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
            Close,
            "bad_content_length",
            FirstByte,
        )
        .status(200),
        case("no chunk size", chunked("zz\r\n"), Close, "bad_chunk", Output),
        case("a chunk that is too long", chunked("2\r\nabc\r\n"), Close, "bad_chunk", Output),
        case("a bad trailer", chunked("0\r\nBad Name: x\r\n\r\n"), Close, "bad_trailer", Output),
        case(
            "101",
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
            Close,
            "unexpected_upgrade",
            FirstByte,
        ),
        case(
            "chunked twice",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n",
            Close,
            "unsupported_transfer_coding",
            FirstByte,
        )
        .status(200),
        case("a head without end", format!("{HEAD}X: {}", "y".repeat(HEAD_LIMIT)), Close, "limit", FirstByte),
        case("too many fields", format!("HTTP/1.1 200 OK\r\n{fields}\r\n"), Close, "limit", FirstByte),
        case("too many interim answers", interims, Close, "limit", FirstByte),
        case("a line without end", until_close(&[TOKEN, &line]), Close, "limit", Output)
            .check(|row| row["error"]["offset"] == TOKEN.len() + LINE_LIMIT),
        case("a chunk size without end", chunked(&"0".repeat(5_000)), Close, "limit", Output),
        case(
            "cut before a body of known length",
            format!("{HEAD}Content-Length: 1\r\n\r\n"),
            Close,
            "truncated_body",
            Head,
        ),
    ]
}

fn cases() -> Vec<Case> {
    [successes(), stream_failures(), other_answers(), damaged()].into_iter().flatten().collect()
}

/// Every case with a good answer before it and behind it: request `2 n + 1` meets case `n`.
fn serve(cases: Arc<Vec<Case>>) -> Server {
    Server::start(move |peer: &mut Peer, request: &Request| {
        if request.index.is_multiple_of(2) {
            peer.say(good());
            return Then::Keep;
        }
        let case = &cases[request.index / 2];
        peer.say(&case.answer);
        if case.then == Then::Reset && !case.answer.is_empty() {
            // The bytes must be read before the reset takes away what was not.
            peer.pause(20);
        }
        case.then
    })
}

fn play(flags: &[&str]) -> (Arc<Vec<Case>>, Run) {
    let cases = Arc::new(cases());
    let server = serve(Arc::clone(&cases));
    let run = run(&server.base_url(), 2 * cases.len() + 1, 1, flags);
    (cases, run)
}

fn faults(cases: &[Case], rows: &[Value]) -> Vec<String> {
    let judged = rows.iter().enumerate().filter_map(|(index, row)| {
        let good = index.is_multiple_of(2);
        let (name, verdict) = if good {
            ("the good answer behind it: ", if row["outcome"] == "ok" { Ok(()) } else { Err(brief(row)) })
        } else {
            ("", cases[index / 2].judge(row))
        };
        let near = cases.get((index.max(1) - 1) / 2).map_or("", |case| case.name);
        verdict.err().map(|why| format!("{near}: {name}{why}"))
    });
    judged.collect()
}

#[test]
fn every_ending_of_an_answer_is_told_on_kept_connections() {
    let (cases, run) = play(&[]);
    let faults = faults(&cases, &run.rows);
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    run.counts_agree();
    run.ended_with(1);
    for (case, row) in cases.iter().zip(run.rows.iter().skip(1).step_by(2)) {
        // The good answer before it left its connection.
        assert_eq!(row["reused"], true, "{}", case.name);
    }
}

#[test]
fn every_ending_of_an_answer_is_told_on_fresh_connections() {
    let (cases, run) = play(&["--connection", "fresh"]);
    let faults = faults(&cases, &run.rows);
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    run.counts_agree();
    run.ended_with(1);
    assert!(run.rows.iter().all(|row| row["reused"] == false));
}

#[test]
fn every_outcome_of_an_answer_has_a_case() {
    let cases = cases();
    for outcome in [
        "ok",
        "truncated_head",
        "no_output",
        "empty_response",
        "truncated_stream",
        "truncated_body",
        "server_error_in_stream",
        "json_error_body",
        "not_a_stream",
        "malformed_event",
        "http_error",
        "redirect",
        "bad_status_line",
        "bad_header",
        "bad_content_length",
        "bad_chunk",
        "bad_trailer",
        "unexpected_upgrade",
        "unsupported_transfer_coding",
        "unsupported_content_coding",
        "limit",
        "eof_before_response",
        "reset_before_response",
        "reset_midstream",
    ] {
        assert!(cases.iter().any(|case| case.outcome == outcome), "{outcome}");
    }
}
