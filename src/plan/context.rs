//! How long each prompt is meant to be, in estimated tokens: a fixed target or the reference's measured
//! distribution, never above what the model has room for.
//!
//! Draws are made once, in index order, before the first packet; one byte per request is kept.

use std::collections::BTreeMap;

use super::mt19937::Mt19937;
use crate::config::spec::prompt_room;

/// The reference's distribution, measured on the sub-agents of a coding assistant: upper end of the cumulative
/// share, tokens. A draw belongs to the first row it does not exceed.
const BUCKETS: [(f64, u64); 5] =
    [(0.218, 16_000), (0.602, 32_768), (0.906, 65_536), (0.995, 131_072), (f64::INFINITY, 262_144)];

/// The largest context that fits: the model's length less the output limit and the margin. `Ok(None)` when the
/// length is unknown, which clamps nothing; an error with the tokens that are missing when nothing is left.
///
/// # Errors
/// [`NoRoom`] when the model's length is used up by output and margin.
pub(super) const fn cap(
    max_model_len: Option<u64>,
    max_tokens: u64,
    margin: u64,
) -> Result<Option<u64>, NoRoom> {
    let Some(length) = max_model_len else { return Ok(None) };
    match prompt_room(length, max_tokens, margin) {
        Some(room) => Ok(Some(room)),
        None => Err(NoRoom { length, taken: max_tokens.saturating_add(margin) }),
    }
}

/// Output limit and margin use up the model's length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoRoom {
    /// The model's length.
    pub(super) length: u64,
    /// Output limit plus margin.
    pub(super) taken: u64,
}

/// The planned context of every request.
#[derive(Debug, Clone)]
pub(super) struct Contexts {
    cap: u64,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Fixed {
        tokens: u64,
        requests: u64,
    },
    /// Row of [`BUCKETS`] per request.
    Sampled(Vec<u8>),
}

impl Contexts {
    /// Plans `requests` contexts: all `fixed`, or one draw each from the generator seeded with `seed`.
    #[must_use]
    pub(super) fn plan(fixed: Option<u64>, seed: i64, requests: u64, cap: Option<u64>) -> Self {
        let kind = match fixed {
            Some(tokens) => Kind::Fixed { tokens, requests },
            None => {
                let mut generator = Mt19937::from_python_seed(seed);
                Kind::Sampled((0..requests).map(|_| bucket(generator.random())).collect())
            }
        };
        Self { cap: cap.unwrap_or(u64::MAX), kind }
    }

    /// Planned tokens of request `index`; `None` beyond the plan.
    #[must_use]
    pub(super) fn tokens(&self, index: u64) -> Option<u64> {
        let target = match &self.kind {
            Kind::Fixed { tokens, requests } => (index < *requests).then_some(*tokens)?,
            Kind::Sampled(rows) => {
                let row = rows.get(usize::try_from(index).ok()?)?;
                BUCKETS.get(usize::from(*row))?.1
            }
        };
        Some(target.min(self.cap))
    }

    /// Planned tokens and how many requests have them, in ascending order.
    #[must_use]
    pub(super) fn distribution(&self) -> BTreeMap<u64, u64> {
        let mut counts = BTreeMap::new();
        match &self.kind {
            Kind::Fixed { tokens, requests } => {
                counts.insert((*tokens).min(self.cap), *requests);
            }
            Kind::Sampled(rows) => {
                for row in rows {
                    let tokens = BUCKETS.get(usize::from(*row)).map_or(0, |b| b.1);
                    *counts.entry(tokens.min(self.cap)).or_insert(0) += 1;
                }
            }
        }
        counts
    }

    /// Hands out bytes that are the same for the same plan and different for different ones, for a digest.
    pub(super) fn feed(&self, mut sink: impl FnMut(&[u8])) {
        sink(&self.cap.to_le_bytes());
        match &self.kind {
            Kind::Fixed { tokens, .. } => {
                sink(b"fixed");
                sink(&tokens.to_le_bytes());
            }
            Kind::Sampled(rows) => {
                sink(b"sampled");
                sink(rows);
            }
        }
    }
}

fn bucket(draw: f64) -> u8 {
    let row = BUCKETS.iter().take_while(|(upper, _)| draw > *upper).count();
    u8::try_from(row).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(seed: i64, n: u64) -> Vec<u64> {
        let plan = Contexts::plan(None, seed, n, None);
        (0..n).map(|i| plan.tokens(i).unwrap()).collect()
    }

    #[test]
    fn the_first_twenty_draws_are_the_published_ones() {
        // anvil-serving.benchmark/v1, context planning: golden buckets of the seeds 0 and 1.
        #[rustfmt::skip]
        let zero = [65536, 65536, 32768, 32768, 32768, 32768, 65536, 32768, 32768, 32768,
                    131072, 32768, 32768, 65536, 65536, 32768, 131072, 131072, 65536, 65536];
        #[rustfmt::skip]
        let one = [16000, 65536, 65536, 32768, 32768, 32768, 65536, 65536, 16000, 16000,
                   65536, 32768, 65536, 16000, 32768, 65536, 32768, 131072, 65536, 16000];
        assert_eq!(sampled(0, 20), zero);
        assert_eq!(sampled(1, 20), one);
        assert_eq!(sampled(-3, 500), sampled(3, 500));
    }

    #[test]
    fn the_cap_is_what_output_and_margin_leave() {
        assert_eq!(cap(None, 64, 1024), Ok(None));
        assert_eq!(cap(Some(8_192), 64, 1_024), Ok(Some(7_104)));
        assert_eq!(cap(Some(1_089), 64, 1_024), Ok(Some(1)));
        assert_eq!(cap(Some(1_088), 64, 1_024), Err(NoRoom { length: 1_088, taken: 1_088 }));
        assert_eq!(cap(Some(5), u64::MAX, u64::MAX), Err(NoRoom { length: 5, taken: u64::MAX }));
    }

    #[test]
    fn contexts_are_clamped_and_counted_after_clamping() {
        let plan = Contexts::plan(None, 0, 20, Some(40_000));
        assert_eq!(plan.tokens(0), Some(40_000));
        assert_eq!(plan.tokens(2), Some(32_768));
        assert_eq!(plan.tokens(20), None);
        assert_eq!(plan.distribution(), BTreeMap::from([(32_768, 10), (40_000, 10)]));
        let fixed = Contexts::plan(Some(512), 9, 3, Some(100));
        assert_eq!((fixed.tokens(2), fixed.tokens(3)), (Some(100), None));
        assert_eq!(fixed.distribution(), BTreeMap::from([(100, 3)]));
    }

    #[test]
    fn bucket_edges_belong_to_the_lower_bucket() {
        assert_eq!([0.0, 0.218, 0.602, 0.906, 0.995, 0.9999].map(bucket), [0, 0, 1, 2, 3, 4]);
        assert_eq!(bucket(0.218_000_000_000_000_03), 1);
    }
}
