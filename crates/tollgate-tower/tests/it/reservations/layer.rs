//! The layer: what each end of a request costs, and that it is settled once.

use std::{future::pending, thread};

use futures_util::FutureExt;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use tollgate::{Cost, Costs, Limiter, MemoryStore, Policy, PolicySet, Quota, store::Clock};
use tollgate_tower::{
    Counter, Decisions, Meter, RateLimitLayer, ReservationLayer, key::Header, rejection::Problem,
};
use tower::{Layer, Service, ServiceExt, service_fn};

use super::{Answer, ESTIMATE, Ledger, REQUESTS, Served, TOKENS, charged, settled, until_charged};
use crate::support::*;

fn reserving(limiter: &Limiter) -> ReservationLayer<Header> {
    RateLimitLayer::builder(limiter.clone(), Header::new("x-api-key"))
        .reserve(|_| ESTIMATE)
        .build()
}

fn acme() -> Request<()> {
    request_with("x-api-key", "acme")
}

/// Says how a request ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// The client reads the whole body.
    Complete,
    /// The body fails after a frame.
    Failed,
    /// The client disconnects after some frames.
    Dropped(usize),
    /// The service fails, panics or is dropped before it responds.
    Error,
    Panic,
    Cancelled,
}

/// Sends a request that ends in this way. Returns what is charged in the end.
async fn spend(ledger: &Ledger, end: End, is_counted: bool) -> (u64, u64) {
    let limiter = ledger.limiter();
    let service = service_fn(move |request: Request<()>| async move {
        let meter = request.extensions().get::<Meter>().unwrap().clone();
        let meter = is_counted.then_some(&meter);
        if let (Some(meter), End::Error | End::Panic | End::Cancelled) = (meter, end) {
            meter.counter("tokens").unwrap().add(7);
        }
        match end {
            End::Complete | End::Dropped(_) => Ok(Response::new(Answer::new(meter))),
            End::Failed => Ok(Response::new(Answer::new(meter).fails_after(1))),
            End::Error => Err("failed"),
            End::Panic => panic!("on purpose"),
            End::Cancelled => pending().await,
        }
    });
    let mut call = Box::pin(reserving(&limiter).layer(service).oneshot(acme()));
    match end {
        End::Complete => {
            let body = call.await.unwrap().into_body().collect().await.unwrap();
            assert_eq!(body.trailers().map(|trailers| trailers.len()), Some(1));
            assert_eq!(body.to_bytes(), "token token token ");
        }
        End::Failed => assert!(call.await.unwrap().into_body().collect().await.is_err()),
        End::Dropped(frames) => {
            let mut response = call.await.unwrap();
            for _ in 0..frames {
                assert!(response.frame().await.unwrap().is_ok());
            }
        }
        End::Error => assert_eq!(call.await.err(), Some("failed")),
        End::Panic => assert!(
            std::panic::AssertUnwindSafe(call)
                .catch_unwind()
                .await
                .is_err()
        ),
        End::Cancelled => {
            let patience = tokio::time::sleep(std::time::Duration::from_secs(1));
            tokio::select! {
                _ = &mut call => panic!("the service never responds"),
                () = patience => {}
            }
            drop(call);
        }
    }
    settled().await;
    charged(&limiter).await
}

