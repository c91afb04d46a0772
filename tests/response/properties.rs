//! Random answers, random cuts, random ends: what must hold for every answer, from its first byte to its verdict.
//!
//! Heads, framings, bodies and damage are drawn apart and put together, so that every kind of body meets every
//! status and every ending. Where a test needs to know what an answer means, it knows it from what it put together.

use std::fmt::{self, Write as _};

use crate::reading::{ENDS, End, Mark, Seen, TRANSCRIPTS, bytewise, chunked, pieces_of, read, reader};
use hammerscale::record::{Anomaly, Outcome};
use hammerscale::wire::response::Reading;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// A trailer field that no reader takes.
const BAD_TRAILER: &str = "Bad Name: x\r\n";

/// How the body's end is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Chunked,
    Length,
    UntilEof,
}

/// What is wrong with the framing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Damage {
    None,
    /// Bytes are left out or put in at a random place behind the head.
    Removed,
    Inserted,
    /// `Content-Length` says more than comes.
    LengthTooLong,
}

/// An answer and what is known about it.
#[derive(Clone)]
struct Answer {
    status: u16,
    location: bool,
    /// Something in the head decides before the body: its status, or a coding.
    decided_by_head: Option<Outcome>,
    framing: Framing,
    bytes: Vec<u8>,
    /// Where the body begins.
    head_end: usize,
    body: Vec<u8>,
    /// Where each byte of the body stands.
    places: Vec<usize>,
    /// From this length on the body is complete, though the answer may not be.
    body_complete_at: usize,
    damaged: bool,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { decided_by_head, framing, head_end, body_complete_at, damaged, .. } = self;
        write!(f, "{:?} ({framing:?}, head {head_end}, ", self.bytes.escape_ascii().to_string())?;
        write!(f, "complete at {body_complete_at}, {decided_by_head:?}, damaged: {damaged})")
    }
}

impl Answer {
    /// How much of the body is among the first `length` bytes.
    fn body_within(&self, length: usize) -> &[u8] {
        &self.body[..self.places.partition_point(|&at| at < length)]
    }

    /// The position behind the first text of a terminal in the body.
    fn terminal_end(&self) -> usize {
        let at = memchr::memmem::find(&self.body, b"[DONE]").unwrap();
        self.places[at + "[DONE]".len() - 1] + 1
    }
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

fn owned(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

const TOKEN: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";
const FINISH: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";

/// Pieces from which streams are put together.
const PIECES: &[&str] = &[
    TOKEN,
    FINISH,
    DONE,
    "data: {\"error\":{\"message\":\"boom\",\"code\":503,\"type\":\"T\"}}\n\n",
    "error: {\"code\":500,\"message\":\"old llama.cpp\"}\n\n",
    "event: error\ndata: upstream timed out\n\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
    "data: {broken\n\n",
    "data: {\"choices\":[{\"index\":0,\ndata: {\"error\":{\"message\":\"in an open event\"}}\n\n",
    ": keep-alive\n\n",
    ": OPENROUTER PROCESSING\r\n\r\n",
    "data: [DONE]",
    "data: [DONE]\n",
    "data:[DONE] \r\n\r\n",
    "id: 7\nretry: 100\n\n",
    "data:\n\n",
    "\n",
    "\r",
    "\u{feff}",
];

fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => select(PIECES).prop_map(owned),
        1 => prop::collection::vec(any::<u8>(), 1..12),
        1 => (1usize..3_000).prop_map(|n| format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n", "x".repeat(n)).into_bytes()),
    ]
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(piece(), 0..8).prop_map(|pieces| pieces.concat())
}

fn transcript() -> impl Strategy<Value = Vec<u8>> {
    any::<Index>().prop_map(|index| index.get(&TRANSCRIPTS).body.clone())
}

/// Bodies that are no streams, and what is too short to tell.
const OTHERS: &[&str] = &[
    "",
    " ",
    "\n\n\n",
    "{\"error\":{\"message\":\"m\",\"type\":\"T\",\"code\":429}}",
    "{\"detail\":\"Not Found\"}",
    "[{\"error\":{\"code\":429,\"message\":\"quota\"}}]",
    "\u{feff}{\"error\":\"with a byte order mark\"}",
    "{\"id\":\"x\",\"object\":\"chat.completion\",\"choices\":[{\"index\":0,\"message\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}",
    "{\"error\":{\"message\":\"cut in the mid",
    "<html><body>502 Bad Gateway</body></html>",
    "Internal Server Error",
    "\u{feff}",
    "data",
    "database",
    "error",
    "(",
];

/// How compressed bodies begin, and beginnings of that and of a byte order mark.
const MAGIC: &[&[u8]] =
    &[&[0x1f, 0x8b, 8], &[0x28, 0xb5, 0x2f, 0xfd], &[0x1f], &[0x28, 0xb5, 0x2f], &[0xef], &[0xef, 0xbb]];

/// Bodies of every kind.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let magic = (select(MAGIC), prop::collection::vec(any::<u8>(), 0..9));
    let blank = 505usize..520;
    let long = 4_000usize..9_000;
    prop_oneof![
        6 => transcript(),
        6 => stream(),
        4 => select(OTHERS).prop_map(owned),
        1 => magic.prop_map(|(magic, rest)| [magic, &rest[..]].concat()),
        2 => stream().prop_map(|stream| [b"\xef\xbb\xbf", &stream[..]].concat()),
        2 => (blank, prop_oneof![stream(), select(OTHERS).prop_map(owned)])
            .prop_map(|(blank, rest)| [&vec![b'\n'; blank][..], &rest[..]].concat()),
        1 => long.prop_map(|n| format!("{{\"error\":{{\"message\":\"{}\"}}}}", "e".repeat(n)).into_bytes()),
        1 => stream().prop_map(|stream| [&stream[..], &TOKEN.repeat(90).into_bytes(), DONE.as_bytes()].concat()),
        2 => (transcript(), any::<Index>()).prop_map(|(mut body, end)| {
            body.truncate(end.index(body.len() + 1));
            body
        }),
    ]
}

