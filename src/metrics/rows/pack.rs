//! A row to bytes. The row is taken apart by name, so that a field that is added is not forgotten; [`super::unpack`] names
//! its parts in the same order.

use super::coding::Packer;
use crate::metrics::row::{
    CanaryObservation, ControlledOutputObservation, ReceiveStamps, RequestRow, StampSource,
};
use crate::record::{Counters, ErrorDetail, StampKind, TransportFacts, Usage};
use crate::units::Nanos;

/// What is told as a difference from the row before it in the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Before {
    pub(super) request_index: u64,
    pub(super) connection_id: u64,
    pub(super) due: Nanos,
}

/// In place of a truth value.
pub(super) const NOT_KNOWN: u8 = 2;
pub(super) const KIND_BITS: u32 = 2;
pub(super) const SOURCE_BITS: u32 = 3;
pub(super) const PHASE_BITS: u32 = 2;
pub(super) const OUTCOME_BITS: u32 = 6;

impl Packer {
    /// The bytes of a row, ready to be appended; how many there are at most.
    pub(super) fn pack(&mut self, row: &RequestRow, before: &mut Before) -> usize {
        self.clear();
        self.row(row, before);
        self.size()
    }

    #[expect(clippy::too_many_lines, reason = "a table: one field a line")]
    fn row(&mut self, row: &RequestRow, before: &mut Before) {
        let RequestRow {
            request_index,
            slot,
            worker,
            connection_id,
            connection_use,
            stale_connections,
            phase,
            outcome,
            http_status,
            due,
            dns,
            connect_start,
            connect,
            tls,
            send_start,
            send_end,
            sent_wire,
            transport,
            at,
            user,
            stamp_source,
            first_output_kind,
            several_choices,
            one_output_read,
            counters,
            usage,
            output_tokens,
            output_token_source,
            first_chunk_tokens,
            chunk_tokens,
            finish_reasons,
            planned_context_tokens,
            requested_max_tokens,
            canary,
            controlled_output,
            visible_content_truncated,
            cut_after_terminal,
            role_chunk_first,
            streamed_unasked,
            anomalies,
            error,
        } = row;
        self.signed(request_index.wrapping_sub(before.request_index).cast_signed());
        self.signed(connection_id.wrapping_sub(before.connection_id).cast_signed());
        self.signed(due.0.wrapping_sub(before.due.0));
        *before = Before { request_index: *request_index, connection_id: *connection_id, due: *due };
        self.count(*slot);
        self.count(*worker);
        self.count(*connection_use);
        self.count(*stale_connections);
        self.bits(*phase as u32, PHASE_BITS);
        self.bits(*outcome as u32, OUTCOME_BITS);
        self.maybe(*http_status);
        self.instant(*dns, Nanos(0));
        self.instant(*connect_start, *due);
        self.instant(*connect, Nanos(0));
        self.instant(*tls, Nanos(0));
        self.instant(*send_start, *due);
        let sent = send_start.unwrap_or(*due);
        self.instant(*send_end, sent);
        self.instant(*sent_wire, sent);
        self.transport(*transport);
        self.stamps(at, user, sent);
        self.bit(*stamp_source == StampSource::User);
        self.bit(first_output_kind.is_some());
        self.bits(first_output_kind.map_or(0, |kind| kind as u32), KIND_BITS);
        self.bit(*several_choices);
        self.bit(*one_output_read);
        self.counters(counters);
        self.usage(usage);
        self.maybe(*output_tokens);
        self.bits(*output_token_source as u32, SOURCE_BITS);
        self.maybe(*first_chunk_tokens);
        self.maybe(*chunk_tokens);
        self.finish_reasons(finish_reasons);
        self.maybe(*planned_context_tokens);
        self.maybe(*requested_max_tokens);
        self.bit(*visible_content_truncated);
        self.bit(*cut_after_terminal);
        self.bit(*role_chunk_first);
        self.bit(*streamed_unasked);
        self.count(anomalies.bits());
        self.bit(canary.is_some());
        canary.iter().for_each(|seen| self.canary(seen));
        self.bit(controlled_output.is_some());
        controlled_output.iter().for_each(|seen| self.controlled_output(seen));
        self.bit(error.is_some());
        error.iter().for_each(|error| self.error(error));
    }

