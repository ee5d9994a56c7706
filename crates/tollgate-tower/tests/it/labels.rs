//! What requests are called in the metrics and in the log, and what they spend on their way.

use std::convert::Infallible;

use http::{Request, Response, StatusCode};
use tollgate::{Cost, Limiter, Outage};
use tollgate_tower::{
    RateLimitLayer, RequestLimiter,
    key::{Global, Header},
};
use tower::{Layer, ServiceExt, service_fn};

use crate::{observability::logged, support::*};

fn of(path: &str) -> Request<()> {
    Request::post(path).body(()).unwrap()
}

#[tokio::test]
async fn a_denied_call_is_logged_with_its_names_which_are_cut() {
    let layer = RateLimitLayer::builder(Limiter::new(still(), TWO), Global)
        .rpc_name(|parts| parts.uri.path().strip_prefix('/')?.split_once('/'))
        .build();
    let lines = logged("message=denied", async {
        for path in ["/a.B/C", "/a.B/C", "/a.B/C", "/other", &format!("/a.B/{}", "c".repeat(1000))] {
            send(&layer, of(path)).await;
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
async fn a_call_that_is_refused_for_another_reason_is_logged_with_its_names() {
    let layer = |limiter, key| {
        RateLimitLayer::builder(limiter, key)
            .rpc_name(|parts| parts.uri.path().strip_prefix('/')?.split_once('/'))
            .cost(|_| Cost::new(3))
            .build()
    };
    let lines = logged("message=rejected", async {
        send(&layer(Limiter::new(still(), TWO), Header::new("x-api-key")), of("/a.B/C")).await;
        let request = || Request::post("/a.B/C").header("x-api-key", "acme").body(()).unwrap();
        send(&layer(Limiter::new(still(), TWO), Header::new("x-api-key")), request()).await;
    });
    let names = r#"rpc.service="a.B" rpc.method="C""#;
    let expected =
        ["missing_key", "cost_never_fits"].map(|reason| format!(r#"DEBUG message=rejected reason="{reason}" {names}"#));
    assert_eq!(lines.await, expected);
}

/// How many of `count` more units, asked for one by one, are admitted by the account of a request.
async fn admitted<L>(layer: &L, count: usize) -> usize
where
    L: Layer<tower::util::BoxCloneService<Request<()>, Response<String>, Infallible>>,
    L::Service: tower::Service<Request<()>, Response = Response<String>, Error = Infallible>,
{
    let service = service_fn(move |request: Request<()>| async move {
        let account = request.extensions().get::<RequestLimiter>().unwrap();
        let mut admitted = 0;
        for _ in 0..count {
            let answer = account.check(Cost::ONE).await;
            admitted += usize::from(account.admits(&answer));
        }
        Ok(Response::new(admitted.to_string()))
    });
    let service = tower::util::BoxCloneService::new(service);
    let Ok(response) = layer.layer(service).oneshot(of("/a.B/C")).await;
    assert_eq!(response.status(), StatusCode::OK);
    response.into_body().parse().unwrap()
}

#[tokio::test]
async fn an_account_spends_from_the_limiter_of_the_request_or_from_its_own() {
    let (requests, units) = (Limiter::new(still(), TWO), Limiter::new(still(), HOURLY));
    let same = RateLimitLayer::builder(requests.clone(), Global).expose_request_limiter(None).build();
    assert_eq!(admitted(&same, 5).await, 1);
    let own = RateLimitLayer::builder(Limiter::new(still(), TWO), Global).expose_request_limiter(Some(units)).build();
    assert_eq!(admitted(&own, 5).await, 3);
    let late = RateLimitLayer::builder(Limiter::new(Late(still()), TWO), Global).expose_request_limiter(None).build();
    assert_eq!(admitted(&late, 5).await, 1);
    let shadow =
        RateLimitLayer::builder(Limiter::new(still(), TWO), Global).shadow(true).expose_request_limiter(None).build();
    assert_eq!(admitted(&shadow, 5).await, 5);
    let closed = RateLimitLayer::builder(Limiter::new(still(), TWO), Global);
    let closed = closed.expose_request_limiter(Some(away(Outage::Closed))).build();
    assert_eq!(admitted(&closed, 5).await, 0);
}

#[tokio::test]
async fn nobody_has_an_account_unless_asked_for() {
    let layer = RateLimitLayer::new(Limiter::new(still(), TWO), Global);
    let service = service_fn(|request: Request<()>| async move {
        Ok::<_, Infallible>(Response::new(request.extensions().get::<RequestLimiter>().is_some().to_string()))
    });
    assert_eq!(layer.layer(service).oneshot(request()).await.unwrap().into_body(), "false");
}

#[cfg(feature = "metrics")]
mod counts {
    use metrics_util::debugging::DebugValue;
    use tollgate_tower::MetricLabels;

    use super::*;
    use crate::observability::counts::recorded;

    #[test]
    fn only_what_is_listed_is_a_label_whatever_paths_are_invented() {
        const PATHS: [&str; 2] = ["/search", "/export"];
        let labels = MetricLabels::new(["path"], PATHS.map(|path| [path]), |parts| {
            PATHS.iter().position(|path| *path == parts.uri.path())
        });
        let series = recorded(async {
            let layer = RateLimitLayer::builder(Limiter::new(still(), TWO), Global).metric_labels(labels).build();
            let service = layer.layer(hello());
            send(&layer, of("/search")).await;
            for number in 0..20_000 {
                let Ok(_) = service.clone().oneshot(of(&format!("/invented/{number}"))).await;
            }
            send(&layer, of("/export")).await;
        });
        let count = |name: &str| match series.get(name) {
            Some(DebugValue::Counter(count)) => *count,
            other => panic!("{name}: {other:?} in {:?}", series.keys()),
        };
        assert_eq!(count("tollgate_decisions_total policy=two outcome=allowed path=/search"), 1);
        assert_eq!(count("tollgate_decisions_total policy=two outcome=allowed path=other"), 1);
        assert_eq!(count("tollgate_decisions_total policy=two outcome=denied path=other"), 19_999);
        assert_eq!(count("tollgate_rejections_total reason=denied path=other"), 19_999);
        assert_eq!(count("tollgate_rejections_total reason=denied path=/export"), 1);
        // Three outcomes of three paths, two reasons, and the duration.
        assert_eq!(series.len(), 3 * 3 + 2 + 1, "{:?}", series.keys());
    }

    #[test]
    fn what_a_request_spends_on_its_way_is_counted_as_the_request_is() {
        let series = recorded(async {
            let layer =
                RateLimitLayer::builder(Limiter::new(still(), TWO), Global).expose_request_limiter(None).build();
            assert_eq!(admitted(&layer, 4).await, 1);
        });
        assert_eq!(series["tollgate_decisions_total policy=two outcome=allowed"], DebugValue::Counter(2));
        assert_eq!(series["tollgate_decisions_total policy=two outcome=denied"], DebugValue::Counter(3));
        assert_eq!(series["tollgate_rejections_total reason=denied"], DebugValue::Counter(3));
    }
}
