//! The layer: its answers, and the end of a request.

use std::{
    convert::Infallible,
    future::{pending, ready},
    time::Duration,
};

use axum::{Router, body::Body, routing::get};
use bytes::Bytes;
use futures_util::{FutureExt, stream};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tollgate::{Limiter, store::Clock};
use tollgate_overload::{AdaptiveLayer, AdaptiveLimiter, Aimd, Class, Gradient, Latency, Signal};
use tollgate_tower::{
    RateLimitLayer,
    key::Global,
    rejection::{Problem, Reason},
    respond_fn,
};
use tower::{Layer, Service, ServiceExt, service_fn, util::BoxService};
use tower_http::{catch_panic::CatchPanicLayer, timeout::TimeoutLayer};

use crate::support::{TWO, header, hello, request, request_with, still};

/// Creates a limiter with one slot.
fn one_slot() -> AdaptiveLimiter {
    AdaptiveLimiter::builder(Gradient::new())
        .limits(1..=1)
        .build()
}

type Responses<B> = Result<Response<B>, Infallible>;

#[tokio::test]
async fn a_request_without_a_slot_is_answered_with_503_and_the_service_is_not_called() {
    let limiter = one_slot();
    let never = service_fn(|_: Request<()>| -> std::future::Ready<Responses<String>> {
        panic!("the service is called")
    });
    let service = AdaptiveLayer::builder(limiter.clone())
        .retry_jitter(Duration::ZERO)
        .build()
        .layer(never);
    let slot = limiter.try_acquire(Class::CRITICAL).unwrap();
    let response = service.clone().oneshot(request()).await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(header(&response, "retry-after"), Some("1"));
    assert_eq!(
        header(&response, "content-type"),
        Some("application/problem+json")
    );
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Temporary reduced capacity","status":503,"detail":"The service is overloaded: try again in 1 s."}"#,
    );
    let text = service
        .oneshot(request_with("accept", "text/plain"))
        .await
        .unwrap();
    let text = text.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(
        text,
        "Temporary reduced capacity. The service is overloaded: try again in 1 s.\n"
    );
    assert_eq!(limiter.in_flight(), 1);
    drop(slot);
}

#[tokio::test]
async fn a_service_that_is_not_cloneable_is_limited() {
    let limiter = one_slot();
    let service = AdaptiveLayer::new(limiter.clone()).layer(BoxService::new(hello()));
    let response = service.oneshot(request()).await.unwrap();
    assert_eq!(
        (response.status(), limiter.in_flight()),
        (StatusCode::OK, 1)
    );
}

#[tokio::test]
async fn the_responder_and_the_type_of_the_problem_can_be_chosen() {
    let limiter = one_slot();
    let _slot = limiter.try_acquire(Class::CRITICAL).unwrap();
    let types = AdaptiveLayer::builder(limiter.clone())
        .respond_with(Problem::types_at("https://example.com/p"))
        .build();
    let body = types
        .layer(hello())
        .oneshot(request())
        .await
        .unwrap()
        .into_body()
        .collect()
        .await
        .unwrap();
    let problem: serde_json::Value = serde_json::from_slice(&body.to_bytes()).unwrap();
    assert_eq!(
        problem["type"],
        "https://example.com/p#temporary-reduced-capacity"
    );
    let own = AdaptiveLayer::builder(limiter)
        .respond_with(respond_fn(|rejection| {
            let Reason::Overloaded(overload) = rejection.reason() else {
                panic!("{rejection:?}")
            };
            assert_eq!((overload.in_flight(), overload.limit()), (1, 1));
            Response::builder()
                .header("retry-after", "77")
                .body(rejection.reason().as_str().to_owned())
                .unwrap()
        }))
        .build();
    let response = own.layer(hello()).oneshot(request()).await.unwrap();
    assert_eq!(header(&response, "retry-after"), Some("77"));
    assert_eq!(response.into_body().get_ref(), "overloaded");
}

