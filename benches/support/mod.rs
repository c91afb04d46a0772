//! What the benches of a live stream share: the answers, the process that writes them, and the two that read them.
//!
//! ```text
//! bench ─► sender process (first core): accepts, waits for every request, then writes
//!      └─► reader process (last core): the whole client, or a bare loop, on the very same stream
//! ```
//!
//! Nothing here judges a figure; each bench says what it shows.
#![allow(dead_code, reason = "no bench uses all of it")]

pub mod answer;
pub mod bare;
pub mod client;
pub mod hold;
pub mod process;
pub mod sender;

use hammerscale::units::Nanos;
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeVal;

/// The request that every stream is asked with.
pub const REQUEST: &[u8] = b"POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\n\
    Content-Type: application/json\r\nContent-Length: 15\r\n\r\n{\"stream\":true}";

/// What is sent to the readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Concurrent streams.
    pub streams: usize,
    /// Token events of each.
    pub tokens: usize,
    /// Token events in one send.
    pub per_send: usize,
    pub pace: Pace,
}

/// When the sender writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// As fast as the readers take it.
    Free,
    /// A send of every stream while the reader is stopped, then none until it has read them all.
    Held,
    /// A send of every stream in each span, evenly spread over it.
    Even(Nanos),
    /// A send of every stream at the beginning of each span.
    Bursts(Nanos),
}

impl Load {
    /// As one argument of a child process.
    pub fn to_argument(self) -> String {
        let (kind, gap) = match self.pace {
            Pace::Free => ("free", Nanos(0)),
            Pace::Held => ("held", Nanos(0)),
            Pace::Even(gap) => ("even", gap),
            Pace::Bursts(gap) => ("bursts", gap),
        };
        format!("{},{},{},{kind},{}", self.streams, self.tokens, self.per_send, gap.0)
    }

    /// What [`Load::to_argument`] made.
    pub fn of_argument(text: &str) -> Self {
        let parts: Vec<&str> = text.split(',').collect();
        let [streams, tokens, per_send, kind, gap] = parts[..] else { panic!("no load: {text}") };
        let gap = Nanos(gap.parse().unwrap());
        let pace = match kind {
            "free" => Pace::Free,
            "held" => Pace::Held,
            "even" => Pace::Even(gap),
            "bursts" => Pace::Bursts(gap),
            other => panic!("no pace: {other}"),
        };
        let number = |text: &str| text.parse().unwrap();
        Self { streams: number(streams), tokens: number(tokens), per_send: number(per_send), pace }
    }

    /// Whether its instants are the sender's own.
    pub fn is_paced(self) -> bool {
        matches!(self.pace, Pace::Even(_) | Pace::Bursts(_))
    }

    /// Token events of all streams.
    pub fn events(self) -> usize {
        self.streams * self.tokens
    }
}

/// CPU time in microseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cpu {
    pub user_us: f64,
    pub system_us: f64,
}

impl Cpu {
    pub fn now(who: UsageWho) -> Self {
        let usage: Usage = getrusage(who).unwrap();
        let us = |t: TimeVal| t.tv_sec() as f64 * 1e6 + t.tv_usec() as f64;
        Self { user_us: us(usage.user_time()), system_us: us(usage.system_time()) }
    }

    pub fn total_us(self) -> f64 {
        self.user_us + self.system_us
    }
}

impl std::ops::Sub for Cpu {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { user_us: self.user_us - other.user_us, system_us: self.system_us - other.system_us }
    }
}

/// The middle of some figures.
pub fn median(mut figures: Vec<f64>) -> f64 {
    assert!(!figures.is_empty(), "nothing was measured");
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Runs a child's part if this process is one; whether it was.
pub fn is_child(arguments: &[String]) -> bool {
    let [_, part, load, rest @ ..] = arguments else { return false };
    match (part.as_str(), rest) {
        ("sender", []) => sender::send(Load::of_argument(load)),
        ("client", [address]) => client::read(Load::of_argument(load), address.parse().unwrap()),
        ("bare", [address]) => bare::read(Load::of_argument(load), address.parse().unwrap()),
        _ => return false,
    }
    true
}
