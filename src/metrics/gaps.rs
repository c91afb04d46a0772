//! Gaps between consecutive output chunks, pooled over requests, with what a read hides kept as bounds.
//!
//! All events of one read share one stamp. Only the last of them certainly arrived at it; an earlier one arrived
//! somewhere between the moment the queue was last seen empty and the stamp. A gap is exact when both its chunks end
//! their reads; any other gap is an interval. Such gaps enter no percentile as invented zeros: they are counted, and
//! bound the percentiles from both sides. The mean needs no single gap: the sum of a choice's gaps is its last output
//! minus its first.
//!
//! Gaps are kept one by one, 8 bytes each, and nothing is binned. Not all of their values are kept at once: the exact gaps,
//! the lower and the upper bounds are gathered one after the other, each from all requests anew. Intervals of confidence are not here: tokens of
//! concurrent streams share the engine's steps, so gaps are not independent and the order-statistic intervals of
//! [`crate::metrics::interval`] would be far too narrow.

use crate::metrics::distribution::{Ci95, Distribution, Percentiles};
use crate::metrics::{exact, token_gaps};
use crate::units::Nanos;

/// One output chunk on the run's axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// When its read was stamped: it had arrived by then.
    pub at: Nanos,
    /// It had not arrived before this instant. Not read for a chunk that ends its read.
    pub not_before: Nanos,
    /// It ends its read, so that `at` is its own stamp.
    pub ends_read: bool,
    /// The choice it belongs to.
    pub choice: u32,
    /// Tokens that came with it; `None` where the server did not count as it went.
    pub tokens: Option<u32>,
}

/// What a gap is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GapRule {
    /// The time between two consecutive chunks of one choice.
    Chunks,
    /// The same over the tokens of the later chunk: [`crate::metrics::token_gaps`].
    Tokens,
}

/// Which value of a gap is gathered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// That of exact gaps; others have none.
    Exact,
    /// The lower bound, which is the value of an exact gap.
    Lower,
    /// The upper bound, likewise.
    Upper,
}

/// One value of each gap of all requests of a population.
#[derive(Debug, Clone)]
struct GapPopulation {
    rule: GapRule,
    side: Side,
    /// Milliseconds, or milliseconds per token.
    values: Vec<f64>,
    /// Gaps that are not exact.
    censored: usize,
    /// Sum of all gaps; 128 bits hold any number of 64-bit spans.
    spans: i128,
    /// What the sum is divided by for the mean: the gaps, or their tokens.
    parts: u128,
}

/// The statistics of pooled gaps, in milliseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct GapDistribution {
    /// Over the exact gaps, except the mean, which is over all gaps. No confidence intervals.
    pub exact: Distribution,
    /// Gaps that are not exact.
    pub coalesced: CoalescedGaps,
    /// Percentiles over all gaps with each censored gap at its lower and at its upper bound; `None` when every gap is
    /// exact.
    pub bounds: Option<PercentileBounds>,
}

/// Gaps of which only bounds are known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CoalescedGaps {
    /// How many.
    pub count: usize,
    /// Their share of all gaps; `None` when there is no gap.
    pub share: Option<f64>,
}

/// Two percentile curves between which the true one lies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PercentileBounds {
    /// Censored gaps at their lower bounds.
    pub lower: Percentiles,
    /// Censored gaps at their upper bounds.
    pub upper: Percentiles,
}

impl Chunk {
    /// The earliest instant at which it can have arrived.
    fn earliest(&self) -> Nanos {
        if self.ends_read { self.at } else { self.not_before.min(self.at) }
    }
}

impl GapRule {
    /// The statistics of the gaps of all requests. `each` hands the output chunks of every request, in order of arrival,
    /// to what it is given; it is called up to three times.
    ///
    /// # Errors
    /// Those of `each`.
    pub fn distribution<E>(
        self,
        mut each: impl FnMut(&mut dyn FnMut(&[Chunk])) -> Result<(), E>,
    ) -> Result<GapDistribution, E> {
        let mut gather = |side| {
            let mut gaps = GapPopulation::new(self, side);
            each(&mut |chunks| gaps.add_request(chunks)).map(|()| gaps)
        };
        let mut found = gather(Side::Exact)?.exact_distribution();
        if found.coalesced.count > 0 {
            // Each is dropped before the next one is gathered.
            let lower = gather(Side::Lower)?.percentiles();
            let upper = gather(Side::Upper)?.percentiles();
            found.bounds = lower.zip(upper).map(|(lower, upper)| PercentileBounds { lower, upper });
        }
        Ok(found)
    }
}

impl GapDistribution {
    /// The statistics of no gap.
    #[must_use]
    pub fn none() -> Self {
        GapPopulation::new(GapRule::Chunks, Side::Exact).exact_distribution()
    }
}

