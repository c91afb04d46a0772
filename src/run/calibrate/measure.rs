//! One load, driven through the ordinary pipeline against a simulator of its own, and audited from the files that both
//! left: lines, chunks and the ledger.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use super::load::Load;
use crate::aggregate::chunk::OutputChunk;
use crate::aggregate::summary::Spread;
use crate::audit::{Bounded, Budget, ClientRequest, Mismatches, SeenChunk, Truth, TruthRequest, pair};
use crate::client::affinity;
use crate::config::calibrate_args::CalibrateSpec;
use crate::metrics::row::RequestRow;
use crate::report::calibration::{RowDoc, RowFacts};
use crate::report::document::RunDocument;
use crate::report::events::{Ending, EventsReader, RequestKey};
use crate::report::files::{RunFile, locate};
use crate::report::saved::SavedRun;
use crate::run::error::RunError;
use crate::run::{Carried, Control, carry_out};
use crate::units::{Nanos, PerSecond};

/// A connection that carried this many requests before was neither new nor the first kept one, which is watched for a
/// while before it is used again.
const SETTLED_USES: u32 = 2;

/// Why a load gave no row.
#[derive(Debug)]
pub(super) enum Halt {
    /// The operator wants it so.
    Interrupted,
    /// It could not be carried out.
    Failed(RunError),
}

/// Where the files of a load go.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// Of the run.
    pub(super) dir: PathBuf,
    /// Of the simulator's ledger.
    pub(super) ledger: PathBuf,
}

/// What a load came to.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) row: RowDoc,
    /// Bytes of all output events of the ledger.
    pub(super) output_bytes: u64,
    /// And how many these are.
    pub(super) output_events: u64,
    /// Events that share their reads with later ones, against their bounds.
    pub(super) censored: Bounded,
}

impl From<RunError> for Halt {
    fn from(error: RunError) -> Self {
        Self::Failed(error)
    }
}

impl Place {
    /// Below a directory, by name.
    pub(super) fn below(dir: &Path, name: &str) -> Self {
        Self { dir: dir.join(name), ledger: dir.join(format!("{name}.ledger")) }
    }

    /// Removes what a load left there.
    pub(super) fn clear(&self) {
        // What is left behind costs disk and nothing else.
        let _ = std::fs::remove_dir_all(&self.dir);
        let _ = std::fs::remove_file(&self.ledger);
    }
}

/// Measures a load. `cores` are all that this process may use: a run leaves the calling thread on some of them.
pub(super) fn measure(
    load: &Load,
    calibration: &CalibrateSpec,
    place: &Place,
    cores: &[usize],
    control: &mut Control,
) -> Result<Measured, Halt> {
    let spec = load.run_spec(calibration, &place.dir, &place.ledger).map_err(RunError::from)?;
    // Refused only where the cores were taken away meanwhile; then the run finds out which are left.
    let _ = affinity::pin_to(cores);
    // Between two runs nobody waits for one.
    if control.is_interrupted() {
        return Err(Halt::Interrupted);
    }
    let Carried { target, finish, .. } = carry_out(spec, control)?;
    // The simulator ends with its target, and its ledger is whole then.
    drop(target);
    if finish.document.interrupted {
        return Err(Halt::Interrupted);
    }
    Ok(audit(load, &finish.document, finish.worker_cpu, place)?)
}

fn audit(load: &Load, document: &RunDocument, cpu: Nanos, place: &Place) -> Result<Measured, RunError> {
    let truth = Truth::read(&place.ledger).map_err(unreadable)?;
    let saved = SavedRun::open(&place.dir).map_err(unreadable)?;
    let rows: Vec<RequestRow> = saved.rows.iter().collect();
    let (requests, ending) = client_side(&rows, &document.run_id, &place.dir)?;
    let zero = document.started_monotonic_ns.parse().map_err(unreadable)?;
    let pairing = pair(&requests, &truth, Nanos(zero));
    let budget = Budget::of(&pairing);
    let counts = &document.counts;
    let is_sound = truth.is_complete
        && ending == Ending::Complete
        && counts.ok == counts.planned
        && pairing.mismatches == Mismatches::default();
    let lags: Vec<Nanos> = rows.iter().filter_map(send_lag).collect();
    let events = pairing.chunks() as u64;
    let row = RowDoc::of(&RowFacts {
        streams: u64::from(load.streams),
        asked: load.rate,
        held: held_rate(load.streams, &truth.requests),
        budget: &budget,
        events,
        is_sound,
        instrument: &document.instrument,
        send_lag_us: Spread::of_micros(lags),
        cpu_us_per_event: (events > 0).then(|| cpu.as_micros_f64() / count(events)),
    });
    let output_events = truth.requests.iter().map(|request| request.outputs.len() as u64).sum();
    let censored = budget.censored;
    Ok(Measured { row, output_bytes: truth.output_bytes, output_events, censored })
}

