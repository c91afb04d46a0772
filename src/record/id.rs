//! Names of runs and of requests.
//!
//! A run's name sorts by time as text and is fit for a file name; its random part keeps runs apart that begin in the
//! same second on several machines. A request's name is sent as `X-Request-Id` and stands in every record, so that a
//! server's log can be joined with ours. This file reads no clock: the instant is an argument.

use std::fmt;
use std::hash::{BuildHasher, RandomState};

use crate::record::Phase;
use crate::units::{UnixNanos, calendar};

/// `20260917T172104Z-3f9a1c2e`: the second of the run's zero in UTC, and 32 random bits in hexadecimal.
///
/// With 32 bits, a thousand machines that start in the same second collide with a probability of about 1 in 8,600.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RunId(String);

impl RunId {
    /// The name of the run that began at `started`; `entropy` is any 32 random bits.
    #[must_use]
    pub fn new(started: UnixNanos, entropy: u32) -> Self {
        Self(format!("{}-{entropy:08x}", calendar::basic(started)))
    }

    /// The name of a run that begins at `started`, unlike any other.
    #[must_use]
    pub fn unique(started: UnixNanos) -> Self {
        // The keys of a hasher come from the system's random source.
        let [a, b, c, d, ..] = RandomState::new().hash_one(started.get()).to_le_bytes();
        Self::new(started, u32::from_le_bytes([a, b, c, d]))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of one request: `<run id>-<index>`, for a warm-up request `<run id>-w<index>`. A request that is
    /// repeated keeps its name.
    #[must_use]
    pub fn request_id(&self, phase: Phase, index: u64) -> String {
        match phase {
            Phase::Warmup => format!("{}-w{index}", self.0),
            Phase::Measured | Phase::Drain => format!("{}-{index}", self.0),
        }
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_of_one_instant_have_two_names() {
        let started = UnixNanos::new(1_789_665_664_000_000_000).unwrap();
        let names: std::collections::HashSet<_> = (0..100).map(|_| RunId::unique(started)).collect();
        // Equal names among 100 have a probability of one in a million.
        assert_eq!(names.len(), 100);
    }

    #[test]
    fn names_of_a_run_and_of_its_requests() {
        let id = RunId::new(UnixNanos::new(1_789_665_664_000_000_000).unwrap(), 0x2e);
        assert_eq!(id.as_str(), "20260917T172104Z-0000002e");
        assert_eq!(id.request_id(Phase::Measured, 7), "20260917T172104Z-0000002e-7");
        assert_eq!(id.request_id(Phase::Drain, 7), id.request_id(Phase::Measured, 7));
        assert_eq!(id.request_id(Phase::Warmup, 7), "20260917T172104Z-0000002e-w7");
    }
}
