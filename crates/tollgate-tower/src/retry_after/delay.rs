//! Reads from a response how long to delay the next request.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode, header};

use super::{field::text, layer::Settings, remaining, units};
use crate::headers::{RETRY_AFTER_MS, parse_number, retry_after_millis};

/// Returns the delay before the next request, or `None` when it may go out at once.
pub(crate) fn of(status: StatusCode, headers: &HeaderMap, settings: &Settings) -> Option<Duration> {
    let is_rejected = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    let may_be_rejected = is_rejected || settings.delays_on_forbidden && status == StatusCode::FORBIDDEN;
    let millis = || headers.get(RETRY_AFTER_MS).and_then(retry_after_millis).map(Duration::from_millis);
    if may_be_rejected && let Some(delay) = millis().or_else(|| retry_after(headers)) {
        return Some(delay);
    }
    // The rate limit headers in a cache belong to an earlier request, perhaps of another client.
    let is_cached = headers.contains_key(header::AGE);
    let until_more = if is_cached { None } else { remaining::until_more(headers) };
    if !is_rejected {
        return until_more;
    }
    // The clock of the server may be behind, so that a reset of zero says nothing after a rejection.
    let is_useful = |delay: &Duration| !delay.is_zero();
    let reset = || if is_cached { None } else { units::reset(headers) };
    Some(until_more.filter(is_useful).or_else(|| reset().filter(is_useful)).unwrap_or(settings.fallback))
}

/// Returns the delay of `Retry-After`: seconds, or a date (RFC 9110, section 10.2.3).
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = text(headers, "retry-after")?;
    match parse_number(text) {
        Some(seconds) => Some(Duration::from_secs(seconds)),
        None => {
            let date = httpdate::parse_http_date(text).ok()?;
            Some(date.duration_since(SystemTime::now()).unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use proptest::prelude::*;

    use super::{super::field::headers, *};

    const SETTINGS: Settings = Settings { fallback: Duration::from_secs(999), ..Settings::DEFAULT };
    const FORBIDDEN: Settings = Settings { delays_on_forbidden: true, ..SETTINGS };

    fn delay_with(settings: &Settings, status: u16, fields: &[(&'static str, &str)]) -> Option<Duration> {
        of(StatusCode::from_u16(status).unwrap(), &headers(fields), settings)
    }

    fn delay(status: u16, fields: &[(&'static str, &str)]) -> Option<u64> {
        delay_with(&SETTINGS, status, fields).map(|delay| delay.as_secs())
    }

    #[test]
    fn retry_after_of_a_429_or_503_comes_first() {
        let fields = [("retry-after", "7"), ("ratelimit", r#""a";r=0;t=50"#)];
        assert_eq!(delay(429, &fields), Some(7));
        assert_eq!(delay(503, &fields), Some(7));
        assert_eq!(delay(200, &fields), Some(50));
        assert_eq!(delay(301, &fields[..1]), None);
    }

    #[test]
    fn retry_after_may_be_a_date() {
        let date = |seconds| httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(seconds));
        let found = delay(429, &[("retry-after", &date(100))]).unwrap();
        assert!((80..=100).contains(&found), "{found}");
        assert_eq!(delay(429, &[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")]), Some(0));
    }

    #[test]
    fn a_429_or_503_without_a_valid_time_has_the_fallback() {
        for text in ["", "-1", "+5", "1.5", "soon", "5 s", "99999999999999999999"] {
            assert_eq!(delay(429, &[("retry-after", text)]), Some(999), "{text:?}");
        }
        assert_eq!(delay(503, &[]), Some(999));
        assert_eq!(delay(500, &[]), None);
    }

    #[test]
    fn milliseconds_come_before_seconds_where_they_are_valid() {
        let both = |millis| delay_with(&SETTINGS, 429, &[("retry-after-ms", millis), ("retry-after", "7")]);
        assert_eq!(both("1500"), Some(Duration::from_millis(1500)));
        assert_eq!(both(" 1500.75 "), Some(Duration::from_millis(1500)));
        for invalid in ["", "-5", "1500.", ".5", "1.2.3", "1e3", "soon", "NaN", "inf", "1,5"] {
            assert_eq!(both(invalid), Some(Duration::from_secs(7)), "{invalid}");
        }
        assert_eq!(delay(200, &[("retry-after-ms", "1500")]), None);
    }

    #[test]
    fn rate_limit_headers_from_a_cache_are_ignored() {
        assert_eq!(delay(200, &[("ratelimit", r#""a";r=0;t=5"#), ("age", "3")]), None);
        let tokens = [("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "5s"), ("age", "3")];
        assert_eq!(delay(429, &tokens), Some(999));
    }

    /// The answers of GitHub: <https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api>.
    #[test]
    fn a_403_of_github_delays_when_it_is_asked_for() {
        let secondary = [("retry-after", "60"), ("x-ratelimit-remaining", "4999"), ("x-ratelimit-reset", "1372700873")];
        assert_eq!(delay_with(&FORBIDDEN, 403, &secondary), Some(Duration::from_secs(60)));
        assert_eq!(delay_with(&SETTINGS, 403, &secondary), None);
        // The token has no right to do this. Waiting does not help.
        for settings in [&SETTINGS, &FORBIDDEN] {
            assert_eq!(delay_with(settings, 403, &secondary[1..]), None);
            assert_eq!(delay_with(settings, 403, &[]), None);
        }
        assert_eq!(delay_with(&FORBIDDEN, 401, &secondary), None);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let reset = (now + 100).to_string();
        let primary = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", reset.as_str())];
        for (settings, status) in [(&FORBIDDEN, 403), (&SETTINGS, 403), (&SETTINGS, 429)] {
            let found = delay_with(settings, status, &primary).unwrap().as_secs();
            assert!((80..=100).contains(&found), "{found}");
        }
    }

    #[test]
    fn a_reset_in_the_past_leaves_a_rejection_with_the_fallback() {
        let past = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1372700873")];
        assert_eq!(delay(429, &past), Some(999));
        assert_eq!(delay(200, &past), Some(0));
        assert_eq!(delay(429, &[("ratelimit", r#""a";r=0;t=0"#)]), Some(999));
    }

    proptest! {
        #[test]
        fn no_text_causes_a_panic(text in r#"["a-c;=,\\ rt0-9:?*-]{0,40}"#) {
            let names = [
                "ratelimit",
                "retry-after",
                "retry-after-ms",
                "x-ratelimit-remaining",
                "x-ratelimit-reset",
                "x-ratelimit-reset-tokens",
                "anthropic-ratelimit-tokens-reset",
            ];
            let mut fields = names.map(|name| (name, text.as_str())).to_vec();
            fields.push(("x-ratelimit-remaining-tokens", "0"));
            fields.push(("anthropic-ratelimit-tokens-remaining", "0"));
            for status in [200, 403, 429] {
                let _ = delay_with(&FORBIDDEN, status, &fields);
                let _ = delay_with(&FORBIDDEN, status, &fields[3..]);
            }
        }
    }
}
