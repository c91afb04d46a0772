//! How many requests ended how. Counts are of measured requests, also those that ended in the grace time; a count of
//! zero is a real zero.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use crate::metrics::row::RequestRow;
use crate::metrics::rows::RowSource;
use crate::record::outcome::Fault;
use crate::record::{Outcome, Phase};

/// Requests by ending.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    /// Measured requests that the plan asked for.
    pub planned: u64,
    /// Those with a row.
    pub started: u64,
    /// Those of which at least one byte was offered to a socket.
    pub sent: u64,
    /// Those that ended `ok`.
    pub ok: u64,
    /// Every other ending, except the next two.
    pub failed: u64,
    /// Cut by the run's own end.
    pub incomplete: u64,
    /// Cut by the plan.
    pub cancelled: u64,
    /// Warm-up requests, in no other count.
    pub warmup: u64,
    /// By outcome, in the order of their declaration, only those that occurred.
    pub by_outcome: BTreeMap<Outcome, u64>,
    /// By status of the final response, where one came.
    pub by_status: BTreeMap<u16, u64>,
    /// Kept connections found closed before reuse and replaced.
    pub stale_connections: u64,
    /// Requests on a connection that had carried one before.
    pub reused: u64,
    /// Failures that are this machine's or this process's fault.
    pub client_faults: u64,
    /// Of each failing outcome that occurred, the failure with the lowest index.
    pub examples: BTreeMap<Outcome, Example>,
}

/// One failure, to show what such a failure is like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Example {
    /// The request.
    pub request_index: u64,
    /// Status of its response, where one came.
    pub http_status: Option<u16>,
    /// What is known about it, in one sentence.
    pub detail: Option<String>,
}

impl Counts {
    /// Counts rows.
    #[must_use]
    pub fn of(rows: impl RowSource, planned: u64) -> Self {
        let mut counts = Self { planned, ..Self::default() };
        rows.rows().for_each(|row| counts.add(row.borrow()));
        counts
    }

    fn add(&mut self, row: &RequestRow) {
        if row.phase == Phase::Warmup {
            self.warmup += 1;
            return;
        }
        self.started += 1;
        self.sent += u64::from(row.send_start.is_some());
        match row.outcome {
            Outcome::Ok => self.ok += 1,
            Outcome::Incomplete => self.incomplete += 1,
            Outcome::Cancelled => self.cancelled += 1,
            _ => self.failed += 1,
        }
        self.client_faults += u64::from(row.outcome.fault() == Fault::Client);
        self.stale_connections += u64::from(row.stale_connections);
        self.reused += u64::from(row.connection_use > 0);
        *self.by_outcome.entry(row.outcome).or_default() += 1;
        if let Some(status) = row.http_status {
            *self.by_status.entry(status).or_default() += 1;
        }
        if row.outcome.is_failed()
            && self.examples.get(&row.outcome).is_none_or(|e| row.request_index < e.request_index)
        {
            self.examples.insert(row.outcome, Example::of(row));
        }
    }
}

impl Example {
    fn of(row: &RequestRow) -> Self {
        let detail = row.error.as_ref().map(|e| e.message.clone()).filter(|message| !message.is_empty());
        Self { request_index: row.request_index, http_status: row.http_status, detail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::testing::row;
    use crate::record::ErrorDetail;

    #[test]
    fn every_ending_is_counted_once_and_warm_up_apart() {
        let mut rows = Vec::new();
        for outcome in Outcome::ALL {
            let mut one = row(0);
            (one.outcome, one.http_status, one.stale_connections) = (outcome, None, 1);
            rows.push(one);
        }
        rows[0].http_status = Some(200);
        rows[1].send_start = None;
        let mut warmup = row(0);
        (warmup.phase, warmup.outcome) = (Phase::Warmup, Outcome::HttpError);
        rows.push(warmup);
        let mut drain = row(1);
        drain.phase = Phase::Drain;
        rows.push(drain);

        let counts = Counts::of(&rows, 50);
        assert_eq!((counts.planned, counts.started, counts.sent), (50, 41, 40));
        assert_eq!((counts.ok, counts.incomplete, counts.cancelled, counts.warmup), (2, 1, 1, 1));
        assert_eq!(counts.failed, 37);
        assert_eq!(counts.started, counts.ok + counts.failed + counts.incomplete + counts.cancelled);
        assert_eq!(counts.by_outcome.values().sum::<u64>(), counts.started);
        assert_eq!(counts.by_outcome.keys().copied().collect::<Vec<_>>(), Outcome::ALL);
        assert_eq!(counts.by_status, BTreeMap::from([(200, 2)]));
        assert_eq!((counts.client_faults, counts.stale_connections), (3, 40));
        assert_eq!(counts.examples.len(), 37);
    }

    #[test]
    fn the_example_of_a_failure_is_the_first_one_by_index() {
        let rows = [7, 3, 5].map(|index| {
            let mut one = row(index);
            (one.outcome, one.http_status) = (Outcome::HttpError, Some(503));
            one.error = Some(ErrorDetail { message: format!("request {index}"), ..ErrorDetail::default() });
            one
        });
        let counts = Counts::of(&rows, 3);
        let example =
            Example { request_index: 3, http_status: Some(503), detail: Some("request 3".to_owned()) };
        assert_eq!(counts.examples, BTreeMap::from([(Outcome::HttpError, example)]));
    }
}
