//! Artifacts that others published.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::{changed, complaints, leaves, report, stderr, stdout};

const NAMED: &str = "hammerscale: ";
const COPIED: &str = "copied, it does not follow from the file: ";

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/anvil")
}

fn files() -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// One of each shape that has rows: generations 3, 4 with failures, 4 without rows that succeeded, 5 with failures, 6.
const SHAPES: [&str; 6] = [
    "2026-07-28-agents-a1-multimodal-qualification__fp8-moe-ab-default-v3-primary-r1",
    "2026-08-01-deepseek-v4-flash-0731-nvfp4__capacity-low-128k-c1-headroom2048",
    "2026-08-02-deepseek-0731-native-kv-offload__prefix-sequence-256k-70k",
    "2026-09-08-glm53-linux__controlled-scout-4k-r3",
    "2026-09-17-glm53-mixed35__baseline-capacity-1",
    "seed_2026-09-17-glm53-mixed35__candidate-c4-capacity-1",
];

#[test]
fn every_published_artifact_comes_out_as_it_went_in() {
    let files = files();
    assert!(files.len() >= 25);
    let found = complaints(&files, |_, path| {
        let output = report(path, "anvil");
        let name = path.display();
        if output.status.code() != Some(0) || output.stdout != fs::read(path).unwrap() {
            return Err(format!("{name}: {}", stderr(&output)));
        }
        let artifact: Value = serde_json::from_slice(&output.stdout).unwrap();
        let copied: Vec<&str> = stderr(&output)
            .lines()
            .map(|line| line.strip_prefix(NAMED).and_then(|line| line.strip_prefix(COPIED)).expect(line))
            .collect();
        let metrics = artifact["metrics"].as_object().unwrap();
        let expected: Vec<String> = match artifact.get("request_timings") {
            None => metrics.keys().map(|key| format!("metrics.{key}")).collect(),
            // Generation 3 does not count chunks in its rows.
            Some(_) if metrics.contains_key("reasoning_chunks") => {
                vec!["metrics.prefix_cache_hit_avg".to_owned()]
            }
            Some(_) => vec!["metrics.content_chunks".to_owned(), "metrics.prefix_cache_hit_avg".to_owned()],
        };
        if copied == expected {
            Ok(())
        } else {
            Err(format!("{name}: copied {copied:?}, expected {expected:?}"))
        }
    });
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Artifacts that nobody published, made by a second implementation of the format's rules.
#[test]
fn every_consistent_variant_comes_out_as_it_went_in() {
    let tmp = tempfile::tempdir().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/report_command/variants.py");
    let made = Command::new("python3").args(["-I", script]).arg(tmp.path()).args(files()).output();
    let made = made.expect("python3 is there");
    assert!(made.status.success(), "{}", stderr(&made));
    let mut variants: Vec<_> = fs::read_dir(tmp.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    variants.sort();
    assert!(variants.len() > 200, "{}", variants.len());
    let found = complaints(&variants, |_, path| {
        let output = report(path, "anvil");
        if output.status.code() == Some(0) && output.stdout == fs::read(path).unwrap() {
            Ok(())
        } else {
            let said: String = stderr(&output).lines().filter(|line| !line.contains(COPIED)).collect();
            Err(format!("{}: {:?} {said}", path.display(), output.status.code()))
        }
    });
    assert!(found.is_empty(), "{} of {}:\n{}", found.len(), variants.len(), found.join("\n"));
}

/// Keys that say what was asked for or what was seen: nothing in the file gives them a second time.
fn is_given(path: &str) -> bool {
    const LABELS: [&str; 26] = [
        "base_url",
        "clock_domain_id",
        "concurrency",
        "configuration_fingerprint",
        "context_seed",
        "context_tokens",
        "controlled_output_policy",
        "engine",
        "finished_at_unix_ns",
        "gpu",
        "manifest",
        "max_context_tokens",
        "max_tokens",
        "model",
        "prompt_cache_mode",
        "request_canaries",
        "response_words",
        "sampling",
        "schema",
        "serve_flags",
        "shared_prefix_tokens",
        "source_recipe",
        "started_at_unix_ns",
        "tier",
        "timestamp_precision",
        "timing_methodology",
    ];
    const SEEN: [&str; 25] = [
        "content_chunks",
        "e2e_ms",
        "elapsed_ms",
        "error_message",
        "error_message_truncated",
        "error_type",
        "failure_class",
        "foreign_marker_count",
        "marker",
        "marker_at_start",
        "observed_code_words",
        "observed_extra_words",
        "observed_marker_count",
        "output_token_source",
        "output_tokens",
        "planned_context_tokens",
        "policy",
        "prompt_tokens",
        "reasoning_chunks",
        "request_index",
        "requested_words",
        "response_metadata",
        "time_to_first_output_ms",
        "ttft_ms",
        "visible_content_truncated",
    ];
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    match parts[0] {
        "metrics" => parts[1] == "prefix_cache_hit_avg",
        "wall_clock_ms" => true,
        "request_timings" | "failures" => parts.iter().any(|part| SEEN.contains(part)),
        first => LABELS.contains(&first),
    }
}

/// A list of rows that is emptied says something else, and is not a value of its own.
fn is_list(path: &str) -> bool {
    ["/request_timings", "/failures"].contains(&path)
        || ["/request_canary", "/controlled_output", "/response_timing"].iter().any(|end| path.ends_with(end))
}

#[test]
fn whatever_is_changed_is_named_and_put_right() {
    let tmp = tempfile::tempdir().unwrap();
    let mut total = 0;
    for shape in SHAPES {
        let text = fs::read_to_string(folder().join(format!("{shape}.json"))).unwrap();
        let original: Value = serde_json::from_str(&text).unwrap();
        let generation_3 = original["metrics"].get("reasoning_chunks").is_none();
        let mut paths = Vec::new();
        leaves(&original, "", &mut paths);
        paths.retain(|path| !is_given(path) && !is_list(path));
        // Neither in the rows.
        paths.retain(|path| !(generation_3 && path == "/metrics/content_chunks"));
        if !original.as_object().unwrap().contains_key("started_at_unix_ns") {
            paths.retain(|path| !["/run_id", "/started_at", "/finished_at"].contains(&path.as_str()));
        }
        // Older failures do not say what was planned for them.
        if original["failures"].as_array().unwrap().iter().any(|f| f.get("planned_context_tokens").is_none())
        {
            paths.retain(|path| !path.starts_with("/context_distribution"));
        }
        total += paths.len();
        let found = complaints(&paths, |i, path| {
            let mut artifact = original.clone();
            let tolerant = path.starts_with("/request_timings")
                || path.starts_with("/failures")
                || path == "/metrics/throughput_tok_s";
            let value = artifact.pointer_mut(path).unwrap();
            *value = changed(value, tolerant.then_some(1e-8));
            let file = tmp.path().join(i.to_string());
            fs::write(&file, serde_json::to_string(&artifact).unwrap()).unwrap();
            let output = report(&file, "anvil");
            let key = path[1..].replace('/', ".");
            // A list or map of one key is compared as a whole.
            let named =
                stderr(&output).lines().filter_map(|line| line.strip_prefix(NAMED)?.split_once(": stored "));
            let named: Vec<&str> = named.map(|(name, _)| name).collect();
            let is_named = named.iter().any(|name| key == *name || key.starts_with(&format!("{name}.")));
            match output.status.code() {
                Some(1) if is_named && stdout(&output) == text => Ok(()),
                code => Err(format!("{shape} {key}: exit {code:?}, named {named:?}, {}", stderr(&output))),
            }
        });
        assert!(found.is_empty(), "{} of {}:\n{}", found.len(), paths.len(), found.join("\n"));
    }
    assert!(total > 700, "{total}");
}

/// What rows say is not computed, but everything that is made from it is: a change shows there.
#[test]
fn a_changed_observation_shows_in_what_follows_from_it() {
    let tmp = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(folder().join(format!("{}.json", SHAPES[5]))).unwrap();
    let original: Value = serde_json::from_str(&text).unwrap();
    for (path, value, named) in [
        ("/request_timings/1/e2e_ms", json!(30_000.5), "request_timings.1.generation_ms"),
        ("/request_timings/1/ttft_ms", json!(20_001.5), "metrics.ttft_mean_ms"),
        ("/request_timings/1/time_to_first_output_ms", json!(17.5), "metrics.time_to_first_output_min_ms"),
        ("/request_timings/0/output_tokens", json!(7), "metrics.output_tokens"),
        ("/request_timings/0/prompt_tokens", Value::Null, "metrics.prompt_tokens_samples"),
        ("/request_timings/0/output_token_source", json!("content_chunks"), "metrics.output_token_sources"),
        ("/request_timings/0/content_chunks", json!(1), "metrics.content_chunks"),
        ("/request_timings/0/reasoning_chunks", json!(1), "metrics.reasoning_chunks"),
        ("/request_timings/0/planned_context_tokens", json!(1), "context_distribution"),
        (
            "/request_timings/0/visible_content_truncated",
            json!(true),
            "request_timings.0.request_canary.passed",
        ),
        (
            "/request_timings/0/request_canary/marker_at_start",
            json!(false),
            "request_timings.0.request_canary.passed",
        ),
        (
            "/request_timings/0/request_canary/foreign_marker_count",
            json!(1),
            "request_timings.0.request_canary.passed",
        ),
        ("/request_timings/0/request_canary", Value::Null, "metrics.request_canary_samples"),
        (
            "/request_timings/0/controlled_output/observed_code_words",
            json!(63),
            "request_timings.0.controlled_output.exact_adherence",
        ),
        (
            "/request_timings/0/controlled_output/observed_extra_words",
            json!(1),
            "request_timings.0.controlled_output.passed",
        ),
        ("/wall_clock_ms", json!(1.5), "metrics.throughput_tok_s"),
        ("/started_at_unix_ns", json!(1_789_000_000_000_000_000_u64), "run_id"),
        ("/request_timings", json!([]), "completed"),
    ] {
        let mut artifact = original.clone();
        *artifact.pointer_mut(path).unwrap() = value;
        let file = tmp.path().join("artifact");
        fs::write(&file, artifact.to_string()).unwrap();
        let output = report(&file, "anvil");
        assert_eq!(output.status.code(), Some(1), "{path}");
        assert!(stderr(&output).contains(&format!("{NAMED}{named}: stored ")), "{path}: {}", stderr(&output));
        let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_ne!(printed, artifact, "{path}");
    }
}

#[test]
fn what_this_version_does_not_know_is_copied() {
    let tmp = tempfile::tempdir().unwrap();
    let file = tmp.path().join("artifact");
    for shape in SHAPES {
        let text = fs::read_to_string(folder().join(format!("{shape}.json"))).unwrap();
        let mut artifact: Value = serde_json::from_str(&text).unwrap();
        artifact["of_tomorrow"] = json!({"b": [1, 2.5e-7, -0.0], "a": null, "é": "\u{1f600}\u{7f}"});
        artifact["metrics"]["of_tomorrow_p50"] = json!(3.0);
        if let Some(row) = artifact["request_timings"].get_mut(0) {
            row["of_tomorrow"] = json!([[]]);
        }
        // In any layout.
        fs::write(&file, artifact.to_string()).unwrap();
        let output = report(&file, "anvil");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stderr(&output).contains("metrics.of_tomorrow_p50"));
        assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap(), artifact);
        assert!(
            stdout(&output).contains("\"\\u00e9\": \"\\ud83d\\ude00\\u007f\"") && output.stdout.is_ascii()
        );
    }
}

