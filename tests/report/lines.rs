//! `requests.jsonl` line by line: every key, odd texts, cut files, files that are something else.

use std::io::BufReader;

use hammerscale::metrics::row::RequestRow;
use hammerscale::record::{ErrorDetail, Outcome, TransportFacts};
use hammerscale::report::requests::read::{MAX_LINE_BYTES, ReadError, Rows, read_rows};
use hammerscale::report::requests::{RequestLine, RequestsWriter};
use proptest::prelude::*;
use serde_json::Value;

use crate::fixture;

fn line_of(row: &RequestRow) -> String {
    let mut writer = RequestsWriter::new(Vec::new(), fixture::empty().id());
    writer.write(row).unwrap();
    String::from_utf8(writer.into_inner()).unwrap()
}

fn read(bytes: &[u8]) -> Result<Rows, ReadError> {
    read_rows(BufReader::new(bytes))
}

/// The keys of sections 1 and 5 of the run document's specification.
const SPECIFIED: &str = "request_index request_id slot worker connection_id connection_use phase outcome http_status \
    due_ns dns_ns connect_ns tls_ns send_start_ns send_end_ns first_byte_ns head_done_ns first_event_ns first_output_ns \
    first_output_kind first_reasoning_ns first_content_ns first_tool_call_ns last_output_ns terminal_ns end_ns user \
    stamp_source events reads output_chunks content_chunks reasoning_chunks tool_call_chunks refusal_chunks \
    coalesced_chunks bytes_sent bytes_received body_bytes prompt_tokens output_tokens output_token_source \
    reasoning_tokens cached_tokens finish_reasons planned_context_tokens requested_max_tokens canary controlled_output \
    error malformed_events cut_after_terminal reused connection_retries cache_creation_tokens cache_counted_apart \
    streamed_unasked anomalies";

#[test]
fn every_line_has_every_key() {
    let mut bare = fixture::full_row();
    (bare.send_start, bare.send_end, bare.at, bare.user) =
        (None, None, Default::default(), Default::default());
    (bare.canary, bare.controlled_output, bare.error) = (None, None, None);
    bare.outcome = Outcome::Cancelled;
    for row in [fixture::full_row(), bare] {
        let text = line_of(&row);
        assert_eq!(text.matches('\n').count(), 1);
        let line: Value = serde_json::from_str(&text).unwrap();
        for key in SPECIFIED.split_whitespace() {
            assert!(line.get(key).is_some(), "{key}");
        }
        for stamp in
            ["first_byte_ns", "head_done_ns", "first_event_ns", "first_output_ns", "last_output_ns", "end_ns"]
        {
            assert!(line["user"].get(stamp).is_some(), "{stamp}");
        }
    }
}

