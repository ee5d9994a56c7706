//! The units of `unit` in a file: fixed lengths, counted from the epoch.
//! Periods of a calendar are an algorithm of the core. Texts such as `10m` are read by the core
//! too.

use std::{fmt, str::FromStr, time::Duration};

/// The length of a window: the field `unit` of a limit.
///
/// A month has 30 days and a year 365 days, as in Envoy's rate limit service. Windows start at
/// multiples of their length since the Unix epoch. With the field `time_zone`, windows are days,
/// weeks, months and years of the calendar instead.
///
/// ```
/// use std::time::Duration;
/// use tollgate_rules::Unit;
///
/// assert_eq!("Minute".parse(), Ok(Unit::Minute));
/// assert_eq!(Unit::Month.duration(), Duration::from_secs(30 * 86_400));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unit {
    /// One second.
    Second,
    /// 60 seconds.
    Minute,
    /// 3 600 seconds.
    Hour,
    /// 86 400 seconds.
    Day,
    /// 7 days.
    Week,
    /// 30 days.
    Month,
    /// 365 days.
    Year,
}

impl Unit {
    /// Lists every unit, shortest first.
    pub const ALL: [Self; 7] = [
        Self::Second,
        Self::Minute,
        Self::Hour,
        Self::Day,
        Self::Week,
        Self::Month,
        Self::Year,
    ];

    /// Returns the name in lower case.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }

    /// Returns the length in seconds.
    #[must_use]
    pub const fn seconds(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => 86_400,
            Self::Week => 7 * 86_400,
            Self::Month => 30 * 86_400,
            Self::Year => 365 * 86_400,
        }
    }

    /// Returns the length.
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_secs(self.seconds())
    }

    /// Returns the unit of this length, and `None` for any other length.
    #[must_use]
    pub fn from_duration(duration: Duration) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|unit| unit.duration() == duration)
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Unit {
    type Err = UnknownUnit;

    /// Parses a name in any case.
    fn from_str(text: &str) -> Result<Self, UnknownUnit> {
        Self::ALL
            .into_iter()
            .find(|unit| unit.as_str().eq_ignore_ascii_case(text))
            .ok_or(UnknownUnit(()))
    }
}

/// Reports a text that names no [`Unit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownUnit(());

impl fmt::Display for UnknownUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown unit, expected second, minute, hour, day, week, month or year")
    }
}

impl std::error::Error for UnknownUnit {}
