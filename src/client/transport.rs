//! What the kernel counted on a connection, read when a request ends: its shortest round trip, what was sent again, and
//! how long bytes were on their way. Nothing of it is read while an answer comes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use nix::libc;
use nix::sys::socket::getsockopt;
use socket2::{Domain, Socket, Type};

use crate::client::socket::StreamSocket;
use crate::record::{Outcome, Phase, RequestRecord, StampKind, TransportFacts};

/// Requests of a worker that count as its slowest: more than a document shows of a run, so that a request that is among
/// them at the end was among them when it ended.
const KEPT_SLOWEST: usize = 32;

/// Of which requests the kernel's counts are read. Reading them costs a third of a microsecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watched {
    /// All: little beside the hundreds of events of a stream, and every request has its own differences.
    Every,
    /// Those that are among the slowest of their worker so far: the others pay for a comparison.
    Slowest,
    /// None: the kernel does not offer them.
    Nothing,
}

/// Decides of which requests the kernel's counts are read.
#[derive(Debug)]
pub(super) struct Gate {
    watched: Watched,
    /// Ticks from due to end of the slowest requests so far.
    slowest: BinaryHeap<Reverse<u64>>,
}

/// What the kernel had counted on a connection at the last reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counted {
    total_retrans: u32,
    unacked_us: u64,
    /// A request ended since then and was not read.
    pub(super) is_behind: bool,
}

/// The head of the kernel's `struct tcp_info` (`linux/tcp.h`), whose layout only grows at its end. It has had these
/// members since Linux 4.10. It has no padding and any bits are a value of it, so that the library can fill it; the call
/// itself is the library's.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct TcpInfo {
    _state: [u8; 8],
    _spans_and_windows: [u32; 23],
    total_retrans: u32,
    _rates_and_bytes: [u64; 4],
    _segments: [u32; 3],
    min_rtt: u32,
    _data_segments: [u32; 2],
    _delivery_rate: u64,
    busy_time: u64,
    rwnd_limited: u64,
}

nix::getsockopt_impl!(
    ReadTcpInfo,
    libc::IPPROTO_TCP,
    libc::TCP_INFO,
    TcpInfo,
    nix::sys::socket::sockopt::GetStruct<TcpInfo>
);

/// The socket option.
#[derive(Debug, Clone, Copy)]
struct ReadTcpInfo;

impl Gate {
    pub(super) fn new(watched: Watched) -> Self {
        Self { watched, slowest: BinaryHeap::with_capacity(KEPT_SLOWEST + 1) }
    }

    /// Whether the kernel's counts of a request that has ended are to be read.
    #[inline]
    pub(super) fn admits(&mut self, record: &RequestRecord) -> bool {
        match self.watched {
            Watched::Every => return true,
            Watched::Nothing => return false,
            Watched::Slowest => {}
        }
        if record.outcome != Outcome::Ok || record.phase == Phase::Warmup {
            return false;
        }
        let Some(end) = record.stamp(StampKind::Terminal).or(record.stamp(StampKind::End)) else {
            return false;
        };
        let took = end.user.0.saturating_sub(record.due.0);
        if self.slowest.len() >= KEPT_SLOWEST {
            if self.slowest.peek().is_some_and(|Reverse(least)| took <= *least) {
                return false;
            }
            self.slowest.pop();
        }
        self.slowest.push(Reverse(took));
        true
    }
}

impl Counted {
    /// Reads the counts of a socket, and gives what was added since the last reading.
    pub(super) fn advance(&mut self, socket: &StreamSocket) -> TransportFacts {
        match getsockopt(socket, ReadTcpInfo) {
            Ok(now) => self.take(&now),
            Err(_) => {
                self.is_behind = true;
                TransportFacts::default()
            }
        }
    }

    fn take(&mut self, now: &TcpInfo) -> TransportFacts {
        let before = *self;
        // Both count on while bytes are under way; a window that is closed is a part of it.
        let unacked_us = now.busy_time.saturating_sub(now.rwnd_limited);
        *self = Self { total_retrans: now.total_retrans, unacked_us, is_behind: false };
        let retransmits = now.total_retrans.saturating_sub(before.total_retrans);
        TransportFacts {
            // The kernel's "no sample yet".
            rtt_us: Some(now.min_rtt).filter(|rtt| *rtt != u32::MAX),
            // Nothing was sent again since the last reading, or it was the one of the request before.
            retransmits: (!before.is_behind || retransmits == 0).then_some(retransmits),
            unacked_us: (!before.is_behind)
                .then(|| u32::try_from(unacked_us.saturating_sub(before.unacked_us)).unwrap_or(u32::MAX)),
        }
    }
}

