//! What the parsers cost a chunk: lines of event streams, the meaning of events in every dialect, chunked bodies, heads;
//! and a typed parse by `serde_json` of the same bytes beside them.
//!
//! `cargo bench --bench wire` prints the median of many short batches for every job, in nanoseconds, and the growth of
//! the time from 16 KiB to 64 KiB fed byte by byte, which must stay linear. `-- --test` does each job a few times.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods
)]

#[path = "support/chunks.rs"]
mod chunks;

use std::time::Instant;

use hammerscale::wire::sse::{Event, Limits, Parser, Sink};

/// Time grows with the square at 16 times, with the size at 4; between them is the bound.
const GROWTH_LIMIT: f64 = 8.0;

/// Batches of a job. Each takes about [`BATCH_NS`], short enough that most are not interrupted.
const BATCHES: usize = 201;
const BATCH_NS: f64 = 200e3;

fn main() {
    let small = std::env::args().any(|a| a == "--test");
    println!("{:<52} ns a chunk: median   lowest", "job");
    for mut job in chunks::jobs() {
        let mut batch = |passes: usize| {
            let begun = Instant::now();
            (0..passes).for_each(|_| (job.pass)());
            begun.elapsed().as_nanos() as f64
        };
        let once = batch(8).max(1.0) / 8.0;
        let passes =
            if small { 1 } else { (1..4_096).find(|n| *n as f64 * once > BATCH_NS).unwrap_or(4_096) };
        let mut all: Vec<f64> = (0..if small { 3 } else { BATCHES }).map(|_| batch(passes)).collect();
        all.sort_by(f64::total_cmp);
        let per_chunk = |ns: f64| ns / (passes * job.per_pass) as f64;
        println!("{:<52} {:18.1} {:8.1}", job.name, per_chunk(all[all.len() / 2]), per_chunk(all[0]));
    }
    println!();
    for (name, unit) in
        [("one line", &b"x"[..]), ("lines of one event", b"data: x\n"), ("events", b"data: x\n\n")]
    {
        // A machine that is busy all through a try says nothing; one of three that is not is enough.
        let growth = (0..3).map(|_| growth(unit)).fold(f64::INFINITY, f64::min);
        println!("fed byte by byte, {name}: time of 64 KiB is {growth:.2} times that of 16 KiB");
        // The small size runs beside other tests. It judges the bytes searched, which no other program changes.
        assert!(small || growth < GROWTH_LIMIT, "{name} takes more than linear time");
    }
}

struct Bytes(usize);

impl Sink for Bytes {
    fn event(&mut self, event: Event<'_>) {
        self.0 += event.data.len();
    }
}

/// How much longer 64 KiB take than 16 KiB, the least of some tries: an interruption only ever adds.
fn growth(unit: &[u8]) -> f64 {
    let input: Vec<u8> = b"data: ".iter().chain(unit.iter().cycle()).copied().take(64 * 1024).collect();
    let fastest = |bytes: &[u8]| {
        let once = || {
            let mut parser = Parser::new(Limits::default());
            let mut sink = Bytes(0);
            let begun = Instant::now();
            bytes.iter().for_each(|byte| parser.feed(std::slice::from_ref(byte), &mut sink).unwrap());
            let took = begun.elapsed().as_nanos() as f64;
            assert_eq!(parser.bytes_scanned(), bytes.len() as u64, "every byte is searched once");
            assert!(sink.0 + parser.buffered_bytes() > bytes.len() / 16, "the bytes are somewhere");
            took
        };
        (0..15).map(|_| once()).fold(f64::INFINITY, f64::min)
    };
    fastest(&input) / fastest(&input[..16 * 1024])
}
