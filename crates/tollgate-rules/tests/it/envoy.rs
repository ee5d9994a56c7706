//! The example of the language, in both modes and all formats.

use std::time::Duration;

use tollgate_rules::{Compat, Descriptor, Format, Limit, RuleSet};

pub(crate) const SHOP: &str = "
domain: shop
descriptors:
  - key: tenant                      # default for every tenant, each value its own counter
    rate_limit: {unit: minute, requests_per_unit: 600}
  - key: tenant
    value: internal                  # allow-listed: matches, has no limit
  - key: tenant
    value: free-*                    # pattern, own counter per tenant
    rate_limit: {unit: minute, requests_per_unit: 60}
  - key: tenant
    value: trial-*
    share_threshold: true            # all trials share one counter
    rate_limit: {unit: hour, requests_per_unit: 1000}
  - key: tenant
    value: gold
    rate_limit: {name: gold, unit: minute, requests_per_unit: 6000}
    descriptors:
      - key: route
        value: /export
        rate_limit:
          unit: hour
          requests_per_unit: 20
          replaces: [{name: gold}]   # if both match in one request only this one counts
      - key: route
        value: /search*
        shadow_mode: true
        rate_limit: {unit: second, requests_per_unit: 50}
";

pub(crate) const SHOP_JSON: &str = r#"{
  "domain": "shop",
  "descriptors": [
    {"key": "tenant", "rate_limit": {"unit": "minute", "requests_per_unit": 600}},
    {"key": "tenant", "value": "internal"},
    {"key": "tenant", "value": "free-*", "rate_limit": {"unit": "minute", "requests_per_unit": 60}},
    {"key": "tenant", "value": "trial-*", "share_threshold": true,
     "rate_limit": {"unit": "hour", "requests_per_unit": 1000}},
    {"key": "tenant", "value": "gold",
     "rate_limit": {"name": "gold", "unit": "minute", "requests_per_unit": 6000},
     "descriptors": [
       {"key": "route", "value": "/export",
        "rate_limit": {"unit": "hour", "requests_per_unit": 20, "replaces": [{"name": "gold"}]}},
       {"key": "route", "value": "/search*", "shadow_mode": true,
        "rate_limit": {"unit": "second", "requests_per_unit": 50}}
     ]}
  ]
}"#;

pub(crate) const SHOP_TOML: &str = r#"
domain = "shop"

[[descriptors]]
key = "tenant"
rate_limit = { unit = "minute", requests_per_unit = 600 }

[[descriptors]]
key = "tenant"
value = "internal"

[[descriptors]]
key = "tenant"
value = "free-*"
rate_limit = { unit = "minute", requests_per_unit = 60 }

[[descriptors]]
key = "tenant"
value = "trial-*"
share_threshold = true
rate_limit = { unit = "hour", requests_per_unit = 1000 }

[[descriptors]]
key = "tenant"
value = "gold"
rate_limit = { name = "gold", unit = "minute", requests_per_unit = 6000 }

[[descriptors.descriptors]]
key = "route"
value = "/export"
rate_limit = { unit = "hour", requests_per_unit = 20, replaces = [{ name = "gold" }] }

[[descriptors.descriptors]]
key = "route"
value = "/search*"
shadow_mode = true
rate_limit = { unit = "second", requests_per_unit = 50 }
"#;

/// Returns the example in every format and mode.
pub(crate) fn shops() -> Vec<RuleSet> {
    let mut all = Vec::new();
    for compat in [Compat::Native, Compat::Envoy] {
        for (text, format) in [
            (SHOP, Format::Yaml),
            (SHOP_JSON, Format::Json),
            (SHOP_TOML, Format::Toml),
        ] {
            let set = RuleSet::builder().compat(compat).parse(text, format);
            all.push(set.unwrap_or_else(|errors| panic!("{format:?}: {errors}")));
        }
    }
    all
}

#[test]
fn the_example_means_the_same_in_every_format_and_mode() {
    const MINUTE: Duration = Duration::from_secs(60);
    const HOUR: Duration = Duration::from_secs(3_600);
    for rules in shops() {
        for (entries, expected) in [
            (&[("tenant", "acme")][..], Some((600, MINUTE))),
            (&[("tenant", "internal")], None),
            (&[("tenant", "free-7")], Some((60, MINUTE))),
            (&[("tenant", "trial-1")], Some((1_000, HOUR))),
            (&[("tenant", "gold")], Some((6_000, MINUTE))),
            (
                &[("tenant", "gold"), ("route", "/export")],
                Some((20, HOUR)),
            ),
            (
                &[("tenant", "gold"), ("route", "/search/x")],
                Some((50, Duration::from_secs(1))),
            ),
            (&[("tenant", "gold"), ("route", "/x")], None),
            (&[("tenant", "acme"), ("route", "/export")], None),
            (&[("route", "/export")], None),
            (&[], None),
        ] {
            let descriptor: Descriptor<'_> = entries.iter().copied().collect();
            let found = rules.find("shop", &descriptor);
            assert_eq!(
                found.and_then(|found| found.rule().amount()),
                expected,
                "{rules:?} {entries:?}"
            );
        }
        assert!(
            rules
                .find("other", &Descriptor::from([("tenant", "acme")]))
                .is_none()
        );
    }
}

#[test]
fn a_window_of_the_language_is_a_fixed_window() {
    for rules in shops() {
        for rule in rules.rules() {
            let Limit::Policies(policies) = rule.limit() else {
                panic!("{rule:?}")
            };
            let policy = policies.iter().next().unwrap();
            assert_eq!(
                policy.algorithm(),
                tollgate::Algorithm::FixedWindow,
                "{rule:?}"
            );
        }
    }
}

#[test]
fn values_of_a_shared_pattern_have_one_counter_and_others_their_own() {
    for rules in shops() {
        let key = |tenant| {
            let descriptor = Descriptor::from([("tenant", tenant)]);
            rules.find("shop", &descriptor).unwrap().key()
        };
        assert_eq!(key("trial-1"), key("trial-2"));
        assert_ne!(key("free-1"), key("free-2"));
        assert_ne!(key("acme"), key("gold"));
    }
}
