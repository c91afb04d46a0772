//! Reading a ledger: record by record, or whole and joined per request.
//!
//! A file that was cut short is read up to the cut. Damage inside the file is an error with its place; nothing is
//! guessed. Does not compare anything with the client's records (see `audit`).

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use super::codec::{self, PREAMBLE_BYTES, PREFIX_BYTES};
use super::{
    ConnectionClosed, ConnectionOpened, EventSent, HeadSent, Header, MAGIC, Record, RequestArrived,
    RequestEnded, Totals, VERSION,
};

/// Why a ledger cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The file cannot be opened or read.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Reading failed.
    #[error("the ledger cannot be read: {0}")]
    Read(#[from] io::Error),
    /// The file does not start as a ledger does.
    #[error("this is no ledger: it does not start with HSLEDGER")]
    NotALedger,
    /// The file is of a later version.
    #[error("the ledger has version {0}, and this program reads version {VERSION}")]
    Version(u16),
    /// A record is damaged.
    #[error("the ledger's record at byte {offset} is damaged")]
    Damaged {
        /// Where the record starts.
        offset: u64,
    },
    /// A record speaks of a request or a connection that no earlier record opened, or opens one out of order.
    #[error("the ledger's record at byte {offset} does not fit those before it")]
    OutOfOrder {
        /// Where the record starts.
        offset: u64,
    },
    /// The last record counts other totals than the file has.
    #[error("the ledger announces {announced:?} and has {found:?}")]
    Totals {
        /// What the last record says.
        announced: Totals,
        /// What the file has.
        found: Totals,
    },
}

/// A whole ledger, rows joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    /// How it began.
    pub header: Header,
    /// Connections by number.
    pub connections: Vec<Connection>,
    /// Requests by number, which is their order of arrival.
    pub requests: Vec<Request>,
    /// The totals of the last record; `None` when the file was cut short.
    pub totals: Option<Totals>,
    /// Bytes of an incomplete last record.
    pub cut_bytes: u64,
}

/// A connection's rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// Its beginning.
    pub opened: ConnectionOpened,
    /// Its end; `None` when the ledger was cut before it.
    pub closed: Option<ConnectionClosed>,
}

/// A request's rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Its arrival.
    pub arrived: RequestArrived,
    /// The response head, when it was sent alone.
    pub head: Option<HeadSent>,
    /// Its events, in the order they were sent.
    pub events: Vec<EventSent>,
    /// Its end; `None` when the ledger was cut before it.
    pub ended: Option<RequestEnded>,
}

/// Reads a ledger and joins its rows.
///
/// # Errors
/// [`LedgerError`]; a file that was merely cut short is no error.
pub fn read(path: &Path) -> Result<Ledger, LedgerError> {
    let file = File::open(path).map_err(|source| LedgerError::File { path: path.to_owned(), source })?;
    Ledger::from_reader(BufReader::with_capacity(1 << 20, file))
}

impl Ledger {
    /// Reads a ledger from anything.
    ///
    /// # Errors
    /// [`LedgerError`]; input that merely ends early is no error.
    pub fn from_reader(input: impl Read) -> Result<Self, LedgerError> {
        let mut reader = LedgerReader::new(input)?;
        let mut ledger = Self {
            header: reader.header(),
            connections: Vec::new(),
            requests: Vec::new(),
            totals: None,
            cut_bytes: 0,
        };
        let mut events = 0_u64;
        while let Some(record) = reader.next_record()? {
            events += u64::from(matches!(record, Record::EventSent(_)));
            ledger.join(record).ok_or(LedgerError::OutOfOrder { offset: reader.record_offset() })?;
        }
        ledger.cut_bytes = reader.cut_bytes();
        let found = Totals { connections: len(&ledger.connections), requests: len(&ledger.requests), events };
        match ledger.totals {
            Some(announced) if announced != found => Err(LedgerError::Totals { announced, found }),
            _ => Ok(ledger),
        }
    }

    /// Whether the simulator ended in order, so that nothing is missing.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.totals.is_some() && self.cut_bytes == 0
    }

    /// The first request with this `X-Request-Id`. Looks through all requests; build a map for many look-ups.
    #[must_use]
    pub fn request_by_id(&self, id: &str) -> Option<&Request> {
        self.requests.iter().find(|r| r.arrived.request_id.as_deref() == Some(id))
    }

    /// `None` when the record does not fit those before it.
    fn join(&mut self, record: Record) -> Option<()> {
        if self.totals.is_some() {
            return None;
        }
        match record {
            Record::ConnectionOpened(opened) => {
                (opened.number == len(&self.connections)).then_some(())?;
                self.connections.push(Connection { opened, closed: None });
            }
            Record::RequestArrived(arrived) => {
                let fits =
                    arrived.number == len(&self.requests) && arrived.connection < len(&self.connections);
                fits.then_some(())?;
                self.requests.push(Request { arrived, head: None, events: Vec::new(), ended: None });
            }
            Record::HeadSent(head) => self.request_mut(head.request)?.head = Some(head),
            Record::EventSent(event) => self.request_mut(event.request)?.events.push(event),
            Record::RequestEnded(ended) => self.request_mut(ended.number)?.ended = Some(ended),
            Record::ConnectionClosed(closed) => {
                let place = usize::try_from(closed.number).ok()?;
                self.connections.get_mut(place)?.closed = Some(closed);
            }
            Record::End(totals) => self.totals = Some(totals),
        }
        Some(())
    }

    fn request_mut(&mut self, number: u64) -> Option<&mut Request> {
        self.requests.get_mut(usize::try_from(number).ok()?)
    }
}

