//! What is told about many values: the statistics of the run document.
//!
//! Mean and standard deviation are exact until their last rounding, percentiles are values that were measured, and
//! what cannot be known is `None`, never 0: no statistic of nothing, no deviation of one value, no interval from too few.

use crate::metrics::exact;
use crate::metrics::interval::{self, Independence, Interval};
use crate::metrics::quantile::{Quantile, nearest_rank};

/// The statistics of a set of values.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Distribution {
    /// How many values there are.
    pub count: usize,
    /// Correctly rounded sum over count.
    pub mean: Option<f64>,
    /// Sample standard deviation; `None` below two values.
    pub stddev: Option<f64>,
    /// Order statistics; `None` without values.
    pub percentiles: Option<Percentiles>,
    /// Confidence intervals; all `None` when neighbours depend on each other.
    pub ci95: Ci95,
    /// The check behind the intervals; `None` when there was nothing to check (see [`interval::independence`]).
    pub independence: Option<Independence>,
}

/// Minimum, maximum and nearest-rank percentiles.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Percentiles {
    /// Smallest value.
    pub min: f64,
    /// 1st percentile.
    pub p1: f64,
    /// 5th percentile.
    pub p5: f64,
    /// 25th percentile.
    pub p25: f64,
    /// Median.
    pub p50: f64,
    /// 75th percentile.
    pub p75: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p99_9: f64,
    /// Largest value.
    pub max: f64,
}

/// 95% confidence intervals; `None` where the values are too few to bound one.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Ci95 {
    /// Of the mean, by Student's t.
    pub mean: Option<Interval>,
    /// Of the median, by order statistics, like the next three.
    pub p50: Option<Interval>,
    /// Of the 90th percentile.
    pub p90: Option<Interval>,
    /// Of the 95th percentile.
    pub p95: Option<Interval>,
    /// Of the 99th percentile.
    pub p99: Option<Interval>,
}

/// One statistic of a distribution, by its name in documents and expressions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Statistic {
    /// How many values.
    Count,
    /// Mean.
    Mean,
    /// Sample standard deviation.
    Stddev,
    /// Smallest value.
    Min,
    /// 1st percentile.
    P1,
    /// 5th percentile.
    P5,
    /// 25th percentile.
    P25,
    /// Median.
    P50,
    /// 75th percentile.
    P75,
    /// 90th percentile.
    P90,
    /// 95th percentile.
    P95,
    /// 99th percentile.
    P99,
    /// 99.9th percentile.
    P99_9,
    /// Largest value.
    Max,
}

impl Distribution {
    /// The statistics of finite values in the order of their requests' starts (the order matters for nothing but the
    /// independence check). No values give a count of 0 and `None` everywhere else.
    #[must_use]
    pub fn of(in_order: &[f64]) -> Self {
        let mut ascending = in_order.to_vec();
        ascending.sort_unstable_by(f64::total_cmp);
        let count = in_order.len();
        let mean = exact::fmean(in_order);
        let stddev = exact::stdev(in_order);
        let independence = interval::independence(in_order);
        let ci95 = match independence {
            Some(Independence { dependent: true, .. }) => Ci95::default(),
            _ => Ci95 {
                mean: mean.and_then(|mean| interval::mean_ci95(mean, stddev, count)),
                p50: interval::quantile_ci95(&ascending, Quantile::P50),
                p90: interval::quantile_ci95(&ascending, Quantile::P90),
                p95: interval::quantile_ci95(&ascending, Quantile::P95),
                p99: interval::quantile_ci95(&ascending, Quantile::P99),
            },
        };
        Self { count, mean, stddev, percentiles: Percentiles::of(&ascending), ci95, independence }
    }

    /// One statistic; `None` where it does not exist.
    #[must_use]
    pub fn get(&self, statistic: Statistic) -> Option<f64> {
        let p = self.percentiles.as_ref();
        match statistic {
            Statistic::Count => Some(float(self.count)),
            Statistic::Mean => self.mean,
            Statistic::Stddev => self.stddev,
            Statistic::Min => p.map(|p| p.min),
            Statistic::P1 => p.map(|p| p.p1),
            Statistic::P5 => p.map(|p| p.p5),
            Statistic::P25 => p.map(|p| p.p25),
            Statistic::P50 => p.map(|p| p.p50),
            Statistic::P75 => p.map(|p| p.p75),
            Statistic::P90 => p.map(|p| p.p90),
            Statistic::P95 => p.map(|p| p.p95),
            Statistic::P99 => p.map(|p| p.p99),
            Statistic::P99_9 => p.map(|p| p.p99_9),
            Statistic::Max => p.map(|p| p.max),
        }
    }
}