#[derive(Debug, Clone)]
struct HeadSpec {
    interims: Vec<&'static str>,
    status: u16,
    content_type: Option<&'static str>,
    fields: Vec<&'static str>,
    framing: Framing,
    old: bool,
    trailers: &'static str,
}

fn head() -> impl Strategy<Value = HeadSpec> {
    let status = prop_oneof![
        12 => Just(200u16),
        1 => select(&[201u16, 206][..]),
        3 => select(&[301u16, 303, 307, 308, 400, 401, 404, 422, 429, 500, 502, 503, 504, 600, 99][..]),
        1 => select(&[204u16, 304][..]),
    ];
    let content_type = prop_oneof![
        4 => Just(Some("text/event-stream")),
        1 => Just(Some("Text/Event-Stream; charset=UTF-8")),
        1 => Just(Some("text/plain")),
        1 => Just(Some("application/json")),
        1 => Just(Some("text/html")),
        1 => Just(None),
    ];
    let field = select(
        &[
            "Connection: close",
            "Connection: keep-alive",
            "Keep-Alive: timeout=7",
            "Content-Encoding: gzip",
            "Content-Encoding: identity",
            "Retry-After: 3",
            "Location: /v1/elsewhere",
            "X-Padding: abc\r\n def",
            "Server: x",
        ][..],
    );
    let interim = select(
        &[
            "HTTP/1.1 100 Continue\r\n\r\n",
            "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n",
            "HTTP/1.1 102 \r\n\r\n",
        ][..],
    );
    (
        prop::collection::vec(interim, 0..3),
        status,
        content_type,
        prop::collection::vec(field, 0..4),
        select(&[Framing::Chunked, Framing::Chunked, Framing::Length, Framing::UntilEof][..]),
        prop::bool::weighted(0.1),
        prop_oneof![4 => Just(""), 1 => Just("X-Sum: 1\r\n folded\r\n"), 1 => Just(BAD_TRAILER)],
    )
        .prop_map(|(interims, status, content_type, fields, framing, old, trailers)| HeadSpec {
            interims,
            status,
            content_type,
            fields,
            framing,
            old,
            trailers,
        })
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        6 => Just(Damage::None),
        1 => Just(Damage::Removed),
        1 => Just(Damage::Inserted),
        1 => Just(Damage::LengthTooLong),
    ]
}

