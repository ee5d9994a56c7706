//! Requests that wait for their turn. Time is tokio's, paused: nothing sleeps in earnest.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Request, StatusCode};
use tokio::time::{Instant, sleep, timeout};
use tollgate::{
    Check, CheckFuture, Clock, Cost, Decision, Key, Limiter, MemoryStore, Policy, PolicySet, Quota, Store, StoreFuture,
};
use tollgate_tower::{RateLimitLayer, key::Header};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::*;

/// A store whose clock is tokio's.
struct Paused {
    store: MemoryStore,
    clock: Clock,
    start: Instant,
    is_late: bool,
}

impl Paused {
    fn new(is_late: bool) -> Self {
        let clock = Clock::manual(0);
        Self { store: MemoryStore::builder().clock(clock.clone()).build(), clock, start: Instant::now(), is_late }
    }

    fn answer<T: Send + Unpin + 'static>(&self, answer: StoreFuture<T>) -> StoreFuture<T> {
        if !self.is_late {
            return answer;
        }
        StoreFuture::pending(async {
            sleep(Duration::from_millis(1)).await;
            answer.await
        })
    }
}

impl Store for Paused {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        self.clock.set(1_000_000_000 + self.start.elapsed().as_micros() as u64);
        self.answer(self.store.check(check))
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        self.answer(self.store.refund(check, decision))
    }

    fn reset(&self, policies: &PolicySet, key: &Key) -> StoreFuture<()> {
        self.answer(self.store.reset(policies, key))
    }
}

const ONE_A_SECOND: Policy = Policy::token_bucket("one", Quota::per_second(1));

fn layer(is_late: bool, max: Duration) -> RateLimitLayer<Header> {
    let limiter = Limiter::new(Paused::new(is_late), ONE_A_SECOND);
    RateLimitLayer::builder(limiter, Header::new("key")).wait(max).build()
}

fn of(key: &str) -> Request<()> {
    Request::builder().header("key", key).body(()).unwrap()
}

