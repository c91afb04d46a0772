//! Where a worker's records go: lock-free rings to the collector. A full ring is a counted drop, never a wait.

use rtrb::{Consumer, Producer, RingBuffer};

use crate::record::plain::PlainRecord;
use crate::record::{ChunkStamp, RequestRecord, StampKind};
use crate::units::Ticks;

/// Output chunks a worker can write down while the collector is away: at 300,000 events a second, what one core reads
/// at its limit, this is 0.9 s; 12 MiB.
const CHUNK_RING: usize = 256 * 1024;

/// The same for requests that are no plain ones. Of streams one core ends fewer than 20,000 a second: 3 s. About 45 MiB, of
/// which only what was ever used is resident.
const RECORD_RING: usize = 64 * 1024;

/// The same for plain requests: at 200,000 a second, what one core does against a server beside it, this is 1.3 s. About 36
/// MiB, of which only what was ever used is resident.
const PLAIN_RING: usize = 256 * 1024;

/// A worker's end of its rings.
#[derive(Debug)]
pub struct Outlet {
    chunks: Producer<ChunkStamp>,
    records: Producer<RequestRecord>,
    plain: Producer<PlainRecord>,
    lost_chunks: u64,
    lost_records: u64,
}

/// The collector's end of a worker's rings.
#[derive(Debug)]
pub struct Inlet {
    /// Output chunks; those of a request come before its record.
    pub chunks: Consumer<ChunkStamp>,
    records: Consumer<RequestRecord>,
    plain: Consumer<PlainRecord>,
}

/// A request that has ended, as it came.
#[derive(Debug)]
pub enum Ended {
    /// A plain one.
    Plain(PlainRecord),
    /// Any other.
    Full(Box<RequestRecord>),
}

/// The rings of a worker.
#[must_use]
pub fn rings() -> (Outlet, Inlet) {
    let (chunk_in, chunk_out) = RingBuffer::new(CHUNK_RING);
    let (record_in, record_out) = RingBuffer::new(RECORD_RING);
    let (plain_in, plain_out) = RingBuffer::new(PLAIN_RING);
    (
        Outlet { chunks: chunk_in, records: record_in, plain: plain_in, lost_chunks: 0, lost_records: 0 },
        Inlet { chunks: chunk_out, records: record_out, plain: plain_out },
    )
}

impl Ended {
    /// When it ended.
    #[must_use]
    pub fn at(&self) -> Ticks {
        match self {
            Self::Plain(record) => record.ended(),
            Self::Full(record) => end_of(record),
        }
    }

    /// Its record.
    #[must_use]
    pub fn into_record(self) -> RequestRecord {
        match self {
            Self::Plain(record) => record.to_record(),
            Self::Full(record) => *record,
        }
    }
}

fn end_of(record: &RequestRecord) -> Ticks {
    record.stamp(StampKind::End).map_or(Ticks(0), |stamp| stamp.user)
}

/// How full a pair of rings was: the highest share of their places that a look found taken. In a run that lost nothing
/// it says how near that was.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RingFill {
    /// Of the ring of requests.
    pub records: f64,
    /// Of the ring of output chunks.
    pub chunks: f64,
}

impl RingFill {
    /// Takes over what is higher in another one.
    pub fn raise(&mut self, other: Self) {
        (self.records, self.chunks) = (self.records.max(other.records), self.chunks.max(other.chunks));
    }
}

impl Inlet {
    /// How full the rings are now.
    #[must_use]
    pub fn fill(&self) -> RingFill {
        RingFill {
            records: share(self.records.slots(), RECORD_RING).max(share(self.plain.slots(), PLAIN_RING)),
            chunks: share(self.chunks.slots(), CHUNK_RING),
        }
    }
}

impl Inlet {
    /// Takes the next request that has ended, in the order of their ends.
    pub fn pop(&mut self) -> Option<Ended> {
        let full = self.records.peek().map(end_of);
        let plain = self.plain.peek().map(PlainRecord::ended);
        match (full, plain) {
            (Ok(full), Ok(plain)) if full <= plain => self.pop_full(),
            // One that ended before this plain one may have come after the look at the other ring.
            (Err(_), Ok(plain)) if self.records.peek().is_ok_and(|full| end_of(full) <= plain) => {
                self.pop_full()
            }
            (_, Ok(_)) => self.plain.pop().map(Ended::Plain).ok(),
            (_, Err(_)) => self.pop_full(),
        }
    }

    fn pop_full(&mut self) -> Option<Ended> {
        self.records.pop().map(|record| Ended::Full(Box::new(record))).ok()
    }
}

#[expect(clippy::cast_precision_loss, reason = "rings are far below 2^53")]
fn share(taken: usize, places: usize) -> f64 {
    taken as f64 / places as f64
}

