//! What the kernel's scheduler says about the calling thread: how long it was ready to run and did not run, and how often
//! it was taken off its core. Read before and after a span, never in it.

use std::fs::File;
use std::os::unix::fs::FileExt;

use nix::sys::resource::{UsageWho, getrusage};

use crate::units::Nanos;

/// Scheduling statistics of the thread that opens them (Documentation/scheduler/sched-stats.rst): nanoseconds on a core,
/// nanoseconds on a run queue without a core, number of times put on a core.
const SCHEDSTAT: &str = "/proc/thread-self/schedstat";

/// Three decimal numbers of 64 bits with their separators.
const LONGEST_LINE: usize = 64;

/// The calling thread's figures so far. `None` where the kernel does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scheduling {
    /// Time ready to run and not running.
    pub run_queue_wait: Option<Nanos>,
    /// How often it was taken off its core against its will.
    pub involuntary_switches: Option<u64>,
}

/// The run-queue wait of the thread that opened it, to be read often: a system call a reading.
#[derive(Debug)]
pub struct RunQueue(File);

impl Scheduling {
    /// Reads the calling thread's figures.
    #[must_use]
    pub fn read() -> Self {
        let usage = getrusage(UsageWho::RUSAGE_THREAD).ok();
        Self {
            run_queue_wait: RunQueue::open().and_then(|queue| queue.wait()),
            involuntary_switches: usage.and_then(|u| u64::try_from(u.involuntary_context_switches()).ok()),
        }
    }

    /// What was added since an earlier reading of the same thread.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        let wait = self.run_queue_wait.zip(before.run_queue_wait);
        let switches = self.involuntary_switches.zip(before.involuntary_switches);
        Self {
            run_queue_wait: wait.map(|(after, before)| Nanos(after.0.saturating_sub(before.0))),
            involuntary_switches: switches.map(|(after, before)| after.saturating_sub(before)),
        }
    }
}

impl RunQueue {
    /// Of the calling thread; `None` where the kernel keeps no such statistics.
    #[must_use]
    pub fn open() -> Option<Self> {
        File::open(SCHEDSTAT).ok().map(Self)
    }

    /// The wait so far; `None` where it cannot be read.
    #[must_use]
    pub fn wait(&self) -> Option<Nanos> {
        let mut line = [0; LONGEST_LINE];
        let length = self.0.read_at(&mut line, 0).ok()?;
        wait_of(std::str::from_utf8(line.get(..length)?).ok()?)
    }
}

fn wait_of(line: &str) -> Option<Nanos> {
    line.split_ascii_whitespace().nth(1)?.parse().ok().map(Nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_number_is_the_wait_and_what_is_not_there_is_not_zero() {
        assert_eq!(wait_of("123456789 4242 17\n"), Some(Nanos(4_242)));
        assert_eq!(wait_of("123456789\n"), None);
        assert_eq!(wait_of("1 many 2"), None);
    }

    /// A thread that sleeps waits for no core, and one that shares its core with a busy one does.
    #[test]
    fn sharing_a_core_shows() {
        use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
        use nix::unistd::Pid;
        use std::sync::atomic::{AtomicBool, Ordering};

        let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let core = (0..CpuSet::count()).find(|core| allowed.is_set(*core).unwrap()).unwrap();
        let pin = move || {
            let mut one = CpuSet::new();
            one.set(core).unwrap();
            sched_setaffinity(Pid::from_raw(0), &one).unwrap();
        };
        let done = AtomicBool::new(false);
        let busy = || {
            pin();
            while !done.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        let watched = || {
            pin();
            let before = Scheduling::read();
            let mut value = 1_u64;
            let clock = crate::clock::Clock::new();
            let end = clock.monotonic().0 + 100_000_000;
            while clock.monotonic().0 < end {
                value = std::hint::black_box(value.wrapping_mul(31));
            }
            let after = Scheduling::read().since(before);
            done.store(true, Ordering::Relaxed);
            after
        };
        let seen = std::thread::scope(|scope| {
            scope.spawn(busy);
            scope.spawn(watched).join().unwrap()
        });
        // Half of the tenth of a second, and half of that is asked for.
        assert!(seen.run_queue_wait.unwrap() > Nanos::from_millis(25), "{seen:?}");
        assert!(seen.involuntary_switches.unwrap() > 0, "{seen:?}");
    }
}
