//! Limits from which replicas take units in advance.

use std::time::Duration;

use tollgate::{Algorithm, Lease, Policy, Quota};
use tollgate_rules::{Format, RuleErrorKind, RuleSet};

use super::{envoy_refused, refused, rules};

fn with(limit: &str) -> String {
    format!("domain: d\ndescriptors:\n- key: k\n  rate_limit: {{{limit}}}\n")
}

/// Returns the policies of the first rule.
fn policies(set: &RuleSet) -> Vec<Policy> {
    set.rules()
        .next()
        .unwrap()
        .policies()
        .unwrap()
        .iter()
        .cloned()
        .collect()
}

#[test]
fn a_limit_of_every_form_can_be_leased_on_terms_of_its_own() {
    let own = Lease::new()
        .generation(Duration::from_millis(2_500))
        .share(16);
    for (limit, lease) in [
        ("quota: 1000/s, lease: true", Some(Lease::new())),
        (
            "unit: second, requests_per_unit: 1000, lease: true",
            Some(Lease::new()),
        ),
        (
            "window: 10m, requests_per_unit: 1000, burst: 2000, lease: {}",
            Some(Lease::new()),
        ),
        (
            "quota: 1000/s, lease: {share: 16, generation: 2500ms}",
            Some(own),
        ),
        (
            "quota: 1000/s, algorithm: sliding_log, lease: {share: 2}",
            Some(Lease::new().share(2)),
        ),
        ("quota: 1000/s, lease: false", None),
        ("quota: 1000/s, lease: ", None),
        ("quota: 1000/s", None),
    ] {
        assert_eq!(policies(&rules(&with(limit)))[0].lease(), lease, "{limit}");
    }
    let both = policies(&rules(&with(
        "limits: [{quota: 1000/s, lease: true}, {quota: 9000/h, lease: {share: 16}}]",
    )));
    assert_eq!(
        both.iter().map(Policy::lease).collect::<Vec<_>>(),
        [Some(Lease::new()), Some(Lease::new().share(16))]
    );
}

#[test]
fn all_formats_say_the_same_and_the_text_of_a_limit_tells_it() {
    let policy = Policy::try_new(
        "k",
        Algorithm::TokenBucket,
        Quota::per_second(1_000).with_burst(4_000),
    )
    .unwrap();
    let expected = policy
        .try_leased(Lease::new().generation(Duration::from_secs(2)))
        .unwrap();
    let yaml = with("quota: 1000/s burst 4000, lease: {generation: 2s}");
    let json = r#"{"domain": "d", "descriptors": [{"key": "k",
        "rate_limit": {"quota": "1000/s burst 4000", "lease": {"generation": "2s"}}}]}"#;
    let toml = "domain = \"d\"\n[[descriptors]]\nkey = \"k\"\n[descriptors.rate_limit]\n\
                quota = \"1000/s burst 4000\"\nlease = {generation = \"2s\"}\n";
    for (text, format) in [
        (yaml.as_str(), Format::Yaml),
        (json, Format::Json),
        (toml, Format::Toml),
    ] {
        let set = RuleSet::parse(text, format).unwrap();
        assert_eq!(
            policies(&set),
            std::slice::from_ref(&expected),
            "{format:?}"
        );
        assert_eq!(
            set.rules().next().unwrap().limit().to_string(),
            "1000/s burst 4000 leased"
        );
    }
}

#[test]
fn wrong_terms_are_refused_with_their_field_and_value() {
    for (limit, field, message) in [
        (
            "lease: yes",
            "lease",
            "expected true, false or a mapping of generation and share, got the text \"yes\"",
        ),
        (
            "lease: 8",
            "lease",
            "expected true, false or a mapping of generation and share, got the number 8",
        ),
        (
            "lease: {share: 0}",
            "lease.share",
            "must be 1 to 255, got 0",
        ),
        (
            "lease: {share: 256}",
            "lease.share",
            "must be 1 to 255, got 256",
        ),
        ("lease: {generation: 5}", "lease.generation", "\"5\""),
        (
            "lease: {generation: 50ms}",
            "lease.generation",
            "lease generation must be 100 ms to 60 s, in whole milliseconds, got 50ms in policy k",
        ),
        (
            "lease: {generation: 2min}",
            "lease.generation",
            "got 120s in policy k",
        ),
        (
            "lease: {generations: 2s}",
            "lease.generations",
            "unknown field, did you mean generation?",
        ),
        (
            "lease: {share: 200}",
            "lease",
            "lease share of the burst must be at least 8 units, got 5",
        ),
        (
            "algorithm: leaky_bucket, lease: true",
            "lease",
            "a leaky bucket cannot be leased",
        ),
    ] {
        let errors = refused(&with(&format!("quota: 1000/s, {limit}")));
        let error = errors.iter().next().unwrap();
        let field = format!("descriptors[0].rate_limit.{field}");
        assert_eq!(
            (error.line(), error.field()),
            (Some(4), field.as_str()),
            "{errors}"
        );
        assert!(error.to_string().contains(message), "{errors}");
        assert_eq!(errors.iter().count(), 1, "{errors}");
    }
    for (limit, message) in [
        (
            "unlimited: true, lease: true",
            "must not stand beside unit, quota, window, lease or limits",
        ),
        (
            "limits: [{quota: 900/s}], lease: true",
            "must not stand beside limits",
        ),
        (
            "limits: [{quota: 900/s, lease: true}, {quota: 900/h}]",
            "must all be leased or none, got 1 leased of 2",
        ),
    ] {
        assert!(
            refused(&with(limit)).to_string().contains(message),
            "{}",
            refused(&with(limit))
        );
    }
}

#[test]
fn the_mode_envoy_refuses_a_lease() {
    let errors = envoy_refused(&with("unit: second, requests_per_unit: 1000, lease: true"));
    assert_eq!(
        errors.iter().next().unwrap().kind(),
        RuleErrorKind::Addition,
        "{errors}"
    );
}
