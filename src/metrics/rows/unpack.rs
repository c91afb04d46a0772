//! Bytes to a row, in the order in which [`super::pack`] names its parts.

use super::coding::Unpacker;
use super::pack::{Before, KIND_BITS, NOT_KNOWN, OUTCOME_BITS, PHASE_BITS, SOURCE_BITS};
use crate::metrics::row::{
    CanaryObservation, ControlledOutputObservation, ReceiveStamps, RequestRow, StampSource, TokenSource,
};
use crate::record::{
    Anomalies, Counters, ErrorDetail, Outcome, OutputKind, Phase, StampKind, TransportFacts, Usage,
};
use crate::units::Nanos;

const PHASES: [Phase; 3] = [Phase::Warmup, Phase::Measured, Phase::Drain];
const KINDS: [OutputKind; 4] =
    [OutputKind::Reasoning, OutputKind::Content, OutputKind::ToolCall, OutputKind::Refusal];
const SOURCES: [TokenSource; 5] = [
    TokenSource::Usage,
    TokenSource::ContinuousUsage,
    TokenSource::Tokenizer,
    TokenSource::ContentChunks,
    TokenSource::Unknown,
];
/// The row at the front of `bytes`; `None` for those of no row.
pub(super) fn unpack(bytes: &mut &[u8], before: &mut Before) -> Option<RequestRow> {
    let mut reader = Unpacker::new(bytes)?;
    let from = &mut reader;
    let request_index = before.request_index.wrapping_add(from.signed()?.cast_unsigned());
    let connection_id = before.connection_id.wrapping_add(from.signed()?.cast_unsigned());
    let due = Nanos(before.due.0.wrapping_add(from.signed()?));
    *before = Before { request_index, connection_id, due };
    let (slot, worker) = (from.count()?, from.count()?);
    let (connection_use, stale_connections) = (from.count()?, from.count()?);
    let phase = place(&PHASES, from.bits(PHASE_BITS))?;
    let outcome = place(&Outcome::ALL, from.bits(OUTCOME_BITS))?;
    let http_status = from.maybe()?;
    let dns = from.instant(Nanos(0))?;
    let (connect_start, connect) = (from.instant(due)?, from.instant(Nanos(0))?);
    let tls = from.instant(Nanos(0))?;
    let send_start = from.instant(due)?;
    let sent = send_start.unwrap_or(due);
    let send_end = from.instant(sent)?;
    let (sent_wire, transport) = (from.instant(sent)?, from.transport()?);
    let (at, user) = from.stamps(sent)?;
    // Fields are computed in the order in which they are written here.
    let row = RequestRow {
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
        stamp_source: if from.bit() { StampSource::User } else { StampSource::Kernel },
        first_output_kind: from.kind()?,
        several_choices: from.bit(),
        one_output_read: from.bit(),
        counters: from.counters()?,
        usage: from.usage()?,
        output_tokens: from.maybe()?,
        output_token_source: place(&SOURCES, from.bits(SOURCE_BITS))?,
        first_chunk_tokens: from.maybe()?,
        chunk_tokens: from.maybe()?,
        finish_reasons: from.finish_reasons()?,
        planned_context_tokens: from.maybe()?,
        requested_max_tokens: from.maybe()?,
        visible_content_truncated: from.bit(),
        cut_after_terminal: from.bit(),
        role_chunk_first: from.bit(),
        streamed_unasked: from.bit(),
        anomalies: Anomalies::from_bits(from.count()?),
        canary: if from.bit() { Some(from.canary()?) } else { None },
        controlled_output: if from.bit() { Some(from.controlled_output()?) } else { None },
        error: if from.bit() { Some(from.error()?) } else { None },
    };
    *bytes = reader.rest();
    Some(row)
}

