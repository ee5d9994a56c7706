//! Times in headers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderValue;
use tollgate::PolicyState;

use super::numbers::parse_number;

/// Returns whole seconds, rounded up.
#[inline]
pub(crate) fn round_up(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// Returns the time since the Unix epoch, by the clock of this machine.
pub(super) fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns the time until a policy has more units, or until the denied request fits when no unit is left. Clients come
/// back at that time when no unit is left, so only then it grows by the jitter.
#[inline]
pub(super) fn until_more(state: &PolicyState<'_>, jitter: Duration) -> Duration {
    if state.remaining() > 0 {
        return state.more_after();
    }
    more_or_retry_after(state).saturating_add(jitter)
}

/// Returns the time until the denied request fits, or until an allowed request leaves one unit more.
#[inline]
pub(super) fn more_or_retry_after(state: &PolicyState<'_>) -> Duration {
    state.retry_after().unwrap_or_else(|| state.more_after())
}

/// Returns whole milliseconds, rounded up.
pub(crate) fn round_up_to_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Converts a reset time in seconds to a delay. Servers write either seconds from now or seconds since the Unix epoch.
pub(crate) fn from_now(reset: u64) -> Duration {
    let reset = Duration::from_secs(reset);
    // A delay of more than 30 years must be a time since the epoch.
    if reset.as_secs() > 1_000_000_000 { reset.saturating_sub(since_epoch()) } else { reset }
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
    use super::*;

    #[test]
    fn seconds_are_rounded_up() {
        assert_eq!(round_up(Duration::ZERO), 0);
        assert_eq!(round_up(Duration::from_micros(1)), 1);
        assert_eq!(round_up(Duration::from_secs(1)), 1);
        assert_eq!(round_up(Duration::from_micros(1_000_001)), 2);
    }

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
}