#[test]
fn the_values_stand_under_their_keys() {
    let line: Value = serde_json::from_str(&line_of(&fixture::full_row())).unwrap();
    for (key, expected) in [
        ("request_id", "\"20260917T172104Z-3f9a1c2e-5\""),
        ("phase", "\"drain\""),
        ("reused", "false"),
        ("finish_reasons", r#"{"0":"stop","1":"length"}"#),
        ("first_output_kind", "\"content\""),
        ("stamp_source", "\"kernel\""),
        ("output_token_source", "\"usage\""),
        ("anomalies", r#"["eof_before_final_crlf","obs_fold"]"#),
        ("dns_ns", "5000"),
        ("due_ns", "1000000"),
    ] {
        assert_eq!(line[key].to_string(), expected, "{key}");
    }
    assert_eq!(line["controlled_output"]["policy"], "strict");
    assert_eq!(line["controlled_output"]["exact_adherence"], Value::Null);
    assert_eq!(line["canary"]["marker"], "ANVIL_REQ_0_00005");
    assert_eq!(line["error"]["class"], "ok");
    assert_eq!(line["error"]["detail"], "event 3 is no JSON");
    assert_eq!(line["error"]["body_start"], "data: {");
}

#[test]
fn the_last_of_several_finish_reasons_of_a_choice_stands() {
    let mut row = fixture::full_row();
    row.finish_reasons = [(3, "a"), (0, "b"), (3, "c")].map(|(c, r)| (c, r.to_owned())).into();
    let line: Value = serde_json::from_str(&line_of(&row)).unwrap();
    assert_eq!(line["finish_reasons"].to_string(), r#"{"0":"b","3":"c"}"#);
}

#[test]
fn a_row_survives_its_line() {
    for row in fixture::normal().rows.iter().chain([&fixture::full_row(), &fixture::wide().rows[0]]) {
        let again: Vec<_> = read(line_of(row).as_bytes()).unwrap().rows.iter().collect();
        assert!(again.iter().eq([row]));
    }
}

/// A line of before there were stamps of sent requests.
#[test]
fn an_older_line_has_no_stamp_of_sending_and_no_counts_of_the_kernel() {
    let row = fixture::normal().rows.swap_remove(5);
    assert!(row.sent_wire.is_some() && row.transport.rtt_us.is_some());
    let mut line: serde_json::Map<String, Value> = serde_json::from_str(&line_of(&row)).unwrap();
    for key in ["sent_wire_ns", "rtt_us", "retransmits", "unacked_us"] {
        assert!(line.remove(key).is_some(), "{key}");
    }
    let read = read(format!("{}\n", Value::Object(line)).as_bytes()).unwrap().rows.iter().next().unwrap();
    assert_eq!((read.sent_wire, read.transport), (None, TransportFacts::default()));
    assert_eq!(read.send_end, row.send_end);
}

#[test]
fn a_cut_file_is_read_up_to_the_cut() {
    let (one, two) = (line_of(&fixture::full_row()), line_of(&fixture::wide().rows[1]));
    let whole = format!("{one}{two}");
    for cut in 0..whole.len() {
        let rows = read(&whole.as_bytes()[..cut]).unwrap();
        let complete = usize::from(cut + 1 >= one.len()) + usize::from(cut + 1 >= whole.len());
        let whole_lines = [0, one.len() - 1, one.len(), whole.len() - 1].contains(&cut);
        assert_eq!(rows.rows.len(), complete, "cut at {cut}");
        assert_eq!(rows.cut_line.is_none(), whole_lines, "cut at {cut}");
    }
}

#[test]
fn what_is_no_request_is_named_by_its_line() {
    let good = line_of(&fixture::full_row());
    let unknown = good.replace("\"outcome\":\"ok\"", "\"outcome\":\"sublime\"");
    for (bad, word) in [
        ("{}\n", "missing field"),
        ("nonsense\n", "expected"),
        (unknown.as_str(), "outcome has the unknown value \"sublime\""),
        (&good.replace("\"0\":\"stop\"", "\"x\":\"stop\""), "no choice index"),
        (&good.replace("\"obs_fold\"", "\"of_tomorrow\""), "anomalies has the unknown value"),
        (&good.replace("\"policy\":\"strict\"", "\"policy\":\"lax\""), "lax"),
    ] {
        let text = format!("{good}\n{bad}{good}");
        let error = read(text.as_bytes()).unwrap_err();
        assert!(matches!(&error, ReadError::Line { line: 3, reason } if reason.contains(word)), "{error}");
    }
    let newer = good.replacen('{', "{\"of_tomorrow\":{\"a\":[]},", 1);
    assert_eq!(read(newer.as_bytes()).unwrap().rows.len(), 1);
    let endless = vec![b'['; MAX_LINE_BYTES + 1];
    assert!(matches!(read(&endless), Err(ReadError::TooLong { line: 1 })));
}

#[test]
fn a_full_disk_is_an_error_and_no_panic() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut writer = RequestsWriter::new(full, fixture::empty().id());
    let error = writer.write(&fixture::full_row()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
}

proptest! {
    #[test]
    fn any_text_makes_a_line_that_comes_back(
        message: String, code: Option<String>, location: Option<String>, body_start: Vec<u8>, offset: Option<u64>,
        reason: String, marker: String,
    ) {
        let mut row = fixture::full_row();
        row.finish_reasons = vec![(0, reason)];
        row.canary.as_mut().unwrap().marker = marker;
        row.error = Some(ErrorDetail { message, offset, code, error_type: None, retry_after: None, location, body_start });
        let text = line_of(&row);
        prop_assert_eq!(text.matches('\n').count(), 1);
        let again: RequestLine<'_> = serde_json::from_str(&text).unwrap();
        let again = again.into_row().unwrap();
        // Bytes that are not UTF-8 are replaced; everything else survives, an empty detail as none.
        let mut expected = row;
        let detail = expected.error.as_mut().unwrap();
        detail.body_start = String::from_utf8_lossy(&detail.body_start).into_owned().into_bytes();
        if *detail == ErrorDetail::default() {
            expected.error = None;
        }
        prop_assert_eq!(format!("{again:?}"), format!("{expected:?}"));
    }

    #[test]
    fn any_bytes_are_an_answer(bytes: Vec<u8>) {
        let _answer = read(&bytes);
        let mut tail = line_of(&fixture::full_row()).into_bytes();
        tail.extend_from_slice(&bytes);
        if let Ok(rows) = read(&tail) {
            prop_assert!(!rows.rows.is_empty());
        }
    }
}
