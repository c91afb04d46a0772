//! When the requests of an open loop are due: nanoseconds since the start of the window, one after the other.
//!
//! Pure: rate, process and seed decide, no clock, no socket and no worker. The first request is due at once. Every due
//! is rounded by itself from a sum that is not, so that rounding does not add up: at a rate of 3 a second the
//! millionth request is due where the rule says, to the nanosecond. How many workers carry the schedule out changes
//! nothing, because all of them take from one sequence; a Poisson process stays one.

use crate::config::spec::{ArrivalProcess, Arrivals};
use crate::plan::mt19937::Mt19937;
use crate::units::Nanos;

/// Tells the numbers of the gaps from those of the context lengths, which follow from the same seed: "gaps".
const STREAM: u32 = 0x6761_7073;

const NS_PER_SECOND: u64 = Nanos::PER_SECOND.unsigned_abs();

/// The instants at which requests are due; it never ends by itself.
#[derive(Debug)]
pub struct Pacer {
    steps: Steps,
}

#[derive(Debug)]
enum Steps {
    Constant {
        index: u64,
        /// Nanoseconds between two requests as an exact fraction: over and under.
        gap: (u128, u128),
    },
    Poisson {
        random: Box<Mt19937>,
        mean_gap_ns: f64,
        /// The next due: whole nanoseconds, and the part of one that the rounding left.
        next: (i64, f64),
    },
}

impl Pacer {
    /// The schedule of these arrivals. `seed` is that of the plan; an even schedule does not depend on it.
    #[must_use]
    pub fn new(arrivals: Arrivals, seed: i64) -> Self {
        let rate = arrivals.rate.0;
        let steps = match arrivals.process {
            ArrivalProcess::Constant => Steps::Constant { index: 0, gap: exact_gap(rate) },
            ArrivalProcess::Poisson => Steps::Poisson {
                random: Box::new(Mt19937::for_stream(seed, STREAM)),
                mean_gap_ns: 1e9 / rate,
                next: (0, 0.0),
            },
        };
        Self { steps }
    }
}

impl Iterator for Pacer {
    type Item = Nanos;

    fn next(&mut self) -> Option<Nanos> {
        match &mut self.steps {
            Steps::Constant { index, gap: (over, under) } => {
                // At most 2^27 requests; see `exact_gap` for the rest.
                let due = (u128::from(*index).saturating_mul(*over) + *under / 2) / *under;
                *index += 1;
                Some(Nanos(i64::try_from(due).unwrap_or(i64::MAX)))
            }
            Steps::Poisson { random, mean_gap_ns, next: (whole, part) } => {
                let due = Nanos(*whole);
                // Of u in [0, 1), 1 − u is never zero.
                let gap = -(1.0 - random.random()).ln() * *mean_gap_ns + *part;
                *part = gap.fract();
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "float to integer saturates, as the sum does"
                )]
                let step = gap.trunc() as i64;
                *whole = whole.saturating_add(step);
                Some(due)
            }
        }
    }
}

