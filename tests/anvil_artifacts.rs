//! The reference artifact against published ones: recomputed to the last digit, written to the last byte, and built
//! from rows with the same keys and the same numbers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;

use hammerscale::report::anvil::encode;
use hammerscale::report::anvil::recompute::{Unreadable, recompute};

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
            expected.insert("content_chunks");
        }
        assert_eq!(copied, expected, "{name}");
    }
    assert_eq!(recomputed, 18);
}

/// Nothing stored can help: every metric is blanked before.
#[test]
fn every_metric_of_the_newest_generations_follows_to_the_last_digit() {
    let files = files("2026-09");
    assert_eq!(files.len(), 4);
    for (name, text) in files {
        let artifact: Value = serde_json::from_str(&text).unwrap();
        let mut blank = artifact.clone();
        for value in blank["metrics"].as_object_mut().unwrap().values_mut() {
            *value = "?".into();
        }
        let result = recompute(&blank).unwrap();
        assert_eq!(result.copied, ["metrics.prefix_cache_hit_avg"], "{name}");
        assert_eq!(result.disagreements.len(), 158, "{name}");
        let stored = artifact["metrics"].as_object().unwrap();
        assert_eq!(stored.len(), 159);
        for (key, stored) in stored.iter().filter(|(key, _)| *key != "prefix_cache_hit_avg") {
            let ours = &result.artifact["metrics"][key];
            // The text tells whole numbers from doubles and shows every digit.
            assert_eq!(ours.to_string(), stored.to_string(), "{name}: {key}");
        }
    }
}

/// The five fields that the reference computes from seconds since boot may differ in their last digits.
#[test]
fn derived_row_fields_follow_within_the_reference_s_own_rounding() {
    const DERIVED: [&str; 7] = [
        "generation_ms",
        "visible_generation_ms",
        "effective_prefill_tok_s",
        "decode_tok_s",
        "mean_inter_token_latency_ms",
        "mean_time_per_output_token_ms",
        "tpot_ms",
    ];
    let (mut fields, mut same) = (0, 0);
    for (name, text) in files("") {
        let artifact: Value = serde_json::from_str(&text).unwrap();
        let mut blank = artifact.clone();
        let Some(rows) = blank.get_mut("request_timings").and_then(Value::as_array_mut) else { continue };
        for row in rows {
            for key in DERIVED {
                if let Some(field) = row.get_mut(key).filter(|field| !field.is_null()) {
                    *field = (-1.0).into();
                }
            }
        }
        let result = recompute(&blank).unwrap();
        let rows = artifact["request_timings"].as_array().unwrap();
        for (stored, ours) in rows.iter().zip(result.artifact["request_timings"].as_array().unwrap()) {
            let e2e = stored["e2e_ms"].as_f64().unwrap();
            for key in DERIVED {
                let Some(stored) = stored.get(key) else { continue };
                let (a, b) = (stored.as_f64().unwrap(), ours[key].as_f64().unwrap());
                fields += 1;
                same += u32::from(a.to_bits() == b.to_bits());
                assert!(
                    (a - b).abs() <= 4.0 * (e2e.next_up() - e2e) || (a / b - 1.0).abs() < 1e-9,
                    "{name}: {key}"
                );
            }
        }
    }
    // Every published row happens to follow exactly.
    assert_eq!((fields, same), (504, 504));
}

/// The check can fail: the usual ways to compute a deviation and an interval give other digits.
#[test]
fn naive_arithmetic_does_not_reproduce_published_digits() {
    let (mut deviations, mut naive_deviations, mut naive_intervals) = (0, 0, 0);
    for (_, text) in files("2026-09") {
        let artifact: Value = serde_json::from_str(&text).unwrap();
        for (prefix, suffix, field) in FAMILIES {
            let metric = |name: &str| artifact["metrics"][format!("{prefix}_{name}{suffix}")].as_f64();
            let Some(stddev) = metric("stddev") else { continue };
            let rows = artifact["request_timings"].as_array().unwrap();
            let values: Vec<f64> = rows.iter().filter_map(|row| row[field].as_f64()).collect();
            let n = values.len() as f64;
            let mean = values.iter().sum::<f64>() / n;
            let naive = (values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (n - 1.0)).sqrt();
            deviations += 1;
            naive_deviations += u32::from(naive.to_bits() != stddev.to_bits());
            let low = metric("mean").unwrap() - 1.96 * (stddev / n.sqrt());
            naive_intervals += u32::from(low.to_bits() != metric("mean_ci95_low").unwrap().to_bits());
        }
    }
    assert_eq!((deviations, naive_deviations, naive_intervals), (33, 5, 9));
}

