//! The ledger as JSON lines, for people and their tools. Never used while the simulator runs.

use std::io::{self, Read, Write};

use serde_json::{Value, json};

use super::{Header, LedgerError, LedgerReader, Record};

/// Writes one JSON object per record, the header first. Instants are integers, CLOCK_MONOTONIC nanoseconds. Returns
/// whether the ledger is complete; of one that was cut short everything before the cut is written.
///
/// # Errors
/// [`LedgerError`] when the input is damaged or the output cannot be written.
pub fn dump_json_lines(input: impl Read, output: &mut impl Write) -> Result<bool, LedgerError> {
    let mut reader = LedgerReader::new(input)?;
    write_line(output, &header_line(&reader.header()))?;
    let mut complete = false;
    while let Some(record) = reader.next_record()? {
        complete = matches!(record, Record::End(_));
        write_line(output, &line(&record))?;
    }
    output.flush()?;
    Ok(complete)
}

fn write_line(output: &mut impl Write, line: &Value) -> io::Result<()> {
    serde_json::to_writer(&mut *output, line)?;
    output.write_all(b"\n")
}

fn header_line(h: &Header) -> Value {
    json!({
        "record": "header", "version": h.version, "seed": h.seed, "pid": h.pid, "monotonic_ns": h.monotonic.0,
        // Above 2^53, so a string.
        "realtime_ns": h.realtime.0.to_string(),
    })
}

fn line(record: &Record) -> Value {
    match record {
        Record::ConnectionOpened(r) => json!({
            "record": "connection_opened", "connection": r.number, "at_ns": r.at.0, "peer": r.peer.to_string(),
        }),
        Record::RequestArrived(r) => json!({
            "record": "request_arrived", "request": r.number, "connection": r.connection,
            "connection_use": r.connection_use, "arrival_ns": r.arrival.0, "service": r.service.name(),
            "status": r.status, "stream": r.stream, "prompt_bytes": r.prompt_bytes,
            "planned": {"prompt": r.prompt_tokens, "reasoning": r.reasoning_tokens, "content": r.content_tokens},
            "request_id": r.request_id, "model": r.model,
        }),
        Record::HeadSent(r) => json!({
            "record": "head_sent", "request": r.request, "planned_ns": r.planned.0, "before_ns": r.before.0,
            "after_ns": r.after.0, "bytes": r.bytes,
        }),
        Record::EventSent(r) => json!({
            "record": "event_sent", "request": r.request, "index": r.index, "kind": r.kind.name(), "tokens": r.tokens,
            "planned_ns": r.planned.0, "before_ns": r.before.0, "after_ns": r.after.0, "bytes": r.bytes,
        }),
        Record::RequestEnded(r) => json!({
            "record": "request_ended", "request": r.number, "at_ns": r.at.0, "ending": r.ending.name(),
        }),
        Record::ConnectionClosed(r) => json!({
            "record": "connection_closed", "connection": r.number, "at_ns": r.at.0, "by": r.by.name(),
        }),
        Record::End(t) => json!({
            "record": "end", "connections": t.connections, "requests": t.requests, "events": t.events,
        }),
    }
}
