//! How many token events a second one worker core takes in, and what one costs: the whole client, with its parsers,
//! records, rings and files, against a bare loop of epoll_wait, recvmsg and a clock reading on the very same stream.
//!
//! Two ways. At the limit: the reader is stopped while every stream gets one send, and then reads them all, so that it
//! is never short of work and every read brings one send; its rate is events by its own CPU time. Live: the sender writes
//! without a pause from another core; whoever is slower sets the rate, and with two cores that is the sender.
//!
//! `cargo bench --bench drain` measures 1,000 and 9,000 streams with one event and with eight events a send, in pairs of
//! the two readers, and prints medians. `--pairs N`, `--seconds S` (of each reader, about), `--live` or `--limit`, `--only
//! client|bare` and `--load N` (1 to 4) choose; `--instructions` counts a small load under valgrind instead; `-- --test` runs a small size in a second.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss
)]

mod support;

use support::process::{Told, measure};
use support::{Load, Pace, median};

/// A load and how many events a second it is expected to move, which sets how long its streams are.
struct Case {
    streams: usize,
    per_send: usize,
    events_per_second: f64,
    /// The least share of the bare loop's rate that is promised, where one is.
    promised: Option<f64>,
}

const CASES: [Case; 4] = [
    Case { streams: 1_000, per_send: 1, events_per_second: 200e3, promised: Some(0.85) },
    Case { streams: 9_000, per_send: 1, events_per_second: 150e3, promised: Some(0.90) },
    Case { streams: 1_000, per_send: 8, events_per_second: 1e6, promised: Some(0.70) },
    Case { streams: 9_000, per_send: 8, events_per_second: 800e3, promised: None },
];

/// Token events of a stream at least: its head, its role, its end and the request itself cost as much as ten, and are
/// part of what is measured.
const LEAST_TOKENS: usize = 50;

/// User-space CPU time of an event that may be the client's own, in microseconds.
const PROMISED_USER_US: f64 = 0.15;

/// CPU time of a token event in the fastest other client, vLLM's in Rust, on a machine of this kind: 15 to 21 us. A
/// quarter of it is promised.
const PEER_CPU_US: f64 = 15.0;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if support::is_child(&arguments) {
        return;
    }
    let has = |flag: &str| arguments.iter().any(|a| a == flag);
    let after = |flag: &str| arguments.iter().skip_while(|a| *a != flag).nth(1);
    let small = has("--test");
    let pairs: usize = after("--pairs").map_or(if small { 1 } else { 5 }, |n| n.parse().unwrap());
    let seconds: f64 = after("--seconds").map_or(1.5, |s| s.parse().unwrap());
    let only = after("--only").map(String::as_str);
    let chosen: Option<usize> = after("--load").map(|n| n.parse().unwrap());
    if has("--instructions") {
        return instructions();
    }
    for (pace, skip) in [(Pace::Held, "--live"), (Pace::Free, "--limit")] {
        if has(skip) {
            continue;
        }
        println!("{}", if pace == Pace::Held { "at the limit" } else { "live" });
        println!(
            "  streams x events a send   events a read  events/s  events/s of CPU  CPU us an event  of it user  collector  process"
        );
        for (case, _) in CASES.iter().zip(1..).filter(|(_, number)| chosen.is_none_or(|n| n == *number)) {
            let tokens = ((case.events_per_second * seconds) as usize / case.streams).max(LEAST_TOKENS);
            let mut load = Load { streams: case.streams, tokens, per_send: case.per_send, pace };
            if small {
                (load.streams, load.tokens) = (20, 40);
            }
            compare(load, case.promised, pairs, only);
        }
    }
}