/// Line ends and order as other programs write them.
#[test]
fn another_layout_of_the_text_changes_nothing() {
    let tmp = tempfile::tempdir().unwrap();
    let file = tmp.path().join("artifact");
    for shape in SHAPES {
        let text = fs::read_to_string(folder().join(format!("{shape}.json"))).unwrap();
        fs::write(&file, format!("\r\n{}", text.replace('\n', "\r\n"))).unwrap();
        let output = report(&file, "anvil");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stdout(&output) == text, "{shape}");
    }
}

#[test]
fn older_generations_without_usage_are_taken_as_they_counted() {
    let tmp = tempfile::tempdir().unwrap();
    let file = tmp.path().join("artifact");
    for (shape, counted) in [(SHAPES[0], "copied"), (SHAPES[1], "computed")] {
        let text = fs::read_to_string(folder().join(format!("{shape}.json"))).unwrap();
        let original: Value = serde_json::from_str(&text).unwrap();
        let mut artifact = original.clone();
        let row = &mut artifact["request_timings"][0];
        row["output_token_source"] = "content_chunks".into();
        for key in ["output_tokens", "decode_tok_s", "mean_inter_token_latency_ms"] {
            row[key] = Value::Null;
        }
        fs::write(&file, artifact.to_string()).unwrap();
        let output = report(&file, "anvil");
        assert_eq!(output.status.code(), Some(1), "the metrics are still those of before");
        let named = stderr(&output).contains("metrics.output_tokens: stored");
        assert_eq!(named, counted == "computed", "{}", stderr(&output));
        // What it prints agrees with itself.
        fs::write(&file, &output.stdout).unwrap();
        let again = report(&file, "anvil");
        assert_eq!((again.status.code(), &again.stdout), (Some(0), &output.stdout), "{}", stderr(&again));
    }
}

