//! Tries which descriptors are charged, and what becomes of the request.

use std::time::Duration;

use tollgate_rules::{
    Code, Compat, Descriptor, DescriptorOutcome, GlobalModes, LimitOverride, Plan, RequestError,
    Treatment, Unit, Usage,
};

use super::{envoy::shops, envoy_rules, rules};

const MINUTE: Duration = Duration::from_secs(60);

fn passed(remaining: u64) -> Option<DescriptorOutcome> {
    Some(DescriptorOutcome::from_count(
        100,
        MINUTE,
        100 - remaining,
        1,
        Duration::ZERO,
        Compat::Envoy,
    ))
}

fn failed() -> Option<DescriptorOutcome> {
    Some(DescriptorOutcome::from_count(
        100,
        MINUTE,
        101,
        1,
        Duration::ZERO,
        Compat::Envoy,
    ))
}

/// Returns the rules of keys that are limited in different ways.
fn ways() -> tollgate_rules::RuleSet {
    envoy_rules(
        "
domain: d
descriptors:
  - {key: plain, rate_limit: {name: plain, unit: minute, requests_per_unit: 100}}
  - {key: other, rate_limit: {unit: minute, requests_per_unit: 100}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 100}}
  - {key: quota, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 100}}
  - {key: unlimited, rate_limit: {unlimited: true, name: unlimited, replaces: [{name: plain}]}}
  - {key: both, rate_limit: {unit: minute, requests_per_unit: 1, name: both, replaces: [{name: plain}, {name: unlimited}]}}
",
    )
}

