//! The checksum of a block of `events.bin`: CRC-32/ISO-HDLC, the one of zlib, so that any language can check a file.

/// CRC-32/ISO-HDLC.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        let place = usize::from(crc.to_le_bytes()[0] ^ byte);
        CRC_TABLE.get(place).copied().unwrap_or(0) ^ (crc >> 8)
    };
    !bytes.iter().fold(!0, step)
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

    /// The check value of the catalogue of parametrised CRC algorithms, and three values of Python's `zlib.crc32`.
    #[test]
    fn the_checksum_is_the_common_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
        assert_eq!(crc32(b"\0"), 0xd202_ef8d);
        assert_eq!(crc32(b"hammerscale"), 0xec77_6757);
    }
}
