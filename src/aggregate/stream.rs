//! What answers looked like on the wire beyond their outcome: sums of what was counted per request, and how many requests
//! show an oddity that is no failure. Over measured requests of any outcome; a sum of zero is a real zero.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use crate::metrics::row::RequestRow;
use crate::metrics::rows::RowSource;
use crate::record::{Anomaly, Counters, Outcome};

/// Sums and oddities of a run's answers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StreamFacts {
    /// Every count of a response, summed.
    pub counters: Counters,
    /// Streams that are complete without a terminal: a finish reason and a clean end stand in for it.
    pub missing_done: u64,
    /// Streams that are complete without a finish reason.
    pub missing_finish_reason: u64,
    /// Bodies that were cut after the terminal.
    pub cut_after_terminal: u64,
    /// Answers that came as an event stream although none was asked for.
    pub streamed_unasked: u64,
    /// Streams whose first event announces only a role, of whatever outcome.
    pub role_chunk_first: u64,
    /// Answers of which the server counts reasoning that it did not send.
    pub hidden_reasoning: u64,
    /// Answers with more than one choice.
    pub several_choices: u64,
    /// Answers by what was accepted of their framing, only what occurred.
    pub anomalies: BTreeMap<Anomaly, u64>,
}

impl StreamFacts {
    /// The facts of these rows.
    #[must_use]
    pub fn of(rows: impl RowSource) -> Self {
        let mut facts = Self::default();
        rows.measured().for_each(|row| facts.add(row.borrow()));
        facts
    }

    fn add(&mut self, row: &RequestRow) {
        add_counters(&mut self.counters, &row.counters);
        let complete = is_complete_stream(row);
        self.missing_done += u64::from(complete && row.at.terminal.is_none());
        self.missing_finish_reason += u64::from(complete && row.finish_reasons.is_empty());
        self.cut_after_terminal += u64::from(row.cut_after_terminal);
        self.streamed_unasked += u64::from(row.streamed_unasked);
        self.role_chunk_first += u64::from(row.role_chunk_first);
        self.hidden_reasoning += u64::from(hides_reasoning(row));
        self.several_choices += u64::from(row.several_choices);
        for anomaly in row.anomalies.iter() {
            *self.anomalies.entry(anomaly).or_default() += 1;
        }
    }
}

/// The server counts reasoning that it does not send.
pub(super) fn hides_reasoning(row: &RequestRow) -> bool {
    row.usage.reasoning_tokens.is_some_and(|n| n > 0) && row.counters.reasoning_chunks == 0
}

/// Events came, and the answer was judged to be all there. What else was judged about it is another matter.
fn is_complete_stream(row: &RequestRow) -> bool {
    let complete = matches!(
        row.outcome,
        Outcome::Ok | Outcome::NoOutput | Outcome::CanaryFailed | Outcome::ControlledOutputFailed
    );
    complete && row.counters.events > 0
}

