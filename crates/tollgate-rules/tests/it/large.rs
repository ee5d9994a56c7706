//! Matching in large sets: nothing is allocated.

use tollgate_rules::{Compat, Descriptor, Format, RuleSet};

/// Returns a set of 5 000 descriptors of five levels.
fn large(compat: Compat) -> RuleSet {
    let mut text = "domain: d\ndescriptors:\n".to_owned();
    for tenant in 0..1_000 {
        text.push_str(&format!(
            "- key: tenant\n  value: tenant{tenant}\n  descriptors:\n"
        ));
        text.push_str("  - key: region\n    descriptors:\n    - key: plan\n      value: p*\n      descriptors:\n");
        text.push_str("      - key: route\n        value: /v1/*/export\n        descriptors:\n");
        text.push_str("        - {key: user, rate_limit: {unit: day, requests_per_unit: 9}}\n");
    }
    for pattern in 0..500 {
        text.push_str(&format!(
            "- {{key: path, value: \"/p{pattern}/*\", rate_limit: {{unit: day, requests_per_unit: 1}}}}\n"
        ));
    }
    RuleSet::builder()
        .compat(compat)
        .parse(&text, Format::Yaml)
        .unwrap_or_else(|errors| panic!("{errors}"))
}

#[test]
fn a_match_allocates_nothing() {
    for compat in [Compat::Native, Compat::Envoy] {
        let set = large(compat);
        let deep = [
            ("tenant", "tenant777"),
            ("region", "eu"),
            ("plan", "pro"),
            ("route", "/v1/x/export"),
            ("user", "u1"),
        ];
        let descriptor = Descriptor::from(deep);
        let path = Descriptor::from([("path", "/p499/x")]);
        let counted = allocation_counter::measure(|| {
            assert!(set.find("d", &descriptor).is_some());
            assert!(set.find("d", &path).is_some());
            assert!(set.find("e", &path).is_none());
        });
        assert_eq!(counted.count_total, 0, "{compat}");
    }
}
