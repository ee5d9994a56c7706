//! Adds the headers of a layer to those that the response has already: of an inner layer, or of the
//! service.
//!
//! Headers of the same format are combined: lists grow, and of single values the stricter ones
//! stay. Headers of another format are replaced, because a mixture of two formats is a value that
//! no client can parse.

// Headers of one layer alone are written in `writer.rs`.

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use smallvec::SmallVec;

use super::{
    HeaderLines, RATELIMIT, RATELIMIT_POLICY, Strictness, X_LIMIT,
    header_format::HeaderFormat,
    reader::{Member, Members, Reading, from_now, lines_of, parse_number, read, retry_after},
};

/// Returns the strictness of a member of a list.
fn strictness_of(member: &Member<'_>) -> Strictness {
    Strictness::new(
        member.remaining.unwrap_or(0),
        Duration::from_secs(member.until_more.unwrap_or(0)),
    )
}

/// Returns the strictness that the response reports in a format of single values.
fn strictness_inside(headers: &HeaderMap, own: &HeaderLines) -> Option<Strictness> {
    let member = |name: &str| {
        let mut members = headers.get(&RATELIMIT)?.to_str().ok()?.split(',');
        members.find_map(|member| parse_number(member.trim().strip_prefix(name)?))
    };
    let inside = match own.format {
        HeaderFormat::Ietf07 => Reading {
            remaining: member("remaining=")?,
            reset: member("reset=").map(from_now),
        },
        HeaderFormat::Ietf06 => read(headers, "ratelimit-remaining", "ratelimit-reset")?,
        HeaderFormat::OpenAi | HeaderFormat::Anthropic => {
            let [_, (remaining, _), (reset, _)] = &own.lines[..] else {
                return None;
            };
            read(headers, remaining.as_str(), reset.as_str())?
        }
        _ => read(headers, "x-ratelimit-remaining", "x-ratelimit-reset")?,
    };
    let wait = inside
        .reset
        .or_else(|| retry_after(headers))
        .unwrap_or_default();
    Some(Strictness::new(inside.remaining, wait))
}

/// Adds the lists of the default format. A name stands once in each list: of two states, the
/// stricter one stays.
#[cold]
pub(super) fn add_lists(policies: HeaderValue, states: HeaderValue, headers: &mut HeaderMap) {
    let (policies, states) =
        combined_lists(&policies, &states, headers).unwrap_or((policies, states));
    headers.insert(RATELIMIT_POLICY, policies);
    headers.insert(RATELIMIT, states);
}

