use std::time::Duration;

use tollgate_model::testing::ALGORITHMS;

use super::*;
use crate::{
    Costs, Denied, ErrorKind, Limiter, Outage, Policy, Quota,
    permits::{Concurrency, ConcurrencyLimiter},
    test_util::{Answer, ScriptedStore},
};

const WAIT: Duration = Duration::from_millis(7_300);

fn quota() -> Quota {
    Quota::per_second(10)
}

#[tokio::test]
async fn every_algorithm_denies_with_the_wait_of_the_script_whatever_the_quota() {
    for algorithm in ALGORITHMS {
        let policy = Policy::try_new("api", algorithm, quota()).expect("a policy");
        for (store, waits) in [
            (ScriptedStore::deny(WAIT), [WAIT; 2]),
            (
                ScriptedStore::new([Answer::deny(WAIT), Answer::deny(2 * WAIT)]),
                [WAIT, 2 * WAIT],
            ),
        ] {
            let limiter = Limiter::new(store, policy.clone());
            for wait in waits {
                let decision = limiter.check("acme").await.expect("a decision");
                let state = decision.state("api").expect("a state");
                assert_eq!(decision.retry_after(), Some(wait), "{algorithm:?}");
                assert_eq!(
                    (state.remaining(), state.next_unit_after()),
                    (0, wait),
                    "{algorithm:?}"
                );
                assert!(state.reset_after() >= wait && decision.degraded().is_none());
                assert_eq!(
                    decision.into_result().expect_err("denied").retry_after(),
                    Some(wait)
                );
            }
        }
    }
}

#[tokio::test]
async fn an_allowed_request_leaves_what_a_fresh_key_leaves() {
    for algorithm in ALGORITHMS {
        let limiter = Limiter::new(
            ScriptedStore::allow(),
            Policy::try_new("api", algorithm, quota()).expect("a policy"),
        );
        for _ in 0..20 {
            let decision = limiter
                .check("acme")
                .cost(Cost::new(3))
                .await
                .expect("a decision");
            assert_eq!(
                (
                    decision.is_allowed(),
                    decision.state("api").expect("a state").remaining()
                ),
                (true, 7)
            );
        }
    }
}

#[tokio::test]
async fn one_policy_denies_and_the_others_are_fresh() {
    let policies = [
        Policy::token_bucket("burst", quota()),
        Policy::sliding_log("daily", Quota::per_day(5)),
    ];
    let limiter = Limiter::new(
        ScriptedStore::new([Answer::deny(WAIT).by("daily")]),
        policies,
    );
    let decision = limiter
        .check("acme")
        .cost([("burst", 2), ("daily", 1)])
        .await
        .expect("a decision");
    let states: Vec<_> = decision
        .states()
        .map(|state| (state.is_exceeded(), state.remaining()))
        .collect();
    assert_eq!(states, [(false, 10), (true, 0)]);
    assert_eq!(
        decision.strictest().expect("a state").policy().name(),
        "daily"
    );
    let denied: Denied = decision.into_result().expect_err("denied");
    assert_eq!(
        denied.to_string(),
        "rate limit daily exceeded, retry after 7.3s"
    );
}

#[tokio::test]
#[should_panic(expected = "the limiter has no policy weekly, which the script lets deny")]
async fn a_denial_by_an_unknown_policy_panics() {
    let limiter = Limiter::new(
        ScriptedStore::new([Answer::deny(WAIT).by("weekly")]),
        Policy::token_bucket("a", quota()),
    );
    let _ = limiter.check("acme").await;
}

#[tokio::test]
async fn answers_come_in_their_order_and_the_last_one_is_repeated() {
    let script = [
        Answer::allow(),
        Answer::deny(WAIT),
        Answer::fail(ErrorKind::OutOfMemory),
    ];
    let store = ScriptedStore::new(script);
    let limiter = Limiter::builder(store.clone())
        .policies(Policy::token_bucket("api", quota()))
        .on_outage(Outage::Closed)
        .build();
    assert!(
        !limiter.is_in_process(),
        "a script with a failure is subject to the outage rule"
    );
    assert!(limiter.check("a").await.expect("a decision").is_allowed());
    assert!(limiter.check("b").await.expect("a decision").is_denied());
    for _ in 0..3 {
        assert_eq!(
            limiter.check("c").await.expect_err("closed").kind(),
            ErrorKind::OutOfMemory
        );
    }
    let keys: Vec<_> = store
        .checks()
        .iter()
        .map(|check| check.key().clone())
        .collect();
    assert_eq!(keys, ["a", "b", "c", "c", "c"].map(Key::new));
}

#[tokio::test(start_paused = true)]
async fn a_stalled_check_ends_at_the_deadline() {
    let start = tokio::time::Instant::now();
    let limiter = Limiter::builder(ScriptedStore::new([Answer::stall()]))
        .policies(Policy::token_bucket("api", quota()))
        .deadline(Duration::from_millis(80))
        .on_outage(Outage::Open)
        .build();
    let decision = limiter.check("acme").await.expect("a decision");
    assert_eq!(decision.degraded(), Some(ErrorKind::Timeout));
    assert_eq!(start.elapsed(), Duration::from_millis(80));
}

#[tokio::test(start_paused = true)]
async fn a_waiting_caller_waits_as_the_script_says() {
    let store = ScriptedStore::new([Answer::deny(WAIT), Answer::allow()]);
    let limiter = Limiter::new(store.clone(), Policy::token_bucket("api", quota()));
    let start = tokio::time::Instant::now();
    let decision = limiter
        .check("acme")
        .wait(2 * WAIT)
        .await
        .expect("a decision");
    assert_eq!(
        (decision.is_allowed(), start.elapsed(), store.checks().len()),
        (true, WAIT, 2)
    );
}

#[tokio::test]
async fn a_reservation_takes_an_answer_and_is_settled() {
    let store = ScriptedStore::new([Answer::allow(), Answer::deny(WAIT)]);
    let limiter = Limiter::new(store.clone(), Policy::token_bucket("api", quota()));
    let reservation = limiter
        .reserve("acme", Cost::new(4))
        .await
        .expect("a reservation");
    assert!(reservation.decision().is_allowed());
    assert_eq!(
        reservation
            .commit(Costs::from(Cost::ONE))
            .await
            .expect("an answer"),
        Settlement::Settled
    );
    assert!(
        limiter
            .reserve("acme", Cost::new(4))
            .await
            .expect("an answer")
            .decision()
            .is_denied()
    );
    assert_eq!(
        store
            .checks()
            .iter()
            .map(CheckRecord::cost)
            .collect::<Vec<_>>(),
        [Cost::new(4); 2]
    );
}

#[test]
fn a_script_of_decisions_needs_no_runtime() {
    let limiter = Limiter::new(
        ScriptedStore::deny(WAIT),
        Policy::token_bucket("api", quota()),
    );
    assert!(limiter.is_in_process());
    assert!(
        limiter
            .block_on(limiter.check("acme"))
            .expect("a decision")
            .is_denied()
    );
}

#[test]
#[should_panic(expected = "a script must have at least one answer")]
fn a_script_without_an_answer_is_refused() {
    let _ = ScriptedStore::new([]);
}

#[tokio::test]
async fn a_store_without_permits_is_a_typed_error() {
    let limiter = ConcurrencyLimiter::new(ScriptedStore::allow(), Concurrency::new("jobs", 1));
    let error = limiter.acquire("acme").await.expect_err("no permits");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}