impl GapPopulation {
    const fn new(rule: GapRule, side: Side) -> Self {
        Self { rule, side, values: Vec::new(), censored: 0, spans: 0, parts: 0 }
    }

    fn add_request(&mut self, chunks: &[Chunk]) {
        match self.rule {
            GapRule::Chunks => each_gap(chunks, |earlier, later| self.add_gap(earlier, later, 1)),
            GapRule::Tokens => {
                token_gaps::each_gap(chunks, |earlier, later, n| self.add_gap(earlier, later, n));
            }
        }
    }

    fn add_gap(&mut self, earlier: &Chunk, later: &Chunk, tokens: u32) {
        self.spans += i128::from(later.at.0) - i128::from(earlier.at.0);
        self.parts += u128::from(tokens);
        let is_exact = earlier.ends_read && later.ends_read;
        self.censored += usize::from(!is_exact);
        let gap = match self.side {
            _ if is_exact => difference(later.at, earlier.at),
            Side::Exact => return,
            // Chunks arrive in order, so a gap is never below zero.
            Side::Lower => difference(later.earliest(), earlier.at).max(Nanos(0)),
            Side::Upper => difference(later.at, earlier.earliest()),
        };
        self.values.push(gap.as_millis_f64() / f64::from(tokens));
    }

    fn percentiles(mut self) -> Option<Percentiles> {
        Percentiles::of(ascending(&mut self.values))
    }

    /// Without bounds.
    fn exact_distribution(mut self) -> GapDistribution {
        let mean = self.mean_ms();
        let all = self.values.len() + self.censored;
        let exact = ascending(&mut self.values);
        GapDistribution {
            exact: Distribution {
                count: exact.len(),
                mean,
                stddev: exact::stdev(exact),
                percentiles: Percentiles::of(exact),
                ci95: Ci95::default(),
                independence: None,
            },
            coalesced: CoalescedGaps {
                count: self.censored,
                share: (all > 0).then(|| float(self.censored) / float(all)),
            },
            bounds: None,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "whole numbers, rounded to doubles at the end")]
    fn mean_ms(&self) -> Option<f64> {
        (self.parts > 0).then(|| self.spans as f64 / 1e6 / self.parts as f64)
    }
}

/// Calls `found` with the chunks of each gap: two consecutive ones of one choice.
fn each_gap(chunks: &[Chunk], mut found: impl FnMut(&Chunk, &Chunk)) {
    // Choices are few; a map would cost more than the search.
    let mut last_of_choice: Vec<&Chunk> = Vec::new();
    for chunk in chunks {
        match last_of_choice.iter_mut().find(|last| last.choice == chunk.choice) {
            Some(last) => found(std::mem::replace(last, chunk), chunk),
            None => last_of_choice.push(chunk),
        }
    }
}