#[tokio::test]
async fn the_wait_has_a_jitter_of_up_to_its_maximum() {
    let limiter = one_slot();
    let _slot = limiter.try_acquire(Class::CRITICAL).unwrap();
    let service = AdaptiveLayer::builder(limiter)
        .retry_jitter(Duration::from_secs(5))
        .build()
        .layer(hello());
    let mut seen = [false; 8];
    for _ in 0..500 {
        let response = service.clone().oneshot(request()).await.unwrap();
        let wait: usize = header(&response, "retry-after").unwrap().parse().unwrap();
        seen[wait] = true;
    }
    // 0.1 s to 5.1 s.
    assert!(
        !seen[0] && seen[1..=5].iter().all(|&is_seen| is_seen) && !seen[7],
        "{seen:?}"
    );
}

#[tokio::test]
async fn a_slot_is_held_until_the_body_ends_fails_or_is_dropped() {
    let limiter = one_slot();
    let layer = AdaptiveLayer::new(limiter.clone());
    let frames = |frames: Vec<Result<&'static str, &'static str>>| {
        layer.layer(service_fn(move |_: Request<()>| {
            ready(Ok::<_, Infallible>(Response::new(Body::from_stream(
                stream::iter(frames.clone()),
            ))))
        }))
    };
    let mut body = frames(vec![Ok("one"), Ok("two")])
        .oneshot(request())
        .await
        .unwrap()
        .into_body();
    for _ in 0..2 {
        assert_eq!(limiter.in_flight(), 1);
        assert!(body.frame().await.unwrap().is_ok());
    }
    assert_eq!(limiter.in_flight(), 1);
    assert!(body.frame().await.is_none());
    assert_eq!(limiter.in_flight(), 0);

    let mut failing = frames(vec![Err("broken"), Ok("late")])
        .oneshot(request())
        .await
        .unwrap()
        .into_body();
    assert_eq!(limiter.in_flight(), 1);
    assert!(failing.frame().await.unwrap().is_err());
    assert_eq!(limiter.in_flight(), 0);

    let mut dropped = frames(vec![Ok("one"), Ok("two")])
        .oneshot(request())
        .await
        .unwrap()
        .into_body();
    assert!(dropped.frame().await.unwrap().is_ok());
    assert_eq!(limiter.in_flight(), 1);
    drop(dropped);
    assert_eq!(limiter.in_flight(), 0);
    drop(body);
    assert_eq!(limiter.in_flight(), 0);
}

#[tokio::test]
async fn no_slot_leaks_when_a_request_is_cancelled_fails_panics_or_has_no_body() {
    let limiter = AdaptiveLimiter::default();
    let layer = AdaptiveLayer::new(limiter.clone());
    let future = layer
        .layer(service_fn(|_: Request<()>| pending::<Responses<String>>()))
        .oneshot(request());
    let mut future = Box::pin(future);
    assert!(future.as_mut().now_or_never().is_none());
    assert_eq!(limiter.in_flight(), 1);
    drop(future);
    assert_eq!(limiter.in_flight(), 0);

    let failing = service_fn(|_: Request<()>| async { Err::<Response<String>, _>("broken") });
    assert!(layer.layer(failing).oneshot(request()).await.is_err());
    assert_eq!(limiter.in_flight(), 0);

    let empty = service_fn(|_: Request<()>| async { Responses::Ok(Response::new(String::new())) });
    let response = layer.layer(empty).oneshot(request()).await.unwrap();
    assert_eq!(limiter.in_flight(), 0);
    drop(response);

    async fn panics() {
        if true {
            panic!("on purpose")
        }
    }
    for router in [
        Router::new()
            .route("/", get(panics))
            .layer(layer.clone())
            .layer(CatchPanicLayer::new()),
        Router::new()
            .route("/", get(panics))
            .layer(CatchPanicLayer::new())
            .layer(layer.clone()),
    ] {
        let response = router.oneshot(Request::new(Body::empty())).await.unwrap();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        drop(response);
        assert_eq!(limiter.in_flight(), 0);
    }

    // The service panics before it returns a future.
    let mut service = layer.layer(service_fn(
        |_: Request<()>| -> std::future::Ready<Responses<String>> { panic!("on purpose") },
    ));
    let call = std::panic::AssertUnwindSafe(|| drop(service.call(request())));
    assert!(std::panic::catch_unwind(call).is_err());
    assert_eq!(limiter.in_flight(), 0);
}