/// What valgrind counts in user space for a token event, in the whole process: the difference of a short and a long
/// load, at the limit, so that a read brings one send however slow the reader is there.
fn instructions() {
    println!("instructions of a token event in user space");
    for per_send in [1, 8] {
        let [client, bare] = ["client", "bare"].map(|kind| {
            let [short, long] = [40, 240].map(|tokens| {
                let log = tempfile::NamedTempFile::new().unwrap();
                let log_to = format!("--log-file={}", log.path().display());
                let wrapper = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", &log_to];
                measure(Load { streams: 200, tokens, per_send, pace: Pace::Held }, kind, &wrapper);
                let text = std::fs::read_to_string(log.path()).unwrap();
                let line = text.lines().find_map(|line| line.split_once("Collected : ")).expect("a count");
                line.1.trim().parse::<f64>().unwrap()
            });
            // Many events: beginnings differ by a million or two, from waiting for the kernel.
            (long - short) / (200.0 * 200.0)
        });
        println!("  {per_send} a send: client {client:.0}, bare {bare:.0}");
    }
}

/// Figures of one reading.
#[derive(Clone, Copy)]
struct Figures {
    /// By the wall, or at the limit by the reader's CPU time.
    per_second: f64,
    user_us: f64,
    process_us: f64,
}

fn compare(load: Load, promised: Option<f64>, pairs: usize, only: Option<&str>) {
    let mut found: [Vec<Figures>; 2] = [Vec::new(), Vec::new()];
    for pair in 1..=pairs {
        // The order changes from pair to pair, so that a machine that gets slower favours nobody.
        let mut kinds = [(0, "client"), (1, "bare")];
        if pair % 2 == 0 {
            kinds.reverse();
        }
        for (place, kind) in kinds {
            if only.is_none_or(|only| only == kind) {
                let (reader, sender) = measure(load, kind, &[]);
                found[place].push(show(load, kind, &reader, &sender));
            }
        }
    }
    let [client, bare] = found;
    if client.is_empty() || bare.is_empty() {
        return;
    }
    let pairs = || client.iter().zip(&bare);
    let rate = |all: &[Figures]| median(all.iter().map(|f| f.per_second).collect());
    println!(
        "  medians: client {:.0}/s, bare {:.0}/s, ratio {:.3}{}; user time beyond bare {:.3} us an event (promised {PROMISED_USER_US}); \
         CPU of the whole process {:.2} us an event ({:.3} of a peer's {PEER_CPU_US}, promised 0.25)",
        rate(&client),
        rate(&bare),
        median(pairs().map(|(client, bare)| client.per_second / bare.per_second).collect()),
        promised.map(|least| format!(" (promised {least})")).unwrap_or_default(),
        median(pairs().map(|(client, bare)| client.user_us - bare.user_us).collect()),
        median(client.iter().map(|f| f.process_us).collect()),
        median(client.iter().map(|f| f.process_us).collect()) / PEER_CPU_US,
    );
}

fn show(load: Load, kind: &str, reader: &Told, sender: &Told) -> Figures {
    let events = load.events() as f64;
    let per_event = |name: &str| reader.get(name).map_or(f64::NAN, |us| us / events);
    let (seconds, cpu) = (reader["seconds"], reader["cpu_us"] / 1e6);
    let held = load.pace == Pace::Held;
    print!(
        "  {:>7} x {} {kind:<8} {:20.2} {:9.0} {:16.0} {:16.3} {:11.3} {:10.3} {:8.3}",
        load.streams,
        load.per_send,
        events / reader["reads"],
        events / seconds,
        events / cpu,
        per_event("cpu_us"),
        per_event("user_us"),
        per_event("collector_us"),
        per_event("process_us"),
    );
    if held {
        println!();
    } else {
        // A sender that needed as long as the reader set the pace; one that had done before waited for the reader.
        let share = sender["seconds"] / seconds;
        println!(
            "   the {} was the limit: CPU of the reader {:.0}% of the time, of the sender {:.0}%, {:.2} us a send",
            if share > 0.97 { "sender" } else { "reader" },
            cpu / seconds * 100.0,
            sender["cpu_us"] / seconds / 1e4,
            sender["cpu_us"] / sender["sends"],
        );
    }
    Figures {
        per_second: events / if held { cpu } else { seconds },
        user_us: per_event("user_us"),
        process_us: per_event("process_us"),
    }
}
