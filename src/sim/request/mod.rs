//! The simulator's own reader of HTTP/1.1 requests: bytes in, one request or one reason to refuse out.
//!
//! Strict on purpose (RFC 9112): a request that a lenient server would repair must be seen here, because the
//! client under test is ours. Sans-IO; remembers how far it has looked, so that a head or a body in many reads costs
//! no more than in one. It shares nothing with `wire`, and does not know what a chat completion is.

mod chunks;
mod grammar;
mod head;
mod reject;

use std::ops::Range;

pub(crate) use reject::Reject;

use chunks::ChunkedBody;
use grammar::find;
use head::{Fields, Framing, read_head};

/// Longest request head, request line included: what common servers accept at most.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Most header fields in one head: common servers stop at 100, and gateways on the way add theirs.
const MAX_FIELDS: usize = 256;

/// Longest body: one million tokens of context at four bytes each, with room for JSON escapes.
const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;

/// Longest request id that is kept and echoed: room for several UUIDs, and the ledger's records stay bounded.
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

/// Reads one request after the other from a growing input.
#[derive(Debug, Default)]
pub(crate) struct RequestReader {
    /// Bytes already searched for the end of the head.
    searched: usize,
    /// The head that was read, and what is known of the body behind it.
    pending: Option<(Head, PendingBody)>,
}

#[derive(Debug)]
enum PendingBody {
    /// It will be here in the input.
    Length(Range<usize>),
    /// It comes in chunks.
    Chunks(ChunkedBody),
}

impl RequestReader {
    /// Looks at the whole input again (its beginning is the beginning of the request) and says what it amounts to.
    /// After [`Progress::Complete`] the reader is ready for the next request, which starts at `consumed`.
    ///
    /// # Errors
    /// [`Reject`] when the bytes cannot become an acceptable request; the connection is then of no further use.
    pub(crate) fn advance(&mut self, input: &[u8]) -> Result<Progress, Reject> {
        let (head, mut body) = match self.pending.take() {
            Some(pending) => pending,
            None => {
                let Some((fields, end)) = self.find_head(input)? else {
                    return Ok(Progress::More { expected: None });
                };
                let body = PendingBody::new(fields.framing, end);
                // RFC 9110 10.1.1: no need to answer 100 when some of the body is here already; all of it is what
                // counts.
                if fields.expects_continue && body.is_awaited(input) {
                    self.pending = Some((fields.head, body));
                    return Ok(Progress::Continue);
                }
                (fields.head, body)
            }
        };
        let Some(consumed) = body.read(input)? else {
            let expected = body.expected();
            self.pending = Some((head, body));
            return Ok(Progress::More { expected });
        };
        self.searched = 0;
        Ok(Progress::Complete(Request { head, body: body.into_body(), consumed }))
    }

    /// Reads the head when it is complete; says where it ends.
    fn find_head(&mut self, input: &[u8]) -> Result<Option<(Fields, usize)>, Reject> {
        // RFC 9112 2.2: a server should ignore at least one empty line before the request line.
        let start = if input.starts_with(b"\r\n") { 2 } else { 0 };
        let from = self.searched.saturating_sub(3).max(start);
        let Some(found) = find(input.get(from..).unwrap_or_default(), b"\r\n\r\n") else {
            self.searched = input.len();
            return if input.len() > MAX_HEAD_BYTES { Err(Reject::HeadTooLarge) } else { Ok(None) };
        };
        let end = from + found + 4;
        if end > MAX_HEAD_BYTES {
            return Err(Reject::HeadTooLarge);
        }
        let fields = read_head(input.get(start..end - 2).unwrap_or_default())?;
        Ok(Some((fields, end)))
    }
}

impl PendingBody {
    /// The body behind a head that ends at `at`.
    fn new(framing: Framing, at: usize) -> Self {
        match framing {
            Framing::Length(length) => Self::Length(at..at + length),
            Framing::Chunked => Self::Chunks(ChunkedBody::new(at)),
        }
    }

    /// Whether a peer that sends the body only when told to is still waiting, seen from the end of the head: some of
    /// the length is missing, or every chunk.
    fn is_awaited(&self, input: &[u8]) -> bool {
        match self {
            Self::Length(place) => input.len() < place.end,
            Self::Chunks(body) => body.is_untouched(input),
        }
    }

    /// Takes what is here; `Some` is the end of the body in the input.
    fn read(&mut self, input: &[u8]) -> Result<Option<usize>, Reject> {
        match self {
            Self::Length(place) => Ok((input.len() >= place.end).then_some(place.end)),
            Self::Chunks(body) => body.read(input),
        }
    }

    /// How long the input will be with it, where the head has said so.
    fn expected(&self) -> Option<usize> {
        match self {
            Self::Length(place) => Some(place.end),
            Self::Chunks(_) => None,
        }
    }

    fn into_body(self) -> Body {
        match self {
            Self::Length(place) => Body::Input(place),
            Self::Chunks(body) => Body::Joined(body.into_joined()),
        }
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
