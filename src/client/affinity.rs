//! Which cores this process may use, and pinning a thread to one.

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The cores in the affinity mask of this process, ascending; empty when the kernel does not say.
#[must_use]
pub fn allowed_cores() -> Vec<usize> {
    let Ok(mask) = sched_getaffinity(Pid::from_raw(0)) else { return Vec::new() };
    (0..CpuSet::count()).filter(|core| mask.is_set(*core).unwrap_or(false)).collect()
}

/// Keeps the calling thread on the given cores.
///
/// # Errors
/// What the kernel says: `EINVAL` when none of the cores is there or allowed.
pub fn pin_to(cores: &[usize]) -> Result<(), Errno> {
    let mut mask = CpuSet::new();
    for core in cores {
        mask.set(*core)?;
    }
    sched_setaffinity(Pid::from_raw(0), &mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_can_be_pinned_to_an_allowed_core() {
        let cores = allowed_cores();
        let last = *cores.last().expect("a process runs on some core");
        std::thread::spawn(move || {
            pin_to(&[last]).unwrap();
            assert_eq!(allowed_cores(), vec![last]);
        })
        .join()
        .unwrap();
        assert_eq!(pin_to(&[CpuSet::count() + 1]), Err(Errno::EINVAL));
    }
}
