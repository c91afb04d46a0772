//! Asks all workers to stop, from any thread, and wakes them where they wait.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};

/// The signal: given once, never taken back.
#[derive(Debug)]
pub struct StopSignal {
    requested: AtomicBool,
    wake: EventFd,
}

impl StopSignal {
    /// A signal that is not given yet.
    ///
    /// # Errors
    /// What the kernel says when it has no descriptor left.
    pub fn new() -> Result<Self, Errno> {
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC)?;
        Ok(Self { requested: AtomicBool::new(false), wake })
    }

    /// Asks all workers to cut what is in flight and to end.
    pub fn request(&self) {
        self.requested.store(true, Ordering::Release);
        // A failed write can only mean that the counter is full: then everybody was woken already.
        let _ = self.wake.write(1);
    }

    /// Whether a stop was asked for.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Acquire)
    }

    /// Becomes readable when the stop is asked for, for every waiter that watches it edge-triggered.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
