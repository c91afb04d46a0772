//! The blocks with what was measured beside the metrics: counts, failures, window, rates, tokens.

use serde::{Deserialize, Serialize};

use super::finite;
use crate::aggregate::concurrency::SteadyState;
use crate::aggregate::counts::Counts;
use crate::aggregate::tokens::{AskedReceived, TokenFacts};
use crate::aggregate::window::Spans;
use crate::metrics::catalog::{CATALOG, Kind, MetricId};
use crate::metrics::rates::RunRates;
use crate::report::ordered::OrderedMap;
use crate::report::requests::CONNECTION_RETRIES;
use crate::units::Nanos;

/// Requests by ending.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountsDoc {
    /// Measured requests that were asked for.
    pub planned: u64,
    /// Those of which at least one byte was offered to a socket.
    pub sent: u64,
    /// Those that ended `ok`.
    pub ok: u64,
    /// Every other ending, except the next two.
    pub failed: u64,
    /// Cut by the run's own end.
    pub incomplete: u64,
    /// Cut by the plan.
    pub cancelled: u64,
    /// Warm-up requests, in no other count.
    pub warmup: u64,
    /// Requests that were due and never started: always 0, a request that must wait keeps its due.
    pub dropped: u64,
    /// Chunk stamps that were lost.
    pub dropped_stamps: u64,
    /// By outcome, only those that occurred.
    pub by_outcome: OrderedMap<u64>,
    /// By status.
    pub by_status: OrderedMap<u64>,
    /// Requests sent twice.
    pub connection_retries: u64,
    /// Kept connections found closed before reuse and replaced.
    pub stale_connections: u64,
}

/// One example of a failing outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureDoc {
    /// How many there are.
    pub count: u64,
    /// The first one by index.
    pub request_index: u64,
    /// Status of its response.
    pub http_status: Option<u16>,
    /// What is known about it.
    pub detail: Option<String>,
}

/// The parts of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WindowDoc {
    /// First measured due.
    pub start_ns: i64,
    /// End of the measured time.
    pub end_ns: i64,
    /// From the first warm-up due to the window; `null` without warm-up.
    pub warmup_s: Option<f64>,
    /// Length of the window.
    pub measured_s: f64,
    /// From the stop to the last end; `null` in a run that was not stopped.
    pub drain_s: Option<f64>,
    /// The span in which the asked concurrency was held; `null` when it was never reached.
    pub steady_state: Option<SteadyStateDoc>,
}

/// The span in which the asked concurrency was held.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SteadyStateDoc {
    /// Its start.
    pub start_ns: i64,
    /// Its end.
    pub end_ns: i64,
    /// Its length.
    pub span_s: f64,
    /// Share of it with as many requests in flight as asked.
    pub held_share: Option<f64>,
    /// Rates over it.
    pub rates: RatesDoc,
}

/// Metrics of run scope by name, in catalog order; `null` where one is unknown.
pub type RatesDoc = OrderedMap<Option<f64>>;

/// Token facts over ok requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokensDoc {
    /// Requests by the source of their output token count.
    pub sources: OrderedMap<u64>,
    /// Output limit against output tokens; `null` when no request has both.
    pub output: Option<AskedReceivedDoc>,
    /// Context target against counted prompt tokens; `null` when no request has both.
    pub prompt: Option<AskedReceivedDoc>,
    /// Prompt tokens from the server's cache; `null` when the server tells nothing.
    pub cached: Option<CachedDoc>,
    /// Tokens per output chunk, without end-of-sequence tokens; `null` where it cannot be known.
    pub per_chunk: Option<f64>,
}

/// Sums over the requests that have both numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AskedReceivedDoc {
    /// How many.
    pub requests: u64,
    /// What was asked for.
    pub requested: u64,
    /// What came.
    pub received: u64,
    /// The latter over the former.
    pub ratio: Option<f64>,
}

