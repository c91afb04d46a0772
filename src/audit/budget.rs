//! The client's error against the ledger: of stamps, of bounds, of the time to the first output, and of gaps.
//!
//! The truth of an event is the instant right before the send call that carried its last byte. Over loopback the bytes
//! reach the peer's socket within that call, so the sender's way down to the device is part of every error here: about
//! two microseconds, more after a pause. The ledger also knows the instant right after the call, and a stamp between the
//! two shows no error of the client's at all. An event that shares its read with later ones has no stamp of its own: it
//! is judged by its bounds, never by the read's stamp.

use crate::audit::pair::{PairedChunk, PairedRequest, Pairing, SeenChunk};
use crate::audit::spread::{Deviation, Spread};
use crate::audit::truth::Sent;
use crate::metrics::row::StampSource;
use crate::units::Nanos;

/// How far a span by the client's stamps may lie outside what the send calls allow before it is called false. The two
/// sides read their clocks by different ways, which agree to about 0.1 µs; a segment that the kernel takes up a little
/// after its send call (on a core that was just woken) is late by some ten µs. An event that is counted to the wrong
/// read is off by a gap, which is milliseconds.
pub const FALSE_GAP_TOLERANCE: Nanos = Nanos(100_000);

/// A gap below this is what people read as "two tokens at once".
pub const ZERO_GAP: Nanos = Nanos(100_000);

/// The client's error over a run. Errors are client minus ledger.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Budget {
    /// Kernel stamps of events that end their reads.
    pub kernel: Deviation,
    /// User-space stamps of the same events and of those without a kernel stamp.
    pub user: Deviation,
    /// Events that end their reads and have no kernel stamp.
    pub unstamped: usize,
    /// The kernel stamps of the first field against their send calls: what the sender's way cannot explain.
    pub stamped: Bounded,
    /// How long the send calls of these events took: what the ledger itself does not know better.
    pub send_call: Spread,
    /// Events that do not end their reads: the bounds of their arrival against their send calls.
    pub censored: Bounded,
    /// The request's own first output stamp, where that event ends its read: as the request's start is subtracted from
    /// both sides, this is the error of the time to first output.
    pub first_output: Deviation,
    /// The request's own last output stamp, where that event ends its read: the error of the time to last output.
    pub last_output: Deviation,
    /// The stamp of the terminal event, which always ends its read: the error of the end to end latency.
    pub end: Deviation,
    /// From the client's first byte to the instant at which the simulator had read the whole request. No error: it
    /// holds the way there and the simulator's own wake-up. It bounds the error of the request's start, and a negative
    /// one is a wrong start.
    pub delivery: Deviation,
    /// Gaps between consecutive output chunks, by the clock of their request.
    pub gaps: Gaps,
}

/// Instants or spans of time that should have something in common with a send call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bounded {
    /// How many.
    pub count: usize,
    /// How many of them lie wholly before or wholly after the send call.
    pub outside: usize,
    /// The largest distance of these; zero when there are none.
    pub worst: Nanos,
}

/// Gaps that the client reports as exact.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Gaps {
    /// Their error.
    pub error: Deviation,
    /// Gaps that the ledger cannot have: off by more than [`FALSE_GAP_TOLERANCE`] from anything the send calls allow.
    pub false_gaps: usize,
    /// Those among them that are below [`ZERO_GAP`] while the ledger's is longer: events of one read sold as a burst.
    pub false_zero_gaps: usize,
}

#[derive(Debug, Default)]
struct Differences {
    kernel: Vec<Nanos>,
    user: Vec<Nanos>,
    unstamped: usize,
    stamped: Bounded,
    send_call: Vec<Nanos>,
    censored: Bounded,
    first_output: Vec<Nanos>,
    last_output: Vec<Nanos>,
    end: Vec<Nanos>,
    delivery: Vec<Nanos>,
    gaps: Vec<Nanos>,
    false_gaps: usize,
    false_zero_gaps: usize,
}

