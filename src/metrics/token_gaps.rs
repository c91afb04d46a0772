//! Time between tokens, where the server counts them as it goes: the gap before an output chunk, over its tokens.
//!
//! The rise of the server's count is the authority. A chunk that brought no token by that count (text that was held
//! back and released later, or cut in two) begins and ends no gap: the time before it belongs to the next chunk with
//! tokens. Were it left out instead, time would be lost that the next token did take, and the mean would no longer be
//! what it is called: the sum of the gaps over the sum of their tokens, from the first chunk to the last one with tokens.
//! The first chunk only begins the first gap, whatever it brought.
//!
//! Coalesced chunks are treated as in [`crate::metrics::gaps`]: a gap is exact when both its chunks end their reads.

use crate::metrics::gaps::Chunk;

/// Calls `found` with the chunks of each gap of one request and the tokens of the later one. A request with a chunk
/// without a count, or with chunks of several choices, has none: a count over several choices says nothing about one of
/// them.
pub(super) fn each_gap(chunks: &[Chunk], mut found: impl FnMut(&Chunk, &Chunk, u32)) {
    let Some((first, later)) = chunks.split_first() else { return };
    if chunks.iter().any(|chunk| chunk.tokens.is_none() || chunk.choice != first.choice) {
        return;
    }
    let mut before = first;
    for chunk in later {
        if let Some(tokens) = chunk.tokens.filter(|tokens| *tokens > 0) {
            found(before, chunk, tokens);
            before = chunk;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::gaps::{GapDistribution, GapRule};
    use crate::units::Nanos;

    fn chunk(ms: i64, tokens: Option<u32>) -> Chunk {
        let at = Nanos::from_millis(ms);
        Chunk { at, not_before: Nanos(at.0 - 3_000_000), ends_read: true, choice: 0, tokens }
    }

    fn of(requests: &[&[Chunk]]) -> GapDistribution {
        let each = |add: &mut dyn FnMut(&[Chunk])| {
            requests.iter().for_each(|chunks| add(chunks));
            Ok::<_, std::convert::Infallible>(())
        };
        GapRule::Tokens.distribution(each).unwrap()
    }

    /// Report 4 of the collected ones: one token, then chunks of four every 40 ms.
    #[test]
    fn a_gap_is_shared_by_the_tokens_of_its_chunk() {
        let chunks: Vec<_> =
            (0..=120).map(|i| chunk(100 + 40 * i, Some(if i == 0 { 1 } else { 4 }))).collect();
        let d = of(&[&chunks]);
        assert_eq!((d.exact.count, d.exact.mean), (120, Some(10.0)));
        let p = d.exact.percentiles.unwrap();
        assert_eq!((p.min, p.p50, p.max), (10.0, 10.0, 10.0));
        assert_eq!((d.coalesced.count, d.bounds), (0, None));
    }

    #[test]
    fn time_before_a_chunk_without_a_token_belongs_to_the_next_token() {
        // Tokens at 0, 30 and 100; released text at 10 and 110 brings none.
        let with = of(&[&[
            chunk(0, Some(1)),
            chunk(10, Some(0)),
            chunk(30, Some(2)),
            chunk(100, Some(1)),
            chunk(110, Some(0)),
        ]]);
        let without = of(&[&[chunk(0, Some(1)), chunk(30, Some(2)), chunk(100, Some(1))]]);
        assert_eq!(with, without);
        assert_eq!(with.exact.mean, Some(100.0 / 3.0));
        assert_eq!(with.exact.percentiles.map(|p| (p.min, p.max)), Some((15.0, 70.0)));
    }

    #[test]
    fn only_requests_with_every_count_are_in() {
        let counted = [chunk(0, Some(1)), chunk(20, Some(2))];
        let partly = [chunk(0, Some(1)), chunk(20, None), chunk(40, Some(1))];
        let other_choice = [chunk(0, Some(1)), Chunk { choice: 1, ..chunk(20, Some(1)) }];
        let d = of(&[&counted, &partly, &other_choice, &[], &[chunk(5, Some(9))]]);
        assert_eq!((d.exact.count, d.exact.mean), (1, Some(10.0)));
        for nothing in [of(&[]), of(&[&partly]), of(&[&[chunk(0, Some(1)), chunk(9, Some(0))]])] {
            assert_eq!((nothing.exact.count, nothing.exact.mean, nothing.bounds), (0, None, None));
        }
    }

    #[test]
    fn a_hidden_chunk_gives_bounds() {
        let hidden = Chunk { ends_read: false, ..chunk(40, Some(2)) };
        let d = of(&[&[chunk(20, Some(1)), hidden, chunk(40, Some(2))]]);
        assert_eq!((d.exact.count, d.coalesced.count, d.exact.mean), (0, 2, Some(5.0)));
        // The first gap lies in [17, 20], the second in [0, 3], two tokens each.
        let b = d.bounds.unwrap();
        assert_eq!((b.lower.min, b.lower.max, b.upper.min, b.upper.max), (0.0, 8.5, 1.5, 10.0));
    }
}