/// Sums over the requests that have both numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CachedDoc {
    /// Tokens of the whole prompts.
    pub prompt: u64,
    /// Those from the cache.
    pub cached: u64,
    /// Those written to it; `null` when the server tells nothing.
    #[serde(default)]
    pub created: Option<u64>,
    /// Requests whose server counts the tokens of its cache beside the prompt tokens, so that both were added up; of the
    /// others they are part of the prompt tokens.
    #[serde(default)]
    pub counted_apart: u64,
    /// Their share.
    pub share: Option<f64>,
}

impl CountsDoc {
    pub(super) fn of(counts: &Counts, dropped_stamps: u64) -> Self {
        Self {
            planned: counts.planned,
            sent: counts.sent,
            ok: counts.ok,
            failed: counts.failed,
            incomplete: counts.incomplete,
            cancelled: counts.cancelled,
            warmup: counts.warmup,
            dropped: 0,
            dropped_stamps,
            by_outcome: counts.by_outcome.iter().map(|(outcome, n)| (outcome.name(), *n)).collect(),
            by_status: counts.by_status.iter().map(|(status, n)| (status.to_string(), *n)).collect(),
            connection_retries: u64::from(CONNECTION_RETRIES),
            stale_connections: counts.stale_connections,
        }
    }
}

impl FailureDoc {
    pub(super) fn all(counts: &Counts) -> OrderedMap<Self> {
        let failure = |(outcome, n): (_, &u64)| {
            let example = counts.examples.get(outcome)?;
            let doc = Self {
                count: *n,
                request_index: example.request_index,
                http_status: example.http_status,
                detail: example.detail.clone(),
            };
            Some((outcome.name(), doc))
        };
        counts.by_outcome.iter().filter_map(failure).collect()
    }
}

impl WindowDoc {
    pub(super) fn of(spans: Spans, steady: Option<SteadyState>) -> Self {
        let measured = Nanos(spans.window.end.0.saturating_sub(spans.window.start.0));
        Self {
            start_ns: spans.window.start.0,
            end_ns: spans.window.end.0,
            warmup_s: spans.warmup.map(Nanos::as_secs_f64),
            measured_s: measured.as_secs_f64(),
            drain_s: spans.drain.map(Nanos::as_secs_f64),
            steady_state: steady.map(|steady| SteadyStateDoc {
                start_ns: steady.span.start.0,
                end_ns: steady.span.end.0,
                span_s: Nanos(steady.span.end.0.saturating_sub(steady.span.start.0)).as_secs_f64(),
                held_share: finite(steady.held_share),
                rates: rates_doc(&steady.rates, |id| id != MetricId::PeakOutputTokS),
            }),
        }
    }
}

/// All rates of the window.
pub(in crate::report) fn rates(rates: &RunRates) -> RatesDoc {
    rates_doc(rates, |_| true)
}

fn rates_doc(rates: &RunRates, shown: impl Fn(MetricId) -> bool) -> RatesDoc {
    let run_scope = CATALOG.iter().filter(|metric| metric.kind == Kind::RunRate && shown(metric.id));
    run_scope.map(|metric| (metric.name, rates.get(metric.id).and_then(finite))).collect()
}

impl TokensDoc {
    pub(super) fn of(facts: &TokenFacts) -> Self {
        Self {
            sources: facts.sources.iter().map(|(source, n)| (source.name(), *n)).collect(),
            output: facts.output.as_ref().map(AskedReceivedDoc::of),
            prompt: facts.prompt.as_ref().map(AskedReceivedDoc::of),
            cached: facts.cached.map(|sums| CachedDoc {
                prompt: sums.prompt,
                cached: sums.cached,
                created: sums.created,
                counted_apart: sums.counted_apart,
                share: sums.share(),
            }),
            per_chunk: facts.per_chunk.and_then(|sums| sums.ratio()),
        }
    }
}

impl AskedReceivedDoc {
    fn of(sums: &AskedReceived) -> Self {
        Self { requests: sums.requests, requested: sums.asked, received: sums.received, ratio: sums.ratio() }
    }
}
