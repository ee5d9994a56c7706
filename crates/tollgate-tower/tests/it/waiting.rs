//! Requests that wait for quota. The clock of tokio is paused, so that no test sleeps in real time.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Request, Response, StatusCode};
use tokio::time::{Instant, sleep, timeout};
use tollgate::{Cost, Costs, Limiter, Policy, Quota, store::StoreFuture};
use tollgate_tower::{
    HandlerLimiter, JointDecision, LimiterSource, RateLimitLayer, RequestLimiter,
    key::{Global, Header},
};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::*;

const ONE_A_SECOND: Policy = Policy::token_bucket("one", Quota::per_second(1));

/// Creates a limiter whose store answers at once or later.
fn limiter(is_late: bool, policy: Policy) -> Limiter {
    let store = tokio_clock_store();
    if is_late {
        Limiter::new(Late(store), policy)
    } else {
        Limiter::new(store, policy)
    }
}

fn layer(is_late: bool, max: Duration) -> RateLimitLayer<Header> {
    RateLimitLayer::builder(limiter(is_late, ONE_A_SECOND), Header::new("key"))
        .wait(max)
        .build()
}

async fn status(layer: &RateLimitLayer<Header>, key: &str) -> StatusCode {
    send(layer, request_with("key", key)).await.status()
}

