//! The simulator's side of a run: as much of its ledger as the audit takes, read record by record.
//!
//! A ledger holds every event with everything about it; a calibration has a million of them. Here an output event is its
//! kind and the two instants of its send call, 24 bytes, and the events that carry no output are not kept at all, except
//! the terminal.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use crate::sim::ledger::{EventKind, EventSent, LedgerError, LedgerReader, Record, RequestArrived, Service};
use crate::units::Nanos;

/// How much of a ledger is read at once.
const BUFFER_BYTES: usize = 1 << 20;

/// What the simulator did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Truth {
    /// Requests of the plan in their order of arrival. The model list, the health check and counts of tokens are asked
    /// outside it and are not here.
    pub requests: Vec<TruthRequest>,
    /// Bytes of all output events on the wire, chunk framing included.
    pub output_bytes: u64,
    /// The simulator ended in order, so that nothing is missing.
    pub is_complete: bool,
}

/// A request as the simulator saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TruthRequest {
    /// What it carried as `X-Request-Id`.
    pub id: Option<String>,
    /// Right after the receive call that brought its last byte.
    pub arrival: Nanos,
    /// Events with model output, in the order they were sent.
    pub outputs: Vec<Sent>,
    /// The event that ended the stream; `None` when it was not sent.
    pub terminal: Option<Sent>,
}

/// One send call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// What its event was.
    pub kind: EventKind,
    /// Right before the call: the truth of the event's arrival.
    pub before: Nanos,
    /// Right after it.
    pub after: Nanos,
}

impl Truth {
    /// Reads a ledger. Memory grows with the output events, 24 bytes each.
    ///
    /// # Errors
    /// [`LedgerError`]; a ledger that was merely cut short is not complete and no error.
    pub fn read(path: &Path) -> Result<Self, LedgerError> {
        let file = File::open(path).map_err(|source| LedgerError::File { path: path.to_owned(), source })?;
        Self::from_reader(BufReader::with_capacity(BUFFER_BYTES, file))
    }

    /// Reads a ledger from anything.
    ///
    /// # Errors
    /// As [`Truth::read`].
    pub fn from_reader(input: impl Read) -> Result<Self, LedgerError> {
        let mut reader = LedgerReader::new(input)?;
        let mut truth = Self { requests: Vec::new(), output_bytes: 0, is_complete: false };
        // By number; a number that is not here is that of a request outside the plan.
        let mut places: HashMap<u64, usize> = HashMap::new();
        while let Some(record) = reader.next_record()? {
            match record {
                Record::RequestArrived(arrived) if is_planned(arrived.service) => {
                    places.insert(arrived.number, truth.requests.len());
                    truth.requests.push(TruthRequest::of(arrived));
                }
                Record::EventSent(event) => {
                    let request = places.get(&event.request).and_then(|place| truth.requests.get_mut(*place));
                    if let Some(request) = request {
                        request.add(&event);
                        let is_output = event.kind.is_output();
                        truth.output_bytes += if is_output { u64::from(event.bytes) } else { 0 };
                    }
                }
                Record::End(_) => truth.is_complete = true,
                _ => {}
            }
        }
        truth.is_complete &= reader.cut_bytes() == 0;
        Ok(truth)
    }
}

impl TruthRequest {
    fn of(arrived: RequestArrived) -> Self {
        let RequestArrived { request_id, arrival, content_tokens, reasoning_tokens, .. } = arrived;
        // At most one event per token; what the ledger promises is not believed beyond a page of events.
        let expected = usize::try_from(content_tokens.saturating_add(reasoning_tokens)).unwrap_or(0);
        Self { id: request_id, arrival, outputs: Vec::with_capacity(expected.min(1_024)), terminal: None }
    }

    fn add(&mut self, event: &EventSent) {
        let sent = Sent { kind: event.kind, before: event.before, after: event.after };
        if event.kind.is_output() {
            self.outputs.push(sent);
        } else if event.kind == EventKind::Done {
            self.terminal = Some(sent);
        }
    }
}

fn is_planned(service: Service) -> bool {
    match service {
        Service::Chat
        | Service::Completions
        | Service::Responses
        | Service::Messages
        | Service::Embeddings
        | Service::Refused => true,
        Service::Models | Service::Health | Service::Tokenize => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::testing::{CALL, ZERO, ledger_bytes};

    #[test]
    fn of_a_ledger_the_outputs_and_the_terminal_are_kept() {
        let bytes = ledger_bytes(Some("r-0"), &[1_000, 2_000], true);
        let truth = Truth::from_reader(bytes.as_slice()).unwrap();
        assert!(truth.is_complete);
        assert_eq!(truth.output_bytes, 2 * 200);
        let [request] = truth.requests.as_slice() else { panic!("{truth:?}") };
        assert_eq!(request.id.as_deref(), Some("r-0"), "the list of models is not of the plan");
        let at = |ns: i64| Nanos(ZERO.0 + ns);
        let before: Vec<Nanos> = request.outputs.iter().map(|sent| sent.before).collect();
        assert_eq!(before, [at(1_000), at(2_000)], "the role chunk is no output");
        let terminal = request.terminal.unwrap();
        assert_eq!((terminal.before, terminal.after), (at(2_000 + CALL), at(2_000 + 2 * CALL)));
    }

    #[test]
    fn a_ledger_that_was_cut_is_not_complete() {
        let whole = ledger_bytes(Some("r-0"), &[1_000, 2_000], true);
        let without_end = ledger_bytes(Some("r-0"), &[1_000, 2_000], false);
        for bytes in [&without_end[..], &whole[..whole.len() - 1]] {
            let truth = Truth::from_reader(bytes).unwrap();
            assert!(!truth.is_complete);
            assert_eq!(truth.requests[0].outputs.len(), 2);
        }
        assert!(Truth::from_reader(&b"HSLEDGER"[..]).is_err());
    }
}
