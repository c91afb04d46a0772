//! What a worker is told before it starts, and what it says about itself afterwards.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::record::RequestRecord;
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
    /// Slots of this worker.
    pub slots: usize,
    /// Number of its first slot in the run.
    pub first_slot: u32,
    /// Where to connect: used in turn, by connection number. Empty when the name could not be resolved.
    pub addresses: Arc<[SocketAddr]>,
    /// Why there is no address.
    pub unresolved: Option<Arc<str>>,
    /// Numbers connections over all workers.
    pub connection_numbers: Arc<AtomicU64>,
    /// Connection use.
    pub reuse: Reuse,
    /// Ask for kernel receive stamps.
    pub kernel_stamps: bool,
    /// How answers are read.
    pub answer_rule: AnswerRule,
    /// Deadline of a request.
    pub timeout: Nanos,
    /// Longest silence.
    pub idle_timeout: Nanos,
    /// Longest time to connect.
    pub connect_timeout: Nanos,
}

/// What a worker's loop did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkerHealth {
    /// Number of the worker.
    pub worker: u32,
    /// The core it was really pinned to.
    pub pinned_core: Option<usize>,
    /// When the loop began.
    pub started: Ticks,
    /// When it ended.
    pub ended: Ticks,
    /// Time spent waiting in the kernel.
    pub waited: Ticks,
    /// Requests that did not fit into the ring.
    pub lost_records: u64,
    /// Output chunks that did not fit into the ring.
    pub lost_chunks: u64,
}

impl WorkerSetup {
    /// A record for a request that is about to begin.
    pub(crate) fn record(&self, slot: usize, request: &Prepared, due: Ticks) -> RequestRecord {
        let slot = self.first_slot.saturating_add(u32::try_from(slot).unwrap_or(u32::MAX));
        RequestRecord::new(request.index, request.phase, slot, due)
    }

    /// The next connection's number.
    pub(crate) fn next_connection(&self) -> u64 {
        self.connection_numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// The address of a connection.
    pub(crate) fn address(&self, connection: u64) -> Option<SocketAddr> {
        let count = u64::try_from(self.addresses.len()).ok().filter(|n| *n > 0)?;
        self.addresses.get(usize::try_from(connection % count).ok()?).copied()
    }
}
