//! The reference artifact against published ones: recomputed to the last digit, written to the last byte, and built
//! from rows with the same keys and the same numbers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;

use hammerscale::report::anvil::{encode, recompute};

#[test]
fn every_file_is_written_as_it_was_read() {
    let files = files("");
    assert_eq!(files.len(), 26);
    for (name, text) in &files {
        let value: Value = serde_json::from_str(text).unwrap();
        assert!(encode::to_string(&value).unwrap() == *text, "{name}");
    }
}

#[test]
fn every_file_is_recomputed_as_it_was_read() {
    let mut recomputed = 0;
    for (name, text) in files("") {
        let artifact: Value = serde_json::from_str(&text).unwrap();
        let result = recompute(&artifact).unwrap();
        assert_eq!(result.disagreements, [], "{name}");
        assert!(encode::to_string(&result.artifact).unwrap() == text, "{name}");
        let metrics = artifact["metrics"].as_object().unwrap();
        let copied: BTreeSet<&str> =
            result.copied.iter().map(|path| path.strip_prefix("metrics.").unwrap()).collect();
        if artifact.get("request_timings").is_none() {
            assert_eq!(
                copied,
                metrics.keys().map(String::as_str).collect(),
                "{name}: no rows, nothing to compute"
            );
            continue;
        }
        recomputed += 1;
        let generation_3 = !metrics.contains_key("reasoning_chunks");
        let mut expected = BTreeSet::from(["prefix_cache_hit_avg"]);
        if generation_3 {
            expected.extend(["content_chunks", "content_chunks_s"]);
        }
        assert_eq!(copied, expected, "{name}");
    }
    assert_eq!(recomputed, 18);
}

fn files(beginning: &str) -> Vec<(String, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/anvil");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            (entry.file_name().into_string().unwrap(), std::fs::read_to_string(entry.path()).unwrap())
        })
        .filter(|(name, _)| name.trim_start_matches("seed_").starts_with(beginning))
        .collect();
    files.sort();
    files
}
