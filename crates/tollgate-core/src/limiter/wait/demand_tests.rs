//! Simulates more callers than there are turns. Each comes back after `retry_after` when it is
//! refused.

use std::{cell::Cell, rc::Rc, sync::atomic::Ordering};

use futures_util::future::join_all;
use tokio::time::{sleep, timeout};

use super::{
    tests::{MS, PausedStore},
    *,
};
use crate::{MemoryStore, Policy, Quota, Store, clock::Clock};

/// Runs callers for `span`, and returns the number of admitted requests of each limiter, which
/// stand for processes.
async fn admitted(
    store: impl Store + Clone,
    policy: &Policy,
    limiters: usize,
    callers: usize,
    max_wait: Duration,
    span: Duration,
) -> Vec<u64> {
    let counts: Rc<Vec<Cell<u64>>> = Rc::new((0..limiters).map(|_| Cell::new(0)).collect());
    let limiters: Vec<_> = (0..limiters)
        .map(|_| Limiter::new(store.clone(), policy.clone()))
        .collect();
    let caller = |at: usize| {
        let (limiter, counts) = (limiters[at % limiters.len()].clone(), Rc::clone(&counts));
        async move {
            loop {
                let decision = limiter.check("k").wait(max_wait).await.unwrap();
                match decision.retry_after() {
                    Some(retry) => sleep(retry).await,
                    None => counts[at % counts.len()].update(|count| count + 1),
                }
            }
        }
    };
    let callers = join_all((0..callers).map(caller));
    let _ = timeout(span, callers).await;
    counts.iter().map(Cell::get).collect()
}

/// Law 17: at least 95 % of the turns are used.
#[tokio::test(start_paused = true)]
async fn callers_that_ask_for_more_than_there_is_use_the_turns() {
    let span = Duration::from_secs(6);
    let turns = 300.0;
    for policy in [
        Policy::leaky_bucket("queue", Quota::per_second(50).with_burst(1_000)),
        Policy::leaky_bucket("short", Quota::per_second(50).with_burst(2)),
        Policy::token_bucket("bucket", Quota::per_second(50).with_burst(1)),
        Policy::interval_bucket("interval", Quota::per_second(50).with_burst(50)),
    ] {
        for (callers, max_wait) in [
            (8, 40),
            (16, 40),
            (16, 100),
            (64, 250),
            (160, 3_000),
            (400, 3_000),
            (400, 40),
            (8, 3_000),
        ] {
            for limiters in [1, 4] {
                let store = MemoryStore::builder().clock(Clock::tokio()).build();
                let counts = admitted(store, &policy, limiters, callers, MS(max_wait), span).await;
                let used: u64 = counts.iter().sum();
                let place = format!(
                    "{} {callers} callers, {max_wait} ms, {limiters} limiters",
                    policy.name()
                );
                assert!(used as f64 >= 0.95 * turns, "{place}: {used}");
                let most = turns as u64 + policy.quota().burst() + 1;
                assert!(
                    policy.name() == "queue" || used <= most,
                    "{place}: {used} of {most}"
                );
            }
        }
    }
}

/// Law 17, over a store that answers a millisecond later, as a server does: a place that was
/// charged and given back by two calls would be in the way of those behind it.
#[tokio::test(start_paused = true)]
async fn refused_callers_leave_no_turn_unused_at_a_store_that_answers_later() {
    let policy = Policy::leaky_bucket("queue", Quota::per_second(50).with_burst(1_000));
    for (callers, max_wait) in [(16, 40), (16, 100), (160, 3_000)] {
        let store = PausedStore::late(MS(1));
        let span = Duration::from_secs(6);
        let used: u64 = admitted(store.clone(), &policy, 1, callers, MS(max_wait), span)
            .await
            .iter()
            .sum();
        assert!(
            used as f64 >= 0.95 * 300.0,
            "{callers} callers, {max_wait} ms: {used}"
        );
        // The callers that waited at the end gave their places back.
        assert!(
            store.refunds.load(Ordering::Relaxed) <= callers,
            "{callers} callers, {max_wait} ms"
        );
    }
}

/// The sample of the guide: 10 a second, a burst of 1000, and 400 callers that wait for 30 s.
#[tokio::test(start_paused = true)]
async fn callers_of_the_guide_all_get_their_turns() {
    let store = MemoryStore::builder().clock(Clock::tokio()).build();
    let limiter = Limiter::new(
        store,
        Policy::leaky_bucket("geocoder", Quota::per_second(10).with_burst(1_000)),
    );
    let start = Instant::now();
    let caller = || async {
        let mut refusals = 0_u32;
        loop {
            let decision = limiter
                .check("geocoder")
                .wait(Duration::from_secs(30))
                .await
                .unwrap();
            match decision.retry_after() {
                Some(retry) => sleep(retry).await,
                None => return refusals,
            }
            refusals += 1;
        }
    };
    let refusals = join_all((0..400).map(|_| caller())).await;
    // 301 have their turn within 30 s, and the others are refused at once.
    assert_eq!(
        refusals.iter().filter(|refusals| **refusals == 0).count(),
        301
    );
    let last = Duration::from_millis(39_900);
    assert!(
        start.elapsed() >= last && start.elapsed() < last + MS(500),
        "{:?}",
        start.elapsed()
    );
}
