//! A plain request in two cache lines.
//!
//! An answer without events fills few fields of a [`RequestRecord`], and plain requests end two hundred thousand times a
//! second. What goes from core to core then is this, a sixth of the bytes; nothing is lost on the way, because a record of
//! which anything else is known goes as it is.

use crate::record::{
    Anomalies, Counters, Outcome, Phase, RequestRecord, Stamp, StampKind, TransportFacts, Usage,
};
use crate::units::Ticks;

/// The stamps that such an answer has.
const KINDS: [StampKind; 3] = [StampKind::FirstByte, StampKind::HeadDone, StampKind::End];

/// A request on a kept connection that was sent whole and answered without an event.
#[derive(Debug, Clone, Copy)]
pub struct PlainRecord {
    serial: u64,
    index: u64,
    connection_id: u64,
    due: Ticks,
    send_start: Ticks,
    send_end: Ticks,
    /// By [`KINDS`].
    stamps: [Stamp; KINDS.len()],
    bytes_received: u64,
    body_bytes: u64,
    bytes_sent: u32,
    reads: u32,
    slot: u32,
    connection_use: u32,
    http_status: u16,
    phase: Phase,
    outcome: Outcome,
}

impl PlainRecord {
    /// The same as `record`; `None` where that says more than fits here.
    pub(super) fn of(record: &RequestRecord) -> Option<Self> {
        // Taken apart by name, so that no new field is forgotten.
        let RequestRecord {
            serial,
            index,
            phase,
            slot,
            connection_id,
            connection_use,
            stale_connections: 0,
            outcome,
            http_status: Some(http_status),
            due,
            connect: None,
            send_start: Some(send_start),
            send_end: Some(send_end),
            sent_wire: None,
            transport: TransportFacts { rtt_us: None, retransmits: None, unacked_us: None },
            stamps,
            user_stamps_only: false,
            first_output_kind: None,
            several_choices: false,
            counters,
            usage,
            finish,
            cut_after_terminal: false,
            role_chunk_first: false,
            streamed_unasked: false,
            anomalies,
            error: None,
            text_truncated: false,
            text: None,
        } = record
        else {
            return None;
        };
        let Counters { reads, bytes_sent, bytes_received, body_bytes, .. } = *counters;
        let nothing_more = *counters
            == Counters { reads, bytes_sent, bytes_received, body_bytes, ..Counters::default() }
            && *usage == Usage::default()
            && finish.is_empty()
            && *anomalies == Anomalies::NONE
            && stamps.are_just(&KINDS);
        let [first_byte, head_done, end] = KINDS.map(|kind| stamps.get(kind));
        nothing_more.then_some(())?;
        Some(Self {
            serial: *serial,
            index: *index,
            connection_id: *connection_id,
            due: *due,
            send_start: *send_start,
            send_end: *send_end,
            stamps: [first_byte?, head_done?, end?],
            bytes_received,
            body_bytes,
            bytes_sent: u32::try_from(bytes_sent).ok()?,
            reads: u32::try_from(reads).ok()?,
            slot: *slot,
            connection_use: *connection_use,
            http_status: *http_status,
            phase: *phase,
            outcome: *outcome,
        })
    }

    /// When it ended.
    pub(super) fn ended(&self) -> Ticks {
        let [.., end] = self.stamps;
        end.user
    }

    /// The record that this was made of.
    pub(super) fn to_record(self) -> RequestRecord {
        let mut record = RequestRecord::new(self.index, self.phase, self.slot, self.due);
        record.serial = self.serial;
        record.connection_id = self.connection_id;
        record.connection_use = self.connection_use;
        record.outcome = self.outcome;
        record.http_status = Some(self.http_status);
        record.send_start = Some(self.send_start);
        record.send_end = Some(self.send_end);
        for (kind, stamp) in KINDS.into_iter().zip(self.stamps) {
            record.set(kind, stamp);
        }
        record.counters = Counters {
            reads: u64::from(self.reads),
            bytes_sent: u64::from(self.bytes_sent),
            bytes_received: self.bytes_received,
            body_bytes: self.body_bytes,
            ..Counters::default()
        };
        record
    }
}