#[tokio::test(start_paused = true)]
async fn every_end_of_a_request_is_settled_once_at_what_was_counted() {
    for is_far in [false, true] {
        for (end, tokens) in [
            (End::Complete, 30),
            (End::Failed, 10),
            (End::Dropped(2), 20),
            (End::Error, 7),
            (End::Panic, 7),
            (End::Cancelled, 7),
        ] {
            let ledger = Ledger::new(is_far);
            let charged = spend(&ledger, end, true).await;
            assert_eq!(
                (charged, ledger.commits()),
                ((1, tokens), 1),
                "{end:?}, far away: {is_far}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_estimate_stands_when_nothing_was_counted() {
    for is_far in [false, true] {
        let ends = [
            End::Complete,
            End::Failed,
            End::Dropped(0),
            End::Dropped(2),
            End::Error,
            End::Panic,
            End::Cancelled,
        ];
        for end in ends {
            let ledger = Ledger::new(is_far);
            let charged = spend(&ledger, end, false).await;
            assert_eq!(
                (charged, ledger.commits()),
                ((1, 100), 0),
                "{end:?}, far away: {is_far}"
            );
        }
        // The stream has not begun to count.
        let ledger = Ledger::new(is_far);
        assert_eq!(
            (
                spend(&ledger, End::Dropped(0), true).await,
                ledger.commits()
            ),
            ((1, 100), 0)
        );
    }
}

/// Counts tokens when it is dropped.
struct CountsAtTheEnd(Counter);

impl Drop for CountsAtTheEnd {
    fn drop(&mut self) {
        self.0.add(55);
    }
}

#[tokio::test]
async fn tokens_that_a_stream_counts_as_it_is_dropped_are_charged() {
    let ledger = Ledger::new(false);
    let service = service_fn(|request: Request<()>| async move {
        let tokens = CountsAtTheEnd(
            request
                .extensions()
                .get::<Meter>()
                .unwrap()
                .counter("tokens")
                .unwrap(),
        );
        let stream = futures_util::stream::once(async move {
            let _tokens = tokens;
            pending::<Served<bytes::Bytes>>().await
        });
        Served::Ok(Response::new(axum::body::Body::from_stream(stream)))
    });
    let mut response = reserving(&ledger.limiter())
        .layer(service)
        .oneshot(acme())
        .await
        .unwrap();
    assert!(response.frame().now_or_never().is_none());
    drop(response);
    assert_eq!(
        (charged(&ledger.limiter()).await, ledger.commits()),
        ((1, 55), 1)
    );
}

#[tokio::test]
async fn a_service_that_fails_is_settled_before_its_future_is_dropped() {
    let ledger = Ledger::new(false);
    let service = service_fn(|request: Request<()>| async move {
        request
            .extensions()
            .get::<Meter>()
            .unwrap()
            .counter("tokens")
            .unwrap()
            .set(0);
        Err::<Response<String>, _>("failed")
    });
    let mut call = std::pin::pin!(reserving(&ledger.limiter()).layer(service).call(acme()));
    assert_eq!(call.as_mut().await.err(), Some("failed"));
    assert_eq!(
        (charged(&ledger.limiter()).await, ledger.commits()),
        ((1, 0), 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_fails_is_repeated_until_the_store_is_back() {
    for failing in 1..=4 {
        let ledger = Ledger::new(true).failing(failing);
        assert_eq!(
            spend(&ledger, End::Complete, true).await,
            (1, 30),
            "{failing} commits fail"
        );
        assert_eq!(ledger.commits(), failing + 1);
    }
    // The store stays away.
    let ledger = Ledger::new(true).failing(usize::MAX);
    assert_eq!(spend(&ledger, End::Complete, true).await, (1, 100));
}

/// Counts these tokens, and responds with an empty body.
fn counts(
    tokens: u64,
) -> impl Service<
    Request<()>,
    Response = Response<String>,
    Error = std::convert::Infallible,
    Future: Send,
> + Clone {
    service_fn(move |request: Request<()>| async move {
        request
            .extensions()
            .get::<Meter>()
            .unwrap()
            .counter("tokens")
            .unwrap()
            .set(tokens);
        Served::Ok(Response::new(String::new()))
    })
}

/// Returns the answer of a service that counts five tokens.
async fn answer(
    layer: &ReservationLayer<Header>,
    request: Request<()>,
) -> Response<impl http_body::Body + use<>> {
    layer.layer(counts(5)).oneshot(request).await.unwrap()
}

#[tokio::test]
async fn a_cost_above_the_estimate_is_a_debt_and_an_empty_body_is_settled_at_once() {
    let limiter = Ledger::new(false).limiter();
    let layer = reserving(&limiter);
    let response = layer.layer(counts(1_500)).oneshot(acme()).await.unwrap();
    assert_eq!(charged(&limiter).await, (1, 1_000));
    assert_eq!(
        header(&response, "ratelimit"),
        Some(r#""requests";r=9;t=85400, "tokens";r=900;t=85400"#)
    );
    assert_eq!(
        layer
            .layer(counts(0))
            .oneshot(acme())
            .await
            .unwrap()
            .status(),
        StatusCode::TOO_MANY_REQUESTS
    );
}

#[tokio::test]
async fn a_service_that_sets_its_meter_to_zero_is_charged_no_tokens() {
    let limiter = Ledger::new(false).limiter();
    reserving(&limiter)
        .layer(counts(0))
        .oneshot(acme())
        .await
        .unwrap();
    assert_eq!(charged(&limiter).await, (1, 0));
}

/// Limits by a plan of 100 units, then 20 credits, then a pool of 1000.
fn plan_credits_and_pool() -> Limiter {
    let window = |name, units| Policy::fixed_window(name, Quota::per_day(units));
    let policies = [
        window("plan", 100),
        window("credits", 20),
        window("pool", 1_000),
    ];
    Limiter::new(still(), policies)
}

async fn left_of_each(limiter: &Limiter) -> [u64; 3] {
    [
        remaining(limiter, "acme", "plan").await,
        remaining(limiter, "acme", "credits").await,
        remaining(limiter, "acme", "pool").await,
    ]
}

#[tokio::test]
async fn costs_that_cascade_are_settled_at_the_sum_or_at_the_count_of_each_policy() {
    let count_all = |meter: &Meter| meter.set(110);
    let count_one = |meter: &Meter| meter.counter("pool").unwrap().set(5);
    for (count, expected) in [
        (count_all as fn(&Meter), [0, 10, 1_000]),
        (count_one, [0, 0, 995]),
    ] {
        let limiter = plan_credits_and_pool();
        let layer = RateLimitLayer::builder(limiter.clone(), Header::new("x-api-key"))
            .reserve(|_| Costs::cascading(150))
            .build();
        let held = limiter.clone();
        let service = service_fn(move |request: Request<()>| {
            let limiter = held.clone();
            async move {
                assert_eq!(left_of_each(&limiter).await, [0, 0, 970]);
                count(request.extensions().get::<Meter>().unwrap());
                Served::Ok(Response::new(String::new()))
            }
        });
        layer.layer(service).oneshot(acme()).await.unwrap();
        assert_eq!(left_of_each(&limiter).await, expected);
    }
}

#[tokio::test]
async fn a_policy_beside_a_cascade_is_settled_at_the_sum_or_at_a_count_of_its_own() {
    let limiter = plan_credits_and_pool();
    let mut policies: Vec<Policy> = limiter.policies().iter().cloned().collect();
    policies.push(Policy::fixed_window("tokens", Quota::per_day(1_000)));
    policies.push(Policy::fixed_window("requests", Quota::per_day(10)));
    let limiter = limiter.with_policies(PolicySet::try_new(policies).unwrap());
    let estimate = Costs::cascading(150);
    let estimate = estimate
        .with("tokens", Cost::new(150))
        .with("requests", Cost::ONE);
    let layer = RateLimitLayer::builder(limiter.clone(), Header::new("x-api-key"))
        .reserve(move |_| estimate.clone())
        .build();
    let service = service_fn(|request: Request<()>| async move {
        let meter = request.extensions().get::<Meter>().unwrap();
        meter.add(110);
        meter.counter("requests").unwrap().set(1);
        Served::Ok(Response::new(String::new()))
    });
    layer.layer(service).oneshot(acme()).await.unwrap();
    assert_eq!(left_of_each(&limiter).await, [0, 10, 1_000]);
    assert_eq!(remaining(&limiter, "acme", "tokens").await, 890);
    assert_eq!(remaining(&limiter, "acme", "requests").await, 9);
}

#[tokio::test]
async fn estimates_above_the_burst_are_refused_or_capped() {
    let ledger = Ledger::new(false);
    let limiter = ledger.limiter();
    let builder = || {
        RateLimitLayer::builder(limiter.clone(), Header::new("x-api-key"))
            .reserve(|_| [("requests", 1), ("tokens", 1_001)])
    };
    let response = answer(&builder().build(), acme()).await;
    assert_eq!(
        (response.status(), header(&response, "retry-after")),
        (StatusCode::PAYLOAD_TOO_LARGE, None)
    );
    assert_eq!((charged(&limiter).await, ledger.commits()), ((0, 0), 0));

    let response = answer(&builder().capped().build(), acme()).await;
    assert_eq!(
        header(&response, "ratelimit")
            .unwrap()
            .split(';')
            .next_back(),
        Some("t=85400")
    );
    assert_eq!((charged(&limiter).await, ledger.commits()), ((1, 5), 1));

    // A capped estimate stays what was charged, and is no debt.
    let forgetful = service_fn(|_: Request<()>| async { Served::Ok(Response::new(String::new())) });
    let ledger = Ledger::new(false);
    let layer = RateLimitLayer::builder(ledger.limiter(), Header::new("x-api-key"))
        .reserve(|_| [("requests", 1), ("tokens", u64::MAX)])
        .capped()
        .build();
    layer.layer(forgetful).oneshot(acme()).await.unwrap();
    assert_eq!(
        (charged(&ledger.limiter()).await, ledger.commits()),
        ((1, 1_000), 0)
    );
}

#[tokio::test]
async fn denied_exempt_and_shadowed_requests_hold_nothing() {
    let ledger = Ledger::new(false);
    let builder = || RateLimitLayer::builder(ledger.limiter(), Header::new("x-api-key"));
    let too_much = |_: &http::request::Parts| [("requests", 11), ("tokens", 1)];
    let _ = ledger
        .limiter()
        .check("acme")
        .cost([("requests", 5), ("tokens", 0)])
        .await
        .unwrap();
    let eight = |_: &http::request::Parts| [("requests", 8), ("tokens", 1)];

    let response = answer(&builder().reserve(eight).build(), acme()).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(header(&response, "retry-after").is_some());
    let response = answer(&builder().reserve(too_much).build(), acme()).await;
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    // A denied request of shadow mode has a meter too, which nobody reads.
    let shadow = builder().shadow(true).reserve(eight).build();
    assert_eq!(answer(&shadow, acme()).await.status(), StatusCode::OK);
    let exempt = builder().exempt(|_| true).reserve(eight).build();
    let response = exempt.layer(hello()).oneshot(acme()).await.unwrap();
    assert_eq!(
        (response.status(), header(&response, "ratelimit")),
        (StatusCode::OK, None)
    );
    assert_eq!(
        answer(&builder().reserve(eight).build(), request())
            .await
            .status(),
        400
    );
    assert_eq!(
        (charged(&ledger.limiter()).await, ledger.commits()),
        ((5, 0), 0)
    );
}

#[tokio::test]
async fn estimates_with_wrong_names_and_stores_without_reservations_are_answered_with_500() {
    let limiter = Ledger::new(false).limiter();
    let wrong = RateLimitLayer::builder(limiter.clone(), Header::new("x-api-key"))
        .reserve(|_| [("bytes", 1)])
        .build();
    let lines = logged("cannot be rate limited", async {
        for _ in 0..2 {
            let response = wrong.layer(counts(1)).oneshot(acme()).await.unwrap();
            assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        }
    });
    assert_eq!(lines.await.len(), 1);
    assert_eq!(charged(&limiter).await, (0, 0));

    let limiter = Limiter::new(Late(still()), [REQUESTS, TOKENS]);
    let response = reserving(&limiter)
        .layer(counts(1))
        .oneshot(acme())
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
}

#[tokio::test]
async fn a_reservation_replaces_the_other_charges_and_keeps_the_other_options() {
    let ledger = Ledger::new(false);
    let layer: ReservationLayer<Header, Problem> =
        RateLimitLayer::builder(ledger.limiter(), Header::new("x-api-key"))
            .cost(|_| Cost::new(9))
            .charge_after(|_| true)
            .expose_decisions(true)
            .reserve(|_| Costs::from(ESTIMATE))
            .build();
    let response = layer.layer(counts(42)).oneshot(acme()).await.unwrap();
    assert_eq!(
        response
            .extensions()
            .get::<Decisions>()
            .unwrap()
            .iter()
            .count(),
        1
    );
    drop(response);
    assert_eq!(
        (charged(&ledger.limiter()).await, ledger.commits()),
        ((1, 42), 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_leaves_its_queue_early_is_charged_nothing() {
    let store = MemoryStore::builder().clock(Clock::tokio()).build();
    let limiter = Limiter::new(
        store,
        Policy::leaky_bucket("queue", Quota::per_second(1).with_burst(5)),
    );
    let layer = RateLimitLayer::builder(limiter.clone(), Header::new("x-api-key"))
        .reserve(|_| Cost::new(2))
        .build();
    let first = layer.layer(hello()).oneshot(acme()).await.unwrap();
    let left = remaining(&limiter, "acme", "queue").await;
    let mut second = Box::pin(layer.layer(hello()).oneshot(acme()));
    assert!(
        second.as_mut().now_or_never().is_none(),
        "it waits in the queue"
    );
    assert_eq!(remaining(&limiter, "acme", "queue").await, left - 2);
    drop(second);
    assert_eq!(remaining(&limiter, "acme", "queue").await, left);
    assert_eq!(first.status(), StatusCode::OK);
}

#[test]
fn a_body_that_is_dropped_outside_of_the_runtime_is_settled_inside() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .unwrap();
    let ledger = Ledger::new(true);
    let limiter = ledger.limiter();
    let service = service_fn(|request: Request<()>| async move {
        Ok::<_, std::convert::Infallible>(Response::new(Answer::new(
            request.extensions().get::<Meter>(),
        )))
    });
    let mut response = runtime
        .block_on(reserving(&limiter).layer(service).oneshot(acme()))
        .unwrap();
    assert!(runtime.block_on(response.frame()).unwrap().is_ok());
    thread::spawn(|| drop(response)).join().unwrap();
    runtime.block_on(until_charged(&limiter, (1, 10)));
    assert_eq!(ledger.commits(), 1);
}

#[test]
#[should_panic(expected = "time to live must be 1ms to 604800s, got 0ns")]
fn a_time_to_live_of_zero_panics() {
    let limiter = Ledger::new(false).limiter();
    let _ = RateLimitLayer::builder(limiter, Header::new("x-api-key"))
        .reserve(|_| Cost::ONE)
        .time_to_live(Default::default());
}