#[tokio::test(start_paused = true)]
async fn waiting_requests_pass_one_a_second_in_the_order_of_their_arrival() {
    for is_late in [false, true] {
        let start = Instant::now();
        let order = Arc::new(Mutex::new(Vec::new()));
        let layer = layer(is_late, Duration::from_secs(60));
        let mut tasks = Vec::new();
        for number in 0..8 {
            let order = order.clone();
            let service = layer.layer(service_fn(move |_: Request<()>| {
                order
                    .lock()
                    .unwrap()
                    .push((number, start.elapsed().as_secs()));
                async { Ok::<_, std::convert::Infallible>(http::Response::new(String::new())) }
            }));
            tasks.push(tokio::spawn(service.oneshot(request_with("key", "a"))));
            sleep(Duration::from_millis(10)).await;
        }
        for task in tasks {
            assert_eq!(task.await.unwrap().unwrap().status(), StatusCode::OK);
        }
        assert_eq!(
            *order.lock().unwrap(),
            (0..8).map(|number| (number, number)).collect::<Vec<_>>()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_would_wait_too_long_is_denied_at_once() {
    for is_late in [false, true] {
        let layer = layer(is_late, Duration::from_millis(990));
        assert_eq!(status(&layer, "a").await, StatusCode::OK);
        let start = Instant::now();
        let response = send(&layer, request_with("key", "a")).await;
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(header(&response, "retry-after"), Some("1"));
        assert!(
            start.elapsed() < Duration::from_millis(10),
            "{:?}",
            start.elapsed()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_cancelled_in_a_leaky_bucket_is_refunded() {
    const SLOW: Policy = Policy::leaky_bucket("slow", Quota::per_second(1).with_burst(3));
    for is_late in [false, true] {
        let limiter = limiter(is_late, SLOW);
        let layer = RateLimitLayer::new(limiter.clone(), Header::new("key"));
        assert_eq!(status(&layer, "a").await, StatusCode::OK);
        assert!(
            timeout(Duration::from_millis(500), status(&layer, "a"))
                .await
                .is_err()
        );
        sleep(Duration::from_millis(5)).await;
        assert_eq!(remaining(&limiter, "a", "slow").await, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_leaky_bucket_beside_other_policies_delays_too() {
    const SLOW: Policy = Policy::leaky_bucket("slow", Quota::per_second(1).with_burst(3));
    const WIDE: Policy = Policy::fixed_window("wide", Quota::per_day(1_000));
    for is_late in [false, true] {
        for policies in [[SLOW, WIDE], [WIDE, SLOW]] {
            let limiter = if is_late {
                Limiter::new(Late(tokio_clock_store()), policies)
            } else {
                Limiter::new(tokio_clock_store(), policies)
            };
            let layer = RateLimitLayer::new(limiter, Header::new("key"));
            let start = Instant::now();
            let delayed =
                (0..3).map(|_| async { (status(&layer, "a").await, start.elapsed().as_secs()) });
            let delayed = futures_util::future::join_all(delayed).await;
            assert_eq!(delayed, [0, 1, 2].map(|at| (StatusCode::OK, at)));
        }
    }
}

/// Decides each request by one limiter.
fn by_one(limiter: Limiter) -> LimiterSource {
    LimiterSource::from_decider(move |_, check| {
        let (limiter, cost) = (limiter.clone(), check.cost());
        Ok(StoreFuture::pending(async move {
            let decision = limiter.check("all").cost(cost).await?;
            let joint = if decision.is_allowed() {
                JointDecision::allowed()
            } else {
                JointDecision::denied()
            };
            Ok(Some(joint.with(limiter, "all".into(), decision)))
        }))
    })
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_tried_out_delays_nobody() {
    const QUEUE: Policy = Policy::leaky_bucket("queue", Quota::per_second(1).with_burst(3));
    let max = Duration::from_secs(60);
    for is_late in [false, true] {
        for policy in [QUEUE, ONE_A_SECOND] {
            let limiter = || limiter(is_late, policy.clone());
            let shadow =
                |source: LimiterSource| RateLimitLayer::builder(source, Global).shadow(true);
            let waiting = || shadow(limiter().into()).wait(max);
            let start = Instant::now();
            let layers = [
                shadow(limiter().into()).build(),
                waiting().build(),
                waiting()
                    .cost(|_| Cost::ONE)
                    .priority(|_| tollgate::Priority::CRITICAL)
                    .build(),
                waiting().charge_after(|_| true).build(),
                shadow(by_one(limiter())).build(),
            ];
            for layer in &layers {
                assert_eq!(statuses(layer, 5).await, [StatusCode::OK; 5]);
            }
            if !is_late {
                let reserving = waiting().reserve(|_| Cost::ONE).build();
                for _ in 0..5 {
                    assert_eq!(
                        reserving
                            .layer(hello())
                            .oneshot(request())
                            .await
                            .unwrap()
                            .status(),
                        StatusCode::OK
                    );
                }
            }
            let handler: HandlerLimiter<String> = waiting().build().handler_limiter(limiter());
            let exposing = waiting().expose_request_limiter(Some(limiter())).build();
            let service = exposing.layer(service_fn(|request: Request<()>| async move {
                let limiter = request
                    .extensions()
                    .get::<RequestLimiter>()
                    .unwrap()
                    .clone();
                let limiter = limiter.wait(Duration::from_secs(60));
                let result = limiter.check(Cost::ONE).await;
                Ok::<_, std::convert::Infallible>(Response::new(
                    limiter.admits(&result).to_string(),
                ))
            }));
            for _ in 0..5 {
                let (mut parts, ()) = request().into_parts();
                assert!(handler.check(&mut parts, "all").await.is_ok());
                assert_eq!(
                    service.clone().oneshot(request()).await.unwrap().body(),
                    "true"
                );
            }
            assert_eq!(
                start.elapsed().as_secs(),
                0,
                "{}, late: {is_late}",
                policy.name()
            );
        }
    }
}

/// Returns the seconds that a request of these costs waits in each kind of layer, and in the limiters
/// of handlers.
async fn seconds_in_queue(limiter: &Limiter, costs: [(&'static str, u64); 3]) -> Vec<u64> {
    let costs = Costs::from(costs);
    let builder = || RateLimitLayer::builder(limiter.clone(), Global);
    let max = Duration::from_secs(60);
    let (asked, each) = (costs.clone(), || {
        let costs = costs.clone();
        move |_: &http::request::Parts| costs.clone()
    });
    let decided = limiter.clone();
    let joint = LimiterSource::from_decider(move |_, _| {
        let (limiter, costs) = (decided.clone(), asked.clone());
        Ok(StoreFuture::pending(async move {
            let decision = limiter.check("all").cost(costs).await?;
            Ok(Some(JointDecision::allowed().with(
                limiter,
                "all".into(),
                decision,
            )))
        }))
    });
    let layers = [
        builder().costs(each()).build(),
        builder().costs(each()).wait(max).build(),
        RateLimitLayer::new(joint, Global),
    ];
    let mut seconds = Vec::new();
    for layer in &layers {
        let start = Instant::now();
        assert_eq!(statuses(layer, 1).await, [StatusCode::OK]);
        seconds.push(start.elapsed().as_secs());
        fill(limiter).await;
    }
    for builder in [builder(), builder().wait(max)] {
        let handler: HandlerLimiter<String> = builder.build().handler_limiter(limiter.clone());
        let (mut parts, ()) = request().into_parts();
        let start = Instant::now();
        let admitted = handler.check_costs(&mut parts, "all", costs.clone()).await;
        assert!(admitted.is_ok());
        seconds.push(start.elapsed().as_secs());
        fill(limiter).await;
    }
    for builder in [builder(), builder().wait(max)] {
        let layer = builder.reserve(each()).build();
        let start = Instant::now();
        let response = layer.layer(hello()).oneshot(request()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        seconds.push(start.elapsed().as_secs());
        drop(response);
        fill(limiter).await;
    }
    seconds
}

/// Leaves three seconds in the queue `slow` and four in the queue `slower`.
async fn fill(limiter: &Limiter) {
    limiter.reset("all").await.unwrap();
    let full = Costs::from([("slow", 3), ("slower", 2), ("wide", 0)]);
    assert!(limiter.check("all").cost(full).await.unwrap().is_allowed());
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_in_the_queues_that_it_spends_from_and_in_no_other() {
    let limiter = Limiter::new(
        tokio_clock_store(),
        [
            Policy::leaky_bucket("slow", Quota::per_second(1).with_burst(9)),
            Policy::fixed_window("wide", Quota::per_day(1_000)),
            Policy::leaky_bucket(
                "slower",
                Quota::one_every(Duration::from_secs(2)).with_burst(9),
            ),
        ],
    );
    fill(&limiter).await;
    for (slow, slower, expected) in [(0, 0, 0), (1, 0, 3), (0, 1, 4), (1, 1, 4)] {
        let costs = [("slow", slow), ("wide", 1), ("slower", slower)];
        let seconds = seconds_in_queue(&limiter, costs).await;
        assert_eq!(seconds, [expected; 7], "{costs:?}");
    }
    // A peek reports the wait of a request that would come now.
    assert_eq!(limiter.peek("all").await.unwrap().delay().as_secs(), 4);
}
