//! `metrics`: 11 families of 13 statistics over the rows, and 16 numbers of the run: 159 keys.
//!
//! Numerics that published digits depend on: the mean is the exactly rounded sum divided by the count, the standard
//! deviation exact until its one rounding (0.0 for one value, unlike in `run.json`), the interval `mean ∓ (1.96·stddev)/√n`
//! in that order, percentiles nearest rank. Every statistic is a double, every count a whole number.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::metrics::exact;
use crate::metrics::quantile::{Quantile, nearest_rank};
use crate::report::anvil::timing::{Timing, USAGE};

/// What the numbers are made from.
pub(super) struct Population<'a> {
    /// Rows of the valid requests.
    pub(super) rows: &'a [Timing],
    /// Every request was valid.
    pub(super) performance_eligible: bool,
    /// `wall_clock_ms`.
    pub(super) wall_clock_ms: f64,
    /// Cached share of each valid request that told it.
    pub(super) prefix_cache_hits: &'a [f64],
}

/// One family of 13 keys.
struct Family {
    /// What its keys begin with.
    prefix: &'static str,
    /// What they end with, `_samples` excepted.
    suffix: &'static str,
    /// The row field behind it.
    value: fn(&Timing) -> Option<f64>,
}

const FAMILIES: [Family; 11] = [
    Family { prefix: "time_to_first_output", suffix: "_ms", value: |row| row.time_to_first_output_ms },
    Family { prefix: "ttft", suffix: "_ms", value: |row| Some(row.ttft_ms) },
    Family { prefix: "generation", suffix: "_ms", value: |row| Some(row.generation_ms) },
    Family { prefix: "e2e", suffix: "_ms", value: |row| Some(row.e2e_ms) },
    Family { prefix: "effective_prefill_tok_s", suffix: "", value: |row| row.effective_prefill_tok_s },
    Family { prefix: "decode_tok_s", suffix: "", value: |row| row.decode_tok_s },
    Family {
        prefix: "mean_inter_token_latency_ms",
        suffix: "",
        value: |row| row.mean_inter_token_latency_ms,
    },
    Family {
        prefix: "mean_time_per_output_token",
        suffix: "_ms",
        value: |row| row.mean_time_per_output_token_ms,
    },
    Family { prefix: "tpot", suffix: "_ms", value: |row| row.mean_time_per_output_token_ms },
    Family { prefix: "prompt_tokens", suffix: "", value: |row| row.prompt_tokens.map(float) },
    Family { prefix: "completion_tokens", suffix: "", value: |row| row.output_tokens.map(float) },
];

/// The families whose tail is spoken of in `metric_population`.
pub(super) const TAIL_FAMILIES: [&str; 5] =
    ["decode_tok_s", "e2e", "effective_prefill_tok_s", "tpot", "ttft"];

/// All 159 keys.
pub(super) fn metrics(population: &Population<'_>) -> BTreeMap<String, Value> {
    let mut metrics = BTreeMap::new();
    for family in &FAMILIES {
        let values: Vec<f64> = population.rows.iter().filter_map(family.value).collect();
        for (statistic, value) in statistics(&values) {
            metrics.insert(format!("{}_{statistic}{}", family.prefix, family.suffix), number(value));
        }
        metrics.insert(samples_key(family.prefix), values.len().into());
    }
    let scalars = scalars(population);
    metrics.extend(scalars.into_iter().map(|(key, value)| (key.to_owned(), value)));
    metrics
}

/// The key of a family's count.
pub(super) fn samples_key(prefix: &str) -> String {
    format!("{prefix}_samples")
}

/// Sum of output tokens: `None` when one of them is not by usage, 0 without rows.
pub(super) fn output_tokens(rows: &[Timing]) -> Option<u64> {
    let by_usage = rows.iter().all(|row| row.output_token_source == USAGE);
    by_usage.then(|| sum(rows.iter().map(Timing::counted_tokens)))
}

/// Whether the run's throughput means something.
pub(super) fn throughput_eligible(population: &Population<'_>) -> bool {
    population.performance_eligible
        && output_tokens(population.rows).is_some()
        && population.wall_clock_ms > 0.0
}

/// `count` per second of a wall time; `None` for a wall time that is not positive.
pub(super) fn per_second(count: u64, wall_clock_ms: f64) -> Option<f64> {
    (wall_clock_ms > 0.0).then(|| float(count) / (wall_clock_ms / 1000.0))
}

