//! The first line of a response, byte by byte.

use super::error::HttpError;
use super::grammar::is_control;

/// Where the minor version's digit stands in a status line.
pub(super) const MINOR_VERSION_AT: usize = "HTTP/1.".len();

/// Where the status code stands in a status line.
const STATUS_AT: usize = "HTTP/1.1 ".len();

/// Where the reason phrase stands in a status line that has one.
pub(super) const REASON_AT: usize = "HTTP/1.1 200 ".len();

/// A status line (RFC 9112 4): `HTTP-version SP status-code SP [ reason-phrase ]`.
pub(super) struct StatusLine {
    /// The digit behind `HTTP/1.`.
    pub(super) minor_version: u8,
    /// Three digits: 0 to 999.
    pub(super) status: u16,
    /// Whether a space follows the status, also before an empty reason.
    pub(super) has_reason: bool,
}

/// First bytes of a TLS alert and of a TLS handshake (RFC 8446 5.1).
const TLS_TYPES: [u8; 2] = [0x15, 0x16];

impl StatusLine {
    /// Refuses what begins like TLS, whether or not a line end ever comes: an alert has none.
    pub(super) fn refuse_tls(begun: &[u8]) -> Result<(), (HttpError, usize)> {
        let tls = begun.first().is_some_and(|first| TLS_TYPES.contains(first));
        if tls { Err((HttpError::Tls, 0)) } else { Ok(()) }
    }

    /// Reads a line without its end, or names the broken rule and the position.
    pub(super) fn read(text: &[u8]) -> Result<Self, (HttpError, usize)> {
        const NAME: &[u8] = b"HTTP/";
        Self::refuse_tls(text)?;
        let Some(rest) = text.strip_prefix(NAME) else {
            let same = text.iter().zip(NAME).take_while(|(a, b)| a == b).count();
            return Err((HttpError::NotHttp, same));
        };
        let [major @ b'0'..=b'9', b'.', minor @ b'0'..=b'9', rest @ ..] = rest else {
            return Err((HttpError::BadVersion, NAME.len()));
        };
        if *major != b'1' {
            return Err((HttpError::UnsupportedVersion, NAME.len()));
        }
        let [b' ', rest @ ..] = rest else { return Err((HttpError::NoSpaceAfterVersion, STATUS_AT - 1)) };
        let [a @ b'0'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', rest @ ..] = rest else {
            return Err((HttpError::BadStatusCode, STATUS_AT));
        };
        let status = [a, b, c].into_iter().fold(0, |value, &digit| value * 10 + u16::from(digit - b'0'));
        let (has_reason, reason) = match rest {
            [] => (false, rest),
            [b' ', reason @ ..] => (true, reason),
            [b'\r', ..] => return Err((HttpError::BareCrStatusLine, REASON_AT - 1)),
            _ => return Err((HttpError::BadStatusCode, STATUS_AT)),
        };
        if let Some(at) = reason.iter().position(|&b| is_control(b)) {
            let bare_cr = reason.get(at) == Some(&b'\r');
            let error = if bare_cr { HttpError::BareCrStatusLine } else { HttpError::ControlInReason };
            return Err((error, REASON_AT + at));
        }
        Ok(Self { minor_version: minor - b'0', status, has_reason })
    }
}
