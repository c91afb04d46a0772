//! A ledger and the client's side of it for unit tests, made by hand: instants are nanoseconds, and the simulator's
//! clock shows [`ZERO`] at the zero of the client's axis.

use std::net::{Ipv4Addr, SocketAddr};

use crate::audit::pair::SeenChunk;
use crate::record::OutputKind;
use crate::sim::ledger::read::{Connection, Request};
use crate::sim::ledger::{
    ConnectionOpened, EventKind, EventSent, Header, Ledger, RequestArrived, Service, VERSION,
};
use crate::units::Nanos;

pub(crate) const ZERO: Nanos = Nanos(7_000_000_000);

/// How long every send call of these ledgers takes.
pub(crate) const CALL: i64 = 3_000;

/// A ledger with these requests on one connection.
pub(crate) fn ledger(requests: Vec<Request>) -> Ledger {
    let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 40_000));
    let opened = ConnectionOpened { number: 0, at: ZERO, peer };
    Ledger {
        header: Header { version: VERSION, seed: 0, pid: 1, monotonic: ZERO, realtime: Nanos(1) },
        connections: vec![Connection { opened, closed: None }],
        requests,
        totals: None,
        cut_bytes: 0,
    }
}

/// A completion that arrived at `arrival` and was answered with a role chunk and content sent at these instants, all
/// after the client's zero.
pub(crate) fn answered(id: Option<&str>, arrival: i64, content_at: &[i64]) -> Request {
    let arrived = RequestArrived {
        number: 0,
        connection: 0,
        connection_use: 0,
        arrival: on_monotonic(arrival),
        service: Service::Chat,
        status: 200,
        stream: true,
        prompt_bytes: 1,
        prompt_tokens: 1,
        reasoning_tokens: 0,
        content_tokens: content_at.len() as u64,
        request_id: id.map(str::to_owned),
        model: "sim".to_owned(),
    };
    let role_at = content_at.first().copied().unwrap_or(arrival) - 2 * CALL;
    let contents = content_at.iter().map(|at| (EventKind::Content, *at));
    let events = std::iter::once((EventKind::Role, role_at)).chain(contents);
    let events = (0..).zip(events).map(|(index, (kind, at))| event(index, kind, at)).collect();
    Request { arrived, head: None, events, ended: None }
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

fn event(index: u32, kind: EventKind, at: i64) -> EventSent {
    EventSent {
        request: 0,
        index,
        kind,
        tokens: u32::from(kind.is_output()),
        planned: on_monotonic(at),
        before: on_monotonic(at),
        after: on_monotonic(at + CALL),
        bytes: 200,
    }
}

fn on_monotonic(at: i64) -> Nanos {
    Nanos(ZERO.0 + at)
}
