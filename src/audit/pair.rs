//! Joins what the client wrote down with what the simulator's ledger says: requests by their id, output chunks by their
//! order within the request.
//!
//! What does not fit is counted, never guessed at and never left out in silence: an event that is paired with its
//! neighbour would show as an error of a whole gap, and an event that is dropped would hide one. Both sides end up on
//! CLOCK_MONOTONIC. Pairs of chunks are made while they are looked at and kept nowhere: a calibration has a million of
//! them. Nothing is judged here.

use std::collections::HashMap;

use crate::audit::truth::{Sent, Truth, TruthRequest};
use crate::metrics::row::RequestRow;
use crate::record::{Outcome, OutputKind};
use crate::sim::ledger::EventKind;
use crate::units::Nanos;

/// An output chunk as the client wrote it down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenChunk {
    /// What it carried.
    pub kind: OutputKind,
    /// The kernel's stamp of its read; `None` where the read came without one.
    pub kernel: Option<Nanos>,
    /// When its read returned, by the user-space clock.
    pub user: Nanos,
    /// It cannot have arrived before this.
    pub not_before: Nanos,
    /// It was the last event of its read, so that the stamp is its own.
    pub ends_read: bool,
}

/// A request as the client wrote it down, on the run's axis.
#[derive(Debug, Clone)]
pub struct ClientRequest<'a> {
    /// What was sent as `X-Request-Id`.
    pub id: String,
    /// Its row.
    pub row: &'a RequestRow,
    /// Its output chunks in order of arrival.
    pub chunks: Vec<SeenChunk>,
}

/// Both sides of a run.
#[derive(Debug, Clone)]
pub struct Pairing<'a> {
    /// Requests that both sides know, in the client's order.
    pub requests: Vec<PairedRequest<'a>>,
    /// What does not fit.
    pub mismatches: Mismatches,
    /// CLOCK_MONOTONIC at the zero of the run's axis.
    pub zero: Nanos,
}

/// A request on both sides.
#[derive(Debug, Clone, Copy)]
pub struct PairedRequest<'a> {
    /// The client's side, on the run's axis.
    pub row: &'a RequestRow,
    /// The simulator's side, on CLOCK_MONOTONIC.
    pub truth: &'a TruthRequest,
    /// Its output chunks; none when the two sides tell of different ones.
    seen: &'a [SeenChunk],
    zero: Nanos,
}

/// An output chunk on both sides.
#[derive(Debug, Clone, Copy)]
pub struct PairedChunk<'a> {
    /// What the client saw, moved to CLOCK_MONOTONIC.
    pub seen: SeenChunk,
    /// What was sent.
    pub sent: &'a Sent,
}

/// What does not fit; all zero when the two sides tell the same story.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mismatches {
    /// Requests that the client says it sent and the ledger does not know.
    pub unknown_requests: usize,
    /// Completions in the ledger that no request of the client claims.
    pub unclaimed_requests: usize,
    /// Requests whose id stands more than once on one of the sides, so that nobody can say which is which. Not paired.
    pub ambiguous_requests: usize,
    /// Requests of whose output chunks the two sides give another number or other kinds. None of the chunks is paired.
    pub differing_requests: usize,
    /// Output events that were sent after the client had given their request up, so that it never read them.
    pub unread_events: usize,
}

