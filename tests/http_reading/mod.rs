//! Reads one response through the decoder, cut into pieces, and writes down everything it said.

use hammerscale::wire::http1::{Anomaly, Framing, Head, HttpError, Method, Part, ResponseDecoder};

/// Names and values of fields, in order.
pub(crate) type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// What a caller learns from one response.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reading {
    pub(crate) interim: Vec<u16>,
    pub(crate) head: Option<HeadReading>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Pairs,
    pub(crate) leftover: Vec<u8>,
    pub(crate) end: End,
    pub(crate) keep_alive: bool,
    pub(crate) reusable: bool,
    pub(crate) last_chunk_seen: bool,
    pub(crate) anomalies: Vec<Anomaly>,
    pub(crate) consumed: u64,
    /// Of the head that the decoder still shows, also after an error.
    pub(crate) status_at_end: Option<u16>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HeadReading {
    pub(crate) status: u16,
    pub(crate) version: String,
    pub(crate) reason: Vec<u8>,
    pub(crate) headers: Pairs,
    pub(crate) framing: Framing,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum End {
    Complete,
    /// Neither an end nor an error: the decoder waits for more.
    Waiting,
    Error(HttpError, Option<u64>),
}

impl Reading {
    pub(crate) fn error(&self) -> Option<HttpError> {
        match self.end {
            End::Error(error, _) => Some(error),
            _ => None,
        }
    }
}

/// The decoder's account of `input`, cut at `cuts` (ascending positions), with or without the peer's close behind.
pub(crate) fn read(
    decoder: &mut ResponseDecoder,
    method: Method,
    input: &[u8],
    cuts: &[usize],
    eof: bool,
) -> Reading {
    let mut reading = Reading {
        interim: Vec::new(),
        head: None,
        body: Vec::new(),
        trailers: Vec::new(),
        leftover: Vec::new(),
        end: End::Waiting,
        keep_alive: false,
        reusable: false,
        last_chunk_seen: false,
        anomalies: Vec::new(),
        consumed: 0,
        status_at_end: None,
    };
    decoder.start(method);
    let mut start = 0;
    for end in cuts.iter().copied().chain([input.len()]) {
        match feed(decoder, &input[start..end], &mut reading) {
            Ok(None) => start = end,
            Ok(Some(left)) => {
                reading.end = End::Complete;
                reading.leftover = input[end - left..].to_vec();
                break;
            }
            Err(error) => {
                assert_eq!(decoder.decode(b"x"), Err(error), "an error must stay");
                reading.end = End::Error(error, decoder.error_offset());
                break;
            }
        }
    }
    if eof {
        match decoder.eof() {
            Ok(()) => reading.end = End::Complete,
            Err(error) => reading.end = End::Error(error, decoder.error_offset()),
        }
    }
    reading.status_at_end = decoder.head().map(Head::status);
    reading.keep_alive = decoder.keep_alive();
    reading.reusable = decoder.reusable();
    reading.last_chunk_seen = decoder.last_chunk_seen();
    reading.anomalies = decoder.anomalies().iter().collect();
    // With an error the count stands where the input with the offending byte began.
    reading.consumed = if reading.error().is_some() { 0 } else { decoder.consumed() };
    reading.trailers = decoder.trailers().map(|(n, v)| (n.to_vec(), v.to_vec())).collect();
    reading
}

/// Feeds one piece. `Some(n)` when the response is complete with `n` bytes of the piece left over.
fn feed(
    decoder: &mut ResponseDecoder,
    piece: &[u8],
    reading: &mut Reading,
) -> Result<Option<usize>, HttpError> {
    let mut rest = piece;
    loop {
        let decoded = decoder.decode(rest)?;
        rest = &rest[decoded.consumed..];
        match decoded.part {
            Part::NeedMore => {
                assert!(rest.is_empty(), "NeedMore must use up the input");
                return Ok(None);
            }
            Part::Interim(status) => reading.interim.push(status),
            Part::Head => {
                let head = decoder.head().expect("Part::Head comes with a head");
                reading.head = Some(HeadReading {
                    status: head.status(),
                    version: head.version().to_string(),
                    reason: head.reason().to_vec(),
                    headers: head.fields().map(|(n, v)| (n.to_vec(), v.to_vec())).collect(),
                    framing: head.framing(),
                });
            }
            Part::Data(data) => {
                assert!(!data.is_empty(), "data must not be empty");
                reading.body.extend_from_slice(data);
            }
            Part::End => {
                let again = decoder.decode(rest)?;
                assert_eq!((again.consumed, again.part), (0, Part::End), "the end must stay");
                return Ok(Some(rest.len()));
            }
        }
    }
}

/// Every position of a cut: byte by byte.
pub(crate) fn bytewise(input: &[u8]) -> Vec<usize> {
    (1..input.len()).collect()
}
