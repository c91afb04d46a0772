//! Distributions of durations and counts, drawn by counter so that a seed fixes every value.
//!
//! Parsing of `normal:50ms,5ms` is not here (see `config::sim_args`); these are checked shapes. A draw below zero
//! becomes zero, so a normal distribution that reaches far below zero has a higher mean than asked for.

use std::f64::consts::TAU;
use std::sync::Arc;

use crate::sim::random::Lane;
use crate::units::Nanos;

/// Longest duration that can be drawn: one day. A heavy tail must not overflow the deadline arithmetic, and no
/// measurement waits longer.
pub const MAX_DURATION: Nanos = Nanos(86_400 * Nanos::PER_SECOND);

/// Largest count that can be drawn: more tokens than any context holds.
pub const MAX_COUNT: u64 = 100_000_000;

/// Why parameters make no distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// A parameter is not a finite number.
    #[error("a parameter is not a finite number")]
    NotFinite,
    /// A parameter is below zero.
    #[error("a parameter is negative")]
    Negative,
    /// A parameter is above [`MAX_DURATION`] or [`MAX_COUNT`].
    #[error("a parameter is too large (at most 24 hours, or {MAX_COUNT} tokens)")]
    TooLarge,
    /// A log-normal distribution has no mean of zero.
    #[error("the mean must be above zero")]
    ZeroMean,
    /// The upper bound lies below the lower one.
    #[error("the upper bound lies below the lower one")]
    Reversed,
    /// A trace without a value.
    #[error("the trace has no value")]
    EmptyTrace,
    /// A number of tokens that is not whole, where a mean or a deviation could be a fraction but this is neither.
    #[error("a number of tokens must be whole")]
    NotWhole,
}

/// A distribution over numbers from zero up, without a unit.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape(Kind);

#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Constant(f64),
    Normal { mean: f64, deviation: f64 },
    LogNormal { mean: f64, mu: f64, sigma: f64 },
    Exponential { mean: f64 },
    Uniform { low: f64, high: f64 },
    Trace(Arc<[f64]>),
}

/// A distribution of durations.
#[derive(Debug, Clone, PartialEq)]
pub struct DurationDistribution(Shape);

/// A distribution of counts.
#[derive(Debug, Clone, PartialEq)]
pub struct CountDistribution(Shape);

impl Shape {
    /// Always the same value.
    ///
    /// # Errors
    /// [`ShapeError`] when the value is negative or not finite.
    pub fn constant(value: f64) -> Result<Self, ShapeError> {
        check(value)?;
        Ok(Self(Kind::Constant(value)))
    }

    /// Normal distribution; values below zero become zero.
    ///
    /// # Errors
    /// [`ShapeError`] when a parameter is negative or not finite.
    pub fn normal(mean: f64, deviation: f64) -> Result<Self, ShapeError> {
        check(mean)?;
        check(deviation)?;
        Ok(Self(Kind::Normal { mean, deviation }))
    }

    /// Log-normal distribution, given by its own mean and standard deviation (not those of the logarithm).
    ///
    /// # Errors
    /// [`ShapeError`] when a parameter is negative or not finite, or the mean is zero.
    pub fn log_normal(mean: f64, deviation: f64) -> Result<Self, ShapeError> {
        check(mean)?;
        check(deviation)?;
        if mean <= 0.0 {
            return Err(ShapeError::ZeroMean);
        }
        // Moments of the log-normal: mean = exp(mu + sigma²/2), variance = (exp(sigma²) - 1) mean².
        let variance = (deviation / mean).powi(2).ln_1p();
        // A ratio whose square is beyond a double makes every draw no number.
        check(variance)?;
        Ok(Self(Kind::LogNormal { mean, mu: mean.ln() - variance / 2.0, sigma: variance.sqrt() }))
    }

    /// Exponential distribution.
    ///
    /// # Errors
    /// [`ShapeError`] when the mean is negative or not finite.
    pub fn exponential(mean: f64) -> Result<Self, ShapeError> {
        check(mean)?;
        Ok(Self(Kind::Exponential { mean }))
    }

