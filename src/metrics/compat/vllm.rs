//! `vllm bench serve`.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use super::statistics::{Rule, Statistics};
use super::{
    Definition, Peer, Value, add, earliest, float, ms, seconds, start_with_connection, was_cut_by_us,
};
use crate::metrics::row::RequestRow;
use crate::metrics::rows::RowSource;
use crate::record::Outcome;
use crate::units::Nanos;

const SERVE: &str = "vllm/benchmarks/serve.py";
const REQUEST: &str = "vllm/benchmarks/lib/endpoint_request_func.py";

/// The tool.
pub static PEER: Peer = Peer {
    name: "vllm",
    version: "0.33.0",
    source: "vllm-project/vllm",
    population: "a request is completed when its answer has status 200 and at least one chunk and was read to the end of \
                 the body without an exception, whatever its finish; so an answer that ends early but cleanly, or that \
                 carries an error in plain data behind a chunk, is completed, and one with data that is not JSON has \
                 failed; requests that the run's own end cut are left out here. A chunk is, on chat completions, an event \
                 whose delta has content, reasoning, tool calls or a function call, or an empty content and no role; a \
                 role by itself is none, and a refusal neither. `reasoning_content`, which it does not read, counts here \
                 like `reasoning`. On completions every event with a choice is a chunk",
    method: "mean, median, population standard deviation (over n) and percentiles with linear interpolation, all as numpy \
             makes them; a metric without values, which it writes as 0, is null here",
    statistics: &[
        ("mean", Rule::Mean),
        ("median", Rule::Quantile(0.5)),
        ("std", Rule::PopulationDeviation),
        ("p90", Rule::Quantile(0.9)),
        ("p95", Rule::Quantile(0.95)),
        ("p99", Rule::Quantile(0.99)),
    ],
    metrics: &[
        Definition {
            name: "duration",
            unit: "s",
            definition: "from the start of the run (the first measured due) to the last byte of the last answer",
            file: SERVE,
        },
        Definition { name: "completed", unit: "requests", definition: "completed requests", file: SERVE },
        Definition {
            name: "failed",
            unit: "requests",
            definition: "requests that were not completed",
            file: SERVE,
        },
        Definition {
            name: "total_input_tokens",
            unit: "tokens",
            definition: "`usage.prompt_tokens` summed over completed requests; it counts with its own tokenizer where a \
                         server sends none: null then",
            file: SERVE,
        },
        Definition {
            name: "total_output_tokens",
            unit: "tokens",
            definition: "`usage.completion_tokens` summed over completed requests; it counts the text with its own \
                         tokenizer where a server sends none, or 0: null then",
            file: SERVE,
        },
        Definition {
            name: "request_throughput",
            unit: "requests/s",
            definition: "completed requests over the duration",
            file: SERVE,
        },
        Definition {
            name: "output_throughput",
            unit: "tokens/s",
            definition: "total output tokens over the duration",
            file: SERVE,
        },
        Definition {
            name: "total_token_throughput",
            unit: "tokens/s",
            definition: "total input and output tokens over the duration",
            file: SERVE,
        },
        Definition {
            name: "max_output_tokens_per_s",
            unit: "tokens/s",
            definition: "most chunks in one second, seconds counted from the first start of a completed request; a chunk \
                         counts as one token whatever it holds",
            file: SERVE,
        },
        Definition {
            name: "max_concurrent_requests",
            unit: "requests",
            definition: "most completed requests that touch one and the same second, seconds counted from the first start",
            file: SERVE,
        },
        Definition {
            name: "*_ttft_ms",
            unit: "ms",
            definition: "first chunk minus start; the start is before a connection is asked for",
            file: REQUEST,
        },
        Definition {
            name: "*_tpot_ms",
            unit: "ms",
            definition: "(last chunk minus first chunk) over (output tokens minus 1), of requests with more than one \
                         output token; null where it would have used its tokenizer",
            file: SERVE,
        },
        Definition {
            name: "*_itl_ms",
            unit: "ms",
            definition: "time between consecutive chunks, pooled over requests, not divided by tokens; null where an \
                         answer has more than two chunks without text, of which only the first and the last have a stamp",
            file: REQUEST,
        },
        Definition {
            name: "*_e2el_ms",
            unit: "ms",
            definition: "last chunk minus start; usage and the end of the stream do not count",
            file: REQUEST,
        },
    ],
};

/// What is gathered request by request. Instants are kept, because a request's chunks come once.
#[derive(Debug, Clone, Default)]
pub(super) struct Samples {
    /// The first start of a completed request.
    zero: Nanos,
    ttft: Vec<f64>,
    tpot: Vec<f64>,
    itl: Vec<f64>,
    e2el: Vec<f64>,
    /// Chunks by second.
    chunks: BTreeMap<i64, u64>,
    /// Steps of the number of requests that touch a second.
    touching: BTreeMap<i64, i64>,
    /// Not all chunks of a request are known.
    no_chunks: bool,
    /// A request's output tokens are not known.
    no_tokens: bool,
}

