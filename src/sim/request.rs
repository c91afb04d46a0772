//! The simulator's own reader of HTTP/1.1 requests: bytes in, one request or one reason to refuse out.
//!
//! Strict on purpose (RFC 9112): a request that a lenient server would repair must be seen here, because the
//! client under test is ours. Sans-IO; remembers how far it has looked, so feeding byte by byte stays linear. It
//! shares nothing with `wire`, and does not know what a chat completion is.

use std::ops::Range;

/// Longest request head, request line included: what common servers accept at most.
pub(crate) const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Most header fields in one head.
pub(crate) const MAX_FIELDS: usize = 256;

/// Longest body: one million tokens of context at four bytes each, with room for JSON escapes.
pub(crate) const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;

/// Longest chunk-size line of a chunked request body, extensions included.
const MAX_CHUNK_LINE_BYTES: usize = 256;

/// Longest request id that is kept and echoed.
pub(crate) const MAX_REQUEST_ID_BYTES: usize = 256;

/// A request head as far as the simulator cares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    /// Method token, as sent.
    pub(crate) method: String,
    /// Path without query.
    pub(crate) path: String,
    /// Whether the connection may carry another request.
    pub(crate) keep_alive: bool,
    /// `X-Request-Id`, as sent; longer than [`MAX_REQUEST_ID_BYTES`] counts as absent.
    pub(crate) request_id: Option<String>,
}

/// One complete request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    /// Its head.
    pub(crate) head: Head,
    /// Its body.
    pub(crate) body: Body,
    /// How many bytes of the input belong to it.
    pub(crate) consumed: usize,
}

/// Where the body is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Body {
    /// In the input, unchanged.
    Input(Range<usize>),
    /// Joined from chunks.
    Joined(Vec<u8>),
}

/// What the bytes so far amount to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Not yet a request; the hint says how long the input will be at least.
    More {
        /// Length of the whole input once the request is complete, where the head has said it.
        expected: Option<usize>,
    },
    /// The head asks for `100 Continue` before the body is sent. Reported once.
    Continue,
    /// A request.
    Complete(Request),
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reject {
    /// The request line is not `method SP target SP version`.
    RequestLine,
    /// A header field is malformed.
    Field,
    /// Not exactly one Host field.
    Host,
    /// Content-Length is no number, or there are differing ones.
    ContentLength,
    /// Both Content-Length and Transfer-Encoding.
    ConflictingFraming,
    /// A chunk is malformed.
    Chunk,
    /// An expectation other than `100-continue`.
    Expectation,
    /// The head is longer than [`MAX_HEAD_BYTES`] or has more than [`MAX_FIELDS`] fields.
    HeadTooLarge,
    /// The body is longer than [`MAX_BODY_BYTES`].
    BodyTooLarge,
    /// A transfer coding other than `chunked`.
    TransferCoding,
    /// A version other than HTTP/1.1.
    Version,
}

impl Reject {
    /// Status code of the answer.
    pub(crate) const fn status(self) -> u16 {
        match self {
            Self::RequestLine
            | Self::Field
            | Self::Host
            | Self::ContentLength
            | Self::ConflictingFraming
            | Self::Chunk => 400,
            Self::BodyTooLarge => 413,
            Self::Expectation => 417,
            Self::HeadTooLarge => 431,
            Self::TransferCoding => 501,
            Self::Version => 505,
        }
    }

    /// One sentence for the answer's body.
    pub(crate) const fn message(self) -> &'static str {
        match self {
            Self::RequestLine => "The request line is not 'method target version'.",
            Self::Field => "A header field is malformed.",
            Self::Host => "The request must have exactly one Host field.",
            Self::ContentLength => "Content-Length is not one number.",
            Self::ConflictingFraming => "Content-Length and Transfer-Encoding exclude each other.",
            Self::Chunk => "A chunk of the body is malformed.",
            Self::Expectation => "The only expectation understood is 100-continue.",
            Self::HeadTooLarge => "The request head is too large.",
            Self::BodyTooLarge => "The request body is too large.",
            Self::TransferCoding => "The only transfer coding understood is chunked.",
            Self::Version => "The only version spoken is HTTP/1.1.",
        }
    }
}

