//! The whole client on a load: workers, parsers, records, rings, and the collector with its files.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use hammerscale::aggregate::chunk::OutputChunk;
use hammerscale::aggregate::collector::{Collected, CollectorSetup, LiveCounts, collect};
use hammerscale::aggregate::rows::RequestFacts;
use hammerscale::aggregate::sink::RowSink;
use hammerscale::client::affinity::{allowed_cores, pin_to};
use hammerscale::client::limits::raise_descriptor_limit;
use hammerscale::client::ports::Ports;
use hammerscale::client::route::routes;
use hammerscale::client::transport::Watched;
use hammerscale::client::{Pool, Reuse, StopSignal, WorkerHealth, WorkerSetup, stamps};
use hammerscale::clock::{Clock, Rate, Timeline};
use hammerscale::metrics::row::RequestRow;
use hammerscale::record::mask::Mask;
use hammerscale::record::{Outcome, Phase, RunId};
use hammerscale::report::recorder::RunRecorder;
use hammerscale::schedule::{Prepared, Supply};
use hammerscale::units::{Nanos, Ticks, UnixNanos};
use hammerscale::wire::response::AnswerRule;
use nix::sys::resource::UsageWho;

use super::answer::Answer;
use super::hold::thread_named;
use super::process::await_parent;
use super::{Cpu, Load, REQUEST};

/// User-space stamp minus kernel stamp of reads, in nanoseconds.
#[derive(Default)]
pub struct Delays {
    all: Vec<i64>,
    unstamped: u64,
}

impl Delays {
    pub fn add(&mut self, kernel: Option<Nanos>, user: Nanos) {
        match kernel {
            Some(kernel) => self.all.push(user.0 - kernel.0),
            None => self.unstamped += 1,
        }
    }

    /// The quantiles as names and numbers; nothing where none was added.
    pub fn told(mut self) -> String {
        self.all.sort_unstable();
        let us = |per_mille: usize| {
            let place = (self.all.len() * per_mille).div_ceil(1_000).max(1) - 1;
            self.all[place] as f64 / 1e3
        };
        if self.all.is_empty() {
            return String::new();
        }
        let (p50, p99, p999) = (us(500), us(990), us(999));
        format!(" stamped={} unstamped={} p50={p50} p99={p99} p999={p999}", self.all.len(), self.unstamped)
    }
}

/// The run's own files, and the delays of a paced load beside them.
struct Sink {
    files: RunRecorder,
    delays: Option<Delays>,
}

impl RowSink for Sink {
    fn chunks(&mut self, row: &RequestRow, chunks: &[OutputChunk]) -> io::Result<()> {
        if let Some(delays) = self.delays.as_mut() {
            chunks.iter().filter(|c| c.ends_read).for_each(|c| delays.add(c.kernel, c.user));
        }
        self.files.chunks(row, chunks)
    }

    fn row(&mut self, row: &RequestRow) -> io::Result<()> {
        self.files.row(row)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.files.flush()
    }
}

