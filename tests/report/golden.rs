//! Documents and terminal summaries of six runs, byte for byte.

use std::fs;
use std::path::Path;

use hammerscale::report::document::{DocumentError, RunDocument, SCHEMA};
use hammerscale::report::terminal::{layout::Style, render};

use hammerscale::report::validity::PrewarmFacts;
use hammerscale::units::{Nanos, display};

use crate::fixture::{self, Run};
use crate::peers::counted;

fn cases() -> [(&'static str, Run); 6] {
    [
        ("normal", fixture::normal()),
        ("empty", fixture::empty()),
        ("one_sample", fixture::one_sample()),
        ("all_failed", fixture::all_failed()),
        ("wide", fixture::wide()),
        ("counted", counted()),
    ]
}

fn check(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("HAMMERSCALE_BLESS").is_some() {
        fs::write(&path, text).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    if let Some((line, (is, was))) = text.lines().zip(golden.lines()).enumerate().find(|(_, (a, b))| a != b) {
        panic!("{name}, line {}:\n  is  {is}\n  was {was}", line + 1);
    }
    assert_eq!(text, golden, "{name}");
}

#[test]
fn documents_are_as_they_were() {
    for (name, run) in cases() {
        check(&format!("{name}.json"), &run.document().to_json().unwrap());
    }
}

#[test]
fn summaries_are_as_they_were() {
    for (name, run) in cases() {
        check(&format!("{name}.txt"), &render(&run.document(), Some(&run.files()), Style::PLAIN));
    }
}

#[test]
fn a_document_is_read_back_whole_and_a_newer_minor_version_too() {
    for (name, run) in cases() {
        let document = run.document();
        let text = document.to_json().unwrap();
        assert_eq!(RunDocument::from_json(&text).unwrap(), document, "{name}");
        let newer = text.replacen(SCHEMA, "hammerscale.run/1.99", 1).replacen(
            "\"run_id\"",
            "\"of_tomorrow\": {\"x\": [1]},\n  \"run_id\"",
            1,
        );
        assert_eq!(RunDocument::from_json(&newer).unwrap().counts, document.counts, "{name}");
    }
    for other in ["hammerscale.run/2.0", "anvil-serving.benchmark/v1", "hammerscale.run"] {
        let text = fixture::empty().document().to_json().unwrap().replacen(SCHEMA, other, 1);
        assert!(matches!(RunDocument::from_json(&text), Err(DocumentError::Schema(s)) if s == other));
    }
    assert!(matches!(RunDocument::from_json("{\"schema\": 1}"), Err(DocumentError::Shape(_))));
}

#[test]
fn a_summary_fits_the_terminal() {
    for (name, run) in cases() {
        let text = render(&run.document(), Some(&run.files()), Style::PLAIN);
        for line in text.lines() {
            assert!(line.chars().count() <= 80 || name == "wide", "{name}: {line}");
            assert!(!line.chars().any(char::is_control), "{name}: {line:?}");
            assert_eq!(line.trim_end(), line, "{name}");
        }
    }
}

/// Where many gaps have only bounds, the row of the exact ones is a selection.
#[test]
fn bounds_are_shown_where_they_matter() {
    let mut run = counted();
    for chunk in run.chunks.iter_mut().flat_map(|chunks| chunks.iter_mut().skip(1).step_by(8)) {
        chunk.ends_read = false;
    }
    let document = run.document();
    let text = render(&document, None, Style::PLAIN);
    let shown = |name: &str| {
        let metric = document.metrics.get(name).unwrap();
        let (bounds, gaps) = (metric.bounds.as_ref().unwrap(), metric.coalesced_gaps.as_ref().unwrap());
        assert!(gaps.share.unwrap() > 0.05, "{gaps:?}");
        [bounds.lower.p50, bounds.upper.p50, bounds.lower.p99, bounds.upper.p99]
            .map(|ms| display::span_ms(ms.unwrap()))
    };
    for (name, title) in
        [("inter_chunk_latency_ms", "inter-chunk latency"), ("inter_token_latency_ms", "inter-token latency")]
    {
        let [low50, high50, low99, high99] = shown(name);
        let note = format!("with them, {title}: p50 {low50} to {high50}, p99 {low99} to {high99}");
        assert!(text.contains(&note), "{note}:\n{text}");
    }
    assert_eq!(text.matches("of the gaps share a read").count(), 1, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn connections_made_before_are_told() {
    let mut run = fixture::normal();
    let took = Nanos::from_millis(230);
    let mut prewarm = PrewarmFacts { asked: 5_000, made: 5_000, took, ..PrewarmFacts::default() };
    run.instrument.prewarm = Some(prewarm.clone());
    let text = render(&run.document(), None, Style::PLAIN);
    assert!(text.contains("\n 5,000 connections made before, in 230 ms\n"), "{text}");
    (prewarm.made, prewarm.failed, prewarm.failure) = (4_997, 3, Some("Connection timed out".to_owned()));
    run.instrument.prewarm = Some(prewarm);
    let text = render(&run.document(), None, Style::PLAIN);
    assert!(text.contains("\n 4,997 connections made before, in 230 ms; 3 failed\n"), "{text}");
}

#[test]
fn colours_add_nothing_but_colours() {
    for (name, run) in cases() {
        let document = run.document();
        let coloured = render(&document, Some(&run.files()), Style::COLOUR);
        let mut plain = String::new();
        for (i, part) in coloured.split('\u{1b}').enumerate() {
            plain.push_str(if i == 0 { part } else { part.split_once('m').unwrap().1 });
        }
        assert!(coloured.contains('\u{1b}'), "{name}");
        assert_eq!(plain, render(&document, Some(&run.files()), Style::PLAIN), "{name}");
    }
}

/// A saved document may come from anywhere.
#[test]
fn no_text_of_a_document_reaches_the_terminal_unfiltered() {
    let hostile = "\u{1b}]0;x\u{7}\u{202e}";
    let mut texts = 0;
    let json: serde_json::Value =
        serde_json::from_str(&fixture::wide().document().to_json().unwrap()).unwrap();
    let spoiled = spoil(json, hostile, &mut texts);
    let document: RunDocument = serde_json::from_value(spoiled).unwrap();
    let text = render(&document, Some(&fixture::wide().files()), Style::PLAIN);
    assert!(texts > 50, "{texts}");
    assert!(text.lines().all(|line| !line.contains(|c: char| c.is_control() || c == '\u{202e}')), "{text:?}");
}

fn spoil(value: serde_json::Value, hostile: &str, texts: &mut usize) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::String(text) => {
            *texts += 1;
            Value::String(format!("{text}{hostile}"))
        }
        Value::Array(items) => items.into_iter().map(|v| spoil(v, hostile, texts)).collect(),
        Value::Object(keys) => keys.into_iter().map(|(k, v)| (k, spoil(v, hostile, texts))).collect(),
        other => other,
    }
}

#[test]
fn secrets_are_in_no_output() {
    for (name, run) in cases() {
        let document = run.document();
        let json = document.to_json().unwrap();
        let text = render(&document, Some(&run.files()), Style::PLAIN);
        assert!(!json.contains("SECRET") && !text.contains("SECRET"), "{name}");
        assert!(json.contains("X-Team") && json.contains("\"api_key\": true"), "{name}");
    }
}