fn request(keys: &[&'static str]) -> Vec<Descriptor<'static>> {
    keys.iter()
        .map(|key| Descriptor::from([(*key, "x")]))
        .collect()
}

fn codes(
    plan: &Plan<'_>,
    outcomes: &[Option<DescriptorOutcome>],
    modes: GlobalModes,
) -> (Code, Vec<Code>) {
    let verdict = plan.verdict(outcomes, modes);
    (
        verdict.code(),
        verdict
            .statuses()
            .iter()
            .map(|status| status.code())
            .collect(),
    )
}

#[test]
fn a_replaced_limit_is_not_charged() {
    for rules in shops() {
        let request = [
            Descriptor::from([("tenant", "gold")]),
            Descriptor::from([("tenant", "gold"), ("route", "/export")]),
            Descriptor::from([("tenant", "internal")]),
        ];
        let plan = rules.plan("shop", &request, 0).unwrap();
        let treatments: Vec<_> = plan.iter().map(|planned| planned.treatment()).collect();
        assert_eq!(
            treatments,
            [
                Treatment::Replaced,
                Treatment::Charged,
                Treatment::NotLimited
            ]
        );
        assert!(plan.iter().next().unwrap().charged().is_none());

        let verdict = plan.verdict(&[None, passed(7), None], GlobalModes::default());
        assert_eq!(verdict.code(), Code::Ok);
        assert!(verdict.statuses()[0].limit().is_none());
        let limit = verdict.statuses()[1].limit().unwrap();
        assert_eq!(
            (limit.requests(), limit.unit(), limit.name()),
            (20, Some(Unit::Hour), None)
        );

        // Alone, the limit applies.
        let alone = rules.plan("shop", &request[..1], 0).unwrap();
        let name = alone
            .iter()
            .next()
            .unwrap()
            .charged()
            .unwrap()
            .rule()
            .name();
        assert_eq!(name, Some("gold"));
    }
}

#[test]
fn an_unlimited_descriptor_replaces_others_and_is_never_replaced() {
    let rules = ways();
    let request = request(&["plain", "unlimited", "both"]);
    let plan = rules.plan("d", &request, 0).unwrap();
    let treatments: Vec<_> = plan.iter().map(|planned| planned.treatment()).collect();
    assert_eq!(
        treatments,
        [
            Treatment::Replaced,
            Treatment::Unlimited,
            Treatment::Charged
        ]
    );
    let verdict = plan.verdict(&[], GlobalModes::default());
    let unlimited = &verdict.statuses()[1];
    assert_eq!(
        (unlimited.code(), unlimited.remaining(), unlimited.limit()),
        (Code::Ok, 4_294_967_295, None)
    );
}

#[test]
fn a_limit_on_trial_replaces_no_other_limit() {
    let text = |trial: &str| {
        format!(
            "
domain: d
descriptors:
  - {{key: old, rate_limit: {{name: old, unit: minute, requests_per_unit: 1}}}}
  - {{key: new, {trial}, rate_limit: {{unit: minute, requests_per_unit: 1, replaces: [{{name: old}}]}}}}
"
        )
    };
    // Returns whether the old limit is replaced, and whether the new one is on trial.
    let seen = |rules: &tollgate_rules::RuleSet, value: &str| {
        let request = [
            Descriptor::from([("old", "x")]),
            Descriptor::from([("new", value)]),
        ];
        let plan = rules.plan("d", &request, 0).unwrap();
        let planned: Vec<_> = plan.iter().collect();
        (
            planned[0].treatment() == Treatment::Replaced,
            planned[1].found().unwrap().is_shadow(),
        )
    };
    let trial = text("shadow_mode: true");
    assert_eq!(seen(&rules(&trial), "x"), (false, true));
    // Envoy's service does not look at the mode.
    assert_eq!(seen(&envoy_rules(&trial), "x"), (true, true));
    let shared = rules(&text("enforce: 50%"));
    let all: Vec<_> = (0..64)
        .map(|at| seen(&shared, &format!("value{at}")))
        .collect();
    assert!(all.contains(&(true, false)) && all.contains(&(false, true)));
    assert!(!all.contains(&(true, true)) && !all.contains(&(false, false)));
}

#[test]
fn a_request_without_domain_or_descriptors_is_refused() {
    let rules = ways();
    assert_eq!(
        rules.plan("", &request(&["plain"]), 0).unwrap_err(),
        RequestError::EmptyDomain
    );
    let error = rules.plan("d", &[], 0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "rate limit descriptors must not be empty"
    );
}

#[test]
fn a_rule_in_shadow_mode_passes_and_counts_what_it_would_deny() {
    let rules = ways();
    let request = request(&["shadow"]);
    let plan = rules.plan("d", &request, 0).unwrap();
    let verdict = plan.verdict(&[failed()], GlobalModes::default());
    assert_eq!((verdict.code(), verdict.is_shadowed()), (Code::Ok, false));
    let status = &verdict.statuses()[0];
    assert_eq!(
        (
            status.code(),
            status.remaining(),
            status.usage().shadow,
            status.usage().over
        ),
        (Code::Ok, 0, 1, 1)
    );
}

#[test]
fn the_global_shadow_mode_passes_the_request_and_keeps_the_statuses() {
    let rules = ways();
    let request = request(&["plain"]);
    let plan = rules.plan("d", &request, 0).unwrap();
    let modes = GlobalModes {
        shadow: true,
        ..GlobalModes::default()
    };
    let verdict = plan.verdict(&[failed()], modes);
    assert_eq!((verdict.code(), verdict.is_shadowed()), (Code::Ok, true));
    assert_eq!(verdict.statuses()[0].code(), Code::OverLimit);
    assert!(!plan.verdict(&[passed(1)], modes).is_shadowed());
}

#[test]
fn quota_descriptors_deny_only_together() {
    let rules = ways();
    let request = request(&["quota", "quota", "plain"]);
    let plan = rules.plan("d", &request, 0).unwrap();
    let modes = GlobalModes::default();
    assert_eq!(
        codes(&plan, &[failed(), passed(1), passed(1)], modes).0,
        Code::Ok
    );
    assert_eq!(
        codes(&plan, &[failed(), failed(), passed(1)], modes).0,
        Code::OverLimit
    );
    assert_eq!(
        codes(&plan, &[passed(1), passed(1), failed()], modes).0,
        Code::OverLimit
    );
}

#[test]
fn in_the_global_quota_mode_a_descriptor_without_a_limit_is_a_quota_that_passed() {
    let rules = ways();
    let modes = GlobalModes {
        quota: true,
        ..GlobalModes::default()
    };
    let two = request(&["plain", "other"]);
    let plan = rules.plan("d", &two, 0).unwrap();
    assert_eq!(codes(&plan, &[failed(), passed(1)], modes).0, Code::Ok);
    assert_eq!(
        codes(&plan, &[failed(), failed()], modes).0,
        Code::OverLimit
    );
    let unmatched = request(&["plain", "unknown"]);
    let plan = rules.plan("d", &unmatched, 0).unwrap();
    assert_eq!(codes(&plan, &[failed(), None], modes).0, Code::Ok);
    // An unlimited descriptor is none.
    let unlimited = request(&["other", "unlimited"]);
    let plan = rules.plan("d", &unlimited, 0).unwrap();
    assert_eq!(codes(&plan, &[failed(), None], modes).0, Code::OverLimit);
}

#[test]
fn headers_tell_of_the_least_remaining_or_of_the_last_that_denied() {
    let rules = ways();
    let keys = request(&["plain", "other", "quota", "unknown"]);
    let plan = rules.plan("d", &keys, 0).unwrap();
    let nearest = |outcomes: &[Option<DescriptorOutcome>]| {
        let verdict = plan.verdict(outcomes, GlobalModes::default());
        let status = verdict.nearest()?;
        let limit = status.limit().unwrap().requests();
        Some((limit, status.remaining(), status.reset_after().unwrap()))
    };
    assert_eq!(
        nearest(&[passed(9), passed(5), passed(7), None]),
        Some((100, 5, MINUTE))
    );
    assert_eq!(nearest(&[None, None, None, None]), None);
    let early =
        DescriptorOutcome::from_count(100, MINUTE, 101, 1, Duration::from_secs(20), Compat::Envoy);
    let late =
        DescriptorOutcome::from_count(100, MINUTE, 101, 1, Duration::from_secs(50), Compat::Envoy);
    // Of two that deny, the last; a quota with nothing left does not take precedence over it.
    let expected = Some((100, 0, Duration::from_secs(10)));
    assert_eq!(
        nearest(&[Some(early), Some(late), failed(), None]),
        expected
    );
    assert_eq!(nearest(&[passed(1), passed(2), Some(late), None]), expected);
}

#[test]
fn a_counter_is_over_its_limit_when_it_is_above_it() {
    let outcome = |limit, after, hits, compat| {
        DescriptorOutcome::from_count(limit, MINUTE, after, hits, Duration::ZERO, compat)
    };
    for compat in [Compat::Native, Compat::Envoy] {
        assert!(!outcome(10, 10, 1, compat).is_over());
        assert!(outcome(10, 11, 1, compat).is_over());
        assert!(outcome(0, 1, 1, compat).is_over());
        assert_eq!(outcome(10, 7, 3, compat).remaining(), 3);
        assert_eq!(outcome(10, 12, 3, compat).remaining(), 0);
        assert!(!outcome(10, 9, 0, compat).is_over());
        assert!(outcome(10, 11, 0, compat).is_over());
    }
    // A check alone passes a full counter in the mode envoy.
    assert!(outcome(10, 10, 0, Compat::Native).is_over());
    assert!(!outcome(10, 10, 0, Compat::Envoy).is_over());
}

#[test]
fn the_reset_is_the_end_of_the_window() {
    let reset = |now| {
        DescriptorOutcome::from_count(1, MINUTE, 1, 1, Duration::from_secs(now), Compat::Envoy)
            .reset_after()
            .as_secs()
    };
    assert_eq!(
        (reset(0), reset(1), reset(59), reset(60), reset(61)),
        (60, 59, 1, 60, 59)
    );
}

#[test]
fn units_are_counted_within_near_and_over_the_limit() {
    // The limit, the count after the check, the units; over, near, within.
    for (limit, after, hits, over, near, within) in [
        (15, 13, 1, 0, 1, 1),
        (20, 22, 7, 2, 4, 0),
        (20, 22, 3, 2, 1, 0),
        (8, 7, 2, 0, 1, 2),
        (10, 30, 3, 3, 0, 0),
        (10, 5, 2, 0, 0, 2),
        (10, 8, 1, 0, 0, 1),
        (10, 9, 1, 0, 1, 1),
        (10, 10, 5, 0, 2, 5),
        (10, 11, 1, 1, 0, 0),
        (0, 1, 1, 1, 0, 0),
    ] {
        for compat in [Compat::Native, Compat::Envoy] {
            let usage = Usage::new(limit, after, hits, compat);
            assert_eq!(
                (usage.over, usage.near, usage.within),
                (over, near, within),
                "{limit} {after} {hits}"
            );
            assert_eq!(usage.total, hits);
        }
    }
    let remembered = Usage::remembered(4);
    assert_eq!(
        (
            remembered.total,
            remembered.over,
            remembered.over_from_cache
        ),
        (4, 4, 4)
    );
}

#[test]
fn the_near_threshold_is_exact_in_native_mode() {
    let near = |compat| Usage::new(1_000_000_005, 800_000_005, 1, compat).near;
    assert_eq!(near(Compat::Native), 1);
    // A float of 32 bits rounds the limit.
    assert_eq!(near(Compat::Envoy), 1);
    let near = |compat| Usage::new(16_777_217, 13_421_773, 1, compat).near;
    assert_eq!((near(Compat::Native), near(Compat::Envoy)), (0, 0));
}

#[test]
fn the_metadata_of_descriptors_that_pass_is_joined() {
    let rules = rules(
        "
domain: d
descriptors:
  - {key: a, metadata: {who: a, deep: {x: 1}, only_a: true}, rate_limit: {quota: 100/min}}
  - {key: b, metadata: {who: b, deep: {x: 2, y: 3}}, rate_limit: {quota: 100/min}}
  - {key: c, metadata: {who: c}, rate_limit: {unlimited: true}}
",
    );
    let request = request(&["a", "b", "c"]);
    let plan = rules.plan("d", &request, 0).unwrap();
    let metadata = |outcomes: &[Option<DescriptorOutcome>]| {
        let verdict = plan.verdict(outcomes, GlobalModes::default());
        serde_json::Value::Object(verdict.metadata().clone())
    };
    assert_eq!(
        metadata(&[passed(1), passed(1)]),
        serde_json::json!({"who": "a", "deep": {"x": 1, "y": 3}, "only_a": true})
    );
    assert_eq!(
        metadata(&[failed(), passed(1)]),
        serde_json::json!({"who": "b", "deep": {"x": 2, "y": 3}})
    );
    assert_eq!(metadata(&[failed(), failed()]), serde_json::json!({}));
}

#[test]
fn the_request_is_described_in_the_dynamic_metadata() {
    let rules = ways();
    let request = [
        Descriptor::from([("plain", "x"), ("route", "/a")])
            .with_limit(LimitOverride::new(3, Unit::Hour)),
        Descriptor::from([("other", "y")]).with_hits(5),
    ];
    let plan = rules.plan("d", &request, 0).unwrap();
    let metadata = plan.dynamic_metadata(&plan.verdict(&[], GlobalModes::default()));
    assert_eq!(
        serde_json::Value::Object(metadata),
        serde_json::json!({
            "domain": "d",
            "descriptors": [
                {"entries": ["plain=x", "route=/a"], "limit": "requests_per_unit:3 unit:HOUR"},
                {"entries": ["other=y"], "hitsAddend": 5},
            ],
        })
    );
}
