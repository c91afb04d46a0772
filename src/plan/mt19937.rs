//! The Mersenne Twister as CPython's `random.Random(seed).random()` runs it, so that context lengths are drawn as
//! the reference draws them; and the gaps of an open loop, from numbers of their own ([`Mt19937::for_stream`]).
//! Nothing else in the project takes randomness from here.
//!
//! Source: M. Matsumoto, T. Nishimura, "Mersenne Twister", ACM TOMACS 8 (1998), with the authors' 2002
//! initialisation `init_by_array`; CPython seeds it with the 32-bit words of the seed's absolute value.

const N: usize = 624;
const M: usize = 397;

/// A generator of doubles in [0, 1).
pub struct Mt19937 {
    state: [u32; N],
    next: usize,
}

impl std::fmt::Debug for Mt19937 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mt19937").field("next", &self.next).finish_non_exhaustive()
    }
}

impl Mt19937 {
    /// Seeds as `random.Random(seed)` does. The sign is ignored: 3 and -3 draw alike.
    #[must_use]
    pub fn from_python_seed(seed: i64) -> Self {
        let magnitude = seed.unsigned_abs();
        let words = [low_word(magnitude), low_word(magnitude >> 32)];
        Self::from_key(if words[1] == 0 { &words[..1] } else { &words })
    }

    /// Numbers of their own for a purpose: they have nothing to do with those of another stream of the same seed, nor
    /// with those of [`Mt19937::from_python_seed`]. The sign counts.
    #[must_use]
    pub fn for_stream(seed: i64, stream: u32) -> Self {
        let bits = seed.cast_unsigned();
        // A key of another length than Python's.
        Self::from_key(&[low_word(bits), low_word(bits >> 32), stream])
    }

    /// The next double: 53 random bits over 2^53.
    pub fn random(&mut self) -> f64 {
        let high = f64::from(self.word() >> 5);
        let low = f64::from(self.word() >> 6);
        // 2^26 and 2^53.
        (high * 67_108_864.0 + low) / 9_007_199_254_740_992.0
    }

    /// `init_by_array` of the 2002 code; `key` is not empty.
    #[expect(clippy::indexing_slicing, reason = "i stays in 1..N and j below the key's length")]
    fn from_key(key: &[u32]) -> Self {
        let mut state = [0_u32; N];
        state[0] = 19_650_218;
        for i in 1..N {
            state[i] = mixed(state[i - 1], 1_812_433_253).wrapping_add(word_of(i));
        }
        let (mut i, mut j) = (1, 0);
        for _ in 0..N.max(key.len()) {
            state[i] =
                (state[i] ^ mixed(state[i - 1], 1_664_525)).wrapping_add(key[j]).wrapping_add(word_of(j));
            i = step(&mut state, i);
            j = (j + 1) % key.len();
        }
        for _ in 1..N {
            state[i] = (state[i] ^ mixed(state[i - 1], 1_566_083_941)).wrapping_sub(word_of(i));
            i = step(&mut state, i);
        }
        state[0] = 0x8000_0000;
        Self { state, next: N }
    }

    fn word(&mut self) -> u32 {
        if self.next >= N {
            self.refill();
        }
        let mut y = self.state.get(self.next).copied().unwrap_or(0);
        self.next += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    #[expect(clippy::indexing_slicing, reason = "every index is taken modulo N or below it")]
    fn refill(&mut self) {
        for k in 0..N {
            let y = (self.state[k] & 0x8000_0000) | (self.state[(k + 1) % N] & 0x7fff_ffff);
            let twist = if y & 1 == 0 { 0 } else { 0x9908_b0df };
            self.state[k] = self.state[(k + M) % N] ^ (y >> 1) ^ twist;
        }
        self.next = 0;
    }
}

/// Advances the index of the initialisation, carrying the last word over to the front.
fn step(state: &mut [u32; N], i: usize) -> usize {
    if i + 1 < N {
        return i + 1;
    }
    state[0] = state[N - 1];
    1
}

fn mixed(previous: u32, factor: u32) -> u32 {
    (previous ^ (previous >> 30)).wrapping_mul(factor)
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is what is asked for")]
const fn low_word(value: u64) -> u32 {
    value as u32
}

#[expect(clippy::cast_possible_truncation, reason = "indices are below 624")]
const fn word_of(index: usize) -> u32 {
    index as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_values_are_those_of_cpython() {
        // anvil-serving.benchmark/v1, context planning: first values of random.Random(0) and random.Random(1).
        let first = |seed| Mt19937::from_python_seed(seed).random().to_bits();
        assert_eq!(first(0), 0.844_421_851_525_048_1_f64.to_bits());
        assert_eq!(first(1), 0.134_364_244_112_401_22_f64.to_bits());
    }

    #[test]
    fn the_authors_first_outputs_come_out() {
        // mt19937ar.out: the first words of genrand_int32() after init_by_array({0x123, 0x234, 0x345, 0x456}).
        let mut mt = Mt19937::from_key(&[0x123, 0x234, 0x345, 0x456]);
        let words: Vec<u32> = (0..5).map(|_| mt.word()).collect();
        assert_eq!(words, [1_067_595_299, 955_945_823, 477_289_528, 4_107_218_783, 4_228_976_476]);
    }

    #[test]
    fn the_sign_of_the_seed_does_not_matter() {
        let (mut a, mut b) = (Mt19937::from_python_seed(-3), Mt19937::from_python_seed(3));
        for _ in 0..2_000 {
            assert_eq!(a.random().to_bits(), b.random().to_bits());
        }
    }
}
