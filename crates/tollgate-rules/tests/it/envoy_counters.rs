//! Counters of the mode `envoy`, which denied requests raise above the limit.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::{MemoryStore, store::Clock};
use tollgate_rules::{Code, Compat, Descriptor, RuleLimiter, RuleSet, Rules, Status, Usage};

use super::{envoy_rules, rules};

fn on_memory(set: RuleSet) -> (RuleLimiter, Clock) {
    let clock = Clock::manual(0);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    (RuleLimiter::new(Rules::new(set), store), clock)
}

async fn check(limiter: &RuleLimiter, key: &'static str, hits: u64) -> Status {
    let request = [Descriptor::from([(key, "x")]).with_hits(hits)];
    limiter.check("d", &request, 1).await.unwrap().verdict().statuses()[0].clone()
}

fn numbers(usage: Usage) -> (u64, u64, u64, u64) {
    (usage.total, usage.within, usage.near, usage.over)
}

const RULES: &str = "
domain: d
descriptors:
  - {key: three, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: ten, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: never, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: most, rate_limit: {unit: hour, requests_per_unit: 4294967295}}
";

#[tokio::test]
async fn a_check_of_zero_units_passes_a_full_window_and_is_denied_by_an_exceeded_one() {
    let (limiter, clock) = on_memory(envoy_rules(RULES));
    for (hits, expected, remaining) in [
        (3, Code::Ok, 0),
        (0, Code::Ok, 0),
        (0, Code::Ok, 0),
        (1, Code::OverLimit, 0),
        (0, Code::OverLimit, 0),
        (0, Code::OverLimit, 0),
    ] {
        let status = check(&limiter, "three", hits).await;
        assert_eq!((status.code(), status.remaining()), (expected, remaining), "{hits}");
    }
    // The mark ends with its window.
    clock.advance(Duration::from_secs(3_600));
    for (hits, remaining) in [(0, 3), (3, 0), (0, 0)] {
        let status = check(&limiter, "three", hits).await;
        assert_eq!((status.code(), status.remaining()), (Code::Ok, remaining), "{hits}");
    }
    // More units than the limit ever has exceed it too, from the first request on.
    assert_eq!(check(&limiter, "ten", 11).await.code(), Code::OverLimit);
    assert_eq!(check(&limiter, "ten", 0).await.code(), Code::OverLimit);

    let (native, _) = on_memory(rules(RULES));
    assert_eq!(check(&native, "three", 3).await.code(), Code::Ok);
    assert_eq!(check(&native, "three", 0).await.code(), Code::OverLimit);
}

#[tokio::test]
async fn a_limit_of_zero_passes_checks_of_zero_units_until_a_unit_was_asked_for() {
    let (limiter, clock) = on_memory(envoy_rules(RULES));
    assert_eq!(check(&limiter, "never", 0).await.code(), Code::Ok);
    assert_eq!(check(&limiter, "never", 1).await.code(), Code::OverLimit);
    assert_eq!(check(&limiter, "never", 0).await.code(), Code::OverLimit);
    clock.advance(Duration::from_secs(3_600));
    assert_eq!(check(&limiter, "never", 0).await.code(), Code::Ok);

    let (native, _) = on_memory(rules(RULES));
    assert_eq!(check(&native, "never", 0).await.code(), Code::OverLimit);
}

#[tokio::test]
async fn units_near_the_limit_are_rounded_as_by_envoys_service() {
    // Four fifths of the limit are 3435973836. With 24 bits of precision they are 3435973888.
    for (set, near) in [(rules(RULES), 14), (envoy_rules(RULES), 0)] {
        let (limiter, _) = on_memory(set);
        let usage = check(&limiter, "most", 3_435_973_850).await.usage();
        assert_eq!(numbers(usage), (3_435_973_850, 3_435_973_850, near, 0));
    }
}

#[tokio::test]
async fn units_over_the_limit_are_those_above_what_was_left() {
    let (limiter, _) = on_memory(envoy_rules(RULES));
    assert_eq!(numbers(check(&limiter, "ten", 3).await.usage()), (3, 3, 0, 0));
    // 15 of 10 are counted: five are over, and the ninth and tenth are near.
    assert_eq!(numbers(check(&limiter, "ten", 12).await.usage()), (12, 0, 2, 5));
    assert_eq!(numbers(check(&limiter, "ten", 12).await.usage()), (12, 0, 0, 12));
}

#[tokio::test]
async fn a_check_of_zero_units_waits_for_one_unit_in_native_mode() {
    let text = "{domain: d, descriptors: [{key: bucket, rate_limit: {quota: 1/s burst 10}}]}";
    let (limiter, _) = on_memory(rules(text));
    assert_eq!(check(&limiter, "bucket", 10).await.code(), Code::Ok);
    let look = [Descriptor::from([("bucket", "x")]).with_hits(0)];
    let decision = limiter.check("d", &look, 1).await.unwrap();
    assert!(decision.is_denied());
    let wait = Some(Duration::from_secs(1));
    assert_eq!((decision.verdict().statuses()[0].reset_after(), decision.retry_after()), (wait, wait));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Compares every status with a counter that each request raises, as in Envoy's service.
    #[test]
    fn statuses_of_the_mode_envoy_are_those_of_counters_that_denied_requests_raise(
        requests in prop::collection::vec(
            (prop::collection::vec((0..4_usize, 0..12_u64), 1..5), 0..40_u64),
            1..60,
        ),
    ) {
        const LIMITS: [u64; 4] = [0, 2, 5, 9];
        const NAMES: [&str; 4] = ["k0", "k1", "k2", "k3"];
        let leaf = |at: usize| format!("{{key: k{at}, rate_limit: {{unit: minute, requests_per_unit: {}}}}}", LIMITS[at]);
        let leaves: Vec<_> = (0..4).map(leaf).collect();
        let (limiter, clock) = on_memory(envoy_rules(&format!("{{domain: d, descriptors: [{}]}}", leaves.join(", "))));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (mut now, mut counts) = (0, [(0, 0); 4]);
        for (mut chosen, seconds) in requests {
            now += seconds;
            clock.advance(Duration::from_secs(seconds));
            chosen.sort_unstable();
            chosen.dedup_by_key(|(at, _)| *at);
            let request: Vec<_> =
                chosen.iter().map(|(at, hits)| Descriptor::from([(NAMES[*at], "x")]).with_hits(*hits)).collect();
            let decision = runtime.block_on(limiter.check("d", &request, 1)).unwrap();
            let mut is_over = false;
            for ((at, hits), status) in chosen.iter().zip(decision.verdict().statuses()) {
                let (window, count) = &mut counts[*at];
                if *window != now / 60 {
                    (*window, *count) = (now / 60, 0);
                }
                *count += hits;
                is_over |= *count > LIMITS[*at];
                prop_assert_eq!(status.code() == Code::OverLimit, *count > LIMITS[*at]);
                prop_assert_eq!(status.remaining(), LIMITS[*at].saturating_sub(*count));
                prop_assert_eq!(status.usage(), Usage::new(LIMITS[*at], *count, *hits, Compat::Envoy));
            }
            prop_assert_eq!(decision.is_denied(), is_over);
        }
    }
}