    /// Uniform between two bounds; as a count, both bounds can occur.
    ///
    /// # Errors
    /// [`ShapeError`] when a bound is negative or not finite, or the upper lies below the lower.
    pub fn uniform(low: f64, high: f64) -> Result<Self, ShapeError> {
        check(low)?;
        check(high)?;
        if high < low {
            return Err(ShapeError::Reversed);
        }
        Ok(Self(Kind::Uniform { low, high }))
    }

    /// The values one after the other, from the start again after the last.
    ///
    /// # Errors
    /// [`ShapeError`] when there is no value, or one is negative or not finite.
    pub fn trace(values: &[f64]) -> Result<Self, ShapeError> {
        if values.is_empty() {
            return Err(ShapeError::EmptyTrace);
        }
        for &value in values {
            check(value)?;
        }
        Ok(Self(Kind::Trace(values.into())))
    }

    fn draw(&self, lane: Lane, counter: u64) -> f64 {
        match &self.0 {
            Kind::Constant(value) => *value,
            Kind::Normal { mean, deviation } => deviation.mul_add(standard_normal(lane, counter), *mean),
            Kind::LogNormal { mu, sigma, .. } => sigma.mul_add(standard_normal(lane, counter), *mu).exp(),
            // Inversion; 1 - u is in (0, 1], so the logarithm is finite.
            Kind::Exponential { mean } => -mean * (1.0 - lane.unit(counter)).ln(),
            Kind::Uniform { low, high } => (high - low).mul_add(lane.unit(counter), *low),
            Kind::Trace(values) => trace_value(values, counter),
        }
    }

    /// Deviations of a log-normal are left out: heavy tails have large ones, and what is drawn is clamped.
    fn largest_parameter(&self) -> f64 {
        match &self.0 {
            Kind::Constant(value) => *value,
            Kind::Normal { mean, deviation } => mean.max(*deviation),
            Kind::LogNormal { mean, .. } | Kind::Exponential { mean } => *mean,
            Kind::Uniform { high, .. } => *high,
            Kind::Trace(values) => values.iter().copied().fold(0.0, f64::max),
        }
    }
}

impl DurationDistribution {
    /// From a shape over nanoseconds.
    ///
    /// # Errors
    /// [`ShapeError::TooLarge`] above [`MAX_DURATION`].
    pub fn from_nanos(shape: Shape) -> Result<Self, ShapeError> {
        if shape.largest_parameter() > nanos_as_f64(MAX_DURATION) {
            return Err(ShapeError::TooLarge);
        }
        Ok(Self(shape))
    }

    /// The `counter`-th value, between zero and [`MAX_DURATION`].
    #[expect(clippy::cast_possible_truncation, reason = "clamped to a day of nanoseconds just before")]
    pub(crate) fn draw(&self, lane: Lane, counter: u64) -> Nanos {
        Nanos(self.0.draw(lane, counter).clamp(0.0, nanos_as_f64(MAX_DURATION)).round() as i64)
    }
}

impl CountDistribution {
    /// From a shape over numbers of tokens.
    ///
    /// # Errors
    /// [`ShapeError::TooLarge`] above [`MAX_COUNT`]; [`ShapeError::NotWhole`] when a constant, a bound or a trace
    /// has a fraction.
    pub fn new(shape: Shape) -> Result<Self, ShapeError> {
        let whole = match &shape.0 {
            Kind::Constant(value) => value.fract() == 0.0,
            Kind::Uniform { low, high } => low.fract() == 0.0 && high.fract() == 0.0,
            Kind::Trace(values) => values.iter().all(|value| value.fract() == 0.0),
            Kind::Normal { .. } | Kind::LogNormal { .. } | Kind::Exponential { .. } => true,
        };
        if !whole {
            return Err(ShapeError::NotWhole);
        }
        if shape.largest_parameter() > count_as_f64(MAX_COUNT) {
            return Err(ShapeError::TooLarge);
        }
        Ok(Self(shape))
    }

