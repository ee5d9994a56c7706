//! Reads the headers of a response: of an inner layer, of the service, or of a remote server.
//! What follows from the numbers is decided in `stack.rs` for responses of the service, and in
//! `received.rs` for those of others.

use std::{
    borrow::Cow,
    fmt,
    time::{Duration, SystemTime},
};

use http::{HeaderMap, HeaderName, HeaderValue, header};
use sfv::{
    BareItemFromInput, KeyRef, Parser, StringRef,
    visitor::{EntryVisitor, InnerListVisitor, ItemVisitor, ListVisitor, Never, ParameterVisitor},
};
use smallvec::SmallVec;

use super::{RETRY_AFTER_MS, go_duration, text::since_epoch, timestamp};

/// The numbers that a response reports of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) remaining: u64,
    /// The time until the reset. `None` when the header is missing or does not parse.
    pub(crate) reset: Option<Duration>,
}

/// Reads a limit by the names of its headers. `None` when the response lacks the remaining units.
pub(crate) fn read(headers: &HeaderMap, remaining: &str, reset: &str) -> Option<Reading> {
    let text = |name| headers.get(name)?.to_str().ok().map(str::trim);
    Some(Reading {
        remaining: parse_number(text(remaining)?)?,
        reset: text(reset).and_then(parse_reset),
    })
}

/// Parses the time until a reset: a number of seconds, a duration as Go writes it, or an instant of
/// RFC 3339.
fn parse_reset(text: &str) -> Option<Duration> {
    let instant = || Some(timestamp::parse(text)?.saturating_sub(since_epoch()));
    parse_number(text)
        .map(from_now)
        .or_else(|| go_duration::parse(text))
        .or_else(instant)
}

/// Converts a reset time in seconds to a delay. Servers write either seconds from now or seconds
/// since the Unix epoch.
pub(super) fn from_now(reset: u64) -> Duration {
    let reset = Duration::from_secs(reset);
    // A delay of more than 30 years must be a time since the epoch.
    if reset.as_secs() > 1_000_000_000 {
        reset.saturating_sub(since_epoch())
    } else {
        reset
    }
}

/// Parses a number of at most 15 digits, as RFC 9651 limits integers. `str::parse` would also
/// accept a sign.
pub(super) fn parse_number(text: &str) -> Option<u64> {
    let is_number =
        (1..=15).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// Returns the delay of `Retry-After`.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(header::RETRY_AFTER).and_then(parse_retry_after)
}

/// Parses the delay of a `Retry-After`: a number of any length, or a date (RFC 9110, section
/// 10.2.3).
pub(super) fn parse_retry_after(value: &HeaderValue) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
}

/// Returns the milliseconds of `retry-after-ms`. Clients read fractions of a millisecond, which are
/// ignored here.
pub(crate) fn retry_after_millis(headers: &HeaderMap) -> Option<u64> {
    let text = headers.get(RETRY_AFTER_MS)?.to_str().ok()?.trim();
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    parse_number(fraction)?;
    parse_number(whole)
}

/// Returns all lines of a header as one list.
pub(crate) fn lines_of(headers: &HeaderMap, name: &HeaderName) -> Vec<u8> {
    let lines: SmallVec<[&[u8]; 4]> = headers
        .get_all(name)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    lines.join(&b", "[..])
}

/// Stores the members of a list, each a string or an integer with parameters.
#[derive(Default)]
pub(crate) struct Members<'a>(SmallVec<[Member<'a>; 4]>);

#[derive(Default)]
pub(crate) struct Member<'a> {
    /// The name of the policy. `None` for a member that is an integer.
    pub(crate) name: Option<Cow<'a, StringRef>>,
    pub(super) remaining: Option<u64>,
    pub(super) until_more: Option<u64>,
    /// The remaining units under the name that the draft is going to give them.
    available: Option<u64>,
    quota: Option<u64>,
    /// The window of a quota. Beside remaining units, the time until there are more, under the name
    /// that the draft is going to give it.
    window: Option<u64>,
}

impl<'a> Members<'a> {
    /// Parses a list. Returns `None` when it is not one, or when a member is of another kind.
    pub(crate) fn parse(text: &'a [u8]) -> Option<Self> {
        let mut members = Self::default();
        Parser::new(text)
            .parse_list_with_visitor(&mut members)
            .ok()?;
        Some(members)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Member<'a>> {
        self.0.iter()
    }

