//! Wall-clock instants as calendar text, in UTC and nothing else.
//!
//! Why by hand: three fixed formats need no calendar library. The day arithmetic is the proleptic Gregorian calendar
//! (ISO 8601) counted in eras of 400 years (146,097 days), with the year beginning in March so that the leap day
//! comes last. This file reads no clock and parses nothing.

use crate::units::{Nanos, UnixNanos};

/// `2026-09-17T17:21:04Z`: RFC 3339, whole seconds, rounded down.
#[must_use]
pub fn rfc3339(at: UnixNanos) -> String {
    let t = Utc::of(at);
    format!("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", t.year, t.month, t.day, t.hour, t.minute, t.second)
}

/// `20260917T172104Z`: ISO 8601 basic format, whole seconds, rounded down; sorts as text and is fit for a file name.
#[must_use]
pub fn basic(at: UnixNanos) -> String {
    let t = Utc::of(at);
    format!("{:04}{:02}{:02}T{:02}{:02}{:02}Z", t.year, t.month, t.day, t.hour, t.minute, t.second)
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`: the IMF-fixdate of RFC 9110 5.6.7, whole seconds, rounded down.
#[must_use]
pub fn http_date(at: UnixNanos) -> String {
    const WEEKDAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let t = Utc::of(at);
    let name = |names: &[&'static str], place: i64| {
        usize::try_from(place).ok().and_then(|place| names.get(place).copied()).unwrap_or_default()
    };
    let (weekday, month) = (name(&WEEKDAYS, t.weekday), name(&MONTHS, t.month - 1));
    format!("{weekday}, {:02} {month} {:04} {:02}:{:02}:{:02} GMT", t.day, t.year, t.hour, t.minute, t.second)
}

struct Utc {
    year: i64,
    month: i64,
    day: i64,
    /// From Sunday, 0, to Saturday, 6.
    weekday: i64,
    hour: i64,
    minute: i64,
    second: i64,
}

const SECONDS_PER_DAY: i64 = 86_400;
const DAYS_PER_ERA: i64 = 146_097;
/// 1970-01-01 was a Thursday.
const WEEKDAY_OF_EPOCH: i64 = 4;
/// From 0000-03-01 to 1970-01-01.
const DAYS_TO_EPOCH: i64 = 719_468;

impl Utc {
    fn of(at: UnixNanos) -> Self {
        let seconds = at.get().div_euclid(Nanos::PER_SECOND);
        let (days, of_day) = (seconds.div_euclid(SECONDS_PER_DAY), seconds.rem_euclid(SECONDS_PER_DAY));
        let shifted = days + DAYS_TO_EPOCH;
        let (era, of_era) = (shifted.div_euclid(DAYS_PER_ERA), shifted.rem_euclid(DAYS_PER_ERA));
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * of_year + 2) / 153;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
        Self {
            year: year_of_era + era * 400 + i64::from(month <= 2),
            month,
            day: of_year - (153 * march_month + 2) / 5 + 1,
            weekday: (days + WEEKDAY_OF_EPOCH).rem_euclid(7),
            hour: of_day / 3_600,
            minute: of_day / 60 % 60,
            second: of_day % 60,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64, nanos: i64) -> UnixNanos {
        UnixNanos::new(seconds * 1_000_000_000 + nanos).unwrap()
    }

    /// Expected texts come from GNU `date -u -d @SECONDS`.
    #[test]
    fn known_instants() {
        for (seconds, expected) in [
            (1, "1970-01-01T00:00:01Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_789_665_664, "2026-09-17T17:21:04Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(at(seconds, 0)), expected);
        }
        assert_eq!(rfc3339(at(1_789_665_664, 999_999_999)), "2026-09-17T17:21:04Z");
        assert_eq!(basic(at(1_789_665_664, 999_999_999)), "20260917T172104Z");
    }

    #[test]
    fn dates_of_the_protocol_are_the_standards() {
        // The example of RFC 9110 5.6.7, a leap day, the day after one, the epoch, and the days around it.
        for (seconds, date) in [
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (1_709_251_199, "Thu, 29 Feb 2024 23:59:59 GMT"),
            (1_709_251_200, "Fri, 01 Mar 2024 00:00:00 GMT"),
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (-1, "Wed, 31 Dec 1969 23:59:59 GMT"),
            (172_800, "Sat, 03 Jan 1970 00:00:00 GMT"),
        ] {
            assert_eq!(http_date(at(seconds, 1)), date);
        }
    }

    /// Day by day up to the last one that fits, in 2260, against counting.
    #[test]
    fn every_day_follows_the_one_before() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..106_000_i64 {
            let text = rfc3339(at(days * 86_400, 1));
            assert_eq!(text.get(..10).unwrap(), format!("{year:04}-{month:02}-{day:02}"));
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let length = match month {
                2 if leap => 29,
                2 => 28,
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            day += 1;
            if day > length {
                (day, month) = (1, month + 1);
            }
            if month > 12 {
                (month, year) = (1, year + 1);
            }
        }
    }
}
