//! Reads the rate limit headers whose reset is the time until there are more units.

use std::time::Duration;

use super::field::text;
use crate::headers::{Members, RATELIMIT, from_now, lines_of, parse_number};
use http::HeaderMap;

/// Returns the time until there are more units, when a header says that none remain.
pub(super) fn until_more(headers: &HeaderMap) -> Option<Duration> {
    for (remaining, reset) in
        [("ratelimit-remaining", "ratelimit-reset"), ("x-ratelimit-remaining", "x-ratelimit-reset")]
    {
        if text(headers, remaining).and_then(parse_number) == Some(0) {
            return text(headers, reset).and_then(parse_number).map(from_now);
        }
    }
    let lines = lines_of(headers, &RATELIMIT);
    // A header that does not parse is ignored as a whole, and so is one with a member that is not the state of a policy.
    let states = Members::parse(&lines)?;
    if !states.iter().all(|state| state.name.is_some() && state.remaining.is_some()) {
        return None;
    }
    let spent = states.iter().filter(|state| state.remaining == Some(0));
    spent.filter_map(|state| state.until_more).max().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use http::StatusCode;

    use super::super::{delay, field, layer::Settings};
    use super::*;

    fn delay(status: u16, fields: &[(&'static str, &str)]) -> Option<u64> {
        let settings = Settings { fallback: Duration::from_secs(999), ..Settings::DEFAULT };
        let headers = field::headers(fields);
        delay::of(StatusCode::from_u16(status).unwrap(), &headers, &settings).map(|delay| delay.as_secs())
    }

    #[test]
    fn headers_without_remaining_units_delay_until_there_are_more() {
        assert_eq!(delay(200, &[("ratelimit", r#""a";r=3;t=9, "b";r=0;t=5, "c";r=0;t=7"#)]), Some(7));
        assert_eq!(delay(200, &[("ratelimit", r#""a";r=0;t=5"#), ("ratelimit", r#""b";r=0;t=6"#)]), Some(6));
        assert_eq!(delay(200, &[("ratelimit", r#""a";r=3;t=9"#)]), None);
        assert_eq!(delay(200, &[("ratelimit", r#""a";r=0"#)]), None);
        assert_eq!(delay(200, &[("ratelimit", r#""a, \"b";pk=:AA==:;x="y;r=5";r=0; t=5"#)]), Some(5));
        assert_eq!(delay(200, &[("ratelimit-remaining", "0"), ("ratelimit-reset", "8")]), Some(8));
        assert_eq!(delay(200, &[("ratelimit-remaining", "1"), ("ratelimit-reset", "8")]), None);
        assert_eq!(delay(200, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "8")]), Some(8));
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 100;
        let found = delay(200, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", &epoch.to_string())]).unwrap();
        assert!((80..=100).contains(&found), "{found}");
    }

    /// Lists values of `RateLimit` that RFC 9651 or the draft rejects.
    const MALFORMED: [&str; 92] = [
        "",
        " ",
        "a;r=0;t=5",
        "a",
        "0",
        "*a;r=0;t=5",
        ":YQ==:;r=0;t=5",
        "?1;r=0;t=5",
        "1.5;r=0;t=5",
        "@1;r=0;t=5",
        r#"%"a";r=0;t=5"#,
        r#"("a");r=0;t=2"#,
        r#"("a" "b");r=0;t=2"#,
        "();r=0;t=2",
        r#"("a";r=0;t=2)"#,
        r#"{"a";r=0;t=2}"#,
        r#"["a";r=0;t=2]"#,
        r#""a";r=x;t=5"#,
        r#""a";r=0;t=x"#,
        r#""a";r=0;t=5,"#,
        r#""a";r=0;t=5, "#,
        r#""a";r=0;t=5,, "b";r=0;t=5"#,
        r#","a";r=0;t=5"#,
        r#""a";t=5"#,
        r#""a""#,
        r#""a;r=0;t=5"#,
        r#"a";r=0;t=5"#,
        "'a';r=0;t=5",
        "\"a\\b\";r=0;t=5",
        "\"a\\",
        "\"a\\\";r=0;t=5",
        r#""ä";r=0;t=5"#,
        "\"a\tb\";r=0;t=5",
        r#""a";r=0;t=5 "b""#,
        r#""a";r=0;t=5 "b";r=0;t=5"#,
        r#""a";r=0;t=5;"b";r=0"#,
        r#""a"r=0;t=5"#,
        r#""a" r=0;t=5"#,
        r#""a",r=0;t=5"#,
        r#""a"&r=0;t=5"#,
        r#""a" ;r=0;t=2"#,
        r#""a";r=0 ;t=2"#,
        r#""a";r=0;t=2 ;x"#,
        r#""a"; r =0;t=2"#,
        r#""a";r= 0;t=2"#,
        "\"a\";\tr=0;t=2",
        "\"a\";r=0;\tt=2",
        r#""a";r=0;t=2;"#,
        r#""a";r=0;t=2;;"#,
        r#""a";;r=0;t=2"#,
        r#""a";r=0;t=2;x="#,
        r#""a";r=;t=2"#,
        r#""a";r=0;t="#,
        r#""a";=0;t=2"#,
        r#""a";r=0;t=2;x=?2"#,
        r#""a";r=0;t=2;x=?"#,
        r#""a";r=0;t=2;x=:a"#,
        r#""a";r=0;t=2;x=:*:"#,
        r#""a";r=0;t=2;x=""#,
        r#""a";r=0;t=2;x=(1)"#,
        r#""a";r=0;t=2;x=@"#,
        r#""a";r=0;t=2;x=@1.5"#,
        r#""a";R=0;t=2"#,
        r#""a";r=0;T=2;X=1"#,
        r#""a";1=0;r=0;t=2"#,
        r#""a";-x;r=0;t=2"#,
        r#""a";r=-1;t=2"#,
        r#""a";r=0;t=-2"#,
        r#""a";r=+0;t=2"#,
        r#""a";r=0;t=+2"#,
        r#""a";r=0;t=2.5"#,
        r#""a";r=0.0;t=2"#,
        r#""a";r=0;t=2."#,
        r#""a";r=0;t=.5"#,
        r#""a";r=0;t=1e3"#,
        r#""a";r=0;t=0x5"#,
        r#""a";r="0";t=2"#,
        r#""a";r=0;t="2""#,
        r#""a";r=?0;t=2"#,
        r#""a";r;t=2"#,
        r#""a";r=0;t"#,
        r#""a";r=0;t=1234567890123456"#,
        r#""a";r=0000000000000000;t=2"#,
        r#""a";r=0;t=2;x=1.2345"#,
        "limit=1, remaining=0, reset=3",
        "limit=1,remaining=0,reset=3",
        "1, 1;w=3",
        r#""a";r=0;t=5, 7"#,
        r#""a";r=0;t=5, b;r=0"#,
        r#""a";r=0;t=5, ("b");r=0"#,
        r#""a";r=0;t=5, "b";r=x"#,
        r#""a";r=0;t=5, "b""#,
    ];

    #[test]
    fn a_header_that_does_not_parse_is_ignored_as_a_whole() {
        for text in MALFORMED {
            assert_eq!(delay(200, &[("ratelimit", text)]), None, "{text}");
            assert_eq!(delay(429, &[("ratelimit", text)]), Some(999), "{text}");
            // A valid line beside it is a part of the same value.
            assert_eq!(delay(200, &[("ratelimit", r#""b";r=0;t=5"#), ("ratelimit", text)]), None, "{text}");
        }
    }

    #[test]
    fn unusual_spellings_of_a_valid_header_are_read() {
        for text in [
            r#"  "a";r=0;t=5  "#,
            "\"a\";r=0;t=5 \t,\t \"b\";r=1",
            r#""a"; r=0;   t=5"#,
            r#""a";r=0;t=5;x;y=?0;z=:YQ==:;u=1.5;v=tok*en;d=@1659578233;s=%"a";k="\"""#,
            r#""a";r=9;r=0;t=1;t=5"#,
            r#""a";r=000;t=5"#,
            r#""a\"\\b";r=0;t=5"#,
            r#""";r=0;t=5"#,
        ] {
            assert_eq!(delay(200, &[("ratelimit", text)]), Some(5), "{text}");
        }
    }

    #[test]
    fn a_reset_of_more_than_thirty_years_is_a_time_since_the_epoch() {
        assert_eq!(from_now(1_000_000_000), Duration::from_secs(1_000_000_000));
        assert_eq!(from_now(1_000_000_001), Duration::ZERO);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let found = from_now(now + 60).as_secs();
        assert!((40..=60).contains(&found), "{found}");
    }
}
