//! From lines of `requests.jsonl` back to rows, for rendering a saved run again.
//!
//! The file may be of an interrupted run (cut anywhere), of a newer minor version (unknown keys are ignored), or no
//! such file at all; every answer is a value, no input panics, and no line is held that is longer than
//! [`MAX_LINE_BYTES`].

use std::borrow::Cow;
use std::io::{self, BufRead, Read};

use thiserror::Error;

use super::error::ErrorLine;
use super::{CanaryLine, ControlledOutputLine, OBSERVE, RequestLine, STRICT, UserStamps};
use crate::metrics::row::{
    CanaryObservation, ControlledOutputObservation, ReceiveStamps, RequestRow, StampSource, TokenSource,
};
use crate::metrics::rows;
use crate::record::{Anomalies, Anomaly, Counters, Outcome, OutputKind, Phase, TransportFacts, Usage};
use crate::report::ordered::OrderedMap;
use crate::units::Nanos;

/// Longest line that is read. The longest one that is written holds 1,026 finish reasons of 128 characters (4 bytes
/// each, 6 when escaped) and a few bounded texts: below 2 MiB.
pub const MAX_LINE_BYTES: usize = 4 * 1024 * 1024;

/// The rows of a file.
#[derive(Debug, Clone)]
pub struct Rows {
    /// The run that the first line names; `None` without lines.
    pub run_id: Option<String>,
    /// In the order of the file.
    pub rows: rows::Rows,
    /// The last line is cut: the process ended while it was written. Its number, counted from 1.
    pub cut_line: Option<u64>,
}

