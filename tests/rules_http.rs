//! Every rule of the reader has an input that breaks it, and names the byte that does.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

mod http_reading;

use std::collections::HashSet;

use hammerscale::record::Outcome;
use hammerscale::units::Nanos;
use hammerscale::wire::dialect::plain::is_event_stream_type;
use hammerscale::wire::http1::{
    Anomaly, FieldRule, Framing, HttpError, Method, ResponseDecoder, SizeLimit, limits,
};
use http_reading::{End, Reading, bytewise, read};

const OK: &str = "HTTP/1.1 200 OK\r\n";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Where the offending byte stands.
#[derive(Debug, Clone, Copy)]
enum At {
    /// At the first of these bytes of the input.
    Text(&'static str),
    Offset(u64),
    /// The end is to blame, or no single byte.
    Nowhere,
}

/// Reads whole and byte by byte, which must agree.
fn reading(method: Method, input: &[u8], eof: bool) -> Reading {
    let mut decoder = ResponseDecoder::new();
    let whole = read(&mut decoder, method, input, &[], eof);
    assert_eq!(read(&mut decoder, method, input, &bytewise(input), eof), whole);
    whole
}

fn rules() -> Vec<(String, HttpError, At)> {
    let mut rules = status_line_rules();
    rules.extend(field_rules());
    rules.extend(framing_rules());
    rules.extend(chunk_rules());
    rules.extend(eof_rules());
    rules.extend(limit_rules());
    rules
}

fn status_line_rules() -> Vec<(String, HttpError, At)> {
    [
        ("SSH-2.0-OpenSSH_9.6\r\n", HttpError::NotHttp, At::Offset(0)),
        ("HTTq/1.1 200 OK\r\n", HttpError::NotHttp, At::Text("q")),
        // The alert that a TLS server answers plain bytes with, and the beginning of a handshake with a line end in it.
        ("\x15\x03\x01\0\x02\x02\x46", HttpError::Tls, At::Offset(0)),
        ("\x16\x03\x01\n", HttpError::Tls, At::Offset(0)),
        ("HTTP\r\n", HttpError::NotHttp, At::Offset(4)),
        ("HTTP/1 200 OK\r\n", HttpError::BadVersion, At::Text("1 ")),
        ("HTTP/2.0 200 OK\r\n", HttpError::UnsupportedVersion, At::Text("2.0")),
        ("HTTP/1.1\r\n", HttpError::NoSpaceAfterVersion, At::Text("\r")),
        ("HTTP/1.10 200 OK\r\n", HttpError::NoSpaceAfterVersion, At::Text("0 200")),
        ("HTTP/1.1 20\r\n", HttpError::BadStatusCode, At::Text("20")),
        ("HTTP/1.1 200OK\r\n", HttpError::BadStatusCode, At::Text("200OK")),
        ("HTTP/1.1 +20 OK\r\n", HttpError::BadStatusCode, At::Text("+20")),
        ("HTTP/1.1 200 O\x01K\r\n", HttpError::ControlInReason, At::Text("\x01")),
        ("HTTP/1.1 200 O\x7fK\r\n", HttpError::ControlInReason, At::Text("\x7f")),
        ("HTTP/1.1 200\rOK\r\n", HttpError::BareCrStatusLine, At::Text("\rOK")),
        ("HTTP/1.1 200 OK\r\r\n", HttpError::BareCrStatusLine, At::Text("\r\r\n")),
    ]
    .map(|(text, error, at)| (text.to_owned(), error, at))
    .into()
}

fn field_rules() -> Vec<(String, HttpError, At)> {
    let lines = [
        (" A: b\r\n", FieldRule::SpaceBeforeFirst, " A"),
        ("Abc\r\n", FieldRule::NoColon, "\r\n"),
        ("A: b\r\n: c\r\n", FieldRule::EmptyName, ": c"),
        ("Ab : c\r\n", FieldRule::SpaceBeforeColon, " : c"),
        ("Ab c: d\r\n", FieldRule::BadName, " c: d"),
        ("Ab\u{e9}: d\r\n", FieldRule::BadName, "\u{e9}"),
        ("A: b\rc\r\n", FieldRule::BareCr, "\rc"),
        ("A: b\r\n c\r\r\n", FieldRule::BareCr, "\r\r\n"),
        ("A: b\0\r\n", FieldRule::NulInValue, "\0"),
        ("A: b\x1bc\r\n", FieldRule::ControlInValue, "\x1b"),
        ("A: b\r\n c\x7f\r\n", FieldRule::ControlInValue, "\x7f"),
    ];
    let mut rules = Vec::new();
    for (line, rule, at) in lines {
        // The position is looked for in the lines alone.
        let offset = |before: &str| At::Offset((before.len() + line.find(at).unwrap()) as u64);
        rules.push((format!("{OK}{line}\r\n"), HttpError::Header(rule), offset(OK)));
        let before = format!("{CHUNKED}2\r\nok\r\n0\r\n");
        rules.push((format!("{before}{line}\r\n"), HttpError::Trailer(rule), offset(&before)));
        // Without the empty line the damage is seen when the peer closes.
        rules.push((format!("{OK}{line}"), HttpError::Header(rule), offset(OK)));
        rules.push((format!("{before}{line}"), HttpError::Trailer(rule), offset(&before)));
    }
    rules
}

fn framing_rules() -> Vec<(String, HttpError, At)> {
    [
        ("Content-Length: 1x\r\n", HttpError::ContentLengthNotDigits, At::Text("1x")),
        ("Content-Length: 1\r\nContent-Length: 2\r\n", HttpError::ContentLengthDiffers, At::Text("2\r\n")),
        ("Content-Length:\r\n 1,2\r\n", HttpError::ContentLengthDiffers, At::Text("1,2")),
        ("Content-Length: 1,\r\n 2\r\n", HttpError::ContentLengthDiffers, At::Nowhere),
        ("Content-Length: 99999999999999999999\r\n", HttpError::ContentLengthOverflow, At::Text("99")),
        ("Transfer-Encoding: chunked, chunked\r\n", HttpError::ChunkedTwice, At::Text("chunked,")),
        ("Transfer-Encoding: chunked;a=b\r\n", HttpError::ChunkedParameters, At::Text("chunked;")),
    ]
    .map(|(line, error, at)| (format!("HTTP/1.1 404 Not Found\r\n{line}\r\n"), error, at))
    .into_iter()
    .chain([("HTTP/1.1 101 Up\r\n\r\n".to_owned(), HttpError::SwitchingProtocols, At::Offset(0))])
    .chain([(
        "HTTP/1.1 100 Go\r\n\r\nHTTP/1.1 101 Up\r\n\r\n".to_owned(),
        HttpError::SwitchingProtocols,
        At::Offset(19),
    )])
    .collect()
}

fn chunk_rules() -> Vec<(String, HttpError, At)> {
    [
        ("\r\n", HttpError::BadChunkSize, At::Text("\r\n")),
        (";a\r\n", HttpError::BadChunkSize, At::Text(";a")),
        ("0x2\r\nok\r\n", HttpError::BadChunkSize, At::Text("x2")),
        ("2 2\r\n", HttpError::BadChunkSize, At::Text("2\r\n")),
        ("10000000000000000\r\n", HttpError::ChunkSizeOverflow, At::Text("0\r\n")),
        ("2\r\rok", HttpError::BareCrChunkLine, At::Text("\rok")),
        ("2;a=\"b\rc\"\r\n", HttpError::BareCrChunkLine, At::Text("c\"")),
        ("2\nok\n", HttpError::BareLfChunkLine, At::Text("\nok")),
        ("2;a\nok\n", HttpError::BareLfChunkLine, At::Text("\nok")),
        ("2\r\nokay", HttpError::NoCrlfAfterChunkData, At::Text("ay")),
        ("2\r\nok\r0", HttpError::NoCrlfAfterChunkData, At::Text("0")),
        ("2\r\nok\n0\r\n", HttpError::BareLfChunkData, At::Text("\n0")),
    ]
    .map(|(text, error, at)| {
        let at = match at {
            At::Text(part) => At::Offset((CHUNKED.len() + text.find(part).unwrap()) as u64),
            other => other,
        };
        (format!("{CHUNKED}{text}"), error, at)
    })
    .into()
}

fn eof_rules() -> Vec<(String, HttpError, At)> {
    [
        (String::new(), HttpError::EofBeforeResponse),
        ("HTTP/1.1 100 Go\r\n\r\n".to_owned(), HttpError::EofAfterInterim),
        ("\r\n".to_owned(), HttpError::EofInStatusLine),
        ("HTTP/1.1 200 O".to_owned(), HttpError::EofInStatusLine),
        (format!("{OK}A: b\r\n"), HttpError::EofInHeader),
        (format!("{OK}A: b\r\n\r"), HttpError::EofInHeader),
        (format!("{OK}Content-Length: 3\r\n\r\n"), HttpError::EofInBody),
        (format!("{OK}Content-Length: 3\r\n\r\nab"), HttpError::EofInBody),
        (format!("{CHUNKED}3\r\n"), HttpError::EofInChunk),
        (format!("{CHUNKED}3\r\nabc"), HttpError::EofInChunk),
        (format!("{CHUNKED}3\r\nabc\r"), HttpError::EofInChunk),
        (CHUNKED.to_owned(), HttpError::EofInChunkLine),
        (format!("{CHUNKED}3\r\nabc\r\n"), HttpError::EofInChunkLine),
        (format!("{CHUNKED}0\r"), HttpError::EofInChunkLine),
        (format!("{CHUNKED}0\r\nA: b"), HttpError::EofInTrailer),
    ]
    .map(|(text, error)| (text, error, At::Nowhere))
    .into()
}

fn limit_rules() -> Vec<(String, HttpError, At)> {
    let beyond = |before: usize, limit: usize| At::Offset((before + limit) as u64);
    let many = "A: b\r\n".repeat(limits::FIELDS_MAX + 1);
    let long = "x".repeat(limits::HEAD_BYTES_MAX);
    let before_trailers = format!("{CHUNKED}0\r\n");
    let size = usize::try_from(limits::CHUNK_SIZE_BYTES_MAX).unwrap();
    let extension = usize::try_from(limits::CHUNK_EXTENSION_BYTES_MAX).unwrap();
    let interims = usize::try_from(limits::INTERIM_MAX).unwrap();
    [
        (long.clone() + "\n", SizeLimit::HeadBytes, beyond(0, limits::HEAD_BYTES_MAX)),
        (format!("{OK}A: {long}\r\n\r\n"), SizeLimit::HeadBytes, beyond(0, limits::HEAD_BYTES_MAX)),
        (format!("{OK}{many}\r\n"), SizeLimit::HeadFields, At::Nowhere),
        (
            "HTTP/1.1 102 P\r\n\r\n".repeat(interims + 1),
            SizeLimit::InterimResponses,
            beyond(0, 18 * interims),
        ),
        (
            format!("{CHUNKED}{}2\r\n", "0".repeat(size)),
            SizeLimit::ChunkSizeBytes,
            beyond(CHUNKED.len(), size),
        ),
        (
            format!("{CHUNKED}2;{}\r\n", "x".repeat(extension + 1)),
            SizeLimit::ChunkExtensionBytes,
            beyond(CHUNKED.len() + 2, extension),
        ),
        (
            format!("{before_trailers}A: {long}\r\n\r\n"),
            SizeLimit::TrailerBytes,
            beyond(before_trailers.len(), limits::TRAILER_BYTES_MAX),
        ),
        (format!("{before_trailers}{many}\r\n"), SizeLimit::TrailerFields, At::Nowhere),
    ]
    .map(|(text, limit, at)| (text, HttpError::Limit(limit), at))
    .into()
}

#[test]
fn every_rule_is_broken_by_its_input_at_its_byte() {
    for (text, error, at) in rules() {
        let reading = reading(Method::Post, text.as_bytes(), true);
        let offset = match at {
            At::Text(part) => Some(text.find(part).unwrap() as u64),
            At::Offset(offset) => Some(offset),
            At::Nowhere => None,
        };
        let shown = &text[..text.len().min(200)];
        assert_eq!(reading.end, End::Error(error, offset), "{shown:?}");
        assert!(!reading.keep_alive && !reading.reusable, "{shown:?}");
    }
}

#[test]
fn the_table_holds_every_rule_and_the_rules_have_their_own_names() {
    let broken: HashSet<_> = rules().into_iter().map(|(_, error, _)| error).collect();
    assert_eq!(broken, HttpError::all().collect());
    let distinct =
        |tell: &dyn Fn(HttpError) -> String| HttpError::all().map(tell).collect::<HashSet<_>>().len();
    assert_eq!(distinct(&|e| format!("{} {}", e.category().name(), e.rule())), broken.len());
    assert_eq!(distinct(&|e| e.to_string()), broken.len());
}

#[test]
fn ends_are_counted_by_where_they_came() {
    let outcome = |text: &str| reading(Method::Post, text.as_bytes(), true).error().unwrap().outcome();
    assert_eq!(outcome(""), Outcome::EofBeforeResponse);
    assert_eq!(outcome("HTTP/1.1 103 Hints\r\n\r\n"), Outcome::TruncatedHead);
    assert_eq!(outcome("H"), Outcome::TruncatedHead);
    assert_eq!(outcome(OK), Outcome::TruncatedHead);
    assert_eq!(outcome(CHUNKED), Outcome::TruncatedBody);
    assert_eq!(outcome(&format!("{CHUNKED}5\r\nab")), Outcome::TruncatedBody);
    assert_eq!(outcome(&format!("{CHUNKED}0\r\nA")), Outcome::TruncatedBody);
    assert_eq!(outcome(&format!("{CHUNKED}\r\n")), Outcome::BadChunk);
    assert_eq!(outcome(&format!("{CHUNKED}0\r\nA\r\n\r\n")), Outcome::BadTrailer);
    assert_eq!(outcome("nonsense\n"), Outcome::BadStatusLine);
}

#[test]
fn limits_may_be_reached_and_not_passed() {
    let extension = "x".repeat(usize::try_from(limits::CHUNK_EXTENSION_BYTES_MAX).unwrap());
    let zeros = "0".repeat(usize::try_from(limits::CHUNK_SIZE_BYTES_MAX).unwrap() - 1);
    let fields = "A: b\r\n".repeat(limits::FIELDS_MAX);
    let interims = "HTTP/1.1 102 P\r\n\r\n".repeat(usize::try_from(limits::INTERIM_MAX).unwrap());
    let fill = |before: usize| "x".repeat(limits::HEAD_BYTES_MAX - before - "A: \r\n\r\n".len());
    for text in [
        format!("{CHUNKED}{zeros}2;{extension}\r\nok\r\n0\r\n\r\n"),
        format!("{interims}{OK}Content-Length: 2\r\n\r\nok"),
        format!("{CHUNKED}2\r\nok\r\n0\r\n{fields}\r\n"),
        format!("{CHUNKED}2\r\nok\r\n0\r\nA: {}\r\n\r\n", fill(0)),
        format!("{OK}{}\r\nok", fields.replacen("A: b", "Content-Length: 2", 1)),
        format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nA: {}\r\n\r\nok", fill(OK.len() + 19)),
    ] {
        let reading = reading(Method::Post, text.as_bytes(), false);
        assert_eq!((reading.end, &reading.body[..]), (End::Complete, &b"ok"[..]));
    }
}

#[test]
fn the_last_chunk_completes_the_body_and_a_close_behind_it_is_flagged() {
    for (rest, trailers) in [("", 0), ("\r", 0), ("A: b\r\n", 0), ("A: b\r\n\r", 0), ("A: b\r\n\r\n", 1)] {
        let text = format!("{CHUNKED}2\r\nok\r\n0\r\n{rest}");
        let closed = reading(Method::Post, text.as_bytes(), true);
        assert_eq!(
            (closed.end, &closed.body[..], closed.trailers.len()),
            (End::Complete, &b"ok"[..], trailers)
        );
        assert!(closed.last_chunk_seen && !closed.reusable);
        assert_eq!(closed.anomalies == [Anomaly::EofBeforeFinalCrlf], trailers == 0, "{rest:?}");
        let open = reading(Method::Post, text.as_bytes(), false);
        assert_eq!(open.end == End::Complete, trailers == 1);
        assert_eq!(open.reusable, trailers == 1);
    }
}

#[test]
fn what_the_rfc_lets_us_choose_is_accepted_and_flagged() {
    for (text, flag) in [
        ("HTTP/1.7 200 OK\r\nContent-Length: 0\r\n\r\n", Anomaly::NewerMinorVersion),
        ("HTTP/1.1 099 Low\r\nContent-Length: 0\r\n\r\n", Anomaly::StatusOutOfRange),
        ("\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Anomaly::LeadingEmptyLine),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\n", Anomaly::BareLfHeader),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\n\r\n", Anomaly::BareLfTrailer),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0 \r\n\r\n", Anomaly::SpaceAfterChunkSize),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0;a=b \r\n\r\n",
            Anomaly::MalformedChunkExtension,
        ),
    ] {
        let reading = reading(Method::Post, text.as_bytes(), false);
        assert_eq!((reading.end, reading.reusable), (End::Complete, true), "{text:?}");
        assert_eq!(reading.anomalies, [flag], "{text:?}");
    }
    let old = "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    let reading = reading(Method::Post, old.as_bytes(), false);
    assert_eq!((reading.end, reading.keep_alive), (End::Complete, false), "RFC 9112 6.1: close after it");
    assert_eq!(reading.anomalies, [Anomaly::TransferEncodingInHttp10]);
}