/// Whether this kernel counts what is read here. A kernel that is older, or a sandbox that gives a shorter structure, is
/// refused by the library with a panic, which ends here and not on a worker.
#[must_use]
pub fn is_counted() -> bool {
    std::panic::catch_unwind(|| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None);
        socket.is_ok_and(|socket| getsockopt(&socket, ReadTcpInfo).is_ok())
    })
    .unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Stamp;
    use crate::units::Ticks;

    #[test]
    fn the_layout_is_the_kernels() {
        // Offsets of `struct tcp_info` in `linux/tcp.h`, counted by hand.
        assert_eq!(std::mem::offset_of!(TcpInfo, total_retrans), 100);
        assert_eq!(std::mem::offset_of!(TcpInfo, min_rtt), 148);
        assert_eq!(std::mem::offset_of!(TcpInfo, busy_time), 168);
        assert_eq!(std::mem::offset_of!(TcpInfo, rwnd_limited), 176);
        assert_eq!(size_of::<TcpInfo>(), 184);
        assert!(is_counted());
    }

    fn info(total_retrans: u32, busy_time: u64, rwnd_limited: u64) -> TcpInfo {
        TcpInfo {
            _state: [1; 8],
            _spans_and_windows: [2; 23],
            total_retrans,
            _rates_and_bytes: [3; 4],
            _segments: [4; 3],
            min_rtt: 70,
            _data_segments: [5; 2],
            _delivery_rate: 6,
            busy_time,
            rwnd_limited,
        }
    }

    #[test]
    fn a_request_has_what_was_added_since_the_one_before() {
        let mut counted = Counted::default();
        let first = counted.take(&info(2, 900, 100));
        assert_eq!(first, TransportFacts { rtt_us: Some(70), retransmits: Some(2), unacked_us: Some(800) });
        let second = counted.take(&info(2, 1_000, 150));
        assert_eq!((second.retransmits, second.unacked_us), (Some(0), Some(50)));
        let mut unsampled = info(2, 1_000, 150);
        unsampled.min_rtt = u32::MAX;
        assert_eq!(counted.take(&unsampled).rtt_us, None);
    }

    #[test]
    fn what_may_belong_to_an_earlier_request_is_not_known() {
        let mut counted = Counted { is_behind: true, ..Counted::default() };
        assert_eq!(counted.take(&info(1, 900, 0)).retransmits, None);
        counted.is_behind = true;
        let same = counted.take(&info(1, 950, 0));
        assert_eq!((same.retransmits, same.unacked_us), (Some(0), None), "nothing was sent again since");
        assert_eq!(
            counted.take(&info(2, 960, 0)).retransmits,
            Some(1),
            "the reading before was of the request before"
        );
    }

    #[test]
    fn the_gate_lets_the_slowest_so_far_in_and_no_other() {
        let ended = |took: u64| {
            let mut record = RequestRecord::new(0, Phase::Measured, 0, Ticks(1_000));
            record.outcome = Outcome::Ok;
            record.set(StampKind::End, Stamp { user: Ticks(1_000 + took), kernel: None });
            record
        };
        let mut gate = Gate::new(Watched::Slowest);
        let mut warmup = ended(9_000);
        warmup.phase = Phase::Warmup;
        let mut failed = ended(9_000);
        failed.outcome = Outcome::TimeoutIdle;
        assert!(!gate.admits(&warmup) && !gate.admits(&failed));
        // Any order: the slowest of all that came are always let in.
        let mut seen: Vec<u64> = Vec::new();
        for n in 0..500_u64 {
            let took = (n * 7_919) % 1_009;
            let slower = seen.iter().filter(|other| **other >= took).count();
            assert_eq!(gate.admits(&ended(took)), slower < KEPT_SLOWEST, "{n}: {took}");
            seen.push(took);
        }
        assert!(Gate::new(Watched::Every).admits(&warmup));
        assert!(!Gate::new(Watched::Nothing).admits(&ended(1_000_000)));
    }
}