    /// The `counter`-th value, between zero and [`MAX_COUNT`], rounded to the nearest whole number.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to [0, MAX_COUNT] just before"
    )]
    pub(crate) fn draw(&self, lane: Lane, counter: u64) -> u64 {
        let value = match &self.0.0 {
            // Rounding would give the two bounds only half the weight of the numbers between them.
            Kind::Uniform { low, high } => {
                (high - low + 1.0).mul_add(lane.unit(counter), *low).floor().min(*high)
            }
            _ => self.0.draw(lane, counter).round(),
        };
        value.clamp(0.0, count_as_f64(MAX_COUNT)) as u64
    }
}

fn check(value: f64) -> Result<(), ShapeError> {
    if !value.is_finite() {
        Err(ShapeError::NotFinite)
    } else if value < 0.0 {
        Err(ShapeError::Negative)
    } else {
        Ok(())
    }
}

/// Box and Muller (1958), the cosine half: two uniform numbers, one normal one. The first is taken from (0, 1],
/// so that its logarithm is finite.
fn standard_normal(lane: Lane, counter: u64) -> f64 {
    let first = 1.0 - lane.unit(counter.wrapping_mul(2));
    let second = lane.unit(counter.wrapping_mul(2).wrapping_add(1));
    (-2.0 * first.ln()).sqrt() * (TAU * second).cos()
}

fn trace_value(values: &[f64], counter: u64) -> f64 {
    // The remainder is below a length that is a usize, and `Shape::trace` refuses an empty list.
    let len = u64::try_from(values.len()).unwrap_or(u64::MAX).max(1);
    let place = usize::try_from(counter % len).unwrap_or(0);
    values.get(place).copied().unwrap_or(0.0)
}

#[expect(clippy::cast_precision_loss, reason = "a day of nanoseconds is below 2^53")]
const fn nanos_as_f64(span: Nanos) -> f64 {
    span.0 as f64
}

