//! What answers looked like on the wire: sums over the lines of `requests.jsonl`, under the names that they have there,
//! and how many requests show an oddity that is no failure.

use serde::{Deserialize, Serialize};

use crate::aggregate::stream::StreamFacts;
use crate::report::ordered::OrderedMap;

/// Sums over measured requests of any outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamDoc {
    /// Events, `[DONE]` included, those behind it not.
    pub events: u64,
    /// Successful receive calls.
    pub reads: u64,
    /// Events with output.
    pub output_chunks: u64,
    /// Events with visible content.
    pub content_chunks: u64,
    /// Events with reasoning.
    pub reasoning_chunks: u64,
    /// Events with a tool call.
    pub tool_call_chunks: u64,
    /// Events with a refusal.
    pub refusal_chunks: u64,
    /// Output chunks that share a read with an earlier one.
    pub coalesced_chunks: u64,
    /// Tokens without text of their own.
    pub textless_chunks: u64,
    /// Events with token counts.
    pub usage_events: u64,
    /// Events that are not JSON.
    pub malformed_events: u64,
    /// Events that are JSON without a known meaning.
    pub unrecognised_events: u64,
    /// Events, or whole answers, with `NaN` or `Infinity` in place of a number.
    pub tolerated_events: u64,
    /// Events, or whole answers, with bytes that are not UTF-8.
    pub invalid_utf8_events: u64,
    /// Events behind `[DONE]`.
    pub events_after_done: u64,
    /// Comment lines.
    pub keepalive_comments: u64,
    /// Bytes accepted by the kernel for sending.
    pub bytes_sent: u64,
    /// Bytes received, heads and framing included.
    pub bytes_received: u64,
    /// Bytes of bodies, without framing.
    pub body_bytes: u64,
    /// How many requests.
    pub requests: OdditiesDoc,
    /// How many requests by what was accepted of their answers' framing, only what occurred.
    pub anomalies: OrderedMap<u64>,
}

/// How many requests show what is odd and no failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OdditiesDoc {
    /// Complete streams without `[DONE]` or what the endpoint uses in its place.
    pub missing_done: u64,
    /// Complete streams without a finish reason.
    pub missing_finish_reason: u64,
    /// Bodies cut after the terminal.
    pub cut_after_terminal: u64,
    /// Event streams that nobody asked for.
    pub streamed_unasked: u64,
    /// Streams that begin with a chunk that announces only a role.
    pub role_chunk_first: u64,
    /// Answers of which the server counts reasoning that it did not send.
    pub hidden_reasoning: u64,
    /// Answers with more than one choice.
    pub several_choices: u64,
}

impl StreamDoc {
    pub(super) fn of(facts: &StreamFacts) -> Self {
        let counters = &facts.counters;
        Self {
            events: counters.events,
            reads: counters.reads,
            output_chunks: counters.output_chunks,
            content_chunks: counters.content_chunks,
            reasoning_chunks: counters.reasoning_chunks,
            tool_call_chunks: counters.tool_call_chunks,
            refusal_chunks: counters.refusal_chunks,
            coalesced_chunks: counters.coalesced_chunks,
            textless_chunks: counters.textless_chunks,
            usage_events: counters.usage_events,
            malformed_events: counters.malformed_events,
            unrecognised_events: counters.unrecognised_events,
            tolerated_events: counters.tolerated_events,
            invalid_utf8_events: counters.invalid_utf8_events,
            events_after_done: counters.events_after_done,
            keepalive_comments: counters.keepalive_comments,
            bytes_sent: counters.bytes_sent,
            bytes_received: counters.bytes_received,
            body_bytes: counters.body_bytes,
            requests: OdditiesDoc {
                missing_done: facts.missing_done,
                missing_finish_reason: facts.missing_finish_reason,
                cut_after_terminal: facts.cut_after_terminal,
                streamed_unasked: facts.streamed_unasked,
                role_chunk_first: facts.role_chunk_first,
                hidden_reasoning: facts.hidden_reasoning,
                several_choices: facts.several_choices,
            },
            anomalies: facts.anomalies.iter().map(|(anomaly, n)| (anomaly.name(), *n)).collect(),
        }
    }
}