impl Samples {
    pub(super) fn new(rows: impl RowSource) -> Self {
        let start = |row: &RequestRow| start_with_connection(row).filter(|_| is_completed(row));
        let starts = rows.measured().filter_map(|row| start(row.borrow()));
        Self { zero: starts.min().unwrap_or_default(), ..Self::default() }
    }

    pub(super) fn add(&mut self, row: &RequestRow, times: Option<&[Nanos]>) {
        let Some(start) = start_with_connection(row).filter(|_| is_completed(row)) else { return };
        let chunks = times.map(|times| with_textless(row, times)).unwrap_or_default();
        let (Some(first), Some(last)) = (chunks.first().copied(), chunks.last().copied()) else {
            return;
        };
        self.ttft.push(ms(first, start));
        self.e2el.push(ms(last, start));
        match output_tokens(row) {
            Some(tokens) if tokens > 1 => self.tpot.push(ms(last, first) / float(tokens - 1)),
            Some(_) => {}
            None => self.no_tokens = true,
        }
        self.no_chunks |= row.counters.textless_chunks > 2;
        self.itl.extend(chunks.iter().zip(chunks.iter().skip(1)).map(|(a, b)| ms(*b, *a)));
        let second = |at: Nanos| at.0.saturating_sub(self.zero.0).div_euclid(Nanos::PER_SECOND);
        for chunk in &chunks {
            *self.chunks.entry(second(*chunk)).or_default() += 1;
        }
        *self.touching.entry(second(start)).or_default() += 1;
        *self.touching.entry(second(last) + 1).or_default() -= 1;
    }

    pub(super) fn values(self, rows: impl RowSource) -> Vec<Value> {
        let (mut count, mut attempted) = (0_u64, 0_u64);
        let (mut begin, mut end) = (None, None);
        let (mut input, mut output) = (Some(0), Some(0));
        for row in rows.measured() {
            let row: &RequestRow = row.borrow();
            begin = earliest(begin, Some(row.due));
            end = end.max(row.at.end);
            attempted += u64::from(!was_cut_by_us(row));
            if is_completed(row) {
                count += 1;
                add(&mut input, row.usage.whole_prompt_tokens());
                add(&mut output, output_tokens(row));
            }
        }
        // The chunks of some request are not there: a distribution without it would be another one.
        let known = u64::try_from(self.ttft.len()) == Ok(count);
        let duration = begin.zip(end).map(|(begin, end)| seconds(end, begin)).filter(|d| *d > 0.0);
        let (input, output) = (input.filter(|_| count > 0), output.filter(|_| count > 0));
        let rate = |n: Option<u64>| Value::number(n.zip(duration).map(|(n, d)| float(n) / d));
        let of = |values: Vec<f64>, known: bool| {
            Value::statistics(known.then(|| Statistics::linear(values, PEER.statistics)).flatten())
        };
        let peak = self.chunks.values().max().filter(|_| known && !self.no_chunks);
        vec![
            Value::number(duration),
            Value::Count(count),
            Value::Count(attempted.saturating_sub(count)),
            Value::count(input),
            Value::count(output),
            rate(Some(count)),
            rate(output),
            rate(input.zip(output).map(|(input, output)| input.saturating_add(output))),
            Value::number(peak.map(|n| float(*n))),
            Value::count(self.most_touching().filter(|_| known)),
            of(self.ttft, known),
            of(self.tpot, known && !self.no_tokens),
            of(self.itl, known && !self.no_chunks),
            of(self.e2el, known),
        ]
    }

    fn most_touching(&self) -> Option<u64> {
        let mut now = 0_i64;
        let levels = self.touching.values().map(|step| {
            now += step;
            now
        });
        levels.max().and_then(|most| u64::try_from(most).ok())
    }
}

fn is_completed(row: &RequestRow) -> bool {
    let ended = matches!(
        row.outcome,
        Outcome::Ok
            | Outcome::NoOutput
            | Outcome::TruncatedStream
            | Outcome::ServerErrorInStream
            | Outcome::CanaryFailed
            | Outcome::ControlledOutputFailed
    );
    let chunks = row.counters.output_chunks > row.counters.refusal_chunks || row.counters.textless_chunks > 0;
    ended
        && chunks
        && row.http_status == Some(200)
        && row.counters.malformed_events == 0
        && !row.cut_after_terminal
}

/// 0 is no count: it tokenizes the text then.
fn output_tokens(row: &RequestRow) -> Option<u64> {
    row.usage.completion_tokens.filter(|tokens| *tokens > 0)
}

/// The chunks with the first and the last textless one among them.
fn with_textless(row: &RequestRow, times: &[Nanos]) -> Vec<Nanos> {
    let last = row.at.last_textless.filter(|_| row.counters.textless_chunks > 1);
    let mut all: Vec<Nanos> = times.iter().copied().chain(row.at.first_textless).chain(last).collect();
    all.sort_unstable();
    all
}
