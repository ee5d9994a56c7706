//! The local time from which periods of a customer are counted, read and written as text.
//! The periods themselves are computed in `periods.rs`.

use std::{fmt, str::FromStr, time::SystemTime};

use jiff::{Timestamp, civil::DateTime};

use super::TimeZone;
use crate::Error;

/// The local time at which the periods of a [calendar window](crate::Policy::calendar_window)
/// begin: see [`Policy::with_anchor`](crate::Policy::with_anchor). Parse it from text.
///
/// The text is a date, with or without a time, of the years 1900 to 2199: `2026-01-17`,
/// `2026-01-17T09:30` or `2026-01-17T09:30:15`. It has no offset, because the time zone of the
/// window is in force.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use tollgate::Anchor;
///
/// let signed: Anchor = "2026-01-17T09:30".parse()?;
/// assert_eq!(signed.to_string(), "2026-01-17T09:30");
/// assert_eq!("2026-01-17".parse::<Anchor>()?.to_string(), "2026-01-17T00:00");
///
/// // A database may have the instant.
/// let instant = SystemTime::UNIX_EPOCH + Duration::from_secs(1_768_642_200);
/// assert_eq!(Anchor::of(instant, "Europe/Lisbon".parse()?)?, signed);
///
/// let error = "2026-02-30".parse::<Anchor>().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     r#"anchor must be a local date of 1900 to 2199, with or without a time, as in 2026-01-17T09:30, got "2026-02-30""#,
/// );
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Anchor(DateTime);

/// The forms of the text. A zero stands for any digit.
const FORMS: [&str; 3] = ["0000-00-00", "0000-00-00T00:00", "0000-00-00T00:00:00"];

impl Anchor {
    /// A Monday, the first day of a month and of a year, at midnight: with it, periods are those
    /// that people read on a calendar.
    pub(super) const CALENDAR: Self = Self(DateTime::constant(2001, 1, 1, 0, 0, 0, 0));

    /// Returns the local time of an instant in a zone, in whole seconds.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when the year is not one of 1900 to 2199.
    pub fn of(instant: SystemTime, zone: TimeZone) -> Result<Self, Error> {
        let local = Timestamp::try_from(instant).map(|instant| zone.local(instant));
        let whole = local.ok().and_then(|local| {
            let (hour, minute, second) = (local.hour(), local.minute(), local.second());
            Self::checked(local.date().at(hour, minute, second, 0))
        });
        whole.ok_or_else(|| refused(&format!("{instant:?}")))
    }

    fn checked(local: DateTime) -> Option<Self> {
        (1900..2200).contains(&local.year()).then_some(Self(local))
    }

    pub(super) fn local(self) -> DateTime {
        self.0
    }
}

impl FromStr for Anchor {
    type Err = Error;

    /// Parses a local date, with or without a time.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when the text has another form, or names a
    /// day that does not exist.
    fn from_str(text: &str) -> Result<Self, Error> {
        let has_form = |form: &&str| {
            let mut signs = form.bytes().zip(text.bytes());
            form.len() == text.len()
                && signs.all(|(form, sign)| match form {
                    b'0' => sign.is_ascii_digit(),
                    other => sign == other,
                })
        };
        let local = FORMS
            .into_iter()
            .find(has_form)
            .and_then(|_| text.parse().ok());
        local.and_then(Self::checked).ok_or_else(|| {
            let shown: String = text.chars().take(60).collect();
            refused(&format!("{shown:?}"))
        })
    }
}

#[cold]
fn refused(shown: &str) -> Error {
    Error::config(format!(
        "anchor must be a local date of 1900 to 2199, with or without a time, as in 2026-01-17T09:30, got {shown}"
    ))
}

impl fmt::Display for Anchor {
    /// Writes the text that parses to the same anchor, without seconds where these are zero.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let local = self.0;
        write!(
            f,
            "{}T{:02}:{:02}",
            local.date(),
            local.hour(),
            local.minute()
        )?;
        match local.second() {
            0 => Ok(()),
            second => write!(f, ":{second:02}"),
        }
    }
}

impl fmt::Debug for Anchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
