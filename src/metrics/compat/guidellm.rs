//! GuideLLM.

use std::borrow::Borrow;

use super::statistics::{Rule, Statistics};
use super::{Definition, Peer, Value, earliest, float, ms, seconds};
use crate::metrics::formula;
use crate::metrics::row::RequestRow;
use crate::metrics::rows::RowSource;
use crate::record::Outcome;
use crate::units::Nanos;

const STATS: &str = "guidellm/schemas/base/request_stats.py";
const METRICS: &str = "guidellm/benchmark/schemas/metrics.py";

/// The tool.
pub static PEER: Peer = Peer {
    name: "guideLLM",
    version: "0.8.1",
    source: "vllm-project/guidellm",
    population: "what it calls `successful`: a 2xx answer that was read up to its end without an exception and has text, a \
                 tool call or output tokens; so an answer that ends early but cleanly is successful, and one with an error \
                 or with data that is not JSON in it is not. An iteration is an event with content, reasoning or a tool \
                 call. Time counts from the first byte sent; the end is `[DONE]`, else the end of the body. Output tokens \
                 are `usage.completion_tokens`, else the number of iterations",
    method: "mean and deviation are weighted where the definition names a weight; a percentile is the first value up to \
             which at least that share of the weight lies, no interpolation; the count of weighted values is the sum of \
             the weights",
    statistics: &[
        ("mean", Rule::Mean),
        ("median", Rule::Quantile(0.5)),
        ("std_dev", Rule::PopulationDeviation),
        ("min", Rule::Min),
        ("max", Rule::Max),
        ("total_sum", Rule::Total),
        ("p001", Rule::Quantile(0.001)),
        ("p01", Rule::Quantile(0.01)),
        ("p05", Rule::Quantile(0.05)),
        ("p10", Rule::Quantile(0.1)),
        ("p25", Rule::Quantile(0.25)),
        ("p50", Rule::Quantile(0.5)),
        ("p75", Rule::Quantile(0.75)),
        ("p90", Rule::Quantile(0.9)),
        ("p95", Rule::Quantile(0.95)),
        ("p99", Rule::Quantile(0.99)),
        ("p999", Rule::Quantile(0.999)),
    ],
    metrics: &[
        Definition { name: "request_latency", unit: "s", definition: "end minus start", file: STATS },
        Definition {
            name: "time_to_first_token_ms",
            unit: "ms",
            definition: "first iteration minus start",
            file: STATS,
        },
        Definition {
            name: "time_to_first_output_token_ms",
            unit: "ms",
            definition: "first iteration with content or a tool call minus start; reasoning by itself does not count",
            file: STATS,
        },
        Definition {
            name: "time_per_output_token_ms",
            unit: "ms",
            definition: "(last iteration minus start) over output tokens, the time to first token included; weighted by \
                         output tokens",
            file: STATS,
        },
        Definition {
            name: "inter_token_latency_ms",
            unit: "ms",
            definition: "(last iteration minus first iteration) over (output tokens minus 1); weighted by output tokens \
                         minus 1",
            file: STATS,
        },
        Definition {
            name: "prompt_token_count",
            unit: "tokens",
            definition: "`usage.prompt_tokens`; it takes 0 where a server sends none: null then",
            file: STATS,
        },
        Definition { name: "output_token_count", unit: "tokens", definition: "output tokens", file: STATS },
        Definition {
            name: "total_token_count",
            unit: "tokens",
            definition: "prompt tokens plus output tokens; null where prompt tokens are unknown",
            file: STATS,
        },
        Definition {
            name: "requests_per_second",
            unit: "requests/s",
            definition: "the mean of its distribution of rates: successful requests over the time from the first start to \
                         the last end of any request; other statistics of that distribution are not made here",
            file: METRICS,
        },
        Definition {
            name: "output_tokens_per_second",
            unit: "tokens/s",
            definition: "the mean, likewise: output tokens of successful requests over that time",
            file: METRICS,
        },
        Definition {
            name: "prompt_tokens_per_second",
            unit: "tokens/s",
            definition: "the mean, likewise: prompt tokens of successful requests over that time",
            file: METRICS,
        },
        Definition {
            name: "tokens_per_second",
            unit: "tokens/s",
            definition: "the mean, likewise: prompt and output tokens of successful requests over that time",
            file: METRICS,
        },
    ],
};