/// Returns the lists of the response with the layer's own. Returns `None` when the response has
/// none of the format.
fn combined_lists(
    policies: &HeaderValue,
    states: &HeaderValue,
    headers: &HeaderMap,
) -> Option<(HeaderValue, HeaderValue)> {
    let (inner_policies, inner_states) = (
        lines_of(headers, &RATELIMIT_POLICY),
        lines_of(headers, &RATELIMIT),
    );
    let policies_inside = Members::parse(&inner_policies).filter(Members::are_policies)?;
    let states_inside = Members::parse(&inner_states).filter(Members::are_states)?;
    let own = Members::parse(states.as_bytes())?;
    // Of each name that stands in both, one is kept.
    let (mut kept_inside, mut kept_outside) =
        (SmallVec::<[&str; 4]>::new(), SmallVec::<[&str; 4]>::new());
    for member in own.iter() {
        match (
            policies_inside.named(member.name()),
            states_inside.named(member.name()),
        ) {
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
    let Some(text) = member.strip_prefix(b"\"") else {
        return false;
    };
    names.iter().any(|name| {
        text.strip_prefix(name.as_bytes())
            .is_some_and(|rest| rest.starts_with(b"\""))
    })
}

/// Adds single values, which stay or go as a whole. `until_more` is the wait of the layer in
/// seconds.
#[cold]
pub(super) fn add_lines(own: HeaderLines, until_more: u64, headers: &mut HeaderMap) {
    let ours = Strictness::new(
        own.remaining,
        own.reset.unwrap_or(Duration::from_secs(until_more)),
    );
    // These formats have no reset, so the wait inside is `Retry-After`, and an inner layer may have
    // taken it from this one.
    let may_be_ours = ours.waits()
        && matches!(
            own.format,
            HeaderFormat::Spring | HeaderFormat::RetryAfter | HeaderFormat::TowerGovernor
        );
    let is_stricter = match strictness_inside(headers, &own) {
        Some(theirs) => ours > theirs || may_be_ours && ours == theirs,
        None => true,
    };
    let limits_inside = lines_of(headers, &X_LIMIT);
    if is_stricter
        && own
            .format
            .own_names()
            .any(|name| name == "x-ratelimit-remaining")
    {
        // All headers of this family: a part of another format would contradict these.
        for name in HeaderFormat::GitHub
            .own_names()
            .chain(HeaderFormat::Spring.own_names())
        {
            headers.remove(name);
        }
    }
    for (name, value) in own.lines {
        let joined = if name == RATELIMIT_POLICY {
            Some(joined_quotas(&value, headers).unwrap_or_else(|| value.clone()))
        } else if name == X_LIMIT && own.format == HeaderFormat::Envoy03 {
            joined_limits(&limits_inside, &value, is_stricter)
        } else {
            None
        };
        if let Some(value) = joined.or_else(|| is_stricter.then_some(value)) {
            headers.insert(name, value);
        }
    }
}

/// Returns the quotas of the response with the layer's own. `None` when the response has none of
/// these formats.
fn joined_quotas(own: &HeaderValue, headers: &HeaderMap) -> Option<HeaderValue> {
    let inner = lines_of(headers, &RATELIMIT_POLICY);
    Members::parse(&inner).filter(Members::are_quotas)?;
    joined(split(&inner).chain([own.as_bytes()]))
}

/// Returns the limit of the stricter layer, and then the quotas of all layers. `None` when the
/// response has none.
fn joined_limits(inside: &[u8], own: &HeaderValue, is_stricter: bool) -> Option<HeaderValue> {
    Members::parse(inside).filter(Members::are_limit_and_quotas)?;
    let limit = split(if is_stricter { own.as_bytes() } else { inside }).take(1);
    let inner: SmallVec<[&[u8]; 4]> = split(inside).skip(1).collect();
    // A policy that limits two keys of the request stands once.
    let is_new = |own: &&[u8]| inner.iter().all(|inner| name_of(inner) != name_of(own));
    joined(
        limit
            .chain(inner.iter().copied())
            .chain(split(own.as_bytes()).skip(1).filter(is_new)),
    )
}

/// Returns the name of a policy in `X-RateLimit-Limit`, where it is the last parameter.
fn name_of(quota: &[u8]) -> Option<&[u8]> {
    const NAME: &[u8] = b";name=";
    let at = quota.windows(NAME.len()).position(|part| part == NAME)?;
    Some(&quota[at..])
}

/// Joins the members of a list.
fn joined<'a>(members: impl Iterator<Item = &'a [u8]>) -> Option<HeaderValue> {
    let members: SmallVec<[&[u8]; 8]> = members.collect();
    HeaderValue::try_from(members.join(&b", "[..])).ok()
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
    members
        .map(<[u8]>::trim_ascii)
        .filter(|member| !member.is_empty())
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
            let members: Vec<_> = split(text.as_bytes())
                .map(|member| std::str::from_utf8(member).unwrap())
                .collect();
            assert_eq!(members, expected);
            assert_eq!(
                Members::parse(text.as_bytes()).unwrap().iter().count(),
                expected.len()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sfv::{List, Parser};

    use super::*;

    const MEMBER: &str =
        r#""[a-c]";[rq]=[0-9](;t=[0-9])?(;x(="[,\\]\\"")?)?|1;w=2|limit=1|[ab]|%"a""#;

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
