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
    let ranks = centred_ranks(in_order);
    let square: f64 = ranks.iter().map(|r| r * r).sum();
    if square <= 0.0 {
        return None;
    }
    let neighbours = neighbour_products(&ranks);
    let (expected, deviation) = permutation_moments(&ranks);
    let lag1_spearman = neighbours / square;
    let z = (neighbours - expected) / deviation;
    z.is_finite().then_some(Independence {
        lag1_spearman,
        z,
        dependent: z > DEPENDENT_Z && lag1_spearman > DEPENDENT_CORRELATION,
    })
}

/// Mean and standard deviation of the sum of neighbour products over all orders of the same ranks, whose sum is 0. Exact,
/// and with ties exact too: it follows from the power sums of the ranks.
fn permutation_moments(ranks: &[f64]) -> (f64, f64) {
    let n = float(ranks.len());
    let square: f64 = ranks.iter().map(|r| r * r).sum();
    let fourth: f64 = ranks.iter().map(|r| r.powi(4)).sum();
    let expected = -square / n;
    let second = (square * square - fourth) / n + (square * square - 2.0 * fourth) / (n * (n - 1.0));
    (expected, (second - expected * expected).sqrt())
}

fn neighbour_products(ranks: &[f64]) -> f64 {
    ranks.iter().zip(ranks.iter().skip(1)).map(|(a, b)| a * b).sum()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64, relative: f64) -> bool {
        (a - b).abs() <= relative * b.abs()
    }

    #[test]
    fn student_t_by_closed_forms_and_tables() {
        let one = (std::f64::consts::PI * 0.475).tan();
        let two = 0.475 * 2.0 * (2.0_f64 / (4.0 * 0.975 * 0.025)).sqrt();
        for (degrees, want) in [
            (1, one),
            (2, two),
            // Computed with 50 digits.
            (3, 3.182_446_305_283_709_6),
            (4, 2.776_445_105_197_794_4),
            (5, 2.570_581_835_636_315_5),
            (10, 2.228_138_851_986_275),
            (30, 2.042_272_456_301_238),
            (100, 1.983_971_518_523_552_3),
            (1000, 1.962_339_080_826_408_5),
        ] {
            let got = student_t_975(degrees).unwrap();
            assert!(close(got, want, 2e-14), "{degrees}: {got} and not {want}");
        }
        assert_eq!(student_t_975(0), None);
    }

    #[test]
    fn student_t_by_integrating_its_density() {
        let mut factor = [0.0, std::f64::consts::FRAC_1_PI, 8_f64.sqrt().recip()];
        for degrees in 1..=40_u32 {
            let v = f64::from(degrees);
            let place = usize::try_from(degrees).unwrap();
            let density = |t: f64| {
                factor[if place > 2 { 2 - place % 2 } else { place }]
                    * (1.0 + t * t / v).powf(-(v + 1.0) / 2.0)
            };
            // Simpson's rule from 0 to the point.
            let steps = 20_000;
            let h = student_t_975(u64::from(degrees)).unwrap() / f64::from(steps);
            let inner: f64 = (1..steps).map(|i| density(f64::from(i) * h) * f64::from(2 + 2 * (i % 2))).sum();
            let within = (density(0.0) + inner + density(f64::from(steps) * h)) * h / 3.0;
            assert!((within - 0.475).abs() < 1e-12, "{degrees}: {within}");
            // The factors of v and v + 2 follow from each other.
            factor[if place > 2 { 2 - place % 2 } else { place }] *= (v + 1.0) / v * (v / (v + 2.0)).sqrt();
        }
    }

    #[test]
    fn the_sum_and_the_expansion_meet() {
        for degrees in [300, 999, 1000] {
            let (sum, expansion) = (student_t_975(degrees).unwrap(), t_by_expansion(degrees));
            assert!(close(sum, expansion, 1e-12), "{degrees}: {sum}, {expansion}");
        }
        let points: Vec<f64> = (1..2000).map(|degrees| student_t_975(degrees).unwrap()).collect();
        assert!(points.windows(2).all(|w| w[0] > w[1]), "the point falls with every degree of freedom");
        assert!(close(student_t_975(u64::MAX).unwrap(), 1.959_963_984_540_054, 1e-15));
    }

    #[test]
    fn interval_of_a_mean_by_hand() {
        // 1, 2, 3: mean 2, deviation 1, t(2) = 4.3027, half width 2.4841.
        let ci = mean_ci95(2.0, Some(1.0), 3).unwrap();
        assert!(close(ci.low, 2.0 - 2.484_137_711_7, 1e-9) && close(ci.high, 2.0 + 2.484_137_711_7, 1e-9));
        assert_eq!(mean_ci95(2.0, None, 1), None);
        assert_eq!(mean_ci95(2.0, None, 0), None);
    }

    #[test]
    fn a_quantile_is_bounded_from_the_published_sample_sizes_on() {
        // The smallest samples that bound a quantile on both sides: 1 − 2·tail(n) ≥ 95% per side.
        for (q, n) in [(Quantile::P50, 6), (Quantile::P90, 36), (Quantile::P95, 72), (Quantile::P99, 368)] {
            let values: Vec<f64> = (0..n).map(f64::from).collect();
            assert!(quantile_ci95(&values, q).is_some(), "{q:?} at {n}");
            assert_eq!(quantile_ci95(&values[1..], q), None, "{q:?} at {}", n - 1);
        }
        assert_eq!(quantile_ci95(&[], Quantile::P50), None);
        // Conover's table: the median of 20 values lies between the 6th and the 15th.
        let values: Vec<f64> = (1..=20).map(f64::from).collect();
        assert_eq!(quantile_ci95(&values, Quantile::P50), Some(Interval { low: 6.0, high: 15.0 }));
    }

    #[test]
    fn ten_million_values_are_bounded_quickly_and_tightly() {
        let (low, high) = order_statistics(10_000_000, 0.5).unwrap();
        // ±1.96·√n/2 around the middle.
        assert!(
            (4_996_898..=4_996_903).contains(&low) && (5_003_097..=5_003_102).contains(&high),
            "{low}, {high}"
        );
        let (low, high) = order_statistics(10_000_000, 0.99).unwrap();
        assert!(low < 9_900_000 && high > 9_900_000 && high - low < 1240);
    }

    #[test]
    fn permutation_moments_are_those_of_all_orders() {
        fn orders(ranks: &mut Vec<f64>, from: usize, each: &mut impl FnMut(&[f64])) {
            if from == ranks.len() {
                each(ranks);
            }
            for i in from..ranks.len() {
                ranks.swap(from, i);
                orders(ranks, from + 1, each);
                ranks.swap(from, i);
            }
        }
        for values in [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], [1.0, 1.0, 1.0, 4.0, 5.0, 5.0, 9.0]] {
            let mut ranks = centred_ranks(&values);
            assert!(ranks.iter().sum::<f64>().abs() < 1e-12);
            let (mut n, mut first, mut second) = (0.0, 0.0, 0.0);
            let expected = permutation_moments(&ranks);
            orders(&mut ranks, 0, &mut |order| {
                let products = neighbour_products(order);
                n += 1.0;
                first += products;
                second += products * products;
            });
            let mean = first / n;
            let deviation = (second / n - mean * mean).sqrt();
            assert!(
                close(expected.0, mean, 1e-9) && close(expected.1, deviation, 1e-9),
                "{expected:?} {mean} {deviation}"
            );
        }
    }

    #[test]
    fn ranks_of_ties_are_averages() {
        assert_eq!(centred_ranks(&[30.0, 10.0, 30.0, 20.0]), [1.0, -1.5, 1.0, -0.5]);
    }

    /// Uniform doubles in (0, 1) from a 64-bit xorshift.
    struct Uniform(u64);

    impl Uniform {
        fn next(&mut self) -> f64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            ((self.0 >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
        }
    }

    #[test]
    fn intervals_cover_the_truth_of_independent_values_and_the_check_rarely_cries_wolf() {
        let mut uniform = Uniform(42);
        let (mut mean, mut median, mut p95, mut cried) = (0, 0, 0, 0);
        const RUNS: u32 = 2000;
        for _ in 0..RUNS {
            // Exponential with mean 1: the median is ln 2, the 95th percentile ln 20.
            let values: Vec<f64> = (0..200).map(|_| -uniform.next().ln()).collect();
            let covers = |i: Option<Interval>, truth| i.is_some_and(|i| i.low <= truth && truth <= i.high);
            let d = crate::metrics::Distribution::of(&values);
            let mut ascending = values.clone();
            ascending.sort_unstable_by(f64::total_cmp);
            mean += u32::from(covers(mean_ci95(d.mean.unwrap(), d.stddev, values.len()), 1.0));
            median += u32::from(covers(quantile_ci95(&ascending, Quantile::P50), 2_f64.ln()));
            p95 += u32::from(covers(quantile_ci95(&ascending, Quantile::P95), 20_f64.ln()));
            cried += u32::from(d.independence.unwrap().dependent);
        }
        let share = |n: u32| f64::from(n) / f64::from(RUNS);
        // Exact intervals cover at least 95%; three standard errors of slack. The mean's is only nearly exact here.
        assert!(share(median) > 0.935 && share(p95) > 0.935, "{} {}", share(median), share(p95));
        assert!(share(mean) > 0.92, "{}", share(mean));
        assert!(share(cried) < 0.02, "{}", share(cried));
    }

    #[test]
    fn dependence_is_found_and_withholds_the_intervals() {
        let mut uniform = Uniform(7);
        let mut value = 0.0;
        let values: Vec<f64> = (0..200)
            .map(|_| {
                value = 0.7 * value + uniform.next();
                value
            })
            .collect();
        let d = crate::metrics::Distribution::of(&values);
        let check = d.independence.unwrap();
        assert!(check.dependent && check.lag1_spearman > 0.5 && check.z > 5.0, "{check:?}");
        assert_eq!(d.ci95, crate::metrics::distribution::Ci95::default());
        assert!(d.mean.is_some() && d.percentiles.is_some());
    }

    #[test]
    fn what_cannot_be_checked_is_not() {
        assert_eq!(independence(&[1.0; 50]), None);
        assert_eq!(independence(&[1.0, 2.0, 3.0]), None);
        // A slow drift is dependence, a strict alternation is not (intervals are then too wide, which is safe).
        let drift: Vec<f64> = (0..50).map(f64::from).collect();
        assert!(independence(&drift).unwrap().dependent);
        let alternating: Vec<f64> = (0..50).map(|i| f64::from(i % 2)).collect();
        let check = independence(&alternating).unwrap();
        assert!(!check.dependent && check.lag1_spearman < -0.9);
    }
}
