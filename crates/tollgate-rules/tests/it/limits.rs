//! The forms of a limit that Tollgate adds.

use std::time::Duration;

use tollgate::{Algorithm, Outage, Policy, PolicySet, Quota};
use tollgate_rules::{Descriptor, Limit};

use super::{refused, rules};

/// Returns the policies of a limit.
fn policies(limit: &str) -> Vec<Policy> {
    let set = rules(&format!(
        "domain: d\ndescriptors:\n- key: a\n  value: x\n  rate_limit: {limit}\n"
    ));
    let descriptor = Descriptor::from([("a", "x")]);
    let found = set.find("d", &descriptor).unwrap();
    let Limit::Policies(policies) = found.rule().limit() else {
        panic!("{found:?}")
    };
    policies.iter().cloned().collect()
}

fn error(limit: &str) -> String {
    refused(&format!(
        "domain: d\ndescriptors:\n- key: a\n  rate_limit: {limit}\n"
    ))
    .to_string()
}

fn policy(name: &str, algorithm: Algorithm, quota: Quota) -> Policy {
    Policy::try_new(name, algorithm, quota).unwrap()
}

#[test]
fn a_limit_is_written_as_a_window_or_as_a_quota() {
    let ten_minutes = Quota::new(5, Duration::from_secs(600));
    for (limit, algorithm, quota) in [
        (
            "{unit: minute, requests_per_unit: 5}",
            Algorithm::FixedWindow,
            Quota::per_minute(5),
        ),
        (
            "{quota: 5/min}",
            Algorithm::FixedWindow,
            Quota::per_minute(5),
        ),
        (
            "{window: 10m, requests_per_unit: 5}",
            Algorithm::FixedWindow,
            ten_minutes,
        ),
        ("{quota: 5/10m}", Algorithm::FixedWindow, ten_minutes),
        (
            "{quota: 5/min burst 9}",
            Algorithm::TokenBucket,
            Quota::per_minute(5).with_burst(9),
        ),
        (
            "{unit: minute, requests_per_unit: 5, burst: 9}",
            Algorithm::TokenBucket,
            Quota::per_minute(5).with_burst(9),
        ),
        (
            "{quota: 5/min burst 5}",
            Algorithm::TokenBucket,
            Quota::per_minute(5),
        ),
        (
            "{quota: 5/min burst 5, algorithm: fixed_window}",
            Algorithm::FixedWindow,
            Quota::per_minute(5),
        ),
        (
            "{unit: minute, requests_per_unit: 5, burst: 5}",
            Algorithm::TokenBucket,
            Quota::per_minute(5),
        ),
        (
            "{quota: 5/min, algorithm: sliding_log}",
            Algorithm::SlidingLog,
            Quota::per_minute(5),
        ),
        (
            "{quota: 5/min, algorithm: sliding_buckets(6)}",
            Algorithm::SlidingBuckets { buckets: 6 },
            Quota::per_minute(5),
        ),
    ] {
        assert_eq!(
            policies(limit),
            [policy("a_x", algorithm, quota)],
            "{limit}"
        );
    }
}

#[test]
fn the_text_of_a_limit_in_a_file_is_a_limit_with_the_same_algorithm() {
    for limit in [
        "{quota: 5/min}",
        "{quota: 5/min burst 5}",
        "{quota: 5/min burst 9}",
        "{unit: minute, requests_per_unit: 5, burst: 5}",
    ] {
        let expected = policies(limit);
        let written = Limit::Policies(PolicySet::try_new(expected.clone()).unwrap()).to_string();
        assert_eq!(
            policies(&format!("{{quota: {written}}}")),
            expected,
            "{limit} as {written}"
        );
    }
}

