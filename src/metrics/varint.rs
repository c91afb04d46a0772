//! Variable-length integers, in which `events.bin` and the rows in memory are written. Pure functions over bytes.
//!
//! Integers are LEB128, seven bits a byte, low bits first (the coding of DWARF and of Protocol Buffers); signed ones
//! are zigzag-mapped before, so that small differences of either sign are short.

/// Appends an unsigned integer: 1 to 10 bytes.
pub fn put_unsigned(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(low_bits(value) | 0x80);
        value >>= 7;
    }
    out.push(low_bits(value));
}

/// Appends a signed integer: 1 to 10 bytes.
pub fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_unsigned(out, (value.cast_unsigned() << 1) ^ (value >> 63).cast_unsigned());
}

/// Takes an unsigned integer from the front; `None` when the bytes end first or the number does not fit 64 bits.
pub fn take_unsigned(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..u64::BITS).step_by(7) {
        let byte = take_byte(bytes)?;
        let bits = u64::from(byte & 0x7f);
        let placed = bits << shift;
        if placed >> shift != bits {
            return None;
        }
        value |= placed;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Takes a signed integer from the front; `None` as for [`take_unsigned`].
pub fn take_signed(bytes: &mut &[u8]) -> Option<i64> {
    let zigzag = take_unsigned(bytes)?;
    Some((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed())
}

/// Takes one byte from the front.
pub fn take_byte(bytes: &mut &[u8]) -> Option<u8> {
    let (first, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(*first)
}

const fn low_bits(value: u64) -> u8 {
    (value & 0x7f) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_codings() {
        for (value, bytes) in [(0, &[0][..]), (127, &[0x7f]), (128, &[0x80, 1]), (300, &[0xac, 2])] {
            let mut out = Vec::new();
            put_unsigned(&mut out, value);
            assert_eq!(out, bytes);
        }
        for (value, bytes) in [(0, &[0][..]), (-1, &[1]), (1, &[2]), (-64, &[0x7f]), (64, &[0x80, 1])] {
            let mut out = Vec::new();
            put_signed(&mut out, value);
            assert_eq!(out, bytes);
        }
    }

    #[test]
    fn damaged_integers_are_refused() {
        for bytes in [&[][..], &[0x80], &[0xff; 10], &[0xff; 11]] {
            assert_eq!(take_unsigned(&mut &bytes[..]), None, "{bytes:?}");
        }
        let mut largest = &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1][..];
        assert_eq!(take_unsigned(&mut largest), Some(u64::MAX));
    }

    proptest! {
        #[test]
        fn integers_survive(unsigned: u64, signed: i64, tail: Vec<u8>) {
            let mut out = Vec::new();
            put_unsigned(&mut out, unsigned);
            put_signed(&mut out, signed);
            out.extend_from_slice(&tail);
            let mut bytes = &out[..];
            prop_assert_eq!(take_unsigned(&mut bytes), Some(unsigned));
            prop_assert_eq!(take_signed(&mut bytes), Some(signed));
            prop_assert_eq!(bytes, &tail[..]);
        }
    }
}
