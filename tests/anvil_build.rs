//! The reference artifact built from rows: rows are made from the values of published artifacts, and what is built
//! must have the published keys and the published numbers, as far as whole nanoseconds can carry them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, missing_docs)]
#![allow(clippy::cast_possible_truncation)]

use std::path::PathBuf;

use serde_json::Value;

use hammerscale::config::spec::{
    BodySpec, ConnectionMode, ConnectionSpec, Endpoint, InstrumentSpec, LabelSpec, LoadSpec, OutputFormat,
    OutputSpec, ProgressMode, PromptSpec, ResolvedTarget, RunSpec, TargetSpec, ThinkingMode,
};
use hammerscale::metrics::row::{
    CanaryObservation, ControlledOutputObservation, ReceiveStamps, RequestRow, StampSource, TokenSource,
};
use hammerscale::record::mask::Mask;
use hammerscale::record::{Anomalies, Counters, Outcome, OutputKind, Phase, TransportFacts, Usage};
use hammerscale::report::anvil::{Artifact, RunFacts, encode, recompute};
use hammerscale::report::document::provenance::TargetDoc;
use hammerscale::report::document::spec::SpecDoc;
use hammerscale::units::{Nanos, UnixNanos};

/// Whole nanoseconds move a millisecond value by at most half a nanosecond, a difference of two by one.
const NANOSECOND_MS: f64 = 1.1e-6;
/// What that does to a rate over milliseconds or more.
const RELATIVE: f64 = 1e-8;

#[test]
fn published_artifacts_are_built_again_from_their_rows() {
    for (name, cached_tokens) in [
        ("seed_2026-09-17-glm53-mixed35__candidate-c4-capacity-1", None),
        ("2026-09-17-glm53-mixed35__baseline-capacity-1", None),
        ("2026-09-08-glm53-linux__controlled-scout-4k-r3", None),
        // The published share is 2944 (46 blocks of 64) of 2969 tokens, three times.
        ("2026-09-08-glm53-linux__linux-legacy-capacity-4k-r3", Some(2944)),
    ] {
        let published = read(name);
        let (spec, target) = run_of(&published);
        let rows = rows_of(&published, cached_tokens);
        let built = build(&rows, &spec, &target, &published);
        same(&built, &with_sampling(published), name);
    }
}

/// The identities that hold exactly whatever the nanoseconds are: everything that follows from the built rows.
#[test]
fn a_built_artifact_agrees_with_itself() {
    for name in [
        "seed_2026-09-17-glm53-mixed35__candidate-c4-capacity-1",
        "2026-09-17-glm53-mixed35__baseline-capacity-1",
    ] {
        let published = read(name);
        let (spec, target) = run_of(&published);
        let built = build(&rows_of(&published, None), &spec, &target, &published);
        let result = recompute(&built).unwrap();
        assert_eq!(result.disagreements, [], "{name}");
        assert_eq!(result.artifact, built);
        for row in built["request_timings"].as_array().unwrap() {
            for key in ["time_to_first_output_ms", "ttft_ms", "e2e_ms"] {
                let ms = row[key].as_f64().unwrap();
                let ns = (ms * 1e6).round();
                assert_eq!(ms.to_bits(), (ns / 1e6).to_bits(), "{key} is whole nanoseconds over a million");
            }
        }
    }
}

#[test]
fn keys_are_declared_in_the_order_of_the_document() {
    let published = read("2026-09-17-glm53-mixed35__baseline-capacity-1");
    let (spec, target) = run_of(&published);
    let rows = rows_of(&published, None);
    let spec = SpecDoc::of(&spec);
    let target = TargetDoc::of(&spec, &target, &Mask::default());
    let facts = facts(&spec, &target, &published);
    let artifact = Artifact::of(&rows, &facts);
    let direct = encode::to_string(&artifact).unwrap();
    // A map of serde_json is sorted; the structs must be by themselves.
    let sorted = encode::to_string(&serde_json::to_value(&artifact).unwrap()).unwrap();
    assert!(direct == sorted);
    assert_eq!((artifact.completed(), artifact.failed()), (2, 2));
}

#[test]
fn rows_in_any_order_and_warmup_rows_change_nothing() {
    let published = read("2026-09-17-glm53-mixed35__baseline-capacity-1");
    let (spec, target) = run_of(&published);
    let mut rows = rows_of(&published, None);
    let built = build(&rows, &spec, &target, &published);
    rows.reverse();
    let mut warmup = rows[0].clone();
    warmup.phase = Phase::Warmup;
    rows.insert(1, warmup);
    rows[0].phase = Phase::Drain;
    assert_eq!(build(&rows, &spec, &target, &published), built);
}

