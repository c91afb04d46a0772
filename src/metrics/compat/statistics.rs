//! How peers make statistics of values. Ours are in [`crate::metrics::distribution`], on purpose apart.
//!
//! Values are sorted before anything is added up, so that the order in which requests end changes no digit.

use crate::metrics::exact;

/// A statistic.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rule {
    /// Mean, weighted where values have weights.
    Mean,
    /// Standard deviation of the values as a whole population (divided by n, not n − 1).
    PopulationDeviation,
    /// Smallest value.
    Min,
    /// Largest value.
    Max,
    /// Mean times count.
    Total,
    /// The quantile at this share of the values.
    Quantile(f64),
}

/// The statistics of a distribution.
#[derive(Debug, Clone, PartialEq)]
pub struct Statistics {
    /// How many values; of weighted ones the sum of the weights, rounded.
    pub count: u64,
    /// Statistics by the peer's names for them.
    pub values: Vec<(&'static str, f64)>,
}

impl Statistics {
    /// Of values that count alike; quantiles are interpolated between the two nearest values: the value at place
    /// `q · (n − 1)`, counted from 0. `None` without values.
    #[must_use]
    pub fn linear(mut values: Vec<f64>, rules: &[(&'static str, Rule)]) -> Option<Self> {
        values.sort_unstable_by(f64::total_cmp);
        let (mean, min, max) = (exact::fmean(&values)?, *values.first()?, *values.last()?);
        let squares = || values.iter().map(|v| (v - mean) * (v - mean));
        let count = u64::try_from(values.len()).ok()?;
        let value = |rule| match rule {
            Rule::Mean => Some(mean),
            Rule::PopulationDeviation => exact::fmean(squares()).map(f64::sqrt),
            Rule::Min => Some(min),
            Rule::Max => Some(max),
            Rule::Total => exact::sum(&values),
            Rule::Quantile(q) => between(&values, q),
        };
        Self::all(count, rules, value)
    }

    /// Of `(value, weight)`; equal values are joined, and a quantile is the first value up to which at least that share
    /// of the weight lies, the shares being added up in ascending order as doubles. `None` without weight.
    #[must_use]
    pub fn weighted(mut values: Vec<(f64, f64)>, rules: &[(&'static str, Rule)]) -> Option<Self> {
        values.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        values.dedup_by(|later, earlier| {
            let same = later.0.total_cmp(&earlier.0).is_eq();
            earlier.1 += if same { later.1 } else { 0.0 };
            same
        });
        values.retain(|(_, weight)| *weight > 0.0);
        let total = exact::sum(values.iter().map(|(_, weight)| *weight)).filter(|total| *total > 0.0)?;
        let shares = || values.iter().map(|(value, weight)| (*value, weight / total));
        let mean = exact::sum(shares().map(|(value, share)| value * share))?;
        let (min, max) = (values.first()?.0, values.last()?.0);
        let value = |rule| match rule {
            Rule::Mean => Some(mean),
            Rule::PopulationDeviation => {
                let parts = shares().map(|(value, share)| (value - mean) * (value - mean) * share);
                exact::sum(parts).map(f64::sqrt)
            }
            Rule::Min => Some(min),
            Rule::Max => Some(max),
            Rule::Total => Some(mean * total.round()),
            Rule::Quantile(q) => {
                let mut below = 0.0;
                let reached = shares().find(|(_, share)| {
                    below += share;
                    below >= q
                });
                Some(reached.map_or(max, |(value, _)| value))
            }
        };
        Self::all(whole(total)?, rules, value)
    }

    fn all(count: u64, rules: &[(&'static str, Rule)], value: impl Fn(Rule) -> Option<f64>) -> Option<Self> {
        let values = rules.iter().map(|(name, rule)| Some((*name, value(*rule)?)));
        Some(Self { count, values: values.collect::<Option<_>>()? })
    }
}

/// The value at place `q · (n − 1)` of ascending ones, between its neighbours where it is no whole number.
#[expect(clippy::cast_precision_loss, reason = "counts of values are far below 2^53")]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and n − 1")]
fn between(ascending: &[f64], q: f64) -> Option<f64> {
    let last = ascending.len().checked_sub(1)?;
    let place = q * last as f64;
    let below = (place as usize).min(last);
    let (low, high) = (*ascending.get(below)?, *ascending.get((below + 1).min(last))?);
    Some(low + (high - low) * (place - below as f64))
}

/// A sum of weights as a whole number; `None` beyond what counts can be.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked before")]
fn whole(total: f64) -> Option<u64> {
    let rounded = total.round();
    (0.0..9e15).contains(&rounded).then_some(rounded as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [(&str, Rule); 7] = [
        ("mean", Rule::Mean),
        ("std", Rule::PopulationDeviation),
        ("min", Rule::Min),
        ("max", Rule::Max),
        ("sum", Rule::Total),
        ("p50", Rule::Quantile(0.5)),
        ("p90", Rule::Quantile(0.9)),
    ];

    fn numbers(found: Option<Statistics>) -> (u64, Vec<f64>) {
        let found = found.unwrap();
        (found.count, found.values.iter().map(|(_, v)| *v).collect())
    }

    #[test]
    fn linear_statistics_of_four_values() {
        let found = Statistics::linear(vec![4.0, 1.0, 3.0, 2.0], &ALL);
        // Places 1.5 and 2.7 of 1, 2, 3, 4.
        let expected = vec![2.5, 1.25_f64.sqrt(), 1.0, 4.0, 10.0, 2.5, 3.0 + 0.9 * 3.0 - 2.0];
        assert_eq!(numbers(found).0, 4);
        for (is, want) in numbers(Statistics::linear(vec![4.0, 1.0, 3.0, 2.0], &ALL)).1.iter().zip(expected) {
            assert!((is - want).abs() < 1e-12, "{is} {want}");
        }
        assert_eq!(numbers(Statistics::linear(vec![7.0], &ALL)).1, [7.0, 0.0, 7.0, 7.0, 7.0, 7.0, 7.0]);
        assert_eq!(Statistics::linear(vec![], &ALL), None);
    }

    #[test]
    fn weighted_statistics_join_equal_values() {
        // 10 with weight 3, 20 with weight 1.
        let found =
            numbers(Statistics::weighted(vec![(20.0, 1.0), (10.0, 1.0), (5.0, 0.0), (10.0, 2.0)], &ALL));
        assert_eq!(found.0, 4);
        assert_eq!(found.1, [12.5, 18.75_f64.sqrt(), 10.0, 20.0, 50.0, 10.0, 20.0]);
        assert_eq!(Statistics::weighted(vec![(1.0, 0.0)], &ALL), None);
        assert_eq!(Statistics::weighted(vec![], &ALL), None);
    }
}
