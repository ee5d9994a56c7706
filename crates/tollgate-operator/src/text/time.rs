//! Reads a time in the forms that people and logs write it, and writes one.
//! Spans such as `2h` are read by the core.

use time::{
    OffsetDateTime, PrimitiveDateTime, format_description::BorrowedFormatItem,
    format_description::well_known::Rfc3339, macros::format_description,
};

/// The time in logs in the common format: `10/Oct/2000:13:55:36 -0700`.
const COMMON: &[BorrowedFormatItem<'_>] = format_description!(
    "[day]/[month repr:short]/[year]:[hour]:[minute]:[second] [offset_hour sign:mandatory][offset_minute]"
);

/// A time without an offset, which counts as UTC.
const PLAIN: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day] [hour]:[minute]:[second][optional [.[subsecond]]]");

/// The latest time, in the year 2255. The scripts of the limits have no later one either.
const LATEST_US: u64 = 1 << 53;

/// Reads a time, and returns microseconds since the Unix epoch. `None` for any other text.
///
/// It reads RFC 3339, the common log format, `2026-01-31 13:55:36` in UTC, and numbers: seconds,
/// and from 10¹¹ on milliseconds, from 10¹⁴ on microseconds. Times before the epoch and after the
/// year 2255 are refused.
#[must_use]
pub fn parse(text: &str) -> Option<u64> {
    read(text).filter(|micros| *micros < LATEST_US)
}

fn read(text: &str) -> Option<u64> {
    let text = text.trim();
    if text.starts_with(|first: char| first.is_ascii_digit())
        && let Some(micros) = number(text)
    {
        return Some(micros);
    }
    let parsed = OffsetDateTime::parse(text, &Rfc3339)
        .or_else(|_| OffsetDateTime::parse(text, COMMON))
        .or_else(|_| {
            PrimitiveDateTime::parse(&text.replacen('T', " ", 1), PLAIN)
                .map(PrimitiveDateTime::assume_utc)
        });
    u64::try_from(parsed.ok()?.unix_timestamp_nanos() / 1_000).ok()
}

/// Reads seconds, milliseconds or microseconds since the epoch.
fn number(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 17 || !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    // The digits behind the point, as microseconds.
    let digits: String = fraction.chars().chain("000000".chars()).take(6).collect();
    let micros: u64 = digits.parse().ok()?;
    match whole {
        0..100_000_000_000 => Some(whole * 1_000_000 + micros),
        100_000_000_000..100_000_000_000_000 => Some(whole * 1_000 + micros / 1_000),
        _ => Some(whole),
    }
}

/// Returns a time, in microseconds since the Unix epoch, as RFC 3339 in UTC.
#[must_use]
pub fn shown(micros: u64) -> String {
    let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(micros) * 1_000);
    time.ok()
        .and_then(|time| time.format(&Rfc3339).ok())
        .unwrap_or_else(|| format!("{micros} µs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_time_is_read() {
        const SECOND: u64 = 1_000_000;
        for (text, expected) in [
            ("10/Oct/2000:13:55:36 -0700", 971_211_336 * SECOND),
            ("2000-10-10T20:55:36Z", 971_211_336 * SECOND),
            (
                "2000-10-10T13:55:36.5-07:00",
                971_211_336 * SECOND + 500_000,
            ),
            ("2000-10-10 20:55:36", 971_211_336 * SECOND),
            ("2000-10-10T20:55:36.25", 971_211_336 * SECOND + 250_000),
            ("971211336", 971_211_336 * SECOND),
            ("971211336.123456789", 971_211_336 * SECOND + 123_456),
            ("971211336123", 971_211_336 * SECOND + 123_000),
            ("971211336123456", 971_211_336 * SECOND + 123_456),
        ] {
            assert_eq!(parse(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "-",
            "yesterday",
            "1.2.3",
            "1960-01-01T00:00:00Z",
            "999999999999999999999",
            "-5",
            "10/Oct/2000",
            "3000-01-01T00:00:00Z",
            "99999999999999999",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(shown(971_211_336 * SECOND), "2000-10-10T20:55:36Z");
    }
}
