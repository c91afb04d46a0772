//! Counter-based random numbers: the n-th draw of a lane is a pure function of (seed, request, purpose, n).
//!
//! SplitMix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014): its n-th
//! output is a finaliser over `state + n * gamma`, so any draw can be had without those before it, nothing has
//! to be stored per stream, and a request's numbers do not depend on what other requests draw. Not for secrets.

/// The increment of SplitMix64: 2^64 divided by the golden ratio, odd.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// What a lane's numbers are used for; each purpose has its own numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Time to first token.
    FirstToken = 1,
    /// Gaps between output events.
    Gap = 2,
    /// How many tokens of visible content.
    Tokens = 3,
    /// How many tokens of reasoning.
    ReasoningTokens = 4,
    /// How many tokens in one event.
    ChunkTokens = 5,
    /// Which words.
    Words = 6,
    /// The completion's id.
    Id = 7,
}

/// The random numbers of one request for one purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lane(u64);

impl Lane {
    /// The lane of a request (numbered by arrival) for a purpose.
    pub(crate) const fn new(seed: u64, request: u64, purpose: Purpose) -> Self {
        Self(nth(nth(seed, request), purpose as u64))
    }

    /// The numbers that follow from any 64 bits, for what depends on no request.
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The `counter`-th number, all 64 bits.
    pub(crate) const fn bits(self, counter: u64) -> u64 {
        nth(self.0, counter)
    }

    /// The `counter`-th number, uniform in [0, 1) with 53 bits.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit a double exactly")]
    pub(crate) fn unit(self, counter: u64) -> f64 {
        (self.bits(counter) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The `n`-th output (from 0) of SplitMix64 started at `state`.
const fn nth(state: u64, n: u64) -> u64 {
    let z = state.wrapping_add(n.wrapping_add(1).wrapping_mul(GAMMA));
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_splitmix64s() {
        // The published outputs for state 1234567.
        let expected: [u64; 5] = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        for (n, want) in (0..).zip(expected) {
            assert_eq!(nth(1_234_567, n), want, "output {n}");
        }
    }

    #[test]
    fn lanes_differ_by_seed_request_and_purpose() {
        let base = Lane::new(1, 2, Purpose::Gap);
        assert_eq!(base, Lane::new(1, 2, Purpose::Gap));
        for other in [
            Lane::new(2, 2, Purpose::Gap),
            Lane::new(1, 3, Purpose::Gap),
            Lane::new(1, 2, Purpose::FirstToken),
        ] {
            assert_ne!(base.bits(0), other.bits(0));
        }
    }

    #[test]
    fn units_are_uniform() {
        let lane = Lane::new(7, 0, Purpose::Gap);
        let n = 100_000_u32;
        let mut cells = [0_u32; 10];
        for i in 0..n {
            let u = lane.unit(u64::from(i));
            assert!((0.0..1.0).contains(&u));
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "u is in [0, 1)")]
            let cell = (u * 10.0) as usize;
            cells[cell] += 1;
        }
        // Chi-square with 9 degrees of freedom: 27.9 is its 99.9th percentile; the draw is fixed, so no flake.
        let mean = f64::from(n) / 10.0;
        let chi: f64 = cells.iter().map(|&c| (f64::from(c) - mean).powi(2) / mean).sum();
        assert!(chi < 27.9, "chi-square {chi}, cells {cells:?}");
    }
}
