//! Records to bytes and back, as laid out in the parent module's table. Pure; reads and writes no file.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{
    ClosedBy, ConnectionClosed, ConnectionOpened, Ending, EventKind, EventSent, HeadSent, Header, MAGIC,
    Record, RequestArrived, RequestEnded, Service, Totals, VERSION,
};
use crate::sim::endpoint::ask::MAX_MODEL_BYTES;
use crate::sim::request::MAX_REQUEST_ID_BYTES;
use crate::units::Nanos;

/// Bytes of tag and payload length in front of each payload.
pub(super) const PREFIX_BYTES: usize = 3;

/// Bytes of magic, version and header length in front of the header.
pub(super) const PREAMBLE_BYTES: usize = 12;

/// Bytes of an event record, prefix included: 48, so a million events are 48 MB.
pub(super) const EVENT_BYTES: usize = PREFIX_BYTES + 45;

/// No record is longer: the fixed part of a request's (64 bytes) and its two texts, each behind its length.
pub(super) const MAX_RECORD_BYTES: usize = PREFIX_BYTES + 64 + 2 * (2 + MAX_TEXT_BYTES);

/// Bytes of the header behind the preamble.
const HEADER_BYTES: u16 = 28;

/// Longest text of a record: what a request may name itself or its model, whichever is more.
const MAX_TEXT_BYTES: usize =
    if MAX_REQUEST_ID_BYTES > MAX_MODEL_BYTES { MAX_REQUEST_ID_BYTES } else { MAX_MODEL_BYTES };

const TAG_CONNECTION_OPENED: u8 = 1;
const TAG_REQUEST_ARRIVED: u8 = 2;
const TAG_HEAD_SENT: u8 = 3;
const TAG_EVENT_SENT: u8 = 4;
const TAG_REQUEST_ENDED: u8 = 5;
const TAG_CONNECTION_CLOSED: u8 = 6;
const TAG_END: u8 = 7;

const FLAG_STREAM: u8 = 1;
const FLAG_HAS_ID: u8 = 2;

/// Appends the beginning of a file.
pub(super) fn put_header(header: &Header, out: &mut Vec<u8>) {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&HEADER_BYTES.to_le_bytes());
    out.extend_from_slice(&header.seed.to_le_bytes());
    out.extend_from_slice(&header.pid.to_le_bytes());
    put_nanos(header.monotonic, out);
    put_nanos(header.realtime, out);
}

/// Appends an event: the one record of the send path, fixed in length, without a branch.
pub(super) fn put_event(event: &EventSent, out: &mut Vec<u8>) {
    put_record(TAG_EVENT_SENT, out, |out| {
        out.push(event.kind as u8);
        out.extend_from_slice(&event.tokens.to_le_bytes());
        out.extend_from_slice(&event.index.to_le_bytes());
        out.extend_from_slice(&event.request.to_le_bytes());
        put_nanos(event.planned, out);
        put_nanos(event.before, out);
        put_nanos(event.after, out);
        out.extend_from_slice(&event.bytes.to_le_bytes());
    });
}

/// Appends a record.
pub(super) fn put(record: &Record, out: &mut Vec<u8>) {
    match record {
        Record::ConnectionOpened(r) => put_record(TAG_CONNECTION_OPENED, out, |out| {
            out.extend_from_slice(&r.number.to_le_bytes());
            put_nanos(r.at, out);
            put_address(r.peer, out);
        }),
        Record::RequestArrived(r) => put_record(TAG_REQUEST_ARRIVED, out, |out| put_request(r, out)),
        Record::HeadSent(r) => put_record(TAG_HEAD_SENT, out, |out| {
            out.extend_from_slice(&r.request.to_le_bytes());
            put_nanos(r.planned, out);
            put_nanos(r.before, out);
            put_nanos(r.after, out);
            out.extend_from_slice(&r.bytes.to_le_bytes());
        }),
        Record::EventSent(r) => put_event(r, out),
        Record::RequestEnded(r) => put_record(TAG_REQUEST_ENDED, out, |out| {
            out.extend_from_slice(&r.number.to_le_bytes());
            put_nanos(r.at, out);
            out.push(r.ending as u8);
        }),
        Record::ConnectionClosed(r) => put_record(TAG_CONNECTION_CLOSED, out, |out| {
            out.extend_from_slice(&r.number.to_le_bytes());
            put_nanos(r.at, out);
            out.push(r.by as u8);
        }),
        Record::End(r) => put_record(TAG_END, out, |out| {
            out.extend_from_slice(&r.connections.to_le_bytes());
            out.extend_from_slice(&r.requests.to_le_bytes());
            out.extend_from_slice(&r.events.to_le_bytes());
        }),
    }
}

/// Reads the header's rest; `None` when it is too short.
pub(super) fn take_header(version: u16, rest: &[u8]) -> Option<Header> {
    let mut from = Taker(rest);
    Some(Header {
        version,
        seed: from.u64()?,
        pid: from.u32()?,
        monotonic: from.nanos()?,
        realtime: from.nanos()?,
    })
}

