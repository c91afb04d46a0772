//! The statistics of a metric in the document.

use serde::{Deserialize, Serialize};

use super::finite;
use crate::aggregate::summary::Summary;
use crate::aggregate::tokens::FirstChunk;
use crate::metrics::catalog::{CATALOG, MetricId};
use crate::metrics::distribution::Ci95;
use crate::metrics::gaps::GapDistribution;
use crate::metrics::interval::{Independence, Interval};
use crate::metrics::row::TokenSource;
use crate::metrics::{Distribution, Percentiles};
use crate::report::ordered::OrderedMap;

/// One metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricDoc {
    /// What its numbers count in.
    pub unit: String,
    /// How many values.
    pub count: usize,
    /// Mean.
    pub mean: Option<f64>,
    /// Sample standard deviation; `null` below two values.
    pub stddev: Option<f64>,
    /// Smallest value.
    pub min: Option<f64>,
    /// 1st percentile.
    pub p1: Option<f64>,
    /// 5th percentile.
    pub p5: Option<f64>,
    /// 25th percentile.
    pub p25: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 75th percentile.
    pub p75: Option<f64>,
    /// 90th percentile.
    pub p90: Option<f64>,
    /// 95th percentile.
    pub p95: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// 99.9th percentile.
    pub p99_9: Option<f64>,
    /// Largest value.
    pub max: Option<f64>,
    /// 95% confidence intervals.
    pub ci95: Ci95Doc,
    /// The check behind the intervals; `null` when there was nothing to check.
    pub independence: Option<IndependenceDoc>,
    /// Where the tokens of the first chunk come from; only at the time per output token: `measured` when the server
    /// counted them in every request behind the values, else `assumed_1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_chunk_tokens: Option<String>,
    /// How many values are of each kind; only where there are both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_chunk_counts: Option<FirstChunkDoc>,
    /// Where the tokens of a chunk come from; only at the time between tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Gaps of which only bounds are known; only at gaps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coalesced_gaps: Option<CoalescedDoc>,
    /// Two percentile curves with those gaps at their bounds; only when there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bounds: Option<BoundsDoc>,
}

/// Values by where the tokens of the first chunk come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FirstChunkDoc {
    /// The server counted them.
    pub measured: u64,
    /// Taken as one.
    pub assumed_1: u64,
}

/// 95% confidence intervals; `null` where there are too few values, or values depend on their neighbours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ci95Doc {
    /// Of the mean.
    pub mean: Option<[f64; 2]>,
    /// Of the median.
    pub p50: Option<[f64; 2]>,
    /// Of the 90th percentile.
    pub p90: Option<[f64; 2]>,
    /// Of the 95th percentile.
    pub p95: Option<[f64; 2]>,
    /// Of the 99th percentile.
    pub p99: Option<[f64; 2]>,
}

/// What neighbours in order of time say about each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IndependenceDoc {
    /// Rank correlation of each value with the next one.
    pub lag1_spearman: Option<f64>,
    /// The same in standard deviations.
    pub z: Option<f64>,
    /// Intervals are withheld.
    pub dependent: bool,
}

/// Gaps of which only bounds are known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CoalescedDoc {
    /// How many.
    pub count: usize,
    /// Their share of all gaps.
    pub share: Option<f64>,
}

/// Two percentile curves between which the true one lies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BoundsDoc {
    /// Unknown gaps at their lower bounds.
    pub lower: PercentilesDoc,
    /// Unknown gaps at their upper bounds.
    pub upper: PercentilesDoc,
}

/// Order statistics.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PercentilesDoc {
    /// Smallest value.
    pub min: Option<f64>,
    /// 1st percentile.
    pub p1: Option<f64>,
    /// 5th percentile.
    pub p5: Option<f64>,
    /// 25th percentile.
    pub p25: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 75th percentile.
    pub p75: Option<f64>,
    /// 90th percentile.
    pub p90: Option<f64>,
    /// 95th percentile.
    pub p95: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// 99.9th percentile.
    pub p99_9: Option<f64>,
    /// Largest value.
    pub max: Option<f64>,
}