#[test]
fn a_fresh_connection_counts_from_the_start_of_connecting() {
    let published = read("seed_2026-09-17-glm53-mixed35__candidate-c4-capacity-1");
    let (spec, target) = run_of(&published);
    let mut rows = rows_of(&published, None);
    let kept = build(&rows, &spec, &target, &published);
    rows[0].connect_start = rows[0].send_start.map(|start| Nanos(start.0 - 250_000));
    rows[0].connect = Some(Nanos(200_000));
    let fresh = build(&rows, &spec, &target, &published);
    for key in ["time_to_first_output_ms", "ttft_ms", "e2e_ms"] {
        let ms = |artifact: &Value| artifact["request_timings"][0][key].as_f64().unwrap();
        assert!((ms(&fresh) - ms(&kept) - 0.25).abs() < 1e-9, "{key}");
    }
    assert_eq!(fresh["request_timings"][1], kept["request_timings"][1]);
}

#[test]
fn a_request_without_usage_withholds_tokens_and_gives_chunks_per_second() {
    let published = read("seed_2026-09-17-glm53-mixed35__candidate-c4-capacity-1");
    let (spec, target) = run_of(&published);
    let mut rows = rows_of(&published, None);
    rows[3].usage = Usage::default();
    let built = build(&rows, &spec, &target, &published);
    let row = &built["request_timings"][3];
    assert_eq!(row["output_token_source"], "content_chunks");
    for key in ["output_tokens", "prompt_tokens", "decode_tok_s", "tpot_ms", "effective_prefill_tok_s"] {
        assert_eq!(row[key], Value::Null, "{key}");
    }
    let metrics = &built["metrics"];
    assert_eq!(metrics["output_tokens"], Value::Null);
    assert_eq!(metrics["throughput_tok_s"], Value::Null);
    assert_eq!(metrics["throughput_performance_eligible"], false);
    let wall_s = built["wall_clock_ms"].as_f64().unwrap() / 1000.0;
    assert_eq!(metrics["content_chunks_s"].as_f64().unwrap().to_bits(), (292.0 / wall_s).to_bits());
    assert_eq!(metrics["output_token_sources"], serde_json::json!({"content_chunks": 1, "usage": 3}));
    assert_eq!(metrics["ttft_samples"], 4);
    assert_eq!(metrics["completion_tokens_samples"], 3);
    assert_eq!(built["performance_eligible"], true);
    assert_eq!(built["metric_population"]["aggregate_throughput_eligible"], false);
    assert_eq!(recompute(&built).unwrap().disagreements, []);
}

#[test]
fn what_was_sent_is_what_is_told() {
    let published = read("seed_2026-09-17-glm53-mixed35__candidate-c4-capacity-1");
    let (mut spec, target) = run_of(&published);
    spec.load.requests = 0;
    let mut sampling = |compat_anvil, temperature, top_p| {
        spec.body = BodySpec { compat_anvil, temperature, top_p, ..spec.body.clone() };
        build(&[], &spec, &target, &published)["sampling"].clone()
    };
    let parameter = |requested: Option<f64>, effective: Option<f64>| serde_json::json!({"effective_request": effective, "requested": requested, "sent": effective.is_some()});
    for (compat_anvil, temperature, sent) in [
        (true, None, Some(0.0)),
        (true, Some(0.7), Some(0.7)),
        (false, Some(1.0), Some(1.0)),
        (false, None, None),
    ] {
        assert_eq!(sampling(compat_anvil, temperature, None)["temperature"], parameter(temperature, sent));
    }
    assert_eq!(sampling(true, None, Some(0.9))["top_p"], parameter(Some(0.9), Some(0.9)));
    assert_eq!(sampling(true, None, None)["top_p"], parameter(None, None));
}

