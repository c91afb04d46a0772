//! What other tools would have reported of the same run: their metrics by their names, by their definitions, from our
//! stamps.
//!
//! One file per peer holds a table (name, unit, definition, file it was read from) and the code that follows it, next to
//! each other. Definitions were read in the published package of the version that is named, and written down in our own
//! words. What a peer computes from something that we do not have is `None`, and its definition says so; nothing is
//! guessed in its place. A value that the peer itself leaves out is left out here too.
//!
//! Instants are those of our own stamps: a peer stamps in user space, after its event loop has come round, and reads its
//! clock anew for every event, so that its own numbers hold its own delays. The reference artifact is not here: `report`
//! writes it whole.

pub mod aiperf;
pub mod guidellm;
pub mod statistics;
pub mod vllm;

use crate::metrics::row::RequestRow;
use crate::metrics::rows::RowSource;
use crate::record::{Outcome, OutputKind, Phase};
use crate::units::Nanos;
use statistics::{Rule, Statistics};

/// Every peer, in the order in which documents show them.
pub static PEERS: [&Peer; 3] = [&vllm::PEER, &aiperf::PEER, &guidellm::PEER];

/// Another tool.
#[derive(Debug, PartialEq)]
pub struct Peer {
    /// Its key in documents.
    pub name: &'static str,
    /// The version that was read.
    pub version: &'static str,
    /// Its repository; the files of the table are in its published package.
    pub source: &'static str,
    /// Which requests count, one sentence or more.
    pub population: &'static str,
    /// How its statistics are made, one sentence or more.
    pub method: &'static str,
    /// Its statistics of a distribution, by its names.
    pub statistics: &'static [(&'static str, Rule)],
    /// Its metrics.
    pub metrics: &'static [Definition],
}

/// One metric of a peer.
#[derive(Debug, PartialEq, Eq)]
pub struct Definition {
    /// Its name; with a `*`, each statistic has a name of its own, with the statistic in the star's place.
    pub name: &'static str,
    /// What its numbers count in.
    pub unit: &'static str,
    /// How a value is made, one sentence or more.
    pub definition: &'static str,
    /// The file it was read from.
    pub file: &'static str,
}

/// The values of one peer's metrics.
#[derive(Debug, Clone, PartialEq)]
pub struct PeerValues {
    /// The peer.
    pub peer: &'static Peer,
    /// In the order of [`Peer::metrics`].
    pub values: Vec<Value>,
}

/// The value of one metric.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// There is none, or the peer computes it from something that we do not have.
    Unknown,
    /// One whole number.
    Count(u64),
    /// One number.
    Number(f64),
    /// The statistics of a distribution.
    Statistics(Statistics),
}

/// An output chunk as peers see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// When it came, by its request's clock.
    pub at: Nanos,
    /// What it carried.
    pub kind: OutputKind,
}

/// What one peer's definitions need, gathered request by request. The peers are gathered one after the other, so that the
/// values of one of them are in memory at a time.
#[derive(Debug)]
pub struct PeerPopulation {
    peer: &'static Peer,
    samples: Samples,
}

#[derive(Debug)]
enum Samples {
    Vllm(vllm::Samples),
    Aiperf(aiperf::Samples),
    Guidellm(guidellm::Samples),
}

impl PeerPopulation {
    /// Empty populations for the run with these rows, in the order of [`PEERS`].
    #[must_use]
    pub fn of_peers(rows: impl RowSource) -> [Self; PEERS.len()] {
        [
            Self { peer: &vllm::PEER, samples: Samples::Vllm(vllm::Samples::new(rows)) },
            Self { peer: &aiperf::PEER, samples: Samples::Aiperf(aiperf::Samples::default()) },
            Self { peer: &guidellm::PEER, samples: Samples::Guidellm(guidellm::Samples::default()) },
        ]
    }

    /// Adds one request of any outcome with all its output chunks in order of arrival. Warm-up requests are left out
    /// here.
    pub fn add(&mut self, row: &RequestRow, chunks: &[Seen]) {
        if row.phase == Phase::Warmup {
            return;
        }
        // No peer reads a refusal.
        let read = chunks.iter().filter(|chunk| chunk.kind != OutputKind::Refusal);
        let times: Vec<Nanos> = read.map(|chunk| chunk.at).collect();
        // A file that was cut holds fewer chunks than its request had.
        let complete = u64::try_from(chunks.len()) == Ok(row.counters.output_chunks);
        let times = complete.then_some(&times[..]);
        match &mut self.samples {
            Samples::Vllm(samples) => samples.add(row, times),
            Samples::Aiperf(samples) => samples.add(row, times),
            Samples::Guidellm(samples) => samples.add(row, times),
        }
    }

