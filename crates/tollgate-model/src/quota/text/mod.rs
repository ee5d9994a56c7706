//! Reads and writes a quota as text: `100/min burst 20`.
//!
//! The periods differ from `humantime`, where a month has 30.44 days and a year 365.25 days.
//! The bounds of the numbers are checked in `quota/mod.rs`.

use std::{fmt, str::FromStr, time::Duration};

use super::Quota;
use crate::Error;

/// The units of a period, longest first: microseconds, the name after a number, the name alone,
/// other names.
const UNITS: [(u64, &str, &str, &[&str]); 7] = [
    (604_800_000_000, "w", "week", &["weeks"]),
    (86_400_000_000, "d", "day", &["days"]),
    (3_600_000_000, "h", "hour", &["hours", "hr"]),
    (60_000_000, "m", "min", &["mins", "minute", "minutes"]),
    (1_000_000, "s", "s", &["sec", "secs", "second", "seconds"]),
    (1_000, "ms", "ms", &[]),
    (1, "us", "us", &["µs"]),
];

/// The longest text that is read. The longest text that is written has 56 bytes.
const MAX_BYTES: usize = 100;

impl FromStr for Quota {
    type Err = Error;

    /// Parses `AMOUNT/PERIOD`, or `AMOUNT/PERIOD burst BURST`.
    ///
    /// The period is a unit, as in `100/min`, or numbers with units, longest unit first, as in
    /// `5/10m` and `1000/1h30m`.
    ///
    /// | unit | names |
    /// |---|---|
    /// | microsecond | `us`, `µs` |
    /// | millisecond | `ms` |
    /// | second | `s`, `sec`, `second` |
    /// | minute | `m`, `min`, `minute` |
    /// | hour | `h`, `hr`, `hour` |
    /// | day of 24 hours | `d`, `day` |
    /// | week of 7 days | `w`, `week` |
    ///
    /// Months and years are no units, because their length varies: write `30d` or `365d`. Long
    /// names may end in `s`. Spaces are allowed around the slash, and between numbers and words.
    /// Digits may be grouped as in `1_000_000`. An amount of 0, as in `0/min`,
    /// [blocks](Self::is_blocked).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Quota;
    ///
    /// assert_eq!("100/min".parse::<Quota>()?, Quota::per_minute(100));
    /// assert_eq!("10/s burst 40".parse::<Quota>()?, Quota::per_second(10).with_burst(40));
    /// assert_eq!("1000/1h30m".parse::<Quota>()?, Quota::new(1_000, Duration::from_secs(5_400)));
    ///
    /// let error = "100/mni".parse::<Quota>().unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     r#"quota "100/mni", character 5: unknown unit "mni", expected us, ms, s, min, hour, day or week"#,
    /// );
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut reader = Reader::new("quota", text)?;
        let amount_at = reader.next_at();
        let amount = reader.number("a number of units, as in 100/min")?;
        if !reader.takes("/") {
            return Err(reader.expected("a slash, as in 100/min"));
        }
        let period_at = reader.next_at();
        let period = reader.period()?;
        let at = if amount > super::MAX_AMOUNT {
            amount_at
        } else {
            period_at
        };
        let quota = Self::try_new(amount, period).map_err(|error| reader.error(at, &error))?;
        if reader.is_at_end() {
            return Ok(quota);
        }
        if !reader.takes("burst") {
            return Err(reader.expected("the end, or a burst as in 100/min burst 20"));
        }
        let burst_at = reader.next_at();
        let burst = reader.number("a number after burst, as in 100/min burst 20")?;
        reader.end()?;
        quota
            .try_with_burst(burst)
            .map_err(|error| reader.error(burst_at, &error))
    }
}

impl Quota {
    /// Parses a period, such as `min`, `10m` or `1h30m`.
    ///
    /// It is the period of a quota in text form: see [`Quota::from_str`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Quota;
    ///
    /// assert_eq!(Quota::parse_period("10m")?, Duration::from_secs(600));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails with [`ErrorKind::Config`](crate::ErrorKind::Config) when the text is no period, or
    /// when the period is shorter than 1 µs or longer than 10 years (3650 days).
    ///
    /// [`Quota::from_str`]: #impl-FromStr-for-Quota
    pub fn parse_period(text: &str) -> Result<Duration, Error> {
        let mut reader = Reader::new("period", text)?;
        let at = reader.next_at();
        let period = reader.period()?;
        reader.end()?;
        Self::try_new(1, period)
            .map(|quota| quota.period())
            .map_err(|error| reader.error(at, &error))
    }
}

impl fmt::Display for Quota {
    /// Writes a short text that parses to the same quota.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.amount)?;
        write_period(f, self.period_us)?;
        if self.burst != self.amount {
            write!(f, " burst {}", self.burst)?;
        }
        Ok(())
    }
}

/// Writes a period: the name of its unit, or its length.
fn write_period(f: &mut fmt::Formatter<'_>, period_us: u64) -> fmt::Result {
    match UNITS.into_iter().find(|(us, ..)| *us == period_us) {
        Some((_, _, alone, _)) => f.write_str(alone),
        None => write_length(f, period_us),
    }
}

