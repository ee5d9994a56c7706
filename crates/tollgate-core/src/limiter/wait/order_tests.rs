//! Tests that waiters keep their order and that each is charged once.

use std::sync::atomic::Ordering;

use tokio::{runtime::Handle, time::sleep};

use super::{
    queue::QueuedDenial,
    tests::{BUCKET, MS, PausedStore, QUEUE, Waiter, left, spend, waiter, waiter_for},
    *,
};
use crate::{Cost, Policy, PolicySet, Quota, Store};

/// Two units at once, and one more every 100 ms.
const PAIR: Policy = Policy::token_bucket("pair", Quota::per_second(10).with_burst(2));

/// A set beside whose window a bucket goes into no debt: its callers wait in the queue of the
/// process.
fn queued(bucket: Policy) -> PolicySet {
    [bucket, Policy::fixed_window("wide", Quota::per_day(1_000))].into()
}

/// Returns a limiter whose two units are spent, and a waiter for both of them.
async fn waiter_for_a_pair(policies: impl Into<PolicySet>) -> (Limiter, Waiter) {
    let limiter = Limiter::new(PausedStore::new(), policies);
    spend(&limiter, 2).await;
    let pair = waiter_for(&limiter, 2, MS(1_000)).await;
    (limiter, pair)
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_does_not_take_the_unit_that_the_queue_waits_for() {
    for policies in [PAIR.into(), queued(PAIR)] {
        let (limiter, pair) = waiter_for_a_pair(policies).await;
        // One unit is there, and the first in the queue needs two.
        sleep(MS(150)).await;
        let newcomer = waiter_for(&limiter, 1, MS(1_000)).await;
        assert!(limiter.check("k").wait(MS(50)).await.unwrap().is_denied());
        assert_eq!(pair.await.unwrap().1, MS(200));
        // The newcomer came after 150 ms and has its unit after 300.
        assert_eq!(newcomer.await.unwrap().1, MS(150));
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_whose_time_runs_out_in_the_queue_is_denied_without_a_check() {
    let (limiter, pair) = waiter_for_a_pair(queued(PAIR)).await;
    let short = waiter_for(&limiter, 1, MS(310)).await;
    // Another process takes units, so the first in the queue waits longer than it expected.
    for at in [150, 140] {
        sleep(MS(at)).await;
        spend(&limiter, 1).await;
    }
    // After 310 ms one unit is there, and the first in the queue still needs two.
    let (decision, waited) = short.await.unwrap();
    assert_eq!((decision.is_denied(), waited), (true, MS(310)));
    assert_eq!(pair.await.unwrap().1, MS(400));
}

#[tokio::test(start_paused = true)]
async fn a_queue_stays_while_one_caller_waits() {
    let limiter = Limiter::new(PausedStore::new(), queued(BUCKET));
    spend(&limiter, 1).await;
    let [first, second] = [
        waiter(&limiter, MS(1_000)).await,
        waiter(&limiter, MS(1_000)).await,
    ];
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    assert!(
        limiter
            .wait_queues()
            .has(&Key::new("k"), limiter.policies())
    );
    assert!(
        !limiter
            .wait_queues()
            .has(&Key::new("other"), limiter.policies())
    );
    assert!(second.await.unwrap().0.is_allowed());
    assert!(
        !limiter
            .wait_queues()
            .has(&Key::new("k"), limiter.policies())
    );
}

#[tokio::test(start_paused = true)]
async fn one_unit_is_waited_for_although_the_burst_takes_longer() {
    let limiter = Limiter::new(
        PausedStore::new(),
        Policy::token_bucket("five", Quota::per_second(10).with_burst(5)),
    );
    spend(&limiter, 5).await;
    let (decision, waited) = waiter(&limiter, MS(150)).await.await.unwrap();
    assert_eq!((decision.is_allowed(), waited), (true, MS(100)));
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_turn_in_a_leaky_bucket_is_too_late_is_denied_without_waiting() {
    let store = PausedStore::new();
    let [limiter, queue_only] = [
        Limiter::new(store.clone(), [QUEUE, BUCKET]),
        Limiter::new(store, QUEUE),
    ];
    spend(&limiter, 1).await;
    for _ in 0..2 {
        spend(&queue_only, 1).await;
    }
    // The bucket has a unit after 100 ms, and the turn in the queue comes after 300 ms.
    for (max_wait, is_allowed, waited) in [(MS(299), false, MS(0)), (MS(300), true, MS(300))] {
        let (decision, after) = waiter(&limiter, max_wait).await.await.unwrap();
        assert_eq!((decision.is_allowed(), after), (is_allowed, waited));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_enters_a_full_leaky_bucket_as_soon_as_it_has_room() {
    let limiter = Limiter::new(PausedStore::new(), QUEUE);
    spend(&limiter, 5).await;
    let last = waiter(&limiter, MS(500)).await;
    sleep(MS(150)).await;
    // The first unit left after 100 ms, and the waiter took its place.
    assert_eq!(left(&limiter).await, 0);
    assert_eq!(last.await.unwrap().1, MS(500));
}

#[tokio::test(start_paused = true)]
async fn an_admitted_request_stays_charged_and_leaves_no_task_behind() {
    for (policy, delay) in [(QUEUE, MS(100)), (BUCKET, MS(0))] {
        let store = PausedStore::late(MS(20));
        let limiter = Limiter::new(store.clone(), policy);
        for _ in 0..2 {
            assert!(
                limiter
                    .check("k")
                    .wait(MS(1_000))
                    .await
                    .unwrap()
                    .is_allowed()
            );
        }
        sleep(delay + MS(50)).await;
        assert_eq!(store.refunds.load(Ordering::Relaxed), 0);
        // The timer of the calls ends with the last deadline.
        sleep(MS(2_000)).await;
        assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_denial_that_arrives_after_its_caller_has_gone_refunds_nothing() {
    let store = PausedStore::late(MS(20));
    let limiter = Limiter::new(store.clone(), BUCKET);
    spend(&limiter, 1).await;
    // Its turn would come after 80 ms.
    let gone = waiter(&limiter, MS(50)).await;
    sleep(MS(10)).await;
    gone.abort();
    sleep(MS(50)).await;
    assert_eq!(store.refunds.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_denied_cost_is_not_charged_and_a_cancelled_one_is_refunded_as_a_whole() {
    let store = PausedStore::late(MS(20));
    let limiter = Limiter::new(store.clone(), QUEUE);
    spend(&limiter, 2).await;
    let decision = limiter.check("k").cost(3).wait(MS(30)).await.unwrap();
    assert_eq!(
        (decision.is_denied(), decision.cost()),
        (true, Cost::new(3))
    );
    let key = Key::new("k");
    let check = Check::new(limiter.policies(), &key, Cost::ZERO);
    // The two units of the first request leave the bucket at 10 per second. Nothing else is in it.
    assert!(
        store
            .store()
            .check(check)
            .await
            .unwrap()
            .state("queue")
            .unwrap()
            .remaining()
            >= 3
    );

    let cancelled = waiter_for(&limiter, 3, MS(1_000)).await;
    sleep(MS(30)).await;
    cancelled.abort();
    sleep(MS(500)).await;
    assert_eq!(left(&limiter).await, 5);
}

#[tokio::test(start_paused = true)]
async fn the_earliest_turn_counts_one_unit_for_each_caller_ahead() {
    let window = Policy::window_from_first_hit("window", Quota::new(2, MS(1_000)));
    for (policy, expected) in [
        (PAIR, [100, 200, 300, 400]),
        // The turn comes after all that is in the queue.
        (
            Policy::leaky_bucket("leaky", Quota::per_second(10).with_burst(2)),
            [200, 300, 400, 500],
        ),
        // Both units of a window return at the same time.
        (window, [1_000, 1_000, 2_000, 2_000]),
    ] {
        let limiter = Limiter::new(PausedStore::new(), policy.clone());
        spend(&limiter, 2).await;
        let decision = limiter.check("k").await.unwrap();
        assert!(decision.is_denied());
        let now = Instant::now();
        let denial = QueuedDenial::of(decision, now).unwrap();
        for (ahead, ms) in expected.into_iter().enumerate() {
            assert_eq!(
                denial.earliest_behind(ahead),
                now + MS(ms),
                "{} {ahead}",
                policy.name()
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_with_other_policies_neither_waits_behind_the_queue_nor_gets_its_denial() {
    let slow = Limiter::new(PausedStore::new(), BUCKET);
    let fast = slow.with_policies(Policy::token_bucket(
        "fast",
        Quota::per_second(100).with_burst(1),
    ));
    for limiter in [&slow, &fast] {
        spend(limiter, 1).await;
    }
    let queued = [
        waiter(&slow, MS(1_000)).await,
        waiter(&slow, MS(1_000)).await,
    ];
    // The queue of the other set would make this caller wait for 300 ms, and deny it at once for
    // that.
    let start = Instant::now();
    let decision = fast.check("k").wait(MS(50)).await.unwrap();
    assert_eq!((decision.is_allowed(), start.elapsed()), (true, MS(10)));
    assert!(decision.state("fast").is_some());
    for (at, queued) in (1..).zip(queued) {
        let (decision, waited) = queued.await.unwrap();
        assert_eq!((decision.is_allowed(), waited), (true, MS(100 * at)));
        assert!(decision.state("bucket").is_some());
    }
    assert!(slow.wait_queues().queues.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn callers_with_equal_policies_share_a_queue_and_all_share_its_bound() {
    let limiter = Limiter::builder(PausedStore::new())
        .policies(BUCKET)
        .max_waiting(2)
        .build();
    let (equal, other) = (limiter.with_policies(BUCKET), limiter.with_policies(PAIR));
    spend(&limiter, 1).await;
    spend(&other, 2).await;
    let queued = [
        waiter(&limiter, MS(1_000)).await,
        waiter(&equal, MS(1_000)).await,
    ];
    assert!(
        other.check("k").wait(MS(1_000)).await.unwrap().is_denied(),
        "two callers wait already"
    );
    for (at, queued) in (1..).zip(queued) {
        assert_eq!(
            queued.await.unwrap().1,
            MS(100 * at),
            "the callers with equal policies keep their order"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_beyond_the_bound_is_denied_at_once_beside_a_queue_of_other_policies() {
    let limiter = Limiter::builder(PausedStore::new())
        .policies(queued(BUCKET))
        .max_waiting(1)
        .build();
    let other = limiter.with_policies(PAIR);
    spend(&limiter, 1).await;
    spend(&other, 2).await;
    let first = waiter(&limiter, MS(1_000)).await;
    let start = Instant::now();
    let decision = other.check("k").wait(MS(1_000)).await.unwrap();
    assert_eq!((decision.is_denied(), start.elapsed()), (true, MS(0)));
    assert!(first.await.unwrap().0.is_allowed());
}
