//! Names in metrics, and the counters of Envoy's service.

use tollgate_rules::{Descriptor, LimitOverride, RuleSet, Unit};

use super::{envoy_rules, rules};

fn file(first: &str, second: &str, leaf: &str) -> String {
    format!(
        "
domain: d
descriptors:
  - key: a
    {first}
    descriptors:
      - key: b
        {second}
        {leaf}
        metadata: {{x: 1}}
        rate_limit: {{unit: minute, requests_per_unit: 5}}
"
    )
}

fn name(set: &RuleSet) -> String {
    let descriptor = Descriptor::from([("a", "one"), ("b", "two")]);
    set.find("d", &descriptor)
        .unwrap()
        .metric_name()
        .into_owned()
}

#[test]
fn a_metric_is_named_by_the_rule_or_by_the_values_of_the_request() {
    for (first, second, leaf, expected) in [
        ("value: one", "value: two", "", "d.a_one.b_two"),
        ("value: o*", "value: t*", "", "d.a_o*.b_t*"),
        ("", "", "", "d.a.b"),
        ("", "value_to_metric: true", "", "d.a.b_two"),
        ("value_to_metric: true", "", "", "d.a_one.b"),
        (
            "value: o*\n    value_to_metric: true",
            "value: t*",
            "",
            "d.a_one.b_t*",
        ),
        ("", "", "detailed_metric: true", "d.a_one.b_two"),
        ("detailed_metric: true", "", "", "d.a.b"),
        (
            "value: o*\n    share_threshold: true\n    value_to_metric: true",
            "",
            "",
            "d.a_o*.b",
        ),
        (
            "value: o*\n    share_threshold: true",
            "",
            "detailed_metric: true",
            "d.a_o*.b_two",
        ),
    ] {
        let text = file(first, second, leaf);
        for set in [rules(&text), envoy_rules(&text)] {
            assert_eq!(name(&set), expected, "{text}");
        }
    }
}

#[test]
fn addresses_and_separators_are_replaced_in_metric_names() {
    for (domain, key, expected) in [
        ("shop", "ip_192.0.2.7", "shop.ip_192_0_2_7"),
        ("shop", "ip_1192.0.2.7890.x", "shop.ip_1192_0_2_7890.x"),
        ("a", "b.1.2.3", "a.b.1.2.3"),
        ("a:b|c", "1.2.3.4.5", "a_b_c.1_2_3_4.5"),
        ("ä", "1.2.3.4", "ä.1_2_3_4"),
    ] {
        let limit = "rate_limit: {unit: minute, requests_per_unit: 5}";
        let set = rules(&format!(
            "{{domain: \"{domain}\", descriptors: [{{key: \"{key}\", {limit}}}]}}"
        ));
        let metrics: Vec<_> = set.rules().map(|rule| rule.metric_name()).collect();
        assert_eq!(metrics, [expected]);
    }
}

#[test]
fn the_domain_is_no_part_of_the_name_of_a_policy() {
    for domain in ["shop", "shop.example.com", "."] {
        let set = rules(&format!(
            "{{domain: {domain}, descriptors: [{{key: a, descriptors: [{{key: b, rate_limit: {{quota: 5/min}}}}]}}]}}"
        ));
        let policies = set.rules().next().unwrap().policies().unwrap();
        assert_eq!(policies.iter().next().unwrap().name(), "a.b");
    }
}

#[test]
fn names_of_policies_are_allowed_and_different() {
    let given = [64, 65, 66].map(|length| "x".repeat(length));
    let others = ["a*", "a-", "a ", "b_/c.d"].map(str::to_owned);
    let given: Vec<_> = given.into_iter().chain(others).collect();
    let descriptors: Vec<_> = given
        .iter()
        .map(|name| {
            let limit = format!("{{name: \"{name}\", quota: 5/min}}");
            format!("{{key: k, value: \"{name}\", rate_limit: {limit}}}")
        })
        .collect();
    let set = rules(&format!(
        "{{domain: d, descriptors: [{}]}}",
        descriptors.join(", ")
    ));
    let names: Vec<_> = set
        .rules()
        .map(|rule| rule.policies().unwrap().iter().next().unwrap().name())
        .collect();
    for (at, name) in names.iter().enumerate() {
        assert!(!names[..at].contains(name), "{name}");
    }
    assert_eq!(names[0], given[0]);
    assert_eq!(names[3..5], ["a-.309d53c29cfb", "a-"]);
    assert_eq!(names[6], "b_/c.d");
}