/// Why a file is no `requests.jsonl`.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("cannot read: {0}")]
    Io(#[from] io::Error),
    /// A line is longer than [`MAX_LINE_BYTES`].
    #[error("line {line} is longer than {MAX_LINE_BYTES} bytes")]
    TooLong {
        /// Its number, counted from 1.
        line: u64,
    },
    /// A line is no request.
    #[error("line {line}: {reason}")]
    Line {
        /// Its number, counted from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
}

/// Reads all rows.
///
/// # Errors
/// [`ReadError`]. A cut last line is no error: see [`Rows::cut_line`].
pub fn read_rows(mut input: impl BufRead) -> Result<Rows, ReadError> {
    let mut rows = Rows { run_id: None, rows: rows::Rows::new(), cut_line: None };
    let mut text = Vec::new();
    let limit = u64::try_from(MAX_LINE_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    for line in 1.. {
        text.clear();
        if input.by_ref().take(limit).read_until(b'\n', &mut text)? == 0 {
            break;
        }
        if text.len() > MAX_LINE_BYTES {
            return Err(ReadError::TooLong { line });
        }
        let ended = text.last() == Some(&b'\n');
        if text.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match parse(&text) {
            Ok((row, request_id)) => {
                rows.run_id = rows.run_id.or_else(|| run_of(&request_id, &row));
                rows.rows.push(&row);
            }
            Err(_) if !ended => rows.cut_line = Some(line),
            Err(reason) => return Err(ReadError::Line { line, reason }),
        }
    }
    Ok(rows)
}

/// A row and the name of its request.
fn parse(text: &[u8]) -> Result<(RequestRow, String), String> {
    let mut line: RequestLine<'_> = serde_json::from_slice(text).map_err(|e| e.to_string())?;
    let request_id = std::mem::take(&mut line.request_id);
    Ok((line.into_row()?, request_id))
}

/// The run in the name of a request.
fn run_of(request_id: &str, row: &RequestRow) -> Option<String> {
    let warmup = if row.phase == Phase::Warmup { "w" } else { "" };
    request_id.strip_suffix(&format!("-{warmup}{}", row.request_index)).map(str::to_owned)
}

impl RequestLine<'_> {
    /// The row of a line.
    ///
    /// # Errors
    /// One sentence that names the key whose value this version does not know.
    #[expect(clippy::too_many_lines, reason = "a table: one line per field of the row")]
    pub fn into_row(self) -> Result<RequestRow, String> {
        Ok(RequestRow {
            request_index: self.request_index,
            slot: self.slot,
            worker: self.worker,
            connection_id: self.connection_id,
            connection_use: self.connection_use,
            stale_connections: self.stale_connections,
            phase: known("phase", &self.phase, &PHASES, Phase::name)?,
            outcome: known("outcome", &self.outcome, &Outcome::ALL, Outcome::name)?,
            http_status: self.http_status,
            due: Nanos(self.due_ns),
            dns: nanos(self.dns_ns),
            connect_start: nanos(self.connect_start_ns),
            connect: nanos(self.connect_ns),
            tls: nanos(self.tls_ns),
            send_start: nanos(self.send_start_ns),
            send_end: nanos(self.send_end_ns),
            sent_wire: nanos(self.sent_wire_ns),
            transport: TransportFacts {
                rtt_us: self.rtt_us,
                retransmits: self.retransmits,
                unacked_us: self.unacked_us,
            },
            at: ReceiveStamps {
                first_byte: nanos(self.first_byte_ns),
                head_done: nanos(self.head_done_ns),
                first_event: nanos(self.first_event_ns),
                first_output: nanos(self.first_output_ns),
                first_reasoning: nanos(self.first_reasoning_ns),
                first_content: nanos(self.first_content_ns),
                first_tool_call: nanos(self.first_tool_call_ns),
                last_output: nanos(self.last_output_ns),
                first_usage_token: nanos(self.first_usage_token_ns),
                first_textless: nanos(self.first_textless_ns),
                last_textless: nanos(self.last_textless_ns),
                terminal: nanos(self.terminal_ns),
                end: nanos(self.end_ns),
            },
            user: self.user.into_stamps(),
            stamp_source: known("stamp_source", &self.stamp_source, &STAMP_SOURCES, StampSource::name)?,
            first_output_kind: match &self.first_output_kind {
                Some(kind) => Some(known("first_output_kind", kind, &OUTPUT_KINDS, OutputKind::name)?),
                None => None,
            },
            several_choices: self.several_choices,
            one_output_read: self.one_output_read,
            counters: Counters {
                events: self.events,
                reads: self.reads,
                output_chunks: self.output_chunks,
                content_chunks: self.content_chunks,
                reasoning_chunks: self.reasoning_chunks,
                tool_call_chunks: self.tool_call_chunks,
                refusal_chunks: self.refusal_chunks,
                content_deltas: self.content_deltas,
                reasoning_deltas: self.reasoning_deltas,
                usage_events: self.usage_events,
                coalesced_chunks: self.coalesced_chunks,
                textless_chunks: self.textless_chunks,
                malformed_events: self.malformed_events,
                unrecognised_events: self.unrecognised_events,
                events_after_done: self.events_after_done,
                keepalive_comments: self.keepalive_comments,
                tolerated_events: self.tolerated_events,
                invalid_utf8_events: self.invalid_utf8_events,
                bytes_sent: self.bytes_sent,
                bytes_received: self.bytes_received,
                body_bytes: self.body_bytes,
            },
            usage: Usage {
                prompt_tokens: self.prompt_tokens,
                completion_tokens: self.completion_tokens,
                total_tokens: self.total_tokens,
                reasoning_tokens: self.reasoning_tokens,
                cached_tokens: self.cached_tokens,
                cache_creation_tokens: self.cache_creation_tokens,
                cache_counted_apart: self.cache_counted_apart,
            },
            output_tokens: self.output_tokens,
            output_token_source: known(
                "output_token_source",
                &self.output_token_source,
                &TOKEN_SOURCES,
                TokenSource::name,
            )?,
            first_chunk_tokens: self.first_chunk_tokens,
            chunk_tokens: self.chunk_tokens,
            finish_reasons: match self.finish_reasons_in_order {
                Some(reasons) => reasons.into_iter().map(|(c, reason)| (c, reason.into_owned())).collect(),
                None => reasons_by_choice(&self.finish_reasons)?,
            },
            planned_context_tokens: self.planned_context_tokens,
            requested_max_tokens: self.requested_max_tokens,
            canary: self.canary.map(CanaryLine::into_observation),
            controlled_output: self
                .controlled_output
                .map(ControlledOutputLine::into_observation)
                .transpose()?,
            visible_content_truncated: self.visible_content_truncated,
            cut_after_terminal: self.cut_after_terminal,
            role_chunk_first: self.role_chunk_first,
            streamed_unasked: self.streamed_unasked,
            anomalies: anomalies(&self.anomalies)?,
            error: self.error.and_then(ErrorLine::into_detail),
        })
    }
}

const PHASES: [Phase; 3] = [Phase::Warmup, Phase::Measured, Phase::Drain];
const STAMP_SOURCES: [StampSource; 2] = [StampSource::Kernel, StampSource::User];
const OUTPUT_KINDS: [OutputKind; 4] =
    [OutputKind::Reasoning, OutputKind::Content, OutputKind::ToolCall, OutputKind::Refusal];
const TOKEN_SOURCES: [TokenSource; 5] = [
    TokenSource::Usage,
    TokenSource::ContinuousUsage,
    TokenSource::Tokenizer,
    TokenSource::ContentChunks,
    TokenSource::Unknown,
];

fn known<T: Copy>(key: &str, text: &str, all: &[T], name: fn(T) -> &'static str) -> Result<T, String> {
    let found = all.iter().copied().find(|candidate| name(*candidate) == text);
    found.ok_or_else(|| format!("{key} has the unknown value {text:?}"))
}

fn anomalies(names: &[Cow<'_, str>]) -> Result<Anomalies, String> {
    let mut set = Anomalies::NONE;
    for name in names {
        set.insert(known("anomalies", name, &Anomaly::ALL, Anomaly::name)?);
    }
    Ok(set)
}

fn nanos(ns: Option<i64>) -> Option<Nanos> {
    ns.map(Nanos)
}

fn reasons_by_choice(reasons: &OrderedMap<Cow<'_, str>>) -> Result<Vec<(u32, String)>, String> {
    let pairs = reasons.iter().map(|(choice, reason)| match choice.parse() {
        Ok(choice) => Ok((choice, reason.to_string())),
        Err(_) => Err(format!("finish_reasons has the key {choice:?}, which is no choice index")),
    });
    pairs.collect()
}

impl UserStamps {
    fn into_stamps(self) -> ReceiveStamps {
        ReceiveStamps {
            first_byte: nanos(self.first_byte_ns),
            head_done: nanos(self.head_done_ns),
            first_event: nanos(self.first_event_ns),
            first_output: nanos(self.first_output_ns),
            first_reasoning: nanos(self.first_reasoning_ns),
            first_content: nanos(self.first_content_ns),
            first_tool_call: nanos(self.first_tool_call_ns),
            last_output: nanos(self.last_output_ns),
            first_usage_token: nanos(self.first_usage_token_ns),
            first_textless: nanos(self.first_textless_ns),
            last_textless: nanos(self.last_textless_ns),
            terminal: nanos(self.terminal_ns),
            end: nanos(self.end_ns),
        }
    }
}

impl CanaryLine<'_> {
    fn into_observation(self) -> CanaryObservation {
        CanaryObservation {
            marker: self.marker.into_owned(),
            marker_at_start: self.marker_at_start,
            observed_marker_count: self.observed_marker_count,
            foreign_marker_count: self.foreign_marker_count,
            capture_complete: self.capture_complete,
            passed: self.passed,
        }
    }
}

impl ControlledOutputLine {
    fn into_observation(self) -> Result<ControlledOutputObservation, String> {
        let strict = match &*self.policy {
            STRICT => true,
            OBSERVE => false,
            other => return Err(format!("controlled_output.policy has the unknown value {other:?}")),
        };
        Ok(ControlledOutputObservation {
            requested_words: self.requested_words,
            strict,
            observed_code_words: self.observed_code_words,
            observed_extra_words: self.observed_extra_words,
            capture_complete: self.capture_complete,
            exact_adherence: self.exact_adherence,
            passed: self.passed,
        })
    }
}