/// What a value is that the server told.
const MEASURED: &str = "measured";
/// What a value is when nothing tells it.
const ASSUMED_ONE: &str = "assumed_1";

impl MetricDoc {
    pub(in crate::report) fn all(summary: &Summary) -> OrderedMap<Self> {
        let doc = |id: MetricId| {
            let mut doc = Self::of(id, summary.metric(id)?);
            match id {
                MetricId::InterChunkLatency => doc.add_gaps(&summary.gaps),
                MetricId::InterTokenLatency => {
                    doc.add_gaps(&summary.token_gaps);
                    doc.source = Some(TokenSource::ContinuousUsage.name().to_owned());
                }
                MetricId::Tpot => doc.add_first_chunk(summary.tokens.first_chunk),
                _ => {}
            }
            Some(doc)
        };
        CATALOG.iter().filter_map(|metric| Some((metric.name, doc(metric.id)?))).collect()
    }

    fn of(id: MetricId, values: &Distribution) -> Self {
        let PercentilesDoc { min, p1, p5, p25, p50, p75, p90, p95, p99, p99_9, max } =
            PercentilesDoc::of(values.percentiles.as_ref());
        Self {
            unit: id.metric().unit.name().to_owned(),
            count: values.count,
            mean: values.mean.and_then(finite),
            stddev: values.stddev.and_then(finite),
            min,
            p1,
            p5,
            p25,
            p50,
            p75,
            p90,
            p95,
            p99,
            p99_9,
            max,
            ci95: Ci95Doc::of(&values.ci95),
            independence: values.independence.map(IndependenceDoc::of),
            first_chunk_tokens: None,
            first_chunk_counts: None,
            source: None,
            coalesced_gaps: None,
            bounds: None,
        }
    }

    fn add_first_chunk(&mut self, from: FirstChunk) {
        let FirstChunk { measured, assumed } = from;
        self.first_chunk_tokens = Some(if assumed == 0 { MEASURED } else { ASSUMED_ONE }.to_owned());
        self.first_chunk_counts =
            (measured > 0 && assumed > 0).then_some(FirstChunkDoc { measured, assumed_1: assumed });
    }

    fn add_gaps(&mut self, gaps: &GapDistribution) {
        let coalesced = gaps.coalesced;
        self.coalesced_gaps =
            Some(CoalescedDoc { count: coalesced.count, share: coalesced.share.and_then(finite) });
        self.bounds = gaps.bounds.as_ref().map(|bounds| BoundsDoc {
            lower: PercentilesDoc::of(Some(&bounds.lower)),
            upper: PercentilesDoc::of(Some(&bounds.upper)),
        });
    }
}

impl Ci95Doc {
    fn of(ci95: &Ci95) -> Self {
        let pair =
            |interval: Option<Interval>| interval.and_then(|i| Some([finite(i.low)?, finite(i.high)?]));
        Self {
            mean: pair(ci95.mean),
            p50: pair(ci95.p50),
            p90: pair(ci95.p90),
            p95: pair(ci95.p95),
            p99: pair(ci95.p99),
        }
    }
}

impl IndependenceDoc {
    fn of(check: Independence) -> Self {
        let Independence { lag1_spearman, z, dependent } = check;
        Self { lag1_spearman: finite(lag1_spearman), z: finite(z), dependent }
    }
}

impl PercentilesDoc {
    fn of(percentiles: Option<&Percentiles>) -> Self {
        let at = |value: fn(&Percentiles) -> f64| percentiles.map(value).and_then(finite);
        Self {
            min: at(|p| p.min),
            p1: at(|p| p.p1),
            p5: at(|p| p.p5),
            p25: at(|p| p.p25),
            p50: at(|p| p.p50),
            p75: at(|p| p.p75),
            p90: at(|p| p.p90),
            p95: at(|p| p.p95),
            p99: at(|p| p.p99),
            p99_9: at(|p| p.p99_9),
            max: at(|p| p.max),
        }
    }
}
