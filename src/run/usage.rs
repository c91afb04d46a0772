//! What this process took from the machine, as the kernel counted it.

use nix::sys::resource::{UsageWho, getrusage};

use crate::report::validity::StealFacts;
use crate::units::{Bytes, Nanos};

/// Largest resident size of this process so far; `None` where the kernel does not say. `getrusage` has a figure of the
/// same name, but it may be that of the program that started this one.
pub(super) fn peak_rss() -> Option<Bytes> {
    peak_of(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// Processor time of this process so far, all threads, in user space and in the kernel; no child's.
pub(super) fn cpu_time() -> Option<Nanos> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    let spent = usage.user_time() + usage.system_time();
    let micros = spent.tv_sec().checked_mul(1_000_000)?.checked_add(spent.tv_usec())?;
    micros.checked_mul(1_000).map(Nanos)
}

/// The machine's processor time so far, of all cores together, in the kernel's clock ticks (proc(5), `/proc/stat`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineTime {
    all: u64,
    stolen: u64,
}

/// Columns of the line of all cores that are its time: user, nice, system, idle, iowait, irq, softirq, steal. The two
/// behind them (guests) are in the first two already.
const TIME_COLUMNS: usize = 8;

/// A tick of these columns: USER_HZ, which is 100 on every architecture that Linux was ported to in this century.
const TICK: Nanos = Nanos::from_millis(10);

impl MachineTime {
    /// Now; `None` where the system does not say.
    pub(super) fn read() -> Option<Self> {
        Self::of(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    /// What the hypervisor took since an earlier reading; `None` where no tick passed.
    pub(super) fn stolen_since(self, before: Self) -> Option<StealFacts> {
        let (all, stolen) = (self.all.checked_sub(before.all)?, self.stolen.checked_sub(before.stolen)?);
        let time = i64::try_from(stolen).ok()?.checked_mul(TICK.0)?;
        #[expect(clippy::cast_precision_loss, reason = "ticks of a run are far below 2^53")]
        (all > 0).then(|| StealFacts { time: Nanos(time), share: stolen as f64 / all as f64 })
    }

    fn of(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let columns = line.split_ascii_whitespace().take(TIME_COLUMNS).map(|column| column.parse().ok());
        let columns: Vec<u64> = columns.collect::<Option<_>>()?;
        Some(Self {
            all: columns.iter().try_fold(0, |sum: u64, ticks| sum.checked_add(*ticks))?,
            stolen: *columns.get(TIME_COLUMNS - 1)?,
        })
    }
}

fn peak_of(status: &str) -> Option<Bytes> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kib.checked_mul(1024).map(Bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_read_in_bytes_and_what_is_not_there_is_not_zero() {
        let status = "Name:\tx\nVmPeak:\t  9 kB\nVmHWM:\t   12344 kB\nVmRSS:\t 11 kB\n";
        assert_eq!(peak_of(status), Some(Bytes(12_344 * 1024)));
        assert_eq!(peak_of("VmRSS:\t 11 kB\n"), None);
        assert_eq!(peak_of("VmHWM:\t many kB\n"), None);
    }

    #[test]
    fn the_stolen_time_is_the_eighth_column_and_guests_count_once() {
        let of = MachineTime::of;
        let before = of("cpu  10 0 10 70 0 0 5 5 7 9\ncpu0 1 2 3 4 5 6 7 8 9 10\n").unwrap();
        assert_eq!(before, MachineTime { all: 100, stolen: 5 });
        let after = of("cpu  20 0 20 135 0 0 5 20 7 9\n").unwrap();
        let stolen = after.stolen_since(before).unwrap();
        assert_eq!(stolen, StealFacts { time: Nanos::from_millis(150), share: 0.15 });
        assert_eq!(before.stolen_since(before), None, "nothing passed");
        assert_eq!(before.stolen_since(after), None, "a counter went back");
        assert_eq!((of("cpu  1 2 3\n"), of("cpu  1 2 3 4 5 6 7 x\n"), of("intr 1\n")), (None, None, None));
        assert!(MachineTime::read().is_some());
    }

    #[test]
    fn what_is_touched_and_done_is_seen() {
        let before = (peak_rss().unwrap(), cpu_time().unwrap());
        let mut touched = vec![1_u8; 32 << 20];
        touched.iter_mut().for_each(|byte| *byte = byte.wrapping_mul(31));
        assert_eq!(std::hint::black_box(touched).len(), 32 << 20);
        let after = (peak_rss().unwrap(), cpu_time().unwrap());
        // Other tests run in this process and may have freed what they held.
        assert!(after.0.0 >= before.0.0.max(32 << 20), "{before:?} {after:?}");
        assert!(after.1.0 > before.1.0 + 1_000_000, "{before:?} {after:?}");
    }
}
