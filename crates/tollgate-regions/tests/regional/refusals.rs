//! Refusals of a store of several regions, with the reason, before anything is decided.

use std::time::Duration;

use tollgate_core::{Algorithm, Cost, Error, ErrorKind, Lease, Limiter, Policy, PolicySet, Quota};
use tollgate_regions::{Durability, RegionalStore, RegionalStoreBuilder};
use tollgate_tests::{RedisServer, no_server};

/// Nobody listens there.
const NOBODY: &str = "redis://127.0.0.1:1/";

fn builder() -> RegionalStoreBuilder {
    RegionalStore::builder(NOBODY, NOBODY)
        .region("eu")
        .durability(Durability::Trust)
        .round_trip(Duration::from_millis(80))
}

fn leased(algorithm: Algorithm, quota: Quota) -> Policy {
    Policy::try_new("api", algorithm, quota)
        .and_then(|policy| policy.try_leased(Lease::new().share(2)))
        .expect("a policy")
}

/// Returns the reason for which no limiter is built.
fn refused(policies: impl Into<PolicySet>) -> String {
    let store = builder().build().expect("a store");
    let built = Limiter::builder(store).policies(policies).try_build();
    let error: Error = built.expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    error.to_string()
}

#[test]
fn a_burst_below_four_round_trips_is_refused_and_the_least_one_is_taken() {
    let of = |burst| Quota::per_second(1_000).with_burst(burst);
    let reason = refused(leased(Algorithm::TokenBucket, of(639)));
    assert!(
        reason.contains("must be at least 641, got 639") || reason.contains("must be at least 640"),
        "{reason}"
    );
    let store = builder().build().expect("a store");
    let least = leased(Algorithm::TokenBucket, of(640));
    assert!(Limiter::builder(store).policies(least).try_build().is_ok());
}

#[test]
fn sets_and_other_algorithms_and_policies_that_are_not_leased_are_refused() {
    let quota = Quota::per_second(1_000);
    let bucket = leased(Algorithm::TokenBucket, quota);
    let window = Policy::fixed_window("other", quota).leased(Lease::new().share(2));
    let set = PolicySet::try_new([bucket, window]).expect("a set");
    assert!(refused(set).contains("one policy at a time, got 2"));
    let sliding = leased(Algorithm::SlidingWindow, quota);
    assert!(refused(sliding).contains("share token buckets and fixed windows"));
    let plain = Policy::token_bucket("api", quota);
    assert!(refused(plain).contains("is not leased"));
}

#[tokio::test]
async fn a_cost_above_the_share_a_refund_and_a_reservation_are_refused() {
    let policy = leased(Algorithm::TokenBucket, Quota::per_second(1_000));
    let limiter = Limiter::new(builder().build().expect("a store"), policy);
    let kind = |error: Error| error.kind();
    let check = limiter.check("acme").cost(Cost::new(501)).await;
    assert_eq!(check.map_err(kind).err(), Some(ErrorKind::Unsupported));
    let refund = limiter.refund("acme", Cost::ONE).await;
    assert_eq!(refund.map_err(kind), Err(ErrorKind::Unsupported));
    let reserved = limiter.reserve("acme", Cost::ONE).await;
    assert_eq!(
        reserved.map(drop).map_err(kind),
        Err(ErrorKind::Unsupported)
    );
}

#[tokio::test]
async fn what_is_not_leased_is_decided_by_the_server_of_the_region_where_that_is_set() {
    if no_server() {
        return;
    }
    let (local, home) = (RedisServer::start(), RedisServer::start());
    let store = RegionalStore::builder(local.url(), home.url())
        .region("eu")
        .durability(Durability::Trust)
        .unleased_in_region()
        .build()
        .expect("a store");
    let hour = Quota::per_hour(2);
    let set = [
        Policy::token_bucket("one", hour),
        Policy::sliding_log("other", hour),
    ];
    let limiter = Limiter::builder(store)
        .policies(set)
        .deadline(Duration::from_secs(60))
        .build();
    let reserved = limiter.reserve("acme", Cost::ONE).await.expect("an answer");
    let reserved = reserved.into_result().expect("a reservation");
    assert!(
        limiter
            .check("acme")
            .await
            .expect("a decision")
            .is_allowed()
    );
    assert!(limiter.check("acme").await.expect("a decision").is_denied());
    let _ = reserved.commit(Cost::ZERO).await.expect("a settlement");
    limiter.refund("acme", Cost::ONE).await.expect("a refund");
    let left = limiter.peek("acme").await.expect("a look");
    assert_eq!(left.state("one").expect("the policy").remaining(), 2);
    assert_eq!(home.keys_and_expires().0, 0, "nothing leaves the region");
    let leased = leased(Algorithm::SlidingWindow, Quota::per_second(1_000));
    assert!(limiter.with_policies(leased).check("acme").await.is_err());
}

#[test]
fn a_store_without_a_name_a_guard_or_a_single_server_is_refused() {
    let reason = |builder: RegionalStoreBuilder| builder.build().expect_err("refused").to_string();
    assert_eq!(reason(builder().region("")), "the region has no name");
    let unguarded = RegionalStore::builder(NOBODY, NOBODY).region("eu");
    assert_eq!(reason(unguarded), "durability is not set");
    let none = builder().durability(Durability::Replicas(0));
    assert!(reason(none).contains("names no replica"));
    let far = builder().round_trip(Duration::from_secs(11));
    assert!(reason(far).contains("got 11s"));
    let cluster = RegionalStore::builder("redis+cluster://127.0.0.1:1", NOBODY)
        .region("eu")
        .durability(Durability::Trust);
    assert!(reason(cluster).contains("the server of the region is a cluster"));
}

#[tokio::test]
async fn a_server_that_refuses_info_in_scripts_is_refused_when_the_store_connects() {
    if no_server() {
        return;
    }
    let (open, closed) = (RedisServer::start(), RedisServer::start());
    closed.command(&["ACL", "SETUSER", "default", "-info"]);
    for (local, home) in [(&open, &closed), (&closed, &open)] {
        let store = RegionalStore::builder(local.url(), home.url())
            .region("eu")
            .durability(Durability::Trust);
        let error = store.connect().await.expect_err("no reign can be read");
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    }
    let store = RegionalStore::builder(open.url(), open.url())
        .region("eu")
        .durability(Durability::Trust);
    assert!(store.connect().await.is_ok());
}