/// Reads a ledger record by record, in constant memory.
#[derive(Debug)]
pub struct LedgerReader<R> {
    input: R,
    header: Header,
    /// Where the next record starts.
    offset: u64,
    record_offset: u64,
    cut_bytes: u64,
    payload: Vec<u8>,
}

impl<R: Read> LedgerReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// [`LedgerError::NotALedger`] and [`LedgerError::Version`].
    pub fn new(mut input: R) -> Result<Self, LedgerError> {
        let mut preamble = [0_u8; PREAMBLE_BYTES];
        if fill(&mut input, &mut preamble)? < PREAMBLE_BYTES || !preamble.starts_with(&MAGIC) {
            return Err(LedgerError::NotALedger);
        }
        let [.., v0, v1, l0, l1] = preamble;
        let version = u16::from_le_bytes([v0, v1]);
        if version != VERSION {
            return Err(LedgerError::Version(version));
        }
        let mut rest = vec![0_u8; usize::from(u16::from_le_bytes([l0, l1]))];
        if fill(&mut input, &mut rest)? < rest.len() {
            return Err(LedgerError::NotALedger);
        }
        let header = codec::take_header(version, &rest).ok_or(LedgerError::NotALedger)?;
        let offset = as_u64(PREAMBLE_BYTES + rest.len());
        Ok(Self { input, header, offset, record_offset: offset, cut_bytes: 0, payload: Vec::new() })
    }

    /// How the ledger began.
    #[must_use]
    pub const fn header(&self) -> Header {
        self.header
    }

    /// The next record, `None` at the end or at the cut. Records of later versions are skipped.
    ///
    /// # Errors
    /// [`LedgerError::Read`] and [`LedgerError::Damaged`].
    pub fn next_record(&mut self) -> Result<Option<Record>, LedgerError> {
        loop {
            self.record_offset = self.offset;
            let mut prefix = [0_u8; PREFIX_BYTES];
            let got = fill(&mut self.input, &mut prefix)?;
            if got < PREFIX_BYTES {
                self.cut_bytes = as_u64(got);
                return Ok(None);
            }
            let [tag, l0, l1] = prefix;
            self.payload.resize(usize::from(u16::from_le_bytes([l0, l1])), 0);
            let got = fill(&mut self.input, &mut self.payload)?;
            if got < self.payload.len() {
                self.cut_bytes = as_u64(PREFIX_BYTES + got);
                return Ok(None);
            }
            self.offset += as_u64(PREFIX_BYTES + got);
            match codec::take(tag, &self.payload) {
                Ok(Some(record)) => return Ok(Some(record)),
                Ok(None) => {}
                Err(codec::Malformed) => return Err(LedgerError::Damaged { offset: self.record_offset }),
            }
        }
    }

    /// Where the record that was read last starts in the file.
    #[must_use]
    pub const fn record_offset(&self) -> u64 {
        self.record_offset
    }

    /// Bytes of an incomplete last record, once [`Self::next_record`] has returned `None`.
    #[must_use]
    pub const fn cut_bytes(&self) -> u64 {
        self.cut_bytes
    }
}

