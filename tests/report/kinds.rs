//! Runs whose answers are no streams: the summary has no row for what cannot exist, and no warning misses it.

use hammerscale::config::spec::{ArrivalProcess, Arrivals, Endpoint, PlainSpec};
use hammerscale::metrics::row::{ReceiveStamps, TokenSource};
use hammerscale::record::{Counters, ErrorDetail, Usage};
use hammerscale::report::terminal::{layout::Style, render};
use hammerscale::units::{Nanos, PerSecond};
use hammerscale::wire::http1::Method;

use crate::fixture::{self, Run};

/// The ordinary run, with answers of one piece.
fn unstreamed(endpoint: Endpoint) -> Run {
    let mut run = fixture::normal();
    let unstreamed = |at: &mut ReceiveStamps| {
        let ReceiveStamps { first_byte, head_done, end, .. } = *at;
        *at = ReceiveStamps { first_byte, head_done, end, ..ReceiveStamps::default() };
    };
    for row in &mut run.rows {
        unstreamed(&mut row.at);
        unstreamed(&mut row.user);
        row.counters = Counters { reads: 1, bytes_sent: 2_900, body_bytes: 400, ..Counters::default() };
        (row.first_output_kind, row.role_chunk_first) = (None, false);
        if !endpoint.generates() {
            (row.output_tokens, row.output_token_source) = (None, TokenSource::Unknown);
            (row.requested_max_tokens, row.usage.completion_tokens) = (None, None);
            row.finish_reasons.clear();
        }
        if !endpoint.takes_prompts() {
            (row.usage, row.planned_context_tokens) = (Usage::default(), None);
        }
    }
    run.chunks.iter_mut().for_each(Vec::clear);
    run.spec.target.endpoint = endpoint;
    run.spec.body.streamed = false;
    run.reference_ok = None;
    run
}

fn plain() -> Run {
    let mut run = unstreamed(Endpoint::Http);
    let body = Some(vec![0; 1_234].into());
    run.spec.target.plain = Some(PlainSpec { method: Method::Put, body, body_file: None });
    run.spec.target.path = "/a".to_owned();
    run
}

/// The ordinary run at ten requests a second, each of them sent this many microseconds after its due.
fn open(lag_us: impl Fn(i64) -> i64) -> Run {
    let mut run = fixture::normal();
    run.spec.load.arrivals = Some(Arrivals { rate: PerSecond(10.0), process: ArrivalProcess::Constant });
    (run.facts.asked_concurrency, run.facts.open_loop) = (None, true);
    for (i, row) in (0..).zip(&mut run.rows) {
        row.due = Nanos(i * 100_000_000);
        row.send_start = row.send_start.map(|_| Nanos(row.due.0 + lag_us(i) * 1_000));
    }
    run
}

fn shown(run: &Run) -> String {
    render(&run.document(), Some(&run.files()), Style::PLAIN)
}

fn rows(text: &str) -> Vec<&str> {
    let titles =
        ["Time to", "End to end", "Output", "Peak", "Total", "Request rate", "Mean conc", "Gap", "Time per"];
    let lines = text.lines().map(str::trim_start);
    lines.filter(|line| titles.iter().any(|title| line.starts_with(title))).collect()
}

#[test]
fn an_answer_of_one_piece_has_a_first_byte_and_an_end() {
    for (run, words, lines) in [
        (unstreamed(Endpoint::Chat), "at most 64 tokens out · not streamed\n", 6),
        (unstreamed(Endpoint::Embeddings), "prompts of 512 tokens · kept connections", 5),
        (plain(), "plain PUT of 1,234 bytes · kept connections", 4),
    ] {
        let text = shown(&run);
        assert!(text.contains(words), "{text}");
        let rows = rows(&text);
        assert_eq!(rows.len(), lines, "{text}");
        assert!(rows[0].starts_with("Time to first byte") && rows[1].starts_with("End to end"), "{text}");
        let blank = |row: &&&str| row.contains('–') || row.contains(" 0  ") || row.contains("NaN");
        assert_eq!(rows.iter().find(blank), None, "{text}");
    }
}