#[test]
fn several_limits_make_one_set_with_a_name_for_each_period() {
    assert_eq!(
        policies(
            "{limits: [{quota: 10/s burst 20}, {unit: day, requests_per_unit: 1000}, {name: month, quota: 9000/30d}]}"
        ),
        [
            policy(
                "a_x.s",
                Algorithm::TokenBucket,
                Quota::per_second(10).with_burst(20)
            ),
            policy("a_x.day", Algorithm::FixedWindow, Quota::per_day(1_000)),
            policy(
                "month",
                Algorithm::FixedWindow,
                Quota::new(9_000, Duration::from_secs(30 * 86_400))
            ),
        ]
    );
    assert_eq!(
        error("{limits: [{quota: 10/s}, {quota: 5/s}]}"),
        "line 4, column 24: descriptors[0].rate_limit.limits: policies of a set must differ in name, got \"a.s\" twice; \
         limits of one period need a name each"
    );
    assert!(error("{limits: []}").contains("policies must be 1 to 8 in a set, got 0"));
    assert_eq!(
        error("{limits: [{quota: x}]}").lines().count(),
        1,
        "one mistake is reported once: {}",
        error("{limits: [{quota: x}]}")
    );
}

#[test]
fn a_hidden_limit_is_one_of_several_or_all() {
    let shown = policies("{limits: [{quota: 5/s}, {quota: 9/h}]}");
    let each = |hides: [bool; 2]| {
        let fields = hides.map(|hides| format!("hidden: {hides}"));
        policies(&format!(
            "{{limits: [{{quota: 5/s, {}}}, {{quota: 9/h, {}}}]}}",
            fields[0], fields[1]
        ))
    };
    let [fast, slow] = [shown[0].clone(), shown[1].clone()];
    assert_eq!(each([false, false]), shown);
    assert_eq!(
        each([true, false]),
        [fast.clone().hidden(), slow.clone()],
        "beside another one"
    );
    assert_eq!(each([true, true]), [fast.hidden(), slow.hidden()]);
    assert_eq!(
        error("{limits: [{quota: 5/s}], hidden: true}"),
        "line 4, column 40: descriptors[0].rate_limit.hidden: must not stand beside limits"
    );
    assert!(error("{quota: 5/s, hidden: 1}").contains("hidden: expected true or false"));
    for (limit, expected) in [
        (
            "{quota: 5/s, hidden: true}",
            "limit 5/s hidden of d.a (line 3)",
        ),
        ("{quota: 5/s}", "limit 5/s of d.a (line 3)"),
        (
            "{limits: [{quota: 5/s, unranked: true, hidden: true}, {quota: 9/min}]}",
            "limit 5/s unranked hidden and 9/min of d.a (line 3)",
        ),
        (
            "{quota: 0/s, hidden: true}",
            "limit 0 hidden: every request is denied of d.a (line 3)",
        ),
    ] {
        let rules = rules(&format!(
            "domain: d\ndescriptors:\n- {{key: a, rate_limit: {limit}}}\n"
        ));
        let explanation = rules.explain("d", &Descriptor::from([("a", "x")]));
        assert_eq!(explanation.outcome(), expected);
    }
}

#[test]
fn an_amount_of_zero_blocks_in_every_form() {
    for limit in [
        "{unit: day, requests_per_unit: 0}",
        "{window: 1d, requests_per_unit: 0, burst: 5}",
        "{quota: 0/d}",
        "{quota: 0/d burst 5, lease: true}",
        "{limits: [{quota: 10/s}, {unit: day, requests_per_unit: 0}]}",
        "{limits: [{quota: 0/d, lease: true}, {quota: 9000/min, lease: true}]}",
    ] {
        let rules = rules(&format!(
            "domain: d\ndescriptors:\n- key: a\n  value: x\n  rate_limit: {limit}\n"
        ));
        let descriptor = Descriptor::from([("a", "x")]);
        let found = rules.find("d", &descriptor).unwrap();
        let is_blocked = matches!(found.rule().limit(), Limit::Blocked { period, .. } if period.as_secs() == 86_400);
        assert!(is_blocked, "{limit}: {found:?}");
    }
}

