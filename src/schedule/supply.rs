//! Requests in the plan's order, rendered off the worker cores, taken by whichever slot is free, or in an open loop by
//! whichever worker has none that waits to be due.
//!
//! One thread fills the queue, every worker takes from it: the order of the plan is the order of sending for any
//! number of workers, and no slot idles while another worker holds requests back.

use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_queue::ArrayQueue;

use super::Outgoing;
use crate::record::Phase;
use crate::units::Nanos;

/// A request that is ready to be written to a socket.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// Position in the plan.
    pub index: u64,
    /// Part of the run.
    pub phase: Phase,
    /// When it is due, since the start of the window; `None` in a closed loop, where a free slot decides.
    pub due: Option<Nanos>,
    /// Head and body, as they go over the wire.
    pub bytes: Outgoing,
}

/// What a free slot gets.
#[derive(Debug)]
pub enum Next {
    /// The next request of the plan.
    Request(Prepared),
    /// The plan has more, but it is not rendered yet: ask again soon.
    Later,
    /// The plan is exhausted.
    Done,
}

/// The queue of prepared requests.
#[derive(Debug)]
pub struct Supply {
    queue: ArrayQueue<Prepared>,
    closed: AtomicBool,
}

impl Supply {
    /// A queue for at most `capacity` requests (at least one).
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { queue: ArrayQueue::new(capacity.max(1)), closed: AtomicBool::new(false) }
    }

    /// Adds a request.
    ///
    /// # Errors
    /// Gives the request back when the queue is full.
    pub fn push(&self, request: Prepared) -> Result<(), Prepared> {
        self.queue.push(request)
    }

    /// Says that nothing will be added any more.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// The next request, without waiting.
    #[must_use]
    pub fn next(&self) -> Next {
        // Read before the queue: what was pushed before the close is seen by the pop after it.
        let closed = self.closed.load(Ordering::Acquire);
        match self.queue.pop() {
            Some(request) => Next::Request(request),
            None if closed => Next::Done,
            None => Next::Later,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(index: u64) -> Prepared {
        Prepared { index, phase: Phase::Measured, due: None, bytes: Outgoing::default() }
    }

    #[test]
    fn requests_come_in_order_and_the_end_is_not_mistaken_for_a_pause() {
        let supply = Supply::new(2);
        assert!(matches!(supply.next(), Next::Later));
        supply.push(request(0)).unwrap();
        supply.push(request(1)).unwrap();
        assert_eq!(supply.push(request(2)).unwrap_err().index, 2);
        supply.close();
        for expected in 0..2 {
            let Next::Request(got) = supply.next() else { panic!("a request is waiting") };
            assert_eq!(got.index, expected);
        }
        assert!(matches!(supply.next(), Next::Done));
    }

    #[test]
    fn several_takers_get_every_request_once() {
        let supply = Supply::new(10_000);
        (0..10_000).for_each(|i| supply.push(request(i)).unwrap());
        supply.close();
        let mut all: Vec<u64> = std::thread::scope(|scope| {
            let take = || {
                let mut mine = Vec::new();
                while let Next::Request(r) = supply.next() {
                    mine.push(r.index);
                }
                assert!(mine.windows(2).all(|w| w[0] < w[1]));
                mine
            };
            let hands: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            hands.into_iter().flat_map(|h| h.join().unwrap()).collect()
        });
        all.sort_unstable();
        assert!(all.iter().copied().eq(0..10_000));
    }
}
