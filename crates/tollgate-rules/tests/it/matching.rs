//! Each rule of matching.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tollgate_rules::{Descriptor, LimitOverride, MatchedBy, Unit};

use super::{envoy_rules, limit, rules};

fn leaf(key: &str, value: &str, name: &str) -> String {
    let value = if value.is_empty() {
        String::new()
    } else {
        format!("value: \"{value}\", ")
    };
    format!(
        "  - {{key: {key}, {value}rate_limit: {{name: {name}, unit: day, requests_per_unit: 9}}}}\n"
    )
}

fn file(leaves: &[(&str, &str, &str)]) -> String {
    let leaves = leaves
        .iter()
        .map(|(key, value, name)| leaf(key, value, name));
    format!("domain: d\ndescriptors:\n{}", leaves.collect::<String>())
}

#[test]
fn an_exact_value_comes_before_patterns_in_file_order_before_the_default() {
    let text = file(&[
        ("a", "", "default"),
        ("a", "x*z", "first"),
        ("a", "x*", "second"),
        ("a", "*", "third"),
        ("a", "xyz", "exact"),
    ]);
    for set in [rules(&text), envoy_rules(&text)] {
        assert_eq!(limit(&set, &[("a", "xyz")]).as_deref(), Some("exact"));
        assert_eq!(limit(&set, &[("a", "x1z")]).as_deref(), Some("first"));
        assert_eq!(limit(&set, &[("a", "x1")]).as_deref(), Some("second"));
        assert_eq!(limit(&set, &[("a", "1")]).as_deref(), Some("third"));
        assert_eq!(limit(&set, &[("b", "1")]), None);
    }
    let text = file(&[("a", "", "default"), ("a", "x*", "pattern")]);
    assert_eq!(
        limit(&rules(&text), &[("a", "y")]).as_deref(),
        Some("default")
    );
}

#[test]
fn matching_is_greedy_and_does_not_go_back() {
    let text = "
domain: d
descriptors:
  - key: a
    descriptors: [{key: b, rate_limit: {unit: day, requests_per_unit: 1}}]
  - key: a
    value: x
    descriptors: [{key: c, rate_limit: {unit: day, requests_per_unit: 2}}]
";
    for set in [rules(text), envoy_rules(text)] {
        assert_eq!(limit(&set, &[("a", "y"), ("b", "1")]).as_deref(), Some("1"));
        assert_eq!(limit(&set, &[("a", "x"), ("c", "1")]).as_deref(), Some("2"));
        // The exact value is chosen, and has no rule for b. The default, which has one, is not
        // tried.
        assert_eq!(limit(&set, &[("a", "x"), ("b", "1")]), None);
    }
}

#[test]
fn a_limit_applies_to_descriptors_of_its_depth_alone() {
    let text = "
domain: d
descriptors:
  - key: a
    rate_limit: {unit: day, requests_per_unit: 1}
    descriptors: [{key: b, rate_limit: {unit: day, requests_per_unit: 2}}]
  - key: c
    rate_limit: {unit: day, requests_per_unit: 3}
";
    for set in [rules(text), envoy_rules(text)] {
        assert_eq!(limit(&set, &[("a", "x")]).as_deref(), Some("1"));
        assert_eq!(limit(&set, &[("a", "x"), ("b", "y")]).as_deref(), Some("2"));
        assert_eq!(limit(&set, &[("a", "x"), ("b", "y"), ("c", "z")]), None);
        assert_eq!(limit(&set, &[("a", "x"), ("other", "y")]), None);
        assert_eq!(limit(&set, &[("c", "x"), ("d", "y")]), None);
    }
}

#[test]
fn a_descriptor_without_a_limit_excepts_its_value() {
    let text = "
domain: d
descriptors:
  - {key: a, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: a, value: friend}
";
    for set in [rules(text), envoy_rules(text)] {
        assert_eq!(limit(&set, &[("a", "friend")]), None);
        assert_eq!(limit(&set, &[("a", "foe")]).as_deref(), Some("1"));
    }
}

#[test]
fn an_override_replaces_the_limit_in_a_known_domain() {
    let text = "
domain: d
descriptors:
  - key: a
    shadow_mode: true
    quota_mode: true
    metadata: {x: 1}
    rate_limit: {unit: day, requests_per_unit: 1, name: n, replaces: [{name: m}]}
";
    for set in [rules(text), envoy_rules(text)] {
        let descriptor = Descriptor::from([("a", "x"), ("no", "rule")])
            .with_limit(LimitOverride::new(42, Unit::Hour));
        let found = set.find("d", &descriptor).unwrap();
        let rule = found.rule();
        assert!(found.is_override());
        assert_eq!(rule.amount(), Some((42, Unit::Hour.duration())));
        assert_eq!(
            (
                rule.is_shadow(),
                rule.is_quota(),
                rule.name(),
                rule.replaces().len()
            ),
            (false, false, None, 0)
        );
        assert!(rule.metadata().is_none());
        assert!(set.find("unknown", &descriptor).is_none());
        let denied = Descriptor::from([("a", "x")]).with_limit(LimitOverride::new(0, Unit::Second));
        assert_eq!(
            set.find("d", &denied).unwrap().rule().amount(),
            Some((0, Unit::Second.duration()))
        );
    }
}