/// A wrong digit anywhere is seen, named and put right.
#[test]
fn every_changed_value_is_named() {
    let (_, text) = files("2026-09-17").pop().unwrap();
    let original: Value = serde_json::from_str(&text).unwrap();
    let keys: Vec<String> = original["metrics"].as_object().unwrap().keys().cloned().collect();
    for key in keys.iter().filter(|key| *key != "prefix_cache_hit_avg") {
        let mut changed = original.clone();
        let value = &mut changed["metrics"][key];
        *value = match (&*value, value.as_f64()) {
            (Value::Number(n), Some(x)) if n.is_f64() && key == "throughput_tok_s" => {
                (x * (1.0 + 1e-14)).into()
            }
            (Value::Number(n), Some(x)) if n.is_f64() => x.next_up().into(),
            // A whole number that becomes a double of the same value is wrong too.
            (Value::Number(_), Some(x)) => x.into(),
            (Value::Null, _) => 0.into(),
            (Value::Bool(b), _) => (!b).into(),
            _ => Value::Null,
        };
        let result = recompute(&changed).unwrap();
        let paths: Vec<&str> = result.disagreements.iter().map(|d| d.path.as_str()).collect();
        assert_eq!(paths, [format!("metrics.{key}")]);
        assert_eq!(result.disagreements[0].stored, changed["metrics"][key]);
        assert_eq!(result.artifact, original);
    }
    for (path, value) in [
        ("/completed", Value::from(3)),
        ("/failed", Value::from(1)),
        ("/responses_received", Value::from(5)),
        ("/performance_eligible", Value::from(false)),
        ("/measurement_protocol", Value::from("capacity-v3")),
        ("/metric_population/attempted_requests", Value::from(5)),
        ("/metric_population/p99_samples_by_metric/tpot", Value::from(5)),
        ("/request_timings/2/generation_ms", Value::from(20719.2124)),
        ("/request_timings/2/decode_tok_s", Value::Null),
    ] {
        let mut changed = original.clone();
        *changed.pointer_mut(path).unwrap() = value;
        let result = recompute(&changed).unwrap();
        assert_eq!(result.disagreements.len(), 1, "{path}");
        // A derived row field comes back as this file has it, because its digits follow exactly here.
        assert_eq!(result.artifact, original, "{path}");
    }
}

#[test]
fn what_is_no_artifact_is_refused() {
    let (_, text) = files("2026-09-17").pop().unwrap();
    let original: Value = serde_json::from_str(&text).unwrap();
    for value in
        [Value::Null, Value::from(3), Value::from("x"), serde_json::json!({}), serde_json::json!([original])]
    {
        assert_eq!(recompute(&value), Err(Unreadable::NotAnArtifact));
    }
    for (path, value) in [
        ("/request_timings", Value::Null),
        ("/failures", Value::from(3)),
        ("/wall_clock_ms", Value::from("long")),
        ("/request_timings/1", Value::Null),
        ("/request_timings/1/e2e_ms", Value::from("long")),
        ("/request_timings/1/output_tokens", Value::from(-1)),
        ("/request_timings/1/request_canary/marker", Value::Null),
    ] {
        let mut broken = original.clone();
        *broken.pointer_mut(path).unwrap() = value;
        let result = recompute(&broken);
        let Err(Unreadable::Field { path: named, .. }) = result else { panic!("{path}: {result:?}") };
        assert!(path.replace('/', ".").contains(&named), "{path} and not {named}");
    }
}

/// Prefix, suffix and row field of the families.
const FAMILIES: [(&str, &str, &str); 11] = [
    ("time_to_first_output", "_ms", "time_to_first_output_ms"),
    ("ttft", "_ms", "ttft_ms"),
    ("generation", "_ms", "generation_ms"),
    ("e2e", "_ms", "e2e_ms"),
    ("effective_prefill_tok_s", "", "effective_prefill_tok_s"),
    ("decode_tok_s", "", "decode_tok_s"),
    ("mean_inter_token_latency_ms", "", "mean_inter_token_latency_ms"),
    ("mean_time_per_output_token", "_ms", "mean_time_per_output_token_ms"),
    ("tpot", "_ms", "mean_time_per_output_token_ms"),
    ("prompt_tokens", "", "prompt_tokens"),
    ("completion_tokens", "", "output_tokens"),
];

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
