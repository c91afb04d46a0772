//! The only parser and the only formatter of quantities: durations, sizes, rates, counts.
//!
//! Parsing is exact. `0.1s` is 100,000,000 ns, not the double nearest to it, and what does not fit a whole number
//! of the smallest unit is refused instead of rounded. Every `format_*` function writes what its parser reads back
//! to the same value; [`format_duration_short`] is the one exception, for people, and says what it drops.
//!
//! It does not know flags: a caller puts the flag's name before the [`QuantityError`].

use std::fmt::Write as _;

use super::{Bytes, Nanos, PerSecond};

/// Why a text is no quantity. `Display` is a predicate: it continues a sentence that begins with the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Nothing was given.
    #[error("is empty")]
    Empty,
    /// No decimal number where one belongs. Exponents, signs and separators are not read.
    #[error("is not a number (like 2, 0.5 or 12.5)")]
    NotANumber,
    /// The number is followed by something that is none of the units.
    #[error("has no unit that is known here ({0})")]
    UnknownUnit(&'static str),
    /// Several parts, but not from the larger unit to the smaller one.
    #[error("must go from the larger unit to the smaller one (like 1m30s)")]
    UnitOrder,
    /// Less than zero.
    #[error("must not be negative")]
    Negative,
    /// Beyond what the type can hold.
    #[error("is too large")]
    TooLarge,
    /// A fraction of the smallest unit, which is named after a space (nothing for plain counts).
    #[error("is not a whole number{0}")]
    NotWhole(&'static str),
}

/// Reads a duration: numbers with a unit, the larger unit first (`250us`, `10ms`, `2s`, `1.5m`, `1h`, `1m30s`); a
/// bare number is seconds. Units are `ns`, `us` (or `µs`), `ms`, `s`, `m`, `h`.
///
/// ```
/// use hammerscale::units::{Nanos, text::parse_duration};
/// assert_eq!(parse_duration("250us"), Ok(Nanos(250_000)));
/// assert_eq!(parse_duration("1m30s"), parse_duration("90"));
/// ```
///
/// # Errors
/// Any text that is not exactly that, a fraction of a nanosecond, and more than 292 years.
pub fn parse_duration(text: &str) -> Result<Nanos, QuantityError> {
    let mut rest = not_empty(text)?;
    let (mut total, mut previous) = (0_u64, u64::MAX);
    while !rest.is_empty() {
        let (number, after) = Decimal::take(rest)?;
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let unit_ns = match unit {
            "" if after.is_empty() && previous == u64::MAX => NS_PER_SECOND,
            _ => duration_unit(unit).ok_or_else(|| not_a_unit(unit, DURATION_UNITS))?,
        };
        if unit_ns >= previous {
            return Err(QuantityError::UnitOrder);
        }
        previous = unit_ns;
        let part = number.times(unit_ns, " of nanoseconds")?;
        total = total.checked_add(part).ok_or(QuantityError::TooLarge)?;
        rest = after;
    }
    i64::try_from(total).map(Nanos).map_err(|_| QuantityError::TooLarge)
}

/// Writes a duration exactly, in the largest unit that fits: `250us`, `1.5s`, `15m`, `1m30.5s`, `0s`. A negative
/// span, which [`parse_duration`] would refuse, gets a minus sign.
#[must_use]
pub fn format_duration(span: Nanos) -> String {
    let mut out = String::from(if span.0 < 0 { "-" } else { "" });
    let ns = span.0.unsigned_abs();
    match ns {
        0 => out.push_str("0s"),
        1..NS_PER_MICRO => push_decimal(&mut out, ns, 1, "ns"),
        NS_PER_MICRO..NS_PER_MILLI => push_decimal(&mut out, ns, NS_PER_MICRO, "us"),
        NS_PER_MILLI..NS_PER_SECOND => push_decimal(&mut out, ns, NS_PER_MILLI, "ms"),
        _ => {
            for (unit_ns, name, below) in [(NS_PER_HOUR, "h", u64::MAX), (NS_PER_MINUTE, "m", NS_PER_HOUR)] {
                let whole = (ns % below) / unit_ns;
                if whole > 0 {
                    push_decimal(&mut out, whole, 1, name);
                }
            }
            if !ns.is_multiple_of(NS_PER_MINUTE) {
                push_decimal(&mut out, ns % NS_PER_MINUTE, NS_PER_SECOND, "s");
            }
        }
    }
    out
}

/// Writes a duration for people: three significant digits below a minute (`12.3ms`, `1.00s`), whole seconds below an
/// hour (`1m30s`), whole minutes above (`2h5m`). Halves round away from zero.
#[must_use]
pub fn format_duration_short(span: Nanos) -> String {
    let ns = span.0.unsigned_abs();
    let sign = if span.0 < 0 { "-" } else { "" };
    // Rounding may reach the next unit (999.96 us is 1.00 ms), so each unit is tried on the rounded value.
    for (unit_ns, name, limit) in
        [(1, "ns", 1_000), (NS_PER_MICRO, "us", 1_000), (NS_PER_MILLI, "ms", 1_000), (NS_PER_SECOND, "s", 60)]
    {
        for decimals in (0..3_u32).rev() {
            let step = (unit_ns / 10_u64.pow(decimals)).max(1);
            let steps = rounded(ns, step);
            let fits = if unit_ns == 1 { decimals == 0 } else { steps < 1_000 };
            if fits && steps * step < limit * unit_ns {
                let (whole, part) = (steps * step / unit_ns, steps * step % unit_ns / step);
                return match decimals {
                    0 => format!("{sign}{whole}{name}"),
                    1 => format!("{sign}{whole}.{part}{name}"),
                    _ => format!("{sign}{whole}.{part:02}{name}"),
                };
            }
        }
    }
    let seconds = rounded(ns, NS_PER_SECOND);
    if seconds < 3_600 {
        return format!("{sign}{}m{}s", seconds / 60, seconds % 60);
    }
    let minutes = rounded(ns, NS_PER_MINUTE);
    format!("{sign}{}h{}m", minutes / 60, minutes % 60)
}

/// Reads a size: a number with `B`, `kB`, `MB`, `GB` (powers of 1,000) or `KiB`, `MiB`, `GiB` (powers of 1,024); a
/// bare number is bytes. `16K` is refused, because people mean two things by it.
///
/// # Errors
/// Any other text, a fraction of a byte, more than a `u64` holds.
pub fn parse_bytes(text: &str) -> Result<Bytes, QuantityError> {
    let (number, unit) = Decimal::take(not_empty(text)?)?;
    let factor = match unit {
        "" => 1,
        _ => named(&SIZES, unit).ok_or_else(|| not_a_unit(unit, "B, kB, MB, GB, KiB, MiB, GiB"))?,
    };
    number.times(factor, " of bytes").map(Bytes)
}

/// Writes a size exactly, in the largest unit of which it is a whole multiple: `16MiB`, `25kB`, `25481B`.
#[must_use]
pub fn format_bytes(size: Bytes) -> String {
    let divides = |factor: u64| size.0 >= factor && size.0.is_multiple_of(factor);
    let (name, factor) = SIZES.iter().rev().find(|(_, f)| divides(*f)).copied().unwrap_or(("B", 1));
    format!("{}{name}", size.0 / factor)
}

/// Reads a count: a whole number, with `k`, `M` or `G` for thousands, millions, thousand millions (`10k`, `1.5M`).
///
/// # Errors
/// Any other text, a fraction, more than a `u64` holds.
pub fn parse_count(text: &str) -> Result<u64, QuantityError> {
    let (number, unit) = Decimal::take(not_empty(text)?)?;
    let factor = match unit {
        "" => 1,
        _ => named(&COUNTS, unit).ok_or_else(|| not_a_unit(unit, "k, M, G"))?,
    };
    number.times(factor, "")
}

/// Writes a count exactly, in the largest multiple it is a whole number of: `60`, `8192`, `10k`, `3M`.
#[must_use]
pub fn format_count(count: u64) -> String {
    let divides = |factor: u64| count >= factor && count.is_multiple_of(factor);
    let (name, factor) = COUNTS.iter().rev().find(|(_, f)| divides(*f)).copied().unwrap_or(("", 1));
    format!("{}{name}", count / factor)
}

/// Reads a rate per second: a number, with `k` or `M` if wanted, with `/s` if wanted (`12.5`, `1.5k/s`). The double
/// nearest to what was written; zero is a rate.
///
/// # Errors
/// Any other text.
pub fn parse_rate(text: &str) -> Result<PerSecond, QuantityError> {
    let number = not_empty(text)?.strip_suffix("/s").unwrap_or(text);
    let (_, unit) = Decimal::take(number)?;
    let exponent = match unit {
        "" => "",
        "k" => "e3",
        "M" => "e6",
        _ => return Err(not_a_unit(unit, "k, M, /s")),
    };
    // The exponent is applied before the one rounding, so that 1.1k is the double nearest to 1100.
    let digits = number.strip_suffix(unit).unwrap_or(number);
    format!("{digits}{exponent}").parse().map(PerSecond).map_err(|_| QuantityError::NotANumber)
}

/// Writes a rate with the fewest digits that read back to the same double: `12.5/s`.
#[must_use]
pub fn format_rate(rate: PerSecond) -> String {
    format!("{}/s", rate.0)
}

const NS_PER_MICRO: u64 = 1_000;
const NS_PER_MILLI: u64 = 1_000_000;
const NS_PER_SECOND: u64 = 1_000_000_000;
const NS_PER_MINUTE: u64 = 60 * NS_PER_SECOND;
const NS_PER_HOUR: u64 = 60 * NS_PER_MINUTE;
const DURATION_UNITS: &str = "ns, us, ms, s, m, h";

/// In ascending order, so that the last that divides is the largest.
const SIZES: [(&str, u64); 7] = [
    ("B", 1),
    ("kB", 1_000),
    ("KiB", 1 << 10),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
];

/// In ascending order.
const COUNTS: [(&str, u64); 3] = [("k", 1_000), ("M", 1_000_000), ("G", 1_000_000_000)];

fn named(table: &[(&str, u64)], name: &str) -> Option<u64> {
    table.iter().find(|(n, _)| *n == name).map(|(_, factor)| *factor)
}

fn duration_unit(name: &str) -> Option<u64> {
    Some(match name {
        "ns" => 1,
        // The micro sign and the Greek letter look alike and both are typed.
        "us" | "\u{b5}s" | "\u{3bc}s" => NS_PER_MICRO,
        "ms" => NS_PER_MILLI,
        "s" => NS_PER_SECOND,
        "m" => NS_PER_MINUTE,
        "h" => NS_PER_HOUR,
        _ => return None,
    })
}

/// An exponent looks like a unit: `1e99s` is no number that is read here.
fn not_a_unit(unit: &str, units: &'static str) -> QuantityError {
    let exponent = unit.strip_prefix(['e', 'E']).is_some_and(|rest| {
        let digits = rest.trim_start_matches(['+', '-']);
        digits.is_empty() || digits.starts_with(|c: char| c.is_ascii_digit())
    });
    if exponent { QuantityError::NotANumber } else { QuantityError::UnknownUnit(units) }
}

fn not_empty(text: &str) -> Result<&str, QuantityError> {
    if text.is_empty() { Err(QuantityError::Empty) } else { Ok(text) }
}

/// `value / step`, halves away from zero.
fn rounded(value: u64, step: u64) -> u64 {
    value / step + u64::from(value % step >= step.div_ceil(2) && step > 1)
}

/// Appends `value / unit` as an exact decimal without trailing zeros; `unit` is a power of ten.
fn push_decimal(out: &mut String, value: u64, unit: u64, name: &str) {
    let _ = write!(out, "{}", value / unit);
    let part = value % unit;
    if part > 0 {
        let width = usize::try_from(unit.ilog10()).unwrap_or(0);
        let digits = format!("{part:0width$}");
        let _ = write!(out, ".{}", digits.trim_end_matches('0'));
    }
    out.push_str(name);
}

/// A decimal number as written: `digits / 10^scale`.
struct Decimal {
    digits: u128,
    scale: u32,
}

impl Decimal {
    /// More digits than any quantity needs; with a unit's factor below 2^42 the product stays below 2^127.
    const MAX_DIGITS: u32 = 25;

    /// Splits a decimal number off the front: digits, with at most one point that has digits on both sides.
    fn take(text: &str) -> Result<(Self, &str), QuantityError> {
        // Only a number can be negative: `--timeout --quiet` hands over a flag.
        if text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
            return Err(QuantityError::Negative);
        }
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, rest) = text.split_at(end);
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        if whole.is_empty() || part.is_empty() || part.contains('.') {
            return Err(QuantityError::NotANumber);
        }
        let (whole, part) = (whole.trim_start_matches('0'), part.trim_end_matches('0'));
        let mut digits = 0_u128;
        for (n, digit) in whole.bytes().chain(part.bytes()).enumerate() {
            if n >= Self::MAX_DIGITS as usize {
                return Err(QuantityError::TooLarge);
            }
            digits = digits * 10 + u128::from(digit - b'0');
        }
        let scale = u32::try_from(part.len()).map_err(|_| QuantityError::TooLarge)?;
        Ok((Self { digits, scale }, rest))
    }

    /// This many times `factor`, which must come out whole.
    fn times(&self, factor: u64, smallest: &'static str) -> Result<u64, QuantityError> {
        let product = self.digits.checked_mul(u128::from(factor)).ok_or(QuantityError::TooLarge)?;
        let divisor = 10_u128.checked_pow(self.scale).ok_or(QuantityError::TooLarge)?;
        if product % divisor != 0 {
            return Err(QuantityError::NotWhole(smallest));
        }
        u64::try_from(product / divisor).map_err(|_| QuantityError::TooLarge)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_of_the_manual_read_as_the_manual_says() {
        for (text, ns) in [
            ("250us", 250_000),
            ("250\u{b5}s", 250_000),
            ("10ms", 10_000_000),
            ("2s", 2_000_000_000),
            ("1m", 60_000_000_000),
            ("1h", 3_600_000_000_000),
            ("900", 900_000_000_000),
            ("900.0", 900_000_000_000),
            ("0.1", 100_000_000),
            ("0.000000001", 1),
            ("1ns", 1),
            ("1.5ms", 1_500_000),
            ("1m30s", 90_000_000_000),
            ("1h2m3.5s", 3_723_500_000_000),
            ("0", 0),
            ("0s", 0),
            ("007s", 7_000_000_000),
            ("1.50000000000000000000000000000000s", 1_500_000_000),
            ("9223372036854775807ns", i64::MAX),
        ] {
            assert_eq!(parse_duration(text), Ok(Nanos(ns)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_its_reason() {
        use QuantityError::{Empty, Negative, NotANumber, NotWhole, TooLarge, UnitOrder, UnknownUnit};
        for (text, why) in [
            ("", Empty),
            ("-1s", Negative),
            ("s", NotANumber),
            ("--quiet", NotANumber),
            (".5s", NotANumber),
            ("1.s", NotANumber),
            ("1.2.3s", NotANumber),
            ("abc", NotANumber),
            (" 1s", NotANumber),
            ("1 s", UnknownUnit(DURATION_UNITS)),
            ("1d", UnknownUnit(DURATION_UNITS)),
            ("1S", UnknownUnit(DURATION_UNITS)),
            ("1e3", NotANumber),
            ("1e99s", NotANumber),
            ("1E-3s", NotANumber),
            ("1es", UnknownUnit(DURATION_UNITS)),
            ("1s30", UnknownUnit(DURATION_UNITS)),
            ("10m1h", UnitOrder),
            ("1s1s", UnitOrder),
            ("0.5ns", NotWhole(" of nanoseconds")),
            ("9223372036854775808ns", TooLarge),
            ("99999999999999999999999999h", TooLarge),
            ("2562048h", TooLarge),
        ] {
            assert_eq!(parse_duration(text), Err(why), "{text}");
        }
    }

    #[test]
    fn durations_are_written_in_the_largest_unit_that_fits() {
        for (ns, text) in [
            (0, "0s"),
            (1, "1ns"),
            (999, "999ns"),
            (1_500, "1.5us"),
            (250_000, "250us"),
            (12_345_678, "12.345678ms"),
            (1_500_000_000, "1.5s"),
            (60_000_000_000, "1m"),
            (90_000_000_000, "1m30s"),
            (900_000_000_000, "15m"),
            (3_600_000_000_000, "1h"),
            (3_600_500_000_000, "1h0.5s"),
            (-1_500_000, "-1.5ms"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ] {
            assert_eq!(format_duration(Nanos(ns)), text);
        }
    }

    #[test]
    fn short_durations_round_into_the_next_unit() {
        for (ns, text) in [
            (0, "0ns"),
            (999, "999ns"),
            (1_000, "1.00us"),
            (12_345_678, "12.3ms"),
            (12_350_000, "12.4ms"),
            (999_960, "1.00ms"),
            (999_499_999, "999ms"),
            (999_500_000, "1.00s"),
            (59_949_999_999, "59.9s"),
            (59_950_000_000, "1m0s"),
            (90_400_000_000, "1m30s"),
            (3_599_500_000_000, "1h0m"),
            (7_530_000_000_000, "2h6m"),
            (-12_345, "-12.3us"),
        ] {
            assert_eq!(format_duration_short(Nanos(ns)), text, "{ns}");
        }
    }

    #[test]
    fn sizes_counts_and_rates_have_their_units() {
        assert_eq!(parse_bytes("16MiB"), Ok(Bytes(16 << 20)));
        assert_eq!(parse_bytes("1.5kB"), Ok(Bytes(1_500)));
        assert_eq!(parse_bytes("25480"), Ok(Bytes(25_480)));
        assert_eq!(parse_bytes("0.3B"), Err(QuantityError::NotWhole(" of bytes")));
        assert!(matches!(parse_bytes("16K"), Err(QuantityError::UnknownUnit(_))));
        assert_eq!(parse_bytes("99999999999GiB"), Err(QuantityError::TooLarge));
        assert_eq!(format_bytes(Bytes(16 << 20)), "16MiB");
        assert_eq!(format_bytes(Bytes(25_481)), "25481B");
        assert_eq!(parse_count("10k"), Ok(10_000));
        assert_eq!(parse_count("1.5M"), Ok(1_500_000));
        assert_eq!(parse_count("1.0005k"), Err(QuantityError::NotWhole("")));
        assert!(matches!(parse_count("10K"), Err(QuantityError::UnknownUnit(_))));
        assert_eq!(parse_count("1e3"), Err(QuantityError::NotANumber));
        assert_eq!(parse_bytes("1e3B"), Err(QuantityError::NotANumber));
        assert_eq!(parse_rate("1e3"), Err(QuantityError::NotANumber));
        assert_eq!(parse_count("-1"), Err(QuantityError::Negative));
        assert_eq!(format_count(8_192), "8192");
        assert_eq!(format_count(10_000), "10k");
        assert_eq!(parse_rate("12.5"), Ok(PerSecond(12.5)));
        assert_eq!(parse_rate("1.1k/s"), Ok(PerSecond(1_100.0)));
        assert!(matches!(parse_rate("5/m"), Err(QuantityError::UnknownUnit(_))));
        assert_eq!(parse_rate("/s"), Err(QuantityError::NotANumber));
        assert_eq!(parse_rate("inf"), Err(QuantityError::NotANumber));
    }

    proptest! {
        #[test]
        fn a_duration_survives_writing_and_reading(ns in 0..=i64::MAX, shift in 0_u32..63) {
            let span = Nanos(ns >> shift);
            prop_assert_eq!(parse_duration(&format_duration(span)), Ok(span));
        }

        #[test]
        fn a_size_survives_writing_and_reading(n: u64, shift in 0_u32..64) {
            let (size, count) = (Bytes(n >> shift), n << (shift / 2));
            prop_assert_eq!(parse_bytes(&format_bytes(size)), Ok(size));
            prop_assert_eq!(parse_count(&format_count(count)), Ok(count));
        }

        #[test]
        fn a_rate_survives_writing_and_reading(rate in 0.0..1e15_f64) {
            prop_assert_eq!(parse_rate(&format_rate(PerSecond(rate))), Ok(PerSecond(rate)));
        }

        #[test]
        fn the_short_form_is_within_half_a_percent_below_a_minute(ns in 1_000..59_000_000_000_i64) {
            let text = format_duration_short(Nanos(ns));
            let Nanos(back) = parse_duration(&text).unwrap();
            prop_assert!((back - ns).abs() * 200 <= ns, "{ns} {text}");
        }

        #[test]
        fn no_text_makes_the_parsers_panic(text in "\\PC{0,12}|[0-9.a-zµ/-]{0,40}") {
            let _ = (parse_duration(&text), parse_bytes(&text), parse_count(&text), parse_rate(&text));
        }
    }
}
