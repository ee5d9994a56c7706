//! Options of the builders, and what each changes.

use std::{sync::Arc, time::Duration};

use http::{Response, StatusCode};
use tollgate::{
    Decision, Enforcement, KeySecret, Limiter, Outage,
    limiter::Selection,
    permits::{Concurrency, ConcurrencyLimiter},
    test_util::FaultyStore,
};
use tollgate_tower::{
    Decisions, HeaderFormat, LimiterSource, QuotaUnit, RateLimitBuilder, RateLimitLayer, Rejection,
    ResetFormat, Respond,
    concurrency::ConcurrencyLayer,
    key::{Global, Header},
    rejection::Empty,
};
use tower::{Layer, Service, ServiceExt};

use crate::support::*;

/// Sends three requests. Returns what a client and an outer layer see of each response.
async fn seen<L, B>(layer: L) -> Vec<String>
where
    L: Layer<BoxedService>,
    L::Service:
        Service<http::Request<()>, Response = Response<B>, Error = std::convert::Infallible>,
    B: http_body::Body<Error: std::fmt::Debug>,
{
    let mut all = Vec::new();
    for _ in 0..3 {
        let Ok(response) = layer
            .layer(BoxedService::new(hello()))
            .oneshot(request_with("x-api-key", "acme"))
            .await;
        let (parts, body) = response.into_parts();
        let body = http_body_util::BodyExt::collect(body)
            .await
            .unwrap()
            .to_bytes();
        let decisions = parts.extensions.get::<Decisions>().is_some();
        all.push(format!(
            "{} {:?} {decisions} {body:?}",
            parts.status, parts.headers
        ));
    }
    all
}

fn builder(limiter: Limiter) -> RateLimitBuilder<Header> {
    RateLimitLayer::builder(limiter, Header::new("x-api-key"))
}

/// Requires that the responses of a layer that reserves show an option.
macro_rules! assert_shown {
    ($($limiter:ident.$option:ident($argument:expr)),+ $(,)?) => {$(
        let with = seen(builder($limiter()).$option($argument).reserve(|_| [("two", 1_u64)]).build()).await;
        let without = seen(builder($limiter()).reserve(|_| [("two", 1_u64)]).build()).await;
        assert_ne!(with, without, stringify!($option));
    )+};
}

#[tokio::test]
async fn a_layer_that_reserves_has_the_options_of_one_that_charges() {
    let two = || Limiter::new(still(), TWO);
    let local = || {
        let store = FaultyStore::default();
        store.fail();
        Limiter::builder(store)
            .policies(TWO)
            .on_outage(Outage::local(1))
            .build()
    };
    let legacy = HeaderFormat::Legacy {
        reset: ResetFormat::Seconds,
    };
    assert_shown!(
        two.exempt(|_| true),
        two.expose_decisions(true),
        two.shadow(true),
        two.enforcement(Enforcement::share(0)),
        two.respond_with(Empty),
        two.header_format(legacy),
        two.header_formats([HeaderFormat::Ietf08, legacy]),
        two.expose_headers(true),
        two.quota_unit(QuotaUnit::CONTENT_BYTES),
        two.quota_units([("two", QuotaUnit::CONTENT_BYTES)]),
        two.partition_key(KeySecret::new(*b"a secret of 32 bytes for digests")),
        local.mark_degraded(true),
    );
}

#[tokio::test]
async fn the_log_names_the_calls_of_a_layer_that_reserves() {
    let layer = builder(Limiter::new(still(), ONE)).rpc_name(|_| Some(("a.B", "C")));
    let layer = layer.reserve(|_| [("one", 1_u64)]).build();
    let lines = logged("message=denied", async {
        seen(layer).await;
    });
    let denied =
        r#"DEBUG message=denied policy="one" shadow=false rpc.service="a.B" rpc.method="C""#;
    assert_eq!(lines.await, [denied, denied]);
}

/// Returns the different waits of 30 rejections.
async fn waits<L, B>(layer: L) -> usize
where
    L: Layer<BoxedService>,
    L::Service:
        Service<http::Request<()>, Response = Response<B>, Error = std::convert::Infallible>,
{
    let mut waits = std::collections::HashSet::new();
    for _ in 0..30 {
        let Ok(response) = layer
            .layer(BoxedService::new(hello()))
            .oneshot(request_with("x-api-key", "acme"))
            .await;
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        waits.insert(
            header(&response, "retry-after")
                .unwrap()
                .parse::<u64>()
                .unwrap(),
        );
    }
    waits.len()
}

#[tokio::test]
async fn jitter_spreads_the_waits_of_permits_and_reservations() {
    let limiter = Limiter::new(still(), ONE);
    assert!(limiter.check("acme").await.unwrap().is_allowed());
    let permits = ConcurrencyLimiter::new(still(), Concurrency::new("permits", 1));
    let _permit = permits.try_acquire("acme").await.unwrap();
    for (jitter, is_spread) in [
        (Duration::ZERO, false),
        (Duration::from_secs(100_000), true),
    ] {
        let layer = builder(limiter.clone())
            .retry_jitter(jitter)
            .reserve(|_| [("one", 1_u64)])
            .build();
        assert_eq!(waits(layer).await > 1, is_spread);
        let layer = ConcurrencyLayer::builder(permits.clone(), Header::new("x-api-key"))
            .retry_jitter(jitter)
            .build();
        assert_eq!(waits(layer).await > 1, is_spread);
    }
}