/// Joins the two sides. `zero` is CLOCK_MONOTONIC at the zero of the client's axis. A request that was never sent
/// (no connection, or cut before) is on no side.
#[must_use]
pub fn pair<'a>(client: &'a [ClientRequest<'a>], truth: &'a Truth, zero: Nanos) -> Pairing<'a> {
    let mut pairing = Pairing { requests: Vec::new(), mismatches: Mismatches::default(), zero };
    let sent = || client.iter().filter(|request| request.row.send_start.is_some());
    let mut by_id: HashMap<&str, Vec<&'a TruthRequest>> = HashMap::new();
    for request in &truth.requests {
        match request.id.as_deref() {
            Some(id) => by_id.entry(id).or_default().push(request),
            None => pairing.mismatches.unclaimed_requests += 1,
        }
    }
    let mut uses: HashMap<&str, usize> = HashMap::new();
    sent().for_each(|request| *uses.entry(&request.id).or_default() += 1);
    for request in sent() {
        let unique = uses.get(request.id.as_str()) == Some(&1);
        match by_id.get(request.id.as_str()).map(Vec::as_slice) {
            None => pairing.mismatches.unknown_requests += 1,
            Some([truth]) if unique => pairing.add(request, truth),
            Some(_) => pairing.mismatches.ambiguous_requests += 1,
        }
    }
    by_id.retain(|id, _| !uses.contains_key(id));
    pairing.mismatches.unclaimed_requests += by_id.values().map(Vec::len).sum::<usize>();
    pairing
}

impl<'a> Pairing<'a> {
    /// How many output chunks are paired.
    #[must_use]
    pub fn chunks(&self) -> usize {
        self.requests.iter().map(|request| request.seen.len()).sum()
    }

    fn add(&mut self, request: &'a ClientRequest<'a>, truth: &'a TruthRequest) {
        let outputs = &truth.outputs;
        // A client that gave up has the beginning of what was sent; one that did not has all of it.
        let complete = outputs.len() == request.chunks.len();
        let cut = outputs.len() > request.chunks.len() && request.row.outcome != Outcome::Ok;
        let alike = outputs.iter().zip(&request.chunks).all(|(sent, seen)| same_kind(sent.kind, seen.kind));
        let mut seen: &[SeenChunk] = &[];
        if alike && (complete || cut) {
            self.mismatches.unread_events += outputs.len() - request.chunks.len();
            seen = &request.chunks;
        } else {
            self.mismatches.differing_requests += 1;
        }
        self.requests.push(PairedRequest { row: request.row, truth, seen, zero: self.zero });
    }
}

impl<'a> PairedRequest<'a> {
    /// Output chunks on both sides, in order.
    pub fn chunks(&self) -> impl Iterator<Item = PairedChunk<'a>> + use<'a> {
        let zero = self.zero;
        let pairs = self.seen.iter().zip(&self.truth.outputs);
        pairs.map(move |(seen, sent)| PairedChunk { seen: seen.moved_by(zero), sent })
    }
}

impl SeenChunk {
    fn moved_by(self, zero: Nanos) -> Self {
        let moved = |at: Nanos| Nanos(at.0.saturating_add(zero.0));
        Self {
            kernel: self.kernel.map(moved),
            user: moved(self.user),
            not_before: moved(self.not_before),
            ..self
        }
    }
}