#[test]
fn requests_that_were_never_sent_are_failures_in_their_places() {
    let published = read("seed_2026-09-17-glm53-mixed35__candidate-c4-capacity-1");
    let (mut spec, target) = run_of(&published);
    spec.load.requests = 6;
    let mut rows = rows_of(&published, None);
    rows.remove(2);
    let built = build(&rows, &spec, &target, &published);
    assert_eq!(
        (&built["requests"], &built["completed"], &built["failed"]),
        (&6.into(), &3.into(), &3.into())
    );
    let failures = built["failures"].as_array().unwrap();
    let indices: Vec<u64> =
        failures.iter().map(|failure| failure["request_index"].as_u64().unwrap()).collect();
    assert_eq!(indices, [2, 4, 5]);
    assert_eq!(failures[0]["error_type"], "CancelledError");
    assert_eq!(failures[0]["planned_context_tokens"], Value::Null);
    assert_eq!(built["responses_received"], 3);
    assert_eq!(built["performance_eligible"], false);
    assert_eq!(built["metrics"]["throughput_tok_s"], Value::Null);
    assert_eq!(recompute(&built).unwrap().disagreements, []);
}

#[test]
fn no_request_at_all_is_an_artifact_too() {
    let published = read("seed_2026-09-17-glm53-mixed35__candidate-c4-capacity-1");
    let (mut spec, target) = run_of(&published);
    spec.load.requests = 0;
    let built = build(&[], &spec, &target, &published);
    assert_eq!(built["requests"], 0);
    assert_eq!(built["context_distribution"], serde_json::json!({}));
    assert_eq!(built["metrics"]["output_tokens"], 0);
    assert_eq!(built["metrics"]["ttft_p50_ms"], Value::Null);
    assert_eq!(keys(&built["metrics"]), keys(&published["metrics"]));
}

// ------------------------------------------------------------------------------------------------ comparison

/// The same keys everywhere, whole numbers, texts and nulls equal, doubles as near as nanoseconds allow.
fn same(built: &Value, published: &Value, path: &str) {
    match (built, published) {
        (Value::Object(ours), Value::Object(theirs)) => {
            assert_eq!(keys(built), keys(published), "{path}");
            for (key, value) in ours {
                same(value, &theirs[key], &format!("{path}.{key}"));
            }
        }
        (Value::Array(ours), Value::Array(theirs)) => {
            assert_eq!(ours.len(), theirs.len(), "{path}");
            for (i, (a, b)) in ours.iter().zip(theirs).enumerate() {
                same(a, b, &format!("{path}.{i}"));
            }
        }
        (Value::Number(a), Value::Number(b)) if a.is_f64() && b.is_f64() => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            let difference = (a - b).abs();
            assert!(
                difference <= NANOSECOND_MS || difference <= RELATIVE * b.abs(),
                "{path}: {a} and not {b}"
            );
        }
        _ => assert_eq!(built.to_string(), published.to_string(), "{path}"),
    }
}

fn keys(object: &Value) -> Vec<&String> {
    object.as_object().unwrap().keys().collect()
}

/// Generation 5 lacks this one key; its command line always sent temperature 0.0.
fn with_sampling(mut published: Value) -> Value {
    let seed = read("seed_2026-09-17-glm53-mixed35__candidate-c4-capacity-1");
    published.as_object_mut().unwrap().entry("sampling").or_insert(seed["sampling"].clone());
    published
}

fn build(rows: &[RequestRow], spec: &RunSpec, target: &ResolvedTarget, published: &Value) -> Value {
    let spec = SpecDoc::of(spec);
    let target = TargetDoc::of(&spec, target, &Mask::default());
    serde_json::to_value(Artifact::of(rows, &facts(&spec, &target, published))).unwrap()
}

fn facts<'a>(spec: &'a SpecDoc, target: &'a TargetDoc, published: &Value) -> RunFacts<'a> {
    let instant = |key: &str| UnixNanos::new(published[key].as_i64().unwrap()).unwrap();
    RunFacts {
        spec,
        prompt: spec.prompt.as_ref().unwrap(),
        body: spec.body.as_ref().unwrap(),
        max_tokens: spec.prompt.as_ref().unwrap().max_tokens.unwrap(),
        target,
        model: target.model.as_deref().unwrap(),
        started: instant("started_at_unix_ns"),
        finished: instant("finished_at_unix_ns"),
        wall: ns(&published["wall_clock_ms"]).unwrap(),
    }
}

// ------------------------------------------------------------------------------------------------ rows

