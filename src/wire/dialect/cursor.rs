//! A cursor over the bytes of one JSON text: enough grammar to walk it and to be certain that it is JSON.
//!
//! Every step answers `None` for "not certain": the text may be broken, or merely of a kind that this cursor does
//! not judge. It never accepts a text that the full parse refuses: grammar, escapes and control characters are all
//! checked (RFC 8259), with the one tolerance of the full parse, `NaN` and the infinities, flagged. It allocates
//! nothing and its depth is bounded.

use super::text::hex4;
use super::word::{HIGH_BITS, Prefix, all_digits, first_string_stop};

/// Nesting that is walked here; deeper texts are left to the full parse. One bit of a `u64` per level.
const MAX_DEPTH: u32 = 60;

/// Digits that always fit a `u64`; longer counts are left to the full parse.
const MAX_COUNT_DIGITS: usize = 19;

/// A position in a text.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    data: &'a [u8],
    pos: usize,
    /// The high bits of every word looked at: not zero when a byte beyond ASCII may have been among them.
    high: u64,
    not_a_number: bool,
}

impl<'a> Cursor<'a> {
    pub(super) const fn new(data: &'a [u8]) -> Self {
        Self { data, pos: 0, high: 0, not_a_number: false }
    }

    /// Whether `NaN` or an infinity stood somewhere.
    pub(super) const fn not_a_number(&self) -> bool {
        self.not_a_number
    }

    /// Whether a byte beyond ASCII may have been among those looked at. Never wrong when it says no.
    pub(super) const fn beyond_ascii(&self) -> bool {
        self.high & HIGH_BITS != 0
    }

    /// The byte at the cursor; 0, which is no byte of JSON outside a string, at the end.
    #[inline(always)]
    pub(super) fn peek(&self) -> u8 {
        self.data.get(self.pos).copied().unwrap_or(0)
    }

    /// Goes past the white space between tokens. Most servers send none, so one comparison has to tell.
    #[inline(always)]
    pub(super) fn skip_space(&mut self) {
        if self.peek() <= b' ' {
            self.skip_spaces();
        }
    }

    /// Goes past `byte`.
    #[inline(always)]
    pub(super) fn eat(&mut self, byte: u8) -> Option<()> {
        self.eat_if(byte).then_some(())
    }

    /// Goes past `byte` if it is there.
    #[inline(always)]
    pub(super) fn eat_if(&mut self, byte: u8) -> bool {
        if self.peek() == byte {
            self.pos += 1;
            return true;
        }
        false
    }

    /// Goes past `text` if it is there. `text` is a constant everywhere, so this is a load and a comparison.
    #[inline(always)]
    pub(super) fn eat_text(&mut self, text: &[u8]) -> bool {
        let there = self.data.get(self.pos..self.pos + text.len()) == Some(text);
        if there {
            self.pos += text.len();
        }
        there
    }

    /// The next eight bytes, to look for a key among many with one load; `None` near the end.
    #[inline(always)]
    pub(super) fn window(&self) -> Option<u64> {
        self.data.get(self.pos..self.pos + 8)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
    }

    /// Goes past `text` if it is there; `prefix` is its own, and `window` is what [`window`](Self::window) returned at
    /// this position. With a constant text almost every miss is one comparison of registers.
    #[inline(always)]
    pub(super) fn eat_key(&mut self, window: u64, text: &'static [u8], prefix: Prefix) -> bool {
        prefix.begins(window) && self.eat_text(text)
    }

    /// Goes past the colon after a key.
    #[inline]
    pub(super) fn colon(&mut self) -> Option<()> {
        self.skip_space();
        self.eat(b':')
    }

    /// Before the first member of an object or array: `true` when there is one, `false` when it closes at once.
    #[inline(always)]
    pub(super) fn first(&mut self, close: u8) -> bool {
        self.skip_space();
        !self.eat_if(close)
    }

    /// After a member of an object or array: `true` when another one follows, `false` when it closes.
    #[inline(always)]
    pub(super) fn next(&mut self, close: u8) -> Option<bool> {
        self.skip_space();
        let byte = self.peek();
        if byte == b',' {
            self.pos += 1;
            self.skip_space();
            return Some(true);
        }
        self.pos += 1;
        (byte == close).then_some(false)
    }

