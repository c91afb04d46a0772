//! Drains the workers' rings while the run goes on, off the worker cores.
//!
//! A record and a chunk are scaled as soon as a later anchor exists, and packed: memory holds a quarter of a second of raw
//! stamps. Chunks wait for their request's end and go to a [`RowSink`] (the files); they are not kept, the summary reads
//! them back. Rows are kept, packed, and their lines are written from there when there is time: a line costs ten times
//! what all the rest does, and a server of plain HTTP may answer faster than lines can be made.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::aggregate::chunk::OutputChunk;
use crate::aggregate::heartbeat::Heartbeat;
use crate::aggregate::open::OpenChunks;
use crate::aggregate::rows::{RequestFacts, scale, scale_chunk};
use crate::aggregate::sink::RowSink;
use crate::clock::{Clock, Timeline};
use crate::metrics::rows::{Position, Rows};
use crate::record::mask::Mask;
use crate::record::{ChunkStamp, Ended, Inlet, Outcome, RequestRecord, RingFill};
use crate::units::Nanos;

/// Pause between two looks at the rings: a ring holds about a second at full speed, and 5 ms of two cores' time is
/// nothing to a thread that sleeps.
const PAUSE: Duration = Duration::from_millis(5);

/// Distance of anchors: long enough that 50 ns of reading noise are 0.2 ppm, short enough that slewing by NTP (at
/// most 500 ppm) changes little between two.
const ANCHOR_DISTANCE: Nanos = Nanos::from_millis(250);

/// How much of a run a killed process may lose.
const FLUSH_EVERY: Nanos = Nanos::from_secs(1);

/// Time for lines at one look at the rings: a tenth of the time between two looks, so that the collector stays out of the
/// way of a server on its core. It is enough for some 10,000 lines a second in an optimised build, more than any server of
/// language models ends; what is left over is written when the workers have ended.
const LINES_TIME: Nanos = Nanos(500_000);

/// Where more requests than this ended between two looks at the rings, lines wait: that is 10,000 a second, plain requests at
/// the limit of a machine, and whatever this core does for a line it does not do for the server beside it.
const MOST_ENDED: usize = 50;

/// Lines between two looks at the clock.
const LINES_AT_ONCE: usize = 8;

/// Numbers of a run that is going on, for the progress view. Written by the collector only.
#[derive(Debug, Default)]
pub struct LiveCounts {
    /// Requests that ended, any outcome.
    pub ended: AtomicU64,
    /// Requests that ended ok.
    pub ok: AtomicU64,
    /// Requests that failed.
    pub failed: AtomicU64,
    /// Output chunks.
    pub chunks: AtomicU64,
}

/// What the collector is told.
pub struct CollectorSetup<S> {
    /// A worker's number and its rings.
    pub inlets: Vec<(u32, Inlet)>,
    /// The run's axis, with its first anchor.
    pub timeline: Timeline,
    /// Its own clock.
    pub clock: Clock,
    /// What the plan knows about a request.
    pub facts: Box<dyn Fn(u64) -> RequestFacts + Send>,
    /// Keeps secrets out of what servers say.
    pub mask: Mask,
    /// Where rows go.
    pub sink: S,
    /// Live numbers.
    pub live: Arc<LiveCounts>,
    /// Set when the workers have ended: the rings are drained once more, then the collector ends.
    pub finished: Arc<AtomicBool>,
}

/// What a run left behind.
pub struct Collected<S> {
    /// Every request that was begun; those of one worker in order of their ends.
    pub rows: Rows,
    /// The axis, with all its anchors.
    pub timeline: Timeline,
    /// The sink.
    pub sink: S,
    /// The first error of the sink.
    pub sink_error: Option<io::Error>,
    /// Output chunks whose request record never came: only after a ring drop.
    pub orphan_chunks: u64,
    /// How full the fullest rings were when they were looked at, which is before they are emptied.
    pub ring_fill: RingFill,
    /// The longest time in which nothing of this process ran although nothing else had its core; `None` where the kernel
    /// does not say.
    pub stood_still: Option<Nanos>,
}

