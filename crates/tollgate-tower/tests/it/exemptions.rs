//! Requests that no limit applies to: their handlers find what those of other requests find.

use std::{convert::Infallible, net::SocketAddr};

use http::{Request, Response, StatusCode, request::Parts};
use tollgate::{
    Cost, Limiter, MemoryStore,
    limiter::Selection,
    permits::{Concurrency, ConcurrencyLimiter},
    tenants::TenantLimiters,
};
use tollgate_tower::{
    KeyExtractor, LimiterSource, Meter, RateLimitBuilder, RateLimitLayer, RequestLimiter,
    TieredLimiters,
    concurrency::ConcurrencyLayer,
    key::{BoxedKey, Global, Header, Networks, PeerIp},
};
use tower::{Layer, ServiceExt, service_fn};

use crate::{
    reservations::{ESTIMATE, Ledger, charged},
    support::*,
};

/// Returns a layer for each way in which a request has no limit.
fn exempting(limiter: &Limiter) -> Vec<(&'static str, RateLimitBuilder<BoxedKey>)> {
    let builder = |limits: LimiterSource, key: BoxedKey| RateLimitLayer::builder(limits, key);
    let global = |limits: LimiterSource| builder(limits, Global.boxed());
    let header = Header::new("x-api-key");
    let networks = Networks::parse("10.0.0.0/8", "").unwrap();
    let tiers = TieredLimiters::new(limiter.clone())
        .exempt(7_u8)
        .by(|_| Some(7));
    let tenants = TenantLimiters::new(limiter.clone(), async |_: u8| {
        tokio::task::yield_now().await;
        Ok::<_, Infallible>(Selection::Exempt)
    });
    vec![
        ("exempt", global(limiter.clone().into()).exempt(|_| true)),
        (
            "network",
            global(limiter.clone().into()).networks(networks, |parts| PeerIp.address(parts)),
        ),
        ("tier", global(tiers.into())),
        (
            "function",
            global(LimiterSource::from_fn(limiter.clone(), |_| {
                Selection::Exempt
            })),
        ),
        (
            "tenant",
            global(LimiterSource::by_tenant(tenants, |_| Some(7))),
        ),
        (
            "or_exempt",
            builder(limiter.clone().into(), header.clone().or_exempt().boxed()),
        ),
        (
            "no key in shadow mode",
            builder(limiter.clone().into(), header.boxed()).shadow(true),
        ),
    ]
}

fn local() -> Request<()> {
    Request::builder()
        .extension(SocketAddr::from(([10, 0, 0, 1], 443)))
        .body(())
        .unwrap()
}

#[tokio::test]
async fn the_request_limiter_of_an_exempt_request_admits_everything() {
    let limiter = Limiter::new(still(), ONE);
    for messages in [None, Some(Limiter::new(still(), TWO))] {
        for (name, builder) in exempting(&limiter) {
            let layer = builder.expose_request_limiter(messages.clone()).build();
            let service = layer.layer(service_fn(|request: Request<()>| async move {
                let limiter = request
                    .extensions()
                    .get::<RequestLimiter>()
                    .expect("a request limiter");
                for cost in [1, 1, 1, 1_000] {
                    let result = limiter.check(Cost::new(cost)).await;
                    assert!(limiter.admits(&result) && result.unwrap().is_allowed());
                }
                Ok::<_, Infallible>(Response::new(String::new()))
            }));
            for _ in 0..2 {
                let Ok(response) = service.clone().oneshot(local()).await;
                assert_eq!(response.status(), StatusCode::OK, "{name}");
            }
        }
        if let Some(messages) = messages {
            assert_eq!(remaining(&messages, "all", "two").await, 2);
        }
    }
    assert_eq!(remaining(&limiter, "all", "one").await, 1);
}

#[tokio::test]
async fn the_counters_of_an_exempt_request_count_nothing() {
    let ledger = Ledger::new(false);
    for (name, builder) in exempting(&ledger.limiter()) {
        let layer = builder.reserve(|_| ESTIMATE).build();
        let service = layer.layer(service_fn(|request: Request<()>| async move {
            let meter = request.extensions().get::<Meter>().expect("a meter");
            let tokens = meter
                .counter("tokens")
                .expect("the limiter has a policy of this name");
            tokens.add(7);
            meter.add(7);
            assert_eq!(
                (tokens.get(), meter.counted("tokens"), meter.has_counted()),
                (None, None, false)
            );
            Ok::<_, Infallible>(Response::new(String::new()))
        }));
        assert_eq!(
            service.oneshot(local()).await.unwrap().status(),
            StatusCode::OK,
            "{name}"
        );
    }
    assert_eq!(
        (charged(&ledger.limiter()).await, ledger.commits()),
        ((0, 0), 0)
    );
}

