//! `requests.jsonl`: one JSON object per request and line, with everything that is known about it.
//!
//! Every key stands in every line, `null` where the request never got there, so that a line is also a row of a table.
//! Stamps are whole nanoseconds since the run's zero. Lines of one worker come in the order in which its requests ended. Together with
//! `events.bin` the file holds what is needed to compute every number of `run.json` again: [`read`] turns lines
//! back into rows. Values of metrics are not repeated here.

mod error;
mod keys;
pub mod read;

use std::borrow::Cow;
use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use crate::metrics::row::{CanaryObservation, ControlledOutputObservation, ReceiveStamps, RequestRow};
use crate::record::RunId;
use crate::report::ordered::OrderedMap;
use crate::report::requests::error::ErrorLine;
use crate::units::Nanos;

/// Requests sent twice, per request. This version repeats none, so the count of every request is a real zero.
pub const CONNECTION_RETRIES: u32 = 0;

/// Writes `requests.jsonl` as requests end.
#[derive(Debug)]
pub struct RequestsWriter<W> {
    out: W,
    run_id: RunId,
    /// The line being made: it comes in some three hundred pieces, and here a piece is cheap.
    line: Vec<u8>,
}

impl<W: Write> RequestsWriter<W> {
    /// A writer for the requests of one run. A line is one write.
    pub const fn new(out: W, run_id: RunId) -> Self {
        Self { out, run_id, line: Vec::new() }
    }

    /// Writes one line.
    ///
    /// # Errors
    /// Those of the underlying writer; nothing in a row can make a line unwritable.
    pub fn write(&mut self, row: &RequestRow) -> io::Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, &RequestLine::of(row, &self.run_id))?;
        self.line.push(b'\n');
        self.out.write_all(&self.line)
    }

    /// Hands everything written so far to the system.
    ///
    /// # Errors
    /// Those of the underlying writer.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// The underlying writer.
    pub fn into_inner(self) -> W {
        self.out
    }
}

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RequestLine<'a> {
    request_index: u64,
    request_id: String,
    slot: u32,
    worker: u32,
    connection_id: u64,
    connection_use: u32,
    reused: bool,
    phase: Cow<'a, str>,
    outcome: Cow<'a, str>,
    http_status: Option<u16>,
    due_ns: i64,
    dns_ns: Option<i64>,
    connect_start_ns: Option<i64>,
    connect_ns: Option<i64>,
    tls_ns: Option<i64>,
    send_start_ns: Option<i64>,
    send_end_ns: Option<i64>,
    #[serde(default)]
    sent_wire_ns: Option<i64>,
    first_byte_ns: Option<i64>,
    head_done_ns: Option<i64>,
    first_event_ns: Option<i64>,
    first_output_ns: Option<i64>,
    first_output_kind: Option<Cow<'a, str>>,
    first_reasoning_ns: Option<i64>,
    first_content_ns: Option<i64>,
    first_tool_call_ns: Option<i64>,
    last_output_ns: Option<i64>,
    first_usage_token_ns: Option<i64>,
    first_textless_ns: Option<i64>,
    last_textless_ns: Option<i64>,
    terminal_ns: Option<i64>,
    end_ns: Option<i64>,
    user: UserStamps,
    stamp_source: Cow<'a, str>,
    events: u64,
    reads: u64,
    output_chunks: u64,
    content_chunks: u64,
    reasoning_chunks: u64,
    tool_call_chunks: u64,
    refusal_chunks: u64,
    content_deltas: u64,
    reasoning_deltas: u64,
    usage_events: u64,
    coalesced_chunks: u64,
    #[serde(default)]
    textless_chunks: u64,
    malformed_events: u64,
    unrecognised_events: u64,
    events_after_done: u64,
    keepalive_comments: u64,
    tolerated_events: u64,
    invalid_utf8_events: u64,
    bytes_sent: u64,
    bytes_received: u64,
    body_bytes: u64,
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    total_tokens: Option<u64>,
    output_tokens: Option<u64>,
    output_token_source: Cow<'a, str>,
    first_chunk_tokens: Option<u32>,
    chunk_tokens: Option<u64>,
    reasoning_tokens: Option<u64>,
    cached_tokens: Option<u64>,
    #[serde(default)]
    cache_creation_tokens: Option<u64>,
    /// The counts of the cache are no part of `prompt_tokens`.
    #[serde(default)]
    cache_counted_apart: bool,
    finish_reasons: OrderedMap<Cow<'a, str>>,
    /// All of them as they came; `null` where the map above says as much.
    #[serde(default)]
    finish_reasons_in_order: Option<Vec<(u32, Cow<'a, str>)>>,
    planned_context_tokens: Option<u64>,
    requested_max_tokens: Option<u64>,
    several_choices: bool,
    one_output_read: bool,
    role_chunk_first: bool,
    #[serde(default)]
    streamed_unasked: bool,
    #[serde(default)]
    anomalies: Vec<Cow<'a, str>>,
    visible_content_truncated: bool,
    cut_after_terminal: bool,
    stale_connections: u32,
    connection_retries: u32,
    #[serde(default)]
    rtt_us: Option<u32>,
    #[serde(default)]
    retransmits: Option<u32>,
    #[serde(default)]
    unacked_us: Option<u32>,
    canary: Option<CanaryLine<'a>>,
    controlled_output: Option<ControlledOutputLine>,
    error: Option<ErrorLine<'a>>,
}

