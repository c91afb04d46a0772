//! 95% confidence intervals, and the check whether their one assumption, independent values, holds.
//!
//! * The mean: Student's t.
//! * A quantile: order statistics. The number of values at or below a quantile is binomial whatever the distribution
//!   is, so ranks bound it exactly (David & Nagaraja, *Order Statistics*, 3rd ed., section 7.1); ties only make the
//!   interval wider. Too few values to bound it give no interval.
//! * Independence: the lag-1 rank correlation of values in order of their requests. Queueing makes neighbours alike,
//!   and then both intervals are too narrow, so they are withheld.
//!
//! No special functions: the t distribution of whole degrees of freedom is a finite sum (Abramowitz & Stegun
//! 26.7.3–4), and binomial probabilities follow from each other by their ratios.

use crate::metrics::quantile::Quantile;

/// A two-sided 95% confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// What neighbours in order of time say about each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Independence {
    /// Spearman's rank correlation of each value with the next one.
    pub lag1_spearman: f64,
    /// The same in standard deviations from what independent values would give (exact permutation moments).
    pub z: f64,
    /// Whether values are so much like their neighbours that intervals would be too narrow.
    pub dependent: bool,
}

/// Probability left out on each side of an interval.
const TAIL: f64 = 0.025;
/// Fewer values than this are not checked: the normal approximation of the rank correlation is poor below.
const MIN_CHECKED: usize = 10;
/// One-sided 1% point of the normal distribution: with some twenty metrics a run, 5% would cry wolf in every one.
const DEPENDENT_Z: f64 = 2.326_347_874_040_841;
/// Below this correlation an interval is at most 10% too narrow, √((1 + r)/(1 − r)), however significant it is.
const DEPENDENT_CORRELATION: f64 = 0.1;

/// Interval of the mean by Student's t; `None` below two values.
#[must_use]
pub fn mean_ci95(mean: f64, stddev: Option<f64>, count: usize) -> Option<Interval> {
    let degrees = u64::try_from(count.checked_sub(1)?).ok()?;
    let half = student_t_975(degrees)? * stddev? / float(count).sqrt();
    Some(Interval { low: mean - half, high: mean + half })
}

/// Interval of a quantile from ascending values by binomial order statistics; `None` where there are too few values
/// to bound it.
#[must_use]
pub fn quantile_ci95(ascending: &[f64], q: Quantile) -> Option<Interval> {
    let (low, high) = order_statistics(ascending.len(), q.probability())?;
    Some(Interval { low: *ascending.get(low)?, high: *ascending.get(high)? })
}

/// Checks values in the order of their requests' starts; `None` for too few values and for values that are all equal.
#[must_use]
pub fn independence(in_order: &[f64]) -> Option<Independence> {
    if in_order.len() < MIN_CHECKED {
        return None;
    }
    let n = float(in_order.len());
    let ranks = centred_ranks(in_order);
    let square: f64 = ranks.iter().map(|r| r * r).sum();
    let fourth: f64 = ranks.iter().map(|r| r.powi(4)).sum();
    if square <= 0.0 {
        return None;
    }
    let neighbours: f64 = ranks.iter().zip(ranks.iter().skip(1)).map(|(a, b)| a * b).sum();
    // Moments of Σ rᵢ·rᵢ₊₁ over all orders of the same ranks, whose sum is 0; ties need no correction.
    let expected = -square / n;
    let second = (square * square - fourth) / n + (square * square - 2.0 * fourth) / (n * (n - 1.0));
    let deviation = (second - expected * expected).sqrt();
    let lag1_spearman = neighbours / square;
    let z = (neighbours - expected) / deviation;
    z.is_finite().then_some(Independence {
        lag1_spearman,
        z,
        dependent: z > DEPENDENT_Z && lag1_spearman > DEPENDENT_CORRELATION,
    })
}

/// Places (from 0) of the two order statistics between which quantile `p` lies with at least 95%, at most 2.5% left
/// out on each side.
fn order_statistics(n: usize, p: f64) -> Option<(usize, usize)> {
    let (first, weights) = binomial_weights(n, p);
    let allowed = TAIL * weights.iter().sum::<f64>();
    let below = fitting(weights.iter(), allowed);
    let above = fitting(weights.iter().rev(), allowed);
    // With l = first + below, P(fewer than l values at or below the quantile) is at most the tail: rank l bounds it
    // from below, and there must be one.
    let low_rank = first + below;
    let high_rank = first + weights.len() - above;
    (low_rank >= 1 && high_rank <= n).then(|| (low_rank - 1, high_rank - 1))
}

