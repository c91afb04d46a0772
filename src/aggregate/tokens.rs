//! What is known about tokens beyond their distributions: where counts come from, whether answers had the length that
//! was asked for, how much the server took from its cache, how many tokens a chunk carries. All over ok requests of the
//! window; requests that lack one of the two numbers of a comparison are left out of it.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use crate::aggregate::stream::hides_reasoning;
use crate::metrics::row::{RequestRow, TokenSource};
use crate::metrics::rows::RowSource;
use crate::metrics::{MetricId, formula};

/// Token facts of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TokenFacts {
    /// Ok requests by the source of their output token count.
    pub sources: BTreeMap<TokenSource, u64>,
    /// Output limit against output tokens; `None` when no request has both.
    pub output: Option<AskedReceived>,
    /// Context target against the prompt tokens that the server counted; `None` when no request has both.
    pub prompt: Option<AskedReceived>,
    /// Prompt tokens against those from the server's cache; `None` when no request has both.
    pub cached: Option<Cached>,
    /// Answers that count more tokens from the cache than there are in the prompt, and are left out of `cached`.
    pub cached_beyond_prompt: u64,
    /// Tokens against chunks, for answers of which every token can be in a chunk; `None` when there is none.
    pub per_chunk: Option<PerChunk>,
    /// Where the tokens of first chunks come from, over answers with a time per output token.
    pub first_chunk: FirstChunk,
    /// Answers without a usage object.
    pub without_usage: u64,
    /// Answers that ended by themselves below their limit.
    pub ended_early: u64,
}

/// Sums over the requests that have both numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AskedReceived {
    /// How many requests have both.
    pub requests: u64,
    /// What was asked for.
    pub asked: u64,
    /// What came.
    pub received: u64,
}

/// Sums over the requests that have both numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cached {
    /// Tokens of the whole prompts.
    pub prompt: u64,
    /// Those from the server's cache.
    pub cached: u64,
    /// Those that were written to it; `None` when no server told.
    pub created: Option<u64>,
    /// Requests whose server counts the tokens of its cache beside the prompt tokens; elsewhere they are part of them.
    pub counted_apart: u64,
}

/// Sums over the requests whose tokens were counted by the server and all can have come in chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PerChunk {
    /// How many requests.
    pub requests: u64,
    /// Of them, those whose tokens the server counted chunk by chunk.
    pub measured: u64,
    /// Their output tokens: those that came in chunks where that was counted.
    pub tokens: u64,
    /// Their output chunks.
    pub chunks: u64,
}

/// Answers with a time per output token by what is known of their first chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FirstChunk {
    /// The server counted its tokens.
    pub measured: u64,
    /// It is assumed to hold [`formula::ASSUMED_FIRST_CHUNK_TOKENS`].
    pub assumed: u64,
}

impl TokenFacts {
    /// The facts of these rows.
    #[must_use]
    pub fn of(rows: impl RowSource) -> Self {
        let mut facts = Self::default();
        rows.rows().for_each(|row| facts.add(row.borrow()));
        facts
    }

    fn add(&mut self, row: &RequestRow) {
        if !formula::counts(row) {
            return;
        }
        *self.sources.entry(row.output_token_source).or_default() += 1;
        compare(&mut self.output, row.requested_max_tokens, row.output_tokens);
        compare(&mut self.prompt, row.planned_context_tokens, row.usage.whole_prompt_tokens());
        if let Some((cached, prompt)) = row.usage.cached_of_prompt() {
            let sums = self.cached.get_or_insert_default();
            sums.prompt = sums.prompt.saturating_add(prompt);
            sums.cached = sums.cached.saturating_add(cached);
            if let Some(created) = row.usage.cache_creation_tokens {
                sums.created = Some(sums.created.unwrap_or(0).saturating_add(created));
            }
            sums.counted_apart += u64::from(row.usage.cache_counted_apart);
        } else if row.usage.cached_tokens.is_some() && row.usage.prompt_tokens.is_some() {
            self.cached_beyond_prompt += 1;
        }
        if formula::value(MetricId::Tpot, row).is_some() {
            let measured = formula::measured_first_chunk_tokens(row).is_some();
            let n = if measured { &mut self.first_chunk.measured } else { &mut self.first_chunk.assumed };
            *n += 1;
        }
        let counted = matches!(row.output_token_source, TokenSource::Usage | TokenSource::ContinuousUsage);
        self.without_usage += u64::from(!counted);
        self.ended_early += u64::from(
            row.output_tokens.zip(row.requested_max_tokens).is_some_and(|(got, limit)| got < limit),
        );
        if let Some(tokens) = row.output_tokens.filter(|_| counted && !hides_reasoning(row)) {
            let sums = self.per_chunk.get_or_insert_default();
            sums.requests += 1;
            sums.measured += u64::from(row.chunk_tokens.is_some());
            sums.tokens = sums.tokens.saturating_add(row.chunk_tokens.unwrap_or(tokens));
            sums.chunks = sums.chunks.saturating_add(row.counters.output_chunks);
        }
    }
}

