//! Every row comes back as it was, whatever is in it, and a usual one is small.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::metrics::row::{
    CanaryObservation, ControlledOutputObservation, ReceiveStamps, StampSource, TokenSource,
};
use crate::metrics::testing::row;
use crate::record::{Anomalies, Counters, ErrorDetail, Outcome, OutputKind, TransportFacts, Usage};
use crate::units::Nanos;

/// Numbers as they come: small ones, and any.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 0_u64..300, any::<u64>()]
}

fn instant() -> impl Strategy<Value = Option<Nanos>> {
    option::of(prop_oneof![(0..10_000_000_000_i64), any::<i64>()].prop_map(Nanos))
}

fn stamps() -> impl Strategy<Value = ReceiveStamps> {
    vec(instant(), 13).prop_map(|s| ReceiveStamps {
        first_byte: s[0],
        head_done: s[1],
        first_event: s[2],
        first_output: s[3],
        first_reasoning: s[4],
        first_content: s[5],
        first_tool_call: s[6],
        last_output: s[7],
        first_usage_token: s[8],
        first_textless: s[9],
        last_textless: s[10],
        terminal: s[11],
        end: s[12],
    })
}

fn counters() -> impl Strategy<Value = Counters> {
    vec(number(), 21).prop_map(|n| Counters {
        events: n[0],
        reads: n[1],
        output_chunks: n[2],
        content_chunks: n[3],
        reasoning_chunks: n[4],
        tool_call_chunks: n[5],
        refusal_chunks: n[6],
        content_deltas: n[7],
        reasoning_deltas: n[8],
        usage_events: n[9],
        coalesced_chunks: n[10],
        textless_chunks: n[11],
        malformed_events: n[12],
        unrecognised_events: n[13],
        tolerated_events: n[14],
        invalid_utf8_events: n[15],
        events_after_done: n[16],
        keepalive_comments: n[17],
        bytes_sent: n[18],
        bytes_received: n[19],
        body_bytes: n[20],
    })
}

fn usage() -> impl Strategy<Value = Usage> {
    (vec(option::of(number()), 6), any::<bool>()).prop_map(|(n, cache_counted_apart)| Usage {
        prompt_tokens: n[0],
        completion_tokens: n[1],
        total_tokens: n[2],
        reasoning_tokens: n[3],
        cached_tokens: n[4],
        cache_creation_tokens: n[5],
        cache_counted_apart,
    })
}

fn error() -> impl Strategy<Value = ErrorDetail> {
    (".{0,40}", option::of(number()), vec(option::of(".{0,20}"), 4), vec(any::<u8>(), 0..40)).prop_map(
        |(message, offset, texts, body_start)| ErrorDetail {
            message,
            offset,
            code: texts[0].clone(),
            error_type: texts[1].clone(),
            retry_after: texts[2].clone(),
            location: texts[3].clone(),
            body_start,
        },
    )
}

fn canary() -> impl Strategy<Value = CanaryObservation> {
    (".{0,30}", number(), number(), any::<[bool; 3]>()).prop_map(|(marker, observed, foreign, bits)| {
        CanaryObservation {
            marker,
            marker_at_start: bits[0],
            observed_marker_count: observed,
            foreign_marker_count: foreign,
            capture_complete: bits[1],
            passed: bits[2],
        }
    })
}

fn controlled() -> impl Strategy<Value = ControlledOutputObservation> {
    (number(), number(), number(), any::<[bool; 3]>(), any::<Option<bool>>()).prop_map(
        |(requested_words, observed_code_words, observed_extra_words, bits, exact_adherence)| {
            ControlledOutputObservation {
                requested_words,
                strict: bits[0],
                observed_code_words,
                observed_extra_words,
                capture_complete: bits[1],
                exact_adherence,
                passed: bits[2],
            }
        },
    )
}