/// Answers, damaged ones among them.
fn answer() -> impl Strategy<Value = Answer> {
    let sizes = prop::collection::vec(prop_oneof![1usize..5, 1usize..400], 0..40);
    (head(), body(), sizes, damage(), any::<Index>(), prop::collection::vec(any::<u8>(), 1..4)).prop_map(
        |(head, body, sizes, damage, at, bytes)| put_together(&head, body, &sizes, damage, at, &bytes),
    )
}

/// Event streams with a terminal at their end, if not before.
fn terminated() -> impl Strategy<Value = Answer> {
    let sizes = prop::collection::vec(1usize..400, 0..40);
    let body =
        prop_oneof![stream(), transcript()].prop_map(|body| [&body, &b"\n\n"[..], DONE.as_bytes()].concat());
    (head(), body, sizes, any::<Index>()).prop_map(|(mut head, body, sizes, at)| {
        head.status = 200;
        head.content_type = Some("text/event-stream");
        head.fields.retain(|field| *field != "Content-Encoding: gzip");
        put_together(&head, [b": go\n", &body[..]].concat(), &sizes, Damage::None, at, b"")
    })
}

/// Undamaged answers that say where they end.
fn delimited() -> impl Strategy<Value = Answer> {
    answer().prop_filter("delimited", |answer| !answer.damaged && answer.framing != Framing::UntilEof)
}

fn put_together(
    head: &HeadSpec,
    body: Vec<u8>,
    sizes: &[usize],
    damage: Damage,
    at: Index,
    junk: &[u8],
) -> Answer {
    // These have no body whatever their fields say.
    let body = if matches!(head.status, 204 | 304) { Vec::new() } else { body };
    let mut text = head.interims.concat();
    // Chunks in HTTP/1.0 are a fault of their own, met elsewhere.
    let old = head.old && head.framing != Framing::Chunked;
    write!(text, "HTTP/1.{} {:03} Words\r\n", u8::from(!old), head.status).unwrap();
    if let Some(content_type) = head.content_type {
        write!(text, "Content-Type: {content_type}\r\n").unwrap();
    }
    for field in &head.fields {
        write!(text, "{field}\r\n").unwrap();
    }
    let missing = if damage == Damage::LengthTooLong { 3 } else { 0 };
    match head.framing {
        Framing::Chunked => text.push_str("Transfer-Encoding: chunked\r\n"),
        Framing::Length => write!(text, "Content-Length: {}\r\n", body.len() + missing).unwrap(),
        Framing::UntilEof => {}
    }
    text.push_str("\r\n");
    let mut bytes = text.into_bytes();
    let head_end = bytes.len();
    let has_body = !matches!(head.status, 204 | 304);
    let (framed, places, body_complete_at) = match head.framing {
        Framing::Chunked if has_body => chunked(&body, sizes, head.trailers, head_end),
        _ => (body.clone(), (head_end..head_end + body.len()).collect(), head_end + body.len()),
    };
    bytes.extend_from_slice(&framed);
    let can_break = bytes.len() > head_end;
    match damage {
        Damage::Removed if can_break => drop(bytes.remove(head_end + at.index(bytes.len() - head_end))),
        Damage::Inserted if can_break => {
            let at = head_end + at.index(bytes.len() - head_end);
            drop(bytes.splice(at..at, junk.iter().copied()));
        }
        _ => {}
    }
    let location = head.fields.contains(&"Location: /v1/elsewhere");
    let decided_by_head = match head.status {
        300..400 if location => Some(Outcome::Redirect),
        200..300 if head.fields.contains(&"Content-Encoding: gzip") => {
            Some(Outcome::UnsupportedContentCoding)
        }
        200..300 => None,
        _ => Some(Outcome::HttpError),
    };
    Answer {
        status: head.status,
        location,
        decided_by_head,
        framing: if has_body { head.framing } else { Framing::Length },
        bytes,
        head_end,
        body,
        places,
        body_complete_at,
        damaged: damage != Damage::None || head.framing == Framing::Chunked && head.trailers == BAD_TRAILER,
    }
}

fn end() -> impl Strategy<Value = End> {
    select(&ENDS[..])
}

