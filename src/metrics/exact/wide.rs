//! Unsigned whole numbers of a few thousand bits: just the operations that exact statistics need.
//!
//! Not a general big number library: widths are bounded by [`super::SQUARES_BITS`] and a count, so schoolbook
//! multiplication is fast enough.

use std::cmp::Ordering;

/// Little-endian 64-bit limbs; leading zero limbs are allowed.
#[derive(Debug, Clone)]
pub(super) struct Wide(Vec<u64>);

/// A positive number on its way to a double: `mantissa · 2^exponent`, plus something smaller than one unit of the
/// mantissa when `sticky`. The mantissa's highest bit is set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rounded {
    pub(super) mantissa: u64,
    pub(super) sticky: bool,
    pub(super) exponent: i32,
}

const LIMB: usize = 64;

impl Wide {
    /// Zero, with room for `bits` bits.
    pub(super) fn zero(bits: usize) -> Self {
        Self(vec![0; bits.div_ceil(LIMB)])
    }

    /// Adds `value · 2^shift`. The caller has made room.
    pub(super) fn add_shifted(&mut self, value: u128, shift: usize) {
        let bit = shift % LIMB;
        let low = value << bit;
        let high = if bit == 0 { 0 } else { value >> (128 - bit) };
        let words = [low_half(low), low_half(low >> 64), low_half(high)];
        let mut carry = false;
        for (place, limb) in self.0.iter_mut().skip(shift / LIMB).enumerate() {
            let word = words.get(place).copied();
            if word.is_none() && !carry {
                break;
            }
            let (sum, over) = limb.overflowing_add(word.unwrap_or(0));
            let (sum, over_again) = sum.overflowing_add(u64::from(carry));
            *limb = sum;
            carry = over || over_again;
        }
    }

    pub(super) fn is_zero(&self) -> bool {
        self.0.iter().all(|limb| *limb == 0)
    }

    /// Number of bits up to the highest set one.
    pub(super) fn bits(&self) -> usize {
        let top = self.0.iter().enumerate().rev().find(|(_, limb)| **limb != 0);
        top.map_or(0, |(i, limb)| i * LIMB + LIMB - zeros(*limb))
    }

    pub(super) fn compare(&self, other: &Self) -> Ordering {
        let longest = self.0.len().max(other.0.len());
        (0..longest)
            .rev()
            .map(|i| self.limb(i).cmp(&other.limb(i)))
            .find(|o| o.is_ne())
            .unwrap_or(Ordering::Equal)
    }

    /// The difference; the caller knows that it is not below zero.
    pub(super) fn minus(&self, other: &Self) -> Self {
        let mut borrow = false;
        let longest = self.0.len().max(other.0.len());
        let difference = (0..longest).map(|i| {
            let (d, under) = self.limb(i).overflowing_sub(other.limb(i));
            let (d, under_again) = d.overflowing_sub(u64::from(borrow));
            borrow = under || under_again;
            d
        });
        Self(difference.collect())
    }

    pub(super) fn times(&self, factor: u64) -> Self {
        let mut carry = 0;
        let mut limbs = Vec::with_capacity(self.0.len() + 1);
        for limb in &self.0 {
            let product = u128::from(*limb) * u128::from(factor) + u128::from(carry);
            limbs.push(low_half(product));
            carry = low_half(product >> 64);
        }
        limbs.push(carry);
        Self(limbs)
    }

    pub(super) fn square(&self) -> Self {
        let mut sum = Self(vec![0; 2 * self.0.len() + 1]);
        for (i, a) in self.0.iter().enumerate().filter(|(_, limb)| **limb != 0) {
            for (j, b) in self.0.iter().enumerate().filter(|(_, limb)| **limb != 0) {
                sum.add_shifted(u128::from(*a) * u128::from(*b), (i + j) * LIMB);
            }
        }
        sum
    }

    pub(super) fn shifted_left(&self, shift: usize) -> Self {
        let mut shifted = Self::zero(self.bits() + shift);
        for (i, limb) in self.0.iter().enumerate().filter(|(_, limb)| **limb != 0) {
            shifted.add_shifted(u128::from(*limb), i * LIMB + shift);
        }
        shifted
    }

