//! Properties of the event stream parser over random streams and random cuts.
//!
//! Two independent readers are the oracles: one written from the standard's text (`sse_support/naive.rs`) and the
//! `sse-parse` crate. No deviation of `sse-parse` from the standard is excluded, because none shows on these streams.
//! Two of its answers are other quantities than ours and are compared where both must be equal: its last event ID is
//! the string that each blank line commits (9.2.6, first dispatch step), ours is the buffer behind it, so those are
//! compared after a blank line; and it discards the open block, which is compared by closing it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

#[path = "sse_support/naive.rs"]
mod naive;
#[path = "sse_support/observed.rs"]
mod observed;

use hammerscale::wire::sse::{Limits, Parser, SseError};
use observed::{Observed, Recorder, Seen, observe_with};
use proptest::collection::vec;
use proptest::prelude::*;

/// Pieces that real and broken streams are made of.
const FRAGMENTS: &[&[u8]] = &[
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\n",
    b"\r\r",
    b"\r\n\r\n",
    b"data",
    b"data:",
    b"data: ",
    b"data:  ",
    b"data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n",
    b"data: [DONE]\n\n",
    b"data: first\r\ndata: second\r\n\r\n",
    b"event",
    b"event: ",
    b"event: ping\n",
    b"event: message\n",
    b"id",
    b"id: ",
    b"id: 7\n",
    b"id: a\0b\n",
    b"retry",
    b"retry: ",
    b"retry: 1500\n",
    b"retry: 00000000000000000000000012\n",
    b"retry: 18446744073709551615\n",
    b"retry: 18446744073709551616\n",
    b"retry: 12a\n",
    b":",
    b": keep-alive\n\n",
    b" ",
    b"\t",
    b"\0",
    b"\x0b\x0c",
    b"Data: x\n",
    b"datas: x\n",
    b"\xef\xbb\xbf",
    b"\xef\xbb",
    b"\xef",
    b"\xc3\xa9",
    b"\xf0\x9f\x92\xa1",
    b"\xf0\x9f",
    b"\xed\xa0\x80",
    b"\xff",
    b"0123456789012345678901234567890123456789",
];

fn fragment() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => proptest::sample::select(FRAGMENTS).prop_map(<[u8]>::to_vec),
        1 => vec(any::<u8>(), 0..6),
        1 => vec(proptest::sample::select(&b"\n\r: \0dat"[..]), 0..10),
    ]
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    vec(fragment(), 0..24).prop_map(|fragments| fragments.concat())
}

/// Lengths of the pieces, used over and over until the stream ends; empty pieces are among them.
fn lengths() -> impl Strategy<Value = Vec<usize>> {
    vec(prop_oneof![3 => 0_usize..4, 1 => 0_usize..40], 1..8).prop_map(|mut lengths| {
        lengths.push(1);
        lengths
    })
}

fn cut<'a>(mut input: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    for &length in lengths.iter().cycle() {
        if input.is_empty() {
            break;
        }
        let (piece, rest) = input.split_at(length.min(input.len()));
        pieces.push(piece);
        input = rest;
    }
    pieces
}

