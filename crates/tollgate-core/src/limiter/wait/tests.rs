use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::time::sleep;

use super::*;
use crate::{
    Cost, Costs, ErrorKind, MemoryStore, Policy, Quota, Store, clock::Clock, store::StoreFuture,
};

/// An in-process store on tokio's paused time. It can delay its decisions by `latency`.
#[derive(Clone)]
pub(super) struct PausedStore {
    store: MemoryStore,
    clock: Clock,
    start: Instant,
    latency: Duration,
    pub(super) checks: Arc<AtomicUsize>,
    pub(super) refunds: Arc<AtomicUsize>,
    /// The store does not answer, from this check on.
    away_from: usize,
}

const EPOCH_US: u64 = 1_000_000_000_000_000;

impl PausedStore {
    pub(super) fn new() -> Self {
        let clock = Clock::manual(EPOCH_US);
        let store = MemoryStore::builder().clock(clock.clone()).build();
        Self {
            store,
            clock,
            start: Instant::now(),
            latency: Duration::ZERO,
            checks: Arc::default(),
            refunds: Arc::default(),
            away_from: usize::MAX,
        }
    }

    pub(super) fn late(latency: Duration) -> Self {
        Self {
            latency,
            ..Self::new()
        }
    }

    pub(super) fn store(&self) -> &MemoryStore {
        self.clock
            .set(EPOCH_US + self.start.elapsed().as_micros() as u64);
        &self.store
    }
}

impl Store for PausedStore {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        let decision = match self.checks.fetch_add(1, Ordering::Relaxed) {
            at if at >= self.away_from => {
                StoreFuture::ready(Err(Error::new(ErrorKind::Timeout, "away")))
            }
            _ => self.store().check(check),
        };
        if self.latency.is_zero() {
            return decision;
        }
        // The store charges at once, only the decision arrives later.
        let latency = self.latency;
        StoreFuture::pending(async move {
            sleep(latency).await;
            decision.await
        })
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        self.refunds.fetch_add(1, Ordering::Relaxed);
        if self.latency.is_zero() {
            return self.store().refund(check, decision);
        }
        // The store refunds when the request arrives, which is later than the call.
        let (this, policies, key) = (self.clone(), check.policies.clone(), check.key.clone());
        let (cost, decision) = (check.cost, decision.cloned());
        StoreFuture::pending(async move {
            sleep(this.latency).await;
            this.store()
                .refund(Check::new(&policies, &key, cost), decision.as_ref())
                .await
        })
    }

    fn reset(&self, check: Check<'_>) -> StoreFuture<()> {
        self.store().reset(check)
    }
}

pub(super) const QUEUE: Policy = Policy::leaky_bucket("queue", Quota::per_second(10).with_burst(5));
pub(super) const BUCKET: Policy =
    Policy::token_bucket("bucket", Quota::per_second(10).with_burst(1));
pub(super) const MS: fn(u64) -> Duration = Duration::from_millis;

/// Spends units that are there.
pub(super) async fn spend(limiter: &Limiter, cost: u64) {
    let decision = limiter.check("k").cost(cost).await.unwrap();
    assert!(decision.is_allowed());
}

/// Returns the units that are left under the first policy.
pub(super) async fn left(limiter: &Limiter) -> u64 {
    let state = limiter.peek("k").await.unwrap();
    state.states().next().unwrap().remaining()
}

pub(super) type Waiter = tokio::task::JoinHandle<(Decision, Duration)>;

/// Starts a waiter and lets it run until it has to wait.
pub(super) async fn waiter(limiter: &Limiter, max_wait: Duration) -> Waiter {
    waiter_for(limiter, 1, max_wait).await
}

/// Starts a waiter for `cost` units and lets it run until it has to wait.
pub(super) async fn waiter_for(limiter: &Limiter, cost: u64, max_wait: Duration) -> Waiter {
    let (limiter, start) = (limiter.clone(), Instant::now());
    let task = tokio::spawn(async move {
        let check = limiter.check("k").cost(cost);
        let decision = check.wait(max_wait).await.unwrap();
        (decision, start.elapsed())
    });
    tokio::task::yield_now().await;
    task
}