/// The marks under some cuts must be those of the reading byte by byte, each in the read that holds its byte.
fn check_marks(bytes: &[u8], cuts: &[usize], single: &Seen, seen: &Seen) {
    let ends: Vec<usize> = cuts.iter().copied().chain([bytes.len()]).collect();
    let read_with = |at: usize| ends.iter().copied().find(|&end| end >= at).unwrap_or(bytes.len() + 1);
    let expected: Vec<_> = single.marks.iter().map(|(mark, at)| (*mark, read_with(*at))).collect();
    assert_eq!(seen.marks, expected, "marks under {cuts:?}");
}

/// The order of what a caller stamps: first byte, head, events; an interim answer takes the first byte back.
fn check_order(marks: &[(Mark, usize)]) {
    assert!(marks.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{marks:?}");
    let (mut first_byte, mut head, mut terminal) = (false, false, false);
    for (mark, _) in marks {
        match mark {
            Mark::FirstByte => {
                assert!(!first_byte, "two first bytes");
                first_byte = true;
            }
            Mark::Interim => {
                assert!(first_byte && !head, "an interim answer out of place");
                first_byte = false;
            }
            Mark::HeadDone => {
                assert!(first_byte && !head, "a head out of place");
                head = true;
            }
            Mark::Event(meaning) => {
                assert!(first_byte && head && !terminal, "an event out of place");
                assert!(!meaning.after_terminal);
                terminal = meaning.terminal;
            }
        }
    }
}

proptest! {
    #![proptest_config(config(512))]

    #[test]
    fn no_cut_changes_anything_but_the_read_in_which_a_mark_falls(
        answer in answer(),
        more in prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(any::<u8>(), 1..6)],
        end in end(),
        cuts in prop::collection::vec(prop::collection::vec(any::<Index>(), 0..6), 4),
    ) {
        let bytes = [&answer.bytes[..], &more[..]].concat();
        let mut reader = reader();
        let single = read(&mut reader, &bytes, &bytewise(&bytes), end);
        check_order(&single.marks);
        let random = cuts.iter().map(|cuts| {
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.sort_unstable();
            cuts
        });
        for cuts in random.chain([Vec::new(), vec![answer.head_end], pieces_of(37, &bytes)]) {
            let seen = read(&mut reader, &bytes, &cuts, end);
            prop_assert_eq!(&seen.account, &single.account, "cut at {:?}", cuts);
            prop_assert_eq!(seen.reading, single.reading, "cut at {:?}", cuts);
            check_marks(&bytes, &cuts, &single, &seen);
        }
    }

    #[test]
    fn a_prefix_is_a_success_only_with_the_terminal_or_the_last_chunk(
        answer in delimited(),
        end in end(),
        lengths in prop::collection::vec(any::<Index>(), 24),
    ) {
        let mut reader = reader();
        let (complete, whole) = (answer.body_complete_at, answer.bytes.len());
        let random = lengths.iter().map(|length| length.index(whole));
        for length in random.chain(complete.saturating_sub(12)..whole) {
            let seen = read(&mut reader, &answer.bytes[..length], &[], end);
            if seen.account.outcome == Some(Outcome::Ok) {
                let terminal = memchr::memmem::find(answer.body_within(length), b"[DONE]").is_some();
                prop_assert!(terminal || length >= complete && end == End::Eof, "{length} bytes and {end:?}");
            }
        }
    }

    #[test]
    fn what_follows_a_complete_answer_changes_only_the_fate_of_the_connection(
        answer in delimited(),
        junk in prop_oneof![
            prop::collection::vec(any::<u8>(), 1..40),
            Just(owned("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n")),
            Just(owned("data: {\"error\":\"late\"}\n\n")),
            Just(owned("\r\n")),
        ],
        end in end(),
    ) {
        let mut reader = reader();
        let mut alone = read(&mut reader, &answer.bytes, &[], End::Silence).account;
        alone.anomalies.insert(Anomaly::UnaskedBytes);
        let length = answer.bytes.len();
        let longer = [&answer.bytes[..], &junk[..]].concat();
        for cuts in [vec![], vec![length], vec![length - 1, length + 1]] {
            let seen = read(&mut reader, &longer, &cuts, end);
            prop_assert_eq!(seen.reading, Reading::Complete);
            prop_assert!(!seen.account.may_keep_alive);
            alone.may_keep_alive = false;
            prop_assert_eq!(&seen.account, &alone);
        }
    }

    #[test]
    fn nothing_after_the_terminal_changes_the_outcome(
        answer in terminated(),
        after in prop::collection::vec(any::<u8>(), 0..40),
        end in end(),
    ) {
        let mut reader = reader();
        let whole = read(&mut reader, &answer.bytes, &[], End::Eof).account;
        // From where the reader has seen the terminal on; a line end or two may have to follow its text. Where the
        // text is part of something else, the terminal comes later.
        let text_end = answer.terminal_end();
        let seen_at = (text_end..=answer.bytes.len()).find(|&length| {
            read(&mut reader, &answer.bytes[..length], &[], End::Silence).account.terminal_seen
        });
        let bytes = [&answer.bytes[..seen_at.unwrap()], &after[..]].concat();
        let seen = read(&mut reader, &bytes, &[], end);
        let account = seen.account;
        prop_assert!(account.outcome.is_some());
        prop_assert_eq!(account.outcome, whole.outcome);
        prop_assert_eq!(account.detail, whole.detail);
        prop_assert_eq!(account.counters.events, whole.counters.events);
        prop_assert_eq!(account.usage, whole.usage);
        // Where no length was promised, nothing is cut.
        let promised = answer.framing != Framing::UntilEof;
        prop_assert_eq!(account.cut_after_terminal, promised && seen.reading != Reading::Complete);
    }

    #[test]
    fn a_head_that_decides_does_so_before_the_body(
        answer in answer().prop_filter("decided", |answer| answer.decided_by_head.is_some()),
        end in end(),
        kept in any::<Index>(),
        cuts in prop::collection::vec(any::<Index>(), 0..4),
    ) {
        let length = answer.head_end + kept.index(answer.bytes.len() - answer.head_end + 1);
        let bytes = &answer.bytes[..length];
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(length + 1)).collect();
        cuts.sort_unstable();
        let seen = read(&mut reader(), bytes, &cuts, end);
        prop_assert_eq!(seen.account.outcome, answer.decided_by_head);
        prop_assert_eq!(seen.account.http_status, Some(answer.status));
        let detail = seen.account.detail.unwrap();
        prop_assert!(!detail.message.is_empty());
        prop_assert_eq!(detail.location.is_some(), answer.location);
        prop_assert!(!seen.marks.iter().any(|(mark, _)| matches!(mark, Mark::Event(_))));
    }

    #[test]
    fn any_bytes_at_all_are_read_to_some_verdict(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            prop::collection::vec(any::<u8>(), 0..60)
                .prop_map(|rest| [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", &rest[..]].concat()),
            prop::collection::vec(any::<u8>(), 0..60).prop_map(|rest| [b"HTTP/1.1 200 OK\r\n", &rest[..]].concat()),
        ],
        end in select(&[End::Eof, End::Reset][..]),
    ) {
        let seen = read(&mut reader(), &bytes, &pieces_of(7, &bytes), end);
        let outcome = seen.account.outcome;
        prop_assert!(outcome.is_some());
        prop_assert_eq!(outcome == Some(Outcome::Ok), seen.account.detail.is_none());
        prop_assert!(!seen.account.may_keep_alive || seen.reading != Reading::Failed);
    }
}

#[test]
fn the_random_answers_reach_every_outcome_an_answer_can_have() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    use std::collections::BTreeSet;

    let mut runner = TestRunner::deterministic();
    let strategy = (answer(), end());
    let mut reader = reader();
    let mut met = BTreeSet::new();
    for _ in 0..3_000 {
        let (answer, end) = strategy.new_tree(&mut runner).unwrap().current();
        met.extend(read(&mut reader, &answer.bytes, &[], end).account.outcome.map(Outcome::name));
    }
    for outcome in [
        Outcome::Ok,
        Outcome::NoOutput,
        Outcome::EmptyResponse,
        Outcome::TruncatedStream,
        Outcome::TruncatedBody,
        Outcome::ServerErrorInStream,
        Outcome::JsonErrorBody,
        Outcome::NotAStream,
        Outcome::MalformedEvent,
        Outcome::HttpError,
        Outcome::Redirect,
        Outcome::BadChunk,
        Outcome::BadTrailer,
        Outcome::UnsupportedContentCoding,
        Outcome::ResetMidstream,
    ] {
        assert!(met.contains(outcome.name()), "{} is never met: {met:?}", outcome.name());
    }
}