/// Writes a length of time in one unit, or in several when that is shorter.
pub(crate) fn write_length(f: &mut fmt::Formatter<'_>, period_us: u64) -> fmt::Result {
    let mut several = String::new();
    let mut left = period_us;
    for (us, short, ..) in UNITS {
        if left / us > 0 {
            several.push_str(&format!("{}{short}", left / us));
            left %= us;
        }
    }
    let Some((us, short, ..)) = UNITS
        .into_iter()
        .find(|(us, ..)| period_us.is_multiple_of(*us))
    else {
        return f.write_str(&several);
    };
    let one = format!("{}{short}", period_us / us);
    f.write_str(if several.len() < one.len() {
        &several
    } else {
        &one
    })
}

/// Splits a text into numbers, words and signs.
struct Reader<'a> {
    /// Names the kind of text in errors.
    kind: &'static str,
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn new(kind: &'static str, text: &'a str) -> Result<Self, Error> {
        if text.len() > MAX_BYTES {
            let start: String = text.chars().take(20).collect();
            return Err(Error::config(format!(
                "{kind} text must have at most {MAX_BYTES} bytes, got {} in {start:?}…",
                text.len()
            )));
        }
        Ok(Self { kind, text, at: 0 })
    }

    fn next_at(&self) -> usize {
        let rest = &self.text[self.at..];
        self.at + (rest.len() - rest.trim_start_matches(' ').len())
    }

    /// Returns the next token: digits, letters, or one other character. It is empty at the end.
    fn token(&self) -> &'a str {
        let rest = &self.text[self.next_at()..];
        let Some(first) = rest.chars().next() else {
            return "";
        };
        let end =
            |is_part: fn(char) -> bool| rest.find(|sign| !is_part(sign)).unwrap_or(rest.len());
        let len = if is_digit(first) {
            end(is_digit)
        } else if first.is_alphabetic() {
            end(char::is_alphabetic)
        } else {
            first.len_utf8()
        };
        &rest[..len]
    }

    fn skip(&mut self, token: &str) {
        self.at = self.next_at() + token.len();
    }

    fn is_at_end(&self) -> bool {
        self.token().is_empty()
    }

    fn takes(&mut self, token: &str) -> bool {
        let found = self.token() == token;
        if found {
            self.skip(token);
        }
        found
    }

    fn number(&mut self, expected: &str) -> Result<u64, Error> {
        let token = self.token();
        if !token.starts_with(|sign: char| sign.is_ascii_digit()) {
            return Err(self.expected(expected));
        }
        let number = token.replace('_', "").parse().map_err(|_| {
            self.error(
                self.next_at(),
                &format_args!("{token} is too large, the most is 999999999999999"),
            )
        })?;
        self.skip(token);
        Ok(number)
    }

    fn period(&mut self) -> Result<Duration, Error> {
        let token = self.token();
        if !token.starts_with(|sign: char| sign.is_ascii_digit()) {
            if token.is_empty() || !token.starts_with(char::is_alphabetic) {
                return Err(self.expected("a period such as min or 10m"));
            }
            let (us, ..) = self.unit(u64::MAX)?;
            return Ok(Duration::from_micros(us));
        }
        let (mut sum_us, mut shortest) = (0_u128, u64::MAX);
        while self.token().starts_with(|sign: char| sign.is_ascii_digit()) {
            let number = self.number("a number")?;
            let (us, ..) = self.unit(shortest)?;
            shortest = us;
            sum_us += u128::from(number) * u128::from(us);
        }
        // A longer period is refused as too long, whatever it is.
        Ok(Duration::from_micros(
            u64::try_from(sum_us).unwrap_or(u64::MAX),
        ))
    }

    /// Reads a unit that is shorter than the one before it.
    fn unit(&mut self, longer_us: u64) -> Result<(u64, &'static str), Error> {
        let token = self.token();
        let found = UNITS.into_iter().find(|(_, short, alone, others)| {
            token == *short || token == *alone || others.contains(&token)
        });
        let refused = match (found, token) {
            (Some((us, short, ..)), _) if us < longer_us => {
                self.skip(token);
                return Ok((us, short));
            }
            (Some(_), _) => format!("unit {token} must follow a longer unit, as in 1h30m"),
            (None, "mo" | "month" | "months") => {
                format!("unit {token} has no fixed length, write the number of days, such as 30d")
            }
            (None, "y" | "yr" | "year" | "years") => {
                format!("unit {token} has no fixed length, write the number of days, such as 365d")
            }
            (None, "") => "expected a unit, one of us, ms, s, min, hour, day or week".to_owned(),
            (None, _) => {
                format!("unknown unit {token:?}, expected us, ms, s, min, hour, day or week")
            }
        };
        Err(self.error(self.next_at(), &refused))
    }

    fn end(&self) -> Result<(), Error> {
        if self.is_at_end() {
            Ok(())
        } else {
            Err(self.expected("the end"))
        }
    }

    fn expected(&self, expected: &str) -> Error {
        match self.token() {
            "" => self.error(
                self.next_at(),
                &format_args!("expected {expected}, got the end"),
            ),
            token => self.error(
                self.next_at(),
                &format_args!("expected {expected}, got {token:?}"),
            ),
        }
    }

    fn error(&self, at: usize, message: &dyn fmt::Display) -> Error {
        let character = self.text[..at].chars().count() + 1;
        Error::config(format!(
            "{} {:?}, character {character}: {message}",
            self.kind, self.text
        ))
    }
}

fn is_digit(sign: char) -> bool {
    sign.is_ascii_digit() || sign == '_'
}

#[cfg(test)]
mod tests;