impl Unpacker<'_> {
    fn stamps(&mut self, sent: Nanos) -> Option<(ReceiveStamps, ReceiveStamps)> {
        let mut found = ([None; StampKind::COUNT], [None; StampKind::COUNT]);
        let (mut from, mut delay) = (sent, Nanos(0));
        for (at, user) in found.0.iter_mut().zip(&mut found.1) {
            *at = self.instant(from)?;
            from = at.unwrap_or(from);
            *user = self.instant(Nanos(from.0.wrapping_add(delay.0)))?;
            delay = user.map_or(delay, |user| Nanos(user.0.wrapping_sub(from.0)));
        }
        Some((of_order(found.0), of_order(found.1)))
    }

    /// The outer `None` is for damaged bytes.
    #[expect(clippy::option_option, reason = "a missing value and missing bytes are two things")]
    fn kind(&mut self) -> Option<Option<OutputKind>> {
        let (is_known, kind) = (self.bit(), place(&KINDS, self.bits(KIND_BITS))?);
        Some(is_known.then_some(kind))
    }

    fn counters(&mut self) -> Option<Counters> {
        Some(Counters {
            events: self.count()?,
            reads: self.count()?,
            output_chunks: self.count()?,
            content_chunks: self.count()?,
            reasoning_chunks: self.count()?,
            tool_call_chunks: self.count()?,
            refusal_chunks: self.count()?,
            content_deltas: self.count()?,
            reasoning_deltas: self.count()?,
            usage_events: self.count()?,
            coalesced_chunks: self.count()?,
            textless_chunks: self.count()?,
            malformed_events: self.count()?,
            unrecognised_events: self.count()?,
            tolerated_events: self.count()?,
            invalid_utf8_events: self.count()?,
            events_after_done: self.count()?,
            keepalive_comments: self.count()?,
            bytes_sent: self.count()?,
            bytes_received: self.count()?,
            body_bytes: self.count()?,
        })
    }

    fn transport(&mut self) -> Option<TransportFacts> {
        Some(TransportFacts { rtt_us: self.maybe()?, retransmits: self.maybe()?, unacked_us: self.maybe()? })
    }

    fn usage(&mut self) -> Option<Usage> {
        Some(Usage {
            prompt_tokens: self.maybe()?,
            completion_tokens: self.maybe()?,
            total_tokens: self.maybe()?,
            reasoning_tokens: self.maybe()?,
            cached_tokens: self.maybe()?,
            cache_creation_tokens: self.maybe()?,
            cache_counted_apart: self.bit(),
        })
    }

    fn finish_reasons(&mut self) -> Option<Vec<(u32, String)>> {
        let count: usize = self.count()?;
        (0..count).map(|_| Some((self.unsigned()?, self.text()?))).collect()
    }

    fn canary(&mut self) -> Option<CanaryObservation> {
        let marker = self.text()?;
        let (observed_marker_count, foreign_marker_count) = (self.unsigned()?, self.unsigned()?);
        let (marker_at_start, capture_complete, passed) = (self.truth()?, self.truth()?, self.truth()?);
        Some(CanaryObservation {
            marker,
            marker_at_start,
            observed_marker_count,
            foreign_marker_count,
            capture_complete,
            passed,
        })
    }

    fn controlled_output(&mut self) -> Option<ControlledOutputObservation> {
        let (requested_words, observed_code_words) = (self.unsigned()?, self.unsigned()?);
        let observed_extra_words = self.unsigned()?;
        let (strict, capture_complete, passed) = (self.truth()?, self.truth()?, self.truth()?);
        let exact_adherence = match self.unsigned()? {
            NOT_KNOWN => None,
            known => Some(known != 0),
        };
        Some(ControlledOutputObservation {
            requested_words,
            strict,
            observed_code_words,
            observed_extra_words,
            capture_complete,
            exact_adherence,
            passed,
        })
    }

    fn error(&mut self) -> Option<ErrorDetail> {
        let message = self.text()?;
        let offset = self.maybe()?;
        Some(ErrorDetail {
            message,
            offset,
            code: self.maybe_text()?,
            error_type: self.maybe_text()?,
            retry_after: self.maybe_text()?,
            location: self.maybe_text()?,
            body_start: self.bytes()?.to_vec(),
        })
    }

    fn truth(&mut self) -> Option<bool> {
        Some(self.unsigned::<u8>()? != 0)
    }
}

fn place<T: Copy>(all: &[T], number: u32) -> Option<T> {
    all.get(usize::try_from(number).ok()?).copied()
}

fn of_order(stamps: [Option<Nanos>; StampKind::COUNT]) -> ReceiveStamps {
    let [
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
    ] = stamps;
    ReceiveStamps {
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
    }
}
