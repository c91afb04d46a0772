//! Every response of the shared suite, under every cut: the reading must be the expected one each time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

mod http_reading;

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hammerscale::wire::http1::{Category, Framing, HttpError, Method, ResponseDecoder};
use http_reading::{End, Pairs, Reading, bytewise, read};
use serde_json::Value;

/// Inputs below this size are also cut in three at every pair of positions.
const THREE_WAY_BELOW: usize = 64;

struct Case {
    name: String,
    method: Method,
    input: Vec<u8>,
    eof: bool,
    chunkings: Vec<Vec<usize>>,
    json: Value,
}

fn cases() -> Vec<Case> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/http/cases.json");
    let all: Vec<Value> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    all.into_iter()
        .map(|json| Case {
            name: json["name"].as_str().unwrap().to_owned(),
            method: Method::from_name(json["request_method"].as_str().unwrap()).unwrap(),
            input: decode(&json["input_b64"]),
            eof: json["peer_closes_after_input"].as_bool().unwrap(),
            chunkings: json["chunkings"].as_array().unwrap().iter().map(lengths).collect(),
            json,
        })
        .collect()
}

fn decode(text: &Value) -> Vec<u8> {
    STANDARD.decode(text.as_str().unwrap()).unwrap()
}

fn lengths(list: &Value) -> Vec<usize> {
    list.as_array().unwrap().iter().map(|n| usize::try_from(n.as_u64().unwrap()).unwrap()).collect()
}

/// Positions of the cuts behind pieces of these lengths; what is left is the last piece.
fn cuts_of(lengths: &[usize], input: &[u8]) -> Vec<usize> {
    let ends = lengths.iter().scan(0, |at, n| {
        *at += n;
        Some(*at)
    });
    ends.filter(|&at| at <= input.len()).collect()
}

#[test]
fn the_suite_is_whole() {
    let cases = cases();
    assert_eq!(cases.len(), 197);
    let class = |wanted: &str| cases.iter().filter(|c| c.json["class"] == wanted).count();
    assert_eq!((class("valid"), class("invalid"), class("optional")), (97, 64, 36));
}

#[test]
fn every_case_reads_as_expected_whole() {
    let mut decoder = ResponseDecoder::new();
    let failures: Vec<_> = cases()
        .iter()
        .filter_map(|case| {
            let reading = read(&mut decoder, case.method, &case.input, &[], case.eof);
            judge(case, &reading).err().map(|why| format!("{}: {why}", case.name))
        })
        .collect();
    assert!(failures.is_empty(), "{} cases:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn every_case_reads_the_same_under_every_cut() {
    let cases = cases();
    // Two threads: the large heads cost a gigabyte of copying.
    let (even, odd): (Vec<_>, Vec<_>) = cases.iter().enumerate().partition(|(i, _)| i % 2 == 0);
    std::thread::scope(|scope| {
        for half in [even, odd] {
            scope.spawn(move || half.iter().for_each(|(_, case)| check_cuts(case)));
        }
    });
}

fn check_cuts(case: &Case) {
    let mut decoder = ResponseDecoder::new();
    let whole = read(&mut decoder, case.method, &case.input, &[], case.eof);
    let mut check = |cuts: &[usize]| {
        let reading = read(&mut decoder, case.method, &case.input, cuts, case.eof);
        assert_eq!(reading, whole, "{} cut at {cuts:?}", case.name);
    };
    check(&bytewise(&case.input));
    for lengths in &case.chunkings {
        check(&cuts_of(lengths, &case.input));
    }
    for first in 0..=case.input.len() {
        check(&[first]);
        if case.input.len() < THREE_WAY_BELOW {
            (first..=case.input.len()).for_each(|second| check(&[first, second]));
        }
    }
}

#[test]
fn every_category_of_the_suite_is_met() {
    let expected: BTreeSet<_> = [
        Category::BadStatusLine,
        Category::BadHeader,
        Category::BadContentLength,
        Category::UnsupportedTransferCoding,
        Category::UnexpectedUpgrade,
        Category::BadChunk,
        Category::BadTrailer,
        Category::TruncatedBody,
        Category::UnexpectedEof,
        Category::Limit,
    ]
    .into();
    let mut decoder = ResponseDecoder::new();
    let met: BTreeSet<_> = cases()
        .iter()
        .filter_map(|case| read(&mut decoder, case.method, &case.input, &[], case.eof).error())
        .map(|error| error.category())
        .collect();
    assert_eq!(met, expected);
}

#[test]
fn recorded_answers_of_real_servers_are_read_whole() {
    // Each file holds one or more raw answers, between the lines that say what was asked and how it ended.
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/engines");
    let mut decoder = ResponseDecoder::new();
    let mut answers = 0;
    let mut incomplete = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read(&path).unwrap();
        let starts: Vec<_> = memchr::memmem::find_iter(&text, b"HTTP/1.1 ")
            .filter(|&at| at == 0 || text[at - 1] == b'\n')
            .chain([text.len()])
            .collect();
        for between in starts.windows(2) {
            let input = &text[between[0]..between[1]];
            let report = memchr::memmem::find(input, b"curl: (18)").unwrap_or(input.len());
            let input = &input[..report];
            let whole = read(&mut decoder, Method::Post, input, &[], false);
            assert_eq!(read(&mut decoder, Method::Post, input, &bytewise(input), false), whole, "{name}");
            answers += 1;
            if whole.end != End::Complete {
                let error = read(&mut decoder, Method::Post, input, &[], true).error().unwrap();
                incomplete.push((name.clone(), error));
                continue;
            }
            assert_eq!(whole.reusable, whole.keep_alive, "{name}");
            // In plain bodies paths were shortened after the recording, so that their lengths do not tell.
            if whole.head.unwrap().framing == Framing::Chunked {
                let left = String::from_utf8_lossy(&whole.leftover);
                let asks = left.trim_start();
                assert!(asks.is_empty() || asks.starts_with("#####"), "{name}: {asks:?}");
                let events = whole.body.ends_with(b"\n\n") && !whole.body.contains(&b'\r');
                assert!(events, "{name}: no chunk line is left in the events");
            }
        }
    }
    assert_eq!(answers, 42);
    incomplete.sort_by(|a, b| a.0.cmp(&b.0));
    // The fault is the server's; of the metrics pages only the first lines were kept.
    let expected = [
        ("llmock-fault-disconnect.txt", HttpError::EofInChunkLine),
        ("vllm.txt", HttpError::EofInBody),
        ("xllamacpp.txt", HttpError::EofInBody),
    ];
    assert_eq!(incomplete, expected.map(|(name, error)| (name.to_owned(), error)));
}