/// Every field by its name, so that a new one must be given a value here too.
#[expect(clippy::too_many_lines, reason = "a table: one field a line")]
fn any_row() -> impl Strategy<Value = RequestRow> {
    let who = (any::<[u64; 2]>(), any::<[u32; 4]>(), 0..3_usize, 0..Outcome::ALL.len(), any::<Option<u16>>());
    let when = (any::<i64>(), vec(instant(), 7), stamps(), stamps(), any::<bool>());
    let what = (
        prop::sample::select(vec![
            None,
            Some(OutputKind::Reasoning),
            Some(OutputKind::Content),
            Some(OutputKind::ToolCall),
            Some(OutputKind::Refusal),
        ]),
        any::<[bool; 6]>(),
        counters(),
        usage(),
        vec(option::of(number()), 4),
        (any::<Option<u32>>(), any::<[Option<u32>; 3]>()),
        0..5_usize,
    );
    let rare = (
        vec((any::<u32>(), ".{0,40}"), 0..5),
        option::of(canary()),
        option::of(controlled()),
        any::<u32>().prop_map(Anomalies::from_bits),
        option::of(error()),
    );
    (who, when, what, rare).prop_map(|(who, when, what, rare)| {
        let (
            [request_index, connection_id],
            [slot, worker, connection_use, stale_connections],
            phase,
            outcome,
            status,
        ) = who;
        let (due, spans, at, user, by_user) = when;
        let (first_output_kind, bits, counters, usage, tokens, (first_chunk_tokens, counts), source) = what;
        let (finish_reasons, canary, controlled_output, anomalies, error) = rare;
        RequestRow {
            request_index,
            slot,
            worker,
            connection_id,
            connection_use,
            stale_connections,
            phase: [Phase::Warmup, Phase::Measured, Phase::Drain][phase],
            outcome: Outcome::ALL[outcome],
            http_status: status,
            due: Nanos(due),
            dns: spans[0],
            connect_start: spans[1],
            connect: spans[2],
            tls: spans[3],
            send_start: spans[4],
            send_end: spans[5],
            sent_wire: spans[6],
            transport: TransportFacts { rtt_us: counts[0], retransmits: counts[1], unacked_us: counts[2] },
            at,
            user,
            stamp_source: if by_user { StampSource::User } else { StampSource::Kernel },
            first_output_kind,
            several_choices: bits[0],
            one_output_read: bits[1],
            counters,
            usage,
            output_tokens: tokens[0],
            output_token_source: [
                TokenSource::Usage,
                TokenSource::ContinuousUsage,
                TokenSource::Tokenizer,
                TokenSource::ContentChunks,
                TokenSource::Unknown,
            ][source],
            first_chunk_tokens,
            chunk_tokens: tokens[1],
            finish_reasons,
            planned_context_tokens: tokens[2],
            requested_max_tokens: tokens[3],
            canary,
            controlled_output,
            visible_content_truncated: bits[2],
            cut_after_terminal: bits[3],
            role_chunk_first: bits[4],
            streamed_unasked: bits[5],
            anomalies,
            error,
        }
    })
}

proptest! {
    #[test]
    fn every_row_comes_back_as_it_was(rows in vec(any_row(), 0..6)) {
        let packed: Rows = rows.iter().collect();
        prop_assert_eq!(packed.len(), rows.len());
        prop_assert_eq!(packed.iter().collect::<Vec<_>>(), rows);
    }

    #[test]
    fn bytes_of_no_row_are_no_panic(bytes: Vec<u8>) {
        let rows = Rows { blocks: vec![bytes], ..Rows::default() };
        prop_assert!(rows.iter().count() < 1_000);
    }
}

