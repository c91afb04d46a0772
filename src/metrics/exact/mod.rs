//! Sums, means and standard deviations of doubles, exact until the last step and then rounded once.
//!
//! A double is a whole number times 2^-1074, so sums of values and of squares are whole numbers in a wide enough
//! register; nothing is lost before the final rounding to nearest, ties to even. The results are those of CPython's
//! `math.fsum` (Shewchuk 1997), `statistics.fmean`, `statistics.mean` and `statistics.stdev` (3.11 and later, which
//! round the square root correctly) to the last digit, in any order of the values. Plain summation is not here.
//!
//! Every function returns `None` when a value is not finite or when the result is too large for a double.

mod wide;

use std::borrow::Borrow;
use std::cmp::Ordering;

use wide::{Rounded, Wide};

/// Bits of a sum of doubles: 2,098 for the widest double as a whole number, 64 for the count.
const SUM_BITS: usize = 2098 + 64;
/// Bits of a sum of squares: twice the width, and the count.
const SQUARES_BITS: usize = 2 * 2098 + 64;
/// The unit of a sum is 2 to this power: the smallest double above zero.
const UNIT: i32 = -1074;

/// The sum, correctly rounded; 0.0 for no values.
#[must_use]
pub fn sum<V: Borrow<f64>>(values: impl IntoIterator<Item = V>) -> Option<f64> {
    Sum::of(values)?.over(1)
}

/// The correctly rounded sum divided by the count: two roundings, as `statistics.fmean`. `None` for no values.
#[must_use]
pub fn fmean<V: Borrow<f64>>(values: impl IntoIterator<Item = V>) -> Option<f64> {
    let sum = Sum::of(values)?;
    (sum.count > 0).then_some(())?;
    Some(sum.over(1)? / count_f64(sum.count))
}

/// The exact mean, rounded once, as `statistics.mean`. `None` for no values.
#[must_use]
pub fn mean(values: &[f64]) -> Option<f64> {
    let n = u64::try_from(values.len()).ok()?;
    Sum::of(values)?.over(n)
}

/// The sample standard deviation (n − 1), rounded once, as `statistics.stdev`. `None` for fewer than two values.
#[must_use]
pub fn stdev(values: &[f64]) -> Option<f64> {
    let n = u64::try_from(values.len()).ok()?;
    if n < 2 {
        return None;
    }
    let sum = Sum::of(values)?;
    let mut squares = Wide::zero(SQUARES_BITS);
    for value in values {
        let (mantissa, shift) = decompose(*value);
        squares.add_shifted(u128::from(mantissa) * u128::from(mantissa), 2 * shift);
    }
    // The variance is (n·Σx² − (Σx)²) / (n·(n − 1)), in units of 2^(2·UNIT).
    let (_, magnitude) = sum.signed();
    let mut variance = squares.times(n).minus(&magnitude.square());
    if variance.is_zero() {
        return Some(0.0);
    }
    // Enough bits for 128 good ones in the quotient; an even shift keeps the root's exponent whole.
    let lift = (2 * 132_usize).saturating_sub(variance.bits()).next_multiple_of(2);
    variance = variance.shifted_left(lift);
    let inexact = variance.divide(n) | variance.divide(n - 1);
    let (top, dropped, sticky) = variance.top_bits_even();
    let root = top.isqrt();
    let exponent = 2 * UNIT - i32::try_from(lift).ok()? + i32::try_from(dropped).ok()?;
    Rounded {
        mantissa: u64::try_from(root).ok()?,
        sticky: inexact || sticky || root * root != top,
        exponent: exponent / 2,
    }
    .to_f64()
}

/// A sum as two registers, so that no value is ever subtracted from another before the end.
struct Sum {
    count: u64,
    positive: Wide,
    negative: Wide,
}

impl Sum {
    fn of<V: Borrow<f64>>(values: impl IntoIterator<Item = V>) -> Option<Self> {
        let mut sum = Self { count: 0, positive: Wide::zero(SUM_BITS), negative: Wide::zero(SUM_BITS) };
        for value in values {
            let value: &f64 = value.borrow();
            sum.count += 1;
            if !value.is_finite() {
                return None;
            }
            let (mantissa, shift) = decompose(*value);
            let side = if value.is_sign_negative() { &mut sum.negative } else { &mut sum.positive };
            side.add_shifted(u128::from(mantissa), shift);
        }
        Some(sum)
    }

    /// Whether it is below zero, and its size.
    fn signed(&self) -> (bool, Wide) {
        match self.positive.compare(&self.negative) {
            Ordering::Less => (true, self.negative.minus(&self.positive)),
            _ => (false, self.positive.minus(&self.negative)),
        }
    }

    /// The sum divided by `n`, rounded once; `None` for `n` of 0.
    fn over(&self, n: u64) -> Option<f64> {
        let (below_zero, magnitude) = self.signed();
        if n == 0 {
            return None;
        }
        if magnitude.is_zero() {
            return Some(0.0);
        }
        let lift = 132_usize.saturating_sub(magnitude.bits());
        let mut quotient = magnitude.shifted_left(lift);
        let inexact = quotient.divide(n);
        let (mantissa, dropped, sticky) = quotient.top_u64();
        let exponent = UNIT - i32::try_from(lift).ok()? + i32::try_from(dropped).ok()?;
        let size = Rounded { mantissa, sticky: inexact || sticky, exponent }.to_f64()?;
        Some(if below_zero { -size } else { size })
    }
}

/// The mantissa of a finite double as a whole number, and the power of two (above [`UNIT`]) it is multiplied by.
fn decompose(value: f64) -> (u64, usize) {
    const MANTISSA_BITS: u32 = 52;
    let bits = value.to_bits();
    let fraction = bits & ((1 << MANTISSA_BITS) - 1);
    let biased = (bits >> MANTISSA_BITS) & 0x7ff;
    match usize::try_from(biased) {
        Ok(biased @ 1..) => (fraction | (1 << MANTISSA_BITS), biased - 1),
        _ => (fraction, 0),
    }
}

#[expect(clippy::cast_precision_loss, reason = "there are far fewer than 2^53 values")]
fn count_f64(values: u64) -> f64 {
    values as f64
}
