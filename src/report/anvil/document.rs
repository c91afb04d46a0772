//! The whole artifact: every top-level key, in the order of the document.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::metrics::rows::RowSource;
use crate::report::anvil::SCHEMA;
use crate::report::anvil::failure::Failure;
use crate::report::anvil::judged::Judged;
use crate::report::anvil::statistics::{
    Population, TAIL_FAMILIES, metrics, samples_key, throughput_eligible,
};
use crate::report::anvil::timing::{Policy, Timing};
use crate::report::document::body_spec::BodySpecDoc;
use crate::report::document::provenance::TargetDoc;
use crate::report::document::spec::{PromptSpecDoc, SpecDoc};
use crate::report::document::{Span, after};
use crate::units::{Nanos, UnixNanos, calendar};

/// What the rows do not tell. All of it stands in `run.json`, so that a saved run gives the same artifact.
#[derive(Debug, Clone, Copy)]
pub struct RunFacts<'a> {
    /// The resolved run.
    pub spec: &'a SpecDoc,
    /// What its prompts are.
    pub prompt: &'a PromptSpecDoc,
    /// What else its bodies carry.
    pub body: &'a BodySpecDoc,
    /// The output limit that was asked for.
    pub max_tokens: u64,
    /// The server as it was found.
    pub target: &'a TargetDoc,
    /// The model that was asked for.
    pub model: &'a str,
    /// Wall clock just before the first request.
    pub started: UnixNanos,
    /// Wall clock just after the last one.
    pub finished: UnixNanos,
    /// Between the two, by the steady clock.
    pub wall: Nanos,
}

impl<'a> RunFacts<'a> {
    /// From the zero of all stamps and the span of the run; `None` for a run whose answers are no streamed text, which
    /// the reference would count as failures.
    #[must_use]
    pub fn of(spec: &'a SpecDoc, target: &'a TargetDoc, zero: UnixNanos, span: Span) -> Option<Self> {
        let prompt = spec.prompt.as_ref()?;
        Some(Self {
            spec,
            prompt,
            body: spec.body.as_ref().filter(|body| body.stream)?,
            max_tokens: prompt.max_tokens?,
            target,
            model: target.model.as_deref()?,
            started: after(zero, span.began_ns),
            finished: after(zero, span.ended_ns),
            wall: span.length(),
        })
    }
}

/// The reference artifact, newest generation. Write it with [`encode`](crate::report::anvil::encode).
#[derive(Debug, Clone, Serialize)]
pub struct Artifact<'a> {
    base_url: &'a str,
    clock_domain_id: Option<&'a str>,
    completed: usize,
    concurrency: Option<u32>,
    configuration_fingerprint: Option<&'a str>,
    context_distribution: BTreeMap<String, u64>,
    context_seed: i64,
    context_tokens: Option<u64>,
    controlled_output_policy: Policy,
    engine: Option<&'a str>,
    failed: usize,
    failures: Vec<Failure>,
    finished_at: String,
    finished_at_unix_ns: i64,
    gpu: Option<&'a str>,
    manifest: Option<&'a str>,
    max_context_tokens: Option<u64>,
    max_tokens: u64,
    measurement_protocol: &'static str,
    metric_population: MetricPopulation,
    metrics: BTreeMap<String, Value>,
    model: &'a str,
    performance_eligible: bool,
    prompt_cache_mode: &'static str,
    request_canaries: bool,
    request_timings: Vec<Timing>,
    requests: usize,
    response_words: u64,
    responses_received: usize,
    run_id: String,
    sampling: Sampling,
    schema: &'static str,
    serve_flags: ServeFlags<'a>,
    shared_prefix_tokens: u64,
    source_recipe: Option<&'a str>,
    started_at: String,
    started_at_unix_ns: i64,
    tier: Option<&'a str>,
    timestamp_precision: &'static str,
    timing_methodology: BTreeMap<&'static str, &'static str>,
    wall_clock_ms: f64,
}

/// `metric_population`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct MetricPopulation {
    aggregate_throughput_eligible: bool,
    attempted_requests: usize,
    excluded_requests: usize,
    failure_policy: &'static str,
    p99_interpretation: &'static str,
    p99_interpretation_by_metric: BTreeMap<&'static str, &'static str>,
    p99_minimum_recommended_samples: u64,
    p99_samples_by_metric: BTreeMap<&'static str, u64>,
    performance_eligible_requests: usize,
    successful_requests: usize,
}