/// Every request as the audit takes it, its chunks read block by block.
fn client_side<'a>(
    rows: &'a [RequestRow],
    run_id: &str,
    dir: &Path,
) -> Result<(Vec<ClientRequest<'a>>, Ending), RunError> {
    let mut requests: Vec<ClientRequest<'a>> = Vec::with_capacity(rows.len());
    let mut places = HashMap::new();
    for row in rows {
        places.insert(RequestKey::of(row), requests.len());
        let id = format!("{run_id}-{}", row.request_index);
        requests.push(ClientRequest { id, row, chunks: Vec::new() });
    }
    let path = locate(dir, RunFile::Events).map(|located| located.path).unwrap_or_default();
    let mut reader =
        EventsReader::new(BufReader::new(File::open(path).map_err(unreadable)?)).map_err(unreadable)?;
    while let Some(block) = reader.next_block().map_err(unreadable)? {
        if let Some(request) = places.get(&block.key).and_then(|place| requests.get_mut(*place)) {
            request.chunks.reserve_exact(block.chunks.len());
            request.chunks.extend(block.chunks.iter().map(seen));
        }
    }
    Ok((requests, reader.ending().unwrap_or(Ending::Cut { offset: 0 })))
}

fn seen(chunk: &OutputChunk) -> SeenChunk {
    SeenChunk {
        kind: chunk.kind,
        kernel: chunk.kernel,
        user: chunk.user,
        not_before: chunk.not_before,
        ends_read: chunk.ends_read,
    }
}

/// Events per second as they were really sent while the streams were open: over all streams the gaps that they had, over
/// the time that these took. A sender that cannot keep up makes them longer.
fn held_rate(streams: u32, requests: &[TruthRequest]) -> Option<PerSecond> {
    let (mut gaps, mut open) = (0_u64, Nanos(0));
    for request in requests {
        if let (Some(first), Some(last)) = (request.outputs.first(), request.outputs.last()) {
            gaps += request.outputs.len() as u64 - 1;
            open = Nanos(open.0.saturating_add(last.before.0.saturating_sub(first.before.0)));
        }
    }
    (open > Nanos(0)).then(|| PerSecond(count(gaps) * f64::from(streams) / open.as_secs_f64()))
}

/// How late a request followed the one before it; `None` where that was not up to the sending alone.
fn send_lag(row: &RequestRow) -> Option<Nanos> {
    (row.connection_use >= SETTLED_USES).then_some(row.send_start?.since(row.due)).flatten()
}

fn unreadable(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> RunError {
    RunError::System { what: "what was measured cannot be read back", source: io::Error::other(error) }
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn count(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::Sent;
    use crate::sim::ledger::EventKind;

    fn request(at_ms: &[i64]) -> TruthRequest {
        let sent = |ms: &i64| {
            let before = Nanos::from_millis(*ms);
            Sent { kind: EventKind::Content, before, after: before }
        };
        TruthRequest {
            id: None,
            arrival: Nanos(0),
            outputs: at_ms.iter().map(sent).collect(),
            terminal: None,
        }
    }

    #[test]
    fn a_rate_is_held_by_the_time_that_gaps_take() {
        let even = [request(&[0, 20, 40]), request(&[10, 30, 50])];
        assert_eq!(held_rate(2, &even), Some(PerSecond(100.0)));
        // The second round of the same two streams changes nothing, pauses between rounds neither.
        let rounds = [&even[..], &[request(&[1_000, 1_020]), request(&[1_010, 1_030])]].concat();
        assert_eq!(held_rate(2, &rounds), Some(PerSecond(100.0)));
        assert_eq!(held_rate(2, &[request(&[0, 25, 50]), request(&[10, 35, 60])]), Some(PerSecond(80.0)));
        assert_eq!(held_rate(2, &[request(&[5]), request(&[])]), None);
    }
}
