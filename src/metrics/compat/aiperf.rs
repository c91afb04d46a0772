//! AIPerf.

use std::borrow::Borrow;

use super::statistics::{Rule, Statistics};
use super::{Definition, Peer, Value, float, ms, seconds, start_with_connection};
use crate::metrics::row::RequestRow;
use crate::metrics::rows::RowSource;
use crate::record::Outcome;
use crate::units::Nanos;

/// The tool.
pub static PEER: Peer = Peer {
    name: "aiperf",
    version: "0.13.0",
    source: "ai-dynamo/aiperf",
    population: "a request is valid when its answer has a 2xx status and at least one content response and was read to \
                 the end of the body without an exception, whatever its finish; so an answer that ends early but cleanly, \
                 has data that is not JSON among its chunks, or carries an error in plain data behind them, is valid. A \
                 content response is an event with content, reasoning or a tool call. Tokens are the server's counts, as \
                 with `--use-server-token-count` (by default it counts the text with a tokenizer of its own), and a \
                 request without them is left out of the metrics made of them; the tokens of the first chunk are used \
                 where the server counted as it went, as with `--per-chunk-usage`",
    method: "average, population standard deviation (over n), and percentiles with linear interpolation; in its display \
             units",
    statistics: &[
        ("avg", Rule::Mean),
        ("min", Rule::Min),
        ("max", Rule::Max),
        ("p1", Rule::Quantile(0.01)),
        ("p5", Rule::Quantile(0.05)),
        ("p10", Rule::Quantile(0.1)),
        ("p25", Rule::Quantile(0.25)),
        ("p50", Rule::Quantile(0.5)),
        ("p75", Rule::Quantile(0.75)),
        ("p90", Rule::Quantile(0.9)),
        ("p95", Rule::Quantile(0.95)),
        ("p99", Rule::Quantile(0.99)),
        ("std", Rule::PopulationDeviation),
    ],
    metrics: &[
        Definition {
            name: "time_to_first_token",
            unit: "ms",
            definition: "first content response minus start; the start is before a connection is asked for",
            file: "aiperf/metrics/types/ttft_metric.py",
        },
        Definition {
            name: "time_to_second_token",
            unit: "ms",
            definition: "second content response minus the first",
            file: "aiperf/metrics/types/ttst_metric.py",
        },
        Definition {
            name: "time_to_first_output_token",
            unit: "ms",
            definition: "first content response with content or a tool call, reasoning by itself not, minus start",
            file: "aiperf/metrics/types/time_to_first_output_token_metric.py",
        },
        Definition {
            name: "request_latency",
            unit: "ms",
            definition: "last content response minus start",
            file: "aiperf/metrics/types/request_latency_metric.py",
        },
        Definition {
            name: "decode_duration",
            unit: "ms",
            definition: "request latency minus time to first token",
            file: "aiperf/metrics/types/decode_duration_metric.py",
        },
        Definition {
            name: "inter_token_latency",
            unit: "ms",
            definition: "(request latency minus time to first token) over (output sequence length minus the tokens of the \
                         first content response, 1 where they are unknown, 0, or all there are), of requests with at \
                         least two tokens",
            file: "aiperf/metrics/types/inter_token_latency_metric.py",
        },
        Definition {
            name: "inter_chunk_latency",
            unit: "ms",
            definition: "time between consecutive content responses, pooled over requests",
            file: "aiperf/metrics/types/inter_chunk_latency_metric.py",
        },
        Definition {
            name: "output_token_throughput_per_user",
            unit: "tokens/sec/user",
            definition: "one over the inter token latency in seconds; left out where that is 0",
            file: "aiperf/metrics/types/output_token_throughput_metrics.py",
        },
        Definition {
            name: "e2e_output_token_throughput",
            unit: "tokens/sec/user",
            definition: "output sequence length over request latency",
            file: "aiperf/metrics/types/e2e_output_throughput_metric.py",
        },
        Definition {
            name: "prefill_throughput_per_user",
            unit: "tokens/sec/user",
            definition: "input sequence length over time to first token",
            file: "aiperf/metrics/types/prefill_throughput_per_user.py",
        },
        Definition {
            name: "input_sequence_length",
            unit: "tokens",
            definition: "`usage.prompt_tokens`",
            file: "aiperf/metrics/types/input_sequence_length_metric.py",
        },
        Definition {
            name: "output_sequence_length",
            unit: "tokens",
            definition: "`usage.completion_tokens`: its output tokens plus its reasoning tokens",
            file: "aiperf/metrics/types/output_sequence_length_metric.py",
        },
        Definition {
            name: "benchmark_duration",
            unit: "sec",
            definition: "last content response of all valid requests minus their first start",
            file: "aiperf/metrics/types/benchmark_duration_metric.py",
        },
        Definition {
            name: "request_count",
            unit: "requests",
            definition: "valid requests",
            file: "aiperf/metrics/types/request_count_metric.py",
        },
        Definition {
            name: "request_throughput",
            unit: "requests/sec",
            definition: "valid requests over the benchmark duration",
            file: "aiperf/metrics/types/request_throughput_metric.py",
        },
        Definition {
            name: "output_token_throughput",
            unit: "tokens/sec",
            definition: "the sum of output sequence lengths over the benchmark duration",
            file: "aiperf/metrics/types/output_token_throughput_metrics.py",
        },
        Definition {
            name: "total_token_throughput",
            unit: "tokens/sec",
            definition: "the sums of input and of output sequence lengths over the benchmark duration",
            file: "aiperf/metrics/types/total_token_throughput.py",
        },
    ],
};