    /// Returns the member with this name.
    pub(super) fn named(&self, name: &str) -> Option<&Member<'a>> {
        self.iter().find(|member| member.name() == name)
    }

    /// Returns whether all members have names that differ.
    fn are_named(&self) -> bool {
        self.iter().enumerate().all(|(at, member)| {
            member.name.is_some()
                && self
                    .iter()
                    .take(at)
                    .all(|earlier| earlier.name != member.name)
        })
    }

    /// Returns whether this may be the value of `RateLimit` in the syntax that is written here: names
    /// with remaining units. The coming names of the parameters make it one that is only read.
    pub(super) fn are_states(&self) -> bool {
        self.are_named() && self.iter().all(|member| member.remaining.is_some())
    }

    /// Returns whether this may be the value of `RateLimit-Policy` since revision 08: names with
    /// quotas.
    pub(super) fn are_policies(&self) -> bool {
        self.are_named() && self.iter().all(|member| member.quota.is_some())
    }

    /// Returns whether this may be the value of `RateLimit-Policy` before revision 08: quotas with
    /// windows.
    pub(super) fn are_quotas(&self) -> bool {
        self.iter()
            .all(|member| member.name.is_none() && member.window.is_some())
    }

    /// Returns whether this may be the value of `X-RateLimit-Limit` in the format of Envoy: a
    /// limit, and then quotas with windows.
    pub(super) fn are_limit_and_quotas(&self) -> bool {
        self.0.split_first().is_some_and(|(limit, quotas)| {
            limit.name.is_none()
                && limit.window.is_none()
                && !quotas.is_empty()
                && quotas
                    .iter()
                    .all(|member| member.name.is_none() && member.window.is_some())
        })
    }
}

impl Member<'_> {
    pub(super) fn name(&self) -> &str {
        self.name.as_ref().map_or("", |name| name.as_str())
    }

    /// Returns whether the member has a name and remaining units.
    pub(crate) fn is_state(&self) -> bool {
        self.name.is_some() && self.units_left().is_some()
    }

    /// Returns the remaining units: the parameter `r`, or `a` in the revision to come.
    pub(crate) fn units_left(&self) -> Option<u64> {
        self.remaining.or(self.available)
    }

    /// Returns the seconds until there are more units: the parameter `t`, or `w` in the revision to
    /// come.
    pub(crate) fn seconds_until_more(&self) -> Option<u64> {
        let coming = self
            .window
            .filter(|_| self.quota.is_none() && self.is_state());
        self.until_more.or(coming)
    }
}

/// Says that a member is neither a string nor an integer, or that a parameter is not a number.
#[derive(Debug)]
pub(crate) struct OtherKind;

impl fmt::Display for OtherKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a member of a rate limit header")
    }
}

impl std::error::Error for OtherKind {}

struct Visitor<'v, 'a>(&'v mut Member<'a>);

impl<'a> ListVisitor<'a> for Members<'a> {
    type Error = OtherKind;

    fn entry(&mut self) -> Result<impl EntryVisitor<'a>, OtherKind> {
        self.0.push(Member::default());
        self.0.last_mut().map(Visitor).ok_or(OtherKind)
    }
}

impl<'a> ItemVisitor<'a> for Visitor<'_, 'a> {
    type Error = OtherKind;

    fn bare_item(
        self,
        item: BareItemFromInput<'a>,
    ) -> Result<impl ParameterVisitor<'a>, OtherKind> {
        match item {
            BareItemFromInput::String(name) => self.0.name = Some(name),
            BareItemFromInput::Integer(_) => {}
            _ => return Err(OtherKind),
        }
        Ok(self)
    }
}

impl<'a> EntryVisitor<'a> for Visitor<'_, 'a> {
    fn inner_list(self) -> Result<impl InnerListVisitor<'a>, OtherKind> {
        Err::<Never, _>(OtherKind)
    }
}

impl<'a> ParameterVisitor<'a> for Visitor<'_, 'a> {
    type Error = OtherKind;