    /// The values of the peer.
    #[must_use]
    pub fn values(self, rows: impl RowSource) -> PeerValues {
        let values = match self.samples {
            Samples::Vllm(samples) => samples.values(rows),
            Samples::Aiperf(samples) => samples.values(rows),
            Samples::Guidellm(samples) => samples.values(rows),
        };
        PeerValues { peer: self.peer, values }
    }
}

impl Value {
    fn count(n: Option<u64>) -> Self {
        n.map_or(Self::Unknown, Self::Count)
    }

    /// A number that is none (a rate over no time) is not known.
    fn number(value: Option<f64>) -> Self {
        value.filter(|v| v.is_finite()).map_or(Self::Unknown, Self::Number)
    }

    fn statistics(found: Option<Statistics>) -> Self {
        found.map_or(Self::Unknown, Self::Statistics)
    }
}

/// When a peer that stamps before it asks for a connection begins to count.
fn start_with_connection(row: &RequestRow) -> Option<Nanos> {
    row.connect_start.or(row.send_start)
}

/// Endings that a client without an own end of the run does not know.
fn was_cut_by_us(row: &RequestRow) -> bool {
    matches!(row.outcome, Outcome::Incomplete | Outcome::Cancelled)
}

fn ms(later: Nanos, earlier: Nanos) -> f64 {
    Nanos(later.0.saturating_sub(earlier.0)).as_millis_f64()
}

