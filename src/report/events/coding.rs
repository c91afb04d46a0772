//! The small codings of `events.bin`: variable-length integers and the checksum of a block. Pure functions over bytes.
//!
//! Integers are LEB128, seven bits a byte, low bits first (the coding of DWARF and of Protocol Buffers); signed ones
//! are zigzag-mapped before, so that small differences of either sign are short. The checksum is CRC-32/ISO-HDLC, the one
//! of zlib, so that any language can check a file.

/// Appends an unsigned integer: 1 to 10 bytes.
pub(super) fn put_unsigned(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(low_bits(value) | 0x80);
        value >>= 7;
    }
    out.push(low_bits(value));
}

/// Appends a signed integer: 1 to 10 bytes.
pub(super) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_unsigned(out, (value.cast_unsigned() << 1) ^ (value >> 63).cast_unsigned());
}

/// Takes an unsigned integer from the front; `None` when the bytes end first or the number does not fit 64 bits.
pub(super) fn take_unsigned(bytes: &mut &[u8]) -> Option<u64> {
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
pub(super) fn take_signed(bytes: &mut &[u8]) -> Option<i64> {
    let zigzag = take_unsigned(bytes)?;
    Some((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed())
}

/// Takes one byte from the front.
pub(super) fn take_byte(bytes: &mut &[u8]) -> Option<u8> {
    let (first, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(*first)
}

/// CRC-32/ISO-HDLC.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        let place = usize::from(crc.to_le_bytes()[0] ^ byte);
        CRC_TABLE.get(place).copied().unwrap_or(0) ^ (crc >> 8)
    };
    !bytes.iter().fold(!0, step)
}

const fn low_bits(value: u64) -> u8 {
    (value & 0x7f) as u8
}

const CRC_POLYNOMIAL_REFLECTED: u32 = 0xedb8_8320;

static CRC_TABLE: [u32; 256] = crc_table();

#[expect(clippy::cast_possible_truncation, reason = "the table has 256 places")]
#[expect(clippy::indexing_slicing, reason = "computed by the compiler, where a wrong place does not build")]
const fn crc_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut place = 0;
    while place < table.len() {
        let mut crc = place as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { CRC_POLYNOMIAL_REFLECTED ^ (crc >> 1) } else { crc >> 1 };
            bit += 1;
        }
        table[place] = crc;
        place += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The check value of the catalogue of parametrised CRC algorithms, and three values of Python's `zlib.crc32`.
    #[test]
    fn the_checksum_is_the_common_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
        assert_eq!(crc32(b"\0"), 0xd202_ef8d);
        assert_eq!(crc32(b"hammerscale"), 0xec77_6757);
    }

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