#[test]
fn an_open_loop_tells_latencies_from_due_and_nothing_of_slots() {
    let run = open(|_| 50);
    let (text, document) = (shown(&run), run.document());
    for words in ["60 requests, at 10/s (constant)", "Latency from due, ms", "Send lag"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!text.contains("steady") && !text.contains("at a time"), "{text}");
    let told = document.metrics.get("e2e_from_due_ms").and_then(|metric| metric.p50).unwrap();
    let row = rows(&text).into_iter().find(|row| row.starts_with("End to end")).unwrap();
    let shown: f64 = row.split_whitespace().nth(3).unwrap().replace(',', "").parse().unwrap();
    assert!((shown - told).abs() <= told / 1_000.0, "{row}: {told}");
    assert_eq!((document.plan.driven.as_str(), document.plan.arrivals.as_str()), ("open", "constant"));
    assert_eq!((document.spec.load.concurrency, document.spec.load.rate), (None, Some(10.0)));
    assert_eq!((document.window.unwrap().steady_state, document.instrument.slot_wait_share), (None, None));
}

#[test]
fn a_schedule_that_was_not_kept_is_told() {
    let told = |run: &Run| {
        let document = run.document();
        let rate = document.warnings.into_iter().find(|warning| warning.code == "rate_not_reached");
        (document.instrument.reasons.join(" "), rate.map(|warning| warning.text))
    };
    let (reasons, rate) = told(&open(|_| 900));
    assert!(!reasons.contains("schedule") && rate.is_none(), "{reasons} {rate:?}");
    // Every request two milliseconds later than the one before.
    let (reasons, rate) = told(&open(|i| i * 2_000));
    assert!(
        reasons.contains("fell behind its schedule") && reasons.contains("after they were due"),
        "{reasons}"
    );
    let rate = rate.unwrap();
    assert!(rate.contains("9.80 requests a second were sent where the schedule held 10.0"), "{rate}");
    assert!(rate.ends_with("(98.0% of it; asked for: 10/s)"), "{rate}");
}

#[test]
fn what_was_cut_to_fit_is_not_called_what_was_asked_for() {
    let mut run = fixture::normal();
    run.spec.prompt.ctx_tokens = Some(4_000);
    run.rows.iter_mut().for_each(|row| row.planned_context_tokens = Some(896));
    let text = shown(&run);
    assert!(text.contains("prompts of 896 tokens: 4,000 do not fit"), "{text}");
    // Nobody counted them: the model's length, 32,768, less 64 of output and 256 of margin.
    run.spec.prompt.ctx_tokens = Some(40_000);
    run.rows.iter_mut().for_each(|row| row.usage.prompt_tokens = None);
    let text = shown(&run);
    assert!(text.contains("prompts of 32,448 tokens: 40,000 do not fit"), "{text}");
}

#[test]
fn a_failure_says_its_status_once() {
    let mut run = fixture::all_failed();
    let of = |run: &Run| shown(run).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(of(&run).contains("request 0: status 503, the server answered"), "{}", of(&run));
    for row in &mut run.rows {
        let message = "status 503 Service Unavailable".to_owned();
        row.error = Some(ErrorDetail { message, ..ErrorDetail::default() });
    }
    assert!(of(&run).contains("request 0: status 503 Service Unavailable"), "{}", of(&run));
}

#[test]
fn nobody_misses_what_was_not_asked_for() {
    let codes = |run: &Run| -> Vec<String> { run.document().warnings.into_iter().map(|w| w.code).collect() };
    assert_eq!(codes(&plain()), ["few_samples"]);
    assert_eq!(codes(&unstreamed(Endpoint::Embeddings)), ["few_samples"]);
    let mut silent = unstreamed(Endpoint::Embeddings);
    silent.rows[3].usage = Usage::default();
    let warnings = silent.document().warnings;
    let no_usage = warnings.iter().find(|w| w.code == "no_usage").unwrap();
    assert_eq!(no_usage.text, "1 of 58 answers without usage: their prompt tokens are unknown");
    assert!(!codes(&unstreamed(Endpoint::Chat)).contains(&"multi_token_chunks".to_owned()));
}

#[test]
fn documents_say_null_for_what_plain_requests_do_not_have() {
    let document: serde_json::Value = serde_json::from_str(&plain().document().to_json().unwrap()).unwrap();
    let (spec, target) = (&document["spec"], &document["target"]);
    assert!(spec["prompt"].is_null() && spec["body"].is_null() && target["model"].is_null());
    assert_eq!((&spec["plain"]["method"], &spec["plain"]["body_bytes"]), (&"PUT".into(), &1_234.into()));
    for rate in ["output_tok_s", "total_tok_s", "peak_output_tok_s"] {
        assert!(document["rates"][rate].is_null(), "{rate}: {}", document["rates"][rate]);
    }
    assert!(document["metrics"].get("ttft_ms").is_none());
}
