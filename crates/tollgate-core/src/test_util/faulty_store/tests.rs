use tollgate_model::Concurrency;

use super::*;
use crate::{Cost, Limiter, Outage, Policy, Quota, clock::Clock, permits::ConcurrencyLimiter};

fn limiter(store: &FaultyStore, outage: Outage) -> Limiter {
    Limiter::builder(store.clone())
        .policies(Policy::token_bucket("api", Quota::per_hour(10)))
        .on_outage(outage)
        .build()
}

async fn remaining(limiter: &Limiter) -> Option<u64> {
    let decision = limiter.check("acme").await.expect("a decision");
    decision.state("api").map(|state| state.remaining())
}

#[tokio::test]
async fn in_an_outage_the_limiter_decides_by_its_rule_and_then_the_counts_continue() {
    let store = FaultyStore::default();
    let [open, local] = [Outage::Open, Outage::local(2)].map(|outage| limiter(&store, outage));
    let closed = limiter(&store, Outage::Closed);
    assert_eq!(remaining(&open).await, Some(9));
    for kind in [ErrorKind::ConnectionLost, ErrorKind::OutOfMemory] {
        store.fail_with(kind);
        assert_eq!(
            open.check("acme").await.expect("a decision").degraded(),
            Some(kind)
        );
        assert_eq!(closed.check("acme").await.expect_err("closed").kind(), kind);
    }
    assert_eq!(
        remaining(&local).await,
        Some(4),
        "the share of one of two replicas"
    );
    store.recover();
    for (limiter, left) in [(open, 8), (local, 7), (closed, 6)] {
        let decision = limiter.check("acme").await.expect("a decision");
        assert_eq!(
            (
                decision.degraded(),
                decision.state("api").expect("a state").remaining()
            ),
            (None, left)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_stall_lasts_until_the_deadline_and_its_calls_are_never_answered() {
    let store = FaultyStore::default();
    let limiter = limiter(&store, Outage::Closed);
    store.stall();
    let start = tokio::time::Instant::now();
    let stalled = limiter.check("acme").into_future();
    store.recover();
    assert_eq!(
        stalled.await.expect_err("closed").kind(),
        ErrorKind::Timeout
    );
    assert_eq!(start.elapsed(), Duration::from_millis(50));
    assert_eq!(
        remaining(&limiter).await,
        Some(9),
        "the stalled call charged nothing"
    );
}

#[tokio::test]
async fn every_call_fails() {
    let store = FaultyStore::default();
    let limiter = limiter(&store, Outage::Closed);
    let reservation = limiter
        .reserve("acme", Cost::ONE)
        .await
        .expect("a reservation");
    store.fail();
    let errors = [
        limiter.peek("acme").await.map(drop),
        limiter.refund("acme", Cost::ONE).await,
        limiter.reset("acme").await,
        limiter.entries("acme", 1).await.map(drop),
        limiter.reserve("acme", Cost::ONE).await.map(drop),
        reservation.commit(Cost::ZERO).await.map(drop),
    ];
    for error in errors.map(|result| result.expect_err("a fault")) {
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
    assert!(limiter.can_decide(&"acme".into()));
}

#[tokio::test]
async fn permits_are_granted_in_the_process_while_the_store_fails() {
    let store = FaultyStore::default();
    let exports = ConcurrencyLimiter::new(store.clone(), Concurrency::new("exports", 1));
    store.fail();
    let acquired = exports.acquire("acme").await.expect("an answer");
    assert!(acquired.is_ok());
    let denied = exports
        .acquire("acme")
        .await
        .expect("an answer")
        .expect_err("one of one is held");
    assert!(denied.degraded().is_some());
}

#[tokio::test(start_paused = true)]
async fn units_accrue_in_an_outage_on_the_clock_of_tokio_and_on_that_of_the_test() {
    for (clock, is_manual) in [(Clock::tokio(), false), (Clock::manual(0), true)] {
        let store = FaultyStore::default();
        let limiter = Limiter::builder(store.clone())
            .policies(Policy::token_bucket("api", Quota::per_hour(1)))
            .outage_clock(clock.clone())
            .build();
        store.fail();
        let is_allowed = async |after: u64| {
            let after = Duration::from_secs(after);
            match is_manual {
                true => clock.advance(after),
                false => tokio::time::advance(after).await,
            }
            let decision = limiter.check("acme").await.expect("a decision");
            decision.is_allowed()
        };
        assert!(is_allowed(0).await && !is_allowed(0).await);
        assert!(!is_allowed(3_599).await && is_allowed(1).await);
    }
}