/// The keys of a line, in their order.
#[must_use]
pub fn keys() -> &'static [&'static str] {
    keys::of::<RequestLine<'_>>()
}

/// The keys of `user` in a line, in their order.
#[must_use]
pub fn user_keys() -> &'static [&'static str] {
    keys::of::<UserStamps>()
}

/// The receive stamps by the user-space clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct UserStamps {
    first_byte_ns: Option<i64>,
    head_done_ns: Option<i64>,
    first_event_ns: Option<i64>,
    first_output_ns: Option<i64>,
    first_reasoning_ns: Option<i64>,
    first_content_ns: Option<i64>,
    first_tool_call_ns: Option<i64>,
    last_output_ns: Option<i64>,
    first_usage_token_ns: Option<i64>,
    first_textless_ns: Option<i64>,
    last_textless_ns: Option<i64>,
    terminal_ns: Option<i64>,
    end_ns: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct CanaryLine<'a> {
    marker: Cow<'a, str>,
    marker_at_start: bool,
    observed_marker_count: u64,
    foreign_marker_count: u64,
    capture_complete: bool,
    passed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ControlledOutputLine {
    requested_words: u64,
    policy: Cow<'static, str>,
    observed_code_words: u64,
    observed_extra_words: u64,
    capture_complete: bool,
    exact_adherence: Option<bool>,
    passed: bool,
}

const STRICT: &str = "strict";
const OBSERVE: &str = "observe";

impl<'a> RequestLine<'a> {
    /// The line of a row.
    #[must_use]
    #[expect(clippy::too_many_lines, reason = "a table: one field a line")]
    pub fn of(row: &'a RequestRow, run_id: &RunId) -> Self {
        let (at, counters) = (&row.at, &row.counters);
        Self {
            request_index: row.request_index,
            request_id: run_id.request_id(row.phase, row.request_index),
            slot: row.slot,
            worker: row.worker,
            connection_id: row.connection_id,
            connection_use: row.connection_use,
            reused: row.connection_use > 0,
            phase: row.phase.name().into(),
            outcome: row.outcome.name().into(),
            http_status: row.http_status,
            due_ns: row.due.0,
            dns_ns: ns(row.dns),
            connect_start_ns: ns(row.connect_start),
            connect_ns: ns(row.connect),
            tls_ns: ns(row.tls),
            send_start_ns: ns(row.send_start),
            send_end_ns: ns(row.send_end),
            sent_wire_ns: ns(row.sent_wire),
            first_byte_ns: ns(at.first_byte),
            head_done_ns: ns(at.head_done),
            first_event_ns: ns(at.first_event),
            first_output_ns: ns(at.first_output),
            first_output_kind: row.first_output_kind.map(|k| k.name().into()),
            first_reasoning_ns: ns(at.first_reasoning),
            first_content_ns: ns(at.first_content),
            first_tool_call_ns: ns(at.first_tool_call),
            last_output_ns: ns(at.last_output),
            first_usage_token_ns: ns(at.first_usage_token),
            first_textless_ns: ns(at.first_textless),
            last_textless_ns: ns(at.last_textless),
            terminal_ns: ns(at.terminal),
            end_ns: ns(at.end),
            user: UserStamps::of(&row.user),
            stamp_source: row.stamp_source.name().into(),
            events: counters.events,
            reads: counters.reads,
            output_chunks: counters.output_chunks,
            content_chunks: counters.content_chunks,
            reasoning_chunks: counters.reasoning_chunks,
            tool_call_chunks: counters.tool_call_chunks,
            refusal_chunks: counters.refusal_chunks,
            content_deltas: counters.content_deltas,
            reasoning_deltas: counters.reasoning_deltas,
            usage_events: counters.usage_events,
            coalesced_chunks: counters.coalesced_chunks,
            textless_chunks: counters.textless_chunks,
            malformed_events: counters.malformed_events,
            unrecognised_events: counters.unrecognised_events,
            events_after_done: counters.events_after_done,
            keepalive_comments: counters.keepalive_comments,
            tolerated_events: counters.tolerated_events,
            invalid_utf8_events: counters.invalid_utf8_events,
            bytes_sent: counters.bytes_sent,
            bytes_received: counters.bytes_received,
            body_bytes: counters.body_bytes,
            prompt_tokens: row.usage.prompt_tokens,
            completion_tokens: row.usage.completion_tokens,
            total_tokens: row.usage.total_tokens,
            output_tokens: row.output_tokens,
            output_token_source: row.output_token_source.name().into(),
            first_chunk_tokens: row.first_chunk_tokens,
            chunk_tokens: row.chunk_tokens,
            reasoning_tokens: row.usage.reasoning_tokens,
            cached_tokens: row.usage.cached_tokens,
            cache_creation_tokens: row.usage.cache_creation_tokens,
            cache_counted_apart: row.usage.cache_counted_apart,
            finish_reasons: finish_reasons(&row.finish_reasons),
            finish_reasons_in_order: finish_reasons_in_order(&row.finish_reasons),
            planned_context_tokens: row.planned_context_tokens,
            requested_max_tokens: row.requested_max_tokens,
            several_choices: row.several_choices,
            one_output_read: row.one_output_read,
            role_chunk_first: row.role_chunk_first,
            streamed_unasked: row.streamed_unasked,
            anomalies: row.anomalies.iter().map(|anomaly| anomaly.name().into()).collect(),
            visible_content_truncated: row.visible_content_truncated,
            cut_after_terminal: row.cut_after_terminal,
            stale_connections: row.stale_connections,
            connection_retries: CONNECTION_RETRIES,
            rtt_us: row.transport.rtt_us,
            retransmits: row.transport.retransmits,
            unacked_us: row.transport.unacked_us,
            canary: row.canary.as_ref().map(CanaryLine::of),
            controlled_output: row.controlled_output.as_ref().map(ControlledOutputLine::of),
            error: ErrorLine::of(row.outcome, row.error.as_ref()),
        }
    }
}