#[tokio::test]
async fn a_critical_request_passes_where_others_are_shed_and_an_exempt_one_always() {
    let limiter = AdaptiveLimiter::builder(Gradient::new())
        .limits(5..=5)
        .shares([1.0, 0.8])
        .build();
    let service = AdaptiveLayer::builder(limiter.clone())
        .class(|parts| {
            if parts.headers.contains_key("x-critical") {
                Class::CRITICAL
            } else {
                Class::NORMAL
            }
        })
        .exempt(|parts| parts.headers.contains_key("x-health"))
        .build()
        .layer(hello());
    let send = async |name: &str| {
        service
            .clone()
            .oneshot(request_with(name, "1"))
            .await
            .unwrap()
    };
    let mut responses = Vec::new();
    let mut statuses = Vec::new();
    for name in [
        "x-other",
        "x-other",
        "x-other",
        "x-other",
        "x-other",
        "x-critical",
        "x-critical",
        "x-health",
    ] {
        let response = send(name).await;
        statuses.push(response.status().as_u16());
        responses.push(response);
    }
    assert_eq!(statuses, [200, 200, 200, 200, 503, 200, 503, 200]);
    assert_eq!(limiter.in_flight(), 5);
}

/// Sends requests one after the other. Each takes 10 ms until the head, and 30 ms more until the
/// end of the body.
async fn exchange(
    layer: &AdaptiveLayer,
    clock: &Clock,
    status: u16,
    trailer: Option<&'static str>,
) {
    for _ in 0..30 {
        let service = layer.layer(service_fn(|_: Request<()>| {
            clock.advance(Duration::from_millis(10));
            let trailers = trailer.map(|status| {
                HeaderMap::from_iter([("grpc-status".parse().unwrap(), status.parse().unwrap())])
            });
            let frames = [
                Some(Frame::data(Bytes::from("text"))),
                trailers.map(Frame::trailers),
            ];
            let frames = stream::iter(frames.into_iter().flatten().map(Ok::<_, Infallible>));
            let body = Body::new(StreamBody::new(frames));
            ready(Ok::<_, Infallible>(
                Response::builder().status(status).body(body).unwrap(),
            ))
        }));
        let response = service.oneshot(request()).await.unwrap();
        clock.advance(Duration::from_millis(30));
        let _ = response.into_body().collect().await;
    }
}

#[tokio::test]
async fn the_latency_ends_with_the_head_or_with_the_body() {
    for (end, expected) in [(Latency::Head, 10), (Latency::Body, 40)] {
        let clock = Clock::manual(0);
        let limiter = AdaptiveLimiter::builder(Gradient::new())
            .clock(clock.clone())
            .build();
        let layer = AdaptiveLayer::builder(limiter.clone()).latency(end).build();
        exchange(&layer, &clock, 200, None).await;
        assert_eq!(limiter.latency(), Some(Duration::from_millis(expected)));
    }
}

#[tokio::test]
async fn an_overload_in_the_status_or_in_the_trailers_lowers_the_limit_and_a_mistake_does_not() {
    for (status, trailer, expected) in [
        (200, None, None),
        (200, Some("0"), None),
        (404, None, None),
        (500, None, Some(None)),
        (429, None, Some(None)),
        (503, None, Some(Some(()))),
        (504, None, Some(Some(()))),
        (408, None, Some(Some(()))),
        (200, Some("14"), Some(Some(()))),
        (200, Some("4"), Some(Some(()))),
    ] {
        for end in [Latency::Head, Latency::Body] {
            let clock = Clock::manual(0);
            let aimd = Aimd::new(Duration::from_secs(1));
            let limiter = AdaptiveLimiter::builder(aimd)
                .min_samples(5)
                .clock(clock.clone())
                .build();
            let layer = AdaptiveLayer::builder(limiter.clone()).latency(end).build();
            exchange(&layer, &clock, status, trailer).await;
            let case = format!("{status} {trailer:?} {end:?}: {limiter:?}");
            match expected {
                // One request in flight does not raise the limit.
                None => assert!(
                    limiter.limit() == 20 && limiter.latency().is_some(),
                    "{case}"
                ),
                Some(None) => assert!(
                    limiter.limit() == 20 && limiter.latency().is_none(),
                    "{case}"
                ),
                Some(Some(())) => assert!(limiter.limit() < 20, "{case}"),
            }
        }
    }
}