/// Reads until the buffer is full or the input ends.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(free) = buffer.get_mut(filled..)
        && !free.is_empty()
    {
        match input.read(free) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

fn len<T>(list: &[T]) -> u64 {
    as_u64(list.len())
}

fn as_u64(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::{Book, ClosedBy, Ending, EventKind, LedgerWriter, Service};
    use super::*;
    use crate::units::Nanos;

    fn header() -> Header {
        Header {
            version: VERSION,
            seed: 42,
            pid: 7,
            monotonic: Nanos(100),
            realtime: Nanos(1_760_000_000_000_000_000),
        }
    }

    fn records() -> Vec<Record> {
        let arrived = |number, request_id: Option<&str>| {
            Record::RequestArrived(RequestArrived {
                number,
                connection: 1,
                connection_use: u32::try_from(number).unwrap(),
                arrival: Nanos(200),
                service: Service::Chat,
                status: 200,
                stream: true,
                prompt_bytes: 1000,
                prompt_tokens: 250,
                reasoning_tokens: 3,
                content_tokens: 4,
                request_id: request_id.map(str::to_owned),
                model: "org/modèle".to_owned(),
            })
        };
        let event = |request, index, kind| {
            Record::EventSent(EventSent {
                request,
                index,
                kind,
                tokens: 1,
                planned: Nanos(300),
                before: Nanos(301),
                after: Nanos(305),
                bytes: 260,
            })
        };
        vec![
            Record::ConnectionOpened(ConnectionOpened {
                number: 0,
                at: Nanos(110),
                peer: "127.0.0.1:9".parse().unwrap(),
            }),
            Record::ConnectionOpened(ConnectionOpened {
                number: 1,
                at: Nanos(111),
                peer: "[::1]:80".parse().unwrap(),
            }),
            arrived(0, Some("run-0")),
            arrived(1, None),
            Record::HeadSent(HeadSent {
                request: 0,
                planned: Nanos(200),
                before: Nanos(201),
                after: Nanos(202),
                bytes: 180,
            }),
            event(0, 0, EventKind::Role),
            event(1, 0, EventKind::Body),
            event(0, 1, EventKind::Content),
            Record::RequestEnded(RequestEnded { number: 0, at: Nanos(400), ending: Ending::PeerGone }),
            Record::ConnectionClosed(ConnectionClosed { number: 1, at: Nanos(401), by: ClosedBy::Peer }),
        ]
    }

    /// The file of the records above, as the writer makes it, ended in order.
    fn file() -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ledger");
        let mut book = Book::new(Some(LedgerWriter::create(&path, &header()).unwrap()));
        for record in records() {
            match record {
                Record::EventSent(event) => book.event(&event),
                other => book.enter(&other),
            }
        }
        let totals = book.finish().unwrap();
        assert_eq!(totals, Totals { connections: 2, requests: 2, events: 3 });
        std::fs::read(path).unwrap()
    }

    #[test]
    fn what_was_written_is_read_back() {
        let bytes = file();
        let mut reader = LedgerReader::new(bytes.as_slice()).unwrap();
        assert_eq!(reader.header(), header());
        let mut read = Vec::new();
        while let Some(record) = reader.next_record().unwrap() {
            read.push(record);
        }
        assert_eq!(read.pop(), Some(Record::End(Totals { connections: 2, requests: 2, events: 3 })));
        assert_eq!(read, records());
    }

    #[test]
    fn rows_are_joined_per_request() {
        let ledger = Ledger::from_reader(file().as_slice()).unwrap();
        assert!(ledger.is_complete());
        assert_eq!((ledger.connections.len(), ledger.requests.len()), (2, 2));
        let first = ledger.request_by_id("run-0").unwrap();
        assert_eq!(
            first.events.iter().map(|e| e.kind).collect::<Vec<_>>(),
            [EventKind::Role, EventKind::Content]
        );
        assert_eq!(first.ended.unwrap().ending, Ending::PeerGone);
        assert!(first.head.is_some());
        assert_eq!((ledger.requests[1].events.len(), ledger.requests[1].ended), (1, None));
        assert_eq!(ledger.connections[1].closed.unwrap().by, ClosedBy::Peer);
        assert_eq!(ledger.connections[0].closed, None);
    }

    #[test]
    fn every_cut_is_readable_up_to_the_cut() {
        let bytes = file();
        let whole = Ledger::from_reader(bytes.as_slice()).unwrap();
        let mut most_events = 0;
        for cut in PREAMBLE_BYTES + 28..bytes.len() {
            let ledger = Ledger::from_reader(&bytes[..cut]).unwrap();
            assert!(!ledger.is_complete(), "cut at {cut}");
            let events: usize = ledger.requests.iter().map(|r| r.events.len()).sum();
            assert!(events >= most_events);
            most_events = events;
            for (part, all) in ledger.requests.iter().zip(&whole.requests) {
                assert_eq!(part.arrived, all.arrived);
                assert_eq!(part.events, all.events[..part.events.len()]);
            }
        }
        assert_eq!(most_events, 3);
        assert!(matches!(Ledger::from_reader(&bytes[..20]), Err(LedgerError::NotALedger)));
    }

    #[test]
    fn damage_is_named_with_its_place() {
        let good = file();
        let mut wrong = good.clone();
        wrong[0] = b'X';
        assert!(matches!(Ledger::from_reader(wrong.as_slice()), Err(LedgerError::NotALedger)));
        let mut wrong = good.clone();
        wrong[8] = 3;
        assert!(matches!(Ledger::from_reader(wrong.as_slice()), Err(LedgerError::Version(3))));
        // The first record's address family.
        let mut wrong = good.clone();
        wrong[PREAMBLE_BYTES + 28 + PREFIX_BYTES + 16] = 5;
        assert!(matches!(Ledger::from_reader(wrong.as_slice()), Err(LedgerError::Damaged { offset: 40 })));
        // The first record's number.
        let mut wrong = good.clone();
        wrong[PREAMBLE_BYTES + 28 + PREFIX_BYTES] = 5;
        assert!(matches!(Ledger::from_reader(wrong.as_slice()), Err(LedgerError::OutOfOrder { offset: 40 })));
        // The last record's number of events.
        let mut wrong = good;
        let last = wrong.len() - 8;
        wrong[last] = 9;
        assert!(matches!(Ledger::from_reader(wrong.as_slice()), Err(LedgerError::Totals { .. })));
    }
}