/// Reads one payload. `Ok(None)` is a tag of a later version.
pub(super) fn take(tag: u8, payload: &[u8]) -> Result<Option<Record>, Malformed> {
    let mut from = Taker(payload);
    let record = match tag {
        TAG_CONNECTION_OPENED => take_connection(&mut from).map(Record::ConnectionOpened),
        TAG_REQUEST_ARRIVED => take_request(&mut from).map(Record::RequestArrived),
        TAG_HEAD_SENT => take_head(&mut from).map(Record::HeadSent),
        TAG_EVENT_SENT => take_event(&mut from).map(Record::EventSent),
        TAG_REQUEST_ENDED => take_request_end(&mut from).map(Record::RequestEnded),
        TAG_CONNECTION_CLOSED => take_close(&mut from).map(Record::ConnectionClosed),
        TAG_END => take_totals(&mut from).map(Record::End),
        _ => return Ok(None),
    };
    record.map(Some).ok_or(Malformed)
}

/// A payload is shorter than its record, or holds a code that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

fn put_record(tag: u8, out: &mut Vec<u8>, payload: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[tag, 0, 0]);
    payload(out);
    let len = u16::try_from(out.len() - start - PREFIX_BYTES).unwrap_or(u16::MAX);
    debug_assert!(usize::from(len) == out.len() - start - PREFIX_BYTES, "a record is bounded");
    if let Some(place) = out.get_mut(start + 1..start + PREFIX_BYTES) {
        place.copy_from_slice(&len.to_le_bytes());
    }
}

fn put_nanos(at: Nanos, out: &mut Vec<u8>) {
    out.extend_from_slice(&at.0.to_le_bytes());
}

fn put_address(address: SocketAddr, out: &mut Vec<u8>) {
    let mut bytes = [0_u8; 16];
    let family = match address.ip() {
        IpAddr::V4(ip) => {
            for (place, byte) in bytes.iter_mut().zip(ip.octets()) {
                *place = byte;
            }
            4
        }
        IpAddr::V6(ip) => {
            bytes = ip.octets();
            6
        }
    };
    out.push(family);
    out.extend_from_slice(&bytes);
    out.extend_from_slice(&address.port().to_le_bytes());
}

fn put_request(r: &RequestArrived, out: &mut Vec<u8>) {
    out.extend_from_slice(&r.number.to_le_bytes());
    out.extend_from_slice(&r.connection.to_le_bytes());
    out.extend_from_slice(&r.connection_use.to_le_bytes());
    put_nanos(r.arrival, out);
    out.push(r.service as u8);
    out.extend_from_slice(&r.status.to_le_bytes());
    let id_flag = if r.request_id.is_some() { FLAG_HAS_ID } else { 0 };
    out.push(if r.stream { FLAG_STREAM } else { 0 } | id_flag);
    out.extend_from_slice(&r.prompt_bytes.to_le_bytes());
    out.extend_from_slice(&r.prompt_tokens.to_le_bytes());
    out.extend_from_slice(&r.reasoning_tokens.to_le_bytes());
    out.extend_from_slice(&r.content_tokens.to_le_bytes());
    put_text(r.request_id.as_deref().unwrap_or_default(), out);
    put_text(&r.model, out);
}

