//! Where a worker's records go: two lock-free rings to the collector. A full ring is a counted drop, never a wait.

use rtrb::{Consumer, Producer, RingBuffer};

use crate::record::{ChunkStamp, RequestRecord};

/// Output chunks a worker can write down while the collector is away: at 300,000 events a second, what one core reads
/// at its limit, this is 0.9 s; 16 MiB.
const CHUNK_RING: usize = 256 * 1024;

/// The same for requests: at 60,000 plain ones a second, what one core does against a server beside it, this is 1.1 s.
/// About 45 MiB, of which only what was ever used is resident.
const RECORD_RING: usize = 64 * 1024;

/// A worker's end of its rings.
#[derive(Debug)]
pub struct Outlet {
    chunks: Producer<ChunkStamp>,
    records: Producer<RequestRecord>,
    lost_chunks: u64,
    lost_records: u64,
}

/// The collector's end of a worker's rings.
#[derive(Debug)]
pub struct Inlet {
    /// Output chunks; those of a request come before its record.
    pub chunks: Consumer<ChunkStamp>,
    /// Requests that have ended.
    pub records: Consumer<RequestRecord>,
}

/// A pair of rings.
#[must_use]
pub fn rings() -> (Outlet, Inlet) {
    let (chunk_in, chunk_out) = RingBuffer::new(CHUNK_RING);
    let (record_in, record_out) = RingBuffer::new(RECORD_RING);
    (
        Outlet { chunks: chunk_in, records: record_in, lost_chunks: 0, lost_records: 0 },
        Inlet { chunks: chunk_out, records: record_out },
    )
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
            records: share(self.records.slots(), RECORD_RING),
            chunks: share(self.chunks.slots(), CHUNK_RING),
        }
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
        self.lost_records += u64::from(self.records.push(record).is_err());
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
    use crate::record::Phase;
    use crate::units::Ticks;

    #[test]
    fn a_full_ring_counts_drops_and_loses_nothing_older() {
        let (mut outlet, mut inlet) = rings();
        for index in 0..RECORD_RING as u64 + 3 {
            outlet.record(RequestRecord::new(index, Phase::Measured, 0, Ticks(0)));
        }
        assert_eq!((outlet.lost_records(), outlet.lost_chunks()), (3, 0));
        assert_eq!(inlet.fill(), RingFill { records: 1.0, chunks: 0.0 });
        let mut expected = 0;
        while let Ok(record) = inlet.records.pop() {
            assert_eq!(record.index, expected);
            expected += 1;
        }
        assert_eq!(expected, RECORD_RING as u64);
    }
}
