use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::time::sleep;

use super::*;
use crate::{Clock, MemoryStore, Policy, PolicySet, Quota, Store, StoreFuture};

/// An in-process store that lives in tokio's paused time and, when asked to, answers late.
#[derive(Clone)]
struct Paused {
    store: MemoryStore,
    clock: Clock,
    start: Instant,
    latency: Duration,
    checks: Arc<AtomicUsize>,
}

const EPOCH_US: u64 = 1_000_000_000_000_000;

impl Paused {
    fn new() -> Self {
        let clock = Clock::manual(EPOCH_US);
        let store = MemoryStore::builder().clock(clock.clone()).build();
        Self { store, clock, start: Instant::now(), latency: Duration::ZERO, checks: Arc::default() }
    }

    fn late(latency: Duration) -> Self {
        Self { latency, ..Self::new() }
    }

    fn store(&self) -> &MemoryStore {
        self.clock.set(EPOCH_US + self.start.elapsed().as_micros() as u64);
        &self.store
    }
}

impl Store for Paused {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        self.checks.fetch_add(1, Ordering::Relaxed);
        let answer = self.store().check(check);
        if self.latency.is_zero() {
            return answer;
        }
        // What is asked happens at once; the answer takes its time.
        let latency = self.latency;
        StoreFuture::pending(async move {
            sleep(latency).await;
            answer.await
        })
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        self.store().refund(check, decision)
    }

    fn reset(&self, policies: &PolicySet, key: &Key) -> StoreFuture<()> {
        self.store().reset(policies, key)
    }
}

const QUEUE: Policy = Policy::leaky_bucket("queue", Quota::per_second(10).with_burst(5));
const BUCKET: Policy = Policy::token_bucket("bucket", Quota::per_second(10).with_burst(1));
const MS: fn(u64) -> Duration = Duration::from_millis;

/// Starts a waiter, and lets it come as far as it can.
async fn waiter(limiter: &Limiter, max_wait: Duration) -> tokio::task::JoinHandle<(Decision, Duration)> {
    let (limiter, start) = (limiter.clone(), Instant::now());
    let task = tokio::spawn(async move {
        let decision = limiter.until_ready("k", max_wait).await.unwrap();
        (decision, start.elapsed())
    });
    tokio::task::yield_now().await;
    task
}

#[tokio::test(start_paused = true)]
async fn a_queue_lets_its_waiters_go_one_by_one_in_the_order_they_came() {
    let limiter = Limiter::new(Paused::new(), QUEUE);
    let mut waiters = Vec::new();
    for _ in 0..5 {
        waiters.push(waiter(&limiter, MS(1_000)).await);
    }
    for (at, waiter) in (0..).zip(waiters) {
        let (decision, waited) = waiter.await.unwrap();
        assert!(decision.is_allowed());
        assert_eq!((decision.delay(), waited), (MS(100 * at), MS(100 * at)));
    }
}

#[tokio::test(start_paused = true)]
async fn who_would_wait_too_long_is_told_at_once_and_keeps_no_place() {
    let limiter = Limiter::new(Paused::new(), QUEUE);
    let first = waiter(&limiter, MS(1_000)).await;
    let second = waiter(&limiter, MS(1_000)).await;
    let start = Instant::now();
    let decision = limiter.until_ready("k", MS(150)).await.unwrap();
    assert!(decision.is_denied() && start.elapsed().is_zero());
    assert_eq!((decision.retry_after(), decision.delay()), (Some(MS(50)), Duration::ZERO));
    assert!(decision.state("queue").unwrap().is_exceeded());
    // The place is free again: the next one stands behind the second.
    assert_eq!(limiter.check("k").await.unwrap().delay(), MS(200));
    for waiter in [first, second] {
        assert!(waiter.await.unwrap().0.is_allowed());
    }
    // What was told was exact.
    let limiter = Limiter::new(Paused::new(), QUEUE);
    let _ = (limiter.check("k").await.unwrap(), limiter.check("k").await.unwrap());
    sleep(MS(49)).await;
    assert!(limiter.until_ready("k", MS(150)).await.unwrap().is_denied());
    sleep(MS(1)).await;
    assert!(limiter.until_ready("k", MS(150)).await.unwrap().is_allowed());
}

#[tokio::test(start_paused = true)]
async fn who_leaves_a_queue_gives_the_place_back() {
    let limiter = Limiter::new(Paused::new(), QUEUE);
    let _ = limiter.check("k").await.unwrap();
    let waiters = [waiter(&limiter, MS(1_000)).await, waiter(&limiter, MS(1_000)).await];
    assert_eq!(limiter.peek("k").await.unwrap().state("queue").unwrap().remaining(), 2);
    for waiter in waiters {
        waiter.abort();
        assert!(waiter.await.unwrap_err().is_cancelled());
    }
    tokio::task::yield_now().await;
    assert_eq!(limiter.peek("k").await.unwrap().state("queue").unwrap().remaining(), 4);
}

