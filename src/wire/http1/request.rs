//! Requests: the head rendered once, with the two fields that differ per request added at the end.
//!
//! All requests of a run share method, target and fields; a [`RequestTemplate`] holds them as ready bytes. Per
//! request come `X-Request-Id`, `Content-Length` and the body. Nothing that could be read as a second request gets
//! into a head: names are tokens, and values, target and host hold no control characters.

use std::fmt::Write;

use bytes::{BufMut, Bytes, BytesMut};

use super::grammar::{is_control, is_token_byte, trim};

/// What the client calls itself.
const USER_AGENT: &str = concat!("hammerscale/", env!("CARGO_PKG_VERSION"));

/// Fields that follow from how a request is sent; a user's value would contradict the bytes.
const RESERVED: [&str; 3] = ["content-length", "transfer-encoding", "connection"];

/// Room for the fields that are added per request: an id of some 60 bytes and 20 digits.
const PER_REQUEST_BYTES: usize = 128;

/// The request methods of RFC 9110 9.3 and RFC 5789.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is its own name")]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
    Options,
    Trace,
    Connect,
}

/// What `Accept` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Accept {
    /// `text/event-stream`.
    EventStream,
    /// `application/json`.
    Json,
    /// `*/*`.
    Anything,
}

/// The parts that all requests of a template share.
#[derive(Debug, Clone, Copy)]
pub struct RequestParts<'a> {
    /// The method.
    pub method: Method,
    /// Path and query as they go on the wire; the whole URL towards a proxy, `host:port` for CONNECT.
    pub target: &'a str,
    /// The value of `Host`: see [`authority`].
    pub host: &'a str,
    /// The value of `Accept`.
    pub accept: Accept,
    /// The value of `Content-Type`; `None` for requests without a body.
    pub content_type: Option<&'a str>,
    /// `Connection: close`: the connection carries this request only.
    pub close: bool,
    /// Whether each request carries its own `X-Request-Id`.
    pub request_ids: bool,
    /// Further fields, sent in this order. A field named like one of the above (or `User-Agent`,
    /// `Accept-Encoding`) replaces it.
    pub fields: &'a [(&'a str, &'a str)],
}

/// Why a request cannot be rendered. Values are not repeated: they may be secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The target is empty or holds something other than visible ASCII.
    #[error("the request target must be visible ASCII without spaces")]
    BadTarget,
    /// The host is empty or holds a character that no host has.
    #[error("the host is not a valid Host value")]
    BadHost,
    /// A field name is not a token.
    #[error("{0:?} is not a header name")]
    BadName(String),
    /// A field value holds CR, LF, NUL or another control character.
    #[error("the value of header {0} holds a control character")]
    BadValue(String),
    /// The field is set by the client itself.
    #[error("header {0} is set by the client itself")]
    Reserved(String),
}

/// A request head that is ready but for the fields that differ per request.
#[derive(Debug, Clone)]
pub struct RequestTemplate {
    method: Method,
    request_ids: bool,
    prefix: Bytes,
}

impl Method {
    /// Every method.
    pub const ALL: [Self; 9] = [
        Self::Get,
        Self::Head,
        Self::Post,
        Self::Put,
        Self::Patch,
        Self::Delete,
        Self::Options,
        Self::Trace,
        Self::Connect,
    ];

    /// The name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
            Self::Options => "OPTIONS",
            Self::Trace => "TRACE",
            Self::Connect => "CONNECT",
        }
    }

    /// The method of that name; methods are case-sensitive (RFC 9110 9.1).
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name() == name)
    }

    /// Whether a request of this method says `Content-Length: 0` when it has no body (RFC 9110 8.6).
    const fn anticipates_content(self) -> bool {
        matches!(self, Self::Post | Self::Put | Self::Patch)
    }
}

/// The value of `Host` (RFC 9110 7.2): IPv6 addresses in brackets and without zone, the port unless it is the
/// scheme's default.
#[must_use]
pub fn authority(host: &str, port: u16, default_port: u16) -> String {
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    let host = if bare.contains(':') {
        let address = bare.split('%').next().unwrap_or(bare);
        format!("[{address}]")
    } else {
        bare.to_owned()
    };
    if port == default_port { host } else { format!("{host}:{port}") }
}