/// Reads the streams of one load from their first byte to their last.
pub fn read(load: Load, address: SocketAddr) {
    let _ = raise_descriptor_limit();
    let cores = allowed_cores();
    // As in a run: a worker on the last core, everything else on the others.
    pin_to(if cores.len() > 1 { &cores[..cores.len() - 1] } else { &cores }).unwrap();
    let _keeper = stamps::switch_on();
    let clock = Clock::new();
    let first = clock.anchor();
    std::thread::sleep(std::time::Duration::from_millis(20));
    let second = clock.anchor();
    let rate = Rate::between(&first, &second);
    let supply = supply(load.streams);
    let stop = Arc::new(StopSignal::new().unwrap());
    let setup = setup(load, address, *cores.last().unwrap());
    let (pool, inlets) = Pool::new(vec![setup], &supply, &stop, rate).unwrap();
    let finished = Arc::new(AtomicBool::new(false));
    let place = tempfile::tempdir().unwrap();
    let run = RunId::unique(UnixNanos::at(second.monotonic.0 + second.wall_offset.0));
    let collector = CollectorSetup {
        inlets: (0..).zip(inlets).collect(),
        timeline: Timeline::new(second),
        clock: clock.clone(),
        facts: Box::new(|_| RequestFacts::default()),
        mask: Mask::default(),
        sink: Sink {
            files: RunRecorder::open(&place.path().join("run"), false, run).unwrap(),
            delays: load.is_paced().then(Delays::default),
        },
        live: Arc::new(LiveCounts::default()),
        finished: Arc::clone(&finished),
    };
    let collector = std::thread::spawn(move || {
        let collected = collect(collector);
        (collected, Cpu::now(UsageWho::RUSAGE_THREAD))
    });
    pool.start();
    await_parent();
    let (cpu, own) = (Cpu::now(UsageWho::RUSAGE_SELF), Cpu::now(UsageWho::RUSAGE_THREAD));
    let began = clock.ticks();
    println!("{}", thread_named("worker-0"));
    let health = pool.join().remove(0).expect("the worker lives");
    finished.store(true, Ordering::Release);
    let (collected, collector_cpu) = collector.join().unwrap();
    let own = Cpu::now(UsageWho::RUSAGE_THREAD) - own;
    let all = Cpu::now(UsageWho::RUSAGE_SELF) - cpu;
    check(load, &health, &collected);
    // What the collector did before the beginning, sleeping through the connecting, is a millisecond at most.
    let worker = all - own - collector_cpu;
    let delays = collected.sink.delays.map(Delays::told).unwrap_or_default();
    let counted = |count: fn(&RequestRow) -> u64| collected.rows.iter().map(|row| count(&row)).sum::<u64>();
    println!(
        "seconds={} reads={} coalesced={} cpu_us={} user_us={} collector_us={} process_us={}{delays}",
        rate.nanos(Ticks(health.ended.0 - began.0)).as_secs_f64(),
        counted(|row| row.counters.reads),
        counted(|row| row.counters.coalesced_chunks),
        worker.total_us(),
        worker.user_us,
        collector_cpu.total_us(),
        all.total_us(),
    );
}

/// Every request ok, every event counted, every byte there.
fn check(load: Load, health: &WorkerHealth, collected: &Collected<Sink>) {
    let answer = Answer::new(load.tokens, load.per_send);
    assert_eq!((health.lost_records, health.lost_chunks), (0, 0), "the rings ran over");
    assert!(collected.sink_error.is_none(), "{:?}", collected.sink_error);
    assert_eq!((collected.rows.len(), collected.orphan_chunks), (load.streams, 0));
    let tokens = load.tokens as u64;
    for row in &collected.rows {
        assert_eq!(row.outcome, Outcome::Ok, "{:?}", row.error);
        let counters = &row.counters;
        // With the role, the finish reason, the usage and [DONE].
        assert_eq!((counters.output_chunks, counters.events), (tokens, tokens + 4));
        assert_eq!(counters.bytes_received, answer.bytes.len() as u64);
        assert_eq!((counters.bytes_sent, row.usage.completion_tokens), (REQUEST.len() as u64, Some(tokens)));
    }
}

fn supply(streams: usize) -> Arc<Supply> {
    let supply = Supply::new(streams);
    for index in 0..streams as u64 {
        let bytes = Bytes::from_static(REQUEST).into();
        supply.push(Prepared { index, phase: Phase::Measured, due: None, bytes }).unwrap();
    }
    supply.close();
    Arc::new(supply)
}

fn setup(load: Load, address: SocketAddr, core: usize) -> WorkerSetup {
    let patience = Nanos::from_secs(60);
    WorkerSetup {
        worker: 0,
        core: Some(core),
        slots: load.streams,
        first_slot: 0,
        routes: routes(&[], &[address]).into(),
        ports: Ports::of_system(),
        unresolved: None,
        connection_numbers: Arc::new(AtomicU64::new(0)),
        reuse: Reuse::Keep,
        prewarm: true,
        open: None,
        kernel_stamps: true,
        // As in a run of streamed text.
        transmit_stamps: true,
        watched: Watched::Every,
        answer_rule: AnswerRule::default(),
        timeout: patience,
        idle_timeout: patience,
        connect_timeout: patience,
    }
}