/// What sampling parameters were asked for and sent.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Sampling {
    temperature: SamplingParameter,
    top_p: SamplingParameter,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct SamplingParameter {
    effective_request: Option<f64>,
    requested: Option<f64>,
    sent: bool,
}

/// Request controls, under the reference's name for them.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct ServeFlags<'a> {
    no_thinking: bool,
    reasoning_effort: Option<&'a str>,
    shared_prefix_burst: bool,
    thinking_mode: &'a str,
}

impl<'a> Artifact<'a> {
    /// `metrics`.
    #[must_use]
    pub const fn metrics(&self) -> &BTreeMap<String, Value> {
        &self.metrics
    }

    /// The artifact of a run. Rows may come in any order; warm-up rows are left out. Requests of the plan without a row
    /// were never sent and are failures, so that a run that was cut short does not look complete.
    #[must_use]
    pub fn of(rows: impl RowSource, run: &RunFacts<'a>) -> Self {
        let Judged { completed, timings, failures, hits, context_distribution } =
            Judged::of(rows, run.spec.load.requests);
        let performance_eligible = failures.is_empty();
        let wall_clock_ms = run.wall.as_millis_f64();
        let population =
            Population { rows: &timings, performance_eligible, wall_clock_ms, prefix_cache_hits: &hits };
        let metrics = metrics(&population);
        let failed = failures.len();
        let received = failures.iter().filter(|failure| failure.response_received).count();
        let SpecDoc { load, labels, .. } = run.spec;
        let prompt = run.prompt;
        Self {
            base_url: &run.target.base_url,
            clock_domain_id: labels.clock_domain_id.as_deref(),
            completed,
            concurrency: load.concurrency,
            configuration_fingerprint: labels.configuration_fingerprint.as_deref(),
            context_distribution,
            context_seed: prompt.seed,
            context_tokens: prompt.ctx_tokens,
            controlled_output_policy: Policy::of(prompt.controlled_output_strict),
            engine: labels.engine.as_deref(),
            failed,
            finished_at: calendar::rfc3339(run.finished),
            finished_at_unix_ns: run.finished.get(),
            gpu: labels.gpu.as_deref(),
            manifest: labels.manifest.as_deref(),
            max_context_tokens: run.target.max_model_len,
            max_tokens: run.max_tokens,
            measurement_protocol: measurement_protocol(&timings),
            metric_population: MetricPopulation::of(&population, completed, failed, &metrics),
            metrics,
            model: run.model,
            performance_eligible,
            prompt_cache_mode: if prompt.unique { "unique" } else { "shared" },
            request_canaries: prompt.request_canaries,
            requests: completed + failed,
            response_words: prompt.response_words,
            responses_received: completed + received,
            run_id: format!("benchmark-{}", calendar::basic(run.started)),
            sampling: Sampling::of(run.body),
            schema: SCHEMA,
            serve_flags: ServeFlags::of(run),
            shared_prefix_tokens: if prompt.unique { 0 } else { prompt.shared_prefix_tokens },
            source_recipe: labels.source_recipe.as_deref(),
            started_at: calendar::rfc3339(run.started),
            started_at_unix_ns: run.started.get(),
            tier: labels.tier.as_deref(),
            timestamp_precision: TIMESTAMP_PRECISION,
            timing_methodology: TIMING_METHODOLOGY.into_iter().collect(),
            wall_clock_ms,
            failures,
            request_timings: timings,
        }
    }

    /// Valid requests by the reference's rules; [`Artifact::failed`] are the others.
    #[must_use]
    pub const fn completed(&self) -> usize {
        self.completed
    }

    /// Requests that the reference's rules do not count.
    #[must_use]
    pub const fn failed(&self) -> usize {
        self.failed
    }
}

