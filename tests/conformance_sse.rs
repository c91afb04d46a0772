//! Every published event stream case, cut in every way that matters, against the parser and against a second reader
//! written from the standard's text.
//!
//! Each case is fed whole, byte by byte, in its own `chunkings`, and in two pieces at every byte; inputs below 64
//! bytes also in three pieces at every pair of bytes. The one input of 2 MiB is cut in two at every byte within 8
//! bytes of its start, its end and every line end, and at 32 places drawn from a fixed seed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

#[path = "sse_support/cases.rs"]
mod cases;
#[path = "sse_support/naive.rs"]
mod naive;
#[path = "sse_support/observed.rs"]
mod observed;

use std::borrow::Cow;

use cases::Case;
use hammerscale::wire::sse::{Limits, Parser};
use observed::{Observed, Seen, observe_with};

/// Inputs below this are also cut in three.
const THREE_PIECES_BELOW: usize = 64;
/// Inputs above this are not cut at every byte.
const EVERY_SPLIT_UP_TO: usize = 64 << 10;
const SAMPLED_SPLITS: usize = 32;
const NEAR_LINE_END: usize = 8;

#[test]
fn the_case_file_is_complete() {
    let cases = cases::load();
    assert!(cases.len() >= 170, "{} cases", cases.len());
    assert!(cases.iter().any(|case| case.input.len() > EVERY_SPLIT_UP_TO));
    assert!(cases.iter().any(|case| case.events.iter().any(|event| event.data_raw.is_some())));
    assert!(cases.iter().any(|case| !case.chunkings.is_empty()));
}

#[test]
fn cases_fed_whole() {
    let mut parser = Parser::new(Limits::default());
    for case in cases::load() {
        check(&case, &observe_with(&mut parser, [case.input.as_slice()]), "whole");
    }
}

#[test]
fn cases_fed_byte_by_byte() {
    let mut parser = Parser::new(Limits::default());
    for case in cases::load() {
        check(&case, &observe_with(&mut parser, case.input.chunks(1)), "byte by byte");
    }
}

#[test]
fn cases_fed_in_their_chunkings() {
    let mut parser = Parser::new(Limits::default());
    let mut seen = 0;
    for case in cases::load() {
        for chunking in &case.chunkings {
            let pieces = cut(&case.input, chunking);
            check(&case, &observe_with(&mut parser, pieces), &format!("chunking {chunking:?}"));
            seen += 1;
        }
    }
    assert!(seen > 0);
}

#[test]
fn cases_fed_in_two_pieces() {
    let mut parser = Parser::new(Limits::default());
    for case in cases::load() {
        for at in two_way_splits(&case.input) {
            let (head, tail) = case.input.split_at(at);
            check(&case, &observe_with(&mut parser, [head, tail]), &format!("split at {at}"));
        }
    }
}

#[test]
fn short_cases_fed_in_three_pieces() {
    let mut parser = Parser::new(Limits::default());
    for case in cases::load().iter().filter(|case| case.input.len() < THREE_PIECES_BELOW) {
        for second in 0..=case.input.len() {
            for first in 0..=second {
                let pieces = [&case.input[..first], &case.input[first..second], &case.input[second..]];
                check(case, &observe_with(&mut parser, pieces), &format!("splits at {first}, {second}"));
            }
        }
    }
}

#[test]
fn the_second_reader_agrees_with_the_cases() {
    for case in cases::load() {
        let naive = naive::read(&case.input);
        let expected: Vec<_> = case
            .events
            .iter()
            .map(|event| (event.event.clone(), event.data.clone(), event.id.clone()))
            .collect();
        let got: Vec<_> = naive
            .events
            .into_iter()
            .map(|(kind, data, id)| (if kind.is_empty() { "message".to_owned() } else { kind }, data, id))
            .collect();
        assert!(got == expected, "{}: events", case.name);
        assert_eq!(naive.comments as u64, case.comments, "{}: comments", case.name);
        assert!(case.retry.is_none_or(|retry| retry == naive.retry), "{}: retry", case.name);
        assert_eq!(naive.id_buffer, case.last_event_id, "{}: last event ID", case.name);
        assert_eq!(!naive.data_buffer.is_empty(), case.pending_block_at_eof, "{}: pending", case.name);
        assert_eq!(naive.rest, decoded(&case.unterminated_tail), "{}: tail", case.name);
    }
}

fn check(case: &Case, got: &Observed, how: &str) {
    let at = || format!("{} ({how})", case.name);
    assert_eq!(got.error, None, "{}", at());
    assert_eq!(got.said.events.len(), case.events.len(), "{}: number of events", at());
    for (index, (seen, expected)) in got.said.events.iter().zip(&case.events).enumerate() {
        assert_eq!(kind(seen), expected.event, "{}: type of event {index}", at());
        let raw = expected.data_raw.as_deref().unwrap_or(expected.data.as_bytes());
        // Not assert_eq: the data may be megabytes.
        assert!(seen.data == raw, "{}: bytes of event {index}", at());
        assert!(decoded(&seen.data) == expected.data, "{}: text of event {index}", at());
        assert_eq!(decoded(&seen.id), expected.id, "{}: id of event {index}", at());
    }
    assert_eq!(got.said.comments.len() as u64, case.comments, "{}: comments", at());
    if let Some(retry) = &case.retry {
        assert_eq!(&got.said.retry, retry, "{}: retry", at());
    }
    assert_eq!(decoded(&got.last_event_id), case.last_event_id, "{}: last event ID", at());
    assert_eq!(got.block_open, case.pending_block_at_eof, "{}: pending block", at());
    assert_eq!(got.unterminated, case.unterminated_tail, "{}: tail", at());
}

fn kind(seen: &Seen) -> Cow<'_, str> {
    if seen.event.is_empty() { "message".into() } else { decoded(&seen.event) }
}

fn decoded(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// The input in pieces of these lengths; they must cover it exactly.
fn cut<'a>(mut input: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    for &length in lengths {
        let (piece, rest) = input.split_at(length);
        pieces.push(piece);
        input = rest;
    }
    assert!(input.is_empty(), "{} bytes are in no piece", input.len());
    pieces
}

fn two_way_splits(input: &[u8]) -> Vec<usize> {
    if input.len() <= EVERY_SPLIT_UP_TO {
        return (0..=input.len()).collect();
    }
    let line_ends = (0..input.len()).filter(|&at| matches!(input[at], b'\r' | b'\n'));
    let mut splits: Vec<usize> = line_ends
        .chain([0, input.len()])
        .flat_map(|at| at.saturating_sub(NEAR_LINE_END)..=(at + NEAR_LINE_END).min(input.len()))
        .collect();
    // Knuth's 64-bit linear congruential generator, from a fixed seed.
    let mut state = 0x5eed_u64;
    for _ in 0..SAMPLED_SPLITS {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        splits.push(usize::try_from(state >> 33).unwrap() % (input.len() + 1));
    }
    splits.sort_unstable();
    splits.dedup();
    splits
}
