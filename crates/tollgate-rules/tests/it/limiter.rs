//! Requests of several descriptors on a store.

use std::time::Duration;

use tollgate::{
    Decision, Error, ErrorKind, MemoryStore, Outage, Store,
    store::{Check, CheckFuture, Clock, StoreFuture},
};
use tollgate_rules::{
    CheckError, Compat, Descriptor, LimitOverride, RuleLimiter, RuleSet, Rules, Unit,
};

use super::{envoy_rules, rules, still};

fn on_memory(set: RuleSet) -> (RuleLimiter, Clock) {
    let clock = Clock::manual(0);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    (RuleLimiter::new(Rules::new(set), store), clock)
}

fn keys(keys: &[&'static str]) -> Vec<Descriptor<'static>> {
    keys.iter()
        .map(|key| Descriptor::from([(*key, "x")]))
        .collect()
}

/// Returns whether a request of these descriptors is allowed to spend so many units.
async fn passes(limiter: &RuleLimiter, names: &[&'static str], hits: u32) -> bool {
    let decision = limiter.check("d", &keys(names), hits).await.unwrap();
    decision.is_allowed()
}

async fn remaining(limiter: &RuleLimiter, key: &'static str) -> u64 {
    let request = [Descriptor::from([(key, "x")]).with_hits(0)];
    limiter
        .check("d", &request, 0)
        .await
        .unwrap()
        .verdict()
        .statuses()[0]
        .remaining()
}

const RULES: &str = "
domain: d
descriptors:
  - {key: three, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: one, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: never, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: quota, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
";

#[tokio::test]
async fn a_request_of_the_mode_envoy_is_charged_when_it_is_denied() {
    let (limiter, _) = on_memory(envoy_rules(RULES));
    let request = keys(&["three", "one"]);
    for expected in [true, false, false] {
        assert_eq!(
            limiter.check("d", &request, 1).await.unwrap().is_allowed(),
            expected
        );
    }
    assert_eq!(remaining(&limiter, "three").await, 0);
    // Two units do not fit into one, and use it up.
    let (limiter, _) = on_memory(envoy_rules(RULES));
    assert!(passes(&limiter, &["three"], 2).await);
    assert!(!passes(&limiter, &["three"], 2).await);
    assert!(!passes(&limiter, &["three"], 1).await);
    // In native mode the unit is left.
    let (limiter, _) = on_memory(rules(RULES));
    assert!(passes(&limiter, &["three"], 2).await);
    assert!(!passes(&limiter, &["three"], 2).await);
    assert!(passes(&limiter, &["three"], 1).await);
}

#[tokio::test]
async fn more_units_than_a_limit_has_are_denied() {
    for set in [rules(RULES), envoy_rules(RULES)] {
        let is_envoy = set.compat() == Compat::Envoy;
        let (limiter, _) = on_memory(set);
        let decision = limiter.check("d", &keys(&["three"]), 4).await.unwrap();
        assert!(decision.is_denied());
        assert_eq!(decision.retry_after(), None);
        assert_eq!(
            remaining(&limiter, "three").await,
            if is_envoy { 0 } else { 3 }
        );
    }
}

#[tokio::test]
async fn a_check_of_zero_units_tests_and_spends_nothing() {
    let (limiter, _) = on_memory(rules(RULES));
    let test = [Descriptor::from([("one", "x")]).with_hits(0)];
    for _ in 0..3 {
        assert!(limiter.check("d", &test, 5).await.unwrap().is_allowed());
    }
    assert!(passes(&limiter, &["one"], 1).await);
    assert!(limiter.check("d", &test, 5).await.unwrap().is_denied());
}

#[tokio::test]
async fn several_limits_of_one_descriptor_are_charged_together() {
    let text = "{domain: d, descriptors: [{key: a, rate_limit: {limits: [{quota: 2/min}, {quota: 3/day}]}}]}";
    let (limiter, clock) = on_memory(rules(text));
    let mut passed = 0;
    for _ in 0..4 {
        for _ in 0..5 {
            passed += u32::from(passes(&limiter, &["a"], 1).await);
        }
        clock.advance(Duration::from_secs(60));
    }
    assert_eq!(passed, 3);
}

#[tokio::test]
async fn an_override_has_its_own_counter_in_native_mode_and_that_of_the_rules_in_envoy_mode() {
    for (set, expected) in [(rules(RULES), 3), (envoy_rules(RULES), 1)] {
        let (limiter, _) = on_memory(set);
        let request =
            [Descriptor::from([("three", "x")]).with_limit(LimitOverride::new(9, Unit::Hour))];
        assert!(limiter.check("d", &request, 2).await.unwrap().is_allowed());
        assert_eq!(remaining(&limiter, "three").await, expected);
    }
}

/// A store that fails for the policy `bad`.
struct Failing(MemoryStore);

impl Store for Failing {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        if check
            .policies
            .iter()
            .any(|policy| policy.name().starts_with("bad"))
        {
            return StoreFuture::ready(Err(Error::new(
                ErrorKind::Unavailable,
                "the store is away",
            )));
        }
        self.0.check(check)
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        self.0.refund(check, decision)
    }

    fn reset(&self, check: Check<'_>) -> StoreFuture<()> {
        self.0.reset(check)
    }
}

#[tokio::test]
async fn each_rule_has_its_answer_in_an_outage_and_an_error_refunds_the_others() {
    let text = "
domain: d
descriptors:
  - {key: good, rate_limit: {quota: 5/h}}
  - {key: a, on_outage: allow, rate_limit: {name: bad_a, quota: 1/h}}
  - {key: f, on_outage: fail, rate_limit: {name: bad_f, quota: 1/h}}
  - {key: l, on_outage: local, rate_limit: {name: bad_l, quota: 1/h}}
  - {key: n, rate_limit: {name: bad_n, quota: 1/h}}
";
    let limiter = RuleLimiter::builder(Rules::new(rules(text)), Failing(still()))
        .on_outage(Outage::Open)
        .build();
    for _ in 0..3 {
        assert!(passes(&limiter, &["a"], 1).await);
        assert!(passes(&limiter, &["n"], 1).await);
        let error = limiter
            .check("d", &keys(&["good", "f"]), 1)
            .await
            .unwrap_err();
        assert!(matches!(error, CheckError::Store(_)), "{error}");
    }
    assert_eq!(remaining(&limiter, "good").await, 5);
    assert!(passes(&limiter, &["l"], 1).await);
    assert!(!passes(&limiter, &["l"], 1).await);
}
