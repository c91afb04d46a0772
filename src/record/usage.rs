//! What a server says about tokens, as it says it, and the one rule that makes its counts comparable.

/// The largest number that is taken for a count of tokens: five days of one answer at 10,000 tokens a second, and 400
/// times the longest context on offer. Sums over a thousand million requests of such counts still fit their type, so
/// that no sum can saturate, and a double holds each of them.
pub const MAX_TOKENS: u64 = u32::MAX as u64;

/// Token counts as the server reported them, last value seen, raw. `None` where it reported none, or a number beyond
/// [`MAX_TOKENS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// `prompt_tokens` (or the dialect's word for it).
    pub prompt_tokens: Option<u64>,
    /// `completion_tokens`, reasoning never added.
    pub completion_tokens: Option<u64>,
    /// `total_tokens`.
    pub total_tokens: Option<u64>,
    /// `completion_tokens_details.reasoning_tokens`.
    pub reasoning_tokens: Option<u64>,
    /// `prompt_tokens_details.cached_tokens` (or the dialect's word for it): read from the server's cache.
    pub cached_tokens: Option<u64>,
    /// `cache_creation_input_tokens`: written to the server's cache. Only a dialect that counts them apart tells them.
    pub cache_creation_tokens: Option<u64>,
    /// The counts of the cache are not part of `prompt_tokens` but stand beside it, by the dialect's definition.
    pub cache_counted_apart: bool,
}

impl Usage {
    /// Takes every number beyond [`MAX_TOKENS`] away; whether there was one.
    pub fn drop_impossible(&mut self) -> bool {
        let Self { prompt_tokens, completion_tokens, total_tokens, reasoning_tokens, .. } = self;
        let counts = [prompt_tokens, completion_tokens, total_tokens, reasoning_tokens];
        let cache = [&mut self.cached_tokens, &mut self.cache_creation_tokens];
        let mut dropped = false;
        for count in counts.into_iter().chain(cache) {
            dropped |= count.take_if(|count| *count > MAX_TOKENS).is_some();
        }
        dropped
    }

    /// Tokens of the whole prompt and those of them that came from the cache; `None` without one of the two, and where
    /// the cache gave more than there was: then one of the counts is not what it is called.
    #[must_use]
    pub fn cached_of_prompt(&self) -> Option<(u64, u64)> {
        let (prompt, cached) = (self.whole_prompt_tokens()?, self.cached_tokens?);
        (cached <= prompt).then_some((cached, prompt))
    }

    /// Tokens of the whole prompt, whichever way the server counts those of its cache: what every number that is derived
    /// from the length of a prompt is made of. `None` without a count of prompt tokens; a count of the cache that the
    /// server did not send adds nothing.
    #[must_use]
    pub fn whole_prompt_tokens(&self) -> Option<u64> {
        let apart = [self.cached_tokens, self.cache_creation_tokens].into_iter().flatten();
        let apart = apart.filter(|_| self.cache_counted_apart).fold(0, u64::saturating_add);
        Some(self.prompt_tokens?.saturating_add(apart))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_a_count_of_tokens_is_none() {
        let mut usage = Usage {
            prompt_tokens: Some(MAX_TOKENS),
            completion_tokens: Some(MAX_TOKENS + 1),
            cached_tokens: Some(u64::MAX),
            ..Usage::default()
        };
        assert!(usage.drop_impossible());
        assert_eq!(usage, Usage { prompt_tokens: Some(MAX_TOKENS), ..Usage::default() });
        assert!(!usage.drop_impossible());
    }

    #[test]
    fn no_more_of_a_prompt_comes_from_the_cache_than_there_is() {
        let of = |prompt_tokens, cached_tokens, cache_counted_apart| {
            Usage { prompt_tokens, cached_tokens, cache_counted_apart, ..Usage::default() }.cached_of_prompt()
        };
        assert_eq!(of(Some(10), Some(10), false), Some((10, 10)));
        assert_eq!(of(Some(10), Some(50), false), None);
        assert_eq!(of(Some(10), Some(50), true), Some((50, 60)));
        assert_eq!((of(None, Some(1), false), of(Some(1), None, false)), (None, None));
    }

    #[test]
    fn a_whole_prompt_holds_the_tokens_of_the_cache_once() {
        let of = |prompt_tokens, cached_tokens, cache_creation_tokens, cache_counted_apart| {
            let usage = Usage {
                prompt_tokens,
                cached_tokens,
                cache_creation_tokens,
                cache_counted_apart,
                ..Usage::default()
            };
            usage.whole_prompt_tokens()
        };
        // A real llama.cpp about a prompt of 38 tokens, on both of its endpoints.
        assert_eq!(of(Some(38), Some(37), None, false), Some(38));
        assert_eq!(of(Some(1), Some(37), None, true), Some(38));
        assert_eq!(of(Some(3), Some(20), Some(15), true), Some(38));
        assert_eq!(of(Some(38), Some(20), Some(15), false), Some(38));
        assert_eq!(of(Some(38), None, None, true), Some(38));
        assert_eq!(of(Some(0), Some(0), Some(0), true), Some(0));
        assert_eq!(of(None, Some(37), Some(1), true), None, "a part is no whole");
        assert_eq!(
            of(Some(u64::MAX), Some(u64::MAX), None, true),
            Some(u64::MAX),
            "a server may say anything"
        );
    }
}
