//! Drains the workers' rings while the run goes on, off the worker cores.
//!
//! A record is scaled as soon as an anchor later than its end exists, so memory holds what is in flight and not the
//! run's whole history of raw stamps. Every row and its output chunks go to a [`RowSink`] (the files); rows are kept for
//! the summary too, chunks are not: there may be millions, and the summary reads them back.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::aggregate::heartbeat::Heartbeat;
use crate::aggregate::rows::{RequestFacts, scale};
use crate::aggregate::sink::RowSink;
use crate::clock::{Clock, Timeline};
use crate::metrics::row::RequestRow;
use crate::record::mask::Mask;
use crate::record::{ChunkStamp, Inlet, Outcome, RequestRecord, RingFill, StampKind};
use crate::units::{Nanos, Ticks};

/// Pause between two looks at the rings: a ring holds about a second at full speed, and 5 ms of two cores' time is
/// nothing to a thread that sleeps.
const PAUSE: Duration = Duration::from_millis(5);

/// Distance of anchors: long enough that 50 ns of reading noise are 0.2 ppm, short enough that slewing by NTP (at
/// most 500 ppm) changes little between two.
const ANCHOR_DISTANCE: Nanos = Nanos::from_millis(250);

/// How much of a run a killed process may lose.
const FLUSH_EVERY: Nanos = Nanos::from_secs(1);

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
    /// Every request that was begun, in order of their ends.
    pub rows: Vec<RequestRow>,
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
    /// Chunks of requests in flight.
    open: HashMap<(u32, u64), Vec<ChunkStamp>>,
    /// Requests that ended after the newest anchor.
    waiting: Vec<(u32, RequestRecord)>,
    next_anchor: Nanos,
    next_check: Nanos,
    next_flush: Nanos,
    rows: Vec<RequestRow>,
    sink_error: Option<io::Error>,
    ring_fill: RingFill,
    heartbeat: Heartbeat,
}

/// Collects until the workers have ended. Runs on a thread of its own.
pub fn collect<S: RowSink>(setup: CollectorSetup<S>) -> Collected<S> {
    let begin = setup.clock.monotonic();
    let mut collector = Collector {
        open: HashMap::new(),
        waiting: Vec::new(),
        next_anchor: Nanos(begin.0.saturating_add(ANCHOR_DISTANCE.0)),
        next_check: Nanos(begin.0.saturating_add(ANCHOR_DISTANCE.0 / 2)),
        next_flush: Nanos(0),
        rows: Vec::new(),
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
        collector.heartbeat.pause(PAUSE);
    }
    collector.setup.timeline.push(collector.setup.clock.anchor());
    // One more, with a reading before it, so that even the shortest run has one to check the clock by.
    std::thread::sleep(PAUSE / 2);
    collector.setup.timeline.check_against(collector.setup.clock.anchor());
    std::thread::sleep(PAUSE / 2);
    collector.setup.timeline.push(collector.setup.clock.anchor());
    collector.settle(true);
    collector.finish()
}

impl<S: RowSink> Collector<S> {
    /// Empties the rings.
    fn drain(&mut self) {
        for (worker, inlet) in &mut self.setup.inlets {
            self.ring_fill.raise(inlet.fill());
            // Records first: the chunks of a request are written before its record, so whatever record is seen here
            // has all its chunks in the other ring already.
            while let Ok(record) = inlet.records.pop() {
                self.waiting.push((*worker, record));
            }
            let mut count = 0;
            while let Ok(chunk) = inlet.chunks.pop() {
                self.open.entry((*worker, chunk.serial)).or_default().push(chunk);
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

    /// Scales what an anchor covers; `all` takes the rest too.
    fn settle(&mut self, all: bool) {
        let covered = self.setup.timeline.covered_until();
        let ended_by = |record: &RequestRecord| record.stamp(StampKind::End).map_or(Ticks(0), |s| s.user);
        let waiting = std::mem::take(&mut self.waiting);
        let (ready, later): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|(_, record)| all || ended_by(record) <= covered);
        self.waiting = later;
        for (worker, record) in ready {
            self.take(worker, record);
        }
    }

    fn take(&mut self, worker: u32, record: RequestRecord) {
        let chunks = self.open.remove(&(worker, record.serial)).unwrap_or_default();
        let facts = (self.setup.facts)(record.index);
        let scaled = scale(record, &chunks, worker, &self.setup.timeline, &facts);
        let mut row = scaled.row;
        if let Some(detail) = row.error.as_mut() {
            self.setup.mask.apply(detail);
        }
        row.finish_reasons.iter_mut().for_each(|(_, reason)| self.setup.mask.text(reason));
        let written = self.setup.sink.finished(&row, &scaled.chunks);
        self.keep_error(written);
        let live = &self.setup.live;
        live.ended.fetch_add(1, Ordering::Relaxed);
        if row.outcome == Outcome::Ok {
            live.ok.fetch_add(1, Ordering::Relaxed);
        } else if row.outcome.is_failed() {
            live.failed.fetch_add(1, Ordering::Relaxed);
        }
        self.rows.push(row);
    }

    fn finish(self) -> Collected<S> {
        Collected {
            rows: self.rows,
            timeline: self.setup.timeline,
            sink: self.setup.sink,
            sink_error: self.sink_error,
            orphan_chunks: self.open.values().map(|c| c.len() as u64).sum(),
            ring_fill: self.ring_fill,
            stood_still: self.heartbeat.longest(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregate::chunk::OutputChunk;
    use crate::record::{OutputKind, Phase, Stamp, rings};

    #[derive(Default)]
    struct Kept {
        requests: Vec<(u64, usize)>,
        fails: bool,
        flushes: u32,
    }

    impl RowSink for Kept {
        fn finished(&mut self, row: &RequestRow, chunks: &[OutputChunk]) -> io::Result<()> {
            self.requests.push((row.request_index, chunks.len()));
            if self.fails { Err(io::Error::from(io::ErrorKind::StorageFull)) } else { Ok(()) }
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