    fn parameter(
        &mut self,
        key: &'a KeyRef,
        value: BareItemFromInput<'a>,
    ) -> Result<(), OtherKind> {
        let parameter = match key.as_str() {
            "r" => &mut self.0.remaining,
            "a" => &mut self.0.available,
            "t" => &mut self.0.until_more,
            "q" => &mut self.0.quota,
            "w" => &mut self.0.window,
            _ => return Ok(()),
        };
        let BareItemFromInput::Integer(number) = value else {
            return Err(OtherKind);
        };
        *parameter = Some(u64::try_from(i64::from(number)).map_err(|_| OtherKind)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
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
            assert_eq!(
                parse_retry_after(&HeaderValue::from_static(text)),
                expected.map(Duration::from_secs),
                "{text}"
            );
        }
        let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(100));
        let found = parse_retry_after(&HeaderValue::try_from(date).unwrap())
            .unwrap()
            .as_secs();
        assert!((80..=100).contains(&found), "{found}");
    }

    #[test]
    fn each_format_knows_its_own_lists() {
        let kinds = |text: &'static str| {
            let members = Members::parse(text.as_bytes()).unwrap();
            [
                members.are_states(),
                members.are_policies(),
                members.are_quotas(),
                members.are_limit_and_quotas(),
            ]
        };
        assert_eq!(
            kinds(r#""a";r=1;t=2, "b";r=0"#),
            [true, false, false, false]
        );
        assert_eq!(
            kinds(r#""a";q=1;w=2, "b";q=1"#),
            [false, true, false, false]
        );
        assert_eq!(kinds("1;w=2, 3;w=4"), [false, false, true, false]);
        assert_eq!(
            kinds(r#"1, 1;w=2;name="a", 3;w=4"#),
            [false, false, false, true]
        );
        for neither in [
            r#""a";r=1, "a";r=2"#,
            r#""a";q=1, "b";q=1, "a";q=1"#,
            "1",
            "1, 2",
            "1;w=2, 3",
            r#""a";r=1, "b""#,
            r#""a";r=1, 2;w=3"#,
            r#"1, "a";q=1"#,
        ] {
            assert_eq!(kinds(neither), [false; 4], "{neither}");
        }
        for invalid in [
            "a",
            "1.5",
            "(1 2)",
            r#""a";r=-1"#,
            r#""a";r"#,
            r#""a";t="1""#,
            "1;w=1,",
            r#""a"#,
        ] {
            assert!(Members::parse(invalid.as_bytes()).is_none(), "{invalid}");
        }
    }

    #[test]
    fn the_coming_names_of_the_draft_are_read_and_not_combined_with() {
        let read = |text: &'static str| {
            let members = Members::parse(text.as_bytes()).unwrap();
            let of = |member: &Member<'_>| (member.units_left(), member.seconds_until_more());
            let found: Vec<_> = members.iter().map(of).collect();
            (
                found,
                members.are_states(),
                members.iter().all(Member::is_state),
            )
        };
        let both = vec![(Some(1), Some(2)), (Some(0), None)];
        assert_eq!(read(r#""a";r=1;t=2, "b";r=0"#), (both.clone(), true, true));
        assert_eq!(read(r#""a";a=1;w=2;c=3, "b";a=0"#), (both, false, true));
        let mixed = vec![(Some(1), Some(2)), (Some(0), Some(9))];
        assert_eq!(read(r#""a";r=1;t=2, "b";a=0;w=9"#), (mixed, false, true));
        // Where a response has both, it is of today.
        let today = vec![(Some(1), Some(2))];
        assert_eq!(read(r#""a";a=7;w=8;r=1;t=2"#), (today, true, true));
        // The window of a quota is no wait.
        assert_eq!(read(r#""a";q=1;w=2"#), (vec![(None, None)], false, false));
    }

    #[test]
    fn the_resets_of_all_formats_are_read_and_hostile_values_are_not() {
        let read = |remaining: &'static str, reset: &'static str| {
            let headers = [("remaining", remaining), ("reset", reset)];
            let headers = headers.map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            });
            read(&HeaderMap::from_iter(headers), "remaining", "reset")
        };
        let reading = |remaining, reset| Some(Reading { remaining, reset });
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(read("7", "6m0s"), reading(7, seconds(360)));
        assert_eq!(read(" 7 ", " 12 "), reading(7, seconds(12)));
        assert_eq!(read("7", "1000000000"), reading(7, seconds(1_000_000_000)));
        // More than thirty years are a time since the epoch.
        assert_eq!(read("7", "1000000001"), reading(7, seconds(0)));
        assert_eq!(read("7", "2000-01-01T00:00:00Z"), reading(7, seconds(0)));
        for reset in ["", "-6m0s", "soon", "1e9", "9999999999999999"] {
            assert_eq!(read("0", reset), reading(0, None), "{reset}");
        }
        // Azure writes -1 where it does not know.
        for remaining in ["", "-1", "+1", "1.5", "many", "9999999999999999"] {
            assert_eq!(read(remaining, "1s"), None, "{remaining}");
        }
    }
}
