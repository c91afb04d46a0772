//! The one quantile rule: nearest rank, `sorted[ceil(q·n) − 1]`, in whole numbers.
//!
//! Nearest rank (Hyndman & Fan 1996, definition 1) is the reference's rule. It returns a value that was measured,
//! never one between two, and is exact: the rank is computed without floating point. Every quantile of every document
//! comes from here.

/// A quantile in thousandths, so that the 99.9th percentile is a whole number too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantile(u16);

impl Quantile {
    /// 1st percentile.
    pub const P1: Self = Self(10);
    /// 5th percentile.
    pub const P5: Self = Self(50);
    /// 25th percentile.
    pub const P25: Self = Self(250);
    /// Median.
    pub const P50: Self = Self(500);
    /// 75th percentile.
    pub const P75: Self = Self(750);
    /// 90th percentile.
    pub const P90: Self = Self(900);
    /// 95th percentile.
    pub const P95: Self = Self(950);
    /// 99th percentile.
    pub const P99: Self = Self(990);
    /// 99.9th percentile.
    pub const P99_9: Self = Self(999);

    /// `None` outside 1..=1000.
    #[must_use]
    pub const fn from_thousandths(thousandths: u16) -> Option<Self> {
        if thousandths == 0 || thousandths > 1000 { None } else { Some(Self(thousandths)) }
    }

    /// The quantile as a probability.
    #[must_use]
    pub fn probability(self) -> f64 {
        f64::from(self.0) / 1000.0
    }

    /// Place of the quantile among `n` ordered values, counted from 0; `None` when there are none.
    #[must_use]
    pub fn index(self, n: usize) -> Option<usize> {
        // usize times 1000 fits u128 on every target, and the quotient is at most n.
        let rank = (n as u128 * u128::from(self.0)).div_ceil(1000);
        usize::try_from(rank).ok()?.checked_sub(1)
    }
}

/// The value at `q` of values in ascending order; `None` when there are none.
#[must_use]
pub fn nearest_rank<T>(ascending: &[T], q: Quantile) -> Option<&T> {
    ascending.get(q.index(ascending.len())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hand_worked_ranks() {
        for (q, n, want) in [
            (Quantile::P50, 4, 1),
            (Quantile::P50, 5, 2),
            (Quantile::P25, 4, 0),
            (Quantile::P90, 10, 8),
            (Quantile::P90, 11, 9),
            (Quantile::P99, 100, 98),
            (Quantile::P99, 101, 99),
            (Quantile::P99_9, 1000, 998),
            (Quantile::P99_9, 1001, 999),
            (Quantile::P1, 1, 0),
            (Quantile::P1, 101, 1),
        ] {
            assert_eq!(q.index(n), Some(want), "{q:?} of {n}");
        }
        assert_eq!(Quantile::P50.index(0), None);
        assert_eq!(Quantile::P99_9.index(usize::MAX).map(|i| i < usize::MAX), Some(true));
    }

    #[test]
    fn the_definition_by_counting() {
        // The nearest-rank value is the first one with at least q of all values at or below it.
        for n in 1..=300usize {
            let values: Vec<usize> = (0..n).collect();
            for thousandths in [1u16, 10, 50, 250, 333, 500, 750, 900, 950, 990, 999, 1000] {
                let q = Quantile::from_thousandths(thousandths).unwrap();
                let by_counting =
                    values.iter().find(|&&v| (v + 1) * 1000 >= n * usize::from(thousandths)).unwrap();
                assert_eq!(nearest_rank(&values, q), Some(by_counting), "{thousandths} of {n}");
            }
        }
    }

    #[test]
    fn the_reference_formula() {
        for n in 1..=2000usize {
            for percent in [25u16, 50, 75, 90, 95, 99] {
                let q = Quantile::from_thousandths(percent * 10).unwrap();
                assert_eq!(q.index(n), Some((usize::from(percent) * n).div_ceil(100) - 1));
            }
        }
    }

    #[test]
    fn out_of_range_quantiles_do_not_exist() {
        assert_eq!(Quantile::from_thousandths(0), None);
        assert_eq!(Quantile::from_thousandths(1001), None);
        assert_eq!(nearest_rank::<u8>(&[], Quantile::P50), None);
    }
}
