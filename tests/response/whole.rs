//! Answers that were not to be streamed, and plain HTTP: every shape of a body under every framing, cut and end.

use hammerscale::record::{Outcome, OutputKind};
use hammerscale::wire::dialect::Dialect;
use hammerscale::wire::http1::Method;
use hammerscale::wire::response::{
    AnswerRule, BODY_DISCARD_BYTES, BODY_START_BYTES, Reading, ResponseReader, WHOLE_BODY_BYTES,
};
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::reading::{Account, ENDS, End, bytewise, chunked, pieces_of, read, reader_of};

const CHAT: &str = r#"{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"The river","reasoning_content":"Hm","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"},{"index":1,"message":{"content":" bends"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21,"completion_tokens_details":{"reasoning_tokens":2},"prompt_tokens_details":{"cached_tokens":4}}}"#;
const COMPLETION: &str = r#"{"object":"text_completion","choices":[{"index":0,"text":" upon a time","finish_reason":"length"}],"usage":{"prompt_tokens":3,"completion_tokens":4}}"#;
const RESPONSE: &str = r#"{"id":"r","object":"response","status":"incomplete","error":null,"incomplete_details":{"reason":"max_output_tokens"},"output":[{"type":"reasoning","summary":[{"type":"summary_text","text":"Hm"}],"content":[{"type":"reasoning_text","text":"!"}]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"The river","annotations":[]},{"type":"refusal","refusal":"no"}]},{"type":"function_call","name":"f","arguments":"{\"a\":1}"}],"usage":{"input_tokens":20,"input_tokens_details":{"cached_tokens":5},"output_tokens":9,"output_tokens_details":{"reasoning_tokens":3},"total_tokens":29}}"#;
const MESSAGE: &str = r#"{"id":"m","type":"message","role":"assistant","content":[{"type":"thinking","thinking":"Hm","signature":"s"},{"type":"text","text":"The river"},{"type":"tool_use","id":"t","name":"f","input":{"a":1}}],"stop_reason":"tool_use","usage":{"input_tokens":12,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":8}}"#;
const VECTORS: &str = r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.1,-2.5e-3]}],"model":"e","usage":{"prompt_tokens":7,"total_tokens":7}}"#;

const ALL: [Dialect; 5] =
    [Dialect::Chat, Dialect::Completions, Dialect::Responses, Dialect::Messages, Dialect::Embeddings];

