//! Reads numbers and waits from headers.

use std::time::SystemTime;

use http::HeaderValue;

use super::seconds::round_up;

/// Parses a number of at most 15 digits, as RFC 9651 limits integers. `str::parse` would also accept a sign.
pub(crate) fn parse_number(text: &str) -> Option<u64> {
    let is_number = (1..=15).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// Returns the delay of a `Retry-After` in seconds, rounded up: a number of any length, or a date (RFC 9110, section
/// 10.2.3).
pub(super) fn retry_after(value: &HeaderValue) -> Option<u64> {
    let text = value.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(text.parse().unwrap_or(u64::MAX));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(round_up(date.duration_since(SystemTime::now()).unwrap_or_default()))
}

/// Returns the delay of a `retry-after-ms`. Clients read fractions of a millisecond, which are ignored here.
pub(crate) fn retry_after_millis(value: &HeaderValue) -> Option<u64> {
    let text = value.to_str().ok()?.trim();
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    parse_number(fraction)?;
    parse_number(whole)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn retry_after_is_a_number_or_a_date() {
        let past = "Sun, 06 Nov 1994 08:49:37 GMT";
        for (text, expected) in [
            ("7", Some(7)),
            ("0", Some(0)),
            (" 7 ", Some(7)),
            ("99999999999999999999", Some(u64::MAX)),
            (past, Some(0)),
            ("", None),
            ("+7", None),
            ("7.5", None),
            ("soon", None),
        ] {
            assert_eq!(retry_after(&HeaderValue::from_static(text)), expected, "{text}");
        }
        let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(100));
        let found = retry_after(&HeaderValue::try_from(date).unwrap()).unwrap();
        assert!((98..=100).contains(&found), "{found}");
    }

    #[test]
    fn parsed_numbers_have_at_most_fifteen_digits() {
        assert_eq!(parse_number("999999999999999"), Some(999_999_999_999_999));
        assert_eq!(parse_number("1000000000000000"), None);
        assert_eq!(parse_number("0"), Some(0));
        for text in ["", "+1", "-1", " 1", "1.0", "\u{661}"] {
            assert_eq!(parse_number(text), None, "{text}");
        }
    }
}
