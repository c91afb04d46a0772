//! Whether a target keeps the connections that it says it keeps.
//!
//! llama.cpp announces `Keep-Alive` and closes every connection after a streamed answer all the same, 3–40 µs after the
//! last chunk and 6 ms at worst; a request that is already on its way then is lost. So the first kept connection is
//! watched for a while before any is used again. What happens to it decides for all that come after.

use crate::units::{Nanos, Ticks};

/// How long the first kept connection is watched: nearly twice the slowest close seen. Once per worker, and only slots
/// that become free in this time wait for it.
pub(crate) const PROBATION: Nanos = Nanos::from_millis(10);

/// What is known about a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// No connection was kept yet, or the first one was at this instant.
    Unknown(Option<Ticks>),
    /// A connection outlived the probation.
    Keeps,
    /// The first connection was closed in the probation: every request gets a new one.
    Closes,
}

impl Trust {
    /// A connection was kept.
    pub(crate) fn kept(&mut self, now: Ticks) {
        if let Self::Unknown(since) = self {
            since.get_or_insert(now);
        }
    }

    /// The peer closed a kept connection; whether that is news for all the others. After the probation it is that
    /// connection's own affair.
    pub(crate) fn closed(&mut self, now: Ticks, probation: Ticks) -> bool {
        let news = self.probation_end(now, probation).is_some();
        if news {
            *self = Self::Closes;
        }
        news
    }

    /// Until when a kept connection is only watched; `None` when the probation is over.
    pub(crate) fn probation_end(&mut self, now: Ticks, probation: Ticks) -> Option<Ticks> {
        let Self::Unknown(since) = *self else { return None };
        let until = Ticks(since?.0.saturating_add(probation.0));
        if now < until {
            return Some(until);
        }
        *self = Self::Keeps;
        None
    }

    /// Whether it is worth keeping a connection.
    pub(crate) fn may_keep(self) -> bool {
        self != Self::Closes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_outlives_the_probation_is_believed() {
        let mut trust = Trust::Unknown(None);
        assert_eq!(trust.probation_end(Ticks(5), Ticks(20)), None, "nothing was kept yet");
        trust.kept(Ticks(10));
        trust.kept(Ticks(15));
        assert_eq!(trust.probation_end(Ticks(29), Ticks(20)), Some(Ticks(30)));
        assert_eq!(trust.probation_end(Ticks(30), Ticks(20)), None);
        assert_eq!(trust, Trust::Keeps);
        assert!(!trust.closed(Ticks(31), Ticks(20)), "a later close is that connection's own affair");
        assert!(trust.may_keep());
    }

    #[test]
    fn a_close_after_a_probation_that_nobody_looked_at_decides_nothing() {
        let mut trust = Trust::Unknown(None);
        trust.kept(Ticks(10));
        assert!(!trust.closed(Ticks(500), Ticks(20)));
        assert_eq!(trust, Trust::Keeps);
    }

    #[test]
    fn a_close_in_the_probation_decides_once() {
        let mut trust = Trust::Unknown(None);
        trust.kept(Ticks(10));
        assert!(trust.closed(Ticks(11), Ticks(20)));
        assert!(!trust.closed(Ticks(12), Ticks(20)));
        assert_eq!(trust.probation_end(Ticks(11), Ticks(20)), None);
        assert!(!trust.may_keep());
    }
}
