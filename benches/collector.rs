//! What a request costs the collector: processor time of its thread from the rings to packed rows, of reading a packed
//! row again, of the line that is written of it, and the bytes that are kept of a request and of a gap.
//!
//! `cargo bench --bench collector` takes about ten seconds; `-- --test` runs a small size in less than one; `-- --soak`
//! holds ten million chunks of ten thousand open streams, writes them down and computes the summary, with the resident
//! size at each step.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::disallowed_methods
)]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hammerscale::aggregate::chunk::OutputChunk;
use hammerscale::aggregate::collector::{Collected, CollectorSetup, LiveCounts, collect};
use hammerscale::aggregate::rows::RequestFacts;
use hammerscale::aggregate::sink::RowSink;
use hammerscale::aggregate::summary::{Facts, Summary};
use hammerscale::clock::{Clock, Rate, Timeline};
use hammerscale::metrics::row::RequestRow;
use hammerscale::metrics::rows::Rows;
use hammerscale::record::mask::Mask;
use hammerscale::record::{
    ChunkStamp, Inlet, Outcome, OutputKind, Phase, RequestRecord, RunId, Stamp, StampKind, rings,
};
use hammerscale::report::recorder::RunRecorder;
use hammerscale::report::requests::RequestsWriter;
use hammerscale::units::{Nanos, Ticks, UnixNanos};
use nix::time::{ClockId, clock_gettime};

/// Chunks of a streamed request.
const CHUNKS: u64 = 128;
/// Repetitions; the median is told.
const ROUNDS: usize = 7;

struct Size {
    plain: u64,
    streamed: u64,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.iter().any(|a| a == "--soak") {
        return soak(10_000, 1_000);
    }
    let small = arguments.iter().any(|a| a == "--test");
    // What fits into the rings, so that nothing is lost.
    let size =
        if small { Size { plain: 500, streamed: 20 } } else { Size { plain: 60_000, streamed: 2_000 } };
    let (plain_ns, plain) = median(size.plain, 0);
    let (streamed_ns, streamed) = median(size.streamed, CHUNKS);
    println!("collector, ns of its processor time");
    println!("  plain request                      {plain_ns:8.0}");
    println!("  request with {CHUNKS} chunks           {streamed_ns:8.0}");
    println!("  chunk                              {:8.1}", (streamed_ns - plain_ns) / CHUNKS as f64);
    println!("  reading a packed row again, plain  {:8.0}", reading(&plain));
    println!("  line of a plain request            {:8.0}", line(&plain));
    println!("bytes kept");
    println!("  of a plain request                 {:8.1}", each(&plain));
    println!("  of a streamed request              {:8.1}", each(&streamed));
    assert!(each(&plain) <= 256.0 && each(&streamed) <= 256.0);
    if small {
        soak(50, 40);
    }
}

fn each(rows: &Rows) -> f64 {
    rows.bytes() as f64 / rows.len() as f64
}

/// Processor time of a request in nanoseconds, and the rows of the last round.
fn median(requests: u64, chunks: u64) -> (f64, Rows) {
    let mut rounds: Vec<(f64, Rows)> = (0..ROUNDS).map(|_| round(requests, chunks)).collect();
    rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
    rounds.swap_remove(ROUNDS / 2)
}

fn round(requests: u64, chunks: u64) -> (f64, Rows) {
    let clock = Clock::new();
    let world = World::new(&clock);
    let (mut outlet, inlet) = rings();
    for number in 0..requests {
        for chunk in 0..chunks {
            outlet.chunk(world.chunk(number, chunk));
        }
        outlet.record(world.record(number, chunks));
    }
    assert_eq!((outlet.lost_chunks(), outlet.lost_records()), (0, 0));
    let finished = Arc::new(AtomicBool::new(true));
    let setup = world.setup(&clock, inlet, Counted::default(), &finished, &Arc::default());
    let (spent, done) = std::thread::spawn(move || {
        let before = thread_time();
        let done = collect(setup);
        (thread_time() - before, done)
    })
    .join()
    .unwrap();
    assert_eq!(done.sink, Counted { chunks: requests * chunks, rows: requests });
    assert_eq!((done.rows.len() as u64, done.orphan_chunks), (requests, 0));
    (spent.as_nanos() as f64 / requests as f64, done.rows)
}