/// What is gathered request by request: values, with their weights where they do not count alike.
#[derive(Debug, Clone, Default)]
pub(super) struct Samples {
    latency: Vec<f64>,
    first: Vec<f64>,
    first_output: Vec<f64>,
    per_token: Vec<(f64, f64)>,
    inter_token: Vec<(f64, f64)>,
    prompt: Vec<Option<u64>>,
    output: Vec<u64>,
}

impl Samples {
    pub(super) fn add(&mut self, row: &RequestRow, times: Option<&[Nanos]>) {
        let Some((start, end)) = row.send_start.zip(formula::stream_end(row)).filter(|_| is_successful(row))
        else {
            return;
        };
        let Some(times) = times else { return };
        let iterations = u64::try_from(times.len()).unwrap_or(u64::MAX);
        let tokens = row.usage.completion_tokens.unwrap_or(iterations);
        self.latency.push(seconds(end, start));
        self.prompt.push(row.usage.whole_prompt_tokens());
        self.output.push(tokens);
        let visible = [row.at.first_content, row.at.first_tool_call].into_iter().flatten().min();
        self.first_output.extend(visible.map(|at| ms(at, start)));
        let last = times.last().copied().unwrap_or(end);
        if tokens > 0 {
            self.per_token.push((ms(last, start) / float(tokens), float(tokens)));
        }
        let Some(first) = times.first().copied() else { return };
        self.first.push(ms(first, start));
        if tokens > 1 {
            let later = float(tokens - 1);
            self.inter_token.push((ms(last, first) / later, later));
        }
    }

    pub(super) fn values(self, rows: impl RowSource) -> Vec<Value> {
        let (mut successful, mut begin, mut end) = (0_u64, None, None);
        for row in rows.measured() {
            let row: &RequestRow = row.borrow();
            successful += u64::from(is_successful(row));
            begin = earliest(begin, row.send_start);
            end = end.max(formula::stream_end(row));
        }
        // The iterations of some request are not there: a distribution without it would be another one.
        let count = u64::try_from(self.latency.len()).ok();
        let known = count == Some(successful);
        let of = |values: Vec<(f64, f64)>| {
            Value::statistics(known.then(|| Statistics::weighted(values, PEER.statistics)).flatten())
        };
        let alike = |values: Vec<f64>| of(values.into_iter().map(|value| (value, 1.0)).collect());
        let counts =
            |counts: Option<&[u64]>| alike(counts.unwrap_or_default().iter().copied().map(float).collect());
        let span = begin.zip(end).map(|(begin, end)| seconds(end, begin)).filter(|s| *s > 0.0 && known);
        let rate = |n: Option<u64>| Value::number(n.zip(span).map(|(n, span)| float(n) / span));
        let summed = |counts: &[u64]| counts.iter().fold(0_u64, |sum, n| sum.saturating_add(*n));
        let prompt: Option<Vec<u64>> = self.prompt.into_iter().collect();
        let both = |(prompt, output): (&u64, &u64)| prompt.saturating_add(*output);
        let total: Option<Vec<u64>> =
            prompt.as_ref().map(|prompt| prompt.iter().zip(&self.output).map(both).collect());
        vec![
            alike(self.latency),
            alike(self.first),
            alike(self.first_output),
            of(self.per_token),
            of(self.inter_token),
            counts(prompt.as_deref()),
            counts(Some(&self.output)),
            counts(total.as_deref()),
            rate(count),
            rate(Some(summed(&self.output))),
            rate(prompt.as_deref().map(summed)),
            rate(total.as_deref().map(summed)),
        ]
    }
}

fn is_successful(row: &RequestRow) -> bool {
    let ended = matches!(
        row.outcome,
        Outcome::Ok
            | Outcome::NoOutput
            | Outcome::TruncatedStream
            | Outcome::CanaryFailed
            | Outcome::ControlledOutputFailed
    );
    let status = row.http_status.is_some_and(|status| (200..300).contains(&status));
    let output = row.counters.content_chunks > 0
        || row.counters.tool_call_chunks > 0
        || row.usage.completion_tokens.is_some_and(|tokens| tokens > 0);
    ended && status && output && row.counters.malformed_events == 0
}