/// The statistics of a family except its count; all `None` without values.
fn statistics(values: &[f64]) -> [(&'static str, Option<f64>); 12] {
    let mut ascending = values.to_vec();
    ascending.sort_unstable_by(f64::total_cmp);
    let at = |q| nearest_rank(&ascending, q).copied();
    let mean = exact::fmean(values);
    let stddev = if values.len() == 1 { Some(0.0) } else { exact::stdev(values) };
    let half_width = stddev.map(|stddev| 1.96 * stddev / length(values).sqrt());
    [
        ("mean", mean),
        ("stddev", stddev),
        ("mean_ci95_low", mean.zip(half_width).map(|(mean, half)| mean - half)),
        ("mean_ci95_high", mean.zip(half_width).map(|(mean, half)| mean + half)),
        ("min", ascending.first().copied()),
        ("max", ascending.last().copied()),
        ("p25", at(Quantile::P25)),
        ("p50", at(Quantile::P50)),
        ("p75", at(Quantile::P75)),
        ("p90", at(Quantile::P90)),
        ("p95", at(Quantile::P95)),
        ("p99", at(Quantile::P99)),
    ]
}

fn scalars(population: &Population<'_>) -> [(&'static str, Value); 16] {
    let rows = population.rows;
    let prompts: Vec<u64> = rows.iter().filter_map(|row| row.prompt_tokens).collect();
    let output_tokens = output_tokens(rows);
    let content_chunks = sum(rows.iter().map(|row| row.content_chunks));
    let eligible = throughput_eligible(population);
    let wall = population.wall_clock_ms;
    let throughput = output_tokens.filter(|_| eligible).and_then(|n| per_second(n, wall));
    let content_chunks_s = if output_tokens.is_none() { per_second(content_chunks, wall) } else { None };
    let controlled = || rows.iter().filter_map(|row| row.controlled_output.as_ref());
    let exact = controlled().filter(|seen| seen.exact_adherence == Some(true)).count();
    let observable = controlled().filter(|seen| seen.exact_adherence.is_some()).count();
    let controlled = controlled().count();
    let canaries = || rows.iter().filter_map(|row| row.request_canary.as_ref());
    let mut sources = BTreeMap::<&str, u64>::new();
    for row in rows {
        *sources.entry(&row.output_token_source).or_default() += 1;
    }
    [
        ("prompt_tokens", if prompts.is_empty() { Value::Null } else { sum(prompts.iter().copied()).into() }),
        ("prompt_token_samples", prompts.len().into()),
        ("output_tokens", output_tokens.into()),
        ("content_chunks", content_chunks.into()),
        ("reasoning_chunks", sum(rows.iter().map(|row| row.reasoning_chunks)).into()),
        ("request_canary_samples", canaries().count().into()),
        ("request_canary_passed", canaries().filter(|seen| seen.passed).count().into()),
        ("controlled_output_samples", controlled.into()),
        ("controlled_output_exact_adherence", exact.into()),
        ("controlled_output_unobservable", (controlled - observable).into()),
        ("controlled_output_exact_adherence_rate", number(ratio(exact, observable))),
        ("throughput_tok_s", number(throughput)),
        ("throughput_performance_eligible", eligible.into()),
        ("content_chunks_s", number(content_chunks_s)),
        ("output_token_sources", sources.into_iter().map(|(k, v)| (k.to_owned(), Value::from(v))).collect()),
        ("prefix_cache_hit_avg", number(exact::mean(population.prefix_cache_hits))),
    ]
}

/// A double, or null where there is none.
fn number(value: Option<f64>) -> Value {
    value.map_or(Value::Null, Value::from)
}

fn ratio(part: usize, whole: usize) -> Option<f64> {
    (whole > 0).then(|| length_f64(part) / length_f64(whole))
}

fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

fn length(values: &[f64]) -> f64 {
    length_f64(values.len())
}

#[expect(clippy::cast_precision_loss, reason = "numbers of rows are far below 2^53")]
fn length_f64(n: usize) -> f64 {
    n as f64
}