/// Taken apart by name, so that no new count is forgotten here.
fn add_counters(sums: &mut Counters, one: &Counters) {
    let Counters {
        events,
        reads,
        output_chunks,
        content_chunks,
        reasoning_chunks,
        tool_call_chunks,
        refusal_chunks,
        content_deltas,
        reasoning_deltas,
        usage_events,
        coalesced_chunks,
        textless_chunks,
        malformed_events,
        unrecognised_events,
        tolerated_events,
        invalid_utf8_events,
        events_after_done,
        keepalive_comments,
        bytes_sent,
        bytes_received,
        body_bytes,
    } = *one;
    for (sum, count) in [
        (&mut sums.events, events),
        (&mut sums.reads, reads),
        (&mut sums.output_chunks, output_chunks),
        (&mut sums.content_chunks, content_chunks),
        (&mut sums.reasoning_chunks, reasoning_chunks),
        (&mut sums.tool_call_chunks, tool_call_chunks),
        (&mut sums.refusal_chunks, refusal_chunks),
        (&mut sums.content_deltas, content_deltas),
        (&mut sums.reasoning_deltas, reasoning_deltas),
        (&mut sums.usage_events, usage_events),
        (&mut sums.coalesced_chunks, coalesced_chunks),
        (&mut sums.textless_chunks, textless_chunks),
        (&mut sums.malformed_events, malformed_events),
        (&mut sums.unrecognised_events, unrecognised_events),
        (&mut sums.tolerated_events, tolerated_events),
        (&mut sums.invalid_utf8_events, invalid_utf8_events),
        (&mut sums.events_after_done, events_after_done),
        (&mut sums.keepalive_comments, keepalive_comments),
        (&mut sums.bytes_sent, bytes_sent),
        (&mut sums.bytes_received, bytes_received),
        (&mut sums.body_bytes, body_bytes),
    ] {
        *sum = sum.saturating_add(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::rows::Rows;
    use crate::metrics::testing::row;
    use crate::record::Phase;

    #[test]
    fn counts_of_every_outcome_are_summed_and_warm_up_is_left_out() {
        let mut failed = row(1);
        failed.outcome = Outcome::TimeoutIdle;
        failed.counters = Counters { keepalive_comments: 5, malformed_events: u64::MAX, ..failed.counters };
        let mut drained = row(2);
        (drained.phase, drained.counters.malformed_events) = (Phase::Drain, 2);
        let mut warmup = failed.clone();
        warmup.phase = Phase::Warmup;
        failed.anomalies.insert(Anomaly::ObsFold);
        drained.anomalies = failed.anomalies;
        drained.anomalies.insert(Anomaly::ContentLengthRepeated);
        warmup.anomalies = failed.anomalies;
        let facts = StreamFacts::of(&[row(0), failed, drained, warmup]);
        let counters = facts.counters;
        assert_eq!((counters.events, counters.output_chunks, counters.keepalive_comments), (27, 18, 5));
        assert_eq!(counters.malformed_events, u64::MAX, "a file may say anything");
        let anomalies = BTreeMap::from([(Anomaly::ContentLengthRepeated, 1), (Anomaly::ObsFold, 2)]);
        assert_eq!(
            facts,
            StreamFacts { counters, anomalies, ..StreamFacts::default() },
            "nothing else is odd"
        );
        assert_eq!(StreamFacts::of(&Rows::new()), StreamFacts::default());
    }

    #[test]
    fn each_oddity_is_counted_where_it_can_be_one() {
        type Change = fn(&mut RequestRow);
        let one = |change: Change| {
            let mut odd = row(0);
            change(&mut odd);
            let StreamFacts { missing_done, missing_finish_reason, cut_after_terminal, .. } =
                StreamFacts::of(&[odd.clone()]);
            let StreamFacts { streamed_unasked, role_chunk_first, hidden_reasoning, several_choices, .. } =
                StreamFacts::of(&[odd]);
            let first = [missing_done, missing_finish_reason, cut_after_terminal];
            (first, [streamed_unasked, role_chunk_first, hidden_reasoning, several_choices])
        };
        let table: [(Change, _); 11] = [
            (|row| row.at.terminal = None, ([1, 0, 0], [0; 4])),
            (|row| row.finish_reasons.clear(), ([0, 1, 0], [0; 4])),
            (|row| row.cut_after_terminal = true, ([0, 0, 1], [0; 4])),
            (|row| row.streamed_unasked = true, ([0; 3], [1, 0, 0, 0])),
            (|row| row.role_chunk_first = true, ([0; 3], [0, 1, 0, 0])),
            (|row| row.counters.reasoning_chunks = 0, ([0; 3], [0, 0, 1, 0])),
            (|row| row.several_choices = true, ([0; 3], [0, 0, 0, 1])),
            (|row| (row.at.terminal, row.outcome) = (None, Outcome::CanaryFailed), ([1, 0, 0], [0; 4])),
            (|row| (row.at.terminal, row.outcome) = (None, Outcome::TruncatedStream), ([0; 3], [0; 4])),
            (|row| (row.at.terminal, row.counters.events) = (None, 0), ([0; 3], [0; 4])),
            (|row| (row.at.terminal, row.phase) = (None, Phase::Warmup), ([0; 3], [0; 4])),
        ];
        for (i, (change, expected)) in table.into_iter().enumerate() {
            assert_eq!(one(change), expected, "{i}");
        }
    }
}
