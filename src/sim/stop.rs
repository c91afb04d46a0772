//! What ends the simulator: SIGINT, SIGTERM, and the end of standard input when the parent asked for that.

use std::io::{self, Stdin};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::read;

/// Descriptors that become readable when it is time to stop.
#[derive(Debug)]
pub(crate) struct StopSources {
    signals: SignalFd,
    stdin: Option<Stdin>,
}

impl StopSources {
    /// Takes SIGINT and SIGTERM of this thread, and of threads it starts later, as events instead of as death.
    ///
    /// # Errors
    /// When no descriptor is free.
    pub(crate) fn new(with_stdin: bool) -> Result<Self, Errno> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGINT);
        set.add(Signal::SIGTERM);
        set.thread_block()?;
        let signals = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Self { signals, stdin: with_stdin.then(io::stdin) })
    }

    /// The signals' descriptor: readable means stop.
    pub(crate) const fn signals(&self) -> &SignalFd {
        &self.signals
    }

    /// Standard input, when its end means stop.
    pub(crate) const fn stdin(&self) -> Option<&Stdin> {
        self.stdin.as_ref()
    }

    /// Call when standard input is readable: throws away what is there and says whether its end is reached.
    pub(crate) fn stdin_has_ended(&self) -> bool {
        let Some(stdin) = &self.stdin else { return false };
        // One read of what is there never blocks, and the descriptor, which the parent may share, keeps its mode.
        match read(stdin, &mut [0_u8; 512]) {
            Ok(n) => n == 0,
            Err(Errno::EINTR | Errno::EAGAIN) => false,
            Err(_) => true,
        }
    }
}