/// Texts are bounded where a request is read, so nothing is ever left out here.
fn put_text(text: &str, out: &mut Vec<u8>) {
    debug_assert!(text.len() <= MAX_TEXT_BYTES, "texts are bounded where a request is read");
    let text = if text.len() <= MAX_TEXT_BYTES { text } else { "" };
    out.extend_from_slice(&u16::try_from(text.len()).unwrap_or(0).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn take_connection(from: &mut Taker<'_>) -> Option<ConnectionOpened> {
    let (number, at, family) = (from.u64()?, from.nanos()?, from.u8()?);
    let bytes: [u8; 16] = from.array()?;
    let port = from.u16()?;
    let ip = match (family, bytes) {
        (4, [a, b, c, d, ..]) => IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
        (6, _) => IpAddr::V6(Ipv6Addr::from(bytes)),
        _ => return None,
    };
    Some(ConnectionOpened { number, at, peer: SocketAddr::new(ip, port) })
}

fn take_request(from: &mut Taker<'_>) -> Option<RequestArrived> {
    let number = from.u64()?;
    let connection = from.u64()?;
    let connection_use = from.u32()?;
    let arrival = from.nanos()?;
    let service = *Service::ALL.get(usize::from(from.u8()?))?;
    let status = from.u16()?;
    let flags = from.u8()?;
    let (prompt_bytes, prompt_tokens) = (from.u64()?, from.u64()?);
    let (reasoning_tokens, content_tokens) = (from.u64()?, from.u64()?);
    let id = from.text()?;
    let model = from.text()?;
    Some(RequestArrived {
        number,
        connection,
        connection_use,
        arrival,
        service,
        status,
        stream: flags & FLAG_STREAM != 0,
        prompt_bytes,
        prompt_tokens,
        reasoning_tokens,
        content_tokens,
        request_id: (flags & FLAG_HAS_ID != 0).then_some(id),
        model,
    })
}

fn take_head(from: &mut Taker<'_>) -> Option<HeadSent> {
    Some(HeadSent {
        request: from.u64()?,
        planned: from.nanos()?,
        before: from.nanos()?,
        after: from.nanos()?,
        bytes: from.u32()?,
    })
}

fn take_event(from: &mut Taker<'_>) -> Option<EventSent> {
    let kind = *EventKind::ALL.get(usize::from(from.u8()?))?;
    let (tokens, index, request) = (from.u32()?, from.u32()?, from.u64()?);
    let (planned, before, after) = (from.nanos()?, from.nanos()?, from.nanos()?);
    Some(EventSent { request, index, kind, tokens, planned, before, after, bytes: from.u32()? })
}

fn take_request_end(from: &mut Taker<'_>) -> Option<RequestEnded> {
    let (number, at) = (from.u64()?, from.nanos()?);
    let ending = *Ending::ALL.get(usize::from(from.u8()?))?;
    Some(RequestEnded { number, at, ending })
}

fn take_close(from: &mut Taker<'_>) -> Option<ConnectionClosed> {
    let (number, at) = (from.u64()?, from.nanos()?);
    let by = *ClosedBy::ALL.get(usize::from(from.u8()?))?;
    Some(ConnectionClosed { number, at, by })
}

fn take_totals(from: &mut Taker<'_>) -> Option<Totals> {
    Some(Totals { connections: from.u64()?, requests: from.u64()?, events: from.u64()? })
}

struct Taker<'a>(&'a [u8]);

impl Taker<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn nanos(&mut self) -> Option<Nanos> {
        self.array().map(|bytes| Nanos(i64::from_le_bytes(bytes)))
    }

    fn text(&mut self) -> Option<String> {
        let len = usize::from(self.u16()?);
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_its_documented_bytes() {
        let event = EventSent {
            request: 0x0807_0605_0403_0201,
            index: 9,
            kind: EventKind::Content,
            tokens: 3,
            planned: Nanos(-1),
            before: Nanos(2),
            after: Nanos(3),
            bytes: 4,
        };
        let mut out = Vec::new();
        put_event(&event, &mut out);
        let expected: Vec<u8> = [
            &[4, 45, 0, 2, 3, 0, 0, 0, 9, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8][..],
            &[0xff; 8],
            &[2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0],
        ]
        .concat();
        assert_eq!(out, expected);
        assert_eq!(out.len(), EVENT_BYTES);
    }

    #[test]
    fn the_longest_record_has_its_documented_bytes() {
        let request = RequestArrived {
            number: 1,
            connection: 2,
            connection_use: 3,
            arrival: Nanos(4),
            service: Service::Chat,
            status: 200,
            stream: true,
            prompt_bytes: 5,
            prompt_tokens: 6,
            reasoning_tokens: 7,
            content_tokens: 8,
            request_id: Some("x".repeat(MAX_TEXT_BYTES)),
            model: "y".repeat(MAX_TEXT_BYTES),
        };
        let mut out = Vec::new();
        put(&Record::RequestArrived(request.clone()), &mut out);
        assert_eq!(out.len(), MAX_RECORD_BYTES);
        assert_eq!(
            take(TAG_REQUEST_ARRIVED, &out[PREFIX_BYTES..]),
            Ok(Some(Record::RequestArrived(request)))
        );
        let mut out = Vec::new();
        let peer = SocketAddr::from((Ipv6Addr::LOCALHOST, 1));
        put(&Record::ConnectionOpened(ConnectionOpened { number: 1, at: Nanos(2), peer }), &mut out);
        assert!(out.len() < MAX_RECORD_BYTES);
    }

    #[test]
    fn codes_are_positions_in_the_lists() {
        for (i, kind) in EventKind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, i);
        }
        for (i, service) in Service::ALL.iter().enumerate() {
            assert_eq!(*service as usize, i);
        }
        for (i, ending) in Ending::ALL.iter().enumerate() {
            assert_eq!(*ending as usize, i);
        }
        for (i, by) in ClosedBy::ALL.iter().enumerate() {
            assert_eq!(*by as usize, i);
        }
    }

    #[test]
    fn unknown_codes_are_malformed_and_unknown_tags_skipped() {
        let mut out = Vec::new();
        put(
            &Record::RequestEnded(RequestEnded { number: 1, at: Nanos(2), ending: Ending::Stopped }),
            &mut out,
        );
        let payload = out.split_off(PREFIX_BYTES);
        assert!(matches!(take(TAG_REQUEST_ENDED, &payload), Ok(Some(Record::RequestEnded(_)))));
        let mut wrong = payload.clone();
        *wrong.last_mut().unwrap() = 99;
        assert_eq!(take(TAG_REQUEST_ENDED, &wrong), Err(Malformed));
        assert_eq!(take(TAG_REQUEST_ENDED, &payload[..10]), Err(Malformed));
        assert_eq!(take(200, &payload), Ok(None));
        let longer = [payload, vec![1, 2, 3]].concat();
        assert!(matches!(take(TAG_REQUEST_ENDED, &longer), Ok(Some(Record::RequestEnded(_)))));
    }
}
