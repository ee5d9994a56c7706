//! Instants in the form of RFC 3339: `2026-11-22T16:33:35Z`.
//! Which header has this form is decided in `header_format.rs`.

use std::time::Duration;

use http::HeaderValue;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::text::round_up;

/// The last second of the year 9999: RFC 3339 has years of four digits.
const LAST: u64 = 253_402_300_799;

/// Writes the instant at this time since the Unix epoch in UTC, rounded up to seconds.
pub(crate) fn value(since_epoch: Duration) -> Option<HeaderValue> {
    let seconds = i64::try_from(round_up(since_epoch).min(LAST)).ok()?;
    let text = OffsetDateTime::from_unix_timestamp(seconds)
        .ok()?
        .format(&Rfc3339)
        .ok()?;
    HeaderValue::try_from(text).ok()
}

/// Parses an instant. Returns the time since the Unix epoch, and zero for an earlier instant.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    let instant = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    Some(Duration::try_from(instant - OffsetDateTime::UNIX_EPOCH).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_written_in_utc_and_rounded_up() {
        for (millis, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (1, "1970-01-01T00:00:01Z"),
            (1_755_780_060_000, "2025-08-21T12:41:00Z"),
            (1_709_164_800_000, "2024-02-29T00:00:00Z"),
            (253_402_300_799_000, "9999-12-31T23:59:59Z"),
            (u64::MAX, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(value(Duration::from_millis(millis)).unwrap(), expected);
        }
    }

    #[test]
    fn instants_are_parsed_with_any_offset() {
        for (text, expected) in [
            ("2025-08-21T12:41:00Z", Duration::from_secs(1_755_780_060)),
            (
                "2025-08-21T14:41:00+02:00",
                Duration::from_secs(1_755_780_060),
            ),
            (
                "2025-08-21t12:41:00.250z",
                Duration::from_millis(1_755_780_060_250),
            ),
            ("1969-12-31T23:59:59Z", Duration::ZERO),
            ("0000-01-01T00:00:00Z", Duration::ZERO),
            ("9999-12-31T23:59:59Z", Duration::from_secs(LAST)),
        ] {
            assert_eq!(parse(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "now",
            "1755780060",
            "2025-08-21",
            "2025-08-21T12:41:00",
            "2025-13-21T12:41:00Z",
            "2025-02-30T12:41:00Z",
            "2025-08-21T25:41:00Z",
            "2025-08-21T12:41:00+99:00",
            "+12025-08-21T12:41:00Z",
            "2025-08-21T12:41:00Z, 2025-08-21T12:41:00Z",
            " 2025-08-21T12:41:00Z",
            "Thu, 21 Aug 2025 12:41:00 GMT",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
