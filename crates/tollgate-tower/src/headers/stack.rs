//! Adds the headers of a layer to those that the response has already: of an inner layer, or of the service.
//!
//! Headers of the same format are combined: lists grow, and of single values the stricter ones stay. Headers of another
//! format are replaced, because a mixture of two formats is a value that no client can parse.

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

use super::{
    HeaderLines, RATELIMIT, RATELIMIT_POLICY, RATELIMIT_REMAINING, RATELIMIT_RESET, Strictness, X_LIMIT, X_REMAINING,
    X_RESET,
    header_format::HeaderFormat,
    text::{from_now, round_up},
};

/// Returns the strictness of a member of a list.
fn strictness_of(member: &Member<'_>) -> Strictness {
    Strictness::new(member.remaining.unwrap_or(0), Duration::from_secs(member.until_more.unwrap_or(0)))
}

/// Returns the strictness that the response reports in a format of single values.
fn strictness_inside(headers: &HeaderMap, format: HeaderFormat) -> Option<Strictness> {
    let text = |name: &HeaderName| headers.get(name)?.to_str().ok();
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let member = |name: &str| {
        let value = text(&RATELIMIT)?;
        value.split(',').find_map(|member| number(member.trim().strip_prefix(name)?))
    };
    let (remaining, reset) = match format {
        HeaderFormat::Ietf07 => (member("remaining="), member("reset=")),
        _ => {
            let (remaining, reset) = match format {
                HeaderFormat::Ietf06 => (&RATELIMIT_REMAINING, &RATELIMIT_RESET),
                _ => (&X_REMAINING, &X_RESET),
            };
            (text(remaining).and_then(number), text(reset).and_then(number))
        }
    };
    let retry_after = || headers.get(header::RETRY_AFTER).and_then(retry_after).map(Duration::from_secs);
    let wait = reset.map(from_now).or_else(retry_after);
    remaining.map(|remaining| Strictness::new(remaining, wait.unwrap_or_default()))
}

/// Adds the lists of the default format. A name stands once in each list: of two states, the stricter one stays.
#[cold]
pub(super) fn add_lists(policies: HeaderValue, states: HeaderValue, headers: &mut HeaderMap) {
    let (policies, states) = combined_lists(&policies, &states, headers).unwrap_or((policies, states));
    headers.insert(RATELIMIT_POLICY, policies);
    headers.insert(RATELIMIT, states);
}

/// Returns the lists of the response with those of the layer. Returns `None` when the response has none of the format.
fn combined_lists(
    policies: &HeaderValue,
    states: &HeaderValue,
    headers: &HeaderMap,
) -> Option<(HeaderValue, HeaderValue)> {
    let (inner_policies, inner_states) = (lines_of(headers, &RATELIMIT_POLICY), lines_of(headers, &RATELIMIT));
    let policies_inside = Members::parse(&inner_policies).filter(Members::are_policies)?;
    let states_inside = Members::parse(&inner_states).filter(Members::are_states)?;
    let own = Members::parse(states.as_bytes())?;
    // Of each name that stands in both, one is kept.
    let (mut kept_inside, mut kept_outside) = (SmallVec::<[&str; 4]>::new(), SmallVec::<[&str; 4]>::new());
    for member in own.iter() {
        match (policies_inside.named(member.name()), states_inside.named(member.name())) {
            (None, None) => {}
            (Some(_), Some(other)) if strictness_of(other) >= strictness_of(member) => {
                kept_inside.push(member.name());
            }
            _ => kept_outside.push(member.name()),
        }
    }
    let join = |inner: &[u8], own: &HeaderValue| {
        let inner = split(inner).filter(|member| !has_name(member, &kept_outside));
        joined(inner.chain(split(own.as_bytes()).filter(|member| !has_name(member, &kept_inside))))
    };
    join(&inner_policies, policies).zip(join(&inner_states, states))
}

/// Returns whether a member of a list has one of these names.
fn has_name(member: &[u8], names: &[&str]) -> bool {
    let Some(text) = member.strip_prefix(b"\"") else { return false };
    names.iter().any(|name| text.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"\"")))
}

