//! What this process took from the machine, as the kernel counted it.

use nix::sys::resource::{UsageWho, getrusage};

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