#[tokio::test]
async fn a_layer_of_permits_rejects_by_its_responder() {
    let permits = ConcurrencyLimiter::new(still(), Concurrency::new("permits", 1));
    let _permit = permits.try_acquire("all").await.unwrap();
    let layer = ConcurrencyLayer::builder(permits, Global)
        .respond_with(Empty)
        .build();
    let all = seen(layer).await;
    assert!(
        all.iter()
            .all(|seen| seen.starts_with("429") && seen.ends_with(r#"b"""#)),
        "{all:?}"
    );
}

#[tokio::test]
async fn a_responder_that_layers_share_knows_the_decision_and_the_headers_of_the_wait() {
    struct Own;
    impl Respond<String> for Own {
        fn respond(&self, rejection: &Rejection<'_>) -> Response<String> {
            let wait = rejection.decision().and_then(Decision::retry_after);
            Response::new(format!("{} {wait:?}", rejection.status()))
        }

        fn adds_retry_after(&self, rejection: &Rejection<'_>) -> bool {
            rejection.decision().is_none()
        }
    }
    let responder: Arc<dyn Respond<String>> = Arc::new(Own);
    let limiter = Limiter::new(still(), ONE);
    assert!(limiter.check("all").await.unwrap().is_allowed());
    let layer = RateLimitLayer::builder(limiter, Global)
        .respond_with(Arc::clone(&responder))
        .build();
    let response = send(&layer, request()).await;
    assert_eq!(response.body(), "429 Too Many Requests Some(60s)");
    assert_eq!(header(&response, "retry-after"), None);

    let permits = ConcurrencyLimiter::new(still(), Concurrency::new("permits", 1));
    let _permit = permits.try_acquire("all").await.unwrap();
    let layer = ConcurrencyLayer::builder(permits, Global)
        .respond_with(responder)
        .build();
    let Ok(response) = layer.layer(hello()).oneshot(request()).await;
    assert!(
        response.status() == StatusCode::OK && header(&response, "retry-after").is_some(),
        "{response:?}"
    );
}

#[tokio::test]
async fn a_source_finds_the_limiter_of_a_request_without_a_layer() {
    let (free, limited) = (Limiter::new(still(), TWO), Limiter::new(still(), ONE));
    let source = LimiterSource::from_fn(limited, move |parts| match parts.uri.path() {
        "/free" => Selection::from(free.clone()),
        "/exempt" => Selection::Exempt,
        _ => Selection::Default,
    });
    let name = async |path| {
        let (parts, ()) = http::Request::get(path).body(()).unwrap().into_parts();
        let found = source.limiter_for(&parts).unwrap().await.unwrap();
        found
            .into_limiter()
            .map(|limiter| limiter.name().to_owned())
    };
    assert_eq!(name("/free").await.as_deref(), Some("two"));
    assert_eq!(name("/").await.as_deref(), Some("one"));
    assert_eq!(name("/exempt").await, None);
}

#[test]
fn layers_and_services_give_their_parts_out() {
    let limiter = Limiter::new(still(), TWO);
    let mut service = RateLimitLayer::new(limiter.clone(), Global).layer("inner".to_owned());
    service.get_mut().push('!');
    assert_eq!(service.get_ref(), "inner!");
    assert_eq!(service.into_inner(), "inner!");
    let mut service = tollgate_tower::drain::DrainLayer::new().layer("inner".to_owned());
    service.get_mut().push('!');
    assert_eq!(service.get_ref(), "inner!");
    assert_eq!(service.into_inner(), "inner!");
    let _: &Empty = RateLimitLayer::builder(limiter, Global)
        .respond_with(Empty)
        .responder();
}

#[cfg(feature = "metrics")]
#[test]
fn the_metrics_of_each_layer_carry_its_labels() {
    use tollgate_tower::MetricLabels;

    use tollgate_tests::Series;

    let labels = |name: &'static str| MetricLabels::new(["layer"], [[name]], |_| Some(0));
    let series = Series::of(async {
        let limiter = Limiter::new(still(), ONE);
        assert!(limiter.check("acme").await.unwrap().is_allowed());
        let reserving = builder(limiter.clone()).metric_labels(labels("reserve"));
        waits(reserving.reserve(|_| [("one", 1_u64)]).build()).await;

        let permits = ConcurrencyLimiter::new(still(), Concurrency::new("permits", 1));
        let _permit = permits.try_acquire("acme").await.unwrap();
        let permits = ConcurrencyLayer::builder(permits, Header::new("x-api-key"));
        waits(permits.metric_labels(labels("permits")).build()).await;
    });
    for (reason, layer, count) in [("denied", "reserve", 30), ("no_permit", "permits", 30)] {
        assert_eq!(
            series.count(&format!(
                "tollgate_rejections_total reason={reason} layer={layer}"
            )),
            count,
            "{layer}"
        );
    }
}
