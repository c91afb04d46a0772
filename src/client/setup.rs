//! What a worker is told before it starts, and what it says about itself afterwards.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::client::ports::Ports;
use crate::client::route::Route;
use crate::client::transport::Watched;
use crate::clock::Scheduling;
use crate::record::{Lateness, RequestRecord};
use crate::schedule::Prepared;
use crate::units::{Nanos, Ticks};
use crate::wire::response::AnswerRule;

/// How connections are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    /// One connection per slot, kept as long as the server keeps it.
    Keep,
    /// A new connection for every request.
    Fresh,
}

/// One worker's part of the run.
#[derive(Debug, Clone)]
pub struct WorkerSetup {
    /// Number of the worker.
    pub worker: u32,
    /// The core to pin to.
    pub core: Option<usize>,
    /// The schedule that says when requests start; `None` is a closed loop.
    pub open: Option<OpenLoop>,
    /// Slots of this worker; without a meaning in an open loop.
    pub slots: usize,
    /// Number of its first slot in the run; likewise.
    pub first_slot: u32,
    /// Where to connect, and from where: used in turn, by connection number. Empty when the name could not be resolved.
    pub routes: Arc<[Route]>,
    /// Local ports to name where the kernel would search long for one; `None` leaves all to it.
    pub ports: Option<Ports>,
    /// Why there is no address.
    pub unresolved: Option<Arc<str>>,
    /// Numbers connections over all workers.
    pub connection_numbers: Arc<AtomicU64>,
    /// Connection use.
    pub reuse: Reuse,
    /// Connect every slot before the run begins.
    pub prewarm: bool,
    /// Ask for kernel receive stamps.
    pub kernel_stamps: bool,
    /// Ask for kernel stamps of sent requests too.
    pub transmit_stamps: bool,
    /// Of which requests the kernel's counts are read.
    pub watched: Watched,
    /// How answers are read.
    pub answer_rule: AnswerRule,
    /// Deadline of a request.
    pub timeout: Nanos,
    /// Longest silence.
    pub idle_timeout: Nanos,
    /// Longest time to connect.
    pub connect_timeout: Nanos,
}

/// What an open loop needs beside the requests, each of which knows its own due.
#[derive(Debug, Clone)]
pub struct OpenLoop {
    /// CLOCK_MONOTONIC at the start of the window, the same for all workers: the first that begins decides.
    pub start: Arc<OnceLock<Nanos>>,
    /// Look all the time just before a request is due: where the worker has a core of its own.
    pub spin: bool,
    /// How many workers take from the same schedule.
    pub workers: u32,
}

/// What a worker's loop did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkerHealth {
    /// Number of the worker.
    pub worker: u32,
    /// The core it was really pinned to.
    pub pinned_core: Option<usize>,
    /// When the loop began.
    pub started: Ticks,
    /// When it ended.
    pub ended: Ticks,
    /// Time spent waiting, in the kernel or awake.
    pub waited: Ticks,
    /// How late the worker was back from each wait for a due instant that ended with it; empty in a closed loop.
    pub timer_lateness: Lateness,
    /// Processor time of its thread between these two.
    pub cpu: Nanos,
    /// What the scheduler did to its thread in the loop.
    pub scheduling: Scheduling,
    /// Its receive calls that brought bytes.
    pub reads: Reads,
    /// Requests that did not fit into the ring.
    pub lost_records: u64,
    /// Output chunks that did not fit into the ring.
    pub lost_chunks: u64,
    /// The connections it made before the run began, where that was asked for.
    pub prewarm: Option<Prewarm>,
}

/// Receive calls that brought bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reads {
    /// How many.
    pub count: u64,
    /// Those that filled the buffer: bytes were left behind in the socket.
    pub filled: u64,
    /// Bytes of the largest one.
    pub largest: usize,
}

/// Connections made before the run began.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prewarm {
    /// How many were to be made: one per slot.
    pub asked: u64,
    /// When the first one was begun.
    pub began: Ticks,
    /// When the last one was there, or had failed.
    pub ended: Ticks,
    /// Start and end of connecting, of each that was made.
    pub made: Vec<(Ticks, Ticks)>,
    /// How many failed.
    pub failed: u64,
    /// What the first failure was.
    pub failure: Option<String>,
}

impl Reads {
    /// Counts one of `length` bytes.
    #[inline]
    pub(crate) fn add(&mut self, length: usize, is_filled: bool) {
        self.count += 1;
        self.filled += u64::from(is_filled);
        self.largest = self.largest.max(length);
    }
}

impl WorkerSetup {
    /// A record for a request that is about to begin.
    pub(crate) fn record(&self, slot: usize, request: &Prepared, due: Ticks) -> RequestRecord {
        let slot = u32::try_from(slot).unwrap_or(u32::MAX);
        let slot = match &self.open {
            None => self.first_slot.saturating_add(slot),
            // Pools grow: the places of all workers are numbered in turn.
            Some(open) => slot.saturating_mul(open.workers).saturating_add(self.worker),
        };
        RequestRecord::new(request.index, request.phase, slot, due)
    }

    /// The next connection's number.
    pub(crate) fn next_connection(&self) -> u64 {
        self.connection_numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// The way of a connection, and how many connections went it before.
    pub(crate) fn route(&self, connection: u64) -> Option<(Route, u64)> {
        let count = u64::try_from(self.routes.len()).ok().filter(|n| *n > 0)?;
        let route = self.routes.get(usize::try_from(connection % count).ok()?)?;
        Some((*route, connection / count))
    }
}