/// Reads one request after the other from a growing input.
#[derive(Debug, Default)]
pub(crate) struct RequestReader {
    /// Bytes already searched for the end of the head.
    searched: usize,
    state: State,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Head,
    Length {
        head: Head,
        body: Range<usize>,
    },
    Chunks {
        head: Head,
        joined: Vec<u8>,
        /// Where the next chunk-size line starts.
        at: usize,
        /// The last chunk has been seen; trailer fields follow.
        in_trailer: bool,
    },
}

impl RequestReader {
    /// Looks at the whole input again (its beginning is the beginning of the request) and says what it amounts to.
    /// After [`Progress::Complete`] the reader is ready for the next request, which starts at `consumed`.
    ///
    /// # Errors
    /// [`Reject`] when the bytes cannot become an acceptable request; the connection is then of no further use.
    pub(crate) fn advance(&mut self, input: &[u8]) -> Result<Progress, Reject> {
        if matches!(self.state, State::Head)
            && let Some(progress) = self.advance_head(input)?
        {
            return Ok(progress);
        }
        let done = match &mut self.state {
            State::Head => return Ok(Progress::More { expected: None }),
            State::Length { body, .. } => {
                if input.len() < body.end {
                    return Ok(Progress::More { expected: Some(body.end) });
                }
                body.end
            }
            State::Chunks { joined, at, in_trailer, .. } => {
                match read_chunks(input, joined, at, in_trailer)? {
                    Some(end) => end,
                    None => return Ok(Progress::More { expected: None }),
                }
            }
        };
        self.searched = 0;
        Ok(match std::mem::take(&mut self.state) {
            State::Head => Progress::More { expected: None },
            State::Length { head, body } => {
                Progress::Complete(Request { head, body: Body::Input(body), consumed: done })
            }
            State::Chunks { head, joined, .. } => {
                Progress::Complete(Request { head, body: Body::Joined(joined), consumed: done })
            }
        })
    }

    /// Reads the head when it is complete and moves on to the body; `Some` is an answer to give right away.
    fn advance_head(&mut self, input: &[u8]) -> Result<Option<Progress>, Reject> {
        // RFC 9112 2.2: a server should ignore at least one empty line before the request line.
        let start = if input.starts_with(b"\r\n") { 2 } else { 0 };
        let from = self.searched.saturating_sub(3).max(start);
        let Some(found) = find(input.get(from..).unwrap_or_default(), b"\r\n\r\n") else {
            self.searched = input.len();
            if input.len() > MAX_HEAD_BYTES {
                return Err(Reject::HeadTooLarge);
            }
            return Ok(Some(Progress::More { expected: None }));
        };
        let end = from + found + 4;
        if end > MAX_HEAD_BYTES {
            return Err(Reject::HeadTooLarge);
        }
        let fields = read_head(input.get(start..end - 2).unwrap_or_default())?;
        let body_missing;
        self.state = match fields.framing {
            Framing::Length(len) => {
                body_missing = input.len() < end + len;
                State::Length { head: fields.head, body: end..end + len }
            }
            Framing::Chunked => {
                body_missing = input.len() == end;
                State::Chunks { head: fields.head, joined: Vec::new(), at: end, in_trailer: false }
            }
        };
        // RFC 9110 10.1.1: no need to answer 100 when some of the body is here already; all of it is what counts.
        Ok((fields.expects_continue && body_missing).then_some(Progress::Continue))
    }
}

enum Framing {
    Length(usize),
    Chunked,
}

struct Fields {
    head: Head,
    framing: Framing,
    expects_continue: bool,
}

