//! One send call, and what the ledger says of it.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;

use crate::sim::clock;
use crate::sim::ledger::{Book, EventSent, HeadSent, Record};
use crate::sim::script::Planned;
use crate::units::Nanos;

/// Bytes the kernel did not take yet, and the row to enter once it has.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    pub(super) bytes: Vec<u8>,
    pub(super) row: Row,
}

/// What a sent piece is called in the ledger.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum Row {
    #[default]
    None,
    Head {
        request: u64,
        planned: Nanos,
        bytes: u32,
    },
    Event {
        request: u64,
        planned: Planned,
        bytes: u32,
    },
}

/// The peer is gone: the socket gives an error.
pub(super) struct Gone;

impl Row {
    /// Enters it into the ledger, sent between these two readings of the clock.
    pub(super) fn enter(self, before: Nanos, after: Nanos, book: &mut Book) {
        match self {
            Self::None => {}
            Self::Head { request, planned, bytes } => {
                book.enter(&Record::HeadSent(HeadSent { request, planned, before, after, bytes }));
            }
            Self::Event { request, planned, bytes } => book.event(&EventSent {
                request,
                index: planned.index,
                kind: planned.kind,
                tokens: planned.tokens,
                planned: planned.due,
                before,
                after,
                bytes,
            }),
        }
    }
}

/// One send call between two clock readings. A full socket buffer is a call that took nothing.
pub(super) fn offer(mut stream: &TcpStream, bytes: &[u8]) -> (Nanos, Result<usize, Gone>, Nanos) {
    loop {
        let before = clock::monotonic();
        let result = stream.write(bytes);
        let after = clock::monotonic();
        let taken = match result {
            Ok(n) => Ok(n),
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(0),
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(_) => Err(Gone),
        };
        return (before, taken, after);
    }
}
