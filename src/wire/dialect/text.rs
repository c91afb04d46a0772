//! The text of a JSON string, decoded only when somebody wants to read it.
//!
//! Counting tokens needs to know that a string is not empty, never what it says, so the scanner hands out the raw
//! bytes between the quotes. Decoding follows RFC 8259 section 7. Half a surrogate pair is legal JSON grammar and
//! real traffic (servers that escape everything cut an emoji over two events); it comes out as a piece of its own,
//! so that a reader can join the halves of two events.

use memchr::memchr;

/// A JSON string.
#[derive(Debug, Clone, Copy)]
pub enum JsonText<'a> {
    /// The bytes between the quotes, escapes still in place.
    Raw(&'a [u8]),
    /// Text that is decoded already.
    Decoded(&'a str),
}

/// A run of decoded text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Text that needed no decoding.
    Str(&'a str),
    /// One decoded character; U+FFFD for bytes that are not UTF-8.
    Char(char),
    /// Half a surrogate pair without its other half.
    Half(u16),
}

/// The pieces of a [`JsonText`], in order.
#[derive(Debug, Clone)]
pub struct Pieces<'a> {
    rest: &'a [u8],
    decoded: Option<&'a str>,
}

impl<'a> JsonText<'a> {
    /// Whether there is no character at all. White space is text.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        match self {
            Self::Raw(bytes) => bytes.is_empty(),
            Self::Decoded(text) => text.is_empty(),
        }
    }

    /// The decoded text, piece by piece.
    #[must_use]
    pub const fn pieces(self) -> Pieces<'a> {
        match self {
            Self::Raw(bytes) => Pieces { rest: bytes, decoded: None },
            Self::Decoded(text) => Pieces { rest: &[], decoded: Some(text) },
        }
    }

    /// The text when it needs no decoding: nothing escaped, all of it UTF-8.
    #[must_use]
    pub fn as_plain(self) -> Option<&'a str> {
        match self {
            Self::Raw(bytes) if memchr(b'\\', bytes).is_none() => std::str::from_utf8(bytes).ok(),
            Self::Raw(_) => None,
            Self::Decoded(text) => Some(text),
        }
    }

    /// The decoded text; U+FFFD for half a surrogate pair.
    #[must_use]
    pub fn to_text(self) -> String {
        let mut text = String::new();
        for piece in self.pieces() {
            match piece {
                Piece::Str(s) => text.push_str(s),
                Piece::Char(c) => text.push(c),
                Piece::Half(_) => text.push(char::REPLACEMENT_CHARACTER),
            }
        }
        text
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        if let Some(text) = self.decoded.take() {
            return Some(Piece::Str(text));
        }
        if let Some((b'\\', rest)) = self.rest.split_first() {
            self.rest = rest;
            return Some(self.escape());
        }
        if self.rest.is_empty() {
            return None;
        }
        let (run, rest) = self.rest.split_at(memchr(b'\\', self.rest).unwrap_or(self.rest.len()));
        match std::str::from_utf8(run) {
            Ok(text) => {
                self.rest = rest;
                Some(Piece::Str(text))
            }
            Err(error) => Some(self.around_invalid(error)),
        }
    }
}

impl<'a> Pieces<'a> {
    /// The valid text before bytes that are not UTF-8, or one U+FFFD in their place.
    fn around_invalid(&mut self, error: std::str::Utf8Error) -> Piece<'a> {
        let (valid, rest) = self.rest.split_at(error.valid_up_to().min(self.rest.len()));
        if !valid.is_empty()
            && let Ok(text) = std::str::from_utf8(valid)
        {
            self.rest = rest;
            return Piece::Str(text);
        }
        self.rest = self.rest.get(error.error_len().unwrap_or(1).max(1)..).unwrap_or_default();
        Piece::Char(char::REPLACEMENT_CHARACTER)
    }

    /// One escape sequence; its backslash is consumed already.
    fn escape(&mut self) -> Piece<'a> {
        let Some((kind, rest)) = self.rest.split_first() else {
            return Piece::Char(char::REPLACEMENT_CHARACTER);
        };
        self.rest = rest;
        let decoded = match kind {
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'u' => return self.unicode(),
            b'"' | b'\\' | b'/' => char::from(*kind),
            _ => char::REPLACEMENT_CHARACTER,
        };
        Piece::Char(decoded)
    }

    /// The four digits after `\u`, and the other half of a surrogate pair where it follows.
    fn unicode(&mut self) -> Piece<'a> {
        let Some((unit, rest)) = hex4(self.rest) else {
            return Piece::Char(char::REPLACEMENT_CHARACTER);
        };
        self.rest = rest;
        if let Some(c) = char::from_u32(u32::from(unit)) {
            return Piece::Char(c);
        }
        if let Some((low, rest)) = self.rest.strip_prefix(b"\\u").and_then(hex4)
            && let Some(c) = join_halves(unit, low)
        {
            self.rest = rest;
            return Piece::Char(c);
        }
        Piece::Half(unit)
    }
}

/// The character that two UTF-16 code units make together, if they are a leading and a trailing surrogate.
#[must_use]
pub(super) fn join_halves(high: u16, low: u16) -> Option<char> {
    char::decode_utf16([high, low]).next().and_then(Result::ok).filter(|c| u32::from(*c) > 0xffff)
}

/// Four hexadecimal digits at the start of `bytes`, and what follows them.
pub(super) fn hex4(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (digits, rest) = bytes.split_first_chunk::<4>()?;
    let mut unit = 0_u16;
    for digit in digits {
        let value = char::from(*digit).to_digit(16)?;
        unit = unit << 4 | u16::try_from(value).ok()?;
    }
    Some((unit, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> String {
        JsonText::Raw(text.as_bytes()).to_text()
    }

    #[test]
    fn the_escapes_of_rfc_8259_decode() {
        assert_eq!(raw(r#"a\"b\\c\/d\b\f\n\r\te"#), "a\"b\\c/d\u{8}\u{c}\n\r\te");
        assert_eq!(raw(r"\u00e9\u0000x"), "é\0x");
        assert_eq!(raw(r"\uD83D\ude00!"), "😀!");
        assert_eq!(raw("plain é 😀"), "plain é 😀");
        assert_eq!(raw(""), "");
    }

    #[test]
    fn half_a_pair_is_a_piece_of_its_own() {
        let pieces: Vec<_> = JsonText::Raw(br"a\ud83d").pieces().collect();
        assert_eq!(pieces, [Piece::Str("a"), Piece::Half(0xd83d)]);
        assert_eq!(raw(r"\ud83dA\ude00"), "\u{fffd}A\u{fffd}");
        assert_eq!(raw(r"\ud83d\u0041"), "\u{fffd}A");
        assert_eq!(raw(r"\ud83d\ud83d\ude00"), "\u{fffd}😀");
    }

    #[test]
    fn bytes_that_are_not_utf_8_become_replacement_characters() {
        assert_eq!(JsonText::Raw(b"a\xffb\xe2\x82").to_text(), "a\u{fffd}b\u{fffd}\u{fffd}");
    }

    #[test]
    fn decoding_agrees_with_a_full_parser() {
        for c in (0..=0x2_ffffu32).step_by(7).filter_map(char::from_u32) {
            let mut units = [0; 2];
            let escaped: String = c.encode_utf16(&mut units).iter().map(|u| format!("\\u{u:04x}")).collect();
            let expected: String = serde_json::from_str(&format!("\"{escaped}\"")).unwrap();
            assert_eq!(raw(&escaped), expected);
        }
    }
}