fn with_length(status: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{fields}\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// The body in three framings, each with the end of its connection.
fn framings(body: &[u8]) -> [(Vec<u8>, End); 3] {
    let head = |field: &str| {
        format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{field}\r\n").into_bytes()
    };
    let in_chunks = chunked(body, &[1, 50, 7], "", 0).0;
    [
        (with_length("200 OK", "Content-Type: application/json\r\n", body), End::Silence),
        ([head("Transfer-Encoding: chunked\r\n"), in_chunks].concat(), End::Silence),
        ([head(""), body.to_vec()].concat(), End::Eof),
    ]
}

/// What a body comes to, in every framing and cut.
fn come_to(dialect: Dialect, body: &str) -> Account {
    let mut reader = reader_of(dialect, false);
    let first = {
        let (bytes, end) = &framings(body.as_bytes())[0];
        read(&mut reader, bytes, &[], *end).account
    };
    for (bytes, end) in framings(body.as_bytes()) {
        for cuts in [Vec::new(), bytewise(&bytes), pieces_of(37, &bytes)] {
            let seen = read(&mut reader, &bytes, &cuts, end).account;
            assert_eq!(seen.counters.body_bytes, body.len() as u64, "{dialect:?} {body}");
            // A connection that delimits its answer carries no other.
            let alike = Account { may_keep_alive: first.may_keep_alive, ..seen };
            assert_eq!(alike, first, "{dialect:?} {body}");
        }
    }
    first
}

fn text(account: &Account) -> &str {
    &account.text.as_ref().unwrap().text
}

#[test]
fn a_chat_completion_has_texts_tokens_and_reasons_and_nothing_to_stamp() {
    let seen = come_to(Dialect::Chat, CHAT);
    assert_eq!(seen.outcome, Some(Outcome::Ok));
    assert_eq!(text(&seen), "The river bends");
    assert_eq!(seen.first_output_kind, Some(OutputKind::Reasoning));
    assert_eq!(seen.finish, [(0, "tool_calls".to_owned()), (1, "stop".to_owned())]);
    assert_eq!((seen.usage.prompt_tokens, seen.usage.completion_tokens), (Some(9), Some(12)));
    assert_eq!((seen.usage.reasoning_tokens, seen.usage.cached_tokens), (Some(2), Some(4)));
    let counters = seen.counters;
    assert_eq!((counters.events, counters.output_chunks, counters.content_chunks), (0, 0, 0));
    assert_eq!((counters.content_deltas, counters.usage_events), (0, 0));
    assert!(!seen.terminal_seen && !seen.streamed_unasked);
    let (bytes, end) = &framings(CHAT.as_bytes())[0];
    let marks = read(&mut reader_of(Dialect::Chat, false), bytes, &[], *end).marks;
    assert_eq!(marks.len(), 2, "the first byte and the head: {marks:?}");
}

#[test]
fn the_other_endpoints_answers_are_read_in_their_own_shapes() {
    let seen = come_to(Dialect::Completions, COMPLETION);
    assert_eq!((seen.outcome, text(&seen)), (Some(Outcome::Ok), " upon a time"));
    assert_eq!(seen.finish, [(0, "length".to_owned())]);
    assert_eq!(seen.usage.completion_tokens, Some(4));

    let seen = come_to(Dialect::Responses, RESPONSE);
    assert_eq!((seen.outcome, text(&seen)), (Some(Outcome::Ok), "The river"));
    assert_eq!(seen.first_output_kind, Some(OutputKind::Reasoning));
    assert_eq!(seen.finish, [(0, "max_output_tokens".to_owned())]);
    assert_eq!((seen.usage.prompt_tokens, seen.usage.completion_tokens), (Some(20), Some(9)));
    assert_eq!((seen.usage.reasoning_tokens, seen.usage.cached_tokens), (Some(3), Some(5)));

    let seen = come_to(Dialect::Messages, MESSAGE);
    assert_eq!((seen.outcome, text(&seen)), (Some(Outcome::Ok), "The river"));
    assert_eq!(seen.first_output_kind, Some(OutputKind::Reasoning));
    assert_eq!(seen.finish, [(0, "tool_use".to_owned())]);
    assert_eq!((seen.usage.prompt_tokens, seen.usage.completion_tokens), (Some(12), Some(8)));
    assert_eq!((seen.usage.total_tokens, seen.usage.cached_tokens), (None, Some(4)));

    let seen = come_to(Dialect::Embeddings, VECTORS);
    assert_eq!((seen.outcome, seen.first_output_kind, text(&seen)), (Some(Outcome::Ok), None, ""));
    assert_eq!((seen.usage.prompt_tokens, seen.usage.completion_tokens), (Some(7), None));
    // Nobody streams vectors, so asking for a stream changes nothing.
    let (bytes, end) = &framings(VECTORS.as_bytes())[0];
    assert_eq!(read(&mut reader_of(Dialect::Embeddings, true), bytes, &[], *end).account, seen);
}

#[test]
fn every_body_without_a_good_answer_has_its_outcome() {
    use Outcome::{EmptyResponse, JsonErrorBody, MalformedEvent, NoOutput, Ok, TruncatedBody};
    let cases: [(Dialect, &str, Outcome); 24] = [
        (Dialect::Chat, r#"{"choices":[{"message":{"content":""},"finish_reason":"stop"}]}"#, NoOutput),
        (Dialect::Chat, r#"{"choices":[],"usage":{"prompt_tokens":1}}"#, NoOutput),
        (Dialect::Chat, r#"{"choices":[{"message":{"refusal":"no"},"finish_reason":"stop"}]}"#, Ok),
        (Dialect::Chat, r#"{"choices":[{"message":{"content":"\ud83d"},"x":NaN}]}"#, Ok),
        (Dialect::Chat, r#"{"status":"ok"}"#, EmptyResponse),
        (Dialect::Chat, RESPONSE, NoOutput),
        (
            Dialect::Chat,
            r#"{"choices":[{"message":{"content":"a"},"finish_reason":"error"}]}"#,
            JsonErrorBody,
        ),
        (Dialect::Chat, "[]", EmptyResponse),
        (Dialect::Chat, "{\"choices\":[{\"message\":{\"content\":\"a", TruncatedBody),
        (Dialect::Chat, "{\"choices\":]}", MalformedEvent),
        (Dialect::Chat, "{}{}", MalformedEvent),
        (Dialect::Completions, r#"{"choices":[{"text":"","finish_reason":"stop"}]}"#, NoOutput),
        (Dialect::Completions, CHAT, Ok),
        (Dialect::Responses, r#"{"object":"response","status":"completed","output":[]}"#, NoOutput),
        (
            Dialect::Responses,
            r#"{"status":"failed","error":{"code":"c","message":"m"},"output":[]}"#,
            JsonErrorBody,
        ),
        (Dialect::Responses, r#"{"status":"failed","error":null,"output":[]}"#, JsonErrorBody),
        (Dialect::Responses, r#"{"output":[{"type":"custom_tool_call","input":"ls"}]}"#, Ok),
        (Dialect::Responses, CHAT, EmptyResponse),
        (Dialect::Messages, r#"{"type":"message","content":[],"stop_reason":"end_turn"}"#, NoOutput),
        (
            Dialect::Messages,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"O"}}"#,
            JsonErrorBody,
        ),
        (Dialect::Messages, RESPONSE, EmptyResponse),
        (Dialect::Embeddings, r#"{"object":"list","data":[]}"#, NoOutput),
        (Dialect::Embeddings, r#"{"object":"list","data":[{"embedding":[0.1"#, TruncatedBody),
        (Dialect::Embeddings, CHAT, EmptyResponse),
    ];
    for (dialect, body, outcome) in cases {
        let seen = come_to(dialect, body);
        assert_eq!(seen.outcome, Some(outcome), "{dialect:?} {body}");
        let detail = seen.detail.unwrap_or_default();
        assert_eq!(detail.message.is_empty(), outcome == Ok, "{dialect:?} {body}");
        let start = if outcome == Ok { &b""[..] } else { body.as_bytes() };
        assert_eq!(detail.body_start, start, "{dialect:?} {body}");
    }
}

#[test]
fn what_is_no_answer_of_any_endpoint_has_its_outcome() {
    use Outcome::{EmptyResponse, JsonErrorBody, MalformedEvent, ServerErrorInStream};
    for dialect in ALL {
        for (body, outcome) in [
            ("", EmptyResponse),
            (" \r\n", EmptyResponse),
            ("\u{feff}", EmptyResponse),
            ("<html>502</html>", MalformedEvent),
            ("Internal Server Error", MalformedEvent),
            ("data", MalformedEvent),
            ("42", EmptyResponse),
            ("\"str\"", EmptyResponse),
            (" null\n", EmptyResponse),
            ("\"str", MalformedEvent),
            ("event: error\ndata: {\"message\":\"m\"}\n\n", ServerErrorInStream),
            ("data: {\"error\":{\"message\":\"m\"}}\n\ndata: [DONE]\n\n", ServerErrorInStream),
            ("error: {\"code\":500,\"message\":\"m\"}\n\n", ServerErrorInStream),
            (r#"{"error":{"message":"m","code":429}}"#, JsonErrorBody),
            (r#"[{"error":{"message":"m"}}]"#, JsonErrorBody),
            ("\n\n{\"detail\":\"Not Found\"}", JsonErrorBody),
        ] {
            let seen = come_to(dialect, body);
            assert_eq!(seen.outcome, Some(outcome), "{dialect:?} {body}");
            if outcome == ServerErrorInStream {
                assert_eq!(seen.detail.unwrap().message, "m", "{dialect:?} {body}");
            }
        }
    }
}

#[test]
fn what_came_in_place_of_an_answer_is_named() {
    let message = |dialect, streamed, head: &str, body: &str| {
        let bytes = with_length("200 OK", head, body.as_bytes());
        read(&mut reader_of(dialect, streamed), &bytes, &[], End::Silence).account.detail.unwrap().message
    };
    let html = "Content-Type: text/html\r\n";
    let page = "<html>\n<title>502</title> and a long way to go";
    let named = "(content type: text/html): it begins with \"<html>\\n<title>502</title> and a long way\"";
    for dialect in ALL {
        assert_eq!(message(dialect, false, html, page), format!("the answer is no JSON {named}"));
        for body in ["42", "\"str\""] {
            let told = message(dialect, false, "", body);
            assert_eq!(told, "the answer is JSON without anything of an answer");
        }
    }
    assert_eq!(message(Dialect::Chat, true, html, page), format!("the answer is no event stream {named}"));
    assert_eq!(message(Dialect::Chat, false, "", ""), "the body is empty");
    let (open, close) = ("[".repeat(200_000), "]".repeat(200_000));
    assert_eq!(
        message(Dialect::Chat, false, "", &open),
        "the answer ends in its middle: EOF while parsing a list at line 1 column 200000"
    );
    let deep = format!("{open}{close}");
    assert_eq!(message(Dialect::Chat, false, "", &deep), "the answer is JSON without anything of an answer");
}

#[test]
fn an_end_that_is_a_fault_comes_before_the_body_unless_that_is_an_error() {
    let bytes = with_length("200 OK", "", CHAT.as_bytes());
    let cut = &bytes[..bytes.len() - 1];
    let outcome =
        |bytes: &[u8], end| read(&mut reader_of(Dialect::Chat, false), bytes, &[], end).account.outcome;
    assert_eq!(outcome(cut, End::Silence), None, "still under way: whatever stops it says why");
    assert_eq!(outcome(cut, End::Eof), Some(Outcome::TruncatedBody));
    assert_eq!(outcome(cut, End::Reset), Some(Outcome::ResetMidstream));
    let error = r#"{"error":{"message":"m"}}"#;
    let cut = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{error}", error.len() + 1);
    assert_eq!(outcome(cut.as_bytes(), End::Eof), Some(Outcome::JsonErrorBody));
    let gzip = with_length("200 OK", "Content-Encoding: gzip\r\n", b"\x1f\x8b");
    assert_eq!(outcome(&gzip, End::Silence), Some(Outcome::UnsupportedContentCoding));
    let failed = with_length("503 Busy", "Retry-After: 2\r\n", error.as_bytes());
    assert_eq!(outcome(&failed, End::Silence), Some(Outcome::HttpError));
}

#[test]
fn a_body_is_held_up_to_a_limit_and_no_further() {
    let answer = |bytes: usize| {
        let (before, after) = (r#"{"choices":[{"message":{"content":""#, r#""},"finish_reason":"stop"}]}"#);
        let filling = bytes - before.len() - after.len();
        [before, &"x".repeat(filling), after].concat().into_bytes()
    };
    let mut reader = reader_of(Dialect::Chat, false);
    let fits = with_length("200 OK", "", &answer(WHOLE_BODY_BYTES));
    let seen = read(&mut reader, &fits, &pieces_of(65_536, &fits), End::Silence);
    assert_eq!((seen.account.outcome, seen.reading), (Some(Outcome::Ok), Reading::Complete));
    let long = with_length("200 OK", "", &answer(WHOLE_BODY_BYTES + 1));
    let seen = read(&mut reader, &long, &pieces_of(65_536, &long), End::Silence);
    assert_eq!((seen.account.outcome, seen.reading), (Some(Outcome::Limit), Reading::Failed));
    assert_eq!(seen.account.counters.body_bytes, WHOLE_BODY_BYTES as u64);
    let detail = seen.account.detail.unwrap();
    assert_eq!(detail.offset, Some(WHOLE_BODY_BYTES as u64));
    assert_eq!(detail.body_start.len(), BODY_START_BYTES);
    // The next answer on the same reader is none the worse for it.
    let next = with_length("200 OK", "", CHAT.as_bytes());
    assert_eq!(read(&mut reader, &next, &[], End::Silence).account.outcome, Some(Outcome::Ok));
}

fn http(method: Method) -> ResponseReader {
    ResponseReader::new(AnswerRule { dialect: Dialect::Http, method, ..AnswerRule::default() })
}

#[test]
fn plain_http_judges_status_and_framing_alone() {
    use Outcome::{BadChunk, HttpError, Ok, Redirect, ResetMidstream, TruncatedBody};
    let length = |status: &str, fields: &str, body: &str| with_length(status, fields, body.as_bytes());
    let raw = |text: &str| text.as_bytes().to_vec();
    let cases = [
        (length("200 OK", "", "<html>"), End::Silence, Ok),
        (length("200 OK", "", ""), End::Silence, Ok),
        (length("201 Made", "", r#"{"error":"in a body nobody looks into"}"#), End::Silence, Ok),
        (length("200 OK", "Content-Encoding: gzip\r\n", "\u{1f}xyz"), End::Silence, Ok),
        (
            raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"),
            End::Silence,
            Ok,
        ),
        (raw("HTTP/1.1 204 No Content\r\n\r\n"), End::Silence, Ok),
        (raw("HTTP/1.1 200 OK\r\n\r\nuntil the close"), End::Eof, Ok),
        (raw("HTTP/1.1 200 OK\r\n\r\nuntil the close"), End::Reset, ResetMidstream),
        (raw("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"), End::Eof, TruncatedBody),
        (raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), End::Eof, BadChunk),
        (length("404 Not Found", "", "no such page"), End::Silence, HttpError),
        (length("500 Oops", "", ""), End::Silence, HttpError),
        (length("301 Moved", "Location: /b\r\n", "<html>"), End::Silence, Redirect),
        (length("302 Found", "", ""), End::Silence, HttpError),
        (raw("HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n"), End::Silence, HttpError),
    ];
    for (bytes, end, outcome) in cases {
        for cuts in [Vec::new(), bytewise(&bytes)] {
            let seen = read(&mut http(Method::Get), &bytes, &cuts, end);
            let name = bytes.escape_ascii().to_string();
            assert_eq!(seen.account.outcome, Some(outcome), "{name}");
            assert_eq!((seen.account.counters.events, &seen.account.text), (0, &None), "{name}");
            let detail = seen.account.detail.unwrap_or_default();
            let kept = matches!(outcome, HttpError | Redirect);
            assert!(kept || detail.body_start.is_empty(), "{name}");
        }
    }
    let head = length("200 OK", "", "nine more");
    let head = &head[..head.len() - 9];
    let seen = read(&mut http(Method::Head), head, &[], End::Silence);
    assert_eq!((seen.account.outcome, seen.reading), (Some(Ok), Reading::Complete));
    assert_eq!(read(&mut http(Method::Get), head, &[], End::Silence).account.outcome, None);
}

#[test]
fn plain_http_reads_bodies_of_any_length_and_stores_none() {
    const PIECE: usize = 1 << 20;
    let piece = vec![b'x'; PIECE];
    for (status, outcome) in [("200 OK", Outcome::Ok), ("500 Oops", Outcome::HttpError)] {
        let pieces = 20 * BODY_DISCARD_BYTES / PIECE as u64;
        let mut reader = http(Method::Get);
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", pieces * PIECE as u64);
        let mut marks = crate::reading::Unmarked;
        let mut reading = reader.read(head.as_bytes(), &mut marks);
        let taken = allocation_counter::measure(|| {
            for _ in 0..pieces {
                assert_eq!(reading, Reading::Going);
                reading = reader.read(&piece, &mut marks);
            }
        });
        assert_eq!(reading, Reading::Complete);
        assert!(taken.bytes_max < 200_000, "{taken:?}");
        assert!(reader.may_keep_alive());
        let (concluded, detail) = reader.conclude().unwrap();
        assert_eq!(concluded, outcome);
        assert_eq!(
            detail.map_or(0, |detail| detail.body_start.len()),
            match outcome {
                Outcome::Ok => 0,
                _ => BODY_START_BYTES,
            }
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_cut_of_a_whole_answer_changes_what_it_comes_to(
        dialect in select(&[ALL[0], ALL[1], ALL[2], ALL[3], ALL[4], Dialect::Http][..]),
        streamed in any::<bool>(),
        body in select(&[CHAT, COMPLETION, RESPONSE, MESSAGE, VECTORS, "data: {\"choices\":[]}\n\n", "<p>", " "][..]),
        damage in prop::option::of((any::<Index>(), any::<u8>())),
        framing in 0_usize..3,
        length in prop::option::of(any::<Index>()),
        cuts in prop::collection::vec(any::<Index>(), 0..6),
        end in select(&ENDS[..]),
    ) {
        let mut body = body.as_bytes().to_vec();
        if let Some((at, byte)) = damage {
            let at = at.index(body.len());
            body[at] = byte;
        }
        let (mut bytes, _) = framings(&body)[framing].clone();
        let complete = bytes.len();
        bytes.truncate(length.map_or(complete, |length| length.index(complete + 1)));
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        let mut reader = reader_of(dialect, streamed);
        let single = read(&mut reader, &bytes, &bytewise(&bytes), end);
        for cuts in [cuts, Vec::new()] {
            let seen = read(&mut reader, &bytes, &cuts, end);
            prop_assert_eq!(&seen.account, &single.account);
            prop_assert_eq!(seen.reading, single.reading);
        }
        // No proper prefix of a body that says its length is a success.
        if framing < 2 && bytes.len() < complete && single.account.outcome == Some(Outcome::Ok) {
            prop_assert!(framing == 1 && end == End::Eof, "only the last chunk's line and an end");
        }
        prop_assert_eq!(
            single.account.outcome == Some(Outcome::Ok) || single.account.outcome.is_none(),
            single.account.detail.is_none()
        );
    }
}