#[expect(clippy::cast_precision_loss, reason = "MAX_COUNT is below 2^53")]
const fn count_as_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::random::Purpose;

    const DRAWS: u32 = 50_000;

    /// Mean and standard deviation of the first draws, in the shape's own unit.
    fn moments(shape: &Shape) -> (f64, f64) {
        let lane = Lane::new(11, 3, Purpose::Gap);
        let values: Vec<f64> = (0..DRAWS).map(|i| shape.draw(lane, u64::from(i))).collect();
        let n = f64::from(DRAWS);
        let mean = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
        (mean, variance.sqrt())
    }

    #[test]
    fn moments_are_the_textbooks() {
        // (shape, mean, standard deviation): 50,000 draws put the mean within 0.5% of the deviation's scale.
        let cases = [
            (Shape::constant(50.0), 50.0, 0.0),
            (Shape::normal(50.0, 5.0), 50.0, 5.0),
            (Shape::log_normal(80.0, 20.0), 80.0, 20.0),
            (Shape::exponential(30.0), 30.0, 30.0),
            (Shape::uniform(10.0, 30.0), 20.0, 20.0 / 12.0_f64.sqrt()),
        ];
        for (shape, mean, deviation) in cases {
            let shape = shape.unwrap();
            let (m, d) = moments(&shape);
            assert!((m - mean).abs() <= 0.02 * deviation, "{shape:?}: mean {m}, expected {mean}");
            assert!(
                (d - deviation).abs() <= 0.02 * deviation,
                "{shape:?}: deviation {d}, expected {deviation}"
            );
        }
    }

    #[test]
    fn quantiles_are_the_textbooks() {
        // Medians: the log-normal's is exp(mu) = mean / sqrt(1 + (sd/mean)²), the exponential's mean * ln 2.
        let cases = [
            (Shape::log_normal(80.0, 20.0).unwrap(), 80.0 / (1.0_f64 + 0.0625).sqrt()),
            (Shape::exponential(30.0).unwrap(), 30.0 * 2.0_f64.ln()),
            (Shape::normal(50.0, 5.0).unwrap(), 50.0),
        ];
        let lane = Lane::new(5, 9, Purpose::Gap);
        for (shape, median) in cases {
            let below = (0..DRAWS).filter(|&i| shape.draw(lane, u64::from(i)) < median).count();
            let share = below as f64 / f64::from(DRAWS);
            assert!((share - 0.5).abs() < 0.01, "{shape:?}: {share} below the median");
        }
    }

    #[test]
    fn uniform_counts_reach_both_bounds_equally() {
        let counts = CountDistribution::new(Shape::uniform(2.0, 5.0).unwrap()).unwrap();
        let lane = Lane::new(1, 1, Purpose::Tokens);
        let mut seen = [0_u32; 8];
        for i in 0..40_000 {
            seen[usize::try_from(counts.draw(lane, i)).unwrap()] += 1;
        }
        assert_eq!([seen[0], seen[1], seen[6], seen[7]], [0; 4]);
        assert!(seen[2..6].iter().all(|&n| (9_600..10_400).contains(&n)), "{seen:?}");
    }

    #[test]
    fn negative_draws_become_zero_and_counts_are_whole() {
        let shape = Shape::normal(1.0, 50.0).unwrap();
        let lane = Lane::new(1, 1, Purpose::Gap);
        let spans = DurationDistribution::from_nanos(shape.clone()).unwrap();
        assert!((0..1000).all(|i| spans.draw(lane, i) >= Nanos(0)));
        assert!((0..1000).any(|i| spans.draw(lane, i) == Nanos(0)));
        let counts = CountDistribution::new(shape).unwrap();
        assert!((0..1000).any(|i| counts.draw(lane, i) == 0));
    }

    #[test]
    fn a_trace_repeats_in_order() {
        let spans = DurationDistribution::from_nanos(Shape::trace(&[3.0, 1.0, 2.0]).unwrap()).unwrap();
        let lane = Lane::new(0, 0, Purpose::Gap);
        let drawn: Vec<i64> = (0..7).map(|i| spans.draw(lane, i).0).collect();
        assert_eq!(drawn, [3, 1, 2, 3, 1, 2, 3]);
    }

    #[test]
    fn parameters_out_of_range_are_refused() {
        assert_eq!(Shape::constant(-1.0), Err(ShapeError::Negative));
        assert_eq!(Shape::normal(f64::NAN, 1.0), Err(ShapeError::NotFinite));
        assert_eq!(Shape::log_normal(0.0, 1.0), Err(ShapeError::ZeroMean));
        assert_eq!(Shape::uniform(2.0, 1.0), Err(ShapeError::Reversed));
        assert_eq!(Shape::trace(&[]), Err(ShapeError::EmptyTrace));
        assert_eq!(
            DurationDistribution::from_nanos(Shape::constant(1e30).unwrap()),
            Err(ShapeError::TooLarge)
        );
        assert_eq!(CountDistribution::new(Shape::constant(1e9).unwrap()), Err(ShapeError::TooLarge));
        // Its median is below a day, its mean is not.
        let far = Shape::log_normal(1e15, 1e20).unwrap();
        assert_eq!(DurationDistribution::from_nanos(far), Err(ShapeError::TooLarge));
        assert_eq!(Shape::log_normal(1e-200, 1e200), Err(ShapeError::NotFinite));
        assert_eq!(CountDistribution::new(Shape::constant(1.5).unwrap()), Err(ShapeError::NotWhole));
    }

    #[test]
    fn a_heavy_tail_is_clamped() {
        let spans = DurationDistribution::from_nanos(Shape::log_normal(8.0e13, 8.0e14).unwrap()).unwrap();
        let lane = Lane::new(0, 0, Purpose::Gap);
        assert!((0..10_000).all(|i| spans.draw(lane, i) <= MAX_DURATION));
        assert!((0..10_000).any(|i| spans.draw(lane, i) == MAX_DURATION));
    }
}