struct Collector<S> {
    setup: CollectorSetup<S>,
    /// Chunks of requests in flight, on the run's axis.
    open: HashMap<(u32, u64), OpenChunks>,
    /// Chunks that came after the newest anchor.
    raw: VecDeque<(u32, ChunkStamp)>,
    /// Requests that ended after the newest anchor.
    waiting: VecDeque<(u32, Ended)>,
    /// How many ended between the last two looks at the rings.
    ended_since: usize,
    next_anchor: Nanos,
    next_check: Nanos,
    next_flush: Nanos,
    rows: Rows,
    /// Up to which row lines have been written.
    written: Position,
    /// The chunks of one request, kept for the next one.
    unpacked: Vec<OutputChunk>,
    sink_error: Option<io::Error>,
    ring_fill: RingFill,
    heartbeat: Heartbeat,
}

/// Collects until the workers have ended. Runs on a thread of its own.
pub fn collect<S: RowSink>(setup: CollectorSetup<S>) -> Collected<S> {
    let begin = setup.clock.monotonic();
    let mut collector = Collector {
        open: HashMap::new(),
        raw: VecDeque::new(),
        waiting: VecDeque::new(),
        ended_since: 0,
        next_anchor: Nanos(begin.0.saturating_add(ANCHOR_DISTANCE.0)),
        next_check: Nanos(begin.0.saturating_add(ANCHOR_DISTANCE.0 / 2)),
        next_flush: Nanos(0),
        rows: Rows::new(),
        written: Position::default(),
        unpacked: Vec::new(),
        sink_error: None,
        ring_fill: RingFill::default(),
        heartbeat: Heartbeat::new(setup.clock.clone()),
        setup,
    };
    loop {
        // Read before draining: what the workers wrote before they ended is then in the rings.
        let last = collector.setup.finished.load(Ordering::Acquire);
        collector.drain();
        if last {
            break;
        }
        collector.anchor_when_due();
        if collector.ended_since <= MOST_ENDED {
            let until = collector.setup.clock.monotonic().0.saturating_add(LINES_TIME.0);
            collector.write_lines(Some(Nanos(until)));
        }
        collector.heartbeat.pause(PAUSE);
    }
    collector.setup.timeline.push(collector.setup.clock.anchor());
    // One more, with a reading before it, so that even the shortest run has one to check the clock by.
    std::thread::sleep(PAUSE / 2);
    collector.setup.timeline.check_against(collector.setup.clock.anchor());
    std::thread::sleep(PAUSE / 2);
    collector.setup.timeline.push(collector.setup.clock.anchor());
    collector.settle(true);
    collector.write_lines(None);
    collector.finish()
}

impl<S: RowSink> Collector<S> {
    /// Empties the rings.
    fn drain(&mut self) {
        self.ended_since = 0;
        for (worker, inlet) in &mut self.setup.inlets {
            self.ring_fill.raise(inlet.fill());
            // Records first: the chunks of a request are written before its record, so whatever record is seen here
            // has all its chunks in the other ring already.
            while let Some(ended) = inlet.pop() {
                self.waiting.push_back((*worker, ended));
                self.ended_since += 1;
            }
            let mut count = 0;
            while let Ok(chunk) = inlet.chunks.pop() {
                self.raw.push_back((*worker, chunk));
                count += 1;
            }
            self.setup.live.chunks.fetch_add(count, Ordering::Relaxed);
        }
    }

