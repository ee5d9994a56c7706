//! A peek with a cost: over Redis, of sets and of leased policies. In an outage it is in `outages.rs`.

use std::time::Duration;

use tollgate::{Cost, Costs, ErrorKind, Lease, Policy, Quota, limiter::KeyState};
use tollgate_test_support::{PATIENCE, connected_store, decided_at, patient_limiter};
use tollgate_tests::RedisServer;

/// Of these no unit comes back in a test.
const BUCKET: Policy = Policy::token_bucket("bucket", Quota::per_day(100));
const LOG: Policy = Policy::sliding_log("log", Quota::per_day(50));

fn left(state: &KeyState, policy: &str) -> u64 {
    state
        .state(policy)
        .expect("a policy of the set")
        .remaining()
}

#[tokio::test]
async fn a_peek_with_a_cost_spends_nothing_of_a_set_and_tells_the_wait_of_each_policy() {
    let server = RedisServer::start();
    let limiter = patient_limiter(connected_store(server.url()).await, [BUCKET, LOG]);
    let _ = decided_at(&limiter, "acme", Cost::new(40)).await;
    for _ in 0..3 {
        let state = limiter
            .peek("acme")
            .cost(Cost::new(10))
            .await
            .expect("a peek");
        assert_eq!(
            (
                state.retry_after(),
                left(&state, "bucket"),
                left(&state, "log")
            ),
            (None, 60, 10)
        );
        let state = limiter
            .peek("acme")
            .cost(Cost::new(11))
            .await
            .expect("a peek");
        assert_eq!((left(&state, "bucket"), left(&state, "log")), (60, 10));
        assert_eq!(
            state
                .state("bucket")
                .and_then(|bucket| bucket.retry_after()),
            None
        );
        assert_eq!(
            state.state("log").and_then(|log| log.retry_after()),
            state.retry_after()
        );
        // The entries of the log leave together.
        let day = Duration::from_secs(86_400);
        assert!(
            state
                .retry_after()
                .is_some_and(|wait| wait <= day && wait > day / 2),
            "{state:?}"
        );
        let costs = Costs::new(Cost::ZERO).with("bucket", Cost::new(60));
        assert_eq!(
            limiter
                .peek("acme")
                .cost(costs)
                .await
                .expect("a peek")
                .retry_after(),
            None
        );
    }
    let error = limiter
        .peek("acme")
        .cost(Cost::new(51))
        .await
        .expect_err("the log never holds 51");
    assert_eq!(error.kind(), ErrorKind::CostExceedsBurst);
}

#[tokio::test]
async fn a_peek_with_a_cost_of_a_leased_policy_knows_the_units_of_this_process() {
    let server = RedisServer::start();
    let store = connected_store(server.url()).await;
    let leased = Policy::token_bucket("leased", Quota::per_day(1_000))
        .leased(Lease::new().generation(PATIENCE));
    let limiter = patient_limiter(store, leased);
    // Until units are leased.
    while !limiter.check("acme").await.expect("a decision").is_leased() {}
    let spent = |state: &KeyState| 1_000 - left(state, "leased");
    let before = spent(&limiter.peek("acme").await.expect("a peek"));
    assert_eq!(
        limiter
            .peek("acme")
            .cost(Cost::ONE)
            .await
            .expect("a peek")
            .retry_after(),
        None
    );
    let state = limiter
        .peek("acme")
        .cost(Cost::new(1_000))
        .await
        .expect("a peek");
    assert!(state.retry_after().is_some(), "{state:?}");
    assert_eq!(spent(&state), before);
    assert!(limiter.check("acme").await.expect("a decision").is_leased());
}
