//! Calendar labels of Unix time as a value: UTC, whole seconds, rounded down, as the documents' `_at` fields carry them.
//! The calendar itself is [`crate::units::calendar`].

use std::fmt;

use crate::units::{UnixNanos, calendar};

/// A second of the Gregorian calendar in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Utc(UnixNanos);

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
    pub const fn of(instant: UnixNanos) -> Self {
        Self(instant)
    }

    /// `YYYYMMDDTHHMMSSZ`.
    #[must_use]
    pub fn compact(&self) -> String {
        calendar::basic(self.0)
    }
}

/// `YYYY-MM-DDTHH:MM:SSZ` (RFC 3339).
impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&calendar::rfc3339(self.0))
    }
}