#[test]
fn an_override_is_named_by_the_values_of_the_request() {
    let text = "domain: d\n";
    for set in [rules(text), envoy_rules(text)] {
        let descriptor = Descriptor::from([("ip", "192.0.2.7"), ("none", "")])
            .with_limit(LimitOverride::new(1, Unit::Day));
        assert_eq!(
            set.find("d", &descriptor).unwrap().metric_name(),
            "d.ip_192_0_2_7.none"
        );
    }
}

#[test]
fn metadata_is_lost_in_envoy_mode_where_the_metric_has_values_of_requests() {
    for (second, leaf, is_kept) in [
        ("", "", true),
        ("value_to_metric: true", "", false),
        ("", "detailed_metric: true", false),
    ] {
        let text = file("", second, leaf);
        let descriptor = Descriptor::from([("a", "one"), ("b", "two")]);
        let (native, envoy) = (rules(&text), envoy_rules(&text));
        assert!(native.find("d", &descriptor).unwrap().metadata().is_some());
        assert_eq!(
            envoy.find("d", &descriptor).unwrap().metadata().is_some(),
            is_kept,
            "{text}"
        );
    }
}

#[test]
fn the_counter_of_envoys_service_ends_with_the_start_of_the_window() {
    let set = envoy_rules(
        "
domain: d
descriptors:
  - {key: a, value: x*, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 5}}
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 5}}
",
    );
    let key = |value| {
        let descriptor = Descriptor::from([("a", value)]);
        set.find("d", &descriptor).unwrap().envoy_key(7_261)
    };
    assert_eq!(key("b"), "d_a_b_7260");
    assert_eq!(key("xyz"), "d_a_x*_7200");
}

#[test]
fn counters_collide_in_envoy_mode_as_in_envoys_service() {
    let text = "
domain: d
descriptors:
  - {key: a, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: a_b, rate_limit: {unit: day, requests_per_unit: 1}}
";
    let keys = |set: &RuleSet| {
        let (one, two) = (
            Descriptor::from([("a", "b_c")]),
            Descriptor::from([("a_b", "c")]),
        );
        (
            set.find("d", &one).unwrap().key(),
            set.find("d", &two).unwrap().key(),
        )
    };
    let (one, two) = keys(&envoy_rules(text));
    assert_eq!(one, two);
    let (one, two) = keys(&rules(text));
    assert_ne!(one, two);
}

#[test]
fn a_shared_pattern_in_the_key_names_its_counter_also_for_a_key_of_the_same_text() {
    let set = envoy_rules(
        "{domain: d, descriptors: [{key: a*, share_threshold: true, rate_limit: {unit: day, requests_per_unit: 1}}]}",
    );
    let key = |key| {
        set.find("d", &Descriptor::from([(key, "v")]))
            .unwrap()
            .envoy_key(0)
    };
    assert_eq!(
        (key("ab").as_str(), key("a*").as_str()),
        ("d_ab_a*_0", "d_a*_a*_0")
    );
}

#[test]
fn a_shared_counter_differs_from_that_of_a_value_with_the_text_of_the_pattern() {
    let set = rules(
        "
domain: d
descriptors:
  - {key: a, value: \"*-x\", rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: a, value: \"y*\", share_threshold: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: b, value: \"z*\", rate_limit: {unit: day, requests_per_unit: 1}}
",
    );
    let key = |key, value| {
        let descriptor = Descriptor::from([(key, value)]);
        set.find("d", &descriptor).unwrap().key()
    };
    assert_eq!(key("a", "y1"), key("a", "y2"));
    assert_ne!(key("b", "z*"), key("b", "z1"));
    // No value of a request leads to the key of the pattern, but the pattern itself.
    let text = key("a", "y1").encoded().to_owned();
    assert_eq!(text, "d,(a,y%2a,shared)");
}
