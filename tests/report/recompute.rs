//! What a saved run says, computed again: by our own code from the files, to the last digit, and by a second, tiny
//! implementation from the raw lines.

use std::collections::BTreeSet;
use std::io::BufReader;

use hammerscale::record::TransportFacts;
use hammerscale::report::events::{Ending, EventsWriter, RequestKey, RunEvents, events_jsonl};
use hammerscale::report::requests::RequestsWriter;
use hammerscale::report::requests::read::read_rows;
use hammerscale::units::Nanos;
use serde_json::Value;

use crate::fixture::{self, Run};
use crate::peers::counted;

pub(crate) fn requests_jsonl(run: &Run) -> Vec<u8> {
    let mut writer = RequestsWriter::new(Vec::new(), run.id());
    for row in &run.rows {
        writer.write(row).unwrap();
    }
    writer.into_inner()
}

pub(crate) fn events_bin(run: &Run) -> Vec<u8> {
    let mut writer = EventsWriter::new(Vec::new()).unwrap();
    for (row, chunks) in run.rows.iter().zip(&run.chunks) {
        writer.write(RequestKey::of(row), chunks).unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn a_saved_run_gives_the_same_document_to_the_last_digit() {
    for run in [
        fixture::normal(),
        fixture::cache_apart(),
        fixture::empty(),
        fixture::one_sample(),
        fixture::all_failed(),
        fixture::wide(),
        counted(),
    ] {
        let rows = read_rows(BufReader::new(&requests_jsonl(&run)[..])).unwrap();
        assert_eq!(rows.cut_line, None);
        let events = RunEvents::read(&events_bin(&run)[..]).unwrap();
        assert_eq!(events.ending(), Ending::Complete);
        let rows: Vec<_> = rows.rows.iter().collect();
        let again = run.summary_of(&rows, |_, row| events.of(RequestKey::of(row)).to_vec());
        assert_eq!(again, run.summary());
        assert_eq!(run.document_of(&again).to_json().unwrap(), run.document().to_json().unwrap());
    }
}

/// The definitions of the run document's specification, written down once more over JSON values.
#[test]
fn a_second_implementation_agrees_with_the_document() {
    let run = fixture::normal();
    let text = String::from_utf8(requests_jsonl(&run)).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let document: Value = serde_json::from_str(&run.document().to_json().unwrap()).unwrap();
    let measured: Vec<&Value> = lines.iter().filter(|l| l["phase"] != "warmup").collect();
    let ok: Vec<&Value> = measured.iter().copied().filter(|l| l["outcome"] == "ok").collect();
    assert_eq!((measured.len(), ok.len()), (60, 58));

    let since = |line: &Value, later: &str, earlier: &str| {
        Some((line[later].as_i64()? - line[earlier].as_i64()?) as f64 / 1e6)
    };
    let mut checked = 0;
    for (metric, later, earlier) in [
        ("time_to_first_byte_ms", "first_byte_ns", "send_start_ns"),
        ("time_to_first_event_ms", "first_event_ns", "send_start_ns"),
        ("time_to_first_output_ms", "first_output_ns", "send_start_ns"),
        ("time_to_first_output_wire_ms", "first_output_ns", "sent_wire_ns"),
        ("ttft_ms", "first_content_ns", "send_start_ns"),
        ("time_to_last_output_ms", "last_output_ns", "send_start_ns"),
        ("e2e_ms", "terminal_ns", "send_start_ns"),
        ("e2e_from_due_ms", "terminal_ns", "due_ns"),
        ("generation_ms", "terminal_ns", "first_output_ns"),
        ("send_lag_ms", "send_start_ns", "due_ns"),
        ("request_write_ms", "send_end_ns", "send_start_ns"),
    ] {
        let mut values: Vec<f64> = ok.iter().filter_map(|l| since(l, later, earlier)).collect();
        values.sort_by(f64::total_cmp);
        let block = &document["metrics"][metric];
        assert_eq!(block["count"], values.len(), "{metric}");
        for (name, thousandths) in
            [("p1", 10), ("p50", 500), ("p75", 750), ("p99", 990), ("p99_9", 999), ("max", 1000)]
        {
            let rank = (thousandths * values.len()).div_ceil(1000);
            assert_eq!(block[name], values[rank - 1], "{metric} {name}");
            checked += 1;
        }
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        assert!((block["mean"].as_f64().unwrap() - mean).abs() < 1e-9 * mean, "{metric}");
    }
    assert_eq!(checked, 66);

    let number = |line: &Value, key: &str| line[key].as_i64().unwrap();
    let start = measured.iter().map(|l| number(l, "due_ns")).min().unwrap();
    // What a connection waits for after the terminal is no part of the run.
    let over = |l: &Value| l["terminal_ns"].as_i64().unwrap_or_else(|| number(l, "end_ns"));
    let end = measured.iter().map(|l| over(l)).max().unwrap();
    let seconds = (end - start) as f64 / 1e9;
    assert_eq!(document["window"]["measured_s"], seconds);
    assert_eq!(document["rates"]["request_rate"], 58.0 / seconds);
    let output: i64 = ok.iter().map(|l| number(l, "output_tokens")).sum();
    assert_eq!(document["rates"]["output_tok_s"], output as f64 / seconds);
}

/// `docs/RESULTS.md` on where the time went, written down once more over JSON values.
#[test]
fn the_slowest_requests_follow_from_their_lines() {
    let mut run = fixture::normal();
    for row in run.rows.iter_mut().filter(|row| row.phase.name() == "measured") {
        match row.request_index % 20 {
            // Sent again for two seconds, not acknowledged for as long, stopped while the answer came, sent late.
            2 => (row.transport.retransmits, row.transport.unacked_us) = (Some(3), Some(900_000)),
            4 => row.transport.unacked_us = Some(1_100_000),
            6 => row.user.terminal = row.at.terminal.map(|at| Nanos(at.0 + 3_000 * fixture::MS)),
            9 => row.due = Nanos(row.due.0 - 1_300 * fixture::MS),
            11 => row.transport = TransportFacts::default(),
            _ => {}
        }
    }
    let text = String::from_utf8(requests_jsonl(&run)).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut expected: Vec<(i64, i64, [i64; 3])> = lines
        .filter(|line| line["outcome"] == "ok" && line["phase"] != "warmup")
        .map(|line| {
            let ns = |key: &str| line[key].as_i64().unwrap();
            let us = |key: &str| line[key].as_i64().unwrap_or(0) * 1_000;
            let end = line["terminal_ns"].as_i64().unwrap();
            let read = line["user"]["terminal_ns"].as_i64().unwrap();
            let held = match line["retransmits"].as_u64() {
                Some(1..) => 0,
                _ => us("rtt_us").max(40 * fixture::MS),
            };
            let way = us("rtt_us").max(us("unacked_us") - held).min(end - ns("send_start_ns"));
            let connecting = match (line["connect_start_ns"].as_i64(), line["connect_ns"].as_i64()) {
                (Some(begun), Some(took)) => took.min(ns("send_start_ns") - begun.max(ns("due_ns"))),
                _ => 0,
            };
            let waited = read - ns("due_ns");
            let writing = (ns("send_end_ns") - ns("send_start_ns") - way).max(0);
            let client = ns("send_start_ns") - ns("due_ns") - connecting + writing + (read - end);
            let network = connecting + way;
            (-waited, ns("request_index"), [client, network, waited - client - network])
        })
        .collect();
    expected.sort_unstable();
    let document = run.document();
    assert_eq!(document.slowest.len(), 10);
    let mut labels = BTreeSet::new();
    for ((waited, index, parts), slow) in expected.into_iter().zip(&document.slowest) {
        assert_eq!(slow.request_index, index.unsigned_abs());
        let said = [slow.client_ms, slow.network_ms, slow.server_ms].map(f64::to_bits);
        assert_eq!(said, parts.map(|ns| (ns as f64 / 1e6).to_bits()), "{index}: {slow:?} {parts:?}");
        let names = ["client", "network", "server"].iter().zip(parts);
        let half = names.filter(|(_, part)| part * 2 >= -waited).max_by_key(|(_, part)| *part);
        assert_eq!(slow.label, half.map_or("mixed", |(name, _)| name), "{index}");
        labels.insert(slow.label.clone());
    }
    assert!(labels.len() >= 3, "{labels:?}");
}

/// Whichever way a server counts the tokens of its cache, the run is the same; only that way is told.
#[test]
fn how_a_cache_is_counted_changes_no_number() {
    let document = |run: &Run| -> Value { serde_json::from_str(&run.document().to_json().unwrap()).unwrap() };
    let (within, mut apart) = (document(&fixture::normal()), document(&fixture::cache_apart()));
    let cached = &mut apart["tokens"]["cached"];
    assert_eq!((&cached["created"], &cached["counted_apart"]), (&(58 * 300).into(), &58.into()));
    (cached["created"], cached["counted_apart"]) = (Value::Null, 0.into());
    assert_eq!(apart, within);
    let hit = &within["metrics"]["prefix_cache_hit"];
    assert_eq!(
        (hit["max"].as_f64(), &within["metrics"]["prompt_tokens"]["p50"]),
        (Some(16.0 / 516.0), &516.0.into())
    );
}

/// Sums over the lines, key by key, and oddities by their definitions.
#[test]
fn what_was_counted_per_request_is_in_the_sums() {
    let mut run = counted();
    let odd = fixture::full_row();
    run.chunks.push(Vec::new());
    run.rows.push(odd);
    for row in &mut run.rows {
        match row.request_index % 10 {
            3 => (row.at.terminal, row.user.terminal) = (None, None),
            4 => row.finish_reasons.clear(),
            5 => row.streamed_unasked = true,
            6 => row.usage.reasoning_tokens = Some(2),
            _ => {}
        }
    }
    let text = String::from_utf8(requests_jsonl(&run)).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let measured: Vec<Value> = lines.filter(|line| line["phase"] != "warmup").collect();
    let document: Value = serde_json::from_str(&run.document().to_json().unwrap()).unwrap();
    let stream = document["stream"].as_object().unwrap();
    let mut above_zero = 0;
    for (key, sum) in stream.iter().filter(|(_, value)| !value.is_object()) {
        let own: u64 = measured.iter().map(|line| line[key].as_u64().unwrap()).sum();
        assert_eq!(*sum, own, "{key}");
        above_zero += usize::from(own > 0);
    }
    assert!(above_zero > 12, "{above_zero} of {}", stream.len());
    // Every count of a line that is no number of a token, a stamp or a name has its sum.
    let counts = ["events", "reads", "chunks", "comments", "bytes", "after_done", "sent", "received"];
    for key in measured[0].as_object().unwrap().keys() {
        if counts.iter().any(|end| key.ends_with(end)) {
            assert!(stream.contains_key(key), "{key}");
        }
    }
    let complete = |line: &&Value| {
        let outcomes = ["ok", "no_output", "canary_failed", "controlled_output_failed"];
        outcomes.contains(&line["outcome"].as_str().unwrap()) && line["events"] != 0
    };
    let is = |key: &'static str| move |line: &&Value| line[key] == true;
    let hidden = |line: &&Value| {
        line["reasoning_tokens"].as_u64().is_some_and(|n| n > 0) && line["reasoning_chunks"] == 0
    };
    let all = || measured.iter();
    for (key, own) in [
        ("missing_done", all().filter(complete).filter(|line| line["terminal_ns"].is_null()).count()),
        (
            "missing_finish_reason",
            all().filter(complete).filter(|line| line["finish_reasons"] == serde_json::json!({})).count(),
        ),
        ("cut_after_terminal", all().filter(is("cut_after_terminal")).count()),
        ("streamed_unasked", all().filter(is("streamed_unasked")).count()),
        ("role_chunk_first", all().filter(is("role_chunk_first")).count()),
        ("several_choices", all().filter(is("several_choices")).count()),
        ("hidden_reasoning", all().filter(hidden).count()),
    ] {
        assert!(own > 0, "{key}");
        assert_eq!(stream["requests"][key], own, "{key}");
    }
    assert_eq!(stream["requests"].as_object().unwrap().len(), 7);
    assert_eq!(stream["anomalies"], serde_json::json!({"eof_before_final_crlf": 1, "obs_fold": 1}));
}

#[test]
fn the_audit_lines_hold_every_output_chunk() {
    let run = fixture::normal();
    let events = RunEvents::read(&events_bin(&run)[..]).unwrap();
    let mut text = Vec::new();
    events_jsonl(&run.rows, &events, &mut text).unwrap();
    let lines: Vec<Value> =
        String::from_utf8(text).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let measured: Vec<_> =
        run.rows.iter().zip(&run.chunks).filter(|(row, _)| row.phase.name() != "warmup").collect();
    assert_eq!(lines.len(), measured.len());
    for (line, (row, chunks)) in lines.iter().zip(measured) {
        assert_eq!(line["request_index"], row.request_index);
        let (at, exact) = (line["at_ns"].as_array().unwrap(), line["exact"].as_array().unwrap());
        assert_eq!((at.len(), exact.len()), (chunks.len(), chunks.len()));
        assert_eq!(
            exact.iter().filter(|e| **e == false).count(),
            chunks.iter().filter(|c| !c.ends_read).count()
        );
        if let Some(first) = row.at.first_output {
            assert_eq!(at.first().unwrap(), first.0);
            assert_eq!(at.last().unwrap(), row.at.last_output.unwrap().0);
        }
    }
}
