//! Counters of the mode `envoy`, which denied requests raise above the limit.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use proptest::{prelude::*, test_runner::TestRunner};
use tollgate::{MemoryStore, Outage, RedisStore, store::Clock};
use tollgate_rules::{Code, Compat, Descriptor, RuleLimiter, RuleSet, Rules, Status, Usage};
use tollgate_tests::{RedisServer, no_server};

use super::{envoy_rules, rules};

/// Longer than any test takes.
const LIMIT: Duration = Duration::from_secs(3_600);

fn on_memory(set: RuleSet) -> (RuleLimiter, Clock) {
    let clock = Clock::manual(0);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    (RuleLimiter::new(Rules::new(set), store), clock)
}

async fn check(limiter: &RuleLimiter, key: &'static str, hits: u64) -> Status {
    let request = [Descriptor::from([(key, "x")]).with_hits(hits)];
    limiter
        .check("d", &request, 1)
        .await
        .unwrap()
        .verdict()
        .statuses()[0]
        .clone()
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
        assert_eq!(
            (status.code(), status.remaining()),
            (expected, remaining),
            "{hits}"
        );
    }
    // The mark ends with its window.
    clock.advance(Duration::from_secs(3_600));
    for (hits, remaining) in [(0, 3), (3, 0), (0, 0)] {
        let status = check(&limiter, "three", hits).await;
        assert_eq!(
            (status.code(), status.remaining()),
            (Code::Ok, remaining),
            "{hits}"
        );
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
    assert_eq!(
        numbers(check(&limiter, "ten", 3).await.usage()),
        (3, 3, 0, 0)
    );
    // 15 of 10 are counted: five are over, and the ninth and tenth are near.
    assert_eq!(
        numbers(check(&limiter, "ten", 12).await.usage()),
        (12, 0, 2, 5)
    );
    assert_eq!(
        numbers(check(&limiter, "ten", 12).await.usage()),
        (12, 0, 0, 12)
    );
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
    assert_eq!(
        (
            decision.verdict().statuses()[0].reset_after(),
            decision.retry_after()
        ),
        (wait, wait)
    );
}

/// The limits of the keys `k0` to `k3` in the generated requests.
const LIMITS: [u64; 4] = [0, 2, 5, 9];

/// A reading of Envoy's service: each descriptor raises a counter, in the order of the request, and
/// then compares it.
#[derive(Default)]
struct Original {
    window: u64,
    counts: [u64; 4],
}

impl Original {
    /// Returns what the service answers in this window: the units that are left of each descriptor,
    /// and its usage. Units below 0 are given back. A denial that is remembered raises no counter,
    /// as with the service's local cache.
    fn answer(
        &mut self,
        window: u64,
        hits: &[(usize, i64)],
        is_remembered: &[bool],
    ) -> Vec<(bool, u64, Usage)> {
        if self.window != window {
            *self = Self {
                window,
                ..Self::default()
            };
        }
        let raised = hits
            .iter()
            .zip(is_remembered)
            .map(|((at, hits), is_remembered)| {
                let (limit, count) = (LIMITS[*at], &mut self.counts[*at]);
                let units = hits.unsigned_abs();
                if *hits < 0 {
                    *count = count.saturating_sub(units);
                    return (false, limit.saturating_sub(*count), Usage::refunded(units));
                }
                let after = *count + units;
                if !is_remembered {
                    *count = after;
                }
                (
                    after > limit,
                    limit.saturating_sub(after),
                    Usage::new(limit, after, units, Compat::Envoy),
                )
            });
        raised.collect()
    }
}

/// Returns the rules of the generated requests.
fn generated_rules(unit: &str) -> RuleSet {
    let leaf = |(at, limit)| {
        format!("{{key: k{at}, rate_limit: {{unit: {unit}, requests_per_unit: {limit}}}}}")
    };
    let leaves: Vec<_> = LIMITS.iter().enumerate().map(leaf).collect();
    envoy_rules(&format!(
        "{{domain: d, descriptors: [{}]}}",
        leaves.join(", ")
    ))
}

/// Sends a request with these units of the keys. Compares every status with that of the service.
async fn compare(
    limiter: &RuleLimiter,
    value: &str,
    hits: &[(usize, i64)],
    original: &mut Original,
    window: u64,
) -> Result<(), TestCaseError> {
    const NAMES: [&str; 4] = ["k0", "k1", "k2", "k3"];
    let descriptor = |(at, hits): &(usize, i64)| {
        let descriptor = Descriptor::from([(NAMES[*at], value)]).with_hits(hits.unsigned_abs());
        match hits {
            ..0 => descriptor.refunding(),
            _ => descriptor,
        }
    };
    let request: Vec<_> = hits.iter().map(descriptor).collect();
    let decision = limiter.check("d", &request, 1).await.unwrap();
    let statuses = decision.verdict().statuses();
    let is_remembered: Vec<_> = statuses
        .iter()
        .map(|status| status.usage().over_from_cache > 0)
        .collect();
    let expected = original.answer(window, hits, &is_remembered);
    let found = statuses.iter().map(|status| {
        let mut usage = status.usage();
        // Only a store over the network remembers denials.
        assert!(
            usage.over_from_cache == 0 || usage.over_from_cache == usage.over,
            "{usage:?}"
        );
        usage.over_from_cache = 0;
        (status.code() == Code::OverLimit, status.remaining(), usage)
    });
    prop_assert_eq!(found.collect::<Vec<_>>(), &*expected);
    prop_assert_eq!(
        decision.is_denied(),
        expected.iter().any(|(is_over, ..)| *is_over)
    );
    Ok(())
}