impl MetricPopulation {
    /// From the population, its counts and its metrics.
    pub(super) fn of(
        population: &Population<'_>,
        completed: usize,
        failed: usize,
        metrics: &BTreeMap<String, Value>,
    ) -> Self {
        let samples = |prefix| metrics.get(&samples_key(prefix)).and_then(Value::as_u64).unwrap_or(0);
        let interpretation =
            |samples| if samples >= P99_SAMPLES { "tail-estimate" } else { "descriptive-nearest-rank-only" };
        Self {
            aggregate_throughput_eligible: throughput_eligible(population),
            attempted_requests: completed + failed,
            excluded_requests: failed,
            failure_policy: FAILURE_POLICY,
            p99_interpretation: interpretation(u64::try_from(completed).unwrap_or(u64::MAX)),
            p99_interpretation_by_metric: TAIL_FAMILIES
                .map(|prefix| (prefix, interpretation(samples(prefix))))
                .into(),
            p99_minimum_recommended_samples: P99_SAMPLES,
            p99_samples_by_metric: TAIL_FAMILIES.map(|prefix| (prefix, samples(prefix))).into(),
            performance_eligible_requests: completed,
            successful_requests: completed,
        }
    }
}

impl Sampling {
    /// What was really sent. Only `--compat anvil` sends a temperature that nobody asked for.
    fn of(body: &BodySpecDoc) -> Self {
        // A member that the user added is sent in the place of ours.
        let added = |name| body.extra_body.get(name).and_then(Value::as_f64);
        let default = body.temperature.or(body.compat_anvil.then_some(0.0));
        let (temperature, top_p) = (added("temperature").or(default), added("top_p").or(body.top_p));
        Self {
            temperature: SamplingParameter {
                effective_request: temperature,
                requested: body.temperature,
                sent: temperature.is_some(),
            },
            top_p: SamplingParameter {
                effective_request: top_p,
                requested: body.top_p,
                sent: top_p.is_some(),
            },
        }
    }
}

impl<'a> ServeFlags<'a> {
    fn of(run: &RunFacts<'a>) -> Self {
        Self {
            no_thinking: run.body.no_thinking,
            reasoning_effort: run.body.reasoning_effort.as_deref(),
            shared_prefix_burst: run.spec.load.burst > 0,
            thinking_mode: &run.body.thinking_mode,
        }
    }
}

/// Version 4 of the protocol is version 3 that has seen reasoning in a valid request.
pub(super) fn measurement_protocol(valid: &[Timing]) -> &'static str {
    if valid.iter().any(|row| row.reasoning_chunks > 0) { "capacity-v4-reasoning" } else { "capacity-v3" }
}

/// Samples below which a 99th percentile only describes the sample.
const P99_SAMPLES: u64 = 100;

const FAILURE_POLICY: &str = "failed or contract-invalid responses retain sanitized timing and metadata but are excluded from performance distributions";

const TIMESTAMP_PRECISION: &str = "nanosecond-unix-fields; ISO labels are second precision";

/// The texts of the format, the same in every artifact of the newest generations.
const TIMING_METHODOLOGY: [(&str, &str); 13] = [
    (
        "artifact_timestamps",
        "time.time_ns Unix timestamps; independent artifacts may align them only when the operator supplied the same explicit clock_domain_id",
    ),
    ("clock", "client time.perf_counter"),
    (
        "controlled_output",
        "--response-words adherence is recorded; observe preserves historical behavior while strict rejects non-exact or truncated completions; visible response capture is capped at 8192 characters",
    ),
    (
        "decode",
        "usage completion tokens after the first token divided by client-observed generation time; completion tokens may include reasoning tokens",
    ),
    (
        "distributions",
        "request-level mean, sample standard deviation, normal-approximation 95% confidence interval for the mean, min, p25, p50, p75, p90, p95, p99, and max using the nearest-rank percentile method",
    ),
    (
        "effective_prefill",
        "usage.prompt_tokens divided by client-observed time to first output; includes queueing, scheduling, prefill, and first-token work",
    ),
    ("generation", "client-observed E2E minus time to first output"),
    (
        "mean_inter_token_latency",
        "legacy key for a TPOT proxy: client-observed generation time divided by completion tokens after the first token; not raw per-token ITL",
    ),
    (
        "p99",
        "numeric nearest-rank p99 is always retained for compatibility; it is descriptive only below 100 eligible samples",
    ),
    (
        "request_canaries",
        "when enabled, each response must begin with its own synthetic marker and contain no other ANVIL_REQ marker; bounded/truncated captures fail closed and are excluded from performance metrics",
    ),
    ("time_to_first_output", "request start through the first non-empty streamed reasoning or content delta"),
    (
        "tpot",
        "client-observed mean time per output token after the first output; identical to the legacy mean_inter_token_latency key",
    ),
    ("ttft", "request start through the first non-empty streamed content delta"),
];
