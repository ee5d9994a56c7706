//! The line of an event in a log for people and programs, such as an audit log.
//! Events themselves are in `mod.rs`; the command `tollgate why` reads the lines.

use std::{
    fmt::{self, Write as _},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tollgate_model::raw::PolicyParts;

use super::{Event, KeyEvent};
use crate::{Key, KeySecret, limiter::DeniedKeys};

/// An [`Event`] as one line of JSON, for an audit log. `Display` writes it, without the end of the line.
///
/// The command `tollgate why` reads a log of such lines, and answers why a key was denied. Fields may
/// be added, and none is renamed:
///
/// | field | of | meaning |
/// |---|---|---|
/// | `time` | all | the time that the program names, in RFC 3339 and UTC |
/// | `event` | all | the [name](Event::name) of the event |
/// | `limiter` | all but `rules_reloaded` | the name of the limiter |
/// | `key` or `key_digest` | events of keys | the [encoded](Key::encoded) key, or its [digest](DeniedKeys::digest) |
/// | `policy`, `quota`, `algorithm` | events of keys | the policy, and its quota in force |
/// | `cost`, `remaining` | events of keys | the units of the check, and those that are left after it |
/// | `kept` | events of keys | the units that the priority of the check leaves to higher ones |
/// | `retry_after_ms` | events of keys | when the same check would pass; `null` when it never would, or passed |
/// | `leased` | events of keys | whether the policy is leased |
/// | `degraded` | events of keys | why the outage rule decided; `null` when the store did |
/// | `reason` | `outage_began` | the [kind](crate::ErrorKind) of the error |
/// | `lasted_ms` | `outage_ended` | how long the outage lasted |
/// | `rules` | `rules_reloaded` | the number of rules |
///
/// A key may be personal data. By default it stands in the line; with a secret, its digest does.
///
/// ```
/// use std::time::UNIX_EPOCH;
/// use tollgate::{
///     Limiter, MemoryStore, Policy, Quota,
///     limiter::events::{self, LogLine},
/// };
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
/// let (observer, mut events) = events::channel(10);
/// let limiter = Limiter::builder(MemoryStore::new())
///     .policies(Policy::fixed_window("day", Quota::per_day(1)))
///     .name("search")
///     .observer(observer)
///     .build();
/// limiter.check("ann").await?;
/// let near = events.recv().await.unwrap();
/// assert_eq!(
///     LogLine::new(&near, UNIX_EPOCH).to_string(),
///     r#"{"time":"1970-01-01T00:00:00.000Z","event":"near_limit","limiter":"search","key":"ann","#.to_owned()
///         + r#""policy":"day","quota":"1/day","algorithm":"fixed_window","cost":1,"remaining":0,"kept":0,"#
///         + r#""retry_after_ms":null,"leased":false,"degraded":null}"#,
/// );
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct LogLine<'e> {
    event: &'e Event<'e>,
    at: SystemTime,
    secret: Option<&'e KeySecret>,
}

impl<'e> LogLine<'e> {
    /// Creates the line of an event that happened at this time. It contains the key.
    #[must_use]
    pub fn new(event: &'e Event<'e>, at: SystemTime) -> Self {
        Self {
            event,
            at,
            secret: None,
        }
    }

    /// Writes the digest of the key with this secret in the place of the key.
    #[must_use]
    pub fn with_digest(mut self, secret: &'e KeySecret) -> Self {
        self.secret = Some(secret);
        self
    }

    fn key(&self, f: &mut fmt::Formatter<'_>, key: &Key) -> fmt::Result {
        match self.secret {
            Some(secret) => write!(f, ",\"key_digest\":\"{}\"", DeniedKeys::digest(key, secret)),
            None => write!(f, ",\"key\":{}", Text(key.encoded())),
        }
    }

    fn of_key(&self, f: &mut fmt::Formatter<'_>, of: &KeyEvent<'_>) -> fmt::Result {
        let policy = of.policy();
        write!(f, ",\"limiter\":{}", Text(of.limiter()))?;
        self.key(f, of.key())?;
        write!(f, ",\"policy\":{}", Text(policy.name()))?;
        write!(f, ",\"quota\":{}", Text(&policy.quota().to_string()))?;
        write!(f, ",\"algorithm\":{}", Text(policy.algorithm().name()))?;
        write!(
            f,
            ",\"cost\":{},\"remaining\":{}",
            of.cost().units(),
            of.remaining()
        )?;
        write!(f, ",\"kept\":{},\"retry_after_ms\":", of.kept())?;
        match of.retry_after() {
            // Rounded up: a check at that time passes.
            Some(wait) => write!(f, "{}", wait.as_micros().div_ceil(1_000))?,
            None => f.write_str("null")?,
        }
        write!(f, ",\"leased\":{},\"degraded\":", policy.is_leased())?;
        match of.degraded() {
            Some(kind) => write!(f, "\"{}\"", kind.as_str()),
            None => f.write_str("null"),
        }
    }
}

