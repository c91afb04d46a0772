//! From what a worker wrote down to a row on the run's axis.

use crate::aggregate::chunk::OutputChunk;
use crate::aggregate::open::ChunkTotals;
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

/// Scales a chunk.
#[must_use]
pub fn scale_chunk(chunk: &ChunkStamp, timeline: &Timeline) -> OutputChunk {
    OutputChunk {
        choice: chunk.choice,
        kind: chunk.kind,
        kernel: chunk.stamp.kernel.map(|kernel| timeline.kernel_at(kernel, chunk.stamp.user)),
        user: timeline.at(chunk.stamp.user),
        not_before: timeline.at(chunk.not_before),
        ends_read: chunk.ends_read,
        tokens: chunk.tokens,
    }
}

/// Scales a record; `chunks` are those of its request.
#[must_use]
pub fn scale(
    record: RequestRecord,
    chunks: ChunkTotals,
    worker: u32,
    timeline: &Timeline,
    facts: &RequestFacts,
) -> RequestRow {
    let source = if record.user_stamps_only { StampSource::User } else { StampSource::Kernel };
    let (at, user) = receive_stamps(&record, source, timeline);
    let (output_tokens, output_token_source) = output_tokens(&record, chunks.tokens.is_some());
    let (canary, controlled_output) = observations(record.text.as_deref(), facts);
    RequestRow {
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
        at,
        user,
        stamp_source: source,
        first_output_kind: record.first_output_kind,
        several_choices: record.several_choices,
        one_output_read: one_output_read(&record),
        counters: record.counters,
        usage: record.usage,
        output_tokens,
        output_token_source,
        first_chunk_tokens: chunks.first_tokens,
        chunk_tokens: chunks.tokens,
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
    }
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

/// A stamp by the request's own clock, and by the user-space one.
type Sides = (Option<Nanos>, Option<Nanos>);

/// By the request's own clock, and by the user-space one. Neighbours mostly came in one read, which is scaled once.
fn receive_stamps(
    record: &RequestRecord,
    source: StampSource,
    timeline: &Timeline,
) -> (ReceiveStamps, ReceiveStamps) {
    let mut newest: Option<(Stamp, Nanos, Nanos)> = None;
    let mut of = |kind| {
        let stamp = record.stamp(kind)?;
        let (_, at, user) = *newest.take_if(|(of, ..)| *of == stamp).get_or_insert_with(|| {
            let user = timeline.at(stamp.user);
            let kernel = stamp.kernel.filter(|_| source == StampSource::Kernel);
            (stamp, kernel.map_or(user, |kernel| timeline.kernel_at(kernel, stamp.user)), user)
        });
        newest = Some((stamp, at, user));
        Some((at, user))
    };
    let first_byte = of(StampKind::FirstByte).unzip();
    let head_done = of(StampKind::HeadDone).unzip();
    let first_event = of(StampKind::FirstEvent).unzip();
    let first_output = of(StampKind::FirstOutput).unzip();
    let first_reasoning = of(StampKind::FirstReasoning).unzip();
    let first_content = of(StampKind::FirstContent).unzip();
    let first_tool_call = of(StampKind::FirstToolCall).unzip();
    let last_output = of(StampKind::LastOutput).unzip();
    let first_usage_token = of(StampKind::FirstUsageToken).unzip();
    let first_textless = of(StampKind::FirstTextless).unzip();
    let last_textless = of(StampKind::LastTextless).unzip();
    let terminal = of(StampKind::Terminal).unzip();
    let end = of(StampKind::End).unzip();
    let by = |side: fn(Sides) -> Option<Nanos>| ReceiveStamps {
        first_byte: side(first_byte),
        head_done: side(head_done),
        first_event: side(first_event),
        first_output: side(first_output),
        first_reasoning: side(first_reasoning),
        first_content: side(first_content),
        first_tool_call: side(first_tool_call),
        last_output: side(last_output),
        first_usage_token: side(first_usage_token),
        first_textless: side(first_textless),
        last_textless: side(last_textless),
        terminal: side(terminal),
        end: side(end),
    };
    (by(|stamps| stamps.0), by(|stamps| stamps.1))
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