/// 10^9 ns over the rate, which as a double is a whole number times a power of two. Rates lie between 2^-10 and 2^20 a
/// second, so the power is between -62 and -32, and 2^27 (requests) · 2^30 (10^9) · 2^62 fits.
fn exact_gap(rate: f64) -> (u128, u128) {
    let bits = rate.to_bits();
    let mantissa = (bits & ((1 << 52) - 1)) | (1 << 52);
    // The exponent's bias and the width of the mantissa: 1023 + 52.
    let power = 1_075_u64.saturating_sub((bits >> 52) & 0x7ff).min(62);
    (u128::from(NS_PER_SECOND) << power, u128::from(mantissa))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::PerSecond;

    fn pacer(rate: f64, process: ArrivalProcess, seed: i64) -> Pacer {
        Pacer::new(Arrivals { rate: PerSecond(rate), process }, seed)
    }

    fn dues(rate: f64, process: ArrivalProcess, seed: i64, count: usize) -> Vec<i64> {
        pacer(rate, process, seed).take(count).map(|due| due.0).collect()
    }

    #[test]
    fn constant_dues_are_the_rounded_multiples_of_the_gap() {
        assert_eq!(
            dues(3.0, ArrivalProcess::Constant, 0, 5),
            [0, 333_333_333, 666_666_667, 1_000_000_000, 1_333_333_333]
        );
        // Rates without an error as a double, so that whole numbers can say what is right.
        for (rate, gap_over, gap_under) in [
            (3.0, 1_000_000_000_i128, 3_i128),
            (7.0, 1_000_000_000, 7),
            (0.125, 8_000_000_000, 1),
            (12.5, 80_000_000, 1),
            (999_983.0, 1_000_000_000, 999_983),
            (1_000_000.0, 1_000, 1),
        ] {
            let got = dues(rate, ArrivalProcess::Constant, 9, 1_000_001);
            for i in [0, 1, 2, 999, 77_777, 999_999, 1_000_000] {
                let want = (2 * i128::try_from(i).unwrap() * gap_over + gap_under) / (2 * gap_under);
                assert_eq!(i128::from(got[i]), want, "{rate} {i}");
            }
        }
        // The extremes of the flag, against the division of doubles.
        for rate in [0.001, 0.1, 1.0 / 3.0, 123.456, 1_000_000.0] {
            let last = pacer(rate, ArrivalProcess::Constant, 0).nth(5_000).unwrap().0;
            let want = 5_000.0 / rate * 1e9;
            assert!((last as f64 - want).abs() <= 1.0 + want * 1e-15, "{rate}: {last} {want}");
        }
    }

    #[test]
    fn a_seed_decides_and_nothing_else() {
        let poisson = |seed| dues(100.0, ArrivalProcess::Poisson, seed, 500);
        assert_eq!(poisson(7), poisson(7));
        assert_ne!(poisson(7), poisson(8));
        assert_ne!(poisson(7), poisson(-7));
        assert_eq!(poisson(7)[0], 0);
        assert!(poisson(7).is_sorted());
        assert_eq!(dues(5.0, ArrivalProcess::Constant, 1, 9), dues(5.0, ArrivalProcess::Constant, 2, 9));
    }

    #[test]
    fn the_rate_scales_the_same_draws() {
        let (slow, fast) =
            (dues(1.0, ArrivalProcess::Poisson, 3, 1_000), dues(1_000.0, ArrivalProcess::Poisson, 3, 1_000));
        assert!(slow.iter().zip(&fast).all(|(slow, fast)| (slow / 1_000 - fast).abs() <= 1));
    }

    /// The sum of a million gaps, added up in whole 2^-60 of a nanosecond, is where the pacer is to a nanosecond.
    #[test]
    fn rounding_does_not_add_up() {
        let mut random = Mt19937::for_stream(11, STREAM);
        let mut sum = 0_u128;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "below 2^63, not negative"
        )]
        let whole = |x: f64| x as u64;
        let mut pacer = pacer(7.0, ArrivalProcess::Poisson, 11);
        for n in 0..1_000_000 {
            let due = pacer.next().unwrap().0;
            let exact = i64::try_from(sum >> 60).unwrap();
            assert!((due - exact).abs() <= 1, "{n}: {due} {exact}");
            let gap = -(1.0 - random.random()).ln() * (1e9 / 7.0);
            let part = whole(gap.fract() * 2_f64.powi(60));
            sum += (u128::from(whole(gap.trunc())) << 60) + u128::from(part);
        }
    }

    /// Kolmogorov–Smirnov distance of gaps from the exponential distribution, straight from its definition: the largest
    /// difference between the empirical distribution function, just before and at each gap, and the true one.
    fn ks(gaps: &[f64], mean: f64) -> f64 {
        let n = gaps.len() as f64;
        let mut worst = 0.0_f64;
        for gap in gaps {
            let below = gaps.iter().filter(|other| *other < gap).count() as f64 / n;
            let up_to = gaps.iter().filter(|other| *other <= gap).count() as f64 / n;
            let truth = 1.0 - (-gap / mean).exp();
            worst = worst.max((up_to - truth).abs()).max((truth - below).abs());
        }
        worst
    }

    /// Anderson–Darling statistic of the same question, which weighs the tails.
    fn anderson_darling(gaps: &[f64], mean: f64) -> f64 {
        let mut sorted = gaps.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let sum: f64 = (0..n)
            .map(|i| {
                let (low, high) = (1.0 - (-sorted[i] / mean).exp(), (-sorted[n - 1 - i] / mean).exp());
                (2 * i + 1) as f64 * (low.ln() + high.ln())
            })
            .sum();
        -(n as f64) - sum / n as f64
    }

    fn gaps(dues: &[i64]) -> Vec<f64> {
        dues.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect()
    }

    /// Critical values at 1 % for a distribution that is wholly given: 1.628 over √n (Smirnov 1948), 3.857 (Anderson and
    /// Darling 1954).
    const KS_1_PERCENT: f64 = 1.628;
    const AD_1_PERCENT: f64 = 3.857;

    #[test]
    fn poisson_gaps_are_exponential_and_independent() {
        for (seed, rate) in [(0, 1.0), (1, 50.0), (7, 200.0), (42, 1_000.0), (-3, 12.5)] {
            let all = gaps(&dues(rate, ArrivalProcess::Poisson, seed, 4_001));
            let mean = 1e9 / rate;
            let n = all.len() as f64;
            assert!(ks(&all, mean) < KS_1_PERCENT / n.sqrt(), "{seed}: {}", ks(&all, mean));
            assert!(anderson_darling(&all, mean) < AD_1_PERCENT, "{seed}: {}", anderson_darling(&all, mean));
            // Correlation of neighbours: normal with deviation 1/√n.
            let scaled: Vec<f64> = all.iter().map(|gap| gap / mean - 1.0).collect();
            let together: f64 = scaled.windows(2).map(|pair| pair[0] * pair[1]).sum();
            let alone: f64 = scaled.iter().map(|x| x * x).sum();
            assert!((together / alone).abs() < 2.576 / n.sqrt(), "{seed}: {}", together / alone);
        }
    }

    #[test]
    fn the_test_statistics_refuse_what_is_not_poisson() {
        let even = gaps(&dues(200.0, ArrivalProcess::Constant, 0, 1_001));
        let mut random = Mt19937::for_stream(5, 0);
        let uniform: Vec<f64> = (0..1_000).map(|_| random.random() * 2.0 * 5e6).collect();
        for wrong in [even, uniform] {
            let n = wrong.len() as f64;
            assert!(ks(&wrong, 5e6) > KS_1_PERCENT / n.sqrt());
            assert!(anderson_darling(&wrong, 5e6) > AD_1_PERCENT);
        }
    }

    #[test]
    fn gaps_do_not_follow_the_context_lengths_of_the_same_seed() {
        let mut contexts = Mt19937::from_python_seed(7);
        let mut pairs = Vec::new();
        for gap in gaps(&dues(1.0, ArrivalProcess::Poisson, 7, 2_001)) {
            pairs.push((contexts.random() - 0.5, (-gap / 1e9).exp() - 0.5));
        }
        let sum = |f: &dyn Fn(&(f64, f64)) -> f64| pairs.iter().map(f).sum::<f64>();
        let r = sum(&|p| p.0 * p.1) / (sum(&|p| p.0 * p.0) * sum(&|p| p.1 * p.1)).sqrt();
        assert!(r.abs() < 2.576 / 2_000_f64.sqrt(), "{r}");
    }
}