impl fmt::Display for LogLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{\"time\":\"{}\"", Time(self.at))?;
        write!(f, ",\"event\":\"{}\"", self.event.name())?;
        match self.event {
            Event::Denied(of)
            | Event::NearLimit(of)
            | Event::LockedOut(of)
            | Event::Excepted(of) => {
                self.of_key(f, of)?;
            }
            Event::OutageBegan { limiter, reason } => {
                write!(
                    f,
                    ",\"limiter\":{},\"reason\":\"{}\"",
                    Text(limiter),
                    reason.as_str()
                )?;
            }
            Event::OutageEnded { limiter, lasted } => {
                write!(
                    f,
                    ",\"limiter\":{},\"lasted_ms\":{}",
                    Text(limiter),
                    lasted.as_millis()
                )?;
            }
            Event::RulesReloaded { rules } => write!(f, ",\"rules\":{rules}")?,
        }
        f.write_str("}")
    }
}

/// A text as JSON has it.
struct Text<'t>(&'t str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for sign in self.0.chars() {
            match sign {
                '"' | '\\' => write!(f, "\\{sign}")?,
                // A terminal obeys those of the second group, too.
                _ if sign.is_control() => write!(f, "\\u{:04x}", u32::from(sign))?,
                _ => f.write_char(sign)?,
            }
        }
        f.write_char('"')
    }
}

/// A time in RFC 3339, in UTC. One before the epoch is the epoch.
struct Time(SystemTime);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since: Duration = self.0.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (seconds, millis) = (since.as_secs(), since.subsec_millis());
        let (year, month, day) = date(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z"
        )
    }
}

/// Returns the year, the month and the day that begins so many days after the epoch.
///
/// Years begin with March here, so that the leap day is the last one: the algorithm `civil_from_days`
/// of Howard Hinnant.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    (year_of_era + 400 * era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::ErrorKind;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.007Z"),
            (951_782_399, "2000-02-28T23:59:59.007Z"),
            (951_782_400, "2000-02-29T00:00:00.007Z"),
            (951_868_800, "2000-03-01T00:00:00.007Z"),
            (1_796_083_199, "2026-11-30T23:59:59.007Z"),
            (4_107_542_400, "2100-03-01T00:00:00.007Z"),
        ] {
            let at = UNIX_EPOCH + Duration::from_millis(seconds * 1_000 + 7);
            assert_eq!(Time(at).to_string(), expected);
        }
        assert_eq!(
            Time(UNIX_EPOCH - Duration::from_secs(1)).to_string(),
            "1970-01-01T00:00:00.000Z"
        );
    }

    #[test]
    fn a_name_cannot_end_its_field_or_its_line() {
        let name = "a\"b\\c\n\u{1b}[2J\u{9b}é";
        let events = [
            Event::OutageBegan {
                limiter: Cow::Borrowed(name),
                reason: ErrorKind::Timeout,
            },
            Event::OutageEnded {
                limiter: Cow::Borrowed(name),
                lasted: Duration::from_millis(1_500),
            },
            Event::RulesReloaded { rules: 7 },
        ];
        let lines = events.map(|event| LogLine::new(&event, UNIX_EPOCH).to_string());
        let begin = r#"{"time":"1970-01-01T00:00:00.000Z","event":"outage_"#;
        let name = r#""limiter":"a\"b\\c\u000a\u001b[2J\u009bé""#;
        assert_eq!(
            lines[0],
            format!(r#"{begin}began",{name},"reason":"timeout"}}"#)
        );
        assert_eq!(
            lines[1],
            format!(r#"{begin}ended",{name},"lasted_ms":1500}}"#)
        );
        assert!(
            lines[2].ends_with(r#""event":"rules_reloaded","rules":7}"#),
            "{}",
            lines[2]
        );
    }
}
