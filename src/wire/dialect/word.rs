//! Questions to eight bytes at once, answered in an ordinary register.
//!
//! Most strings of a chunk are shorter than what a call of a vector routine costs. A word holds its bytes in the
//! order of the text, the first one lowest.

/// The high bit of every byte: set where a byte is beyond ASCII.
pub(super) const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// A one in every byte; times a byte, that byte eight times.
const ONES: u64 = 0x0101_0101_0101_0101;

/// The place, 0 to 7, of the first byte of `word` at which the body of a JSON string stops: a quote, a backslash or
/// a control character.
#[inline(always)]
pub(super) fn first_string_stop(word: u64) -> Option<usize> {
    let stops = string_stops(word);
    if stops == 0 {
        return None;
    }
    // Eight bytes have no place beyond 7, so the conversion cannot fail.
    Some(usize::try_from(stops.trailing_zeros() / 8).unwrap_or(0))
}

/// Whether all eight bytes are digits: 0x30 to 0x39, and still 0x3_ with 6 added.
#[inline]
pub(super) const fn all_digits(word: u64) -> bool {
    const HIGH_NIBBLES: u64 = ONES * 0xf0;
    const THREES: u64 = ONES * 0x30;
    word & HIGH_NIBBLES == THREES && word.wrapping_add(ONES * 6) & HIGH_NIBBLES == THREES
}

/// The first eight bytes of a text, or all of it, ready to be compared with a word.
#[derive(Clone, Copy)]
pub(super) struct Prefix {
    bytes: u64,
    mask: u64,
}

impl Prefix {
    /// The prefix of a text; meant for texts that are known while compiling.
    pub(super) const fn of(text: &[u8]) -> Self {
        let (mut bytes, mut mask) = (0_u64, 0_u64);
        let mut rest = text;
        let mut shift = 0;
        while let Some((byte, after)) = rest.split_first()
            && shift < u64::BITS
        {
            bytes |= (*byte as u64) << shift;
            mask |= 0xff << shift;
            shift += 8;
            rest = after;
        }
        Self { bytes, mask }
    }

    /// Whether `word` begins with it.
    #[inline(always)]
    pub(super) const fn begins(self, word: u64) -> bool {
        word & self.mask == self.bytes
    }
}

/// The high bit of every byte of `word` that is a quote, a backslash or below 0x20. Bytes above the lowest such
/// byte may be marked wrongly (the borrow of the subtraction runs upwards); the lowest mark is exact.
/// The test of a byte against a bound is the one of S. E. Anderson's Bit Twiddling Hacks ("hasless"). Exchanging
/// 0x20 and 0x22 first puts the quote next to the control characters, so that one bound serves for both.
#[inline]
const fn string_stops(word: u64) -> u64 {
    let quotes_and_controls = word ^ (ONES * 2);
    let backslashes = word ^ (ONES * b'\\' as u64);
    let quotes_and_controls = quotes_and_controls.wrapping_sub(ONES * 0x21) & !quotes_and_controls;
    let backslashes = backslashes.wrapping_sub(ONES) & !backslashes;
    (quotes_and_controls | backslashes) & HIGH_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_search_finds_the_first_stop_of_any_byte_at_any_place() {
        for byte in 0..=255_u8 {
            for place in 0..8 {
                for other in [b'a', 0x21, 0x23, 0x5b, 0x5d, 0x7f, 0x80, 0xa2, 0xdc, 0xff] {
                    let mut word = [other; 8];
                    word[place] = byte;
                    let expected = word.iter().position(|b| matches!(b, b'"' | b'\\' | 0..=0x1f));
                    assert_eq!(first_string_stop(u64::from_le_bytes(word)), expected, "{word:x?}");
                }
            }
        }
    }

    #[test]
    fn eight_digits_are_told_from_anything_else() {
        for byte in 0..=255_u8 {
            for place in 0..8 {
                let mut word = *b"90123456";
                word[place] = byte;
                assert_eq!(all_digits(u64::from_le_bytes(word)), byte.is_ascii_digit(), "{word:x?}");
            }
        }
    }
}
