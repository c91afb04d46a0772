//! Numbers as people read them in tables: plain notation, thousands separated, a fixed number of significant digits.
//!
//! Why: a table whose cells switch between seconds and microseconds cannot be compared by eye. A table therefore
//! has one unit, named in its head, and every cell of a row the same number of decimals, chosen from one of its
//! values by [`decimals_for`]. Rounding is half to even, as `format!` does it. This file parses nothing; documents
//! carry numbers, never these texts.

/// What stands for a number that does not exist. Never `0`.
pub const MISSING: &str = "–";

/// Most decimals of any number: a nanosecond in milliseconds has six.
pub const MAX_DECIMALS: usize = 6;

/// How many decimals show `value` with `digits` significant digits: `decimals_for(81.234, 3)` is 1.
///
/// At most [`MAX_DECIMALS`]; zero, and anything that is not finite, needs none.
#[must_use]
pub fn decimals_for(value: f64, digits: usize) -> usize {
    if value == 0.0 || !value.is_finite() {
        return 0;
    }
    // The exponent of the rounded value, read from the scientific form, so that 9.996 counts as 10.0.
    let scientific = format!("{:.*e}", digits.saturating_sub(1), value.abs());
    let exponent: i64 = scientific.split_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0);
    let digits = i64::try_from(digits).unwrap_or(i64::MAX);
    let decimals = digits.saturating_sub(1).saturating_sub(exponent);
    usize::try_from(decimals).unwrap_or(0).min(MAX_DECIMALS)
}

/// `value` with exactly `decimals` decimals and separated thousands: `fixed(12345.678, 1)` is `12,345.7`.
///
/// [`MISSING`] for anything that is not finite. A value that rounds to zero has no sign.
#[must_use]
pub fn fixed(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return MISSING.to_owned();
    }
    let text = format!("{:.*}", decimals.min(MAX_DECIMALS), value.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let nonzero = text.bytes().any(|b| b.is_ascii_digit() && b != b'0');
    let sign = if value < 0.0 && nonzero { "-" } else { "" };
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{}{point}{fraction}", separate(whole))
}

/// A number of things: `1 request`, `12,345 requests`. For nouns whose plural is an s.
#[must_use]
pub fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", whole(count))
}

/// `value` with `digits` significant digits (more before the point where it is larger): `significant(0.0123456, 3)`
/// is `0.0123`, `significant(12345.6, 3)` is `12,346`. [`MISSING`] for anything that is not finite.
#[must_use]
pub fn significant(value: f64, digits: usize) -> String {
    fixed(value, decimals_for(value, digits))
}

/// A whole number with separated thousands: `12,345`.
#[must_use]
pub fn whole(value: u64) -> String {
    separate(&value.to_string())
}

/// A share as a percentage with three significant digits: `percent(0.0512)` is `5.12%`. [`MISSING`] for anything
/// that is not finite.
#[must_use]
pub fn percent(share: f64) -> String {
    if share.is_finite() { format!("{}%", significant(share * 100.0, 3)) } else { MISSING.to_owned() }
}

/// A span given in milliseconds, with three significant digits and its unit: `8.10 µs`, `81.2 ms`, `12.4 s`, from a
/// minute on `2 min 5 s`, from an hour on `3 h 12 min`. [`MISSING`] for anything that is not finite.
#[must_use]
pub fn span_ms(ms: f64) -> String {
    if !ms.is_finite() {
        return MISSING.to_owned();
    }
    let seconds = (ms / 1e3).abs();
    // Half a unit of the third digit below each limit, so that rounding never shows 1000 of the smaller unit.
    let (factor, unit) = match seconds {
        s if s < 0.999_5e-6 => (1e6, "ns"),
        s if s < 0.999_5e-3 => (1e3, "µs"),
        s if s < 0.999_5 => (1.0, "ms"),
        s if s < 59.95 => (1e-3, "s"),
        _ => return long_span(ms),
    };
    format!("{} {unit}", significant(ms * factor, 3))
}

/// Whole minutes and seconds, or whole hours and minutes.
fn long_span(ms: f64) -> String {
    let sign = if ms < 0.0 { "-" } else { "" };
    let seconds = (ms.abs() / 1e3).round();
    let (large, small, names) = if seconds < 3_600.0 {
        (seconds / 60.0, seconds % 60.0, ["min", "s"])
    } else {
        let minutes = (seconds / 60.0).round();
        (minutes / 60.0, minutes % 60.0, ["h", "min"])
    };
    let [large_name, small_name] = names;
    format!("{sign}{} {large_name} {small:.0} {small_name}", fixed(large.floor(), 0))
}

fn separate(digits: &str) -> String {
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn significant_digits_are_fixed_and_thousands_are_separated() {
        for (value, digits, expected) in [
            (81.234, 3, "81.2"),
            (9.996, 3, "10.0"),
            (99.95, 3, "100"),
            (0.012_345_6, 3, "0.0123"),
            (0.000_000_04, 3, "0.000000"),
            (12_345.6, 3, "12,346"),
            (999_999.6, 4, "1,000,000"),
            (-2.5, 2, "-2.5"),
            (-0.000_000_01, 2, "0.000000"),
            (0.0, 4, "0"),
            (1.0, 4, "1.000"),
            (f64::NAN, 3, MISSING),
            (f64::INFINITY, 3, MISSING),
        ] {
            assert_eq!(significant(value, digits), expected, "{value} with {digits} digits");
        }
    }

    #[test]
    fn counts_and_shares() {
        assert_eq!(whole(0), "0");
        assert_eq!(whole(999), "999");
        assert_eq!(whole(1_000), "1,000");
        assert_eq!(whole(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!([0, 1, 2_000].map(|n| counted(n, "chunk")), ["0 chunks", "1 chunk", "2,000 chunks"]);
        assert_eq!(percent(0.0512), "5.12%");
        assert_eq!(percent(1.0), "100%");
        assert_eq!(percent(f64::NAN), MISSING);
    }

    #[test]
    fn spans_have_the_unit_that_fits() {
        for (ms, expected) in [
            (0.0, "0 ns"),
            (0.000_25, "250 ns"),
            (0.000_999_6, "1.00 µs"),
            (0.0081, "8.10 µs"),
            (0.999_6, "1.00 ms"),
            (81.234, "81.2 ms"),
            (999.6, "1.00 s"),
            (12_400.0, "12.4 s"),
            (59_949.0, "59.9 s"),
            (59_960.0, "1 min 0 s"),
            (125_000.0, "2 min 5 s"),
            (3_599_600.0, "1 h 0 min"),
            (11_520_000.0, "3 h 12 min"),
            (-1.5, "-1.50 ms"),
            (-125_000.0, "-2 min 5 s"),
            (f64::NAN, MISSING),
        ] {
            assert_eq!(span_ms(ms), expected, "{ms}");
        }
    }

    #[test]
    fn a_row_with_common_decimals_lines_up() {
        let decimals = decimals_for(20.01, 4);
        assert_eq!(decimals, 2);
        assert_eq!([20.01, 1_234.5, 0.001].map(|v| fixed(v, decimals)), ["20.01", "1,234.50", "0.00"]);
    }
}
