//! From what a worker wrote down to a row on the run's axis.

use crate::aggregate::chunk::OutputChunk;
use crate::clock::Timeline;
use crate::metrics::observe;
use crate::metrics::row::{
    CanaryObservation, ControlledOutputObservation, ReceiveStamps, RequestRow, StampSource, TokenSource,
};
use crate::record::{CapturedText, ChunkStamp, Outcome, RequestRecord, Stamp, StampKind};
use crate::units::Nanos;

/// What the plan knows about a request and a worker does not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestFacts {
    /// Context target.
    pub planned_context_tokens: Option<u64>,
    /// Output limit that was sent.
    pub requested_max_tokens: Option<u64>,
    /// The marker the answer must begin with.
    pub canary_marker: Option<String>,
    /// Words of controlled output, and whether they must be exact.
    pub controlled_output: Option<(u64, bool)>,
}

/// A request's row and its output chunks, both on the run's axis.
#[derive(Debug, Clone)]
pub struct Scaled {
    /// The row.
    pub row: RequestRow,
    /// Output chunks in order of arrival.
    pub chunks: Vec<OutputChunk>,
}

/// Scales a record and its chunks.
#[must_use]
pub fn scale(
    record: RequestRecord,
    chunks: &[ChunkStamp],
    worker: u32,
    timeline: &Timeline,
    facts: &RequestFacts,
) -> Scaled {
    let source = if record.user_stamps_only { StampSource::User } else { StampSource::Kernel };
    let at = |stamp: Stamp| match (source, stamp.kernel) {
        (StampSource::Kernel, Some(kernel)) => timeline.kernel_at(kernel, stamp.user),
        _ => timeline.at(stamp.user),
    };
    let user = |stamp: Stamp| timeline.at(stamp.user);
    let scaled_chunks = chunks
        .iter()
        .map(|c| OutputChunk {
            choice: c.choice,
            kind: c.kind,
            kernel: c.stamp.kernel.map(|kernel| timeline.kernel_at(kernel, c.stamp.user)),
            user: user(c.stamp),
            not_before: timeline.at(c.not_before),
            ends_read: c.ends_read,
            tokens: c.tokens,
        })
        .collect();
    let chunk_tokens = chunk_tokens(chunks);
    let (output_tokens, output_token_source) = output_tokens(&record, chunk_tokens.is_some());
    let (canary, controlled_output) = observations(record.text.as_deref(), facts);
    let row = RequestRow {
        request_index: record.index,
        slot: record.slot,
        worker,
        connection_id: record.connection_id,
        connection_use: record.connection_use,
        stale_connections: record.stale_connections,
        phase: record.phase,
        outcome: judged(record.outcome, canary.as_ref(), controlled_output.as_ref()),
        http_status: record.http_status,
        due: timeline.at(record.due),
        dns: None,
        connect_start: record.connect.map(|(start, _)| timeline.at(start)),
        connect: record.connect.and_then(|(start, end)| timeline.at(end?).since(timeline.at(start))),
        tls: None,
        send_start: record.send_start.map(|t| timeline.at(t)),
        send_end: record.send_end.map(|t| timeline.at(t)),
        // The reading of the counter that is nearest to the stamp: it tells by which offset of the wall clock it moves.
        sent_wire: record.sent_wire.zip(record.send_end).map(|(stamp, by)| timeline.kernel_at(stamp, by)),
        transport: record.transport,
        at: receive_stamps(&record, at),
        user: receive_stamps(&record, user),
        stamp_source: source,
        first_output_kind: record.first_output_kind,
        several_choices: record.several_choices,
        one_output_read: one_output_read(&record),
        counters: record.counters,
        usage: record.usage,
        output_tokens,
        output_token_source,
        first_chunk_tokens: chunks.first().and_then(|chunk| chunk.tokens),
        chunk_tokens,
        finish_reasons: record.finish.iter().map(|(choice, text)| (choice, text.to_owned())).collect(),
        planned_context_tokens: facts.planned_context_tokens,
        requested_max_tokens: facts.requested_max_tokens,
        canary,
        controlled_output,
        visible_content_truncated: record.text_truncated,
        cut_after_terminal: record.cut_after_terminal,
        role_chunk_first: record.role_chunk_first,
        streamed_unasked: record.streamed_unasked,
        anomalies: record.anomalies,
        error: record.error.map(|e| *e),
    };
    Scaled { row, chunks: scaled_chunks }
}