/// Compares a reading with what the case expects.
fn judge(case: &Case, reading: &Reading) -> Result<(), String> {
    let json = &case.json;
    let at_limit = reading.error().is_some_and(|e| e.category() == Category::Limit);
    if json.get("limit").is_some() && at_limit {
        return Ok(());
    }
    let rejected = json["class"] == "invalid" || json["recommended"] == "reject";
    if rejected {
        let expected = if json["class"] == "invalid" { &json["expect"] } else { &json["expect_alt"] };
        return judge_error(expected, reading);
    }
    judge_reading(&json["expect"], reading)?;
    let flags: Vec<_> = reading.anomalies.iter().map(|a| a.name()).collect();
    same("flags", &Value::from(flags), json.get("flags").unwrap_or(&Value::Array(Vec::new())))
}

fn judge_error(expected: &Value, reading: &Reading) -> Result<(), String> {
    let End::Error(error, _) = reading.end else { return Err(format!("no error: {reading:?}")) };
    same("category", &error.category().name().into(), &expected["error"])?;
    same("rule", &error.rule().into(), &expected["rule"])
}

fn judge_reading(expected: &Value, reading: &Reading) -> Result<(), String> {
    let (End::Complete, Some(head)) = (reading.end, &reading.head) else {
        return Err(format!("not complete: {:?}", reading.end));
    };
    let encode = |bytes: &[u8]| Value::from(STANDARD.encode(bytes));
    let pairs =
        |pairs: &Pairs| pairs.iter().map(|(n, v)| serde_json::json!([latin1(n), latin1(v)])).collect();
    same("status", &head.status.into(), &expected["status"])?;
    same("version", &head.version.clone().into(), &expected["version"])?;
    same("reason", &latin1(&head.reason).into(), &expected["reason"])?;
    same("headers", &pairs(&head.headers), &expected["headers"])?;
    same("framing", &head.framing.name().into(), &expected["framing"])?;
    same("interim", &reading.interim.clone().into(), &expected["interim"])?;
    same("trailers", &pairs(&reading.trailers), &expected["trailers"])?;
    same("body", &encode(&reading.body), &expected["body_b64"])?;
    same("leftover", &encode(&reading.leftover), &expected["leftover_b64"])?;
    same("keep_alive", &reading.keep_alive.into(), &expected["keep_alive"])
}

/// The case files write field bytes as the characters of ISO 8859-1.
fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|&b| char::from(b)).collect()
}

fn same(what: &str, got: &Value, expected: &Value) -> Result<(), String> {
    if got == expected { Ok(()) } else { Err(format!("{what}: got {got}, expected {expected}")) }
}
