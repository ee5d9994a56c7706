//! Requests at the same time: who holds a permit for how long, and what the others receive.

use std::{
    convert::Infallible,
    future::{Future, pending},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use futures_util::{FutureExt, stream};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tollgate::{
    Limiter, MemoryStore, Outage, Policy, Quota,
    permits::{Concurrency, ConcurrencyLimiter, Lost, OnLoss},
    test_util::{FaultyStore, ScriptedStore},
};
use tollgate_tower::{
    Meter, RateLimitLayer,
    concurrency::ConcurrencyLayer,
    key::{Global, Header},
};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::*;

const STREAMS: Concurrency = Concurrency::new("streams", 2);

fn streams() -> (ConcurrencyLimiter, ConcurrencyLayer<Header>) {
    let limiter = ConcurrencyLimiter::new(MemoryStore::new(), STREAMS);
    (
        limiter.clone(),
        ConcurrencyLayer::new(limiter, Header::new("x-api-key")),
    )
}

fn acme() -> Request<()> {
    request_with("x-api-key", "acme")
}

/// Returns how many permits of a key are free.
async fn free(limiter: &ConcurrencyLimiter, key: &'static str) -> usize {
    let mut permits = Vec::new();
    while let Ok(permit) = limiter.try_acquire(key).await.unwrap() {
        permits.push(permit);
    }
    permits.len()
}

#[tokio::test]
async fn a_permit_is_held_until_the_body_ends_fails_or_is_dropped() {
    let (limiter, layer) = streams();
    let frames = |last: Result<Frame<Bytes>, &'static str>| {
        let frames = [Ok(Frame::data(Bytes::from_static(b"one"))), last];
        Response::new(StreamBody::new(stream::iter(frames)))
    };
    let service = service_fn(move |request: Request<()>| async move {
        let last = if request.uri() == "/broken" {
            Err("broken")
        } else {
            Ok(Frame::data(Bytes::from_static(b"two")))
        };
        Ok::<_, Infallible>(frames(last))
    });
    let service =
        layer.layer(service.map_response(|response: Response<_>| response.map(Body::new)));
    for end in ["/whole", "/broken", "/dropped"] {
        let request = Request::get(end)
            .header("x-api-key", "acme")
            .body(())
            .unwrap();
        let mut response = service.clone().oneshot(request).await.unwrap();
        assert_eq!(free(&limiter, "acme").await, 1);
        assert_eq!(
            response
                .frame()
                .await
                .unwrap()
                .unwrap()
                .into_data()
                .unwrap(),
            "one"
        );
        assert_eq!(
            (free(&limiter, "acme").await, free(&limiter, "other").await),
            (1, 2)
        );
        match end {
            "/whole" => assert_eq!(
                response.body_mut().collect().await.unwrap().to_bytes(),
                "two"
            ),
            "/broken" => assert_eq!(
                response.frame().await.unwrap().unwrap_err().to_string(),
                "broken"
            ),
            _ => drop(response),
        }
        assert_eq!(free(&limiter, "acme").await, 2, "{end}");
    }
}

#[tokio::test]
async fn failed_cancelled_and_panicking_requests_give_their_permits_back() {
    let (limiter, layer) = streams();
    let failing = service_fn(|_: Request<()>| async { Err::<Response<String>, _>("failed") });
    let mut call = std::pin::pin!(layer.layer(failing).call(acme()));
    assert_eq!(call.as_mut().await.err(), Some("failed"));
    assert_eq!(free(&limiter, "acme").await, 2, "the future is still there");
    let stuck = service_fn(|_: Request<()>| pending::<Result<Response<String>, Infallible>>());
    let mut call = Box::pin(layer.layer(stuck).oneshot(acme()));
    assert!(call.as_mut().now_or_never().is_none());
    assert_eq!(free(&limiter, "acme").await, 1);
    drop(call);
    let panics = service_fn(|_: Request<()>| async {
        if true {
            panic!("on purpose")
        } else {
            Served::Ok(Response::new(String::new()))
        }
    });
    assert!(
        std::panic::AssertUnwindSafe(layer.layer(panics).oneshot(acme()))
            .catch_unwind()
            .await
            .is_err()
    );
    assert_eq!(free(&limiter, "acme").await, 2);
}

type Served = Result<Response<String>, Infallible>;

/// Reads, as it is dropped, whether the permit of its request is still held.
struct Work(ConcurrencyLimiter, Arc<AtomicBool>);

