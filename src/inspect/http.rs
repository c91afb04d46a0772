//! One HTTP response.

use super::Capture;
use crate::report::inspect::http::{ReadDoc, RefusedDoc, ResponseDoc, latin1};
use crate::wire::http1::{Category, HttpError, Part, ResponseDecoder};

pub(super) fn read(capture: &Capture<'_>) -> ResponseDoc {
    let mut decoder = ResponseDecoder::new();
    decoder.start(capture.method);
    match decode(capture, &mut decoder) {
        Ok(found) => ResponseDoc::Read(Box::new(found.into_doc(&decoder))),
        Err(error) => ResponseDoc::Refused(RefusedDoc {
            error: error.category().name(),
            rule: error.rule(),
            message: error.to_string(),
            offset: decoder.error_offset(),
            hint: capture.chunk_hint().filter(|_| error.category() == Category::BadChunk),
        }),
    }
}

#[derive(Default)]
struct Found {
    interim: Vec<u16>,
    body: Vec<u8>,
    leftover: Vec<u8>,
}

fn decode(capture: &Capture<'_>, decoder: &mut ResponseDecoder) -> Result<Found, HttpError> {
    let mut found = Found::default();
    let mut pieces = capture.pieces();
    // Bytes that complete a response need no more bytes to say so: an empty piece asks once more.
    for piece in pieces.by_ref().chain([&[][..]]) {
        let mut rest = piece;
        loop {
            let decoded = decoder.decode(rest)?;
            rest = rest.get(decoded.consumed..).unwrap_or_default();
            match decoded.part {
                Part::NeedMore => break,
                Part::Interim(status) => found.interim.push(status),
                Part::Head => {}
                Part::Data(data) => found.body.extend_from_slice(data),
                Part::End => {
                    found.leftover.extend_from_slice(rest);
                    break;
                }
            }
        }
    }
    if capture.closed {
        decoder.eof()?;
    }
    Ok(found)
}

impl Found {
    fn into_doc(self, decoder: &ResponseDecoder) -> ReadDoc {
        let pair = |(name, value): (&[u8], &[u8])| (latin1(name), latin1(value));
        let head = decoder.head();
        ReadDoc {
            status: head.map(|head| head.status()),
            version: head.map(|head| head.version().to_string()),
            reason: head.map(|head| latin1(head.reason())),
            headers: head.map(|head| head.fields().map(pair).collect()).unwrap_or_default(),
            framing: head.map(|head| head.framing().name()),
            interim: self.interim,
            trailers: decoder.trailers().map(pair).collect(),
            body: self.body,
            leftover: self.leftover,
            keep_alive: decoder.keep_alive(),
            flags: decoder.anomalies().iter().map(|anomaly| anomaly.name()).collect(),
            unfinished: !decoder.is_complete(),
        }
    }
}