    /// Divides in place, rounding down; whether something was left over. The divisor is not zero.
    pub(super) fn divide(&mut self, divisor: u64) -> bool {
        let mut remainder = 0_u64;
        for limb in self.0.iter_mut().rev() {
            let dividend = (u128::from(remainder) << 64) | u128::from(*limb);
            *limb = low_half(dividend / u128::from(divisor));
            remainder = low_half(dividend % u128::from(divisor));
        }
        remainder != 0
    }

    /// The highest 64 bits, how many bits lie below them, and whether one of those is set. The number has 64 bits.
    pub(super) fn top_u64(&self) -> (u64, usize, bool) {
        let dropped = self.bits().saturating_sub(64);
        let (top, sticky) = self.shifted_right(dropped);
        (low_half(top), dropped, sticky)
    }

    /// The highest 127 or 128 bits, so that an even number of bits lies below them. The number has 128 bits.
    pub(super) fn top_bits_even(&self) -> (u128, usize, bool) {
        let dropped = self.bits().saturating_sub(128).next_multiple_of(2);
        let (top, sticky) = self.shifted_right(dropped);
        (top, dropped, sticky)
    }

    /// The number without its lowest `shift` bits (which leaves at most 128), and whether one of those was set.
    fn shifted_right(&self, shift: usize) -> (u128, bool) {
        let (limb, bit) = (shift / LIMB, shift % LIMB);
        let below = self.0.iter().take(limb).any(|l| *l != 0) || self.limb(limb) & ((1 << bit) - 1) != 0;
        let low = (u128::from(self.limb(limb + 1)) << 64) | u128::from(self.limb(limb));
        let high = u128::from(self.limb(limb + 2));
        let top = if bit == 0 { low } else { (low >> bit) | (high << (128 - bit)) };
        (top, below)
    }

    fn limb(&self, i: usize) -> u64 {
        self.0.get(i).copied().unwrap_or(0)
    }
}

impl Rounded {
    /// Smallest exponent of a normal double, as the exponent of its highest bit.
    const MIN_NORMAL: i32 = -1022;

    /// Rounds to nearest, ties to even; `None` when too large for a double.
    pub(super) fn to_f64(self) -> Option<f64> {
        let highest = self.exponent.checked_add(63)?;
        // A subnormal double has fewer bits than 53: all below 2^-1074 must go in this one rounding.
        let missing = u32::try_from(Self::MIN_NORMAL - highest).unwrap_or(0);
        let drop = missing.saturating_add(11);
        if drop > u64::BITS {
            // Less than half of the smallest double.
            return Some(0.0);
        }
        let mantissa = u128::from(self.mantissa);
        let kept = mantissa >> drop;
        let rest = mantissa & ((1 << drop) - 1);
        let half = 1_u128 << (drop - 1);
        let up = match rest.cmp(&half) {
            Ordering::Less => false,
            Ordering::Equal => self.sticky || kept & 1 == 1,
            Ordering::Greater => true,
        };
        let whole = low_half(kept) + u64::from(up);
        let power = self.exponent.checked_add(i32::try_from(drop).ok()?)?;
        let value = exact_f64(whole) * power_of_two(power)?;
        value.is_finite().then_some(value)
    }
}

/// 2^power where a double can hold it: from the smallest subnormal up.
fn power_of_two(power: i32) -> Option<f64> {
    let bits = match power {
        -1074..=-1023 => 1_u64 << u32::try_from(power + 1074).ok()?,
        -1022..=1023 => u64::try_from(power + 1023).ok()? << 52,
        _ => return None,
    };
    Some(f64::from_bits(bits))
}

#[expect(clippy::cast_precision_loss, reason = "at most 2^53 after rounding, so the conversion is exact")]
fn exact_f64(whole: u64) -> f64 {
    whole as f64
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is what is asked for")]
fn low_half(word: u128) -> u64 {
    word as u64
}

fn zeros(limb: u64) -> usize {
    // At most 64.
    usize::try_from(limb.leading_zeros()).unwrap_or(LIMB)
}