/// Adds single values, which stay or go as a whole.
#[cold]
pub(super) fn add_lines(own: HeaderLines, until_more: u64, headers: &mut HeaderMap) {
    let HeaderLines { format, policies, lines, remaining } = own;
    if let Some(policies) = policies {
        let inner = lines_of(headers, &RATELIMIT_POLICY);
        let is_list = Members::parse(&inner).is_some_and(|members| members.are_quotas());
        let all = joined(split(&inner).chain([policies.as_bytes()])).filter(|_| is_list);
        headers.insert(RATELIMIT_POLICY, all.unwrap_or(policies));
    }
    let ours = Strictness::new(remaining, Duration::from_secs(until_more));
    // These formats have no reset, so the wait inside is `Retry-After`, and an inner layer may have taken it from this one.
    let may_be_ours =
        ours.waits() && matches!(format, HeaderFormat::Spring | HeaderFormat::RetryAfter | HeaderFormat::TowerGovernor);
    let is_stricter = match strictness_inside(headers, format) {
        Some(theirs) => ours > theirs || may_be_ours && ours == theirs,
        None => true,
    };
    let limits_inside = lines_of(headers, &X_LIMIT);
    if is_stricter {
        for name in format.single_names() {
            headers.remove(*name);
        }
        for (name, value) in &lines {
            headers.insert(name, value.clone());
        }
    }
    if format == HeaderFormat::Envoy03
        && Members::parse(&limits_inside).is_some_and(|members| members.are_limit_and_quotas())
        && let Some((_, limits)) = lines.iter().find(|(name, _)| *name == X_LIMIT)
    {
        // The limit of the stricter layer comes first, and then the policies of all layers.
        let limit = split(if is_stricter { limits.as_bytes() } else { &limits_inside }).take(1);
        let inner: SmallVec<[&[u8]; 4]> = split(&limits_inside).skip(1).collect();
        // A policy that limits two keys of the request stands once.
        let is_new = |own: &&[u8]| inner.iter().all(|inner| name_of(inner) != name_of(own));
        let quotas = inner.iter().copied().chain(split(limits.as_bytes()).skip(1).filter(is_new));
        if let Some(limits) = joined(limit.chain(quotas)) {
            headers.insert(X_LIMIT, limits);
        }
    }
}

/// Returns the name of a policy in `X-RateLimit-Limit`, where it is the last parameter.
fn name_of(quota: &[u8]) -> Option<&[u8]> {
    const NAME: &[u8] = b";name=";
    let at = quota.windows(NAME.len()).position(|part| part == NAME)?;
    Some(&quota[at..])
}

/// Returns all lines of a header as one list.
pub(crate) fn lines_of(headers: &HeaderMap, name: &HeaderName) -> Vec<u8> {
    let lines: SmallVec<[&[u8]; 4]> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    lines.join(&b", "[..])
}

/// Joins the members of a list.
fn joined<'a>(members: impl Iterator<Item = &'a [u8]>) -> Option<HeaderValue> {
    let members: SmallVec<[&[u8]; 8]> = members.collect();
    HeaderValue::try_from(members.join(&b", "[..])).ok()
}

/// Stores the members of a list, each a string or an integer with parameters.
#[derive(Default)]
pub(crate) struct Members<'a>(SmallVec<[Member<'a>; 4]>);

#[derive(Default)]
pub(crate) struct Member<'a> {
    /// The name of the policy. `None` for a member that is an integer.
    pub(crate) name: Option<Cow<'a, StringRef>>,
    pub(crate) remaining: Option<u64>,
    pub(crate) until_more: Option<u64>,
    quota: Option<u64>,
    window: Option<u64>,
}

impl<'a> Members<'a> {
    /// Parses a list. Returns `None` when it is not one, or when a member is of another kind.
    pub(crate) fn parse(text: &'a [u8]) -> Option<Self> {
        let mut members = Self::default();
        Parser::new(text).parse_list_with_visitor(&mut members).ok()?;
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
            member.name.is_some() && self.iter().take(at).all(|earlier| earlier.name != member.name)
        })
    }

    /// Returns whether this may be the value of `RateLimit`: names with remaining units.
    pub(super) fn are_states(&self) -> bool {
        self.are_named() && self.iter().all(|member| member.remaining.is_some())
    }

    /// Returns whether this may be the value of `RateLimit-Policy` since revision 08: names with quotas.
    pub(super) fn are_policies(&self) -> bool {
        self.are_named() && self.iter().all(|member| member.quota.is_some())
    }

    /// Returns whether this may be the value of `RateLimit-Policy` before revision 08: quotas with windows.
    pub(super) fn are_quotas(&self) -> bool {
        self.iter().all(|member| member.name.is_none() && member.window.is_some())
    }

    /// Returns whether this may be the value of `X-RateLimit-Limit` in the format of Envoy: a limit, and then quotas with
    /// windows.
    pub(super) fn are_limit_and_quotas(&self) -> bool {
        self.0.split_first().is_some_and(|(limit, quotas)| {
            limit.name.is_none()
                && limit.window.is_none()
                && !quotas.is_empty()
                && quotas.iter().all(|member| member.name.is_none() && member.window.is_some())
        })
    }
}

impl Member<'_> {
    pub(super) fn name(&self) -> &str {
        self.name.as_ref().map_or("", |name| name.as_str())
    }
}