impl UserStamps {
    fn of(at: &ReceiveStamps) -> Self {
        Self {
            first_byte_ns: ns(at.first_byte),
            head_done_ns: ns(at.head_done),
            first_event_ns: ns(at.first_event),
            first_output_ns: ns(at.first_output),
            first_reasoning_ns: ns(at.first_reasoning),
            first_content_ns: ns(at.first_content),
            first_tool_call_ns: ns(at.first_tool_call),
            last_output_ns: ns(at.last_output),
            first_usage_token_ns: ns(at.first_usage_token),
            first_textless_ns: ns(at.first_textless),
            last_textless_ns: ns(at.last_textless),
            terminal_ns: ns(at.terminal),
            end_ns: ns(at.end),
        }
    }
}

impl<'a> CanaryLine<'a> {
    fn of(seen: &'a CanaryObservation) -> Self {
        Self {
            marker: seen.marker.as_str().into(),
            marker_at_start: seen.marker_at_start,
            observed_marker_count: seen.observed_marker_count,
            foreign_marker_count: seen.foreign_marker_count,
            capture_complete: seen.capture_complete,
            passed: seen.passed,
        }
    }
}

impl ControlledOutputLine {
    fn of(seen: &ControlledOutputObservation) -> Self {
        Self {
            requested_words: seen.requested_words,
            policy: if seen.strict { STRICT } else { OBSERVE }.into(),
            observed_code_words: seen.observed_code_words,
            observed_extra_words: seen.observed_extra_words,
            capture_complete: seen.capture_complete,
            exact_adherence: seen.exact_adherence,
            passed: seen.passed,
        }
    }
}

fn ns(at: Option<Nanos>) -> Option<i64> {
    at.map(|n| n.0)
}

/// By choice, ascending; of several reasons for one choice the last one, as a stream's last word.
fn finish_reasons(reasons: &[(u32, String)]) -> OrderedMap<Cow<'_, str>> {
    let mut by_choice: Vec<_> = reasons.iter().collect();
    by_choice.sort_by_key(|(choice, _)| *choice);
    by_choice.into_iter().map(|(choice, reason)| (choice.to_string(), Cow::from(reason.as_str()))).collect()
}

/// `None` when the reasons came by ascending choice, one for each.
fn finish_reasons_in_order(reasons: &[(u32, String)]) -> Option<Vec<(u32, Cow<'_, str>)>> {
    let plain = reasons.is_sorted_by(|(before, _), (after, _)| before < after);
    (!plain).then(|| reasons.iter().map(|(choice, reason)| (*choice, Cow::from(reason.as_str()))).collect())
}