impl RequestTemplate {
    /// Checks the parts and renders what they share.
    ///
    /// # Errors
    /// The first part that may not go into a head.
    pub fn new(parts: &RequestParts<'_>) -> Result<Self, RequestError> {
        if parts.target.is_empty() || !parts.target.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(RequestError::BadTarget);
        }
        if parts.host.is_empty() || !parts.host.bytes().all(is_host_byte) {
            return Err(RequestError::BadHost);
        }
        for (name, value) in parts.fields {
            check_field(name, value)?;
            let per_request = parts.request_ids && name.eq_ignore_ascii_case("x-request-id");
            if per_request || RESERVED.iter().any(|reserved| name.eq_ignore_ascii_case(reserved)) {
                return Err(RequestError::Reserved((*name).to_owned()));
            }
        }
        if let Some(value) = parts.content_type {
            check_field("Content-Type", value)?;
        }
        Ok(Self { method: parts.method, request_ids: parts.request_ids, prefix: render(parts) })
    }

    /// The method.
    #[must_use]
    pub const fn method(&self) -> Method {
        self.method
    }

    /// The shared bytes: from the request line up to where the fields of one request follow.
    #[must_use]
    pub const fn prefix(&self) -> &Bytes {
        &self.prefix
    }

    /// Appends what follows the shared bytes in one request's head: its id, the length of its body, the empty line.
    /// Allocates nothing when `out` has room for about a hundred bytes.
    ///
    /// # Errors
    /// [`RequestError::BadValue`] when the id holds a control character; nothing is appended then.
    pub fn write_rest(
        &self,
        request_id: &str,
        body_bytes: u64,
        out: &mut BytesMut,
    ) -> Result<(), RequestError> {
        if self.request_ids {
            check_value("X-Request-Id", request_id)?;
            put_field(out, "X-Request-Id", request_id.as_bytes());
        }
        if body_bytes > 0 || self.method.anticipates_content() {
            // Writing to memory cannot fail.
            let _ = write!(out, "Content-Length: {body_bytes}\r\n");
        }
        out.put_slice(b"\r\n");
        Ok(())
    }

    /// The head of a request whose body is written apart. Taken from `block`, as by [`RequestTemplate::render`].
    ///
    /// # Errors
    /// As [`RequestTemplate::write_rest`].
    pub fn render_head(
        &self,
        request_id: &str,
        body_bytes: u64,
        block: &mut BytesMut,
    ) -> Result<Bytes, RequestError> {
        block.reserve(self.prefix.len() + PER_REQUEST_BYTES);
        block.put_slice(&self.prefix);
        self.write_rest(request_id, body_bytes, block).inspect_err(|_| block.clear())?;
        Ok(block.split().freeze())
    }

    /// One whole request in one piece. It is cut off from `block`, empty before and after: small requests then share an
    /// allocation, which whoever sends the last of them gives back. A block that is used up is replaced by one of its
    /// first size, or of the request's.
    ///
    /// # Errors
    /// As [`RequestTemplate::write_rest`].
    pub fn render(&self, request_id: &str, body: &[u8], block: &mut BytesMut) -> Result<Bytes, RequestError> {
        block.reserve(self.prefix.len() + PER_REQUEST_BYTES + body.len());
        block.put_slice(&self.prefix);
        self.write_rest(request_id, body.len() as u64, block).inspect_err(|_| block.clear())?;
        block.put_slice(body);
        Ok(block.split().freeze())
    }
}