impl AskedReceived {
    /// What came over what was asked for; `None` when nothing was asked for.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        ratio(self.received, self.asked)
    }
}

impl Cached {
    /// Share of the prompt tokens that came from the cache; `None` without prompt tokens.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        ratio(self.cached, self.prompt)
    }
}

impl PerChunk {
    /// Tokens per chunk. Where only the total is known, one token per request is left out: the end-of-sequence token,
    /// which many servers count, comes in no chunk. `None` without chunks.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        let unmeasured = self.requests.saturating_sub(self.measured);
        ratio(self.tokens.saturating_sub(unmeasured), self.chunks)
    }
}

fn compare(sums: &mut Option<AskedReceived>, asked: Option<u64>, received: Option<u64>) {
    if let (Some(asked), Some(received)) = (asked, received) {
        let sums = sums.get_or_insert_default();
        sums.requests += 1;
        sums.asked = sums.asked.saturating_add(asked);
        sums.received = sums.received.saturating_add(received);
    }
}

#[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^53")]
fn ratio(over: u64, under: u64) -> Option<f64> {
    (under > 0).then(|| over as f64 / under as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::rows::Rows;
    use crate::metrics::testing::row;
    use crate::record::Outcome;

    #[test]
    fn sums_of_a_hand_worked_run() {
        let mut no_usage = row(1);
        no_usage.usage = Default::default();
        (no_usage.output_tokens, no_usage.output_token_source) = (Some(6), TokenSource::ContentChunks);
        let mut hidden = row(2);
        hidden.counters.reasoning_chunks = 0;
        hidden.output_tokens = Some(128);
        let mut failed = row(3);
        failed.outcome = Outcome::TimeoutIdle;
        let facts = TokenFacts::of(&[row(0), no_usage, hidden, failed]);
        assert_eq!(facts.sources, BTreeMap::from([(TokenSource::Usage, 2), (TokenSource::ContentChunks, 1)]));
        assert_eq!(facts.output, Some(AskedReceived { requests: 3, asked: 384, received: 145 }));
        assert_eq!(facts.prompt, Some(AskedReceived { requests: 2, asked: 1024, received: 200 }));
        assert_eq!(facts.cached, Some(Cached { prompt: 200, cached: 80, ..Cached::default() }));
        assert_eq!(facts.cached.unwrap().share(), Some(0.4));
        assert_eq!(facts.per_chunk, Some(PerChunk { requests: 1, measured: 0, tokens: 11, chunks: 6 }));
        assert_eq!(facts.per_chunk.unwrap().ratio(), Some(10.0 / 6.0));
        assert_eq!((facts.without_usage, facts.ended_early), (1, 2));
    }

    #[test]
    fn a_cache_that_is_counted_apart_is_added_up_and_told() {
        let mut apart = row(1);
        let usage = &mut apart.usage;
        (usage.prompt_tokens, usage.cache_creation_tokens, usage.cache_counted_apart) =
            (Some(50), Some(10), true);
        let facts = TokenFacts::of(&[row(0), apart]);
        assert_eq!(facts.prompt, Some(AskedReceived { requests: 2, asked: 1024, received: 200 }));
        assert_eq!(
            facts.cached,
            Some(Cached { prompt: 200, cached: 80, created: Some(10), counted_apart: 1 })
        );
    }

    #[test]
    fn a_cache_that_gave_more_than_the_prompt_is_in_no_sum() {
        let mut beyond = row(1);
        beyond.usage.cached_tokens = Some(beyond.usage.prompt_tokens.unwrap() + 1);
        let facts = TokenFacts::of(&[row(0), beyond.clone()]);
        assert_eq!((facts.cached, facts.cached_beyond_prompt), (TokenFacts::of(&[row(0)]).cached, 1));
        assert_eq!(formula::value(MetricId::PrefixCacheHit, &beyond), None);
    }

    #[test]
    fn tokens_counted_by_chunk_are_taken_as_they_were_counted() {
        let mut measured = row(0);
        (measured.chunk_tokens, measured.output_token_source) = (Some(6), TokenSource::ContinuousUsage);
        let per_chunk = TokenFacts::of(&[measured.clone()]).per_chunk.unwrap();
        assert_eq!(per_chunk.ratio(), Some(1.0));
        (measured.chunk_tokens, measured.first_chunk_tokens) = (Some(18), Some(3));
        let facts = TokenFacts::of(&[measured, row(1)]);
        assert_eq!(facts.first_chunk, FirstChunk { measured: 1, assumed: 1 });
        let both = facts.per_chunk.unwrap();
        assert_eq!(both, PerChunk { requests: 2, measured: 1, tokens: 29, chunks: 12 });
        assert_eq!(both.ratio(), Some(28.0 / 12.0));
    }

    #[test]
    fn nothing_known_is_none_and_not_zero() {
        assert_eq!(TokenFacts::of(&Rows::new()), TokenFacts::default());
        assert_eq!(AskedReceived::default().ratio(), None);
        assert_eq!(Cached::default().share(), None);
        assert_eq!(PerChunk::default().ratio(), None);
    }
}
