//! File descriptors: how many this process may hold, and raising that as far as it may.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Descriptors that are no connections: output files, epoll and event descriptors, the stamp keeper, standard streams.
pub const OTHER_DESCRIPTORS: u64 = 48;

/// Raises the soft limit of descriptors to the hard one and says how many there may be.
#[must_use]
pub fn raise_descriptor_limit() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return u64::MAX };
    if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() { hard } else { soft }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_limit_is_the_hard_one_afterwards() {
        let got = super::raise_descriptor_limit();
        let (soft, hard) =
            nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!((got, soft), (hard, hard));
    }
}