#[test]
fn what_is_no_artifact_is_one_sentence_and_exit_2() {
    let tmp = tempfile::tempdir().unwrap();
    let path = |name: &str, text: &str| {
        let path = tmp.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let seed = folder().join(format!("{}.json", SHAPES[5]));
    let mut broken: Value = serde_json::from_str(&fs::read_to_string(&seed).unwrap()).unwrap();
    broken["request_timings"][1]["e2e_ms"] = "long".into();
    let with = |inner: &str| format!("{{\n\"schema\": \"anvil-serving.benchmark/v1\",\n{inner}}}");
    let twice = with("\"metrics\": {\"x\": 1, \"x\": 2}");
    let deep = with(&format!("\"x\": {}{}", "[".repeat(100_000), "]".repeat(100_000)));
    let nan = with("\"x\": NaN");
    // 200 MB of nothing take no room on the disk.
    let large = path("large", "");
    fs::OpenOptions::new().write(true).open(&large).unwrap().set_len(200 << 20).unwrap();
    // And an object that is no artifact is not held as a tree.
    let huge = path("huge", &format!("{{\"x\": [{}0]}}", "0,".repeat(4 << 20)));
    for (path, format, word) in [
        (path("empty", ""), "anvil", "not JSON"),
        (path("text", "hello"), "anvil", "not an object"),
        (path("bom", "\u{feff}{}"), "anvil", "byte order mark"),
        (path("list", "[1]"), "anvil", "not an object"),
        (path("twice", &twice), "anvil", "metrics.x: stands twice"),
        (path("deep", &deep), "anvil", "recursion limit"),
        (path("nan", &nan), "anvil", "line 3 holds NaN, which JSON does not have"),
        (path("range", &nan.replace("NaN", "1e400")), "anvil", "out of range"),
        (path("surrogate", &nan.replace("NaN", "\"\\ud800\"")), "anvil", "not JSON"),
        (PathBuf::from("/dev/zero"), "anvil", "not an object"),
        (large, "anvil", "not an object"),
        (huge, "anvil", "not an object"),
        (path("other", "{\"schema\": \"x\"}"), "anvil", "anvil-serving.benchmark/v1"),
        (path("broken", &broken.to_string()), "anvil", "request_timings.1"),
        (tmp.path().join("nowhere"), "anvil", "nowhere"),
        (tmp.path().join("nowhere"), "terminal", "nowhere"),
        (tmp.path().to_owned(), "terminal", "no requests.jsonl"),
        (seed.clone(), "terminal", "--format anvil"),
        (seed.clone(), "html", "--format"),
        (seed, "vllm", "--format"),
    ] {
        let output = report(&path, format);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{}: {text}", path.display());
        assert!(text.starts_with(NAMED) && text.lines().count() == 1 && text.contains(word), "{text}");
        assert!(output.stdout.is_empty());
    }
}

/// Without rows nothing but the failures can be counted.
#[test]
fn an_artifact_without_rows_has_its_failures_counted() {
    let tmp = tempfile::tempdir().unwrap();
    let file = tmp.path().join("artifact");
    let name = "2026-07-28-agents-a1-multimodal-qualification__fp8-mm-capacity-8k-c32.json";
    let mut artifact: Value =
        serde_json::from_str(&fs::read_to_string(folder().join(name)).unwrap()).unwrap();
    artifact["failed"] = json!(1);
    artifact["metrics"]["ttft_p50_ms"] = json!(1.5);
    fs::write(&file, artifact.to_string()).unwrap();
    let output = report(&file, "anvil");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("hammerscale: failed: stored 1, recomputed 0\n"), "{}", stderr(&output));
    assert!(stderr(&output).contains("metrics.ttft_p50_ms") && !stderr(&output).contains("p50_ms: stored"));
}
