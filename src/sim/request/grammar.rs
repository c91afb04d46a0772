//! What heads, chunk lines and trailers share: field lines, tokens, and the search for line ends.

use super::Reject;

/// A field line without its end: its name, and its value without white space around it.
pub(super) fn read_field(line: &[u8]) -> Result<(&[u8], &[u8]), Reject> {
    let colon = line.iter().position(|&b| b == b':').ok_or(Reject::Field)?;
    let (name, rest) = line.split_at(colon);
    // RFC 9112 5.1 and 5.2: no space before the colon, and no line folding in a request.
    if name.is_empty() || !name.iter().all(|&b| is_token(b)) {
        return Err(Reject::Field);
    }
    let value = rest.get(1..).unwrap_or_default();
    if value.iter().any(|&b| (b < 0x20 && b != b'\t') || b == 0x7f) {
        return Err(Reject::Field);
    }
    let is_space = |b: &u8| *b == b' ' || *b == b'\t';
    let begin = value.iter().position(|b| !is_space(b)).unwrap_or(value.len());
    let end = value.iter().rposition(|b| !is_space(b)).map_or(begin, |i| i + 1);
    Ok((name, value.get(begin..end).unwrap_or_default()))
}

/// Whether `b` may stand in a token (RFC 9110 5.6.2).
pub(super) const fn is_token(b: u8) -> bool {
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

/// Where `needle` begins first.
pub(super) fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|w| w == needle)
}
