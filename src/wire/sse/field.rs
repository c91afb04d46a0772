//! One line of an event stream: which field it is, and its value.
//!
//! Fields are told apart by comparing the start of the line with the four known names, so a line is never searched
//! for its colon: whatever does not begin like a known field is ignored either way.

/// A line that is not blank, read by the field rules of WHATWG HTML 9.2.6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field<'a> {
    /// `data`.
    Data(&'a [u8]),
    /// `event`.
    Event(&'a [u8]),
    /// `id`; the caller must still ignore a value with a NUL.
    Id(&'a [u8]),
    /// `retry`; the value is not yet known to be a number.
    Retry(&'a [u8]),
    /// The line starts with a colon; this is the rest of it.
    Comment(&'a [u8]),
    /// `error`: not of the standard, which ignores it; llama.cpp servers reported their errors in one.
    Error(&'a [u8]),
    /// Any other name (names are case-sensitive), or an empty line.
    Unknown,
}

impl<'a> Field<'a> {
    /// Reads a line given without its line end.
    #[inline]
    pub(super) fn read(line: &'a [u8]) -> Self {
        if let Some(value) = value_of(line, b"data") {
            return Field::Data(value);
        }
        if let Some(text) = line.strip_prefix(b":") {
            return Field::Comment(text);
        }
        if let Some(value) = value_of(line, b"event") {
            return Field::Event(value);
        }
        if let Some(value) = value_of(line, b"id") {
            return Field::Id(value);
        }
        if let Some(value) = value_of(line, b"retry") {
            return Field::Retry(value);
        }
        value_of(line, b"error").map_or(Field::Unknown, Field::Error)
    }
}

/// The reconnection time in milliseconds: ASCII digits only, at least one.
///
/// The standard sets no bound; a number beyond `u64` cannot be a time and is ignored like a malformed one.
pub(super) fn retry_ms(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0_u64, |ms, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        ms.checked_mul(10)?.checked_add(digit)
    })
}

/// The value when the line's field has this name: nothing, or what follows the colon without one leading space.
#[inline]
fn value_of<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    match line.strip_prefix(name)? {
        [] => Some(&[]),
        [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_space_is_removed() {
        assert_eq!(Field::read(b"data:x"), Field::Data(b"x"));
        assert_eq!(Field::read(b"data: x"), Field::Data(b"x"));
        assert_eq!(Field::read(b"data:  x"), Field::Data(b" x"));
        assert_eq!(Field::read(b"data:\tx"), Field::Data(b"\tx"));
        assert_eq!(Field::read(b"data:x "), Field::Data(b"x "));
        assert_eq!(Field::read(b"data:"), Field::Data(b""));
        assert_eq!(Field::read(b"data: "), Field::Data(b""));
    }

    #[test]
    fn a_line_without_a_colon_is_a_name() {
        assert_eq!(Field::read(b"data"), Field::Data(b""));
        assert_eq!(Field::read(b"event"), Field::Event(b""));
        assert_eq!(Field::read(b"id"), Field::Id(b""));
        assert_eq!(Field::read(b"retry"), Field::Retry(b""));
        assert_eq!(Field::read(b""), Field::Unknown);
    }

    #[test]
    fn names_are_compared_exactly() {
        let lines: [&[u8]; 9] = [
            b"Data:x",
            b"data :x",
            b" data:x",
            b"datax",
            b"data2:x",
            b"dat",
            b"i:x",
            b"data\0:x",
            b"\xef\xbb\xbfdata:x",
        ];
        for line in lines {
            assert_eq!(Field::read(line), Field::Unknown, "{:?}", line.escape_ascii().to_string());
        }
    }

    #[test]
    fn only_the_first_colon_separates() {
        assert_eq!(Field::read(b"data:a:b"), Field::Data(b"a:b"));
        assert_eq!(Field::read(b"data::"), Field::Data(b":"));
        assert_eq!(Field::read(b"event: a: b"), Field::Event(b"a: b"));
        assert_eq!(Field::read(b"::"), Field::Comment(b":"));
        assert_eq!(Field::read(b": ping"), Field::Comment(b" ping"));
    }

    #[test]
    fn retry_takes_digits_only() {
        let cases: [(&[u8], Option<u64>); 12] = [
            (b"", None),
            (b"0", Some(0)),
            (b"2000", Some(2000)),
            (b"1000x", None),
            (b"+1", None),
            (b"-1", None),
            (b" 1", None),
            (b"1.5", None),
            (b"\xd9\xa1", None),
            (b"0000000000000000000000007", Some(7)),
            (b"18446744073709551615", Some(u64::MAX)),
            (b"18446744073709551616", None),
        ];
        for (value, expected) in cases {
            assert_eq!(retry_ms(value), expected, "{:?}", value.escape_ascii().to_string());
        }
    }
}
