//! The head of a request: its request line, and the fields that the simulator obeys.

use super::grammar::{find, is_token, read_field};
use super::{Head, MAX_BODY_BYTES, MAX_FIELDS, MAX_REQUEST_ID_BYTES, Reject};

/// Where the body ends (RFC 9112 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// After so many bytes, none without a length.
    Length(usize),
    /// After its last chunk.
    Chunked,
}

/// What a head says.
#[derive(Debug)]
pub(super) struct Fields {
    /// What outlives the reading.
    pub(super) head: Head,
    /// Where the body ends.
    pub(super) framing: Framing,
    /// The peer waits for `100 Continue` before it sends the body.
    pub(super) expects_continue: bool,
}

/// Reads a head. `head` runs to the end of its last field line, CR LF included, without the empty line.
pub(super) fn read_head(head: &[u8]) -> Result<Fields, Reject> {
    let mut lines = Lines(head);
    let (method, path) = read_request_line(lines.next().unwrap_or_default())?;
    let mut hosts = 0_usize;
    let mut length: Option<usize> = None;
    let mut chunked = false;
    let mut keep_alive = true;
    let mut expects_continue = false;
    let mut request_id = None;
    for (count, line) in lines.enumerate() {
        if count >= MAX_FIELDS {
            return Err(Reject::HeadTooLarge);
        }
        let (name, value) = read_field(line)?;
        if name.eq_ignore_ascii_case(b"host") {
            hosts += 1;
        } else if name.eq_ignore_ascii_case(b"content-length") {
            let new = read_length(value)?;
            if length.is_some_and(|old| old != new) {
                return Err(Reject::ContentLength);
            }
            length = Some(new);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Reject::TransferCoding);
            }
            chunked = true;
        } else if name.eq_ignore_ascii_case(b"connection") {
            keep_alive &= !value.split(|&b| b == b',').any(|o| o.trim_ascii().eq_ignore_ascii_case(b"close"));
        } else if name.eq_ignore_ascii_case(b"expect") {
            if !value.eq_ignore_ascii_case(b"100-continue") {
                return Err(Reject::Expectation);
            }
            expects_continue = true;
        } else if name.eq_ignore_ascii_case(b"x-request-id") && value.len() <= MAX_REQUEST_ID_BYTES {
            request_id = std::str::from_utf8(value).ok().map(str::to_owned);
        }
    }
    // RFC 9112 3.2: 400 to any HTTP/1.1 request that lacks a Host field or has more than one.
    if hosts != 1 {
        return Err(Reject::Host);
    }
    let framing = match (length, chunked) {
        (Some(_), true) => return Err(Reject::ConflictingFraming),
        (None, true) => Framing::Chunked,
        (Some(len), false) => Framing::Length(len),
        (None, false) => Framing::Length(0),
    };
    Ok(Fields { head: Head { method, path, keep_alive, request_id }, framing, expects_continue })
}

fn read_request_line(line: &[u8]) -> Result<(String, String), Reject> {
    let mut parts = line.split(|&b| b == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(Reject::RequestLine);
    };
    if method.is_empty() || !method.iter().all(|&b| is_token(b)) || target.is_empty() {
        return Err(Reject::RequestLine);
    }
    if version != b"HTTP/1.1" {
        let is_version = version.len() == 8 && version.starts_with(b"HTTP/");
        return Err(if is_version { Reject::Version } else { Reject::RequestLine });
    }
    if !target.iter().all(u8::is_ascii_graphic) {
        return Err(Reject::RequestLine);
    }
    let target = std::str::from_utf8(target).map_err(|_| Reject::RequestLine)?;
    let method = std::str::from_utf8(method).map_err(|_| Reject::RequestLine)?;
    Ok((method.to_owned(), path_of(target).to_owned()))
}

/// The path of an origin-form or absolute-form target (RFC 9112 3.2), without the query.
fn path_of(target: &str) -> &str {
    let rest = match target.split_once("://") {
        Some((scheme, rest)) if !scheme.starts_with('/') => {
            rest.find('/').and_then(|i| rest.get(i..)).unwrap_or("/")
        }
        _ => target,
    };
    rest.split_once('?').map_or(rest, |(path, _)| path)
}

fn read_length(value: &[u8]) -> Result<usize, Reject> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(Reject::ContentLength);
    }
    let length = std::str::from_utf8(value).ok().and_then(|v| v.parse::<u64>().ok()).unwrap_or(u64::MAX);
    match usize::try_from(length) {
        Ok(length) if length <= MAX_BODY_BYTES => Ok(length),
        _ => Err(Reject::BodyTooLarge),
    }
}

/// Lines ended by CR LF; a lone CR or LF stays in its line, where the field and request line checks refuse it.
struct Lines<'a>(&'a [u8]);

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let end = find(self.0, b"\r\n")?;
        let (line, rest) = self.0.split_at(end);
        self.0 = rest.get(2..).unwrap_or_default();
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_targets_lose_their_origin() {
        assert_eq!(path_of("http://a:1/v1/models?b=c"), "/v1/models");
        assert_eq!(path_of("http://a"), "/");
        assert_eq!(path_of("/a?b=http://c/d"), "/a");
        assert_eq!(path_of("/a://b"), "/a://b");
    }
}
