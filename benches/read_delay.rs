//! How late the client reads: the user-space stamp of a read minus the kernel's stamp of what it brought, of the real
//! worker and of a bare epoll loop on the same paced stream, in pairs.
//!
//! `cargo bench --bench read_delay` runs 1,000 streams of 50 events a second, 10,000 of 10, and bursts of 1,000 events
//! every 20 ms. `--pairs N`, `--seconds S` (of each reader) and `--load N` (1 to 3) choose; `-- --test` runs a small
//! size in about two seconds. The sender spins on the first core until each event is due.
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

use hammerscale::units::Nanos;
use support::process::{Told, measure};
use support::{Load, Pace, median};

struct Case {
    name: &'static str,
    streams: usize,
    pace: Pace,
    /// The most that is promised of the client: p50 and p99 in microseconds.
    promised_us: Option<[f64; 2]>,
    /// The same as a multiple of the bare loop.
    promised_ratio: f64,
}

const CASES: [Case; 3] = [
    Case {
        name: "1,000 x 50/s",
        streams: 1_000,
        pace: Pace::Even(Nanos::from_millis(20)),
        promised_us: Some([13.0, 30.0]),
        promised_ratio: 1.5,
    },
    Case {
        name: "10,000 x 10/s",
        streams: 10_000,
        pace: Pace::Even(Nanos::from_millis(100)),
        promised_us: Some([12.0, 35.0]),
        promised_ratio: 1.5,
    },
    Case {
        name: "1,000 at once per 20 ms",
        streams: 1_000,
        pace: Pace::Bursts(Nanos::from_millis(20)),
        promised_us: None,
        promised_ratio: 1.2,
    },
];

const QUANTILES: [&str; 3] = ["p50", "p99", "p999"];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if support::is_child(&arguments) {
        return;
    }
    let small = arguments.iter().any(|a| a == "--test");
    let after = |flag: &str| arguments.iter().skip_while(|a| *a != flag).nth(1);
    let pairs: usize = after("--pairs").map_or(if small { 1 } else { 5 }, |n| n.parse().unwrap());
    let seconds: f64 = after("--seconds").map_or(2.0, |s| s.parse().unwrap());
    let chosen: Option<usize> = after("--load").map(|n| n.parse().unwrap());
    println!("user - kernel, us                         p50      p99    p99.9   reads");
    for (case, _) in CASES.iter().zip(1..).filter(|(_, number)| chosen.is_none_or(|n| n == *number)) {
        let (Pace::Even(gap) | Pace::Bursts(gap)) = case.pace else { continue };
        let (streams, tokens) =
            if small { (20, 5) } else { (case.streams, (seconds / gap.as_secs_f64()) as usize) };
        compare(case, Load { streams, tokens, per_send: 1, pace: case.pace }, pairs);
    }
}

fn compare(case: &Case, load: Load, pairs: usize) {
    let mut found: [Vec<[f64; 3]>; 2] = [Vec::new(), Vec::new()];
    for pair in 1..=pairs {
        // The order changes from pair to pair, so that a machine that gets slower favours nobody.
        let mut kinds = [(0, "client"), (1, "bare")];
        if pair % 2 == 0 {
            kinds.reverse();
        }
        for (place, kind) in kinds {
            let (reader, _) = measure(load, kind, &[]);
            found[place].push(show(case.name, kind, &reader));
        }
    }
    let [client, bare] = found;
    let middle = |all: &[[f64; 3]], place: usize| median(all.iter().map(|one| one[place]).collect());
    let ratio = |place: usize| median(client.iter().zip(&bare).map(|(c, b)| c[place] / b[place]).collect());
    for (kind, all) in [("client", &client), ("bare", &bare)] {
        println!("  median  {kind:<25} {:9.1} {:8.1} {:8.1}", middle(all, 0), middle(all, 1), middle(all, 2));
    }
    let promised =
        case.promised_us.map(|[p50, p99]| format!(", p50 {p50} us, p99 {p99} us")).unwrap_or_default();
    println!(
        "  client / bare {:>28.2} {:8.2} {:8.2}   promised at most: {} times bare{promised}",
        ratio(0),
        ratio(1),
        ratio(2),
        case.promised_ratio,
    );
}

fn show(name: &str, kind: &str, reader: &Told) -> [f64; 3] {
    let figures = QUANTILES.map(|quantile| reader[quantile]);
    assert!(reader["stamped"] > 0.0 && reader["unstamped"] < 1.0, "the kernel stamps every read: {reader:?}");
    println!(
        "  {name:<24} {kind:<8} {:9.1} {:8.1} {:8.1} {:7.0}",
        figures[0], figures[1], figures[2], reader["stamped"]
    );
    figures
}