    /// Each stamp after the one before it; a user-space stamp as its distance from the other one, less that of the
    /// kind before it, which is the same where both came in one read.
    fn stamps(&mut self, at: &ReceiveStamps, user: &ReceiveStamps, sent: Nanos) {
        let (mut from, mut delay) = (sent, Nanos(0));
        for (at, user) in in_order(at).into_iter().zip(in_order(user)) {
            self.instant(at, from);
            from = at.unwrap_or(from);
            self.instant(user, Nanos(from.0.wrapping_add(delay.0)));
            delay = user.map_or(delay, |user| Nanos(user.0.wrapping_sub(from.0)));
        }
    }

    fn counters(&mut self, counters: &Counters) {
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
        } = *counters;
        for count in [
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
        ] {
            self.count(count);
        }
    }

    fn transport(&mut self, facts: TransportFacts) {
        let TransportFacts { rtt_us, retransmits, unacked_us } = facts;
        [rtt_us, retransmits, unacked_us].into_iter().for_each(|n| self.maybe(n));
    }

    fn usage(&mut self, usage: &Usage) {
        let Usage {
            prompt_tokens,
            completion_tokens,
            total_tokens,
            reasoning_tokens,
            cached_tokens,
            cache_creation_tokens,
            cache_counted_apart,
        } = *usage;
        let of_answer = [prompt_tokens, completion_tokens, total_tokens, reasoning_tokens];
        of_answer.into_iter().chain([cached_tokens, cache_creation_tokens]).for_each(|n| self.maybe(n));
        self.bit(cache_counted_apart);
    }

    fn finish_reasons(&mut self, reasons: &[(u32, String)]) {
        self.count(reasons.len() as u64);
        for (choice, reason) in reasons {
            self.unsigned(*choice);
            self.bytes(reason.as_bytes());
        }
    }

    fn canary(&mut self, seen: &CanaryObservation) {
        let CanaryObservation {
            marker,
            marker_at_start,
            observed_marker_count,
            foreign_marker_count,
            capture_complete,
            passed,
        } = seen;
        self.bytes(marker.as_bytes());
        self.unsigned(*observed_marker_count);
        self.unsigned(*foreign_marker_count);
        [marker_at_start, capture_complete, passed].into_iter().for_each(|bit| self.unsigned(*bit));
    }

    fn controlled_output(&mut self, seen: &ControlledOutputObservation) {
        let ControlledOutputObservation {
            requested_words,
            strict,
            observed_code_words,
            observed_extra_words,
            capture_complete,
            exact_adherence,
            passed,
        } = seen;
        [requested_words, observed_code_words, observed_extra_words]
            .into_iter()
            .for_each(|n| self.unsigned(*n));
        [strict, capture_complete, passed].into_iter().for_each(|bit| self.unsigned(*bit));
        self.unsigned(exact_adherence.map_or(NOT_KNOWN, u8::from));
    }

    fn error(&mut self, error: &ErrorDetail) {
        let ErrorDetail { message, offset, code, error_type, retry_after, location, body_start } = error;
        self.bytes(message.as_bytes());
        self.maybe(*offset);
        [code, error_type, retry_after, location]
            .into_iter()
            .for_each(|text| self.maybe_text(text.as_deref()));
        self.bytes(body_start);
    }
}

fn in_order(at: &ReceiveStamps) -> [Option<Nanos>; StampKind::COUNT] {
    let ReceiveStamps {
        first_byte,
        head_done,
        first_event,
        first_output,
        first_reasoning,
        first_content,
        first_tool_call,
        last_output,
        first_usage_token,
        first_textless,
        last_textless,
        terminal,
        end,
    } = *at;
    [
        first_byte,
        head_done,
        first_event,
        first_output,
        first_reasoning,
        first_content,
        first_tool_call,
        last_output,
        first_usage_token,
        first_textless,
        last_textless,
        terminal,
        end,
    ]
}
