//! The deadline that a limiter hands to its store.

use std::time::Duration;

use tollgate::{ErrorKind, Limiter, MemoryStore, Outage, Policy, Quota};
use tollgate_test_support::SilentStore;

const DEADLINE: Duration = Duration::from_millis(40);
const HOURLY: Policy = Policy::token_bucket("hourly", Quota::per_hour(5));

fn limiter(store: SilentStore) -> Limiter {
    Limiter::builder(store)
        .policies(HOURLY)
        .deadline(DEADLINE)
        .on_outage(Outage::Closed)
        .build()
}

#[tokio::test(start_paused = true)]
async fn the_deadline_is_absolute_and_counts_from_the_call() {
    let store = SilentStore::new(false);
    let limiter = limiter(store.clone());
    let called = tokio::time::Instant::now();
    let check = limiter.check("acme").into_future();
    let deadlines: Vec<_> = store
        .deadlines()
        .into_iter()
        .map(|deadline| deadline.and_then(|it| it.instant()))
        .collect();
    assert_eq!(deadlines, [Some((called + DEADLINE).into_std())]);
    // Time before the first poll counts too.
    tokio::time::advance(DEADLINE / 2).await;
    let error = check.await.expect_err("the store never answers");
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(error.to_string(), "the store did not answer within 40ms");
    let waited = called.elapsed();
    assert!(
        waited >= DEADLINE && waited < DEADLINE * 3 / 2,
        "{waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_check_that_may_wait_for_a_second_gives_the_store_a_second_unless_a_deadline_is_set() {
    let timeout = async |limiter: Limiter, store: SilentStore, wait_ms| {
        let called = tokio::time::Instant::now();
        let _ = limiter
            .check("acme")
            .wait(Duration::from_millis(wait_ms))
            .await;
        assert_eq!(
            called.elapsed().as_millis(),
            store.deadlines()[0]
                .expect("a deadline")
                .timeout()
                .as_millis()
        );
        called.elapsed()
    };
    let usual = |store| {
        Limiter::builder(store)
            .policies(HOURLY)
            .on_outage(Outage::Closed)
            .build()
    };
    for (wait_ms, expected_ms) in [(0, 50), (999, 50), (1_000, 1_000), (30_000, 1_000)] {
        let store = SilentStore::new(false);
        let expected = Duration::from_millis(expected_ms);
        assert_eq!(
            timeout(usual(store.clone()), store, wait_ms).await,
            expected,
            "{wait_ms}"
        );
        let store = SilentStore::new(false);
        assert_eq!(
            timeout(limiter(store.clone()), store, wait_ms).await,
            DEADLINE,
            "{wait_ms}"
        );
    }
}

#[tokio::test]
async fn a_store_in_process_has_no_deadline() {
    let store = SilentStore::new(true);
    drop(limiter(store.clone()).check("acme").into_future());
    assert_eq!(store.deadlines(), [None]);
    assert!(
        Limiter::new(MemoryStore::new(), HOURLY)
            .check("acme")
            .await
            .is_ok()
    );
}
