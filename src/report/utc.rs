//! Calendar labels of Unix time: UTC, whole seconds, rounded down, as the documents' `_at` fields carry them.
//!
//! Labels only: nothing is parsed here, and no duration is ever computed from a label.

use std::fmt;

use crate::units::{Nanos, UnixNanos};

/// A second of the Gregorian calendar in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Utc {
    year: i64,
    month: u8,
    day: u8,
    second_of_day: i64,
}

impl Utc {
    /// The second that an instant lies in.
    ///
    /// ```
    /// use hammerscale::{report::utc::Utc, units::UnixNanos};
    /// let at = Utc::of(UnixNanos::new(1_789_665_664_243_641_356).unwrap());
    /// assert_eq!(at.to_string(), "2026-09-17T17:21:04Z");
    /// assert_eq!(at.compact(), "20260917T172104Z");
    /// ```
    #[must_use]
    pub fn of(instant: UnixNanos) -> Self {
        const SECONDS_A_DAY: i64 = 86_400;
        let second = instant.get().div_euclid(Nanos::PER_SECOND);
        let (year, month, day) = civil(second.div_euclid(SECONDS_A_DAY));
        Self { year, month, day, second_of_day: second.rem_euclid(SECONDS_A_DAY) }
    }

    /// `YYYYMMDDTHHMMSSZ`.
    #[must_use]
    pub fn compact(&self) -> String {
        let (h, m, s) = self.time();
        format!("{:04}{:02}{:02}T{h:02}{m:02}{s:02}Z", self.year, self.month, self.day)
    }

    fn time(&self) -> (i64, i64, i64) {
        (self.second_of_day / 3600, self.second_of_day / 60 % 60, self.second_of_day % 60)
    }
}

/// `YYYY-MM-DDTHH:MM:SSZ` (RFC 3339).
impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (h, m, s) = self.time();
        write!(f, "{:04}-{:02}-{:02}T{h:02}:{m:02}:{s:02}Z", self.year, self.month, self.day)
    }
}

/// Year, month and day of a day counted from 1970-01-01. Years are counted from March, so that the leap day is the
/// last one; then every month's first day follows from one linear formula.
fn civil(days_since_epoch: i64) -> (i64, u8, u8) {
    const DAYS_IN_400_YEARS: i64 = 146_097;
    // 1970-01-01 is day 719,468 counted from 0000-03-01.
    let days = days_since_epoch + 719_468;
    let era = days.div_euclid(DAYS_IN_400_YEARS);
    let day_of_era = days.rem_euclid(DAYS_IN_400_YEARS);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = 400 * era + year_of_era + i64::from(month <= 2);
    (year, u8::try_from(month).unwrap_or(0), u8::try_from(day).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_seconds() {
        for (ns, want) in [
            (1, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (951_782_399_999_999_999, "2000-02-28T23:59:59Z"),
            (951_782_400_000_000_000, "2000-02-29T00:00:00Z"),
            (951_868_800_000_000_000, "2000-03-01T00:00:00Z"),
            (1_709_251_199_000_000_000, "2024-02-29T23:59:59Z"),
            (4_107_542_399_999_999_999, "2100-02-28T23:59:59Z"),
            (4_107_542_400_000_000_000, "2100-03-01T00:00:00Z"),
            (1_789_665_689_912_896_690, "2026-09-17T17:21:29Z"),
        ] {
            assert_eq!(Utc::of(UnixNanos::new(ns).unwrap()).to_string(), want);
        }
    }

    #[test]
    fn every_day_of_four_centuries_follows_the_one_before() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..146_097 {
            assert_eq!(civil(days), (year, month, day), "day {days}");
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let length = match month {
                4 | 6 | 9 | 11 => 30,
                2 => 28 + u8::from(leap),
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