/// Everything up to the fields of one request. The parts have been checked.
fn render(parts: &RequestParts<'_>) -> Bytes {
    let mut out = BytesMut::new();
    for piece in [parts.method.name(), " ", parts.target, " HTTP/1.1\r\n"] {
        out.put_slice(piece.as_bytes());
    }
    let accept = match parts.accept {
        Accept::EventStream => "text/event-stream",
        Accept::Json => "application/json",
        Accept::Anything => "*/*",
    };
    // Compressed streams arrive in the compressor's rhythm, not the server's.
    let own = [
        ("Host", Some(parts.host)),
        ("User-Agent", Some(USER_AGENT)),
        ("Accept", Some(accept)),
        ("Accept-Encoding", Some("identity")),
        ("Content-Type", parts.content_type),
        ("Connection", parts.close.then_some("close")),
    ];
    for (name, value) in own {
        let replaced = parts.fields.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
        if let (Some(value), false) = (value, replaced) {
            put_field(&mut out, name, value.as_bytes());
        }
    }
    for (name, value) in parts.fields {
        put_field(&mut out, name, trim(value.as_bytes()));
    }
    out.freeze()
}

fn put_field(out: &mut impl BufMut, name: &str, value: &[u8]) {
    out.put_slice(name.as_bytes());
    out.put_slice(b": ");
    out.put_slice(value);
    out.put_slice(b"\r\n");
}

fn check_field(name: &str, value: &str) -> Result<(), RequestError> {
    if name.is_empty() || !name.bytes().all(is_token_byte) {
        return Err(RequestError::BadName(name.to_owned()));
    }
    if name.eq_ignore_ascii_case("host")
        && (trim(value.as_bytes()).is_empty() || !value.bytes().all(is_host_byte))
    {
        return Err(RequestError::BadHost);
    }
    check_value(name, value)
}

fn check_value(name: &str, value: &str) -> Result<(), RequestError> {
    if value.bytes().any(is_control) { Err(RequestError::BadValue(name.to_owned())) } else { Ok(()) }
}