fn seconds(later: Nanos, earlier: Nanos) -> f64 {
    Nanos(later.0.saturating_sub(earlier.0)).as_secs_f64()
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn float(n: u64) -> f64 {
    n as f64
}

/// Adds to a sum, which is not known any more when a part of it is not.
fn add(sum: &mut Option<u64>, n: Option<u64>) {
    *sum = sum.zip(n).map(|(sum, n)| sum.saturating_add(n));
}

/// The earlier of two instants, one of which may be missing.
fn earliest(a: Option<Nanos>, b: Option<Nanos>) -> Option<Nanos> {
    a.into_iter().chain(b).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::rows::Rows;
    use crate::metrics::testing::row;

    /// Chunks of [`row`]: two of reasoning, four of content, every 22 ms from 20 ms on.
    fn chunks() -> Vec<Seen> {
        let kind = |i| if i < 2 { OutputKind::Reasoning } else { OutputKind::Content };
        (0..6).map(|i| Seen { at: Nanos::from_millis(20 + 22 * i), kind: kind(i) }).collect()
    }

    fn answered() -> RequestRow {
        let mut row = row(0);
        row.at.first_content = Some(Nanos::from_millis(64));
        row
    }

    fn of(row: &RequestRow, chunks: &[Seen]) -> Vec<PeerValues> {
        let rows = [row.clone()];
        let of_peer = |mut population: PeerPopulation| {
            population.add(row, chunks);
            population.values(&rows)
        };
        PeerPopulation::of_peers(&rows).into_iter().map(of_peer).collect()
    }

    /// The mean of a distribution, or the number.
    fn mean(values: &[PeerValues], peer: &str, name: &str) -> Option<f64> {
        let of_peer = values.iter().find(|values| values.peer.name == peer).unwrap();
        let place = of_peer.peer.metrics.iter().position(|m| m.name == name).unwrap();
        match &of_peer.values[place] {
            Value::Unknown => None,
            Value::Count(n) => Some(float(*n)),
            Value::Number(v) => Some(*v),
            Value::Statistics(found) => Some(found.values[0].1),
        }
    }

    /// Sent at 1 ms over a kept connection, `[DONE]` at 131, end 132; 100 prompt and 11 output tokens.
    #[test]
    fn one_answer_by_hand() {
        let values = of(&answered(), &chunks());
        for (peer, name, want) in [
            ("vllm", "*_ttft_ms", 19.0),
            ("vllm", "*_e2el_ms", 129.0),
            ("vllm", "*_tpot_ms", 11.0),
            ("vllm", "*_itl_ms", 22.0),
            ("vllm", "duration", 0.132),
            ("vllm", "output_throughput", 11.0 / 0.132),
            ("vllm", "total_token_throughput", 111.0 / 0.132),
            ("aiperf", "time_to_first_token", 19.0),
            ("aiperf", "time_to_second_token", 22.0),
            ("aiperf", "time_to_first_output_token", 63.0),
            ("aiperf", "request_latency", 129.0),
            ("aiperf", "inter_token_latency", 11.0),
            ("aiperf", "output_token_throughput_per_user", 1_000.0 / 11.0),
            ("aiperf", "output_token_throughput", 11.0 / 0.129),
            ("guideLLM", "request_latency", 0.13),
            ("guideLLM", "time_to_first_token_ms", 19.0),
            ("guideLLM", "time_to_first_output_token_ms", 63.0),
            ("guideLLM", "time_per_output_token_ms", 129.0 / 11.0),
            ("guideLLM", "inter_token_latency_ms", 11.0),
            ("guideLLM", "output_tokens_per_second", 11.0 / 0.13),
        ] {
            assert_eq!(mean(&values, peer, name), Some(want), "{peer} {name}");
        }
    }

    #[test]
    fn a_connection_that_was_made_counts_for_those_who_stamp_before_it() {
        let mut row = answered();
        row.connect_start = Some(Nanos(0));
        let values = of(&row, &chunks());
        assert_eq!(mean(&values, "vllm", "*_ttft_ms"), Some(20.0));
        assert_eq!(mean(&values, "aiperf", "time_to_first_token"), Some(20.0));
        assert_eq!(mean(&values, "guideLLM", "time_to_first_token_ms"), Some(19.0));
    }

    #[test]
    fn no_peer_reads_a_refusal() {
        let mut row = answered();
        (row.counters.output_chunks, row.counters.refusal_chunks) = (7, 1);
        let refusal = Seen { at: Nanos::from_millis(10), kind: OutputKind::Refusal };
        let values = of(&row, &[&[refusal][..], &chunks()].concat());
        assert_eq!(mean(&values, "vllm", "*_ttft_ms"), Some(19.0));
        assert_eq!(mean(&values, "aiperf", "time_to_first_token"), Some(19.0));
        assert_eq!(mean(&values, "guideLLM", "time_to_first_token_ms"), Some(19.0));
    }

    #[test]
    fn chunks_that_are_gone_make_no_value() {
        let values = of(&answered(), &chunks()[..5]);
        for (peer, name) in [
            ("vllm", "*_ttft_ms"),
            ("vllm", "*_itl_ms"),
            ("vllm", "max_output_tokens_per_s"),
            ("aiperf", "time_to_first_token"),
            ("aiperf", "request_throughput"),
            ("guideLLM", "request_latency"),
            ("guideLLM", "requests_per_second"),
        ] {
            assert_eq!(mean(&values, peer, name), None, "{peer} {name}");
        }
        assert_eq!(mean(&values, "aiperf", "request_count"), Some(1.0));
    }

    #[test]
    fn a_first_chunk_of_several_tokens_is_aiperfs_alone() {
        let mut row = answered();
        row.first_chunk_tokens = Some(6);
        let values = of(&row, &chunks());
        assert_eq!(mean(&values, "aiperf", "inter_token_latency"), Some(22.0));
        assert_eq!(mean(&values, "vllm", "*_tpot_ms"), Some(11.0));
        for inconsistent in [0, 11, 12] {
            row.first_chunk_tokens = Some(inconsistent);
            assert_eq!(mean(&of(&row, &chunks()), "aiperf", "inter_token_latency"), Some(11.0));
        }
    }

    #[test]
    fn every_row_of_a_table_says_something_and_no_name_stands_twice() {
        for peer in PEERS {
            let mut names: Vec<_> = peer.metrics.iter().map(|m| m.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), peer.metrics.len(), "{}", peer.name);
            for text in [peer.name, peer.version, peer.source, peer.population, peer.method] {
                assert!(!text.is_empty(), "{}", peer.name);
            }
            for m in peer.metrics {
                assert!(!m.unit.is_empty() && !m.file.is_empty(), "{}", m.name);
                assert!(!m.definition.is_empty() && !m.definition.ends_with('.'), "{}", m.name);
            }
        }
    }

    #[test]
    fn nothing_has_no_values_and_one_per_metric() {
        let nothing = Rows::new();
        for values in PeerPopulation::of_peers(&nothing).map(|population| population.values(&nothing)) {
            assert_eq!(values.values.len(), values.peer.metrics.len(), "{}", values.peer.name);
            let known = values.values.iter().filter(|v| !matches!(v, Value::Unknown | Value::Count(0)));
            assert_eq!(known.count(), 0, "{values:?}");
        }
    }
}
