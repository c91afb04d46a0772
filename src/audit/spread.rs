//! How differences of instants are distributed: whole nanoseconds in, microseconds out.

use crate::metrics::Percentiles;
use crate::units::Nanos;

/// The distribution of signed differences and of their sizes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Deviation {
    /// With their signs: a mean or a median away from 0 is a bias.
    pub signed: Spread,
    /// Without: what an error is, whichever way it goes.
    pub magnitude: Spread,
}

/// Mean and order statistics, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Spread {
    /// How many values there are.
    pub count: usize,
    /// Their exact sum over their count, rounded once; `None` without values.
    pub mean_us: Option<f64>,
    /// Nearest-rank percentiles; `None` without values.
    pub percentiles_us: Option<Percentiles>,
}

impl Deviation {
    /// The distribution of these differences, in any order.
    #[must_use]
    pub fn of(differences: &[Nanos]) -> Self {
        let magnitudes = differences.iter().map(|d| Nanos(d.0.saturating_abs()));
        Self { signed: Spread::of(differences.to_vec()), magnitude: Spread::of(magnitudes.collect()) }
    }
}

impl Spread {
    /// The distribution of these values, in any order.
    #[must_use]
    pub fn of(mut values: Vec<Nanos>) -> Self {
        values.sort_unstable();
        let sum: i128 = values.iter().map(|value| i128::from(value.0)).sum();
        let ascending: Vec<f64> = values.into_iter().map(Nanos::as_micros_f64).collect();
        Self {
            count: ascending.len(),
            mean_us: mean_us(sum, ascending.len()),
            percentiles_us: Percentiles::of(&ascending),
        }
    }

    /// The median in microseconds; `None` without values.
    #[must_use]
    pub fn median_us(&self) -> Option<f64> {
        self.percentiles_us.map(|p| p.p50)
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the mean of whole nanoseconds, rounded to a double at the end"
)]
fn mean_us(sum: i128, count: usize) -> Option<f64> {
    (count > 0).then(|| sum as f64 / 1e3 / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_show_the_bias_and_sizes_show_the_error() {
        let d = Deviation::of(&[Nanos(4_000), Nanos(-2_000), Nanos(1_000), Nanos(-6_000)]);
        let (signed, magnitude) = (d.signed.percentiles_us.unwrap(), d.magnitude.percentiles_us.unwrap());
        assert_eq!((d.signed.count, d.magnitude.count), (4, 4));
        assert_eq!((signed.min, signed.p50, signed.max), (-6.0, -2.0, 4.0));
        assert_eq!((magnitude.min, magnitude.p50, magnitude.p99, magnitude.max), (1.0, 2.0, 6.0, 6.0));
        assert_eq!((d.signed.mean_us, d.magnitude.mean_us), (Some(-0.75), Some(3.25)));
        assert_eq!(d.signed.median_us(), Some(-2.0));
    }

    #[test]
    fn nothing_has_no_statistics() {
        let d = Deviation::of(&[]);
        assert_eq!(d, Deviation::default());
        assert_eq!((d.signed.count, d.signed.mean_us, d.signed.median_us()), (0, None, None));
    }
}
