//! What a server says about tokens, as it says it, and the one rule that makes its counts comparable.

/// Token counts as the server reported them, last value seen, raw. `None` where it reported none.
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