fn reading(rows: &Rows) -> f64 {
    let before = thread_time();
    let ok = rows.iter().filter(|row| row.outcome == Outcome::Ok).count();
    let spent = thread_time() - before;
    assert_eq!(ok, rows.len());
    spent.as_nanos() as f64 / rows.len() as f64
}

fn line(rows: &Rows) -> f64 {
    let mut writer = RequestsWriter::new(io::sink(), run_id());
    let before = thread_time();
    rows.iter().for_each(|row| writer.write(&row).unwrap());
    (thread_time() - before).as_nanos() as f64 / rows.len() as f64
}

/// Ten million chunks in flight at once, then written down, then summed up.
fn soak(streams: u64, chunks: u64) {
    let dir = tempfile::tempdir().unwrap();
    let clock = Clock::new();
    let world = World::new(&clock);
    let (mut outlet, inlet) = rings();
    let (finished, live) = (Arc::new(AtomicBool::new(false)), Arc::<LiveCounts>::default());
    let sink = RunRecorder::open(&dir.path().join("run"), false, run_id()).unwrap();
    let setup = world.setup(&clock, inlet, sink, &finished, &live);
    let before = status("VmRSS:");
    let collector = std::thread::spawn(move || collect(setup));
    // Two million chunks a second: what the collector has not looked at yet is then a small part of what it holds.
    let (mut pushed, pause) = (0_u64, Duration::from_millis(10));
    let wait_for = |count: u64| {
        while live.chunks.load(Ordering::Relaxed) < count {
            std::thread::sleep(pause);
        }
    };
    for chunk in 0..chunks {
        for stream in 0..streams {
            outlet.chunk(world.chunk(stream, chunk));
            pushed += 1;
            if pushed % 20_000 == 0 {
                std::thread::sleep(pause);
                wait_for(pushed.saturating_sub(100_000));
            }
        }
    }
    wait_for(pushed);
    // The next anchor packs the last ones.
    std::thread::sleep(Duration::from_millis(300));
    let open = status("VmRSS:");
    (0..streams).for_each(|stream| outlet.record(world.record(stream, chunks)));
    assert_eq!((outlet.lost_chunks(), outlet.lost_records()), (0, 0));
    finished.store(true, Ordering::Release);
    let Collected { rows, sink, sink_error, orphan_chunks, .. } = collector.join().unwrap();
    assert!(sink_error.is_none());
    assert_eq!((rows.len() as u64, orphan_chunks), (streams, 0));
    let written = status("VmRSS:");
    let recorded = sink.close().unwrap();
    let facts = Facts { planned: streams, ..Facts::default() };
    let summary = Summary::of(&rows, recorded.chunk_facts(&rows, &facts).unwrap(), facts);
    assert_eq!(summary.gaps.exact.count as u64, streams * (chunks - 1));
    let gaps = (streams * (chunks - 1)) as f64;
    println!("soak: {streams} open streams, {} chunks; resident MiB", streams * chunks);
    println!(
        "  before {:.1}, all in flight {:.1}, all written {:.1}, most of all, with the summary, {:.1}",
        mib(before),
        mib(open),
        mib(written),
        mib(status("VmHWM:"))
    );
    println!(
        "  bytes a gap in flight {:.2}, most of all {:.2}",
        (open - before) as f64 / gaps,
        (status("VmHWM:") - before) as f64 / gaps
    );
}

fn mib(kib: u64) -> f64 {
    kib as f64 / (1024.0 * 1024.0)
}

/// A figure of this process in bytes.
fn status(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1024
}

fn run_id() -> RunId {
    RunId::new(UnixNanos::at(1), 0)
}

fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

#[derive(Debug, Default, PartialEq)]
struct Counted {
    chunks: u64,
    rows: u64,
}

impl RowSink for Counted {
    fn chunks(&mut self, _: &RequestRow, chunks: &[OutputChunk]) -> io::Result<()> {
        self.chunks += chunks.len() as u64;
        Ok(())
    }