#[test]
fn the_policy_has_the_name_of_the_limit_or_the_path_of_the_descriptor() {
    assert_eq!(policies("{name: gold, quota: 5/s}")[0].name(), "gold");
    assert_eq!(policies("{quota: 5/s}")[0].name(), "a_x");
    // A name that no policy may have is made one, with a digest.
    let name = policies("{name: \"two words\", quota: 5/s}")[0]
        .name()
        .to_owned();
    assert!(name.starts_with("two-words.") && name.len() == 22, "{name}");
}

#[test]
fn mistakes_in_the_added_forms_are_reported_with_their_place() {
    for (limit, expected) in [
        (
            "{quota: 5/mni}",
            "line 4, column 23: descriptors[0].rate_limit.quota: quota \"5/mni\", character 3: unknown unit",
        ),
        (
            "{quota: 5/min, unit: day}",
            "rate_limit.unit: must not stand beside quota",
        ),
        (
            "{quota: 5/min, burst: 9}",
            "rate_limit.burst: must not stand beside quota",
        ),
        (
            "{window: 10m, unit: day, requests_per_unit: 5}",
            "rate_limit.unit: must not stand beside window",
        ),
        (
            "{window: month, requests_per_unit: 5}",
            "unit month has no fixed length, write the number of days",
        ),
        (
            "{quota: 5/min, algorithm: gcra}",
            "rate_limit.algorithm: unknown algorithm \"gcra\", expected token_bucket",
        ),
        (
            "{quota: 5/min burst 9, algorithm: fixed_window}",
            "policy quota burst must equal its amount: only the bucket algorithms have a burst",
        ),
        (
            "{quota: 5/min, limits: []}",
            "rate_limit.quota: must not stand beside limits",
        ),
        (
            "{unlimited: true, quota: 5/min}",
            "rate_limit.unlimited: must not stand beside",
        ),
    ] {
        let error = error(limit);
        assert!(error.contains(expected), "{limit}: {error}");
    }
}

#[test]
fn addresses_of_one_network_share_a_counter() {
    let set =
        rules("domain: d\ndescriptors:\n- {key: ip, prefix_v6: 48, rate_limit: {quota: 5/s}}\n");
    let key = |address| {
        let descriptor = Descriptor::from([("ip", address)]);
        set.find("d", &descriptor).unwrap().key()
    };
    assert_eq!(key("2001:db8:1:1::1"), key("2001:db8:1:2::2"));
    assert_ne!(key("2001:db8:1:1::1"), key("2001:db8:2:1::1"));
    assert_eq!(key("192.0.2.7"), key("::ffff:192.0.2.7"));
    assert_ne!(key("192.0.2.7"), key("192.0.2.8"));
    assert_ne!(key("one"), key("two"));
    let error =
        refused("domain: d\ndescriptors:\n- {key: ip, value: x, prefix_v6: 48}\n").to_string();
    assert!(
        error.contains("prefix_v6: needs a descriptor without a value, or with a pattern"),
        "{error}"
    );
    let error = refused("domain: d\ndescriptors:\n- {key: ip, prefix_v6: 16}\n").to_string();
    assert!(
        error.contains("prefix_v6: must be 32 to 128, got 16"),
        "{error}"
    );
}

#[test]
fn a_rule_chooses_its_answer_in_an_outage() {
    for (word, outage) in [
        ("allow", Outage::Open),
        ("fail", Outage::Closed),
        ("local", Outage::default()),
    ] {
        let set = rules(&format!(
            "domain: d\ndescriptors:\n- {{key: a, on_outage: {word}, rate_limit: {{quota: 5/s}}}}\n"
        ));
        let descriptor = Descriptor::from([("a", "x")]);
        assert_eq!(
            set.find("d", &descriptor).unwrap().rule().on_outage(),
            Some(outage)
        );
    }
    let error = refused("domain: d\ndescriptors:\n- {key: a, on_outage: open}\n").to_string();
    assert!(
        error.contains("on_outage: expected allow, fail or local, got the text \"open\""),
        "{error}"
    );
}