fn ascending(values: &mut [f64]) -> &[f64] {
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// Stamps of one run are within 292 years of each other; a span beyond that would be clamped.
fn difference(later: Nanos, earlier: Nanos) -> Nanos {
    Nanos(later.0.saturating_sub(earlier.0))
}

#[expect(clippy::cast_precision_loss, reason = "counts of gaps are far below 2^53")]
fn float(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = Nanos::PER_MILLI;

    fn exact_at(ms: i64) -> Chunk {
        Chunk { at: Nanos(ms * MS), not_before: Nanos(0), ends_read: true, choice: 0, tokens: None }
    }

    fn hidden(not_before_ms: i64, ms: i64) -> Chunk {
        Chunk {
            at: Nanos(ms * MS),
            not_before: Nanos(not_before_ms * MS),
            ends_read: false,
            choice: 0,
            tokens: None,
        }
    }

    fn of(requests: &[&[Chunk]]) -> GapDistribution {
        let each = |add: &mut dyn FnMut(&[Chunk])| {
            requests.iter().for_each(|chunks| add(chunks));
            Ok::<_, std::convert::Infallible>(())
        };
        GapRule::Chunks.distribution(each).unwrap()
    }

    #[test]
    fn exact_gaps_are_pooled_over_requests() {
        let d =
            of(&[&[exact_at(10), exact_at(30), exact_at(60)], &[exact_at(0), exact_at(5)], &[exact_at(7)]]);
        assert_eq!(d.exact.count, 3);
        let p = d.exact.percentiles.unwrap();
        assert_eq!((p.min, p.p50, p.max), (5.0, 20.0, 30.0));
        assert_eq!(d.exact.mean, Some(55.0 / 3.0));
        assert_eq!(d.coalesced, CoalescedGaps { count: 0, share: Some(0.0) });
        assert_eq!(d.bounds, None);
        assert_eq!(d.exact.ci95, Ci95::default());
    }

    #[test]
    fn two_chunks_of_one_read_give_bounds_and_no_zero() {
        // Reads at 10 (one chunk), 50 (two chunks, queue empty at 12) and 70 (one chunk).
        let d = of(&[&[exact_at(10), hidden(12, 50), exact_at(50), exact_at(70)]]);
        // Only 50 → 70 has two chunks that end their reads.
        assert_eq!(d.exact.count, 1);
        assert_eq!(d.exact.percentiles.map(|p| (p.min, p.max)), Some((20.0, 20.0)));
        assert_eq!(d.coalesced.count, 2);
        assert_eq!(d.coalesced.share, Some(2.0 / 3.0));
        // The mean is (70 − 10) / 3 whatever happened inside the read.
        assert_eq!(d.exact.mean, Some(20.0));
        // 10 → hidden lies in [2, 40], hidden → 50 in [0, 38].
        let b = d.bounds.unwrap();
        assert_eq!((b.lower.min, b.lower.p50, b.lower.max), (0.0, 2.0, 20.0));
        assert_eq!((b.upper.min, b.upper.p50, b.upper.max), (20.0, 38.0, 40.0));
    }

    #[test]
    fn two_hidden_chunks_in_a_row() {
        // Both in the read at 50: their gap lies in [0, 38], never below zero.
        let d = of(&[&[hidden(12, 50), hidden(12, 50), exact_at(50)]]);
        let b = d.bounds.unwrap();
        assert_eq!((b.lower.min, b.lower.max), (0.0, 0.0));
        assert_eq!((b.upper.min, b.upper.max), (38.0, 38.0));
        assert_eq!(d.exact.count, 0);
        assert_eq!(d.exact.percentiles, None);
        assert_eq!(d.exact.mean, Some(0.0));
    }

    #[test]
    fn choices_are_kept_apart() {
        let other = |ms| Chunk { choice: 1, ..exact_at(ms) };
        let d = of(&[&[exact_at(0), other(1), exact_at(10), other(31)]]);
        let p = d.exact.percentiles.unwrap();
        assert_eq!((d.exact.count, p.min, p.max), (2, 10.0, 30.0));
        assert_eq!(d.exact.mean, Some(20.0));
    }

    #[test]
    fn no_gap_at_all() {
        for d in [of(&[]), of(&[&[]]), of(&[&[exact_at(3)]])] {
            assert_eq!((d.exact, d.clone()), (Distribution::default(), GapDistribution::none()));
            assert_eq!(d.coalesced, CoalescedGaps { count: 0, share: None });
            assert_eq!(d.bounds, None);
        }
    }

    #[test]
    fn the_true_percentiles_lie_between_the_curves() {
        // True arrivals are known; reads swallow them in groups. Deterministic pseudo-random numbers (xorshift).
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let mut truth = Vec::new();
        let mut requests = Vec::new();
        for _ in 0..200 {
            let mut now = 0_i64;
            let mut emptied = 0_i64;
            let mut pending: Vec<i64> = Vec::new();
            let mut chunks = Vec::new();
            let mut arrivals = Vec::new();
            for _ in 0..40 {
                now += i64::try_from(random(20 * MS as u64)).unwrap();
                arrivals.push(now);
                pending.push(now);
                if random(3) != 0 {
                    let (last, earlier) = pending.split_last().unwrap();
                    let hide = |_: &i64| Chunk {
                        at: Nanos(*last),
                        not_before: Nanos(emptied),
                        ends_read: false,
                        choice: 0,
                        tokens: None,
                    };
                    chunks.extend(earlier.iter().map(hide));
                    chunks.push(Chunk {
                        at: Nanos(*last),
                        not_before: Nanos(emptied),
                        ends_read: true,
                        choice: 0,
                        tokens: None,
                    });
                    emptied = *last;
                    pending.clear();
                }
            }
            arrivals.truncate(chunks.len());
            truth.extend(arrivals.windows(2).map(|w| Nanos(w[1] - w[0])));
            requests.push(chunks);
        }
        let mut truth: Vec<f64> = truth.into_iter().map(Nanos::as_millis_f64).collect();
        let truth = Percentiles::of(ascending(&mut truth)).unwrap();
        let d = of(&requests.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let b = d.bounds.unwrap();
        assert!(d.coalesced.share.unwrap() > 0.3);
        let curve = |p: &Percentiles| [p.p5, p.p25, p.p50, p.p75, p.p90, p.p99, p.max];
        for (i, truth) in curve(&truth).iter().enumerate() {
            assert!(curve(&b.lower)[i] <= *truth && *truth <= curve(&b.upper)[i], "{i}: {b:?}");
        }
    }
}