fn observe(pieces: &[&[u8]]) -> Observed {
    observe_with(&mut Parser::new(Limits::default()), pieces.iter().copied())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn texts(event: &Seen) -> (String, String, String) {
    (text(&event.event), text(&event.data), text(&event.id))
}

/// The stream with its last line and its last block closed.
fn closed(stream: &[u8]) -> Vec<u8> {
    [stream, b"\n\n"].concat()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn agrees_with_the_text_of_the_standard(stream in stream(), lengths in lengths()) {
        let got = observe(&cut(&stream, &lengths));
        let naive = naive::read(&stream);
        prop_assert_eq!(got.error, None);
        prop_assert_eq!(got.said.events.iter().map(texts).collect::<Vec<_>>(), &naive.events[..]);
        prop_assert_eq!(got.said.comments.len(), naive.comments);
        prop_assert_eq!(&got.said.retry, &naive.retry);
        prop_assert_eq!(text(&got.last_event_id), naive.id_buffer);
        prop_assert_eq!(got.block_open, !naive.data_buffer.is_empty());
        prop_assert_eq!(text(&got.unterminated), naive.rest);

        let mut further = naive::read(&closed(&stream)).events.split_off(naive.events.len());
        prop_assert!(further.len() <= 1);
        prop_assert_eq!(got.pending.as_ref().map(texts), further.pop());
    }

    #[test]
    fn agrees_with_sse_parse(stream in stream(), lengths in lengths()) {
        let stream = closed(&stream);
        let pieces = cut(&stream, &lengths);
        let got = observe(&pieces);

        let mut other = sse_parse::SseParser::new();
        let mut events = Vec::new();
        for piece in &pieces {
            other.feed(piece);
            while let Some(event) = other.next_event() {
                events.push((event.event, event.data, event.id));
            }
        }
        let named = |event: &Seen| {
            let (kind, data, id) = texts(event);
            (if kind.is_empty() { "message".to_owned() } else { kind }, data, id)
        };
        prop_assert_eq!(got.said.events.iter().map(named).collect::<Vec<_>>(), events);
        prop_assert_eq!(got.said.retry.len() as u64, other.stats().retry_updates);
        let last_retry = got.said.retry.last().map(|&ms| std::time::Duration::from_millis(ms));
        prop_assert_eq!(last_retry, other.retry());
        prop_assert_eq!(text(&got.last_event_id), other.last_event_id());
    }

    /// Bytes, comments, leftovers, and also which limit was hit and where: nothing depends on the cut, nor on what a
    /// reused parser read before.
    #[test]
    fn the_cut_changes_nothing(
        stream in stream(),
        first in lengths(),
        second in lengths(),
        before in stream(),
        line_bytes in 0_usize..48,
        event_bytes in 0_usize..64,
    ) {
        for limits in [Limits::default(), Limits { line_bytes, event_bytes }] {
            let whole = observe_with(&mut Parser::new(limits), [stream.as_slice()]);
            let mut used = Parser::new(limits);
            observe_with(&mut used, cut(&before, &second));
            prop_assert_eq!(&observe_with(&mut used, cut(&stream, &first)), &whole);
            prop_assert_eq!(&observe_with(&mut used, stream.chunks(1)), &whole);
        }
    }

    /// After each single byte exactly those events are out that the standard's reader finds in the bytes so far.
    #[test]
    fn events_come_with_the_first_byte_of_their_blank_line(stream in stream()) {
        let mut parser = Parser::new(Limits::default());
        let mut said = Recorder::default();
        for end in 1..=stream.len() {
            parser.feed(&stream[end - 1..end], &mut said).unwrap();
            prop_assert_eq!(said.events.len(), naive::read(&stream[..end]).events.len(), "byte {}", end);
        }
    }

    #[test]
    fn every_byte_is_looked_at_once_or_twice(stream in stream(), lengths in lengths()) {
        let mut parser = Parser::new(Limits::default());
        let mut said = Recorder::default();
        for piece in cut(&stream, &lengths) {
            parser.feed(piece, &mut said).unwrap();
        }
        let fed = stream.len() as u64;
        prop_assert!(parser.bytes_scanned() >= fed, "{} of {fed}", parser.bytes_scanned());
        prop_assert!(parser.bytes_scanned() <= 2 * fed, "{} of {fed}", parser.bytes_scanned());
    }

    #[test]
    fn the_limits_bound_what_is_held(
        stream in stream(),
        lengths in lengths(),
        line_bytes in 0_usize..48,
        event_bytes in 0_usize..64,
    ) {
        let mut parser = Parser::new(Limits { line_bytes, event_bytes });
        let mut said = Recorder::default();
        let mut error = None;
        for piece in cut(&stream, &lengths) {
            error = parser.feed(piece, &mut said).err();
            prop_assert!(parser.buffered_bytes() <= 3 * line_bytes + event_bytes + 6);
            parser.finish();
            prop_assert!(parser.storage_bytes() <= 5 * line_bytes + 3 * event_bytes + 16);
        }
        for event in &said.events {
            prop_assert!(event.data.len() <= event_bytes);
        }
        // The verdict is checked against the stream itself: lines and events as the standard's reader sees them.
        let first_long = first_long_line(&stream, line_bytes);
        match error {
            Some(SseError::LineTooLong { offset }) => prop_assert_eq!(Some(offset), first_long),
            Some(SseError::EventTooLarge { offset }) => {
                prop_assert!(first_long.is_none_or(|at| offset <= at));
                let at = usize::try_from(offset).unwrap();
                prop_assert!(matches!(stream[at], b'\n' | b'\r'));
                let held = naive_data_bytes(&stream[..=at]);
                prop_assert!(held > event_bytes, "{held} bytes are within {event_bytes}");
                prop_assert!(naive_data_bytes(&stream[..at]) <= event_bytes);
            }
            None => prop_assert_eq!(first_long, None),
        }
    }
}

/// Offset of the first byte that makes a line longer than `limit`, found line by line.
fn first_long_line(stream: &[u8], limit: usize) -> Option<u64> {
    const BOM: &[u8] = b"\xef\xbb\xbf";
    if BOM.starts_with(stream) {
        // What may still become a byte order mark is not a line yet.
        return None;
    }
    let start = if stream.starts_with(BOM) { BOM.len() } else { 0 };
    let mut line = 0;
    for (at, byte) in stream.iter().enumerate().skip(start) {
        line = if matches!(byte, b'\n' | b'\r') { 0 } else { line + 1 };
        if line > limit {
            return Some(at as u64);
        }
    }
    None
}

/// Bytes of the open block's joined data. The bytes that are not ASCII are made letters first, so that decoding
/// keeps the length; that changes no field.
fn naive_data_bytes(stream: &[u8]) -> usize {
    let stream = stream.strip_prefix(b"\xef\xbb\xbf").unwrap_or(stream);
    let ascii: Vec<u8> = stream.iter().map(|byte| if byte.is_ascii() { *byte } else { b'x' }).collect();
    naive::read(&ascii).data_buffer.len().saturating_sub(1)
}

/// Lines that a quadratic parser would read again and again: fed byte by byte, work must grow with the input.
#[test]
fn byte_by_byte_is_linear() {
    let shapes: [(&str, &[u8], &[u8]); 6] = [
        ("one data line", b"data: ", b"y"),
        ("one comment", b":", b"y"),
        ("one id", b"id: ", b"7"),
        ("many data lines", b"", b"data: y\n"),
        ("many events", b"", b"id: 1\ndata: y\r\n\r\n"),
        ("blank lines", b"", b"\r"),
    ];
    for (name, head, repeated) in shapes {
        let work = |bytes: usize| {
            let mut stream = head.to_vec();
            while stream.len() < bytes {
                stream.extend_from_slice(repeated);
            }
            stream.truncate(bytes - 2);
            stream.extend_from_slice(b"\n\n");
            let mut parser = Parser::new(Limits::default());
            let mut said = Recorder::default();
            for piece in stream.chunks(1) {
                parser.feed(piece, &mut said).unwrap();
            }
            parser.bytes_scanned()
        };
        let (short, long) = (work(16 << 10), work(64 << 10));
        assert!((16 << 10..=32 << 10).contains(&short), "{name}: {short}");
        assert!((64 << 10..=128 << 10).contains(&long), "{name}: {long}");
        assert!(long <= 4 * short + 64, "{name}: {short} then {long}");
    }
}