#[test]
fn native_mode_compares_pairs_and_envoy_mode_joined_text() {
    let text = file(&[("a", "b_c", "pair"), ("x_y", "", "bare")]);
    let (native, envoy) = (rules(&text), envoy_rules(&text));
    assert_eq!(limit(&native, &[("a_b", "c")]), None);
    assert_eq!(limit(&envoy, &[("a_b", "c")]).as_deref(), Some("pair"));
    // A key alone is also found as the text of a pair.
    assert_eq!(limit(&native, &[("x", "y")]), None);
    assert_eq!(limit(&envoy, &[("x", "y")]).as_deref(), Some("bare"));
    // And a pair as a key alone.
    assert_eq!(limit(&native, &[("a_b_c", "9")]), None);
    assert_eq!(limit(&envoy, &[("a_b_c", "9")]).as_deref(), Some("pair"));
}

#[test]
fn an_empty_value_is_the_default_and_in_envoy_mode_also_the_key_with_a_separator() {
    let text = file(&[("a", "", "default"), ("a_", "", "separator")]);
    assert_eq!(
        limit(&rules(&text), &[("a", "")]).as_deref(),
        Some("default")
    );
    assert_eq!(
        limit(&envoy_rules(&text), &[("a", "")]).as_deref(),
        Some("separator")
    );
}

#[test]
fn the_text_of_a_pattern_matches_exactly_in_envoy_mode_alone() {
    let text = file(&[("a", "*", "first"), ("a", "x*", "second")]);
    assert_eq!(
        limit(&rules(&text), &[("a", "x*")]).as_deref(),
        Some("first")
    );
    assert_eq!(
        limit(&envoy_rules(&text), &[("a", "x*")]).as_deref(),
        Some("second")
    );
}

#[test]
fn a_pattern_in_a_key_matches_any_key_in_envoy_mode() {
    let envoy = envoy_rules(&file(&[("\"a*\"", "", "pattern")]));
    assert_eq!(limit(&envoy, &[("abc", "x")]).as_deref(), Some("pattern"));
    assert_eq!(limit(&envoy, &[("b", "x")]), None);
}

#[test]
fn a_pattern_does_not_match_another_key_in_native_mode() {
    let text = file(&[("a", "x*", "pattern")]);
    assert_eq!(
        limit(&rules(&text), &[("a", "x1")]).as_deref(),
        Some("pattern")
    );
    assert_eq!(limit(&rules(&text), &[("a_x", "1")]), None);
    assert_eq!(
        limit(&envoy_rules(&text), &[("a_x", "1")]).as_deref(),
        Some("pattern")
    );
}

#[test]
fn a_match_tells_how_each_entry_was_matched() {
    let set = rules(
        "
domain: d
descriptors:
  - key: a
    descriptors:
      - key: b
        value: x*
        descriptors: [{key: c, value: z, rate_limit: {unit: day, requests_per_unit: 1}}]
",
    );
    let descriptor = Descriptor::from([("a", "1"), ("b", "x1"), ("c", "z")]);
    let found = set.find("d", &descriptor).unwrap();
    let by: Vec<_> = found.matched_by().collect();
    assert_eq!(
        by,
        [MatchedBy::Default, MatchedBy::Pattern, MatchedBy::Value]
    );
    assert_eq!(found.rule().line(), Some(8));
}

#[test]
fn a_star_stands_for_zero_or_more_characters() {
    for (pattern, text, expected) in [
        ("a*", "a", true),
        ("a*", "abc", true),
        ("a*", "ba", false),
        ("*a", "ba", true),
        ("a*a", "a", false),
        ("a*a", "aa", true),
        ("a*b*c", "a-b-c", true),
        ("a*b*c", "a-c-b", false),
        ("ab*bc", "abc", false),
        ("**", "", true),
    ] {
        let set = rules(&file(&[("a", pattern, "pattern")]));
        let descriptor = Descriptor::from([("a", text)]);
        let found = set.find("d", &descriptor);
        assert_eq!(found.is_some(), expected, "{pattern} {text}");
    }
}

/// Matches by trying every length for each star.
fn matches_slowly(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => {
            (0..=text.len()).any(|skipped| matches_slowly(rest, &text[skipped..]))
        }
        Some((byte, rest)) => text.first() == Some(byte) && matches_slowly(rest, &text[1..]),
    }
}

proptest! {
    #[test]
    fn patterns_match_as_by_definition_in_the_order_of_the_file(
        patterns in prop::collection::vec("[ab]{0,3}\\*[ab*]{0,5}", 1..40),
        text in "[ab]{0,8}",
    ) {
        let mut seen = BTreeSet::new();
        let patterns: Vec<_> = patterns.iter().filter(|pattern| seen.insert(*pattern)).collect();
        let names: Vec<_> = (0..patterns.len()).map(|at| format!("p{at}")).collect();
        let leaves: Vec<_> = patterns
            .iter()
            .zip(&names)
            .map(|(pattern, name)| ("a", pattern.as_str(), name.as_str()))
            .collect();
        let set = rules(&file(&leaves));
        let descriptor = Descriptor::from([("a", text.as_str())]);
        let found = set.find("d", &descriptor);
        let expected = patterns
            .iter()
            .position(|pattern| matches_slowly(pattern.as_bytes(), text.as_bytes()));
        prop_assert_eq!(
            found.and_then(|found| found.rule().name().map(str::to_owned)),
            expected.map(|at| names[at].clone())
        );
    }
}

#[test]
fn entries_keep_their_order_beyond_those_in_place() {
    let mut descriptor = Descriptor::new();
    for count in 0..10 {
        assert_eq!(descriptor.entries().len(), count);
        descriptor.push(count.to_string(), "x");
    }
    let keys: Vec<_> = descriptor
        .entries()
        .iter()
        .map(|entry| entry.key().to_owned())
        .collect();
    assert_eq!(keys.concat(), "0123456789");
}