#[test]
fn a_newer_minor_version_is_told_as_sent() {
    let reading = reading(Method::Post, b"HTTP/1.9 200 OK\r\nContent-Length: 0\r\n\r\n", false);
    assert_eq!(reading.head.unwrap().version, "1.9");
}

#[test]
fn answers_without_a_body_end_with_their_head() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    let answer = reading(Method::Head, head.as_bytes(), false);
    assert_eq!(
        (answer.end, answer.keep_alive, answer.head.unwrap().framing),
        (End::Complete, true, Framing::None)
    );
    assert_eq!(reading(Method::Get, head.as_bytes(), false).end, End::Waiting);
    let chunked = reading(Method::Head, CHUNKED.as_bytes(), false);
    assert_eq!((chunked.end, chunked.keep_alive), (End::Complete, true));
    let tunnel = reading(Method::Connect, b"HTTP/1.1 200 Established\r\n\r\n\x16\x03\x01", false);
    assert_eq!((tunnel.end, &tunnel.leftover[..]), (End::Complete, &b"\x16\x03\x01"[..]));
}

#[test]
fn the_fields_a_client_asks_for_are_at_hand() {
    let text = "HTTP/1.1 503 Busy\r\nContent-Type: Text/Event-Stream ; charset=utf-8\r\nContent-Encoding: identity\r\n\
                content-encoding: identity, GZIP\r\nRetry-After: 7\r\nRetry-After: 8\r\nLocation: /there\r\n\
                Keep-Alive: max=100, Timeout = 5\r\nServer: a\r\n b\r\nContent-Length: 0\r\n\r\n";
    let mut decoder = ResponseDecoder::new();
    decoder.start(Method::Post);
    assert!(decoder.head().is_none());
    decoder.decode(text.as_bytes()).unwrap();
    let head = decoder.head().unwrap();
    assert!(head.content_type().is_some_and(is_event_stream_type) && !head.body_is_coded());
    assert_eq!(head.content_type(), Some(&b"Text/Event-Stream ; charset=utf-8"[..]));
    assert_eq!(head.content_encoding(), Some(&b"identity, GZIP"[..]));
    assert_eq!(head.retry_after(), Some(&b"7"[..]));
    assert_eq!(head.location(), Some(&b"/there"[..]));
    assert_eq!(head.keep_alive_timeout(), Some(Nanos::from_secs(5)));
    assert_eq!(head.field("SERVER"), Some(&b"a b"[..]));
    assert_eq!(head.field("Date"), None);

    decoder.start(Method::Post);
    assert!(decoder.head().is_none(), "a new start forgets the old head");
    decoder
        .decode(b"HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\nKeep-Alive: timeout=x\r\n\r\n")
        .unwrap();
    let head = decoder.head().unwrap();
    assert!(!head.content_type().is_some_and(is_event_stream_type));
    assert_eq!((head.content_type(), head.content_encoding(), head.keep_alive_timeout()), (None, None, None));
    assert_eq!((head.retry_after(), head.location()), (None, None));
}

#[test]
fn a_body_left_in_another_coding_is_told() {
    for (value, coded) in [("chunked", false), ("identity, chunked", false), ("gzip, chunked", true)] {
        let mut decoder = ResponseDecoder::new();
        decoder.decode(format!("{OK}Transfer-Encoding: {value}\r\n\r\n").as_bytes()).unwrap();
        assert_eq!(decoder.head().unwrap().body_is_coded(), coded, "{value}");
    }
}

#[test]
fn a_decoder_carries_nothing_from_one_response_to_the_next() {
    let mut used = ResponseDecoder::new();
    for (text, _, _) in rules() {
        read(&mut used, Method::Head, text.as_bytes(), &[], true);
        let after =
            read(&mut used, Method::Post, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok!", &[], false);
        let fresh = read(
            &mut ResponseDecoder::new(),
            Method::Post,
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok!",
            &[],
            false,
        );
        assert_eq!(after, fresh);
    }
}
