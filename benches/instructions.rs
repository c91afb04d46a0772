//! How many instructions the parsers take for a chunk, counted by valgrind. Counts do not depend on what else the machine
//! does, so a small rise shows, and a rise beyond the bound fails.
//!
//! `cargo bench --bench instructions` needs valgrind. It runs every job of the bench `wire` twice in a process of its
//! own, with few and with many passes: the difference is the chunks alone. `-- --test` runs the same jobs without
//! valgrind and only checks their answers.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout
)]

#[path = "support/chunks.rs"]
mod chunks;

use std::process::Command;

/// What a chunk took when the bound was set (rustc 1.95, x86-64, LTO), by job. A count may be a tenth above it: another
/// compiler moves counts by less, and whoever makes a parser slower by more should know. One far below is to be lowered.
const COUNTS: [(&str, f64); 18] = [
    ("scan: chat, vLLM", 1_584.0),
    ("meaning: chat, vLLM", 622.0),
    ("scan: chat, vLLM with counts", 2_224.0),
    ("meaning: chat, vLLM with counts", 2_961.0),
    ("scan: chat, OpenAI", 2_003.0),
    ("meaning: chat, OpenAI", 2_540.0),
    ("scan: completions, vLLM", 1_869.0),
    ("meaning: completions, vLLM", 639.0),
    ("scan: responses, OpenAI", 1_373.0),
    ("meaning: responses, OpenAI", 1_895.0),
    ("scan: messages, vLLM", 880.0),
    ("meaning: messages, vLLM", 619.0),
    ("events: search for line ends and fields", 342.0),
    ("events and meaning: chat, vLLM", 944.0),
    ("events and meaning: chat, vLLM with counts", 3_300.0),
    ("answer: chunk, event and meaning", 1_364.0),
    ("HTTP: one chunk", 316.0),
    ("HTTP: one head", 3_762.0),
];

/// How far above its line a count may be.
const ALLOWANCE: f64 = 1.10;

const FEW: usize = 8;
const MANY: usize = 40;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, part, name, passes] = arguments.as_slice()
        && part == "work"
    {
        return work(name, passes.parse().unwrap());
    }
    let jobs = chunks::jobs();
    let unknown: Vec<&str> = COUNTS
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| jobs.iter().all(|job| job.name != *name))
        .collect();
    assert!(unknown.is_empty(), "no such jobs: {unknown:?}");
    if arguments.iter().any(|a| a == "--test") {
        return;
    }
    println!("{:<52} instructions a chunk   when the bound was set", "job");
    let mut risen = Vec::new();
    for job in &jobs {
        let chunks = ((MANY - FEW) * job.per_pass) as f64;
        // Side by side: counts do not mind.
        let (few, many) = std::thread::scope(|scope| {
            let few = scope.spawn(|| counted(job.name, FEW));
            let many = counted(job.name, MANY);
            (few.join(), many)
        });
        let count = (many - few.unwrap()) / chunks;
        let set = COUNTS.iter().find(|(name, _)| *name == job.name).map(|(_, count)| *count);
        println!("{:<52} {count:20.1} {:>24}", job.name, set.map(|n| n.to_string()).unwrap_or_default());
        if set.is_some_and(|set| count > set * ALLOWANCE) {
            risen.push(job.name);
        }
    }
    assert!(risen.is_empty(), "these take more than {ALLOWANCE} times what they took: {risen:?}");
}

/// Does a job so often, and nothing else that differs from one number of passes to another.
fn work(name: &str, passes: usize) {
    let mut job = chunks::jobs().into_iter().find(|job| job.name == name).expect("a job of that name");
    (0..passes).for_each(|_| (job.pass)());
}

/// The instructions of a whole process that does a job so often.
fn counted(name: &str, passes: usize) -> f64 {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command.arg(std::env::current_exe().unwrap()).args(["work", name, &passes.to_string()]);
    let output = command.output().expect("valgrind is installed");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let line = text.lines().find_map(|line| line.split_once("Collected : ")).expect("a count");
    line.1.trim().parse().unwrap()
}