fn same_kind(sent: EventKind, seen: OutputKind) -> bool {
    match seen {
        OutputKind::Reasoning => sent == EventKind::Reasoning,
        OutputKind::Content => sent == EventKind::Content,
        // The simulator sends neither.
        OutputKind::ToolCall | OutputKind::Refusal => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::testing::{ZERO, answered, exact};
    use crate::metrics::testing::row;

    fn truth(requests: Vec<TruthRequest>) -> Truth {
        Truth { requests, output_bytes: 0, is_complete: true }
    }

    fn client<'a>(id: &str, row: &'a RequestRow, stamps: &[i64]) -> ClientRequest<'a> {
        ClientRequest { id: id.to_owned(), row, chunks: stamps.iter().map(|at| exact(*at)).collect() }
    }

    #[test]
    fn requests_meet_by_id_and_chunks_by_their_order() {
        let truth =
            truth(vec![answered(Some("r-1"), 5, &[1_000, 2_000]), answered(Some("r-0"), 6, &[3_000])]);
        let (first, second) = (row(0), row(1));
        let requests = [client("r-0", &first, &[3_500]), client("r-1", &second, &[1_500, 2_500])];
        let pairing = pair(&requests, &truth, ZERO);
        assert_eq!(pairing.mismatches, Mismatches::default());
        assert_eq!((pairing.requests.len(), pairing.chunks()), (2, 3));
        let late = |r: usize, c: usize| {
            let chunk = pairing.requests[r].chunks().nth(c).unwrap();
            chunk.seen.kernel.unwrap().0 - chunk.sent.before.0
        };
        // Every stamp above is 500 ns after its own event, whatever the role chunk in between.
        assert_eq!([late(0, 0), late(1, 0), late(1, 1)], [500; 3]);
        assert_eq!(pairing.requests[1].row.request_index, 1);
    }

    #[test]
    fn what_only_one_side_knows_is_counted() {
        let truth = truth(vec![
            answered(None, 2, &[1_000]),
            answered(Some("other-0"), 3, &[1_000]),
            answered(Some("r-0"), 4, &[1_000]),
        ]);
        let (known, unknown, mut unsent) = (row(0), row(1), row(2));
        unsent.send_start = None;
        let requests =
            [client("r-0", &known, &[1_500]), client("r-1", &unknown, &[1_500]), client("r-2", &unsent, &[])];
        let pairing = pair(&requests, &truth, ZERO);
        let expected = Mismatches { unknown_requests: 1, unclaimed_requests: 2, ..Mismatches::default() };
        assert_eq!((pairing.mismatches, pairing.requests.len()), (expected, 1));
    }

    #[test]
    fn an_id_that_stands_twice_is_not_guessed_at() {
        let rows = [row(0), row(1), row(2)];
        let once = truth(vec![answered(Some("r-0"), 1, &[1_000])]);
        let twice = truth(vec![answered(Some("r-0"), 1, &[1_000]), answered(Some("r-0"), 2, &[9_000])]);
        let one = [client("r-0", &rows[0], &[1_500])];
        let alone = pair(&one, &twice, ZERO);
        let expected = Mismatches { ambiguous_requests: 1, ..Mismatches::default() };
        assert_eq!((alone.mismatches, alone.requests.len()), (expected, 0));
        let both = [client("r-0", &rows[0], &[1_500]), client("r-0", &rows[1], &[1_500])];
        let pairing = pair(&both, &once, ZERO);
        assert_eq!((pairing.mismatches.ambiguous_requests, pairing.requests.len()), (2, 0));
    }

    #[test]
    fn a_chunk_too_few_or_too_many_leaves_the_whole_request_unpaired() {
        let truth = truth(vec![answered(Some("r-0"), 1, &[1_000, 2_000])]);
        let ok = row(0);
        for stamps in [&[1_500][..], &[1_500, 2_500, 3_500], &[]] {
            let requests = [client("r-0", &ok, stamps)];
            let pairing = pair(&requests, &truth, ZERO);
            let expected = Mismatches { differing_requests: 1, ..Mismatches::default() };
            assert_eq!((pairing.mismatches, pairing.chunks()), (expected, 0), "{stamps:?}");
        }
        let mut reasoning = client("r-0", &ok, &[1_500, 2_500]);
        reasoning.chunks[1].kind = OutputKind::Reasoning;
        assert_eq!(pair(&[reasoning.clone()], &truth, ZERO).mismatches.differing_requests, 1);
    }

    #[test]
    fn a_request_that_was_cut_has_the_beginning_of_what_was_sent() {
        let truth = truth(vec![answered(Some("r-0"), 1, &[1_000, 2_000, 3_000])]);
        let mut cut = row(0);
        cut.outcome = Outcome::Incomplete;
        let requests = [client("r-0", &cut, &[1_500])];
        let pairing = pair(&requests, &truth, ZERO);
        let expected = Mismatches { unread_events: 2, ..Mismatches::default() };
        assert_eq!((pairing.mismatches, pairing.chunks()), (expected, 1));
        // More than was sent is no cut.
        let requests = [client("r-0", &cut, &[1_500, 2_500, 3_500, 4_500])];
        let pairing = pair(&requests, &truth, ZERO);
        assert_eq!(pairing.mismatches.differing_requests, 1);
    }
}
