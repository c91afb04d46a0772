//! What a summary needs of the output chunks of every request.
//!
//! A run may have ten million gaps, and half a dozen numbers each need all of them in order. They are gathered one after
//! the other, each from all chunks anew: chunks are in a file that is read quickly, and so no more than 8 bytes a gap are
//! in memory at any time.

use std::borrow::Borrow;
use std::convert::Infallible;

use crate::aggregate::chunk::OutputChunk;
use crate::aggregate::summary::{Coalesced, Facts, LATE_READ, Spread};
use crate::aggregate::window::Spans;
use crate::metrics::compat::{PeerPopulation, PeerValues, Seen};
use crate::metrics::formula;
use crate::metrics::gaps::{Chunk, GapDistribution, GapRule};
use crate::metrics::rates::{TokenTimeline, Window};
use crate::metrics::row::{RequestRow, StampSource};
use crate::metrics::rows::RowSource;
use crate::record::{Outcome, Phase};
use crate::units::Nanos;

/// Takes one request with all its output chunks in order of arrival.
pub type Visit<'a> = dyn FnMut(&RequestRow, &[OutputChunk]) + 'a;

/// What the chunks of all requests come to.
#[derive(Debug, Clone)]
pub struct ChunkFacts {
    /// Gaps between output chunks.
    pub(super) gaps: GapDistribution,
    /// The same per token.
    pub(super) token_gaps: GapDistribution,
    /// What other tools would have reported.
    pub(super) compat: Vec<PeerValues>,
    /// Tokens along the window.
    pub(super) timeline: TokenTimeline,
    /// User-space stamp minus kernel stamp of every read with output and of every first byte.
    pub(super) read_delay_us: Option<Spread>,
    /// Output chunks that share a read with an earlier one.
    pub(super) coalesced: Coalesced,
    /// Output chunks without a stamp.
    pub(super) missing_chunks: u64,
}

impl ChunkFacts {
    /// Gathers everything. `each` hands every request of `rows`, those without chunks too, to what it is given, in the
    /// same order whenever it is called: five to ten times.
    ///
    /// # Errors
    /// Those of `each`.
    pub fn gather<E>(
        rows: impl RowSource,
        facts: &Facts,
        mut each: impl FnMut(&mut Visit<'_>) -> Result<(), E>,
    ) -> Result<Self, E> {
        let nowhere = Window { start: Nanos(0), end: Nanos(0) };
        let mut timeline =
            TokenTimeline::new(Spans::of(rows, facts.stop).map_or(nowhere, |spans| spans.window));
        let (mut missing_chunks, mut has_tokens, mut coalesced) = (0, false, Coalesced::default());
        each(&mut |row, chunks| {
            missing_chunks += row.counters.output_chunks.saturating_sub(chunks.len() as u64);
            has_tokens |= chunks.iter().any(|chunk| chunk.tokens.is_some());
            if row.phase == Phase::Warmup {
                return;
            }
            add_coalesced(&mut coalesced, chunks);
            if matches!(row.outcome, Outcome::Ok | Outcome::Incomplete) {
                timeline.add_request(&by_own_clock(row, chunks), row.output_tokens);
            }
        })?;
        let mut gaps = |rule: GapRule| {
            rule.distribution(|add| {
                each(&mut |row, chunks| {
                    if formula::counts(row) {
                        add(&by_own_clock(row, chunks));
                    }
                })
            })
        };
        let chunk_gaps = gaps(GapRule::Chunks)?;
        let token_gaps = if has_tokens { gaps(GapRule::Tokens)? } else { GapDistribution::none() };
        let mut compat = Vec::new();
        for mut peer in PeerPopulation::of_peers(rows) {
            each(&mut |row, chunks| {
                let seen = |c: &OutputChunk| Seen { at: c.at(row.stamp_source), kind: c.kind };
                peer.add(row, &chunks.iter().map(seen).collect::<Vec<_>>());
            })?;
            compat.push(peer.values(rows));
        }
        let mut delays = Vec::new();
        each(&mut |row, chunks| add_read_delays(&mut delays, row, chunks))?;
        let read_delay_us = Spread::of_micros(delays);
        Ok(Self { gaps: chunk_gaps, token_gaps, compat, timeline, read_delay_us, coalesced, missing_chunks })
    }

    /// Those of a run of whose chunks nothing is known.
    #[must_use]
    pub fn of_rows_alone(rows: impl RowSource, facts: &Facts) -> Self {
        let each = |add: &mut Visit<'_>| {
            rows.rows().for_each(|row| add(row.borrow(), &[]));
            Ok::<_, Infallible>(())
        };
        match Self::gather(rows, facts, each) {
            Ok(found) => found,
        }
    }
}

fn by_own_clock(row: &RequestRow, chunks: &[OutputChunk]) -> Vec<Chunk> {
    let own = |c: &OutputChunk| Chunk {
        at: c.at(row.stamp_source),
        not_before: c.not_before,
        ends_read: c.ends_read,
        choice: c.choice,
        tokens: c.tokens,
    };
    chunks.iter().map(own).collect()
}

/// What one receive call brought has one reading of the user-space clock.
fn add_coalesced(coalesced: &mut Coalesced, chunks: &[OutputChunk]) {
    let shared = chunks.iter().zip(chunks.iter().skip(1)).filter(|(before, chunk)| before.user == chunk.user);
    for delay in shared.filter_map(|(_, chunk)| chunk.user.since(chunk.kernel?)) {
        if delay > LATE_READ { coalesced.late += 1 } else { coalesced.sent += 1 }
    }
}

fn add_read_delays(delays: &mut Vec<Nanos>, row: &RequestRow, chunks: &[OutputChunk]) {
    if row.phase == Phase::Warmup {
        return;
    }
    let stamps = row.user.first_byte.zip(row.at.first_byte);
    let first = stamps.filter(|_| row.stamp_source == StampSource::Kernel);
    delays.extend(first.and_then(|(user, kernel)| user.since(kernel)));
    let reads = chunks.iter().filter(|c| c.ends_read);
    delays.extend(reads.filter_map(|c| c.user.since(c.kernel?)));
}
