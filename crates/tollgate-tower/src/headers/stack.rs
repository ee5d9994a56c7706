//! Adds the headers of a layer to those that the response has already: of an inner layer, or of the service.
//!
//! Headers of the same format are combined: lists grow, and of single values the stricter ones stay. Headers of another
//! format are replaced, because a mixture of two formats is a value that no client can parse.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, header};
use smallvec::SmallVec;

use super::{
    header_format::HeaderFormat,
    lines::HeaderLines,
    list::{Member, Members, split},
    names::{RATELIMIT, RATELIMIT_POLICY, RATELIMIT_REMAINING, RATELIMIT_RESET, X_LIMIT, X_REMAINING, X_RESET},
    parse::retry_after,
    seconds::from_now,
    strictness::Strictness,
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
fn lines_of(headers: &HeaderMap, name: &HeaderName) -> Vec<u8> {
    let lines: SmallVec<[&[u8]; 4]> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    lines.join(&b", "[..])
}

/// Joins the members of a list.
fn joined<'a>(members: impl Iterator<Item = &'a [u8]>) -> Option<HeaderValue> {
    let members: SmallVec<[&[u8]; 8]> = members.collect();
    HeaderValue::try_from(members.join(&b", "[..])).ok()
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
