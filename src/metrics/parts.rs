//! Where the time of one request went: to this client, to the network, or to the server.
//!
//! The time is what a user of the client waited: from due to the moment at which the end of the answer was read. Each
//! nanosecond of it belongs to one part, so the parts add up. `docs/RESULTS.md` gives the rule with its reasons.

use crate::metrics::formula::stream_end;
use crate::metrics::row::RequestRow;
use crate::units::Nanos;

/// How long a server may hold an acknowledgement back that has nothing to go with: Linux waits 40 ms, or as long as a
/// round trip where that is more (`tcp_send_delayed_ack`). So much of the time without acknowledgement says nothing
/// about the network.
pub const HELD_ACKNOWLEDGEMENT: Nanos = Nanos::from_millis(40);

/// The parts of a request's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Parts {
    /// Waiting for this client, before the request was sent and after its answer had arrived.
    pub client: Nanos,
    /// Connecting, the shortest round trip, and what it took beyond that until the server had the request.
    pub network: Nanos,
    /// The rest.
    pub server: Nanos,
}

/// Where most of a request's time went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Label {
    /// To the server.
    Server,
    /// To the network.
    Network,
    /// To this client.
    Client,
    /// No part has half of it.
    Mixed,
}

impl Parts {
    /// The parts; `None` for a request that was not sent or of which no end is known.
    #[must_use]
    pub fn of(row: &RequestRow) -> Option<Self> {
        let (start, end) = (row.send_start?, stream_end(row)?);
        let read = row.user.terminal.or(row.user.end)?;
        // A connection may have been begun before the request was due.
        let from = row.connect_start.map_or(row.due, |begun| begun.max(row.due));
        let connect = row.connect.unwrap_or_default().clamp(Nanos(0), span(start, from));
        let answering = span(end, start);
        let way = on_the_way(row).min(answering);
        // A write that waited for room waited for the network. One that took long without waiting was this side's.
        let writing = row.send_end.map_or(Nanos(0), |done| span(done.min(end), start));
        let writing = span(writing, way);
        let before = span(span(start, row.due), connect);
        Some(Self {
            client: sum(sum(before, writing), span(read, end)),
            network: sum(connect, way),
            server: span(span(answering, way), writing),
        })
    }

    /// All of it.
    #[must_use]
    pub fn total(&self) -> Nanos {
        sum(sum(self.client, self.network), self.server)
    }

    /// The part that has at least half of the time.
    #[must_use]
    pub fn label(&self) -> Label {
        let parts =
            [(self.server, Label::Server), (self.network, Label::Network), (self.client, Label::Client)];
        let half = |(part, _): &(Nanos, Label)| part.0 > 0 && *part >= span(self.total(), *part);
        parts.into_iter().filter(half).max_by_key(|(part, _)| *part).map_or(Label::Mixed, |(_, label)| label)
    }
}

/// How long the request was on its way: the shortest round trip, or how long its bytes were not acknowledged where that
/// is more and no acknowledgement that was held back explains it.
fn on_the_way(row: &RequestRow) -> Nanos {
    let facts = &row.transport;
    let micros = |us: Option<u32>| Nanos(i64::from(us.unwrap_or_default()) * 1_000);
    let round_trip = micros(facts.rtt_us);
    let sent_again = facts.retransmits.is_some_and(|n| n > 0);
    let held = if sent_again { Nanos(0) } else { HELD_ACKNOWLEDGEMENT.max(round_trip) };
    round_trip.max(span(micros(facts.unacked_us), held))
}

/// Two spans after each other. A saved line may say anything, so no sum is trusted to fit.
fn sum(a: Nanos, b: Nanos) -> Nanos {
    Nanos(a.0.saturating_add(b.0))
}

/// From the earlier to the later instant, or what is left of the longer span; 0 where they are the other way round.
fn span(later: Nanos, earlier: Nanos) -> Nanos {
    Nanos(later.0.saturating_sub(earlier.0).max(0))
}

impl Label {
    /// The name in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Network => "network",
            Self::Client => "client",
            Self::Mixed => "mixed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::testing::row;
    use crate::record::TransportFacts;

    const MS: i64 = 1_000_000;

    fn parts(change: impl FnOnce(&mut RequestRow)) -> ([i64; 3], Label) {
        let mut row = row(0);
        change(&mut row);
        let parts = Parts::of(&row).unwrap();
        let micros = [parts.client, parts.network, parts.server].map(|part| part.0 / 1_000);
        (micros, parts.label())
    }

    fn facts(rtt_us: u32, retransmits: u32, unacked_us: u32) -> TransportFacts {
        TransportFacts { rtt_us: Some(rtt_us), retransmits: Some(retransmits), unacked_us: Some(unacked_us) }
    }

