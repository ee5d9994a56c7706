//! Descriptors that give units back.

use std::time::Duration;

use tollgate::{MemoryStore, store::Clock};
use tollgate_rules::{Code, Descriptor, RuleDecision, RuleLimiter, Rules, Usage};

use super::{envoy_rules, rules};

const RULES: &str = "
domain: d
descriptors:
  - {key: window, rate_limit: {unit: day, requests_per_unit: 10}}
  - {key: bucket, rate_limit: {quota: 60/min burst 10}}
  - {key: once, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: never, rate_limit: {unit: day, requests_per_unit: 0}}
";

/// Returns a limiter in native mode, on a clock that stands still.
fn native() -> (RuleLimiter, Clock) {
    let clock = Clock::manual(0);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    (RuleLimiter::new(Rules::new(rules(RULES)), store), clock)
}

fn spends(key: &'static str, hits: u64) -> Descriptor<'static> {
    Descriptor::from([(key, "x")]).with_hits(hits)
}

fn returns(key: &'static str, hits: u64) -> Descriptor<'static> {
    spends(key, hits).refunding()
}

async fn ask<const N: usize>(
    limiter: &RuleLimiter,
    request: [Descriptor<'static>; N],
) -> RuleDecision {
    limiter.check("d", &request, 1).await.unwrap()
}

/// Returns the code and the units that are left of each descriptor.
fn statuses(decision: &RuleDecision) -> Vec<(Code, u64)> {
    let statuses = decision.verdict().statuses().iter();
    statuses
        .map(|status| (status.code(), status.remaining()))
        .collect()
}

#[tokio::test]
async fn units_return_up_to_what_is_spent() {
    for key in ["window", "bucket"] {
        let (limiter, _) = native();
        for (request, left) in [
            (spends(key, 7), 3),
            (returns(key, 4), 7),
            (returns(key, 0), 7),
            (returns(key, 1_000), 10),
            (returns(key, u64::MAX), 10),
            (spends(key, 10), 0),
            (returns(key, 1), 1),
            (spends(key, 1), 0),
        ] {
            let found = statuses(&ask(&limiter, [request.clone()]).await);
            assert_eq!(found, [(Code::Ok, left)], "{request:?}");
        }
        assert!(ask(&limiter, [spends(key, 1)]).await.is_denied(), "{key}");
    }
}

#[tokio::test]
async fn units_do_not_return_to_a_newer_window() {
    let (limiter, clock) = native();
    assert!(ask(&limiter, [spends("window", 7)]).await.is_allowed());
    clock.advance(Duration::from_secs(86_400));
    let found = statuses(&ask(&limiter, [returns("window", 7)]).await);
    assert_eq!(found, [(Code::Ok, 10)]);
    let found = statuses(&ask(&limiter, [spends("window", 7)]).await);
    assert_eq!(found, [(Code::Ok, 3)]);
}

#[tokio::test]
async fn a_descriptor_that_gives_units_back_denies_nothing() {
    let (limiter, _) = native();
    assert!(ask(&limiter, [spends("window", 10)]).await.is_allowed());
    for key in ["window", "never", "unknown"] {
        let decision = ask(&limiter, [returns(key, 0)]).await;
        assert!(decision.is_allowed(), "{key}");
        assert_eq!(statuses(&decision), [(Code::Ok, 0)], "{key}");
    }
    let decision = ask(&limiter, [returns("window", 2), returns("never", 3)]).await;
    let usage = decision.verdict().statuses().iter().map(|one| one.usage());
    let expected = [Usage::refunded(2), Usage::refunded(3)];
    assert_eq!(usage.collect::<Vec<_>>(), expected);
    assert!(ask(&limiter, [spends("never", 1)]).await.is_denied());
}

#[tokio::test]
async fn units_return_before_others_are_charged_and_stay_when_those_deny() {
    let (limiter, _) = native();
    assert!(ask(&limiter, [spends("window", 10)]).await.is_allowed());
    let request = [spends("window", 3), returns("window", 3)];
    assert!(ask(&limiter, request).await.is_allowed());
    assert!(ask(&limiter, [spends("once", 1)]).await.is_allowed());
    let request = [spends("bucket", 4), returns("window", 5), spends("once", 1)];
    let decision = ask(&limiter, request).await;
    assert!(decision.is_denied());
    assert_eq!(
        statuses(&decision)[1..],
        [(Code::Ok, 5), (Code::OverLimit, 0)]
    );
    // The denied request was not charged, and its units were returned.
    let looks = [returns("bucket", 0), returns("window", 0)];
    let found = statuses(&ask(&limiter, looks).await);
    assert_eq!(found, [(Code::Ok, 10), (Code::Ok, 5)]);
}

#[tokio::test]
async fn units_of_the_request_return_where_a_descriptor_has_none_of_its_own() {
    let (limiter, _) = native();
    assert!(ask(&limiter, [spends("window", 7)]).await.is_allowed());
    let request = [Descriptor::from([("window", "x")]).refunding()];
    for (hits, left) in [(0, 4), (2, 6)] {
        let decision = limiter.check("d", &request, hits).await.unwrap();
        assert_eq!(statuses(&decision), [(Code::Ok, left)]);
    }
}

#[tokio::test]
async fn in_the_mode_envoy_a_counter_may_stay_above_the_limit() {
    let text = RULES.replace("quota: 60/min burst 10", "unit: hour, requests_per_unit: 5");
    let store = MemoryStore::builder().clock(Clock::manual(0)).build();
    let limiter = RuleLimiter::new(Rules::new(envoy_rules(&text)), store);
    for (request, expected) in [
        (spends("window", 15), (Code::OverLimit, 0)),
        (returns("window", 3), (Code::Ok, 0)),
        (spends("window", 0), (Code::OverLimit, 0)),
        (returns("window", 2), (Code::Ok, 0)),
        (spends("window", 0), (Code::Ok, 0)),
        (returns("window", 4), (Code::Ok, 4)),
        (spends("window", 1), (Code::Ok, 3)),
        (returns("window", 100), (Code::Ok, 10)),
        (spends("never", 2), (Code::OverLimit, 0)),
        (returns("never", 1), (Code::Ok, 0)),
        (spends("never", 0), (Code::OverLimit, 0)),
        (returns("never", 1), (Code::Ok, 0)),
        (spends("never", 0), (Code::Ok, 0)),
    ] {
        let found = statuses(&ask(&limiter, [request.clone()]).await);
        assert_eq!(found, [expected], "{request:?}");
    }
    // Each descriptor finds the counter as the one before has left it.
    let (spends, returns) = (
        |hits| spends("bucket", hits),
        |hits| returns("bucket", hits),
    );
    let request = [
        spends(4),
        returns(3),
        returns(3),
        spends(2),
        spends(4),
        returns(2),
    ];
    let found = statuses(&ask(&limiter, request).await);
    let (ok, over) = (Code::Ok, Code::OverLimit);
    let expected = [(ok, 1), (ok, 4), (ok, 5), (ok, 3), (over, 0), (ok, 1)];
    assert_eq!(found, expected);
}