/// Splits a valid list into the texts of its members.
pub(super) fn split(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let members = text.split(move |byte| {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b',' => return !is_quoted,
            _ => {}
        }
        false
    });
    members.map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
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

    fn bare_item(self, item: BareItemFromInput<'a>) -> Result<impl ParameterVisitor<'a>, OtherKind> {
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

    fn parameter(&mut self, key: &'a KeyRef, value: BareItemFromInput<'a>) -> Result<(), OtherKind> {
        let parameter = match key.as_str() {
            "r" => &mut self.0.remaining,
            "t" => &mut self.0.until_more,
            "q" => &mut self.0.quota,
            "w" => &mut self.0.window,
            _ => return Ok(()),
        };
        let BareItemFromInput::Integer(number) = value else { return Err(OtherKind) };
        *parameter = Some(u64::try_from(i64::from(number)).map_err(|_| OtherKind)?);
        Ok(())
    }
}

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
mod parse_tests {
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
        assert!((80..=100).contains(&found), "{found}");
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

#[cfg(test)]
mod list_tests {
    use super::*;

    #[test]
    fn a_list_is_split_at_commas_outside_of_strings() {
        for (text, expected) in [
            ("", &[][..]),
            ("1;w=2", &["1;w=2"]),
            (r#""a";r=1 ,  "b";r=2"#, &[r#""a";r=1"#, r#""b";r=2"#]),
            (r#""a, b";r=1, "c""#, &[r#""a, b";r=1"#, r#""c""#]),
            (r#""a\", b";x="\\", "c""#, &[r#""a\", b";x="\\""#, r#""c""#]),
        ] {
            let members: Vec<_> = split(text.as_bytes()).map(|member| std::str::from_utf8(member).unwrap()).collect();
            assert_eq!(members, expected);
            assert_eq!(Members::parse(text.as_bytes()).unwrap().iter().count(), expected.len());
        }
    }

    #[test]
    fn each_format_knows_its_own_lists() {
        let kinds = |text: &'static str| {
            let members = Members::parse(text.as_bytes()).unwrap();
            [members.are_states(), members.are_policies(), members.are_quotas(), members.are_limit_and_quotas()]
        };
        assert_eq!(kinds(r#""a";r=1;t=2, "b";r=0"#), [true, false, false, false]);
        assert_eq!(kinds(r#""a";q=1;w=2, "b";q=1"#), [false, true, false, false]);
        assert_eq!(kinds("1;w=2, 3;w=4"), [false, false, true, false]);
        assert_eq!(kinds(r#"1, 1;w=2;name="a", 3;w=4"#), [false, false, false, true]);
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
        for invalid in ["a", "1.5", "(1 2)", r#""a";r=-1"#, r#""a";r"#, r#""a";t="1""#, "1;w=1,", r#""a"#] {
            assert!(Members::parse(invalid.as_bytes()).is_none(), "{invalid}");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sfv::{List, Parser};

    use super::*;

    const MEMBER: &str = r#""[a-c]";[rq]=[0-9](;t=[0-9])?(;x(="[,\\]\\"")?)?|1;w=2|limit=1|[ab]|%"a""#;

    proptest! {
        #[test]
        fn whatever_the_service_has_set_the_lists_parse_and_name_each_policy_once(
            policies in prop::collection::vec(MEMBER, 0..4),
            states in prop::collection::vec(MEMBER, 0..4),
            junk in r#"["a-c;=,\\ rtqw0-9()%:]{0,20}"#,
            remaining in 0..3_u64,
        ) {
            let mut headers = HeaderMap::new();
            for (name, members) in [(RATELIMIT_POLICY, policies), (RATELIMIT, states)] {
                // Each member is a line of its own.
                for member in members {
                    headers.append(&name, HeaderValue::try_from(member).unwrap());
                }
            }
            if remaining == 0 {
                headers.append(RATELIMIT, HeaderValue::try_from(junk).unwrap());
            }
            let own = format!(r#""a";r={remaining};t=4, "d";r=1"#);
            add_lists(
                HeaderValue::from_static(r#""a";q=9;w=9, "d";q=9"#),
                HeaderValue::try_from(own).unwrap(),
                &mut headers,
            );
            for name in [RATELIMIT_POLICY, RATELIMIT] {
                let lines: Vec<_> = headers.get_all(&name).iter().collect();
                prop_assert_eq!(lines.len(), 1);
                let list = Parser::new(lines[0].as_bytes()).parse::<List>();
                prop_assert!(list.is_ok(), "{:?}", lines);
                let members = Members::parse(lines[0].as_bytes());
                prop_assert!(members.is_some(), "{:?}", lines);
                for own in ["a", "d"] {
                    let count = members.iter().flat_map(Members::iter).filter(|member| member.name() == own).count();
                    prop_assert_eq!(count, 1, "{:?}", lines);
                }
            }
        }
    }
}