/// Generates the units of the keys in one request. A key may stand in it twice. At least `least`
/// units are spent: below 0, some are given back.
fn generated_hits(least: i64) -> impl Strategy<Value = Vec<(usize, i64)>> {
    prop::collection::vec((0..4_usize, least..12_i64), 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn statuses_of_the_mode_envoy_are_those_of_counters_that_denied_requests_raise(
        requests in prop::collection::vec((generated_hits(-8), 0..40_u64), 1..60),
    ) {
        let (limiter, clock) = on_memory(generated_rules("minute"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (mut now, mut original) = (0, Original::default());
        for (hits, seconds) in requests {
            now += seconds;
            clock.advance(Duration::from_secs(seconds));
            runtime.block_on(compare(&limiter, "x", &hits, &mut original, now / 60))?;
        }
    }
}

/// Returns two replicas over one server. They remember denials as long as these hold.
async fn on_redis(redis: &RedisServer, set: RuleSet) -> [RuleLimiter; 2] {
    let rules = Rules::new(set);
    let replica = async || {
        let store = RedisStore::builder(redis.url().as_str())
            .deny_cache_cap(LIMIT)
            .connect()
            .await
            .unwrap();
        // A busy machine must not make an outage of a slow answer.
        RuleLimiter::builder(rules.clone(), store)
            .deadline(LIMIT)
            .on_outage(Outage::Closed)
            .build()
    };
    [replica().await, replica().await]
}

#[tokio::test]
async fn a_denial_that_redis_remembers_counts_as_in_envoys_service() {
    if no_server() {
        return;
    }
    let redis = RedisServer::start();
    let [limiter, _] = on_redis(&redis, generated_rules("year")).await;
    let mut found = Vec::new();
    for hits in [1, 2, 5, 2] {
        let usage = check(&limiter, "k1", hits).await.usage();
        found.push((usage.near, usage.over, usage.over_from_cache));
    }
    assert_eq!(found, [(0, 0, 0), (1, 1, 0), (0, 5, 0), (0, 2, 2)]);

    // Natively, a denial is free: the second one counts as the first.
    let [native, _] = on_redis(
        &redis,
        rules("{domain: d, descriptors: [{key: n, rate_limit: {quota: 2/h}}]}"),
    )
    .await;
    let mut found = Vec::new();
    for hits in [1, 2, 2] {
        let usage = check(&native, "n", hits).await.usage();
        found.push((usage.near, usage.over, usage.over_from_cache));
    }
    assert_eq!(found, [(0, 0, 0), (1, 1, 0), (1, 1, 1)]);
}

/// The server does not know the script that reads marks yet, so the first look at one is sent twice.
#[tokio::test]
async fn a_check_of_zero_units_sees_what_the_request_names_before_it_and_not_what_comes_after() {
    if no_server() {
        return;
    }
    for requests in [
        [vec![(0, 0), (0, 5), (0, 0)], vec![(0, 0), (0, 3)]],
        [vec![(1, 2), (1, 0), (1, 1), (1, 0)], vec![(1, 0), (1, 1)]],
    ] {
        let redis = RedisServer::start();
        let [limiter, _] = on_redis(&redis, generated_rules("year")).await;
        let mut original = Original::default();
        for hits in requests {
            compare(&limiter, "x", &hits, &mut original, 0)
                .await
                .unwrap_or_else(|error| panic!("{hits:?}: {error}"));
        }
    }
}

/// The windows are years, because the clock of the server cannot be moved while denials are
/// remembered.
#[test]
fn statuses_of_the_mode_envoy_are_those_of_envoys_service_over_redis() {
    if no_server() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let redis = RedisServer::start();
    let replicas = runtime.block_on(on_redis(&redis, generated_rules("year")));
    let cases = AtomicU64::new(0);
    // The second replica does not learn that units were given back by the first one, and goes on to
    // remember its denials. So some cases have one replica, and others no such units.
    let several = prop::collection::vec((generated_hits(0), 0..2_usize), 1..60);
    let one = prop::collection::vec((generated_hits(-8), Just(0_usize)), 1..60);
    let requests = prop_oneof![several, one];
    let config = ProptestConfig {
        cases: 100,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let outcome = TestRunner::new(config).run(&requests, |requests| {
        // Each case has counters of its own.
        let value = cases.fetch_add(1, Ordering::Relaxed).to_string();
        let mut original = Original::default();
        for (hits, replica) in requests {
            runtime.block_on(compare(&replicas[replica], &value, &hits, &mut original, 0))?;
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}
