//! What all connections of a simulator share: settings, ledger, clock reading, counters and buffers.

use crate::sim::clock;
use crate::sim::ledger::Book;
use crate::sim::options::SimOptions;
use crate::sim::turns::Turns;
use crate::units::{Nanos, UnixNanos, calendar};

/// Bytes taken by one receive call, shared by all connections: a prompt of common length comes in one call.
const INBOX_BYTES: usize = 64 * 1024;

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// What the simulator is told to do.
    pub(crate) options: SimOptions,
    /// Whose answers are under way.
    pub(crate) turns: Turns,
    /// The ledger.
    pub(crate) book: Book,
    /// The latest reading of the clock.
    pub(crate) now: Nanos,
    /// CLOCK_REALTIME at the start.
    pub(super) started: Nanos,
    /// Requests so far.
    requests: u64,
    /// Those among them that have a time to first token: the counter of all draws.
    timed: u64,
    /// What was received last.
    pub(super) inbox: Vec<u8>,
    /// What is sent next.
    pub(super) outbox: Vec<u8>,
    /// The body of a response in one piece.
    pub(super) body: Vec<u8>,
    /// The `Date` value of `date_second`.
    pub(super) date: String,
    date_second: i64,
}

impl Shared {
    /// At the start of a simulator.
    pub(crate) fn new(options: SimOptions, book: Book) -> Self {
        Self {
            turns: Turns::new(options.max_in_flight),
            options,
            book,
            now: clock::monotonic(),
            started: clock::realtime(),
            requests: 0,
            timed: 0,
            inbox: vec![0; INBOX_BYTES],
            outbox: Vec::with_capacity(INBOX_BYTES),
            body: Vec::new(),
            date: String::new(),
            date_second: 0,
        }
    }

    /// Reads the clock.
    pub(crate) fn update_now(&mut self) {
        self.now = clock::monotonic();
    }

    /// Seconds since the Unix epoch; renders the `Date` value when they have changed.
    pub(super) fn update_date(&mut self) -> i64 {
        let now = clock::realtime();
        let second = now.0 / Nanos::PER_SECOND;
        if second != self.date_second || self.date.is_empty() {
            self.date = calendar::http_date(UnixNanos::at(now.0));
            self.date_second = second;
        }
        second
    }

    /// Numbers an answer that has a time to first token.
    pub(super) fn next_timed(&mut self) -> u64 {
        let number = self.timed;
        self.timed += 1;
        number
    }

    /// Numbers a request.
    pub(super) fn next_request(&mut self) -> u64 {
        let number = self.requests;
        self.requests += 1;
        number
    }
}