#[tokio::test(start_paused = true)]
async fn a_leaky_bucket_releases_waiters_one_by_one_in_order_of_arrival() {
    let limiter = Limiter::new(PausedStore::new(), QUEUE);
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
async fn a_leaky_bucket_of_an_outer_level_releases_the_callers_of_all_its_keys_one_by_one() {
    let limiter = Limiter::new(
        PausedStore::new(),
        [
            QUEUE.at_level(1),
            Policy::token_bucket("own", Quota::per_day(1)),
        ],
    );
    let start = Instant::now();
    let callers = (0..5_u64).map(|inner| {
        let limiter = limiter.clone();
        async move {
            let decision = limiter
                .check(Key::new("k").child(inner))
                .wait(MS(1_000))
                .await
                .unwrap();
            (decision.is_allowed(), start.elapsed())
        }
    });
    let callers: Vec<_> = callers.map(tokio::spawn).collect();
    for (at, caller) in (0..).zip(callers) {
        assert_eq!(caller.await.unwrap(), (true, MS(100 * at)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_would_wait_too_long_is_denied_at_once_and_not_charged() {
    let store = PausedStore::new();
    let limiter = Limiter::new(store.clone(), QUEUE);
    let first = waiter(&limiter, MS(1_000)).await;
    let second = waiter(&limiter, MS(1_000)).await;
    let start = Instant::now();
    let decision = limiter.check("k").wait(MS(150)).await.unwrap();
    assert!(decision.is_denied() && start.elapsed().is_zero());
    assert_eq!(
        (decision.retry_after(), decision.delay()),
        (Some(MS(50)), Duration::ZERO)
    );
    assert!(decision.state("queue").unwrap().is_exceeded());
    // The denial shows the state without the denied request.
    assert_eq!(decision.state("queue").unwrap().remaining(), 3);
    // The denied request never was in the bucket: the next one follows the second.
    assert_eq!(
        (
            store.checks.load(Ordering::Relaxed),
            store.refunds.load(Ordering::Relaxed)
        ),
        (3, 0)
    );
    assert_eq!(limiter.check("k").await.unwrap().delay(), MS(200));
    for waiter in [first, second] {
        assert!(waiter.await.unwrap().0.is_allowed());
    }
    // The retry time was exact.
    let limiter = Limiter::new(PausedStore::new(), QUEUE);
    let _ = (
        limiter.check("k").await.unwrap(),
        limiter.check("k").await.unwrap(),
    );
    sleep(MS(49)).await;
    assert!(limiter.check("k").wait(MS(150)).await.unwrap().is_denied());
    sleep(MS(1)).await;
    assert!(limiter.check("k").wait(MS(150)).await.unwrap().is_allowed());
}

#[tokio::test(start_paused = true)]
async fn a_request_cancelled_during_its_delay_is_refunded() {
    let limiter = Limiter::new(PausedStore::new(), QUEUE);
    spend(&limiter, 1).await;
    let waiters = [
        waiter(&limiter, MS(1_000)).await,
        waiter(&limiter, MS(1_000)).await,
    ];
    assert_eq!(left(&limiter).await, 2);
    // The last one first: only the last place in the queue can be returned.
    for waiter in waiters.into_iter().rev() {
        waiter.abort();
        assert!(waiter.await.unwrap_err().is_cancelled());
    }
    tokio::task::yield_now().await;
    assert_eq!(left(&limiter).await, 4);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waited_for_a_fill_is_refunded_until_the_next_one() {
    const HALVES: Policy = Policy::interval_bucket(
        "halves",
        Quota::new(2, Duration::from_millis(100)).with_burst(3),
    );
    for (cost, late, expected) in [(2, 0, 3), (1, 99, 2), (1, 100, 3), (2, 100, 3)] {
        let limiter = Limiter::new(PausedStore::new(), HALVES);
        spend(&limiter, 3).await;
        // Its units are there after the second fill.
        let start = Instant::now();
        let decision = limiter.check("k").cost(3).wait(MS(1_000)).await.unwrap();
        assert_eq!(start.elapsed(), MS(200));
        sleep(MS(late)).await;
        let before = left(&limiter).await;
        limiter.refund("k", cost).of(&decision).await.unwrap();
        let after = left(&limiter).await;
        assert_eq!(
            (after, after - before),
            (expected, if late < 100 { cost } else { 0 }),
            "{cost} units {late} ms late"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_in_the_middle_of_the_queue_is_not_given_to_a_second_request() {
    let limiter = Limiter::new(PausedStore::new(), QUEUE);
    spend(&limiter, 1).await;
    let [middle, last] = [
        waiter(&limiter, MS(1_000)).await,
        waiter(&limiter, MS(1_000)).await,
    ];
    middle.abort();
    assert!(middle.await.unwrap_err().is_cancelled());
    let next = waiter(&limiter, MS(1_000)).await;
    assert_eq!(
        [last.await.unwrap().1, next.await.unwrap().1],
        [MS(200), MS(300)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_cancelled_before_the_decision_arrives_is_refunded() {
    for policy in [QUEUE, BUCKET] {
        let limiter = Limiter::new(PausedStore::late(MS(20)), policy);
        let waiter = waiter(&limiter, MS(1_000)).await;
        sleep(MS(10)).await;
        waiter.abort();
        // The decision arrives after 20 ms, and the refund 20 ms later.
        sleep(MS(35)).await;
        let peeked = limiter.peek("k").await.unwrap();
        assert_eq!(
            peeked.states().next().unwrap().reset_after(),
            Duration::ZERO
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_the_store_did_not_charge_is_not_refunded_to_the_store() {
    for latency in [Duration::ZERO, MS(20)] {
        // Three requests that the store charges. Everything after them is decided by the local
        // share.
        let store = PausedStore {
            away_from: 3,
            ..PausedStore::late(latency)
        };
        let limiter = Limiter::new(store.clone(), QUEUE);
        for _ in 0..3 {
            spend(&limiter, 1).await;
        }
        assert!(limiter.check("k").await.unwrap().is_degraded());
        // Cancelled during its delay, cancelled before the decision arrives, and turned away.
        let waiters = [
            waiter(&limiter, MS(1_000)).await,
            waiter(&limiter, MS(1_000)).await,
        ];
        sleep(latency + MS(1)).await;
        let early = waiter(&limiter, MS(1_000)).await;
        for waiter in waiters.into_iter().chain([early]) {
            waiter.abort();
            assert!(waiter.await.unwrap_err().is_cancelled());
        }
        assert!(waiter(&limiter, MS(50)).await.await.unwrap().0.is_denied());
        sleep(latency + MS(1)).await;
        assert_eq!(store.refunds.load(Ordering::Relaxed), 0, "{latency:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_leaky_bucket_is_waited_for_only_when_time_suffices_to_drain_it() {
    let store = PausedStore::new();
    let limiter = Limiter::new(store.clone(), QUEUE);
    for _ in 0..5 {
        spend(&limiter, 1).await;
    }
    let start = Instant::now();
    assert!(limiter.check("k").wait(MS(499)).await.unwrap().is_denied());
    assert!(start.elapsed().is_zero());
    assert!(limiter.check("k").wait(MS(500)).await.unwrap().is_allowed());
    assert_eq!(start.elapsed(), MS(500));
}

#[tokio::test(start_paused = true)]
async fn callers_of_a_token_bucket_go_into_debt_in_order_of_arrival() {
    let store = PausedStore::new();
    let limiter = Limiter::new(store.clone(), BUCKET);
    let mut waiters = Vec::new();
    for _ in 0..4 {
        waiters.push(waiter(&limiter, MS(1_000)).await);
    }
    // This caller could be admitted after 400 ms at the earliest.
    let too_late = waiter(&limiter, MS(399)).await;
    let in_time = waiter(&limiter, MS(400)).await;
    for (at, waiter) in (0..).zip(waiters) {
        let (decision, waited) = waiter.await.unwrap();
        assert!(decision.is_allowed());
        assert_eq!(waited, MS(100 * at));
    }
    let (decision, waited) = too_late.await.unwrap();
    assert!(decision.is_denied());
    assert_eq!((decision.retry_after(), waited), (Some(MS(1)), MS(0)));
    let (decision, waited) = in_time.await.unwrap();
    assert_eq!((decision.is_allowed(), waited), (true, MS(400)));
    assert!(limiter.wait_queues().queues.lock().is_empty());
    assert_eq!(
        store.checks.load(Ordering::Relaxed),
        6,
        "each caller asks once"
    );
}

#[tokio::test(start_paused = true)]
async fn a_caller_beyond_max_waiting_is_denied_at_once() {
    let store = PausedStore::new();
    let limiter = Limiter::builder(store.clone())
        .policies(BUCKET)
        .max_waiting(2)
        .build();
    for key in ["k", "other"] {
        let _ = limiter.check(key).await.unwrap();
    }
    let mut waiters = Vec::new();
    for _ in 0..2 {
        waiters.push(waiter(&limiter, MS(1_000)).await);
    }
    for key in ["k", "other"] {
        let (start, before) = (Instant::now(), store.checks.load(Ordering::Relaxed));
        assert!(
            limiter
                .check(key)
                .wait(MS(1_000))
                .await
                .unwrap()
                .is_denied()
        );
        assert_eq!(start.elapsed(), MS(0));
        // The caller's own denial is the answer. The store is not asked again.
        assert_eq!(store.checks.load(Ordering::Relaxed) - before, 1);
    }
    for waiter in waiters {
        assert!(waiter.await.unwrap().0.is_allowed());
    }
    assert!(
        limiter
            .check("other")
            .wait(MS(1_000))
            .await
            .unwrap()
            .is_allowed()
    );
    assert_eq!(limiter.wait_queues().waiting.callers(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_caller_whose_time_runs_out_does_not_overtake_the_queue() {
    let limiter = Limiter::new(
        PausedStore::new(),
        Policy::window_from_first_hit("minute", Quota::new(2, MS(1_000))),
    );
    let first = limiter.check("k").cost(2).await.unwrap();
    assert!(first.is_allowed());
    let whole = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.check("k").cost(2).wait(MS(5_000)).await.unwrap() }
    });
    tokio::task::yield_now().await;
    // Its time ends together with the window, and one unit would fit then.
    let denied = waiter(&limiter, MS(1_000)).await.await.unwrap().0;
    assert!(denied.is_denied());
    assert!(whole.await.unwrap().is_allowed());
}

/// Two units return with each window, so the third caller in the queue is admitted with the second
/// window.
#[tokio::test(start_paused = true)]
async fn a_caller_behind_the_units_of_a_window_is_denied_at_once_unless_it_waits_for_the_next() {
    for policy in [
        Policy::window_from_first_hit("two", Quota::new(2, MS(1_000))),
        Policy::fixed_window("two", Quota::new(2, MS(1_000))),
        Policy::interval_bucket("two", Quota::new(2, MS(1_000))),
    ] {
        let limiter = Limiter::new(PausedStore::new(), policy);
        spend(&limiter, 2).await;
        let first = waiter(&limiter, MS(1_000)).await;
        let second = waiter(&limiter, MS(1_000)).await;
        let (denied, waited) = waiter(&limiter, MS(1_999)).await.await.unwrap();
        assert!(denied.is_denied());
        assert_eq!(waited, MS(0));
        let third = waiter(&limiter, MS(2_000)).await;
        for (caller, at) in [(first, 1_000), (second, 1_000), (third, 2_000)] {
            let (decision, waited) = caller.await.unwrap();
            assert!(decision.is_allowed());
            assert_eq!(waited, MS(at));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_of_zero_is_a_plain_check() {
    let limiter = Limiter::new(PausedStore::new(), BUCKET);
    assert!(
        limiter
            .check("k")
            .wait(Duration::ZERO)
            .await
            .unwrap()
            .is_allowed()
    );
    let decision = limiter.check("k").wait(Duration::ZERO).await.unwrap();
    assert_eq!(decision.retry_after(), Some(MS(100)));
    assert!(
        limiter
            .check("k")
            .wait(Duration::MAX)
            .await
            .unwrap()
            .is_allowed()
    );
    let error = limiter
        .check("k")
        .cost(2)
        .wait(Duration::MAX)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::CostExceedsBurst);
}

#[tokio::test(start_paused = true)]
async fn a_check_that_spends_nothing_of_a_queue_does_not_wait_for_it() {
    let tokens = Policy::token_bucket("tokens", Quota::per_second(10));
    let limiter = Limiter::new(PausedStore::new(), [QUEUE, tokens]);
    spend(&limiter, 5).await;
    for costs in [Costs::new(Cost::ZERO), [("queue", 0), ("tokens", 1)].into()] {
        for max_wait in [Duration::ZERO, MS(100), MS(10_000)] {
            let start = Instant::now();
            let decision = limiter
                .check("k")
                .cost(costs.clone())
                .wait(max_wait)
                .await
                .unwrap();
            assert_eq!(
                (decision.is_allowed(), start.elapsed()),
                (true, Duration::ZERO),
                "{costs:?} {max_wait:?}"
            );
        }
    }
}

/// A refund of a place in the middle would let two requests leave at one instant.
#[tokio::test(start_paused = true)]
async fn a_cancelled_caller_gives_back_its_place_in_a_debt_only_if_it_is_the_last() {
    for policy in [
        BUCKET,
        Policy::interval_bucket("interval", Quota::new(1, MS(100))),
    ] {
        let limiter = Limiter::new(PausedStore::new(), policy);
        spend(&limiter, 1).await;
        let [first, second] = [
            waiter(&limiter, MS(1_000)).await,
            waiter(&limiter, MS(1_000)).await,
        ];
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        let third = waiter(&limiter, MS(1_000)).await;
        assert_eq!(limiter.wait_queues().waiting.callers(), 2);
        third.abort();
        assert!(third.await.unwrap_err().is_cancelled());
        let fourth = waiter(&limiter, MS(1_000)).await;
        assert_eq!(
            [second.await.unwrap().1, fourth.await.unwrap().1],
            [MS(200), MS(300)]
        );
    }
}

/// Callers of a token bucket with a cost starved behind callers and checks that came later.
#[tokio::test(start_paused = true)]
async fn a_waiter_with_a_cost_gets_its_turn_in_order_of_arrival_also_against_other_processes_and_plain_checks()
 {
    let store = PausedStore::new();
    let policy = Policy::token_bucket("calls", Quota::per_second(10));
    // Two limiters stand for two processes: each has its own queues.
    let [ours, theirs] = [
        Limiter::new(store.clone(), policy.clone()),
        Limiter::new(store, policy),
    ];
    spend(&ours, 10).await;
    let first = waiter(&theirs, MS(60_000)).await;
    let start = Instant::now();
    let pair = tokio::spawn(async move {
        assert!(
            ours.check("k")
                .cost(2)
                .wait(MS(60_000))
                .await
                .unwrap()
                .is_allowed()
        );
        start.elapsed()
    });
    tokio::task::yield_now().await;
    let later = waiter(&theirs, MS(60_000)).await;
    for _ in 0..5 {
        assert!(
            theirs.check("k").await.unwrap().is_denied(),
            "no check takes what somebody waits for"
        );
        sleep(MS(50)).await;
    }
    let waits = [
        first.await.unwrap().1,
        pair.await.unwrap(),
        later.await.unwrap().1,
    ];
    assert_eq!(waits, [MS(100), MS(300), MS(400)]);
    assert!(theirs.check("k").await.unwrap().is_denied());
}

#[tokio::test(start_paused = true)]
async fn a_leaky_bucket_beside_another_policy_waits_for_both() {
    let minute = Policy::window_from_first_hit("minute", Quota::new(2, Duration::from_secs(60)));
    let limiter = Limiter::new(PausedStore::new(), [QUEUE, minute]);
    for waited in [MS(0), MS(100), MS(60_000)] {
        let (decision, after) = waiter(&limiter, Duration::from_secs(120))
            .await
            .await
            .unwrap();
        assert!(decision.is_allowed());
        assert!(after <= waited, "{after:?} {waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_that_waits_borrows_nothing_and_is_send() {
    let future = {
        let limiter = Limiter::new(PausedStore::new(), QUEUE);
        limiter.check("k").wait(MS(1)).into_future()
    };
    assert!(tokio::spawn(future).await.unwrap().unwrap().is_allowed());
}

#[tokio::test(start_paused = true)]
async fn units_accrue_on_paused_time_while_a_caller_sleeps() {
    let store = MemoryStore::builder().clock(Clock::tokio()).build();
    let limiter = Limiter::new(store, Policy::token_bucket("one", Quota::per_minute(1)));
    let start = Instant::now();
    for minutes in 0..5 {
        let decision = limiter.check("k").wait(MS(300_000)).await.unwrap();
        assert!(decision.is_allowed());
        assert_eq!(
            start.elapsed().as_millis().div_ceil(60_000),
            minutes,
            "{:?}",
            start.elapsed()
        );
    }
    sleep(MS(59_000)).await;
    assert!(limiter.check("k").await.unwrap().is_denied());
    sleep(MS(1_000)).await;
    spend(&limiter, 1).await;
}

/// The sum of a cascade says nothing about the queue beside it.
#[tokio::test(start_paused = true)]
async fn a_reservation_waits_no_longer_than_it_may_beside_a_cascade_of_no_units() {
    let store = MemoryStore::builder().clock(Clock::tokio()).build();
    let queue = Policy::leaky_bucket("queue", Quota::per_second(10).with_burst(5));
    let window = |name| Policy::fixed_window(name, Quota::per_day(9));
    let limiter = Limiter::new(store, [window("plan"), queue, window("pool")]);
    let reserve = async || {
        let costs = Costs::cascading(0).with("queue", Cost::ONE);
        let reserved = limiter.reserve("k", costs).wait(MS(50)).await;
        reserved.unwrap().is_allowed()
    };
    assert_eq!((reserve().await, reserve().await), (true, false));
}