    fn row(&mut self, _: &RequestRow) -> io::Result<()> {
        self.rows += 1;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A past in which requests were sent and answered.
struct World {
    timeline: Timeline,
    began: Ticks,
    wall: Nanos,
    rate: Rate,
}

impl World {
    /// How long before now it began.
    const AGO: Nanos = Nanos(120 * Nanos::PER_SECOND);
    const GAP: Nanos = Nanos(50 * Nanos::PER_MILLI);

    fn new(clock: &Clock) -> Self {
        let first = clock.anchor();
        std::thread::sleep(Duration::from_millis(1));
        let second = clock.anchor();
        let rate = Rate::between(&first, &second);
        let mut timeline = Timeline::new(first);
        timeline.push(second);
        let began = Ticks(first.ticks.0 - rate.ticks(Self::AGO).0);
        let wall = Nanos(timeline.zero_unix().0 - Self::AGO.0);
        Self { timeline, began, wall, rate }
    }

    fn setup<S>(
        &self,
        clock: &Clock,
        inlet: Inlet,
        sink: S,
        finished: &Arc<AtomicBool>,
        live: &Arc<LiveCounts>,
    ) -> CollectorSetup<S> {
        CollectorSetup {
            inlets: vec![(0, inlet)],
            timeline: self.timeline.clone(),
            clock: clock.clone(),
            facts: Box::new(|_| RequestFacts::default()),
            mask: Mask::default(),
            sink,
            live: Arc::clone(live),
            finished: Arc::clone(finished),
        }
    }

    fn ticks(&self, ns: u64) -> Ticks {
        Ticks(self.began.0 + self.rate.ticks(Nanos(ns.cast_signed())).0)
    }

    /// Came at `ns`, and its read returned 6 to 14 microseconds later.
    fn stamp(&self, ns: u64) -> Stamp {
        let delay = 6_000 + ns * 31 % 8_000;
        Stamp { user: self.ticks(ns + delay), kernel: UnixNanos::new(self.wall.0 + ns.cast_signed()) }
    }

    fn came(number: u64, chunk: u64) -> u64 {
        number * 5_000 + (chunk + 1) * Self::GAP.0.unsigned_abs() + (number * chunk * 7_919) % 1_000_000
    }

    fn chunk(&self, number: u64, chunk: u64) -> ChunkStamp {
        let before = chunk.checked_sub(1).map_or(number * 5_000, |before| Self::came(number, before));
        ChunkStamp {
            serial: number,
            stamp: self.stamp(Self::came(number, chunk)),
            not_before: self.ticks(before + 5_000),
            choice: 0,
            ends_read: true,
            kind: OutputKind::Content,
            tokens: None,
        }
    }

    fn record(&self, number: u64, chunks: u64) -> RequestRecord {
        let due = number * 5_000;
        let mut record = RequestRecord::new(number, Phase::Measured, 7, self.ticks(due));
        (record.serial, record.outcome, record.http_status) = (number, Outcome::Ok, Some(200));
        (record.connection_id, record.connection_use) =
            (number % 1_000, 1 + u32::try_from(number / 1_000).unwrap());
        (record.send_start, record.send_end) = (Some(self.ticks(due + 2_000)), Some(self.ticks(due + 5_000)));
        let counters = &mut record.counters;
        (counters.reads, counters.bytes_sent) = (chunks.max(1), 180);
        (counters.bytes_received, counters.body_bytes) = (250 + 260 * chunks, 12 + 250 * chunks);
        let first = self.stamp(due + 900_000);
        for kind in [StampKind::FirstByte, StampKind::HeadDone] {
            record.set(kind, first);
        }
        record.set(StampKind::End, first);
        if chunks > 0 {
            let counters = &mut record.counters;
            (counters.events, counters.output_chunks) = (chunks + 3, chunks);
            (counters.content_chunks, counters.content_deltas) = (chunks, chunks);
            record.first_output_kind = Some(OutputKind::Content);
            record.usage.prompt_tokens = Some(900);
            record.usage.completion_tokens = Some(chunks);
            record.usage.total_tokens = Some(900 + chunks);
            record.finish.push(0, "stop");
            let output = self.stamp(Self::came(number, 0));
            record.set(StampKind::FirstEvent, first);
            record.set(StampKind::FirstOutput, output);
            record.set(StampKind::FirstContent, output);
            let last = Self::came(number, chunks - 1);
            record.set(StampKind::LastOutput, self.stamp(last));
            for kind in [StampKind::Terminal, StampKind::End] {
                record.set(kind, self.stamp(last + 40_000));
            }
        }
        record
    }
}