impl Drop for Work {
    fn drop(&mut self) {
        let is_held = self
            .0
            .try_acquire("all")
            .now_or_never()
            .unwrap()
            .unwrap()
            .is_err();
        self.1.store(is_held, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn the_work_of_a_request_is_dropped_before_its_permit_is_given_back() {
    let limiter = ConcurrencyLimiter::new(MemoryStore::new(), Concurrency::new("exports", 1));
    for responds in [false, true] {
        let was_held = Arc::new(AtomicBool::new(false));
        let (held, of) = (Arc::clone(&was_held), limiter.clone());
        let service = service_fn(move |_: Request<()>| {
            let work = Work(of.clone(), Arc::clone(&held));
            async move {
                if !responds {
                    let _work = work;
                    return pending().await;
                }
                let rows = stream::once(async move {
                    let _work = work;
                    pending::<Result<Bytes, Infallible>>().await
                });
                Ok::<_, Infallible>(Response::new(Body::from_stream(rows)))
            }
        });
        let mut call = Box::pin(
            ConcurrencyLayer::new(limiter.clone(), Global)
                .layer(service)
                .oneshot(request()),
        );
        if responds {
            let mut response = call.await.unwrap();
            assert!(response.frame().now_or_never().is_none());
        } else {
            assert!(call.as_mut().now_or_never().is_none());
            drop(call);
        }
        assert!(
            was_held.load(Ordering::Relaxed),
            "the response has begun: {responds}"
        );
        assert_eq!(free(&limiter, "all").await, 1);
    }
}

#[tokio::test]
async fn a_request_without_a_permit_receives_429_with_fields_and_a_document() {
    let (_, layer) = streams();
    let service = layer.layer(hello());
    let first = service.clone().oneshot(acme()).await.unwrap();
    assert_eq!(
        header(&first, "ratelimit-policy"),
        Some(r#""streams";q=2;qu="concurrent-requests""#)
    );
    assert_eq!(header(&first, "ratelimit"), Some(r#""streams";r=1"#));
    let second = service.clone().oneshot(acme()).await.unwrap();
    assert_eq!(header(&second, "ratelimit"), Some(r#""streams";r=0"#));

    let denied = service.clone().oneshot(acme()).await.unwrap();
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    for (name, value) in [
        (
            "ratelimit-policy",
            r#""streams";q=2;qu="concurrent-requests""#,
        ),
        ("ratelimit", r#""streams";r=0"#),
        ("retry-after", "1"),
        ("cache-control", "no-store"),
        ("content-type", "application/problem+json"),
    ] {
        assert_eq!(header(&denied, name), Some(value), "{name}");
    }
    assert_eq!(
        denied.into_body().collect().await.unwrap().to_bytes(),
        r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,"detail":"Policy streams: 2 requests at the same time; try again in about 1 s.","violated-policies":["streams"]}"#
    );
    assert_eq!(
        service.clone().oneshot(request()).await.unwrap().status(),
        StatusCode::BAD_REQUEST
    );
    assert_eq!(
        service
            .oneshot(request_with("x-api-key", "other"))
            .await
            .unwrap()
            .status(),
        StatusCode::OK
    );
}

#[tokio::test]
async fn a_limit_that_protects_the_service_answers_503_and_exempts_requests() {
    let limiter = ConcurrencyLimiter::new(MemoryStore::new(), Concurrency::new("reports", 1));
    let layer = ConcurrencyLayer::builder(limiter, Global)
        .service_unavailable()
        .headers(false)
        .exempt(|parts| parts.uri.path() == "/healthz")
        .build();
    let service = layer.layer(hello());
    let _first = service.clone().oneshot(request()).await.unwrap();
    let denied = service.clone().oneshot(request()).await.unwrap();
    assert_eq!(denied.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(
        (header(&denied, "retry-after"), header(&denied, "ratelimit")),
        (Some("1"), None)
    );
    let document = denied.into_body().collect().await.unwrap().to_bytes();
    assert!(document.starts_with(
        br#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced"#
    ));
    let healthz = Request::get("/healthz").body(()).unwrap();
    assert_eq!(
        service.oneshot(healthz).await.unwrap().status(),
        StatusCode::OK
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_a_permit_for_a_bounded_time_and_in_a_bounded_number() {
    let policy = Concurrency::new("exports", 1)
        .wait(Duration::from_secs(5))
        .max_waiting(1);
    let limiter = ConcurrencyLimiter::new(MemoryStore::new(), policy);
    let service = ConcurrencyLayer::new(limiter.clone(), Global).layer(hello());
    let first = service.clone().oneshot(request()).await.unwrap();
    let waiting = tokio::spawn(service.clone().oneshot(request()));
    tokio::task::yield_now().await;
    assert_eq!(
        service.clone().oneshot(request()).await.unwrap().status(),
        429,
        "the queue is full"
    );
    drop(first);
    let second = waiting.await.unwrap().unwrap();
    assert_eq!(second.status(), StatusCode::OK);
    assert_eq!(
        service.clone().oneshot(request()).await.unwrap().status(),
        429,
        "after five seconds"
    );

    let mut cancelled = Box::pin(service.clone().oneshot(request()));
    assert!(cancelled.as_mut().now_or_never().is_none());
    drop(cancelled);
    drop(second);
    assert_eq!(free(&limiter, "all").await, 1);
}

#[tokio::test]
async fn outside_of_a_rate_limit_either_denial_leaves_nothing_behind() {
    let (permits, layer) = streams();
    let limiter = Limiter::new(still(), Policy::fixed_window("tokens", Quota::per_day(100)));
    let reserve = RateLimitLayer::builder(limiter.clone(), Header::new("x-api-key"))
        .reserve(|_| tollgate::Cost::new(40))
        .build();
    let counting = service_fn(|request: Request<()>| async move {
        request.extensions().get::<Meter>().unwrap().add(50);
        Ok::<_, Infallible>(Response::new("hello".to_owned()))
    });
    let service = layer.layer(reserve.layer(counting));
    let first = service.clone().oneshot(acme()).await.unwrap();
    assert_eq!(
        header(&first, "ratelimit"),
        Some(r#""tokens";r=60;t=85400, "streams";r=1"#)
    );
    let _second = service.clone().oneshot(acme()).await.unwrap();
    assert_eq!(remaining(&limiter, "acme", "tokens").await, 20);

    // Without a permit, nothing is charged.
    assert_eq!(service.clone().oneshot(acme()).await.unwrap().status(), 429);
    assert_eq!(remaining(&limiter, "acme", "tokens").await, 20);
    first.into_body().collect().await.unwrap();
    assert_eq!(
        (
            remaining(&limiter, "acme", "tokens").await,
            free(&permits, "acme").await
        ),
        (10, 1)
    );

    // A request that the rate limit denies gives its permit back.
    let denied = service.clone().oneshot(acme()).await.unwrap();
    assert!(
        header(&denied, "ratelimit")
            .unwrap()
            .starts_with(r#""tokens";r=10"#)
    );
    assert_eq!(denied.status(), 429);
    denied.into_body().collect().await.unwrap();
    assert_eq!(free(&permits, "acme").await, 1);
}

/// Counts how often it was dropped.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A service that never responds, or whose body never ends.
fn endless(
    dropped: &Arc<AtomicUsize>,
    responds: bool,
) -> impl Service<Request<()>, Response = Response<Body>, Error = Infallible, Future: Future>
+ Clone
+ use<> {
    let dropped = Arc::clone(dropped);
    service_fn(move |_: Request<()>| {
        let work = Dropped(Arc::clone(&dropped));
        async move {
            if !responds {
                let _work = work;
                return pending().await;
            }
            let frames = stream::once(async move {
                let _work = work;
                pending::<Result<Frame<Bytes>, &'static str>>().await
            });
            Ok(Response::new(Body::new(StreamBody::new(Box::pin(frames)))))
        }
    })
}

/// Waits for what happens after a life, and fails instead of waiting for ever.
async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(30), future)
        .await
        .expect("the permit is lost")
}

#[tokio::test]
async fn a_lost_permit_ends_the_request_or_its_body_if_the_limit_cancels() {
    for responds in [false, true] {
        let store = FaultyStore::default();
        let policy = Concurrency::new("exports", 1)
            .with_life(Duration::from_millis(100))
            .on_loss(OnLoss::Cancel);
        let limiter = Limiter::builder(store.clone())
            .policies(ONE)
            .on_outage(Outage::Closed)
            .build()
            .concurrency(policy);
        let layer = ConcurrencyLayer::new(limiter, Global);
        let dropped = Arc::new(AtomicUsize::new(0));
        let mut call = Box::pin(layer.layer(endless(&dropped, responds)).oneshot(request()));
        if responds {
            let mut response = call.await.unwrap();
            store.fail();
            let error = soon(response.frame()).await.unwrap().unwrap_err();
            assert!(error.is::<Lost>(), "{error}");
            assert!(response.frame().await.is_none());
        } else {
            assert!(call.as_mut().now_or_never().is_none());
            store.fail();
            let response = soon(call).await.unwrap();
            assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        }
        assert_eq!(dropped.load(Ordering::Relaxed), 1, "the work has ended");
        // Nobody decides now.
        let response = layer.layer(hello()).oneshot(request()).await.unwrap();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
}

#[tokio::test]
async fn a_store_without_permits_is_answered_with_500_and_logged_once() {
    let layer = ConcurrencyLayer::new(
        ConcurrencyLimiter::new(ScriptedStore::allow(), STREAMS),
        Global,
    );
    let lines = logged("requests get no permits", async {
        for _ in 0..2 {
            let response = layer.layer(hello()).oneshot(request()).await.unwrap();
            assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        }
    });
    assert_eq!(lines.await.len(), 1);
}
