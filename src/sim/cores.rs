//! Which cores the simulator's threads run on, and how many descriptors the process may have.

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Pid;

/// Pins the calling thread to `cores`; an empty list leaves it as it is.
///
/// # Errors
/// When a core does not exist or may not be used.
pub(crate) fn pin(cores: &[usize]) -> Result<(), Errno> {
    if cores.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for &core in cores {
        set.set(core)?;
    }
    sched_setaffinity(Pid::from_raw(0), &set)
}

/// How many descriptors the process may have open.
///
/// # Errors
/// Whatever the system says.
pub(crate) fn descriptor_limit() -> Result<u64, Errno> {
    getrlimit(Resource::RLIMIT_NOFILE).map(|(soft, _)| soft)
}

/// Raises the limit of open descriptors to the hard limit: one connection is one descriptor.
///
/// # Errors
/// Whatever the system says; going up to the hard limit is normally allowed.
pub(crate) fn raise_descriptor_limit() -> Result<(), Errno> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard { setrlimit(Resource::RLIMIT_NOFILE, hard, hard) } else { Ok(()) }
}