#[tokio::test]
async fn a_closure_chooses_the_signal() {
    let clock = Clock::manual(0);
    let limiter = AdaptiveLimiter::builder(Aimd::new(Duration::from_secs(1)))
        .clock(clock.clone())
        .build();
    let layer = AdaptiveLayer::builder(limiter.clone())
        .signal(|outcome| match outcome.status() {
            Some(status) if status.is_server_error() => Signal::Overload,
            _ => Signal::Ignore,
        })
        .build();
    exchange(&layer, &clock, 200, None).await;
    assert_eq!((limiter.limit(), limiter.latency()), (20, None));
    exchange(&layer, &clock, 500, None).await;
    assert!(limiter.limit() < 20);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_outside_of_the_layer_counts_as_a_slow_request() {
    let limiter = AdaptiveLimiter::builder(Aimd::new(Duration::from_millis(50)))
        .clock(Clock::tokio())
        .build();
    let send = async |time| {
        let handler = move || async move { tokio::time::sleep(time).await };
        let router = Router::new()
            .route("/", get(handler))
            .layer(AdaptiveLayer::new(limiter.clone()));
        let timeout =
            TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, Duration::from_millis(200));
        router
            .layer(timeout)
            .oneshot(Request::new(Body::empty()))
            .await
            .unwrap()
            .status()
    };
    for _ in 0..20 {
        assert_eq!(send(Duration::from_millis(10)).await, 200);
    }
    let limit = limiter.limit();
    for _ in 0..20 {
        assert_eq!(send(Duration::from_secs(1)).await, 408);
    }
    assert!(limiter.limit() < limit);
    assert_eq!(limiter.in_flight(), 0);
}

#[tokio::test]
async fn a_rate_limit_works_outside_and_inside_of_the_layer() {
    let rate = || RateLimitLayer::new(Limiter::new(still(), TWO), Global);
    let limiter = one_slot();
    let adaptive = || AdaptiveLayer::new(limiter.clone());
    let outside = rate().layer(adaptive().layer(hello()));
    let inside = adaptive().layer(rate().layer(hello()));
    let mut statuses = Vec::new();
    for at in 0..5 {
        let slot = (at == 0).then(|| limiter.try_acquire(Class::CRITICAL).unwrap());
        let outside = outside
            .clone()
            .oneshot(request())
            .await
            .unwrap()
            .status()
            .as_u16();
        let inside = inside
            .clone()
            .oneshot(request())
            .await
            .unwrap()
            .status()
            .as_u16();
        statuses.push((outside, inside));
        drop(slot);
    }
    // Outside, the rate limit charges the request that is shed.
    assert_eq!(
        statuses,
        [(503, 503), (200, 200), (429, 200), (429, 429), (429, 429)]
    );
    assert_eq!(limiter.in_flight(), 0);
}

#[tokio::test]
async fn only_the_selected_requests_are_shed() {
    let limiter = one_slot();
    let _held = limiter.try_acquire(Class::CRITICAL).unwrap();
    let layer = AdaptiveLayer::builder(limiter)
        .only(|parts| parts.headers.contains_key("write"))
        .build();
    let service = layer.layer(hello());
    let other = service.clone().oneshot(request()).await.unwrap();
    assert_eq!(other.status(), StatusCode::OK);
    let shed = service.oneshot(request_with("write", "1")).await.unwrap();
    assert_eq!(shed.status(), StatusCode::SERVICE_UNAVAILABLE);
}