    fn anchor_when_due(&mut self) {
        let now = self.setup.clock.monotonic();
        if now >= self.next_check {
            // Half-way between two anchors, where a wrong scale shows most.
            self.next_check = Nanos(now.0.saturating_add(ANCHOR_DISTANCE.0));
            self.setup.timeline.check_against(self.setup.clock.anchor());
        }
        if now < self.next_anchor {
            return;
        }
        self.next_anchor = Nanos(now.0.saturating_add(ANCHOR_DISTANCE.0));
        self.setup.timeline.push(self.setup.clock.anchor());
        self.settle(false);
        if now >= self.next_flush {
            self.next_flush = Nanos(now.0.saturating_add(FLUSH_EVERY.0));
            let flushed = self.setup.sink.flush();
            self.keep_error(flushed);
        }
    }

    /// The first error is kept: the ones after it follow from it.
    fn keep_error(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            self.sink_error.get_or_insert(error);
        }
    }

    /// Scales what an anchor covers; `all` takes the rest too. A reading at an anchor waits for the next one: a stamp is
    /// scaled for a chunk and for a row at two times, and must come out the same.
    fn settle(&mut self, all: bool) {
        let covered = self.setup.timeline.covered_until();
        let is_covered = |chunk: &ChunkStamp| all || chunk.stamp.user < covered;
        while let Some((worker, chunk)) = pop_if(&mut self.raw, is_covered) {
            let open = self.open.entry((worker, chunk.serial)).or_default();
            open.push(scale_chunk(&chunk, &self.setup.timeline));
        }
        let is_ready = |ended: &Ended| all || ended.at() < covered;
        let mut counts = [0; 3];
        while let Some((worker, ended)) = pop_if(&mut self.waiting, is_ready) {
            let outcome = self.take(worker, ended.into_record());
            counts[0] += 1;
            counts[1] += u64::from(outcome == Outcome::Ok);
            counts[2] += u64::from(outcome.is_failed());
        }
        let LiveCounts { ended, ok, failed, .. } = &*self.setup.live;
        for (live, count) in [ended, ok, failed].into_iter().zip(counts) {
            live.fetch_add(count, Ordering::Relaxed);
        }
    }

    fn take(&mut self, worker: u32, record: RequestRecord) -> Outcome {
        let chunks = self.open.remove(&(worker, record.serial)).unwrap_or_default();
        let facts = (self.setup.facts)(record.index);
        let mut row = scale(record, chunks.totals(), worker, &self.setup.timeline, &facts);
        if let Some(detail) = row.error.as_mut() {
            self.setup.mask.apply(detail);
        }
        row.finish_reasons.iter_mut().for_each(|(_, reason)| self.setup.mask.text(reason));
        self.unpacked.clear();
        chunks.unpack_into(&mut self.unpacked);
        let written = self.setup.sink.chunks(&row, &self.unpacked);
        self.keep_error(written);
        self.rows.push(&row);
        row.outcome
    }

    /// Writes the lines that are not written yet, as far as the time goes.
    fn write_lines(&mut self, until: Option<Nanos>) {
        let mut rows = self.rows.after(self.written);
        let mut result = Ok(());
        while until.is_none_or(|until| self.setup.clock.monotonic() < until) {
            let mut left = false;
            for row in rows.by_ref().take(LINES_AT_ONCE) {
                result = result.and(self.setup.sink.row(&row));
                left = true;
            }
            if !left {
                break;
            }
        }
        self.written = rows.position();
        self.keep_error(result);
    }

    fn finish(self) -> Collected<S> {
        Collected {
            rows: self.rows,
            timeline: self.setup.timeline,
            sink: self.setup.sink,
            sink_error: self.sink_error,
            orphan_chunks: self.open.values().map(|open| open.totals().count).sum(),
            ring_fill: self.ring_fill,
            stood_still: self.heartbeat.longest(),
        }
    }
}

