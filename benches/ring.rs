//! What it costs to write a request and a chunk down: from one core to another over the ring, against a ring of plain
//! 64-byte values, the two in turns.
//!
//! `cargo bench --bench ring` takes about two seconds; `-- --test` runs a small size.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::cast_precision_loss
)]

use std::sync::{Arc, Barrier};

use hammerscale::clock::Clock;
use hammerscale::record::{ChunkStamp, OutputKind, Phase, RequestRecord, Stamp, rings};
use hammerscale::units::{Nanos, Ticks, UnixNanos};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use rtrb::RingBuffer;

/// Pairs of turns; medians are told.
const TURNS: usize = 9;

fn main() {
    let small = std::env::args().any(|a| a == "--test");
    // Less than the rings hold, so that nothing is ever lost.
    let (chunks, records) = if small { (2_000, 500) } else { (250_000, 60_000) };
    let (mut of_chunks, mut of_records, mut of_plain) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TURNS {
        of_plain.push(plain(chunks));
        of_chunks.push(chunk_ring(chunks));
        of_records.push(record_ring(records));
    }
    let [bare, chunk, record] = [of_plain, of_chunks, of_records].map(median);
    println!("ring, ns from core to core");
    println!("  bare, 64 bytes          {bare:7.1}");
    println!("  chunk,  {:4} bytes      {chunk:7.1}   {:.2} x bare", size_of::<ChunkStamp>(), chunk / bare);
    println!(
        "  record, {:4} bytes      {record:7.1}   {:.2} x bare",
        size_of::<RequestRecord>(),
        record / bare
    );
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn plain(count: u64) -> f64 {
    let (mut producer, mut consumer) = RingBuffer::<[u64; 8]>::new(1 << 18);
    timed(
        count,
        move |number| producer.push([number; 8]).unwrap(),
        move || consumer.pop().ok().map(|value| value[7]),
    )
}

fn chunk_ring(count: u64) -> f64 {
    let (mut outlet, mut inlet) = rings();
    let chunk = |serial| ChunkStamp {
        serial,
        stamp: Stamp { user: Ticks(serial), kernel: UnixNanos::new(1) },
        not_before: Ticks(0),
        choice: 0,
        ends_read: true,
        kind: OutputKind::Content,
        tokens: None,
    };
    timed(
        count,
        move |number| {
            outlet.chunk(chunk(number));
            assert_eq!(outlet.lost_chunks(), 0);
        },
        move || inlet.chunks.pop().ok().map(|chunk| chunk.serial),
    )
}

fn record_ring(count: u64) -> f64 {
    let (mut outlet, mut inlet) = rings();
    timed(
        count,
        move |number| {
            outlet.record(RequestRecord::new(number, Phase::Measured, 0, Ticks(0)));
            assert_eq!(outlet.lost_records(), 0);
        },
        move || inlet.pop().map(|ended| ended.into_record().index),
    )
}

/// Nanoseconds per value from the first push on one core to the last pop on the other, the second time: the first time
/// touches the ring's memory, which a run does once.
fn timed(
    count: u64,
    mut push: impl FnMut(u64) + Send + 'static,
    mut pop: impl FnMut() -> Option<u64>,
) -> f64 {
    let clock = Clock::new();
    let start = Arc::new(Barrier::new(2));
    let ready = Arc::clone(&start);
    let producer = std::thread::spawn(move || {
        pin(1);
        for _ in 0..2 {
            ready.wait();
            (0..count).for_each(&mut push);
        }
        // The ring is kept until it was read.
        push
    });
    pin(0);
    let mut spent = Nanos(0);
    for _ in 0..2 {
        start.wait();
        let began = clock.monotonic();
        for expected in 0..count {
            let value = loop {
                if let Some(value) = pop() {
                    break value;
                }
                std::hint::spin_loop();
            };
            assert_eq!(value, expected);
        }
        spent = clock.monotonic().since(began).unwrap_or(Nanos(0));
    }
    drop(producer.join().unwrap());
    spent.0 as f64 / count as f64
}

/// On a machine without that core the thread stays where it was.
fn pin(core: usize) {
    let mut set = CpuSet::new();
    if set.set(core).is_ok() {
        let _ = sched_setaffinity(Pid::from_raw(0), &set);
    }
}
