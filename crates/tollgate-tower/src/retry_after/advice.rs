//! What an answer says about when to call again.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, StatusCode, header};

/// How long to wait before the next call; `None` when it may come at once.
pub(super) fn of(status: StatusCode, headers: &HeaderMap, fallback: Duration) -> Option<Duration> {
    let is_refused = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    if is_refused && let Some(wait) = retry_after(headers) {
        return Some(wait);
    }
    // What a cache kept was said to somebody else.
    let told = if headers.contains_key(header::AGE) { None } else { nothing_left(headers) };
    told.or(is_refused.then_some(fallback))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// Digits alone: `parse` would take a sign.
fn number(text: &str) -> Option<u64> {
    let is_number = (1..=15).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// Seconds, or a date (RFC 9110 §10.2.3).
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = text(headers, "retry-after")?;
    match number(text) {
        Some(seconds) => Some(Duration::from_secs(seconds)),
        None => {
            let date = httpdate::parse_http_date(text).ok()?;
            Some(date.duration_since(SystemTime::now()).unwrap_or_default())
        }
    }
}

/// The time until there is more, where a field says that nothing is left.
fn nothing_left(headers: &HeaderMap) -> Option<Duration> {
    for (remaining, reset) in
        [("ratelimit-remaining", "ratelimit-reset"), ("x-ratelimit-remaining", "x-ratelimit-reset")]
    {
        if text(headers, remaining).and_then(number) == Some(0) {
            return text(headers, reset).and_then(number).map(from_now);
        }
    }
    let lines = headers.get_all("ratelimit").iter().map(|line| line.to_str().ok());
    let members = lines.map(|line| list(line?)).collect::<Option<Vec<_>>>()?;
    let waits = members.into_iter().flatten().filter(|member| member.left == 0).filter_map(|member| member.more);
    waits.max().map(Duration::from_secs)
}

/// Seconds from now, or since the epoch: fields of one name are written with either meaning.
fn from_now(reset: u64) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // No limit lasts thirty years.
    if reset > 1_000_000_000 { Duration::from_secs(reset).saturating_sub(now) } else { Duration::from_secs(reset) }
}

/// What is left under one policy, and the seconds until there is more.
#[derive(Debug, PartialEq)]
struct Member {
    left: u64,
    more: Option<u64>,
}

/// The members of one line of `RateLimit`. `None` when it is no such list: then all of it is
/// ignored.
fn list(line: &str) -> Option<Vec<Member>> {
    let (mut rest, mut members) = (line.trim(), Vec::new());
    loop {
        rest = string(rest)?;
        let (mut left, mut more) = (None, None);
        while let Some(parameter) = rest.trim_start().strip_prefix(';') {
            let parameter = parameter.trim_start();
            let end = parameter.find(|it: char| !(it.is_ascii_alphanumeric() || "_-.*".contains(it)));
            let (name, behind) = parameter.split_at(end.unwrap_or(parameter.len()));
            let Some(value) = behind.strip_prefix('=') else {
                rest = behind;
                continue;
            };
            let end = if value.starts_with('"') {
                value.len() - string(value)?.len()
            } else {
                value.find([',', ';']).unwrap_or(value.len())
            };
            match name {
                "r" => left = Some(number(value[..end].trim())?),
                "t" => more = Some(number(value[..end].trim())?),
                _ => {}
            }
            rest = &value[end..];
        }
        members.push(Member { left: left?, more });
        rest = match rest.trim_start() {
            "" => return Some(members),
            rest => rest.strip_prefix(',')?.trim_start(),
        };
    }
}

/// What stands behind a quoted string.
fn string(text: &str) -> Option<&str> {
    let mut bytes = text.strip_prefix('"')?.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            // The quote in front is one byte more.
            b'"' => return text.get(at + 2..),
            b'\\' => _ = bytes.next()?,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    use super::*;

    fn advice(status: u16, fields: &[(&'static str, &str)]) -> Option<u64> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        of(StatusCode::from_u16(status).unwrap(), &headers, Duration::from_secs(999)).map(|it| it.as_secs())
    }

    #[test]
    fn retry_after_of_a_refusal_comes_first() {
        let fields = [("retry-after", "7"), ("ratelimit", r#""a";r=0;t=50"#)];
        assert_eq!(advice(429, &fields), Some(7));
        assert_eq!(advice(503, &fields), Some(7));
        assert_eq!(advice(200, &fields), Some(50));
        assert_eq!(advice(301, &fields[..1]), None);
    }

    #[test]
    fn a_date_is_read_too() {
        let date = |seconds| httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(seconds));
        let wait = advice(429, &[("retry-after", &date(100))]).unwrap();
        assert!((97..=100).contains(&wait), "{wait}");
        assert_eq!(advice(429, &[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")]), Some(0));
    }

    #[test]
    fn a_refusal_that_does_not_say_how_long_has_the_fallback() {
        for text in ["", "-1", "+5", "1.5", "soon", "5 s", "99999999999999999999"] {
            assert_eq!(advice(429, &[("retry-after", text)]), Some(999), "{text:?}");
        }
        assert_eq!(advice(503, &[]), Some(999));
        assert_eq!(advice(500, &[]), None);
    }

    #[test]
    fn nothing_left_says_until_when() {
        assert_eq!(advice(200, &[("ratelimit", r#""a";r=3;t=9, "b";r=0;t=5, "c";r=0;t=7"#)]), Some(7));
        assert_eq!(advice(200, &[("ratelimit", r#""a";r=0;t=5"#), ("ratelimit", r#""b";r=0;t=6"#)]), Some(6));
        assert_eq!(advice(200, &[("ratelimit", r#""a";r=3;t=9"#)]), None);
        assert_eq!(advice(200, &[("ratelimit", r#""a";r=0"#)]), None);
        assert_eq!(advice(200, &[("ratelimit", r#""a, \"b";pk=:AA==:;x="y;r=5";r=0 ; t=5"#)]), Some(5));
        assert_eq!(advice(200, &[("ratelimit-remaining", "0"), ("ratelimit-reset", "8")]), Some(8));
        assert_eq!(advice(200, &[("ratelimit-remaining", "1"), ("ratelimit-reset", "8")]), None);
        assert_eq!(advice(200, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "8")]), Some(8));
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 100;
        let wait = advice(200, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", &epoch.to_string())]).unwrap();
        assert!((98..=100).contains(&wait), "{wait}");
    }

    #[test]
    fn what_cannot_be_read_is_ignored_as_a_whole() {
        for text in
            ["", "a;r=0;t=5", r#""a";r=x;t=5"#, r#""a";r=0;t=5,"#, r#""a";t=5"#, r#""a;r=0;t=5"#, r#""a";r=0;t=5 "b""#]
        {
            assert_eq!(advice(200, &[("ratelimit", text)]), None, "{text}");
        }
        assert_eq!(advice(200, &[("ratelimit", r#""a";r=0;t=5"#), ("ratelimit", "junk")]), None);
    }

    #[test]
    fn a_cache_speaks_for_nobody() {
        assert_eq!(advice(200, &[("ratelimit", r#""a";r=0;t=5"#), ("age", "3")]), None);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in r#"["a-c;=,\\ rt0-9:?*-]{0,40}"#) {
            let _ = advice(429, &[("ratelimit", &text), ("retry-after", &text)]);
        }
    }
}