#[expect(
    clippy::cast_precision_loss,
    reason = "token counts are far below 2^53, and Python rounds the same way"
)]
fn float(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::testing::row;
    use crate::report::anvil::timing::{CONTENT_CHUNKS, ControlledOutput, Policy};
    use serde_json::json;

    fn timings() -> Vec<Timing> {
        // e2e 130, 131, …, 134 ms.
        let mut rows: Vec<Timing> = (0..5).map(|i| Timing::of(&row(i)).unwrap()).collect();
        for (row, e2e_ms) in rows.iter_mut().zip([132.0, 130.0, 134.0, 131.0, 133.0]) {
            row.e2e_ms = e2e_ms;
        }
        rows
    }

    fn of(rows: &[Timing], performance_eligible: bool, hits: &[f64]) -> BTreeMap<String, Value> {
        metrics(&Population { rows, performance_eligible, wall_clock_ms: 500.0, prefix_cache_hits: hits })
    }

    #[test]
    fn a_hand_worked_family() {
        let m = of(&timings(), true, &[]);
        assert_eq!(m.len(), 159);
        let stddev = 2.5_f64.sqrt();
        let half = 1.96 * stddev / 5_f64.sqrt();
        for (key, want) in [
            ("e2e_samples", json!(5)),
            ("e2e_mean_ms", json!(132.0)),
            ("e2e_stddev_ms", json!(stddev)),
            ("e2e_mean_ci95_low_ms", json!(132.0 - half)),
            ("e2e_mean_ci95_high_ms", json!(132.0 + half)),
            ("e2e_min_ms", json!(130.0)),
            ("e2e_p25_ms", json!(131.0)),
            ("e2e_p50_ms", json!(132.0)),
            ("e2e_p75_ms", json!(133.0)),
            ("e2e_p90_ms", json!(134.0)),
            ("e2e_p99_ms", json!(134.0)),
            ("e2e_max_ms", json!(134.0)),
            ("prompt_tokens_p50", json!(100.0)),
            ("prompt_tokens", json!(500)),
            ("prompt_token_samples", json!(5)),
            ("output_tokens", json!(55)),
            ("throughput_tok_s", json!(110.0)),
            ("content_chunks", json!(20)),
            ("content_chunks_s", json!(null)),
            ("reasoning_chunks", json!(10)),
            ("output_token_sources", json!({"usage": 5})),
            ("controlled_output_samples", json!(0)),
            ("controlled_output_exact_adherence_rate", json!(null)),
            ("prefix_cache_hit_avg", json!(null)),
        ] {
            assert_eq!(m[key], want, "{key}");
        }
    }

    #[test]
    fn no_rows_and_one_row() {
        let none = of(&[], true, &[]);
        assert_eq!(none.len(), 159);
        assert_eq!(none["e2e_samples"], 0);
        for statistic in ["mean", "stddev", "mean_ci95_low", "mean_ci95_high", "min", "max", "p25", "p99"] {
            assert_eq!(none[&format!("e2e_{statistic}_ms")], Value::Null, "{statistic}");
        }
        assert_eq!((&none["output_tokens"], &none["prompt_tokens"]), (&json!(0), &Value::Null));
        assert_eq!(none["output_token_sources"], json!({}));
        let one = of(&timings()[..1], true, &[]);
        assert_eq!(one["e2e_stddev_ms"], json!(0.0), "and not null as in our own document");
        assert_eq!(one["e2e_mean_ci95_low_ms"], json!(132.0));
    }

    #[test]
    fn throughput_is_withheld_when_a_request_failed() {
        let m = of(&timings(), false, &[]);
        assert_eq!(m["throughput_tok_s"], Value::Null);
        assert_eq!(m["throughput_performance_eligible"], false);
        assert_eq!(m["output_tokens"], 55);
    }

    #[test]
    fn one_row_without_usage_gives_chunks_instead_of_tokens() {
        let mut rows = timings();
        rows[1].output_token_source = CONTENT_CHUNKS.into();
        rows[1].output_tokens = None;
        let m = of(&rows, true, &[]);
        assert_eq!((&m["output_tokens"], &m["throughput_tok_s"]), (&Value::Null, &Value::Null));
        assert_eq!(m["content_chunks_s"], json!(40.0));
        assert_eq!(m["output_token_sources"], json!({"content_chunks": 1, "usage": 4}));
    }

    #[test]
    fn adherence_counts_only_what_could_be_seen() {
        let mut rows = timings();
        for (row, exact_adherence) in rows.iter_mut().zip([Some(true), Some(false), None, Some(true)]) {
            row.controlled_output = Some(ControlledOutput {
                capture_complete: exact_adherence.is_some(),
                exact_adherence,
                observed_code_words: 1,
                observed_extra_words: 0,
                passed: true,
                policy: Policy::Observe,
                requested_words: 1,
            });
        }
        let m = of(&rows, true, &[]);
        assert_eq!(m["controlled_output_samples"], 4);
        assert_eq!(m["controlled_output_exact_adherence"], 2);
        assert_eq!(m["controlled_output_unobservable"], 1);
        assert_eq!(m["controlled_output_exact_adherence_rate"], json!(2.0 / 3.0));
    }

    #[test]
    fn the_cache_share_is_an_unweighted_mean_rounded_once() {
        // 2943 of 2969 three times: rounding the sum before the division gives …826.
        let share = 2943.0 / 2969.0;
        assert_eq!(of(&timings(), true, &[share; 3])["prefix_cache_hit_avg"], json!(0.991_242_842_707_982_5));
        assert_eq!(of(&timings(), true, &[0.0])["prefix_cache_hit_avg"], json!(0.0));
    }

    #[test]
    fn a_wall_time_of_nothing_has_no_rates() {
        let m = metrics(&Population {
            rows: &timings(),
            performance_eligible: true,
            wall_clock_ms: 0.0,
            prefix_cache_hits: &[],
        });
        assert_eq!(m["throughput_tok_s"], Value::Null);
        assert_eq!(m["throughput_performance_eligible"], false);
    }
}