    /// Goes past `null` if it is there.
    #[inline(always)]
    pub(super) fn null(&mut self) -> bool {
        self.eat_text(b"null")
    }

    /// A string that begins at the cursor: the bytes between its quotes.
    #[inline(always)]
    pub(super) fn string(&mut self) -> Option<&'a [u8]> {
        self.eat(b'"')?;
        self.string_body()
    }

    /// The rest of a string whose opening quote was passed already: the bytes up to its closing quote, which is
    /// passed too.
    #[inline(always)]
    pub(super) fn string_body(&mut self) -> Option<&'a [u8]> {
        let start = self.pos;
        loop {
            match self.string_stop()? {
                b'"' => {
                    let text = self.data.get(start..self.pos);
                    self.pos += 1;
                    return text;
                }
                b'\\' => self.escape()?,
                _ => return None,
            }
        }
    }

    /// A string without escapes.
    #[inline(always)]
    pub(super) fn plain_string(&mut self) -> Option<&'a [u8]> {
        self.eat(b'"')?;
        let start = self.pos;
        if self.string_stop()? != b'"' {
            return None;
        }
        let text = self.data.get(start..self.pos);
        self.pos += 1;
        text
    }

    /// A count: `Some(None)` for null, not certain for everything that is no plain unsigned integer.
    #[inline]
    pub(super) fn count(&mut self) -> Option<Option<u64>> {
        if self.null() {
            return Some(None);
        }
        let start = self.pos;
        let mut value = 0_u64;
        while let digit @ b'0'..=b'9' = self.peek() {
            value = value.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
            self.pos += 1;
        }
        let digits = self.pos - start;
        let leading_zero = digits > 1 && self.data.get(start) == Some(&b'0');
        let goes_on = matches!(self.peek(), b'.' | b'e' | b'E');
        (digits > 0 && digits <= MAX_COUNT_DIGITS && !leading_zero && !goes_on).then_some(Some(value))
    }

    /// Goes past any value.
    #[inline(always)]
    pub(super) fn skip_value(&mut self) -> Option<()> {
        match self.peek() {
            b'"' => self.string().map(|_| ()),
            b'n' => self.null().then_some(()),
            b'{' | b'[' => self.skip_container(),
            _ => self.skip_scalar(),
        }
    }

    /// Goes past any value and returns its text.
    pub(super) fn value(&mut self) -> Option<&'a [u8]> {
        let start = self.pos;
        self.skip_value()?;
        self.data.get(start..self.pos)
    }

    /// The end of the text: nothing but white space may follow, and what is not ASCII must be UTF-8.
    #[inline]
    pub(super) fn finish(&mut self) -> Option<()> {
        self.skip_space();
        if self.pos != self.data.len() {
            return None;
        }
        if self.beyond_ascii() {
            std::str::from_utf8(self.data).ok()?;
        }
        Some(())
    }

    /// Goes to the next byte of a string that is a quote, a backslash or a control character, and returns it.
    #[inline(always)]
    fn string_stop(&mut self) -> Option<u8> {
        for word in self.data.get(self.pos..)?.as_chunks::<8>().0 {
            let word = u64::from_le_bytes(*word);
            self.high |= word;
            if let Some(place) = first_string_stop(word) {
                self.pos += place;
                return self.data.get(self.pos).copied();
            }
            self.pos += 8;
        }
        self.string_stop_near_the_end()
    }

    #[cold]
    fn skip_spaces(&mut self) {
        while matches!(self.peek(), b' ' | b'\n' | b'\r' | b'\t') {
            self.pos += 1;
        }
    }

    fn string_stop_near_the_end(&mut self) -> Option<u8> {
        loop {
            let byte = *self.data.get(self.pos)?;
            if matches!(byte, b'"' | b'\\' | 0..=0x1f) {
                return Some(byte);
            }
            self.high |= u64::from(byte);
            self.pos += 1;
        }
    }

    /// Goes past an escape sequence. Which unit a `\u` names does not matter: halves of pairs are tolerated.
    fn escape(&mut self) -> Option<()> {
        let rest = self.data.get(self.pos + 1..)?;
        match rest.first()? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.pos += 2,
            b'u' => {
                hex4(rest.get(1..)?)?;
                self.pos += 6;
            }
            _ => return None,
        }
        Some(())
    }

    fn skip_scalar(&mut self) -> Option<()> {
        match self.peek() {
            b't' => self.eat_text(b"true").then_some(()),
            b'f' => self.eat_text(b"false").then_some(()),
            b'0'..=b'9' => self.skip_number(),
            b'-' => {
                self.pos += 1;
                if self.peek() == b'I' { self.infinite() } else { self.skip_number() }
            }
            b'I' => self.infinite(),
            b'N' => {
                self.not_a_number = true;
                self.eat_text(b"NaN").then_some(())
            }
            _ => None,
        }
    }

    fn infinite(&mut self) -> Option<()> {
        self.not_a_number = true;
        self.eat_text(b"Infinity").then_some(())
    }

    /// RFC 8259 section 6, after the minus sign.
    #[inline]
    fn skip_number(&mut self) -> Option<()> {
        if !self.eat_if(b'0') {
            self.digits()?;
        }
        if self.eat_if(b'.') {
            self.digits()?;
        }
        if matches!(self.peek(), b'e' | b'E') {
            self.pos += 1;
            if matches!(self.peek(), b'+' | b'-') {
                self.pos += 1;
            }
            self.digits()?;
        }
        Some(())
    }

    /// At least one digit.
    #[inline]
    fn digits(&mut self) -> Option<()> {
        let start = self.pos;
        while let Some(word) = self.data.get(self.pos..self.pos + 8).and_then(<[u8]>::first_chunk::<8>)
            && all_digits(u64::from_le_bytes(*word))
        {
            self.pos += 8;
        }
        while self.peek().is_ascii_digit() {
            self.pos += 1;
        }
        (self.pos > start).then_some(())
    }

    /// Goes past an object or array without recursion: one bit per open level says which of the two it is.
    fn skip_container(&mut self) -> Option<()> {
        let mut objects = 0_u64;
        let mut depth = 0_u32;
        loop {
            // At a value.
            let byte = self.peek();
            if byte == b'{' || byte == b'[' {
                if depth == MAX_DEPTH {
                    return None;
                }
                self.pos += 1;
                depth += 1;
                objects = objects << 1 | u64::from(byte == b'{');
                if self.first(close_of(objects)) {
                    self.member(objects)?;
                    continue;
                }
                depth -= 1;
                objects >>= 1;
            } else {
                self.skip_value()?;
            }
            // Behind a value: close as many levels as end here.
            loop {
                if depth == 0 {
                    return Some(());
                }
                if self.next(close_of(objects))? {
                    self.member(objects)?;
                    break;
                }
                depth -= 1;
                objects >>= 1;
            }
        }
    }

    /// Goes to the value of the next member: past its key and colon in an object.
    #[inline]
    fn member(&mut self, objects: u64) -> Option<()> {
        if objects & 1 == 1 {
            self.string()?;
            self.colon()?;
            self.skip_space();
        }
        Some(())
    }
}