#[tokio::test(start_paused = true)]
async fn who_leaves_before_the_store_answers_gives_back_what_was_spent() {
    for policy in [QUEUE, BUCKET] {
        let limiter = Limiter::new(Paused::late(MS(20)), policy);
        let waiter = waiter(&limiter, MS(1_000)).await;
        sleep(MS(10)).await;
        waiter.abort();
        sleep(MS(15)).await;
        let look = limiter.peek("k").await.unwrap();
        assert_eq!(look.states().next().unwrap().reset_after(), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_is_waited_for_only_when_there_is_time_for_all_of_it() {
    let store = Paused::new();
    let limiter = Limiter::new(store.clone(), QUEUE);
    for _ in 0..5 {
        let _ = limiter.check("k").await.unwrap();
    }
    let start = Instant::now();
    assert!(limiter.until_ready("k", MS(499)).await.unwrap().is_denied());
    assert!(start.elapsed().is_zero());
    assert!(limiter.until_ready("k", MS(500)).await.unwrap().is_allowed());
    assert_eq!(start.elapsed(), MS(500));
}

#[tokio::test(start_paused = true)]
async fn the_others_come_back_when_the_denial_said_so_first_come_first_served() {
    let store = Paused::new();
    let limiter = Limiter::new(store.clone(), BUCKET);
    let mut waiters = Vec::new();
    for _ in 0..4 {
        waiters.push(waiter(&limiter, MS(1_000)).await);
    }
    // The turn would come after 400 ms.
    let hopeless = waiter(&limiter, MS(399)).await;
    for (at, waiter) in (0..).zip(waiters) {
        let (decision, waited) = waiter.await.unwrap();
        assert!(decision.is_allowed());
        assert_eq!(waited, MS(100 * at));
    }
    let (decision, waited) = hopeless.await.unwrap();
    assert!(decision.is_denied());
    assert_eq!((decision.retry_after(), waited), (Some(MS(100)), MS(0)));
    assert!(limiter.lines().lock().is_empty());
    assert!(store.checks.load(Ordering::Relaxed) < 12);
}

#[tokio::test(start_paused = true)]
async fn who_finds_too_many_waiting_is_denied_at_once() {
    let limiter = Limiter::builder(Paused::new()).policies(BUCKET).max_waiting(2).build();
    for key in ["k", "other"] {
        let _ = limiter.check(key).await.unwrap();
    }
    let mut waiters = Vec::new();
    for _ in 0..2 {
        waiters.push(waiter(&limiter, MS(1_000)).await);
    }
    for key in ["k", "other"] {
        let start = Instant::now();
        assert!(limiter.until_ready(key, MS(1_000)).await.unwrap().is_denied());
        assert_eq!(start.elapsed(), MS(0));
    }
    for waiter in waiters {
        assert!(waiter.await.unwrap().0.is_allowed());
    }
    assert!(limiter.until_ready("other", MS(1_000)).await.unwrap().is_allowed());
    assert_eq!(limiter.lines().waiting.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn who_runs_out_of_time_in_the_line_does_not_pass_those_who_wait() {
    let limiter = Limiter::new(Paused::new(), Policy::window_from_first_hit("minute", Quota::new(2, MS(1_000))));
    let first = limiter.check_cost("k", Cost::new(2)).await.unwrap();
    assert!(first.is_allowed());
    let whole = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.until_ready_cost("k", Cost::new(2), MS(5_000)).await.unwrap() }
    });
    tokio::task::yield_now().await;
    // Its time ends when the window does, and its unit would fit then.
    let denied = waiter(&limiter, MS(1_000)).await.await.unwrap().0;
    assert!(denied.is_denied());
    assert!(whole.await.unwrap().is_allowed());
}

#[tokio::test(start_paused = true)]
async fn no_time_to_wait_is_a_check() {
    let limiter = Limiter::new(Paused::new(), BUCKET);
    assert!(limiter.until_ready("k", Duration::ZERO).await.unwrap().is_allowed());
    let decision = limiter.until_ready("k", Duration::ZERO).await.unwrap();
    assert_eq!(decision.retry_after(), Some(MS(100)));
    assert!(limiter.until_ready("k", Duration::MAX).await.unwrap().is_allowed());
    let error = limiter.until_ready_cost("k", Cost::new(2), Duration::MAX).await.unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::CostExceedsBurst);
}

#[tokio::test(start_paused = true)]
async fn who_leaves_a_line_does_not_stop_it() {
    let limiter = Limiter::new(Paused::new(), BUCKET);
    let _ = limiter.check("k").await.unwrap();
    let first = waiter(&limiter, MS(1_000)).await;
    let second = waiter(&limiter, MS(1_000)).await;
    first.abort();
    let (decision, waited) = second.await.unwrap();
    assert!(decision.is_allowed());
    assert_eq!(waited, MS(100));
    assert!(limiter.lines().lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_queue_beside_another_limit_waits_for_both() {
    let minute = Policy::window_from_first_hit("minute", Quota::new(2, Duration::from_secs(60)));
    let limiter = Limiter::new(Paused::new(), [QUEUE, minute]);
    for waited in [MS(0), MS(100), MS(60_000)] {
        let (decision, after) = waiter(&limiter, Duration::from_secs(120)).await.await.unwrap();
        assert!(decision.is_allowed());
        assert!(after <= waited, "{after:?} {waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn futures_of_waiters_can_be_sent() {
    fn is_send<T: Send>(_: &T) {}
    let limiter = Limiter::new(Paused::new(), QUEUE);
    let future = limiter.until_ready("k", MS(1));
    is_send(&future);
    assert!(future.await.unwrap().is_allowed());
}