#[test]
fn rows_go_on_over_blocks_and_a_reader_goes_on_where_it_stopped() {
    let mut rows = Rows::new();
    let (mut read, mut at) = (0_u64, Position::default());
    let of = |index: u64| RequestRow {
        connection_id: index / 7,
        due: Nanos(index.cast_signed() * 1_000),
        ..row(index)
    };
    for index in 0..40_000 {
        rows.push(&of(index));
        if index % 9_999 == 0 {
            // More than a block, in the middle of the others.
            let text = "x".repeat(BLOCK_BYTES + 1);
            rows.push(&RequestRow { finish_reasons: vec![(1, text)], ..of(index) });
        }
        if index % 1_000 == 0 {
            let mut more = rows.after(at);
            read += more.by_ref().count() as u64;
            at = more.position();
        }
    }
    assert!(rows.blocks.len() > 8);
    assert_eq!(read + rows.after(at).count() as u64, 40_005);
    let short = rows.iter().filter(|row| row.finish_reasons[0].0 == 0);
    assert!(short.eq((0..40_000).map(of)));
    assert_eq!(Rows::new().iter().next(), None);
}

/// The room that the whole run has for a request is 256 bytes.
#[test]
#[expect(clippy::too_many_lines, reason = "two rows, field by field")]
fn a_usual_row_is_small() {
    let ms = |ms: i64| Some(Nanos(ms * 1_000_000 + 12_345));
    let delayed = |at: Option<Nanos>, ns: i64| at.map(|at| Nanos(at.0 + ns));
    let streamed = |index: u64| {
        let mut row = row(index);
        let start = index.cast_signed() * 31;
        (row.slot, row.connection_id, row.connection_use) = (999, index % 10_000, 1_000);
        (row.due, row.send_start, row.send_end) = (Nanos(start * 1_000_000), ms(start), ms(start + 1));
        row.at = ReceiveStamps {
            first_byte: ms(start + 900),
            head_done: ms(start + 900),
            first_event: ms(start + 900),
            first_output: ms(start + 950),
            first_reasoning: ms(start + 950),
            first_content: ms(start + 2_500),
            last_output: ms(start + 9_500),
            terminal: ms(start + 9_501),
            end: ms(start + 9_501),
            ..ReceiveStamps::default()
        };
        row.user = ReceiveStamps {
            first_byte: delayed(row.at.first_byte, 9_000),
            head_done: delayed(row.at.head_done, 9_000),
            first_event: delayed(row.at.first_event, 9_000),
            first_output: delayed(row.at.first_output, 12_000),
            first_reasoning: delayed(row.at.first_reasoning, 12_000),
            first_content: delayed(row.at.first_content, 70_000),
            last_output: delayed(row.at.last_output, 8_500),
            terminal: delayed(row.at.terminal, 9_100),
            end: delayed(row.at.end, 9_100),
            ..row.at
        };
        row.counters = Counters {
            events: 515,
            reads: 513,
            output_chunks: 512,
            content_chunks: 400,
            reasoning_chunks: 112,
            content_deltas: 400,
            reasoning_deltas: 112,
            usage_events: 1,
            bytes_sent: 9_000,
            bytes_received: 140_000,
            body_bytes: 130_000,
            ..Counters::default()
        };
        row
    };
    let plain = |index: u64| {
        let mut row = streamed(index);
        row.at = ReceiveStamps {
            first_byte: row.at.first_byte,
            head_done: row.at.head_done,
            end: row.at.end,
            ..ReceiveStamps::default()
        };
        row.user = ReceiveStamps {
            first_byte: row.user.first_byte,
            head_done: row.user.head_done,
            end: row.user.end,
            ..ReceiveStamps::default()
        };
        (row.usage, row.output_tokens, row.first_output_kind) = (Usage::default(), None, None);
        row.counters =
            Counters { reads: 1, bytes_sent: 80, bytes_received: 250, body_bytes: 12, ..Counters::default() };
        (row.finish_reasons, row.planned_context_tokens, row.requested_max_tokens) = (Vec::new(), None, None);
        row
    };
    let each = |rows: Rows| rows.bytes() / rows.len();
    let of_streamed = each((0..1_000).map(streamed).collect());
    let of_plain = each((0..1_000).map(plain).collect());
    assert!(of_streamed <= 160, "{of_streamed}");
    assert!(of_plain <= 80, "{of_plain}");
}