/// The closing bracket of the innermost open level.
const fn close_of(objects: u64) -> u8 {
    if objects & 1 == 1 { b'}' } else { b']' }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::dialect::full;

    fn accepts(text: &[u8]) -> bool {
        let mut cursor = Cursor::new(text);
        cursor.skip_space();
        cursor.skip_value().is_some() && cursor.finish().is_some()
    }

    #[test]
    fn strings_end_where_they_should_at_any_length() {
        for length in 0..40 {
            for tail in 0..20 {
                let body = "x".repeat(length);
                let text = format!("\"{body}\"{}", " ".repeat(tail));
                let mut cursor = Cursor::new(text.as_bytes());
                assert_eq!(cursor.string(), Some(body.as_bytes()));
                assert_eq!(cursor.pos, length + 2);
                let open = format!("\"{body}{}", "y".repeat(tail));
                assert_eq!(Cursor::new(open.as_bytes()).string(), None);
            }
        }
    }

    #[test]
    fn what_is_accepted_the_full_parse_accepts_too() {
        let good: [&[u8]; 16] = [
            b"{}",
            b" [ ] ",
            b"{\"a\":[1,2.5,-0,1e5,0.1E-3,true,false,null,\"\\u12aF\\n\"]}",
            b"{ \"a\" : { \"b\" : [ ] , \"c\" : [ { } , [ ] ] } }",
            b"\"\\ud83d\"",
            "\"é😀\"".as_bytes(),
            b"[NaN,Infinity,-Infinity]",
            b"1e400",
            b"123456789012345678901234567890",
            b"[[[[]]],[{}]]",
            b"\"\"",
            b"-1",
            b"0",
            b"[0,0]",
            b"\t\n\r null",
            b"{\"a\":1,\"a\":2}",
        ];
        for text in good {
            assert!(accepts(text), "{}", String::from_utf8_lossy(text));
            assert!(full::parse(text).is_ok(), "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn what_is_broken_is_not_accepted() {
        let bad: [&[u8]; 34] = [
            b"",
            b"{",
            b"}",
            b"[1,]",
            b"[,1]",
            b"{,}",
            b"{\"a\"}",
            b"{\"a\":}",
            b"{\"a\":1,}",
            b"{a:1}",
            b"[1 2]",
            b"[1}",
            b"{\"a\":1]",
            b"01",
            b"1.",
            b".5",
            b"1e",
            b"+1",
            b"-",
            b"--1",
            b"nul",
            b"nulll",
            b"True",
            b"NaNN",
            b"\"\\x\"",
            b"\"\\u12g4\"",
            b"\"\\u12",
            b"\"a\nb\"",
            b"\"\xff\"",
            b"\"\xed\xa0\x80\"",
            b"{}{}",
            b"[1]x",
            b"\x0b1",
            b"\"a",
        ];
        for text in bad {
            assert!(!accepts(text), "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn keys_are_found_in_the_window_and_only_whole() {
        const KEYS: [&[u8]; 4] = [b"\"id\":", b"\"index\"", b"\"finish_reason\":", b"\"completion_tokens\":"];
        let found = |text: &str| {
            let mut cursor = Cursor::new(text.as_bytes());
            let window = cursor.window()?;
            let key = KEYS.iter().position(|key| cursor.eat_key(window, key, Prefix::of(key)))?;
            Some((key, cursor.pos))
        };
        assert_eq!(found("\"id\":\"x\""), Some((0, 5)));
        assert_eq!(found("\"index\":0"), Some((1, 7)));
        assert_eq!(found("\"finish_reason\":null"), Some((2, 16)));
        assert_eq!(found("\"completion_tokens\":5"), Some((3, 20)));
        assert_eq!(found("\"completion_tokens_details\":5"), None);
        assert_eq!(found("\"completion_token"), None);
        assert_eq!(found("\"ids\":\"x\""), None);
        assert_eq!(found("\"id\" :\"x\""), None);
        assert_eq!(found("\"id\":12}"), Some((0, 5)));
        assert_eq!(found("\"id\":1"), None, "too near the end for a window");
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth: u32| format!("{}{}", "[".repeat(depth as usize), "]".repeat(depth as usize));
        assert!(accepts(nested(MAX_DEPTH).as_bytes()));
        assert!(!accepts(nested(MAX_DEPTH + 1).as_bytes()));
    }

    #[test]
    fn counts_are_plain_unsigned_integers_or_null() {
        let count = |text: &str| Cursor::new(text.as_bytes()).count();
        assert_eq!(count("0,"), Some(Some(0)));
        assert_eq!(count("1234567890123456789}"), Some(Some(1_234_567_890_123_456_789)));
        assert_eq!(count("null}"), Some(None));
        for text in ["12345678901234567890", "01", "1.0", "1e3", "-1", "\"1\"", "true", "", "NaN"] {
            assert_eq!(count(text), None, "{text}");
        }
    }
}