async fn status(layer: &RateLimitLayer<Header>, key: &str) -> StatusCode {
    send(layer, of(key)).await.status()
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_pass_in_the_order_in_which_they_came_one_a_second() {
    for is_late in [false, true] {
        let start = Instant::now();
        let order = Arc::new(Mutex::new(Vec::new()));
        let layer = layer(is_late, Duration::from_secs(60));
        let mut tasks = Vec::new();
        for number in 0..8 {
            let order = order.clone();
            let service = layer.layer(service_fn(move |_: Request<()>| {
                order.lock().unwrap().push((number, start.elapsed().as_secs()));
                async { Ok::<_, std::convert::Infallible>(http::Response::new(String::new())) }
            }));
            tasks.push(tokio::spawn(service.oneshot(of("a"))));
            sleep(Duration::from_millis(10)).await;
        }
        for task in tasks {
            assert_eq!(task.await.unwrap().unwrap().status(), StatusCode::OK);
        }
        assert_eq!(*order.lock().unwrap(), (0..8).map(|number| (number, number)).collect::<Vec<_>>());
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_who_comes_later_slips_in_before_one_who_waits() {
    let layer = layer(false, Duration::from_secs(60));
    assert_eq!(status(&layer, "a").await, StatusCode::OK);
    let start = Instant::now();
    let first = tokio::spawn({
        let layer = layer.clone();
        async move {
            status(&layer, "a").await;
            start.elapsed()
        }
    });
    // The unit is there at 1 s; the timer of the first may be late, the second comes exactly then.
    sleep(Duration::from_micros(999_900)).await;
    while start.elapsed() < Duration::from_millis(1001) {
        let probe = layer.clone();
        tokio::spawn(async move { status(&probe, "a").await });
        sleep(Duration::from_micros(50)).await;
    }
    let first = first.await.unwrap();
    assert!(first < Duration::from_millis(1100), "the first had to wait {first:?}");
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_comes_too_late_is_denied_at_once() {
    for is_late in [false, true] {
        let layer = layer(is_late, Duration::from_millis(990));
        assert_eq!(status(&layer, "a").await, StatusCode::OK);
        let start = Instant::now();
        let response = send(&layer, of("a")).await;
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(field(&response, "retry-after"), Some("1"));
        assert!(start.elapsed() < Duration::from_millis(10), "{:?}", start.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_behind_too_many_others_is_denied_at_once() {
    let layer = layer(false, Duration::from_millis(2500));
    assert_eq!(status(&layer, "a").await, StatusCode::OK);
    let start = Instant::now();
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            let layer = layer.clone();
            tokio::spawn(async move { status(&layer, "a").await })
        })
        .collect();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(status(&layer, "a").await, StatusCode::TOO_MANY_REQUESTS);
    assert!(start.elapsed() < Duration::from_millis(10), "{:?}", start.elapsed());
    for task in waiting {
        assert_eq!(task.await.unwrap(), StatusCode::OK);
    }
}

#[tokio::test(start_paused = true)]
async fn the_number_that_waits_is_bounded() {
    let limiter = Limiter::builder(Paused::new(false)).policies(ONE_A_SECOND).max_waiting(2).build();
    let layer = RateLimitLayer::builder(limiter, Header::new("key")).wait(Duration::from_secs(60)).build();
    for key in ["a", "b"] {
        assert_eq!(status(&layer, key).await, StatusCode::OK);
    }
    let waiting = ["a", "b"].map(|key| {
        let layer = layer.clone();
        tokio::spawn(async move { status(&layer, key).await })
    });
    sleep(Duration::from_millis(1)).await;
    assert_eq!(status(&layer, "a").await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(status(&layer, "c").await, StatusCode::OK);
    for task in waiting {
        assert_eq!(task.await.unwrap(), StatusCode::OK);
    }
    // Their places are free again.
    assert_eq!(status(&layer, "a").await, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_leaves_its_place_and_spends_nothing() {
    for is_late in [false, true] {
        let layer = layer(is_late, Duration::from_secs(60));
        assert_eq!(status(&layer, "a").await, StatusCode::OK);
        let start = Instant::now();
        let (first, gone, last) = (layer.clone(), layer.clone(), layer.clone());
        let first = tokio::spawn(async move { status(&first, "a").await });
        sleep(Duration::from_millis(1)).await;
        let gone = tokio::spawn(async move { timeout(Duration::from_millis(500), status(&gone, "a")).await });
        sleep(Duration::from_millis(1)).await;
        let last = tokio::spawn(async move { status(&last, "a").await });
        assert_eq!(first.await.unwrap(), StatusCode::OK);
        assert!(gone.await.unwrap().is_err());
        assert_eq!(last.await.unwrap(), StatusCode::OK);
        assert!(start.elapsed() < Duration::from_millis(2100), "{:?}", start.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_in_the_queue_may_go_away_too() {
    let layer = layer(false, Duration::from_secs(60));
    assert_eq!(status(&layer, "a").await, StatusCode::OK);
    let start = Instant::now();
    let (gone, last) = (layer.clone(), layer.clone());
    let gone = tokio::spawn(async move { timeout(Duration::from_millis(300), status(&gone, "a")).await });
    sleep(Duration::from_millis(1)).await;
    let last = tokio::spawn(async move { status(&last, "a").await });
    assert!(gone.await.unwrap().is_err());
    assert_eq!(last.await.unwrap(), StatusCode::OK);
    assert!(start.elapsed() < Duration::from_millis(1100), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_cost_that_never_fits_does_not_wait() {
    let limiter = Limiter::new(Paused::new(false), ONE_A_SECOND);
    let layer = RateLimitLayer::builder(limiter, Header::new("key"))
        .wait(Duration::from_secs(60))
        .cost(|_| Cost::new(2))
        .build();
    assert_eq!(status(&layer, "a").await, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test(start_paused = true)]
async fn a_leaky_bucket_holds_what_it_admits_until_its_turn() {
    const SLOW: Policy = Policy::leaky_bucket("slow", Quota::per_second(1).with_burst(3));
    for is_late in [false, true] {
        let layer = RateLimitLayer::new(Limiter::new(Paused::new(is_late), SLOW), Header::new("key"));
        let start = Instant::now();
        let held: Vec<_> = (0..3)
            .map(|_| {
                let layer = layer.clone();
                tokio::spawn(async move { (status(&layer, "a").await, start.elapsed().as_secs()) })
            })
            .collect();
        sleep(Duration::from_millis(1)).await;
        assert_eq!(status(&layer, "a").await, StatusCode::TOO_MANY_REQUESTS);
        for (at, task) in (0..).zip(held) {
            assert_eq!(task.await.unwrap(), (StatusCode::OK, at));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_leaves_a_leaky_bucket_before_its_turn_gives_its_place_back() {
    const SLOW: Policy = Policy::leaky_bucket("slow", Quota::per_second(1).with_burst(3));
    for is_late in [false, true] {
        let limiter = Limiter::new(Paused::new(is_late), SLOW);
        let layer = RateLimitLayer::new(limiter.clone(), Header::new("key"));
        assert_eq!(status(&layer, "a").await, StatusCode::OK);
        assert!(timeout(Duration::from_millis(500), status(&layer, "a")).await.is_err());
        sleep(Duration::from_millis(5)).await;
        let left = limiter.peek("a").await.unwrap().state("slow").unwrap().remaining();
        assert_eq!(left, 2);
    }
}
