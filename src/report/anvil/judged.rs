//! Which requests of a run are valid by the reference's rules, and what the artifact says of each.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use crate::metrics::row::RequestRow;
use crate::metrics::rows::RowSource;
use crate::report::anvil::failure::Failure;
use crate::report::anvil::timing::Timing;

/// The requests of a run, judged, in order of their indices.
#[derive(Default)]
pub(super) struct Judged {
    /// How many are valid.
    pub(super) completed: usize,
    /// Of the valid ones that have one.
    pub(super) timings: Vec<Timing>,
    /// Of the others, and of requests that were never sent.
    pub(super) failures: Vec<Failure>,
    /// Cached share of each valid request that told it.
    pub(super) hits: Vec<f64>,
    /// Requests by their context targets.
    pub(super) context_distribution: BTreeMap<String, u64>,
}

/// What the document says of one valid request.
struct Valid {
    timing: Option<Timing>,
    cached_share: Option<f64>,
}

impl Judged {
    pub(super) fn of(rows: impl RowSource, planned: u64) -> Self {
        let mut judged = Self::default();
        let mut contexts: BTreeMap<u64, u64> = BTreeMap::new();
        let mut all: Vec<(u64, Result<Valid, Box<Failure>>)> = Vec::new();
        for row in rows.measured() {
            let row: &RequestRow = row.borrow();
            all.push((row.request_index, judge(row)));
            if let Some(tokens) = row.planned_context_tokens {
                *contexts.entry(tokens).or_default() += 1;
            }
        }
        all.sort_by_key(|(index, _)| *index);
        let mut next_index = 0;
        for (index, judgement) in all {
            judged.failures.extend((next_index..index.min(planned)).map(Failure::never_sent));
            next_index = index.saturating_add(1);
            match judgement {
                Err(failure) => judged.failures.push(*failure),
                Ok(Valid { timing, cached_share }) => {
                    judged.completed += 1;
                    judged.timings.extend(timing);
                    judged.hits.extend(cached_share);
                }
            }
        }
        judged.failures.extend((next_index..planned).map(Failure::never_sent));
        judged.context_distribution =
            contexts.into_iter().map(|(tokens, n)| (tokens.to_string(), n)).collect();
        judged
    }
}

fn judge(row: &RequestRow) -> Result<Valid, Box<Failure>> {
    match Failure::of(row) {
        Some(failure) => Err(Box::new(failure)),
        None => Ok(Valid {
            timing: Timing::of(row).map(|timing| timing.observed(row)),
            cached_share: cached_share(row),
        }),
    }
}

/// `cached_tokens ÷ prompt_tokens`, the latter of the whole prompt as on the endpoint of the reference, where the server told both and the prompt was not empty.
#[expect(
    clippy::cast_precision_loss,
    reason = "token counts are far below 2^53, and Python rounds the same way"
)]
fn cached_share(row: &RequestRow) -> Option<f64> {
    let prompt = row.usage.whole_prompt_tokens().filter(|prompt| *prompt > 0)?;
    Some(row.usage.cached_tokens? as f64 / prompt as f64)
}