impl Percentiles {
    /// The order statistics of ascending values; `None` without values.
    #[must_use]
    pub fn of(ascending: &[f64]) -> Option<Self> {
        let at = |q| nearest_rank(ascending, q).copied();
        Some(Self {
            min: *ascending.first()?,
            p1: at(Quantile::P1)?,
            p5: at(Quantile::P5)?,
            p25: at(Quantile::P25)?,
            p50: at(Quantile::P50)?,
            p75: at(Quantile::P75)?,
            p90: at(Quantile::P90)?,
            p95: at(Quantile::P95)?,
            p99: at(Quantile::P99)?,
            p99_9: at(Quantile::P99_9)?,
            max: *ascending.last()?,
        })
    }
}

impl Statistic {
    /// Every statistic, in the order in which documents show them.
    pub const ALL: [Self; 14] = [
        Self::Count,
        Self::Mean,
        Self::Stddev,
        Self::Min,
        Self::P1,
        Self::P5,
        Self::P25,
        Self::P50,
        Self::P75,
        Self::P90,
        Self::P95,
        Self::P99,
        Self::P99_9,
        Self::Max,
    ];

    /// The name in documents and expressions.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Mean => "mean",
            Self::Stddev => "stddev",
            Self::Min => "min",
            Self::P1 => "p1",
            Self::P5 => "p5",
            Self::P25 => "p25",
            Self::P50 => "p50",
            Self::P75 => "p75",
            Self::P90 => "p90",
            Self::P95 => "p95",
            Self::P99 => "p99",
            Self::P99_9 => "p99_9",
            Self::Max => "max",
        }
    }

    /// The statistic with this name; `None` when there is none.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|statistic| statistic.name() == name)
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of values are far below 2^53")]
fn float(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hand_worked_statistics() {
        let d = Distribution::of(&[4.0, 1.0, 3.0, 2.0]);
        assert_eq!(d.count, 4);
        assert_eq!(d.mean, Some(2.5));
        // Squares of the deviations: 5, over 3.
        assert_eq!(d.stddev, Some((5.0_f64 / 3.0).sqrt()));
        let p = d.percentiles.unwrap();
        assert_eq!(
            (p.min, p.p1, p.p25, p.p50, p.p75, p.p90, p.p99_9, p.max),
            (1.0, 1.0, 1.0, 2.0, 3.0, 4.0, 4.0, 4.0)
        );
        assert_eq!(d.ci95.p50, None, "four values cannot bound a median at 95%");
        assert!(d.ci95.mean.is_some());
        assert_eq!(d.independence, None);
    }

    #[test]
    fn nothing_and_one_value() {
        let none = Distribution::of(&[]);
        assert_eq!(none, Distribution::default());
        assert!(Statistic::ALL.iter().all(|s| none.get(*s).is_none() || *s == Statistic::Count));
        assert_eq!(none.get(Statistic::Count), Some(0.0));
        let one = Distribution::of(&[7.5]);
        assert_eq!((one.count, one.mean, one.stddev), (1, Some(7.5), None));
        assert_eq!(one.ci95, Ci95::default());
        for statistic in Statistic::ALL {
            let want = match statistic {
                Statistic::Count => Some(1.0),
                Statistic::Stddev => None,
                _ => Some(7.5),
            };
            assert_eq!(one.get(statistic), want, "{statistic:?}");
        }
    }

    #[test]
    fn statistics_are_found_by_name() {
        for statistic in Statistic::ALL {
            assert_eq!(Statistic::by_name(statistic.name()), Some(statistic));
        }
        assert_eq!(Statistic::by_name("p42"), None);
    }

    #[test]
    fn every_statistic_reads_its_own_field() {
        let values: Vec<f64> = (1..=2000).rev().map(f64::from).collect();
        let d = Distribution::of(&values);
        let got: Vec<_> = Statistic::ALL.into_iter().filter_map(|s| d.get(s)).collect();
        let want = [
            2000.0,
            1000.5,
            d.stddev.unwrap(),
            1.0,
            20.0,
            100.0,
            500.0,
            1000.0,
            1500.0,
            1800.0,
            1900.0,
            1980.0,
            1998.0,
            2000.0,
        ];
        assert_eq!(got, want);
    }
}
