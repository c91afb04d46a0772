//! Renders the plan's requests ahead of their use, on a thread of its own, in the plan's order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::record::Phase;
use crate::schedule::{Outgoing, Pacer, Prepared, Supply};

/// Rendered requests may hold about this much memory: a plan of 10,000 requests of 25 kB fits whole.
const SUPPLY_BUDGET_BYTES: u64 = 256 * 1024 * 1024;

/// The queue is never longer than this, however small the requests are.
const SUPPLY_MAX_REQUESTS: u64 = 65_536;

/// How long the feeder sleeps when the queue is full: far less than what the queue holds.
const PAUSE: Duration = Duration::from_micros(500);

/// However large requests are, one is rendered while another is taken.
const SUPPLY_MIN_REQUESTS: u64 = 2;

/// Room for as many requests as memory allows. It does not grow with the number of slots: ten thousand of them with
/// prompts of a megabyte would take all there is, and rendering keeps up with sending.
#[must_use]
pub fn supply_capacity(requests: u64, request_bytes: u64) -> usize {
    let by_memory = SUPPLY_BUDGET_BYTES / request_bytes.max(1);
    let wanted = by_memory.clamp(SUPPLY_MIN_REQUESTS, SUPPLY_MAX_REQUESTS);
    usize::try_from(wanted.min(requests)).unwrap_or(usize::MAX).max(1)
}

/// Feeds a supply until the plan is exhausted or `stop` is set, then closes it. In an open loop `pacer` says when each
/// request is due. `ready` is called once, when the queue is full or holds the whole plan: the run may begin.
pub fn feed(
    supply: &Supply,
    requests: u64,
    mut pacer: Option<Pacer>,
    mut render: impl FnMut(u64) -> Outgoing,
    stop: &Arc<AtomicBool>,
    ready: impl FnOnce(),
) {
    let mut ready = Some(ready);
    'plan: for index in 0..requests {
        let due = pacer.as_mut().and_then(Iterator::next);
        let mut next = Prepared { index, phase: Phase::Measured, due, bytes: render(index) };
        while let Err(back) = supply.push(next) {
            next = back;
            if let Some(ready) = ready.take() {
                ready();
            }
            if stop.load(Ordering::Acquire) {
                break 'plan;
            }
            std::thread::sleep(PAUSE);
        }
    }
    supply.close();
    if let Some(ready) = ready.take() {
        ready();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Next;

    #[test]
    fn the_queue_holds_the_plan_or_what_memory_allows() {
        assert_eq!(supply_capacity(60, 2_000), 60);
        assert_eq!(supply_capacity(10_000, 25_000), 10_000);
        assert_eq!(supply_capacity(10_000, 1 << 20), 256);
        assert_eq!(supply_capacity(10_000, 1 << 30), 2);
        assert_eq!(supply_capacity(10_000_000, 100), 65_536);
        assert_eq!(supply_capacity(0, 0), 1);
    }

    #[test]
    fn every_request_is_fed_in_order_through_a_short_queue() {
        let supply = Arc::new(Supply::new(4));
        let stop = Arc::new(AtomicBool::new(false));
        let taker = Arc::clone(&supply);
        let thread = std::thread::spawn(move || {
            let mut seen = Vec::new();
            loop {
                match taker.next() {
                    Next::Request(r) => seen.push(r.index),
                    Next::Later => std::thread::yield_now(),
                    Next::Done => return seen,
                }
            }
        });
        let mut began = 0;
        feed(&supply, 1_000, None, |_| Outgoing::default(), &stop, || began += 1);
        assert!(thread.join().unwrap().into_iter().eq(0..1_000));
        assert_eq!(began, 1);
    }

    #[test]
    fn a_stop_ends_the_feeder_although_nobody_takes() {
        let supply = Supply::new(2);
        feed(&supply, 1_000, None, |_| Outgoing::default(), &Arc::new(AtomicBool::new(true)), || {});
        assert!(matches!(supply.next(), Next::Request(_)));
    }
}