impl Budget {
    /// The error over everything that is paired. Without pairs every count is 0 and every statistic `None`.
    #[must_use]
    pub fn of(pairing: &Pairing<'_>) -> Self {
        let mut all = Differences::default();
        for request in &pairing.requests {
            all.add(request, pairing.zero);
        }
        Self {
            kernel: Deviation::of(&all.kernel),
            user: Deviation::of(&all.user),
            unstamped: all.unstamped,
            stamped: all.stamped,
            send_call: Spread::of(all.send_call),
            censored: all.censored,
            first_output: Deviation::of(&all.first_output),
            last_output: Deviation::of(&all.last_output),
            end: Deviation::of(&all.end),
            delivery: Deviation::of(&all.delivery),
            gaps: Gaps {
                error: Deviation::of(&all.gaps),
                false_gaps: all.false_gaps,
                false_zero_gaps: all.false_zero_gaps,
            },
        }
    }
}

impl Differences {
    fn add(&mut self, request: &PairedRequest<'_>, zero: Nanos) {
        let PairedRequest { row, truth, .. } = request;
        let monotonic = |at: Nanos| Nanos(at.0.saturating_add(zero.0));
        if let Some(start) = row.send_start {
            self.delivery.push(difference(truth.arrival, monotonic(start)));
        }
        if let (Some(end), Some(sent)) = (row.at.terminal, truth.terminal) {
            self.end.push(difference(monotonic(end), sent.before));
        }
        let error = |chunk: &PairedChunk<'_>, stamp: Option<Nanos>| {
            let stamp = stamp.filter(|_| chunk.seen.ends_read)?;
            Some(difference(monotonic(stamp), chunk.sent.before))
        };
        let mut earlier: Option<PairedChunk<'_>> = None;
        for chunk in request.chunks() {
            self.add_chunk(&chunk, row.stamp_source);
            match &earlier {
                Some(earlier) => self.add_gap(earlier, &chunk, row.stamp_source),
                None => self.first_output.extend(error(&chunk, row.at.first_output)),
            }
            earlier = Some(chunk);
        }
        self.last_output.extend(earlier.and_then(|last| error(&last, row.at.last_output)));
    }

    fn add_chunk(&mut self, chunk: &PairedChunk<'_>, source: StampSource) {
        let PairedChunk { seen, sent } = chunk;
        if !seen.ends_read {
            return self.censored.add(sent, seen.not_before, stamp(seen, source));
        }
        self.user.push(difference(seen.user, sent.before));
        let Some(kernel) = seen.kernel else {
            self.unstamped += 1;
            return;
        };
        self.kernel.push(difference(kernel, sent.before));
        self.stamped.add(sent, kernel, kernel);
        self.send_call.push(difference(sent.after, sent.before));
    }

    fn add_gap(&mut self, earlier: &PairedChunk<'_>, later: &PairedChunk<'_>, source: StampSource) {
        if !(earlier.seen.ends_read && later.seen.ends_read) {
            return;
        }
        let seen = difference(stamp(&later.seen, source), stamp(&earlier.seen, source));
        self.gaps.push(difference(seen, difference(later.sent.before, earlier.sent.before)));
        let shortest = difference(later.sent.before, earlier.sent.after);
        let longest = difference(later.sent.after, earlier.sent.before);
        if outside_by(seen, shortest, longest) > FALSE_GAP_TOLERANCE {
            self.false_gaps += 1;
            self.false_zero_gaps += usize::from(seen < ZERO_GAP && seen < shortest);
        }
    }
}

impl Bounded {
    /// The event reached the socket somewhere between the two instants of its send call; bounds that leave room for that
    /// are right.
    fn add(&mut self, sent: &Sent, not_before: Nanos, by: Nanos) {
        self.count += 1;
        let distance = difference(not_before, sent.after).max(difference(sent.before, by));
        if distance > Nanos(0) {
            self.outside += 1;
            self.worst = self.worst.max(distance);
        }
    }
}