/// What is gathered request by request.
#[derive(Debug, Clone, Default)]
pub(super) struct Samples {
    first: Vec<f64>,
    second: Vec<f64>,
    first_output: Vec<f64>,
    latency: Vec<f64>,
    decode: Vec<f64>,
    inter_token: Vec<f64>,
    inter_chunk: Vec<f64>,
    per_user: Vec<f64>,
    e2e: Vec<f64>,
    prefill: Vec<f64>,
    input: Vec<u64>,
    output: Vec<u64>,
    /// First start and last response.
    span: Option<(Nanos, Nanos)>,
}

impl Samples {
    pub(super) fn add(&mut self, row: &RequestRow, times: Option<&[Nanos]>) {
        let Some(start) = start_with_connection(row).filter(|_| is_valid(row)) else { return };
        let Some((times, first, last)) = times.and_then(|t| Some((t, *t.first()?, *t.last()?))) else {
            return;
        };
        let (begin, end) = self.span.unwrap_or((start, last));
        self.span = Some((begin.min(start), end.max(last)));
        self.first.push(ms(first, start));
        self.latency.push(ms(last, start));
        self.decode.push(ms(last, first));
        self.second.extend(times.get(1).map(|second| ms(*second, first)));
        let visible = [row.at.first_content, row.at.first_tool_call].into_iter().flatten().min();
        self.first_output.extend(visible.map(|at| ms(at, start)));
        self.inter_chunk.extend(times.iter().zip(times.iter().skip(1)).map(|(a, b)| ms(*b, *a)));
        self.add_tokens(row, start, first, last);
    }

    fn add_tokens(&mut self, row: &RequestRow, start: Nanos, first: Nanos, last: Nanos) {
        self.input.extend(row.usage.whole_prompt_tokens());
        self.output.extend(row.usage.completion_tokens);
        let (ttft_s, latency_s) = (seconds(first, start), seconds(last, start));
        if let Some(tokens) = row.usage.whole_prompt_tokens().filter(|_| ttft_s > 0.0) {
            self.prefill.push(float(tokens) / ttft_s);
        }
        let Some(tokens) = row.usage.completion_tokens else { return };
        if latency_s > 0.0 {
            self.e2e.push(float(tokens) / latency_s);
        }
        if tokens < 2 {
            return;
        }
        let counted = row.first_chunk_tokens.map(u64::from).filter(|first| (1..tokens).contains(first));
        let inter_token = ms(last, first) / float(tokens - counted.unwrap_or(1));
        self.inter_token.push(inter_token);
        if inter_token > 0.0 {
            self.per_user.push(1_000.0 / inter_token);
        }
    }

    pub(super) fn values(self, rows: impl RowSource) -> Vec<Value> {
        let valid = rows.measured().fold(0_u64, |n, row| n + u64::from(is_valid(row.borrow())));
        // The chunks of some request are not there: a distribution without it would be another one.
        let known = u64::try_from(self.first.len()) == Ok(valid);
        let of = |values: Vec<f64>| {
            Value::statistics(known.then(|| Statistics::linear(values, PEER.statistics)).flatten())
        };
        let of_counts = |counts: Vec<u64>| of(counts.into_iter().map(float).collect());
        let duration = self.span.filter(|_| known).map(|(begin, end)| seconds(end, begin));
        let duration = duration.filter(|d| *d > 0.0);
        let sum = |counts: &[u64]| {
            (!counts.is_empty()).then(|| counts.iter().fold(0_u64, |sum, n| sum.saturating_add(*n)))
        };
        let (input, output) = (sum(&self.input), sum(&self.output));
        let rate = |n: Option<u64>| Value::number(n.zip(duration).map(|(n, d)| float(n) / d));
        vec![
            of(self.first),
            of(self.second),
            of(self.first_output),
            of(self.latency),
            of(self.decode),
            of(self.inter_token),
            of(self.inter_chunk),
            of(self.per_user),
            of(self.e2e),
            of(self.prefill),
            of_counts(self.input),
            of_counts(self.output),
            Value::number(duration),
            Value::Count(valid),
            rate(Some(valid)),
            rate(output),
            rate(input.zip(output).map(|(input, output)| input.saturating_add(output))),
        ]
    }
}

fn is_valid(row: &RequestRow) -> bool {
    let ended = matches!(
        row.outcome,
        Outcome::Ok
            | Outcome::TruncatedStream
            | Outcome::ServerErrorInStream
            | Outcome::MalformedEvent
            | Outcome::CanaryFailed
            | Outcome::ControlledOutputFailed
    );
    let status = row.http_status.is_some_and(|status| (200..300).contains(&status));
    ended && status && row.counters.output_chunks > row.counters.refusal_chunks && !row.cut_after_terminal
}
