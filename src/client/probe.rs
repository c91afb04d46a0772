//! One small GET before the run, on the control plane: asks a target for its models. Blocking, bounded, and not part
//! of any measurement.

use std::io::{Read, Write};
use std::time::Duration;

use bytes::BytesMut;

use crate::client::route::{self, Route};
use crate::clock::Clock;
use crate::units::Nanos;
use crate::wire::http1::{
    Accept, HttpError, Method, Part, RequestError, RequestParts, RequestTemplate, ResponseDecoder,
};

/// The reference gives a target 15 s for the same question.
pub const PROBE_TIMEOUT: Nanos = Nanos::from_secs(15);

/// A models list is a few kilobytes; the largest gateways list some hundred models.
const MAX_BODY_BYTES: usize = 4 * 1024 * 1024;

/// Why a question got no answer.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The connection could not be made.
    #[error("{0}")]
    Connect(std::io::Error),
    /// The connection broke.
    #[error("{0}")]
    Io(std::io::Error),
    /// The time ran out.
    #[error("no answer in time")]
    Late,
    /// The request cannot be rendered.
    #[error("{0}")]
    Request(#[from] RequestError),
    /// The answer is no HTTP.
    #[error("{0}")]
    Http(HttpError),
    /// The answer is larger than any such list.
    #[error("the answer is larger than {MAX_BODY_BYTES} bytes")]
    TooLarge,
}

/// How long a question may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// To connect, and for the answer, together.
    pub total: Nanos,
    /// To connect.
    pub connect: Nanos,
    /// Without a byte.
    pub idle: Nanos,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// The `Server` field.
    pub server: Option<String>,
    /// Its body.
    pub body: Vec<u8>,
}

/// Asks for `target` (a path). The routes are tried in turn.
///
/// # Errors
/// See [`ProbeError`]; with several routes that of the last one.
pub fn get(
    routes: &[Route],
    host: &str,
    target: &str,
    fields: &[(&str, &str)],
    limits: Limits,
) -> Result<Answer, ProbeError> {
    let parts = RequestParts {
        method: Method::Get,
        target,
        host,
        accept: Accept::Anything,
        content_type: None,
        close: true,
        request_ids: false,
        fields,
    };
    let request = RequestTemplate::new(&parts)?.render("", b"", &mut BytesMut::new())?;
    let mut last = ProbeError::Connect(std::io::Error::from(std::io::ErrorKind::AddrNotAvailable));
    for route in routes {
        match ask(*route, &request, limits) {
            Ok(answer) => return Ok(answer),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn ask(route: Route, request: &[u8], limits: Limits) -> Result<Answer, ProbeError> {
    let clock = Clock::new();
    let deadline = Nanos(clock.monotonic().0.saturating_add(limits.total.0));
    let left = |most: Nanos| {
        let ns = u64::try_from(most.0.min(deadline.0 - clock.monotonic().0)).unwrap_or(0);
        // A timeout of zero would mean none.
        Duration::from_nanos(ns.max(1_000_000))
    };
    let mut stream = route::connect_blocking(route, left(limits.connect)).map_err(ProbeError::Connect)?;
    stream.set_write_timeout(Some(left(limits.idle))).map_err(ProbeError::Io)?;
    stream.write_all(request).map_err(broken)?;
    let mut decoder = ResponseDecoder::new();
    decoder.start(Method::Get);
    let mut body = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        if clock.monotonic() >= deadline {
            return Err(ProbeError::Late);
        }
        stream.set_read_timeout(Some(left(limits.idle))).map_err(ProbeError::Io)?;
        let count = stream.read(&mut buffer).map_err(broken)?;
        if count == 0 {
            decoder.eof().map_err(ProbeError::Http)?;
            break;
        }
        if take(&mut decoder, buffer.get(..count).unwrap_or_default(), &mut body)? {
            break;
        }
    }
    let head = decoder.head();
    Ok(Answer {
        status: head.map_or(0, |h| h.status()),
        server: head.and_then(|h| h.field("server")).map(|v| String::from_utf8_lossy(v).into_owned()),
        body,
    })
}

/// A limit of a blocking socket shows as one of two kinds (`SO_RCVTIMEO` of socket(7)).
fn broken(error: std::io::Error) -> ProbeError {
    match error.kind() {
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => ProbeError::Late,
        _ => ProbeError::Io(error),
    }
}

/// Takes in one read; whether the answer is complete.
fn take(decoder: &mut ResponseDecoder, mut rest: &[u8], body: &mut Vec<u8>) -> Result<bool, ProbeError> {
    loop {
        let decoded = decoder.decode(rest).map_err(ProbeError::Http)?;
        rest = rest.get(decoded.consumed..).unwrap_or_default();
        match decoded.part {
            Part::NeedMore => return Ok(false),
            Part::End => return Ok(true),
            Part::Interim(_) | Part::Head => {}
            Part::Data(data) if body.len() + data.len() > MAX_BODY_BYTES => return Err(ProbeError::TooLarge),
            Part::Data(data) => body.extend_from_slice(data),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const LIMITS: Limits =
        Limits { total: PROBE_TIMEOUT, connect: PROBE_TIMEOUT, idle: Nanos::from_millis(300) };

    #[test]
    fn a_server_that_says_nothing_is_given_up_in_time() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let route = Route { source: None, address: silent.local_addr().unwrap() };
        let short = Nanos::from_millis(200);
        for limits in [LIMITS, Limits { total: short, connect: short, idle: PROBE_TIMEOUT }] {
            let begun = Clock::new().monotonic();
            assert!(matches!(get(&[route], "h", "/", &[], limits), Err(ProbeError::Late)));
            let took = Nanos(Clock::new().monotonic().0 - begun.0);
            assert!(took < Nanos::from_secs(5), "{limits:?}: {took:?}");
        }
    }

    fn serve(answer: &'static [u8]) -> Route {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut peer, _) = listener.accept().unwrap();
            let mut seen = Vec::new();
            let mut byte = [0];
            while !seen.ends_with(b"\r\n\r\n") && peer.read(&mut byte).unwrap() > 0 {
                seen.push(byte[0]);
            }
            peer.write_all(answer).unwrap();
        });
        Route { source: None, address }
    }

    #[test]
    fn an_answer_is_read_whole() {
        let route =
            serve(b"HTTP/1.1 200 OK\r\nServer: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n[]\r\n0\r\n\r\n");
        let answer = get(&[route], "127.0.0.1", "/v1/models", &[], LIMITS).unwrap();
        assert_eq!(answer, Answer { status: 200, server: Some("x".to_owned()), body: b"[]".to_vec() });
    }

    #[test]
    fn a_cut_answer_and_a_closed_port_are_errors() {
        let cut = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[");
        assert!(matches!(get(&[cut], "h", "/", &[], LIMITS), Err(ProbeError::Http(_))));
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let closed = Route { source: None, address };
        assert!(matches!(get(&[closed], "h", "/", &[], LIMITS), Err(ProbeError::Connect(_))));
    }
}