/// An answer that came in order fails when it is not the one that was asked for.
fn judged(
    outcome: Outcome,
    canary: Option<&CanaryObservation>,
    controlled_output: Option<&ControlledOutputObservation>,
) -> Outcome {
    match outcome {
        Outcome::Ok if canary.is_some_and(|c| !c.passed) => Outcome::CanaryFailed,
        Outcome::Ok if controlled_output.is_some_and(|c| !c.passed) => Outcome::ControlledOutputFailed,
        other => other,
    }
}

fn receive_stamps(record: &RequestRecord, at: impl Fn(Stamp) -> Nanos) -> ReceiveStamps {
    let of = |kind| record.stamp(kind).map(&at);
    ReceiveStamps {
        first_byte: of(StampKind::FirstByte),
        head_done: of(StampKind::HeadDone),
        first_event: of(StampKind::FirstEvent),
        first_output: of(StampKind::FirstOutput),
        first_reasoning: of(StampKind::FirstReasoning),
        first_content: of(StampKind::FirstContent),
        first_tool_call: of(StampKind::FirstToolCall),
        last_output: of(StampKind::LastOutput),
        first_usage_token: of(StampKind::FirstUsageToken),
        first_textless: of(StampKind::FirstTextless),
        last_textless: of(StampKind::LastTextless),
        terminal: of(StampKind::Terminal),
        end: of(StampKind::End),
    }
}

/// All stamps of a read are the same reading, so equal user readings mean one read.
fn one_output_read(record: &RequestRecord) -> bool {
    let user = |kind| record.stamp(kind).map(|s| s.user);
    let first = user(StampKind::FirstOutput);
    first.is_some() && first == user(StampKind::LastOutput)
}

/// The best count there is: the server's, else the output chunks of every kind, an estimate that is marked as one: the
/// spans that it divides begin and end with any kind. A request that was cut has the chunks so far.
fn output_tokens(record: &RequestRecord, counted_per_chunk: bool) -> (Option<u64>, TokenSource) {
    match record.usage.completion_tokens {
        Some(tokens) if counted_per_chunk => (Some(tokens), TokenSource::ContinuousUsage),
        Some(tokens) => (Some(tokens), TokenSource::Usage),
        None if record.counters.output_chunks > 0 => {
            (Some(record.counters.output_chunks), TokenSource::ContentChunks)
        }
        None => (None, TokenSource::Unknown),
    }
}

/// The tokens of all output chunks; `None` unless each chunk came with its count.
fn chunk_tokens(chunks: &[ChunkStamp]) -> Option<u64> {
    let sum = |sum: u64, chunk: &ChunkStamp| Some(sum.saturating_add(u64::from(chunk.tokens?)));
    chunks.iter().try_fold(0, sum).filter(|_| !chunks.is_empty())
}

/// Canary and controlled output are judged only where an answer came.
fn observations(
    text: Option<&CapturedText>,
    facts: &RequestFacts,
) -> (Option<CanaryObservation>, Option<ControlledOutputObservation>) {
    let Some(text) = text else { return (None, None) };
    let marker = facts.canary_marker.as_deref();
    let canary = marker.map(|m| observe::canary(text, m));
    let controlled = facts
        .controlled_output
        .map(|(words, strict)| observe::controlled_output(text, marker, words, strict));
    (canary, controlled)
}
