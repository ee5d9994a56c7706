//! The lengths of a period that users choose from: a day, a week, a month, a year.
//! When one begins is computed in `periods.rs`. Periods of a fixed length are quotas.

use std::{fmt, str::FromStr, time::Duration};

use crate::Error;

/// Selects the period of a [calendar window](crate::Policy::calendar_window).
///
/// ```
/// use tollgate::CalendarUnit;
///
/// assert_eq!("month".parse::<CalendarUnit>()?, CalendarUnit::Month);
/// assert_eq!(CalendarUnit::Week.to_string(), "week");
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CalendarUnit {
    /// A day, from midnight. It has 23 or 25 hours when the clocks change.
    Day,
    /// A week, from Monday (ISO 8601).
    Week,
    /// A month, from its first day.
    Month,
    /// A year, from the first of January.
    Year,
}

impl CalendarUnit {
    /// Lists every unit, shortest first.
    pub const ALL: [Self; 4] = [Self::Day, Self::Week, Self::Month, Self::Year];

    /// Returns the name in lower case.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }

    /// Returns the length that stands for the unit in a [`Quota`](crate::Quota) and in header
    /// fields: a month has 30 days there, and a year 365.
    #[must_use]
    pub const fn nominal(self) -> Duration {
        let days = match self {
            Self::Day => 1,
            Self::Week => 7,
            Self::Month => 30,
            Self::Year => 365,
        };
        Duration::from_secs(days * 86_400)
    }
}

impl fmt::Display for CalendarUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for CalendarUnit {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let unit = Self::ALL.into_iter().find(|unit| unit.as_str() == text);
        unit.ok_or_else(|| {
            let shown: String = text.chars().take(60).collect();
            Error::config(format!(
                "unknown calendar unit {shown:?}, expected day, week, month or year"
            ))
        })
    }
}