impl Outlet {
    /// Writes down an output chunk.
    #[inline]
    pub fn chunk(&mut self, chunk: ChunkStamp) {
        self.lost_chunks += u64::from(self.chunks.push(chunk).is_err());
    }

    /// Writes down a request that has ended.
    pub fn record(&mut self, record: RequestRecord) {
        let is_lost = match PlainRecord::of(&record) {
            Some(plain) => self.plain.push(plain).is_err(),
            None => self.records.push(record).is_err(),
        };
        self.lost_records += u64::from(is_lost);
    }

    /// Output chunks that did not fit so far.
    #[must_use]
    pub fn lost_chunks(&self) -> u64 {
        self.lost_chunks
    }

    /// Requests that did not fit so far.
    #[must_use]
    pub fn lost_records(&self) -> u64 {
        self.lost_records
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Anomaly, Outcome, OutputKind, Phase, Stamp};
    use crate::units::UnixNanos;

    #[test]
    fn a_full_ring_counts_drops_and_loses_nothing_older() {
        let (mut outlet, mut inlet) = rings();
        for index in 0..RECORD_RING as u64 + 3 {
            outlet.record(RequestRecord::new(index, Phase::Measured, 0, Ticks(0)));
        }
        assert_eq!((outlet.lost_records(), outlet.lost_chunks()), (3, 0));
        let found: Vec<u64> =
            std::iter::from_fn(|| inlet.pop()).map(|ended| ended.into_record().index).collect();
        assert!(found.into_iter().eq(0..RECORD_RING as u64));
    }

    /// An answer without events, that ended at these ticks.
    fn plain(index: u64, end: u64) -> RequestRecord {
        let mut record = RequestRecord::new(index, Phase::Measured, 7, Ticks(1));
        (record.serial, record.connection_id, record.connection_use) = (index + 1, 3, 4);
        (record.outcome, record.http_status) = (Outcome::Ok, Some(204));
        (record.send_start, record.send_end) = (Some(Ticks(5)), Some(Ticks(6)));
        for (kind, user) in [(StampKind::FirstByte, 8), (StampKind::HeadDone, 9), (StampKind::End, end)] {
            record.set(kind, Stamp { user: Ticks(user), kernel: UnixNanos::new(1_000) });
        }
        let counters = &mut record.counters;
        (counters.reads, counters.bytes_sent) = (2, 300);
        (counters.bytes_received, counters.body_bytes) = (u64::MAX, 1 << 40);
        record
    }

    #[test]
    fn plain_and_other_requests_come_in_the_order_of_their_ends_and_as_they_were() {
        let mut more = plain(1, 20);
        more.counters.events = 1;
        let mut huge = plain(3, 40);
        huge.counters.bytes_sent = 1 << 40;
        let all = [plain(0, 10), more, plain(2, 30), huge, plain(4, 50)];
        let (mut outlet, mut inlet) = rings();
        all.iter().for_each(|record| outlet.record(record.clone()));
        assert_eq!((inlet.plain.slots(), inlet.records.slots()), (3, 2));
        for record in all {
            let ended = inlet.pop().unwrap();
            assert_eq!(ended.at(), record.stamp(StampKind::End).unwrap().user);
            assert_eq!(format!("{:?}", ended.into_record()), format!("{record:?}"));
        }
        assert!(inlet.pop().is_none());
    }

    #[test]
    fn whatever_a_plain_record_cannot_hold_goes_as_it_is() {
        type Change = fn(&mut RequestRecord);
        let changes: [Change; 20] = [
            |r| r.stale_connections = 1,
            |r| r.http_status = None,
            |r| r.connect = Some((Ticks(1), None)),
            |r| r.send_start = None,
            |r| r.send_end = None,
            |r| r.sent_wire = UnixNanos::new(1),
            |r| r.transport.rtt_us = Some(1),
            |r| r.user_stamps_only = true,
            |r| r.first_output_kind = Some(OutputKind::Content),
            |r| r.several_choices = true,
            |r| r.counters.keepalive_comments = 1,
            |r| r.usage.total_tokens = Some(1),
            |r| r.finish.push(0, "stop"),
            |r| r.cut_after_terminal = true,
            |r| r.role_chunk_first = true,
            |r| r.streamed_unasked = true,
            |r| r.anomalies.insert(Anomaly::ObsFold),
            |r| r.error = Some(Box::default()),
            |r| r.text = Some(Box::default()),
            |r| r.set(StampKind::FirstEvent, Stamp { user: Ticks(9), kernel: None }),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut record = plain(0, 10);
            change(&mut record);
            assert!(PlainRecord::of(&record).is_none(), "change {number}");
        }
    }
}
