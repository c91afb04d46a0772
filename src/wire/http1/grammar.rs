//! The few character classes and line rules that requests, fields and chunk lines share (RFC 9110 5.6).

/// Whether `b` may stand in a token (RFC 9110 5.6.2).
pub(super) const fn is_token_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric()
        || matches!(
            b,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}

/// Whether `b` is optional white space (RFC 9110 5.6.3).
pub(super) const fn is_space(b: u8) -> bool {
    matches!(b, b' ' | b'\t')
}

/// Whether `b` is a control character that no field value may hold: all but the tab.
pub(super) const fn is_control(b: u8) -> bool {
    b.is_ascii_control() && b != b'\t'
}

/// `bytes` without optional white space at both ends.
pub(super) const fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = bytes
        && is_space(*first)
    {
        bytes = rest;
    }
    while let [rest @ .., last] = bytes
        && is_space(*last)
    {
        bytes = rest;
    }
    bytes
}

/// A line without its end, and whether the end was CR LF (true) or a lone LF, or nothing (false).
pub(super) const fn strip_line_end(line: &[u8]) -> (&[u8], bool) {
    match line {
        [text @ .., b'\r', b'\n'] => (text, true),
        [text @ .., b'\n'] => (text, false),
        _ => (line, false),
    }
}

/// The members of a comma-separated list (RFC 9110 5.6.1): trimmed, empty ones left out, commas inside quoted
/// strings not counted.
pub(super) fn list_members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut quoted = false;
    let mut escaped = false;
    value
        .split(move |&b| {
            match b {
                _ if escaped => escaped = false,
                b'\\' if quoted => escaped = true,
                b'"' => quoted = !quoted,
                b',' if !quoted => return true,
                _ => {}
            }
            false
        })
        .map(trim)
        .filter(|member| !member.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_bytes_are_the_77_of_the_rfc() {
        assert_eq!((0..=255u8).filter(|&b| is_token_byte(b)).count(), 15 + 10 + 52);
        for b in b"\"(),/:;<=>?@[\\]{} \t" {
            assert!(!is_token_byte(*b), "{}", *b as char);
        }
    }

    #[test]
    fn lists_are_split_outside_of_quotes_and_without_empty_members() {
        let members = |value: &'static str| list_members(value.as_bytes()).collect::<Vec<_>>();
        assert_eq!(members(", a ,,b;x=\"1,\\\",2\" ,"), [&b"a"[..], b"b;x=\"1,\\\",2\""]);
        assert!(members(" ,\t, ").is_empty());
        assert!(members("").is_empty());
    }

    #[test]
    fn a_line_ends_in_lf_or_crlf_and_keeps_other_returns() {
        assert_eq!(strip_line_end(b"a\r\r\n"), (&b"a\r"[..], true));
        assert_eq!(strip_line_end(b"a\n"), (&b"a"[..], false));
        assert_eq!(strip_line_end(b"\n"), (&b""[..], false));
        assert_eq!(strip_line_end(b"a\r"), (&b"a\r"[..], false));
    }

    #[test]
    fn trimming_takes_spaces_and_tabs_only() {
        assert_eq!(trim(b" \t a b\t "), b"a b");
        assert_eq!(trim(b" \t"), b"");
        assert_eq!(trim(b"\x0ba"), b"\x0ba");
    }
}