/// Whether `b` may stand in `uri-host [ ":" port ]` (RFC 3986 3.2.2), brackets and percent-escapes included.
const fn is_host_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric()
        || matches!(
            b,
            b'-' | b'.'
                | b'_'
                | b'~'
                | b'%'
                | b'!'
                | b'$'
                | b'&'
                | b'\''
                | b'('
                | b')'
                | b'*'
                | b'+'
                | b','
                | b';'
                | b'='
                | b':'
                | b'['
                | b']'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: RequestParts<'static> = RequestParts {
        method: Method::Post,
        target: "/v1/chat/completions",
        host: "127.0.0.1:8000",
        accept: Accept::EventStream,
        content_type: Some("application/json"),
        close: false,
        request_ids: true,
        fields: &[],
    };

    fn render_text(parts: RequestParts<'_>, id: &str, body: &str) -> String {
        let bytes =
            RequestTemplate::new(&parts).unwrap().render(id, body.as_bytes(), &mut BytesMut::new()).unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[test]
    fn a_streamed_post_has_these_bytes() {
        let expected = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nUser-Agent: hammerscale/{}\r\n\
             Accept: text/event-stream\r\nAccept-Encoding: identity\r\nContent-Type: application/json\r\n\
             X-Request-Id: run-7\r\nContent-Length: 2\r\n\r\n{{}}",
            env!("CARGO_PKG_VERSION")
        );
        assert_eq!(render_text(PARTS, "run-7", "{}"), expected);
    }

    #[test]
    fn the_prefix_and_the_rest_make_the_head() {
        let template = RequestTemplate::new(&PARTS).unwrap();
        let mut pieces = BytesMut::from(&template.prefix()[..]);
        template.write_rest("run-7", 2, &mut pieces).unwrap();
        pieces.extend_from_slice(b"{}");
        assert_eq!(pieces, template.render("run-7", b"{}", &mut BytesMut::new()).unwrap());
    }

    #[test]
    fn another_parser_reads_the_same_request() {
        let parts = RequestParts {
            close: true,
            fields: &[("Authorization", "Bearer s3cret"), ("user-agent", "mine"), ("X-Empty", "")],
            ..PARTS
        };
        let bytes =
            RequestTemplate::new(&parts).unwrap().render("run-7", b"body", &mut BytesMut::new()).unwrap();
        let mut slots = [httparse::EMPTY_HEADER; 16];
        let mut request = httparse::Request::new(&mut slots);
        let head = request.parse(&bytes).unwrap().unwrap();
        assert_eq!(
            (request.method, request.path, request.version),
            (Some("POST"), Some(PARTS.target), Some(1))
        );
        let fields: Vec<_> =
            request.headers.iter().map(|h| (h.name, str::from_utf8(h.value).unwrap())).collect();
        assert_eq!(
            fields,
            [
                ("Host", "127.0.0.1:8000"),
                ("Accept", "text/event-stream"),
                ("Accept-Encoding", "identity"),
                ("Content-Type", "application/json"),
                ("Connection", "close"),
                ("Authorization", "Bearer s3cret"),
                ("user-agent", "mine"),
                ("X-Empty", ""),
                ("X-Request-Id", "run-7"),
                ("Content-Length", "4"),
            ]
        );
        assert_eq!(&bytes[head..], b"body");
    }

    #[test]
    fn a_request_without_body_says_so_only_where_one_is_expected() {
        let get = RequestParts {
            method: Method::Get,
            target: "/v1/models",
            accept: Accept::Anything,
            content_type: None,
            request_ids: false,
            ..PARTS
        };
        let text = render_text(get, "unused", "");
        assert!(text.contains("Accept: */*\r\n"));
        assert!(!text.contains("Content-") && !text.contains("X-Request-Id"));
        assert!(render_text(PARTS, "a", "").contains("Content-Length: 0\r\n\r\n"));
    }

    #[test]
    fn what_could_smuggle_or_contradict_is_refused() {
        let error = |fields: &[(&str, &str)]| {
            RequestTemplate::new(&RequestParts { fields, ..PARTS }).expect_err("must be refused")
        };
        for value in ["a\rb", "a\nb", "a\0b", "a\x7fb", "a\x1bb"] {
            let refused = error(&[("X-Key", value)]);
            assert_eq!(refused, RequestError::BadValue("X-Key".into()));
            assert!(!refused.to_string().contains(value), "values stay out of messages");
        }
        for name in ["", "a b", "a:", "é", "a\r\n"] {
            assert_eq!(error(&[(name, "v")]), RequestError::BadName(name.into()));
        }
        for name in ["Content-Length", "transfer-ENCODING", "Connection", "x-request-id"] {
            assert_eq!(error(&[(name, "v")]), RequestError::Reserved(name.into()));
        }
        assert_eq!(error(&[("Host", "a b")]), RequestError::BadHost);
        for target in ["", "/a b", "/a\r\n", "/é"] {
            let refused = RequestTemplate::new(&RequestParts { target, ..PARTS });
            assert_eq!(refused.unwrap_err(), RequestError::BadTarget, "{target:?}");
        }
        for host in ["", "a/b", "user@host", "a b"] {
            let refused = RequestTemplate::new(&RequestParts { host, ..PARTS });
            assert_eq!(refused.unwrap_err(), RequestError::BadHost, "{host:?}");
        }
        let mut out = BytesMut::new();
        let template = RequestTemplate::new(&PARTS).unwrap();
        assert!(template.write_rest("a\r\nb", 0, &mut out).is_err() && out.is_empty());
    }

    #[test]
    fn request_ids_may_be_the_users_own_when_ours_are_off() {
        let parts = RequestParts { request_ids: false, fields: &[("X-Request-Id", "fixed")], ..PARTS };
        assert!(render_text(parts, "ours", "{}").contains("X-Request-Id: fixed\r\nContent-Length: 2"));
    }

    #[test]
    fn the_authority_brackets_ipv6_and_leaves_the_default_port_out() {
        assert_eq!(authority("example.org", 80, 80), "example.org");
        assert_eq!(authority("example.org", 8080, 80), "example.org:8080");
        assert_eq!(authority("::1", 443, 443), "[::1]");
        assert_eq!(authority("[fe80::1%eth0]", 8000, 80), "[fe80::1]:8000");
        assert_eq!(authority("127.0.0.1", 80, 443), "127.0.0.1:80");
    }

    #[test]
    fn methods_are_found_by_their_exact_names() {
        for method in Method::ALL {
            assert_eq!(Method::from_name(method.name()), Some(method));
        }
        assert_eq!(Method::from_name("post"), None);
    }
}