    /// The row of [`row`]: due 0, sent from 1 ms to 2 ms, terminal at 131 ms.
    #[test]
    fn a_slow_server_has_the_rest() {
        assert_eq!(parts(|_| ()), ([2_000, 0, 129_000], Label::Server));
        assert_eq!(parts(|r| r.transport = facts(300, 0, 0)), ([1_700, 300, 129_000], Label::Server));
    }

    #[test]
    fn a_held_acknowledgement_is_not_the_networks() {
        assert_eq!(parts(|r| r.transport = facts(300, 0, 40_200)).0, [1_700, 300, 129_000]);
        assert_eq!(parts(|r| r.transport = facts(50_000, 0, 100_000)).0, [1_000, 50_000, 80_000]);
        // Much longer is a request that takes long to get there.
        assert_eq!(
            parts(|r| r.transport = facts(300, 0, 120_000)),
            ([1_000, 80_000, 50_000], Label::Network)
        );
    }

    #[test]
    fn what_was_sent_again_is_the_networks() {
        assert_eq!(parts(|r| r.transport = facts(300, 2, 90_000)), ([1_000, 90_000, 40_000], Label::Network));
        // Never more than the time from the request to the end of its answer.
        assert_eq!(parts(|r| r.transport = facts(300, 2, 900_000)), ([1_000, 130_000, 0], Label::Network));
    }

    #[test]
    fn connecting_is_the_networks_and_what_is_around_it_the_clients() {
        let connected = |r: &mut RequestRow| {
            (r.connect_start, r.connect) = (Some(Nanos(2 * MS)), Some(Nanos(200 * MS)));
            (r.send_start, r.send_end) = (Some(Nanos(203 * MS)), Some(Nanos(203 * MS)));
            (r.at.terminal, r.user.terminal) = (Some(Nanos(210 * MS)), Some(Nanos(210 * MS)));
        };
        assert_eq!(parts(connected), ([3_000, 200_000, 7_000], Label::Network));
    }

    #[test]
    fn a_late_send_and_a_late_reading_are_the_clients() {
        assert_eq!(parts(|r| r.due = Nanos(-400 * MS)), ([402_000, 0, 129_000], Label::Client));
        assert_eq!(
            parts(|r| r.user.terminal = Some(Nanos(431 * MS))),
            ([302_000, 0, 129_000], Label::Client)
        );
        // An output in the middle that was read late made nobody wait for the end.
        assert_eq!(
            parts(|r| r.user.first_output = Some(Nanos(130 * MS))),
            ([2_000, 0, 129_000], Label::Server)
        );
    }

    #[test]
    fn a_write_is_the_clients_unless_it_waited_for_room() {
        let wrote = |r: &mut RequestRow| r.send_end = Some(Nanos(91 * MS));
        assert_eq!(parts(wrote), ([91_000, 0, 40_000], Label::Client));
        let waited = |r: &mut RequestRow| {
            wrote(r);
            r.transport = facts(300, 0, 135_000);
        };
        assert_eq!(parts(waited), ([1_000, 95_000, 35_000], Label::Network));
        // An answer that ends before its request was written.
        assert_eq!(parts(|r| r.send_end = Some(Nanos(900 * MS))).0, [131_000, 0, 0]);
    }

    #[test]
    fn no_part_with_half_of_the_time_is_mixed() {
        let thirds = |r: &mut RequestRow| {
            r.due = Nanos(-99 * MS);
            r.transport = facts(300, 1, 65_000);
        };
        assert_eq!(parts(thirds), ([100_000, 65_000, 65_000], Label::Mixed));
        let half = |r: &mut RequestRow| {
            r.due = Nanos(-129 * MS);
            r.transport = facts(300, 1, 65_000);
        };
        assert_eq!(parts(half), ([130_000, 65_000, 65_000], Label::Client));
    }

    #[test]
    fn stamps_of_a_damaged_line_overflow_nothing() {
        for due in [i64::MIN, -1, i64::MAX] {
            for connect in [i64::MIN, 0, i64::MAX] {
                for start in [i64::MIN, 0, i64::MAX] {
                    for end in [i64::MIN, 0, i64::MAX] {
                        let (parts, _) = parts(|r| {
                            r.due = Nanos(due);
                            (r.connect, r.send_start) = (Some(Nanos(connect)), Some(Nanos(start)));
                            (r.at.terminal, r.user.terminal) = (Some(Nanos(end)), Some(Nanos(!end)));
                        });
                        assert!(
                            parts.iter().all(|part| *part >= 0),
                            "{due} {connect} {start} {end}: {parts:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn the_parts_add_up_to_what_was_waited() {
        let mut row = row(0);
        row.user.terminal = Some(Nanos(133 * MS));
        row.transport = facts(250, 1, 20_000);
        assert_eq!(Parts::of(&row).unwrap().total(), Nanos(133 * MS));
        row.send_start = None;
        assert_eq!(Parts::of(&row), None);
    }
}
