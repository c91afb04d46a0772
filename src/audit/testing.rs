//! A ledger and the client's side of it for unit tests, made by hand: instants are nanoseconds, and the simulator's
//! clock shows [`ZERO`] at the zero of the client's axis.

use std::net::{Ipv4Addr, SocketAddr};

use crate::audit::pair::SeenChunk;
use crate::audit::truth::{Sent, TruthRequest};
use crate::record::OutputKind;
use crate::sim::ledger::{
    Book, ConnectionOpened, EventKind, EventSent, Header, LedgerWriter, Record, RequestArrived, Service,
    VERSION,
};
use crate::units::Nanos;

pub(crate) const ZERO: Nanos = Nanos(7_000_000_000);

/// How long every send call of these ledgers takes.
pub(crate) const CALL: i64 = 3_000;

/// A completion that arrived at `arrival` and was answered with content sent at these instants and a terminal right
/// after the last, all after the client's zero.
pub(crate) fn answered(id: Option<&str>, arrival: i64, content_at: &[i64]) -> TruthRequest {
    let outputs: Vec<Sent> = content_at.iter().map(|at| sent(EventKind::Content, *at)).collect();
    let terminal = content_at.last().map(|at| sent(EventKind::Done, at + CALL));
    TruthRequest { id: id.map(str::to_owned), arrival: on_monotonic(arrival), outputs, terminal }
}

/// A ledger as the simulator writes it: a question for the models, and one completion with a role chunk, content sent at
/// these instants, and the terminal; with its last record or without.
pub(crate) fn ledger_bytes(id: Option<&str>, content_at: &[i64], ended: bool) -> Vec<u8> {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("ledger");
    let header = Header { version: VERSION, seed: 0, pid: 1, monotonic: ZERO, realtime: Nanos(1) };
    let mut book = Book::new(Some(LedgerWriter::create(&path, &header).unwrap()));
    let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 40_000));
    book.enter(&Record::ConnectionOpened(ConnectionOpened { number: 0, at: ZERO, peer }));
    book.enter(&Record::RequestArrived(arrived(0, Service::Models, None)));
    book.enter(&Record::RequestArrived(arrived(1, Service::Chat, id)));
    let role_at = content_at[0] - CALL;
    let done_at = content_at[content_at.len() - 1] + CALL;
    let contents = content_at.iter().map(|at| (EventKind::Content, *at));
    let events = std::iter::once((EventKind::Role, role_at)).chain(contents);
    for (index, (kind, at)) in (0..).zip(events.chain([(EventKind::Done, done_at)])) {
        let Sent { before, after, .. } = sent(kind, at);
        let tokens = u32::from(kind.is_output());
        book.event(&EventSent {
            request: 1,
            index,
            kind,
            tokens,
            planned: before,
            before,
            after,
            bytes: 200,
        });
    }
    book.finish().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    if !ended {
        // The last record is three totals behind its tag and its length.
        bytes.truncate(bytes.len() - (3 + 3 * 8));
    }
    bytes
}

/// A content chunk that ended its read: stamped by the kernel at `kernel`, read 8 µs later.
pub(crate) fn exact(kernel: i64) -> SeenChunk {
    SeenChunk {
        kind: OutputKind::Content,
        kernel: Some(Nanos(kernel)),
        user: Nanos(kernel + 8_000),
        not_before: Nanos(0),
        ends_read: true,
    }
}

/// A content chunk that did not: it arrived between `not_before` and `kernel`.
pub(crate) fn hidden(not_before: i64, kernel: i64) -> SeenChunk {
    SeenChunk { not_before: Nanos(not_before), ends_read: false, ..exact(kernel) }
}

fn arrived(number: u64, service: Service, id: Option<&str>) -> RequestArrived {
    RequestArrived {
        number,
        connection: 0,
        connection_use: 0,
        arrival: ZERO,
        service,
        status: 200,
        stream: true,
        prompt_bytes: 1,
        prompt_tokens: 1,
        reasoning_tokens: 0,
        content_tokens: 2,
        request_id: id.map(str::to_owned),
        model: "sim".to_owned(),
    }
}

fn sent(kind: EventKind, at: i64) -> Sent {
    Sent { kind, before: on_monotonic(at), after: on_monotonic(at + CALL) }
}

fn on_monotonic(at: i64) -> Nanos {
    Nanos(ZERO.0 + at)
}