/// The instant of a chunk by the clock of its request, as the metrics take it.
fn stamp(seen: &SeenChunk, source: StampSource) -> Nanos {
    match source {
        StampSource::Kernel => seen.kernel.unwrap_or(seen.user),
        StampSource::User => seen.user,
    }
}

/// How far a span is from a range; zero inside.
fn outside_by(span: Nanos, shortest: Nanos, longest: Nanos) -> Nanos {
    difference(shortest, span).max(difference(span, longest)).max(Nanos(0))
}

/// Instants of one machine are within 292 years of each other; a difference beyond that would be clamped.
fn difference(a: Nanos, b: Nanos) -> Nanos {
    Nanos(a.0.saturating_sub(b.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::pair::{ClientRequest, pair};
    use crate::audit::testing::{CALL, ZERO, answered, exact, hidden};
    use crate::audit::truth::Truth;
    use crate::metrics::row::RequestRow;
    use crate::metrics::testing::row;

    const MS: i64 = Nanos::PER_MILLI;

    /// The budget of one request: content was sent at these instants and seen like this.
    fn of(row: &RequestRow, sent: &[i64], seen: &[SeenChunk]) -> Budget {
        let truth =
            Truth { requests: vec![answered(Some("r-0"), 3 * MS, sent)], output_bytes: 0, is_complete: true };
        let requests = [ClientRequest { id: "r-0".to_owned(), row, chunks: seen.to_vec() }];
        let pairing = pair(&requests, &truth, ZERO);
        assert_eq!(pairing.chunks(), sent.len());
        Budget::of(&pairing)
    }

    fn started_at(send_start: i64, first_output: i64) -> RequestRow {
        let mut row = row(0);
        row.send_start = Some(Nanos(send_start));
        row.at.first_output = Some(Nanos(first_output));
        row
    }

    #[test]
    fn exact_events_are_judged_by_their_stamps() {
        let mut row = started_at(2 * MS, 20 * MS + 2_000);
        (row.at.last_output, row.at.terminal) = (Some(Nanos(60 * MS + 5_000)), Some(Nanos(61 * MS)));
        let b = of(
            &row,
            &[20 * MS, 40 * MS, 60 * MS],
            &[exact(20 * MS + 2_000), exact(40 * MS + 1_000), {
                let mut bare = exact(60 * MS);
                bare.kernel = None;
                bare
            }],
        );
        let us = |d: Deviation| (d.signed.count, d.signed.percentiles_us.map(|p| (p.min, p.max)));
        assert_eq!(us(b.kernel), (2, Some((1.0, 2.0))));
        assert_eq!(us(b.user), (3, Some((8.0, 10.0))));
        assert_eq!(b.unstamped, 1);
        assert_eq!(us(b.first_output), (1, Some((2.0, 2.0))));
        assert_eq!(us(b.last_output), (1, Some((5.0, 5.0))));
        // The terminal was sent a call after the last content, and seen at 61 ms.
        assert_eq!(us(b.end), (1, Some((997.0, 997.0))));
        assert_eq!(us(b.delivery), (1, Some((1000.0, 1000.0))));
        assert_eq!(b.stamped, Bounded { count: 2, outside: 0, worst: Nanos(0) });
        assert_eq!((b.send_call.count, b.send_call.mean_us), (2, Some(3.0)));
        assert_eq!(b.censored, Bounded::default());
        // 2 → 1 µs late is a gap 1 µs short; 1 µs → 8 µs late (the user's stamp) is one 7 µs long.
        assert_eq!(us(b.gaps.error), (2, Some((-1.0, 7.0))));
        assert_eq!((b.gaps.false_gaps, b.gaps.false_zero_gaps), (0, 0));
    }

    #[test]
    fn a_stamp_outside_its_send_call_is_told_apart() {
        let row = started_at(0, 0);
        let b = of(
            &row,
            &[20 * MS, 40 * MS, 60 * MS],
            &[exact(20 * MS + CALL), exact(40 * MS + CALL + 400), exact(60 * MS - 900)],
        );
        assert_eq!(b.stamped, Bounded { count: 3, outside: 2, worst: Nanos(900) });
        assert_eq!(b.kernel.signed.percentiles_us.map(|p| (p.min, p.max)), Some((-0.9, 3.4)));
    }

    #[test]
    fn a_request_on_the_user_clock_is_judged_by_it() {
        let mut row = started_at(2 * MS, 20 * MS + 9_000);
        row.stamp_source = StampSource::User;
        let late = SeenChunk { user: Nanos(40 * MS + 4_000), ..exact(40 * MS + 1_000) };
        let b = of(&row, &[20 * MS, 40 * MS], &[exact(20 * MS + 1_000), late]);
        assert_eq!(b.gaps.error.signed.median_us(), Some(-5.0));
        assert_eq!(b.kernel.signed.median_us(), Some(1.0));
    }

    #[test]
    fn hidden_events_are_judged_by_their_bounds_only() {
        let row = started_at(0, 41 * MS);
        // The first was read together with the second, after the queue was empty at 19 ms.
        let b = of(
            &row,
            &[20 * MS, 41 * MS, 60 * MS],
            &[hidden(19 * MS, 41 * MS + 1_000), exact(41 * MS + 1_000), exact(60 * MS + 1_000)],
        );
        assert_eq!(b.censored, Bounded { count: 1, outside: 0, worst: Nanos(0) });
        assert_eq!((b.kernel.signed.count, b.gaps.error.signed.count), (2, 1));
        assert_eq!(b.first_output.signed.count, 0, "the first output's stamp is not its own");
        assert_eq!(b.last_output.signed.count, 1);
    }

    #[test]
    fn bounds_that_leave_out_the_send_call_are_wrong() {
        let row = started_at(0, 0);
        let sent = 20 * MS;
        for (not_before, kernel, worst) in [
            // The queue is said to have been empty after the event was in it.
            (sent + CALL + 500, sent + 9_000, Some(500)),
            // The read is said to have ended before the event was sent.
            (0, sent - 700, Some(700)),
            // Both edges of the send call still fit.
            (sent + CALL, sent + 9_000, None),
            (0, sent, None),
        ] {
            let b = of(&row, &[sent], &[hidden(not_before, kernel)]);
            let expected = Bounded {
                count: 1,
                outside: usize::from(worst.is_some()),
                worst: Nanos(worst.unwrap_or_default()),
            };
            assert_eq!(b.censored, expected, "{not_before} {kernel}");
        }
    }

    #[test]
    fn gaps_that_the_ledger_does_not_have_are_found() {
        let row = started_at(0, 20 * MS);
        // Two events 20 ms apart, sold as one burst: a false zero. The gap after it is then too long by as much.
        let b = of(
            &row,
            &[20 * MS, 40 * MS, 60 * MS],
            &[exact(40 * MS + 1_000), exact(40 * MS + 1_000), exact(80 * MS + 1_000)],
        );
        assert_eq!((b.gaps.false_gaps, b.gaps.false_zero_gaps), (2, 1));
        // A burst that was really sent is none.
        let b = of(&row, &[20 * MS, 20 * MS + 5_000], &[exact(20 * MS + 1_000), exact(20 * MS + 6_000)]);
        assert_eq!((b.gaps.false_gaps, b.gaps.false_zero_gaps), (0, 0));
        // Neither is a gap that is off by less than the tolerance beyond the send calls.
        let edge = FALSE_GAP_TOLERANCE.0 + CALL;
        let off_by = |ns: i64| of(&row, &[20 * MS, 40 * MS], &[exact(20 * MS), exact(40 * MS + ns)]);
        assert_eq!(off_by(edge).gaps.false_gaps, 0);
        assert_eq!(off_by(edge + 1).gaps.false_gaps, 1);
        assert_eq!(off_by(edge + 1).gaps.false_zero_gaps, 0);
    }

    #[test]
    fn nothing_paired_has_no_error() {
        let empty = Truth { requests: Vec::new(), output_bytes: 0, is_complete: true };
        let pairing = pair(&[], &empty, ZERO);
        assert_eq!(Budget::of(&pairing), Budget::default());
    }
}