fn read(name: &str) -> Value {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/anvil").join(name.to_owned() + ".json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn ns(ms: &Value) -> Option<Nanos> {
    ms.as_f64().map(|ms| Nanos((ms * 1e6).round() as i64))
}

fn rows_of(published: &Value, cached_tokens: Option<u64>) -> Vec<RequestRow> {
    let timings = published["request_timings"].as_array().unwrap().iter().map(|timing| row_of(timing, None));
    let failures = published["failures"].as_array().unwrap().iter();
    let failures = failures.map(|failure| row_of(&failure["response_timing"], Some(failure)));
    let mut rows: Vec<RequestRow> = timings.chain(failures).collect();
    rows.sort_by_key(|row| row.request_index);
    for row in &mut rows {
        row.usage.cached_tokens = cached_tokens;
    }
    rows
}

/// The request behind a row of an artifact (and behind a failure that has one).
fn row_of(timing: &Value, failure: Option<&Value>) -> RequestRow {
    let index = timing["request_index"].as_u64().unwrap();
    let start = Nanos(i64::try_from(index).unwrap() * 1_000_000_007 + 123_456);
    let after = |key: &str| ns(&timing[key]).map(|span| Nanos(start.0 + span.0));
    let count = |key: &str| timing[key].as_u64();
    let (first_output, first_content, e2e) =
        (after("time_to_first_output_ms"), after("ttft_ms"), after("e2e_ms"));
    let reasoning_chunks = count("reasoning_chunks").unwrap();
    // The reference reads its clock twice for one event. Without reasoning that is a first output of some kind a few
    // hundred nanoseconds before the first content; a reasoning stamp carries it here.
    let first_reasoning = first_output.filter(|first| reasoning_chunks > 0 || Some(*first) < first_content);
    let at = ReceiveStamps {
        first_output,
        first_reasoning,
        first_content,
        last_output: e2e,
        terminal: e2e,
        end: e2e.map(|end| Nanos(end.0 + 50_000)),
        ..ReceiveStamps::default()
    };
    let mut row = plain_row(index, start, at);
    row.counters.content_deltas = count("content_chunks").unwrap();
    row.counters.reasoning_deltas = reasoning_chunks;
    row.usage.prompt_tokens = count("prompt_tokens");
    row.usage.completion_tokens = count("output_tokens");
    row.planned_context_tokens = count("planned_context_tokens");
    row.canary = canary_of(&timing["request_canary"]);
    row.controlled_output = controlled_output_of(&timing["controlled_output"]);
    if let Some(failure) = failure {
        row.outcome = Outcome::ControlledOutputFailed;
        let reasons = failure["response_metadata"]["finish_reasons"].as_array().unwrap();
        row.finish_reasons = reasons.iter().map(|reason| (0, reason.as_str().unwrap().to_owned())).collect();
        row.usage.total_tokens = failure["response_metadata"]["usage"]["total_tokens"].as_u64();
        // From due to the end of the request.
        row.due = Nanos(row.at.end.unwrap().0 - ns(&failure["elapsed_ms"]).unwrap().0);
    }
    row
}

fn canary_of(seen: &Value) -> Option<CanaryObservation> {
    Some(CanaryObservation {
        marker: seen["marker"].as_str()?.to_owned(),
        marker_at_start: seen["marker_at_start"].as_bool()?,
        observed_marker_count: seen["observed_marker_count"].as_u64()?,
        foreign_marker_count: seen["foreign_marker_count"].as_u64()?,
        capture_complete: seen["capture_complete"].as_bool()?,
        passed: seen["passed"].as_bool()?,
    })
}

fn controlled_output_of(seen: &Value) -> Option<ControlledOutputObservation> {
    Some(ControlledOutputObservation {
        requested_words: seen["requested_words"].as_u64()?,
        strict: seen["policy"].as_str()? == "strict",
        observed_code_words: seen["observed_code_words"].as_u64()?,
        observed_extra_words: seen["observed_extra_words"].as_u64()?,
        capture_complete: seen["capture_complete"].as_bool()?,
        exact_adherence: seen["exact_adherence"].as_bool(),
        passed: seen["passed"].as_bool()?,
    })
}

fn plain_row(request_index: u64, start: Nanos, at: ReceiveStamps) -> RequestRow {
    RequestRow {
        request_index,
        slot: 0,
        worker: 0,
        connection_id: request_index,
        connection_use: 1,
        stale_connections: 0,
        phase: Phase::Measured,
        outcome: Outcome::Ok,
        http_status: Some(200),
        due: Nanos(start.0 - 1000),
        dns: None,
        connect_start: None,
        connect: None,
        tls: None,
        send_start: Some(start),
        send_end: Some(start),
        sent_wire: None,
        transport: TransportFacts::default(),
        at,
        user: at,
        stamp_source: StampSource::Kernel,
        first_output_kind: Some(OutputKind::Content),
        several_choices: false,
        one_output_read: false,
        counters: Counters::default(),
        usage: Usage::default(),
        output_tokens: None,
        output_token_source: TokenSource::Usage,
        first_chunk_tokens: None,
        chunk_tokens: None,
        finish_reasons: vec![(0, "stop".to_owned())],
        planned_context_tokens: None,
        requested_max_tokens: None,
        canary: None,
        controlled_output: None,
        visible_content_truncated: false,
        cut_after_terminal: false,
        role_chunk_first: false,
        streamed_unasked: false,
        anomalies: Anomalies::NONE,
        error: None,
    }
}

// ------------------------------------------------------------------------------------------------ the run

/// The run that an artifact's own fields describe.
fn run_of(published: &Value) -> (RunSpec, ResolvedTarget) {
    let number = |key: &str| published[key].as_u64();
    let text = |key: &str| published[key].as_str().map(str::to_owned);
    let spec = RunSpec {
        target: TargetSpec {
            endpoint: Endpoint::Chat,
            plain: None,
            base_url: text("base_url").unwrap(),
            host: "127.0.0.1".to_owned(),
            port: 1,
            path: "/v1/chat/completions".to_owned(),
            models_path: None,
            sim: None,
            model: text("model"),
            api_key: None,
            headers: Vec::new(),
            request_id_header: false,
        },
        load: LoadSpec {
            requests: number("requests").unwrap(),
            concurrency: u32::try_from(number("concurrency").unwrap()).unwrap(),
            burst: 0,
            arrivals: None,
        },
        prompt: prompt_of(published),
        body: body_of(published),
        connection: ConnectionSpec {
            mode: ConnectionMode::Keep,
            prewarm: false,
            source_ips: Vec::new(),
            timeout: Nanos::from_secs(900),
            idle_timeout: Nanos::from_secs(900),
            connect_timeout: Nanos::from_secs(10),
        },
        instrument: InstrumentSpec {
            workers: None,
            cores: Vec::new(),
            kernel_stamps: true,
            strict: false,
            max_client_error: None,
        },
        output: OutputSpec {
            dir: None,
            json_out: None,
            overwrite: false,
            quiet: true,
            progress: ProgressMode::None,
            format: OutputFormat::Text,
        },
        labels: labels_of(published),
        dry_run: false,
    };
    let target = ResolvedTarget {
        addresses: Vec::new(),
        model: text("model").unwrap(),
        max_model_len: number("max_context_tokens"),
        unresolved: None,
        unreachable: None,
    };
    (spec, target)
}

fn body_of(published: &Value) -> BodySpec {
    let flags = &published["serve_flags"];
    BodySpec {
        compat_anvil: true,
        temperature: None,
        top_p: None,
        thinking_mode: match flags["thinking_mode"].as_str().unwrap() {
            "disabled" => ThinkingMode::Disabled,
            _ => ThinkingMode::Default,
        },
        no_thinking: flags["no_thinking"].as_bool().unwrap(),
        reasoning_effort: flags["reasoning_effort"].as_str().map(str::to_owned),
        ..BodySpec::default()
    }
}

fn prompt_of(published: &Value) -> PromptSpec {
    let number = |key: &str| published[key].as_u64();
    PromptSpec {
        ctx_tokens: number("context_tokens"),
        seed: published["context_seed"].as_i64().unwrap(),
        max_tokens: number("max_tokens").unwrap(),
        response_words: number("response_words").unwrap(),
        unique: published["prompt_cache_mode"] == "unique",
        same: false,
        shared_prefix_tokens: number("shared_prefix_tokens").unwrap(),
        request_canaries: published["request_canaries"].as_bool().unwrap(),
        controlled_output_strict: published["controlled_output_policy"] == "strict",
        max_model_len: number("max_context_tokens"),
        margin: 1024,
        capture_limit: 8192,
    }
}

fn labels_of(published: &Value) -> LabelSpec {
    let text = |key: &str| published[key].as_str().map(str::to_owned);
    LabelSpec {
        engine: text("engine"),
        gpu: text("gpu"),
        tier: text("tier"),
        manifest: text("manifest"),
        source_recipe: text("source_recipe"),
        clock_domain_id: text("clock_domain_id"),
        configuration_fingerprint: text("configuration_fingerprint"),
        labels: Vec::new(),
    }
}
