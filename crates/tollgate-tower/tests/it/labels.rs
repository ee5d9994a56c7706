//! Names of requests in the log and in the metrics, and the request limiter.

use std::convert::Infallible;

use http::{Request, Response, StatusCode};
use tollgate::{Cost, Limiter, Outage};
use tollgate_tower::{
    RateLimitLayer, RequestLimiter,
    key::{Global, Header},
};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::*;

fn post(path: &str) -> Request<()> {
    Request::post(path).body(()).unwrap()
}

#[tokio::test]
async fn a_denial_is_logged_with_the_truncated_names_of_the_call() {
    let layer = RateLimitLayer::builder(Limiter::new(still(), TWO), Global)
        .rpc_name(|parts| parts.uri.path().strip_prefix('/')?.split_once('/'))
        .build();
    let lines = logged("message=denied", async {
        for path in [
            "/a.B/C",
            "/a.B/C",
            "/a.B/C",
            "/other",
            &format!("/a.B/{}", "c".repeat(1000)),
        ] {
            send(&layer, post(path)).await;
        }
    });
    let denied = r#"DEBUG message=denied policy="two" shadow=false"#;
    let cut = "c".repeat(128);
    let expected = [
        format!(r#"{denied} rpc.service="a.B" rpc.method="C""#),
        denied.to_owned(),
        format!(r#"{denied} rpc.service="a.B" rpc.method="{cut}""#),
    ];
    assert_eq!(lines.await, expected);
}

#[tokio::test]
async fn every_rejection_is_logged_with_the_names_of_the_call() {
    let layer = |limiter, key| {
        RateLimitLayer::builder(limiter, key)
            .rpc_name(|parts| parts.uri.path().strip_prefix('/')?.split_once('/'))
            .cost(|_| Cost::new(3))
            .build()
    };
    let lines = logged("message=rejected", async {
        send(
            &layer(Limiter::new(still(), TWO), Header::new("x-api-key")),
            post("/a.B/C"),
        )
        .await;
        let request = || {
            Request::post("/a.B/C")
                .header("x-api-key", "acme")
                .body(())
                .unwrap()
        };
        send(
            &layer(Limiter::new(still(), TWO), Header::new("x-api-key")),
            request(),
        )
        .await;
    });
    let names = r#"rpc.service="a.B" rpc.method="C""#;
    let expected = ["missing_key", "cost_never_fits"]
        .map(|reason| format!(r#"DEBUG message=rejected reason="{reason}" {names}"#));
    assert_eq!(lines.await, expected);
}

/// Charges `count` further units for one request, one by one. Returns how many the request limiter
/// admits.
async fn admitted<L>(layer: &L, count: usize) -> usize
where
    L: Layer<BoxedService>,
    L::Service: tower::Service<Request<()>, Response = Response<String>, Error = Infallible>,
{
    let service = service_fn(move |request: Request<()>| async move {
        let limiter = request.extensions().get::<RequestLimiter>().unwrap();
        let mut admitted = 0;
        for _ in 0..count {
            let result = limiter.check(Cost::ONE).await;
            admitted += usize::from(limiter.admits(&result));
        }
        Ok(Response::new(admitted.to_string()))
    });
    let Ok(response) = layer
        .layer(BoxedService::new(service))
        .oneshot(post("/a.B/C"))
        .await;
    assert_eq!(response.status(), StatusCode::OK);
    response.into_body().parse().unwrap()
}

#[tokio::test]
async fn a_request_limiter_charges_the_limiter_of_the_request_or_its_own() {
    let (requests, units) = (Limiter::new(still(), TWO), Limiter::new(still(), HOURLY));
    let same = RateLimitLayer::builder(requests.clone(), Global)
        .expose_request_limiter(None)
        .build();
    assert_eq!(admitted(&same, 5).await, 1);
    let own = RateLimitLayer::builder(Limiter::new(still(), TWO), Global)
        .expose_request_limiter(Some(units))
        .build();
    assert_eq!(admitted(&own, 5).await, 3);
    let late = RateLimitLayer::builder(Limiter::new(Late(still()), TWO), Global)
        .expose_request_limiter(None)
        .build();
    assert_eq!(admitted(&late, 5).await, 1);
    let shadow = RateLimitLayer::builder(Limiter::new(still(), TWO), Global)
        .shadow(true)
        .expose_request_limiter(None)
        .build();
    assert_eq!(admitted(&shadow, 5).await, 5);
    let closed = RateLimitLayer::builder(Limiter::new(still(), TWO), Global);
    let closed = closed
        .expose_request_limiter(Some(unavailable(Outage::Closed)))
        .build();
    assert_eq!(admitted(&closed, 5).await, 0);
}

#[tokio::test]
async fn there_is_no_request_limiter_by_default() {
    let layer = RateLimitLayer::new(Limiter::new(still(), TWO), Global);
    let service = service_fn(|request: Request<()>| async move {
        Ok::<_, Infallible>(Response::new(
            request
                .extensions()
                .get::<RequestLimiter>()
                .is_some()
                .to_string(),
        ))
    });
    assert_eq!(
        layer
            .layer(service)
            .oneshot(request())
            .await
            .unwrap()
            .into_body(),
        "false"
    );
}

#[cfg(feature = "metrics")]
mod counts {
    use tollgate_tower::MetricLabels;

    use super::*;
    use tollgate_tests::Series;

    #[test]
    fn invented_paths_create_no_label_values() {
        const PATHS: [&str; 2] = ["/search", "/export"];
        let labels = MetricLabels::new(["path"], PATHS.map(|path| [path]), |parts| {
            let path = parts.uri.path();
            let found = PATHS.iter().position(|other| *other == path);
            // The place of no value is as no place.
            found.or_else(|| path.ends_with('7').then_some(usize::MAX))
        });
        let series = Series::of(async {
            let layer = RateLimitLayer::builder(Limiter::new(still(), TWO), Global)
                .metric_labels(labels)
                .build();
            let service = layer.layer(hello());
            send(&layer, post("/search")).await;
            for number in 0..20_000 {
                let Ok(_) = service
                    .clone()
                    .oneshot(post(&format!("/invented/{number}")))
                    .await;
            }
            send(&layer, post("/export")).await;
        });
        series.assert_counts(
            "
            tollgate_decisions_total policy=two outcome=allowed path=/search 1
            tollgate_decisions_total policy=two outcome=allowed path=other 1
            tollgate_decisions_total policy=two outcome=denied path=other 19999
            tollgate_rejections_total reason=denied path=other 19999
            tollgate_rejections_total reason=denied path=/export 1
            ",
        );
        // Three outcomes for each of three paths, and two reasons. Of the limiter, three outcomes
        // and one policy.
        assert_eq!(series.0.len(), 3 * 3 + 2 + 4, "{:?}", series.0.keys());
    }

    #[test]
    fn shadow_mode_counts_no_rejection() {
        let series = Series::of(async {
            let builder =
                || RateLimitLayer::builder(Limiter::new(still(), TWO), Global).shadow(true);
            let layer = builder().expose_request_limiter(None).build();
            assert_eq!(admitted(&layer, 4).await, 4);
            let closed = builder()
                .expose_request_limiter(Some(unavailable(Outage::Closed)))
                .build();
            assert_eq!(admitted(&closed, 4).await, 4);
            statuses(&builder().build(), 4).await;
            statuses(
                &RateLimitLayer::builder(unavailable(Outage::Closed), Global)
                    .shadow(true)
                    .build(),
                4,
            )
            .await;
            let keyless =
                RateLimitLayer::builder(Limiter::new(still(), TWO), Header::new("x-api-key"));
            statuses(&keyless.shadow(true).build(), 4).await;
        });
        series.assert_counts(
            "
            tollgate_decisions_total policy=two outcome=shadowed 5
            tollgate_decisions_total policy=two outcome=denied 0
            ",
        );
        let rejections = series
            .0
            .keys()
            .filter(|name| name.contains("tollgate_rejections_total"));
        assert_eq!(rejections.count(), 0, "{:?}", series.0.keys());
    }

    #[test]
    fn the_checks_of_a_request_limiter_are_counted() {
        let series = Series::of(async {
            let layer = RateLimitLayer::builder(Limiter::new(still(), TWO), Global)
                .expose_request_limiter(None)
                .build();
            assert_eq!(admitted(&layer, 4).await, 1);
        });
        series.assert_counts(
            "
            tollgate_decisions_total policy=two outcome=allowed 2
            tollgate_decisions_total policy=two outcome=denied 3
            tollgate_rejections_total reason=denied 3
            tollgate_checks_total limiter=two outcome=allowed 2
            tollgate_checks_total limiter=two outcome=denied 3
            ",
        );
    }
}