/// `head` runs to the end of its last field line, CR LF included, without the empty line.
fn read_head(head: &[u8]) -> Result<Fields, Reject> {
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

fn read_field(line: &[u8]) -> Result<(&[u8], &[u8]), Reject> {
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

/// Joins whole chunks; `Some` is the end of the body in the input.
fn read_chunks(
    input: &[u8],
    joined: &mut Vec<u8>,
    at: &mut usize,
    in_trailer: &mut bool,
) -> Result<Option<usize>, Reject> {
    // Sizes, extensions and trailer fields count too, or one-byte chunks would be a way around the limit.
    if input.len() > MAX_HEAD_BYTES + MAX_BODY_BYTES {
        return Err(Reject::BodyTooLarge);
    }
    loop {
        let rest = input.get(*at..).unwrap_or_default();
        let limit = if *in_trailer { MAX_HEAD_BYTES } else { MAX_CHUNK_LINE_BYTES };
        let Some(line_len) = find(rest.get(..limit.min(rest.len())).unwrap_or_default(), b"\r\n") else {
            return if rest.len() >= limit { Err(Reject::Chunk) } else { Ok(None) };
        };
        let line = rest.get(..line_len).unwrap_or_default();
        if *in_trailer {
            *at += line_len + 2;
            if line.is_empty() {
                return Ok(Some(*at));
            }
            read_field(line)?;
            continue;
        }
        let size = read_chunk_size(line)?;
        if joined.len() + size > MAX_BODY_BYTES {
            return Err(Reject::BodyTooLarge);
        }
        if size == 0 {
            *at += line_len + 2;
            *in_trailer = true;
            continue;
        }
        let data = line_len + 2;
        let Some(chunk) = rest.get(data..data + size + 2) else {
            return Ok(None);
        };
        let (bytes, ending) = chunk.split_at(size);
        if ending != b"\r\n" {
            return Err(Reject::Chunk);
        }
        joined.extend_from_slice(bytes);
        *at += data + size + 2;
    }
}

fn read_chunk_size(line: &[u8]) -> Result<usize, Reject> {
    let digits = line.split(|&b| b == b';').next().unwrap_or_default();
    let digits = digits.trim_ascii_end();
    // Eight digits are 4 GiB: above the body limit, and no overflow.
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(Reject::Chunk);
    }
    let text = std::str::from_utf8(digits).map_err(|_| Reject::Chunk)?;
    usize::from_str_radix(text, 16).map_err(|_| Reject::Chunk)
}

/// RFC 9110 5.6.2.
const fn is_token(b: u8) -> bool {
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

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|w| w == needle)
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

    fn whole(input: &[u8]) -> Result<Progress, Reject> {
        RequestReader::default().advance(input)
    }

    fn complete(input: &[u8]) -> Request {
        match whole(input) {
            Ok(Progress::Complete(request)) => request,
            other => panic!("{other:?} for {}", String::from_utf8_lossy(input)),
        }
    }

    fn body<'a>(request: &'a Request, input: &'a [u8]) -> &'a [u8] {
        match &request.body {
            Body::Input(range) => &input[range.clone()],
            Body::Joined(bytes) => bytes,
        }
    }

    const POST: &[u8] =
        b"POST /v1/chat/completions?x=1 HTTP/1.1\r\nhost: a\r\nX-Request-ID: run-7 \r\nContent-Length: 5\r\n\r\nhello";

    #[test]
    fn a_request_with_a_length() {
        let request = complete(POST);
        assert_eq!(request.head.method, "POST");
        assert_eq!(request.head.path, "/v1/chat/completions");
        assert_eq!(request.head.request_id.as_deref(), Some("run-7"));
        assert!(request.head.keep_alive);
        assert_eq!(body(&request, POST), b"hello");
        assert_eq!(request.consumed, POST.len());
    }

    #[test]
    fn byte_by_byte_gives_the_same_and_never_earlier() {
        let chunked: &[u8] = b"\r\nPOST /a HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: chunked\r\n\r\n3;x=\"y\"\r\nabc\r\n0A\r\n0123456789\r\n0\r\nT: u\r\n\r\n";
        for input in [POST, chunked] {
            let expected = complete(input);
            let mut reader = RequestReader::default();
            for cut in 0..input.len() {
                let progress = reader.advance(&input[..cut]).unwrap();
                assert!(matches!(progress, Progress::More { .. }), "{progress:?} after {cut} bytes");
            }
            assert_eq!(reader.advance(input), Ok(Progress::Complete(expected)));
        }
        assert_eq!(body(&complete(chunked), chunked), b"abc0123456789");
    }

    #[test]
    fn what_follows_is_left_for_the_next_request() {
        let mut input = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n".to_vec();
        let first = input.len();
        input.extend_from_slice(POST);
        let mut reader = RequestReader::default();
        let Ok(Progress::Complete(request)) = reader.advance(&input) else { panic!() };
        assert_eq!((request.consumed, request.head.path.as_str()), (first, "/health"));
        input.drain(..first);
        let Ok(Progress::Complete(request)) = reader.advance(&input) else { panic!() };
        assert_eq!(body(&request, &input), b"hello");
    }

    #[test]
    fn close_and_continue_are_seen() {
        assert!(!complete(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: foo, Close\r\n\r\n").head.keep_alive);
        let head = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
        let mut reader = RequestReader::default();
        assert_eq!(reader.advance(head), Ok(Progress::Continue));
        assert_eq!(reader.advance(head), Ok(Progress::More { expected: Some(head.len() + 2) }));
        let all = [head.as_slice(), b"ok"].concat();
        assert!(matches!(reader.advance(&all), Ok(Progress::Complete(_))));
        assert!(matches!(whole(&all), Ok(Progress::Complete(_))), "no 100 when the body is here");
    }

    #[test]
    fn absolute_targets_lose_their_origin() {
        assert_eq!(path_of("http://a:1/v1/models?b=c"), "/v1/models");
        assert_eq!(path_of("http://a"), "/");
        assert_eq!(path_of("/a?b=http://c/d"), "/a");
        assert_eq!(path_of("/a://b"), "/a://b");
    }

    #[test]
    fn malformed_requests_are_refused_by_kind() {
        let cases: [(&[u8], Reject); 23] = [
            (b"GET /\r\nHost: a\r\n\r\n", Reject::RequestLine),
            (b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", Reject::RequestLine),
            (b"G@T / HTTP/1.1\r\nHost: a\r\n\r\n", Reject::RequestLine),
            (b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n", Reject::RequestLine),
            (b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", Reject::RequestLine),
            (b"GET / http/1.1\r\nHost: a\r\n\r\n", Reject::RequestLine),
            (b"GET / HTTP/1.0\r\nHost: a\r\n\r\n", Reject::Version),
            (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", Reject::Version),
            (b"GET / HTTP/1.1\r\n\r\n", Reject::Host),
            (b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", Reject::Host),
            (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", Reject::Field),
            (b"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", Reject::Field),
            (b"GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n", Reject::Field),
            (b"GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n", Reject::Field),
            (b"GET / HTTP/1.1\r\nHost: a\r\nnocolon\r\n\r\n", Reject::Field),
            (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", Reject::ContentLength),
            (
                b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
                Reject::ContentLength,
            ),
            (
                b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999999\r\n\r\n",
                Reject::BodyTooLarge,
            ),
            (
                b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
                Reject::ConflictingFraming,
            ),
            (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", Reject::TransferCoding),
            (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\r\n", Reject::Chunk),
            (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc", Reject::Chunk),
            (b"POST / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n", Reject::Expectation),
        ];
        for (input, reject) in cases {
            assert_eq!(whole(input), Err(reject), "{}", String::from_utf8_lossy(input));
        }
    }

    #[test]
    fn sizes_are_limited() {
        let mut endless = b"GET / HTTP/1.1\r\nHost: a\r\nX: ".to_vec();
        endless.resize(MAX_HEAD_BYTES + 1, b'x');
        assert_eq!(whole(&endless), Err(Reject::HeadTooLarge));
        let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(MAX_FIELDS));
        assert_eq!(whole(many.as_bytes()), Err(Reject::HeadTooLarge));
        let fits = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(MAX_FIELDS - 1));
        assert!(matches!(whole(fits.as_bytes()), Ok(Progress::Complete(_))));
        let chunk = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n";
        assert_eq!(whole(chunk), Err(Reject::BodyTooLarge));
    }
}
