//! When patience ends, and what it then means; and how long the loop may wait.

use nix::sys::epoll::EpollTimeout;

use super::{CONNECTIONS_PER_SLOT, Worker};
use crate::client::connection::State;
use crate::client::setup::WorkerSetup;
use crate::client::trust::PROBATION;
use crate::clock::Rate;
use crate::record::Outcome;
use crate::units::text::format_duration;
use crate::units::{Nanos, Ticks};

/// How long a finished answer may take to bring its last chunk while the next request waits for its connection. After
/// that a new connection costs less than the wait.
const TAIL_PATIENCE: Nanos = Nanos::from_millis(1);

/// How long a connection may stay open for its last chunk after the terminal event, to be reused later.
const TAIL_LIMIT: Nanos = Nanos::from_millis(100);

/// How soon a slot asks again when the next request is not rendered yet.
const STARVED_RETRY_MS: u16 = 1;

/// Time limits in ticks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) total: Ticks,
    pub(super) idle: Ticks,
    pub(super) connect: Ticks,
    pub(super) tail: Ticks,
    pub(super) patience: Ticks,
    pub(super) probation: Ticks,
    pub(super) rate: Rate,
    /// The same as typed, for messages: total, idle, connect.
    spans: [Nanos; 3],
}

impl Limits {
    /// The limits of a worker.
    pub(super) fn of(setup: &WorkerSetup, rate: Rate) -> Self {
        Self {
            total: rate.ticks(setup.timeout),
            idle: rate.ticks(setup.idle_timeout),
            connect: rate.ticks(setup.connect_timeout),
            tail: rate.ticks(TAIL_LIMIT),
            patience: rate.ticks(TAIL_PATIENCE),
            probation: rate.ticks(PROBATION),
            rate,
            spans: [setup.timeout, setup.idle_timeout, setup.connect_timeout],
        }
    }

    /// What a timeout means, in words.
    fn told(&self, outcome: Outcome) -> String {
        let [total, idle, connect] = self.spans.map(format_duration);
        match outcome {
            Outcome::TimeoutConnect => format!("no connection within {connect}"),
            Outcome::TimeoutIdle => format!("no byte for {idle}"),
            _ => format!("no end within {total}"),
        }
    }
}

impl Worker {
    /// Looks at every deadline that has come.
    pub(super) fn on_deadlines(&mut self) {
        while let Some((at, index)) = self.timers.pop_due(self.now) {
            let slot = index / CONNECTIONS_PER_SLOT;
            if let Some(connection) = self.connections.get_mut(index) {
                connection.armed.came(at);
            }
            if self
                .slots
                .get(slot)
                .and_then(|s| s.waiting.as_ref())
                .is_some_and(|(_, until)| *until <= self.now)
            {
                self.resume(slot);
            }
            let Some((deadline, outcome)) = self.deadline(index) else { continue };
            if deadline > self.now {
                self.arm(index);
            } else if let Some(outcome) = outcome {
                let message = self.limits.told(outcome);
                self.fail(index, outcome, &message);
            } else {
                self.end_tail(index);
            }
        }
    }

    /// When a connection's patience ends, and what it then means; `None` as the outcome is the end of a tail.
    fn deadline(&self, index: usize) -> Option<(Ticks, Option<Outcome>)> {
        let connection = self.connections.get(index)?;
        let limits = &self.limits;
        let (since, span, outcome) = match connection.state {
            State::Closed | State::Idle | State::Staged => return None,
            State::Draining { until, .. } => return Some((until, None)),
            State::Connecting | State::Warming => (connection.began, limits.connect, Outcome::TimeoutConnect),
            State::Busy => (connection.last_byte, limits.idle, Outcome::TimeoutIdle),
        };
        let after = |start: Ticks, span: Ticks| Ticks(start.0.saturating_add(span.0));
        let (own, total) = (after(since, span), after(connection.began, limits.total));
        Some(if total < own { (total, Some(Outcome::TimeoutTotal)) } else { (own, Some(outcome)) })
    }

    /// Enters the deadline of a connection, unless an earlier entry will look at it.
    pub(super) fn arm(&mut self, index: usize) {
        let Some((deadline, _)) = self.deadline(index) else { return };
        let Some(connection) = self.connections.get_mut(index) else { return };
        if connection.armed.needs(deadline) {
            self.timers.arm(deadline, index);
        }
    }

    /// How long the loop may wait: until the next deadline, a moment when a slot is starved, else without limit.
    pub(super) fn wait_limit(&mut self) -> EpollTimeout {
        if self.schedule.as_mut().is_some_and(|schedule| schedule.prepare_wait(self.limits.rate)) {
            return EpollTimeout::ZERO;
        }
        if self.starved {
            return EpollTimeout::from(STARVED_RETRY_MS);
        }
        // The last portion of starts took the request that was at hand, and the one after it may be due already.
        if self.schedule.as_ref().is_some_and(|schedule| !schedule.has_next()) && !self.exhausted {
            return EpollTimeout::ZERO;
        }
        if !self.again.is_empty() || !self.free.is_empty() {
            return EpollTimeout::ZERO;
        }
        let Some(next) = self.timers.next() else { return EpollTimeout::NONE };
        let ns = self.limits.rate.nanos(Ticks(next.0.saturating_sub(self.now.0)));
        // Rounded up, so that the loop does not turn idly through the last millisecond.
        let ms = ns.0 / Nanos::PER_MILLI + 1;
        EpollTimeout::try_from(ms).unwrap_or(EpollTimeout::MAX)
    }
}