/// How many leading weights fit into `allowed`.
fn fitting<'a>(weights: impl Iterator<Item = &'a f64>, allowed: f64) -> usize {
    let mut sum = 0.0;
    weights
        .take_while(|weight| {
            sum += **weight;
            sum <= allowed
        })
        .count()
}

/// Binomial probabilities up to a common factor, from the mode outwards as far as they matter; the first one's index.
fn binomial_weights(n: usize, p: f64) -> (usize, Vec<f64>) {
    /// Weights relative to the mode's below this cannot move a tail of 2.5%.
    const NEGLIGIBLE: f64 = 1e-20;
    let odds = p / (1.0 - p);
    let mode = floor(float(n + 1) * p).min(n);
    let mut down = Vec::new();
    let (mut k, mut weight) = (mode, 1.0);
    while k > 0 && weight > NEGLIGIBLE {
        weight *= float(k) / float(n - k + 1) / odds;
        k -= 1;
        down.push(weight);
    }
    let first = k;
    down.reverse();
    down.push(1.0);
    let (mut k, mut weight) = (mode, 1.0);
    while k < n && weight > NEGLIGIBLE {
        weight *= float(n - k) / float(k + 1) * odds;
        k += 1;
        down.push(weight);
    }
    (first, down)
}

/// Average ranks minus their mean.
fn centred_ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<(f64, usize)> = values.iter().copied().zip(0..).collect();
    order.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let mut ranks = vec![0.0; values.len()];
    let centre = (float(values.len()) + 1.0) / 2.0;
    let mut done = 0;
    for tied in order.chunk_by(|a, b| a.0.total_cmp(&b.0).is_eq()) {
        let rank = float(done) + (float(tied.len()) + 1.0) / 2.0 - centre;
        for (_, place) in tied {
            if let Some(slot) = ranks.get_mut(*place) {
                *slot = rank;
            }
        }
        done += tied.len();
    }
    ranks
}

/// The 97.5% point of Student's t; `None` for no degrees of freedom.
fn student_t_975(degrees: u64) -> Option<f64> {
    /// Up to here the finite sum; beyond, the next term of the expansion is below 1e-15.
    const SUMMED: u64 = 1000;
    match degrees {
        0 => None,
        1..=SUMMED => Some(bisect(|t| t_within(t, degrees), 1.0 - 2.0 * TAIL)),
        _ => Some(t_by_expansion(degrees)),
    }
}

/// P(|T| ≤ t), Abramowitz & Stegun 26.7.3 (odd) and 26.7.4 (even).
fn t_within(t: f64, degrees: u64) -> f64 {
    let angle = (t / float_u64(degrees).sqrt()).atan();
    let (sin, cos) = angle.sin_cos();
    let odd = degrees % 2 == 1;
    let (mut term, mut sum) = if odd { (cos, 0.0) } else { (1.0, 0.0) };
    let mut k = if odd { 3 } else { 2 };
    while k <= degrees {
        sum += term;
        term *= cos * cos * float_u64(k - 1) / float_u64(k);
        k += 2;
    }
    if odd { std::f64::consts::FRAC_2_PI * (angle + sin * sum) } else { sin * sum }
}

/// Cornish–Fisher expansion of the t quantile (Abramowitz & Stegun 26.7.5).
fn t_by_expansion(degrees: u64) -> f64 {
    /// The 97.5% point of the normal distribution.
    const Z: f64 = 1.959_963_984_540_054;
    let v = float_u64(degrees);
    let z2 = Z * Z;
    let g1 = Z * (z2 + 1.0) / 4.0;
    let g2 = Z * ((5.0 * z2 + 16.0) * z2 + 3.0) / 96.0;
    let g3 = Z * (((3.0 * z2 + 19.0) * z2 + 17.0) * z2 - 15.0) / 384.0;
    let g4 = Z * ((((79.0 * z2 + 776.0) * z2 + 1482.0) * z2 - 1920.0) * z2 - 945.0) / 92160.0;
    Z + (g1 + (g2 + (g3 + g4 / v) / v) / v) / v
}

/// Where a rising function reaches `target`, to the last bit.
fn bisect(rising: impl Fn(f64) -> f64, target: f64) -> f64 {
    // The point falls from 12.706 at one degree of freedom to 1.960 at infinity.
    let (mut low, mut high) = (1.0, 16.0);
    // Each step gains a bit, and a double has 53.
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if rising(middle) < target {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

#[expect(clippy::cast_precision_loss, reason = "counts of values are far below 2^53")]
fn float(n: usize) -> f64 {
    n as f64
}

#[expect(clippy::cast_precision_loss, reason = "degrees of freedom are far below 2^53")]
fn float_u64(n: u64) -> f64 {
    n as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between 0 and the number of values, both of which usize holds; rounding down is what is asked for"
)]
fn floor(x: f64) -> usize {
    x as usize
}