#[tokio::test]
async fn a_request_that_passes_a_trial_in_an_outage_has_its_limiter() {
    let messages = Limiter::new(still(), TWO);
    let layer = RateLimitLayer::builder(unavailable(tollgate::Outage::Closed), Global);
    let layer = layer
        .shadow(true)
        .expose_request_limiter(Some(messages.clone()))
        .build();
    let service = layer.layer(service_fn(|request: Request<()>| async move {
        let limiter = request
            .extensions()
            .get::<RequestLimiter>()
            .expect("a request limiter");
        let result = limiter.check(Cost::ONE).await;
        Ok::<_, Infallible>(Response::new(limiter.admits(&result).to_string()))
    }));
    let Ok(response) = service.oneshot(request()).await;
    assert_eq!(response.body(), "true");
    assert_eq!(remaining(&messages, "all", "two").await, 1);
}

/// The outer layer limits the request, whatever the inner one exempts.
#[tokio::test]
async fn a_layer_that_exempts_a_request_leaves_the_limiter_of_an_outer_layer() {
    let outer = Limiter::new(still(), HOURLY);
    let build = |limiter| RateLimitLayer::builder(limiter, Global).expose_request_limiter(None);
    let inner = build(Limiter::new(still(), TWO)).exempt(|_| true).build();
    let service = build(outer.clone()).build().layer(inner.layer(service_fn(
        |request: Request<()>| async move {
            let limiter = request.extensions().get::<RequestLimiter>().unwrap();
            let result = limiter.check(Cost::ONE).await;
            Ok::<_, Infallible>(Response::new(limiter.admits(&result).to_string()))
        },
    )));
    let Ok(response) = service.oneshot(request()).await;
    assert_eq!(response.body(), "true");
    assert_eq!(remaining(&outer, "all", "hourly").await, 1);
}

#[tokio::test]
async fn a_handler_with_a_meter_that_no_layer_has_made_is_logged_once_and_works() {
    use axum::{Router, body::Body, routing::get};
    async fn handler(meter: Meter) {
        meter.counter("tokens").expect("a counter").add(1);
    }
    let lines = logged("meter", async {
        let exempt = RateLimitLayer::builder(Limiter::new(still(), ONE), Global).exempt(|_| true);
        let exempt = exempt.reserve(|_| Cost::ONE).build();
        let router = Router::new()
            .route("/exempt", get(handler).layer(exempt))
            .route("/", get(handler));
        for (path, _) in [("/exempt", 1), ("/", 1), ("/", 2)] {
            let request = Request::get(path).body(Body::empty()).unwrap();
            assert_eq!(
                router.clone().oneshot(request).await.unwrap().status(),
                StatusCode::OK,
                "{path}"
            );
        }
    });
    let lines = lines.await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].starts_with("ERROR") && lines[0].contains("reserve"),
        "{lines:?}"
    );
}

#[tokio::test]
async fn only_the_selected_requests_are_limited_unless_they_are_exempt() {
    let limiter = Limiter::new(still(), ONE);
    let is = |name: &'static str| move |parts: &Parts| parts.headers.contains_key(name);
    for exempt_first in [true, false] {
        let builder = RateLimitLayer::builder(limiter.clone(), Global);
        let layer = match exempt_first {
            true => builder.exempt(is("health")).only(is("write")),
            false => builder.only(is("write")).exempt(is("health")),
        }
        .build();
        limiter.reset("all").await.unwrap();
        let both = Request::builder()
            .header("write", "1")
            .header("health", "1");
        for (request, expected) in [
            (request(), 200),
            (request_with("write", "1"), 200),
            (request_with("write", "1"), 429),
            (request(), 200),
            (both.body(()).unwrap(), 200),
        ] {
            let response = send(&layer, request).await;
            assert_eq!(response.status().as_u16(), expected);
        }
    }
}

#[tokio::test]
async fn only_the_selected_requests_need_a_permit() {
    let selected = |parts: &Parts| parts.headers.contains_key("write");
    let limit = ConcurrencyLimiter::new(MemoryStore::new(), Concurrency::new("writes", 1));
    let _held = limit.try_acquire("all").await.unwrap().unwrap();
    let permits = ConcurrencyLayer::builder(limit, Global)
        .only(selected)
        .build();
    let service = permits.layer(hello());
    let other = service.clone().oneshot(request()).await.unwrap();
    assert_eq!(other.status(), StatusCode::OK);
    let denied = service.oneshot(request_with("write", "1")).await.unwrap();
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
}