/// The first one, if it is one of those.
fn pop_if<T>(queue: &mut VecDeque<(u32, T)>, is_one: impl Fn(&T) -> bool) -> Option<(u32, T)> {
    if is_one(&queue.front()?.1) { queue.pop_front() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::row::RequestRow;
    use crate::record::{OutputKind, Phase, Stamp, StampKind, rings};

    #[derive(Default)]
    struct Kept {
        requests: Vec<(u64, usize)>,
        rows: Vec<RequestRow>,
        fails: bool,
        flushes: u32,
    }

    impl RowSink for Kept {
        fn chunks(&mut self, row: &RequestRow, chunks: &[OutputChunk]) -> io::Result<()> {
            self.requests.push((row.request_index, chunks.len()));
            if self.fails { Err(io::Error::from(io::ErrorKind::StorageFull)) } else { Ok(()) }
        }

        fn row(&mut self, row: &RequestRow) -> io::Result<()> {
            self.rows.push(row.clone());
            Ok(())
        }

        fn flush(&mut self) -> io::Result<()> {
            self.flushes += 1;
            Ok(())
        }
    }

    fn collected(sink: Kept, requests: u64, lose_record: Option<u64>) -> Collected<Kept> {
        let clock = Clock::new();
        let timeline = Timeline::new(clock.anchor());
        let (mut outlet, inlet) = rings();
        let finished = Arc::new(AtomicBool::new(false));
        let setup = CollectorSetup {
            inlets: vec![(3, inlet)],
            timeline,
            clock: clock.clone(),
            facts: Box::new(|index| RequestFacts {
                planned_context_tokens: Some(index),
                ..RequestFacts::default()
            }),
            mask: Mask::default(),
            sink,
            live: Arc::new(LiveCounts::default()),
            finished: Arc::clone(&finished),
        };
        let collector = std::thread::spawn(move || collect(setup));
        for serial in 0..requests {
            let stamp = Stamp { user: clock.ticks(), kernel: None };
            let mut record = RequestRecord::new(serial + 100, Phase::Measured, 0, stamp.user);
            (record.serial, record.outcome) = (serial, Outcome::Ok);
            for _ in 0..serial % 5 {
                let kind = OutputKind::Content;
                let not_before = stamp.user;
                outlet.chunk(ChunkStamp {
                    serial,
                    stamp,
                    not_before,
                    choice: 0,
                    ends_read: true,
                    kind,
                    tokens: None,
                });
            }
            record.set(StampKind::End, Stamp { user: clock.ticks(), kernel: None });
            if lose_record != Some(serial) {
                outlet.record(record);
            }
        }
        finished.store(true, Ordering::Release);
        collector.join().unwrap()
    }

    #[test]
    fn every_request_comes_out_once_with_its_chunks_and_its_facts() {
        let done = collected(Kept::default(), 2_000, None);
        let expected: Vec<(u64, usize)> = (0..2_000).map(|s| (s + 100, (s % 5) as usize)).collect();
        assert_eq!(done.sink.requests, expected);
        assert_eq!(done.orphan_chunks, 0);
        assert!(done.sink_error.is_none());
        assert_eq!(done.rows.iter().collect::<Vec<_>>(), done.sink.rows, "one line a row, in their order");
        for row in &done.rows {
            assert_eq!((row.planned_context_tokens, row.worker), (Some(row.request_index), 3));
            assert!(row.at.end.unwrap() >= row.due, "the axis keeps the order");
        }
        let check = done.timeline.check();
        assert!(check.drift_ppm.is_some(), "even a short run checks its clock");
        assert_eq!(check.inversions, 0);
    }

    #[test]
    fn chunks_without_a_record_are_counted() {
        let done = collected(Kept::default(), 10, Some(9));
        assert_eq!((done.rows.len(), done.orphan_chunks), (9, 4));
    }

    #[test]
    fn a_sink_that_fails_does_not_stop_the_collecting() {
        let done = collected(Kept { fails: true, ..Kept::default() }, 10, None);
        assert_eq!(done.rows.len(), 10);
        assert_eq!(done.sink_error.unwrap().kind(), io::ErrorKind::StorageFull);
    }
}
