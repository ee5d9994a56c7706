//! The stores for tests of applications, in layers of axum and tower.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use axum::{
    Router, body::Body, extract::connect_info::MockConnectInfo, response::IntoResponse,
    routing::get,
};
use http::{Request, StatusCode, request::Parts};
use http_body_util::BodyExt;
use tollgate::{
    Cost, ErrorKind, Key, Limiter, Outage, Policy, Quota, Store,
    test_util::{Answer, FaultyStore, ScriptedStore},
};
use tollgate_tower::{
    Decisions, HandlerLimiter, RateLimitLayer, Rejected,
    key::{Global, PeerIp},
};
use tower::ServiceExt;

use crate::support::still;

const WAIT: Duration = Duration::from_secs(90);
const POLICIES: [Policy; 2] = [
    Policy::token_bucket("burst", Quota::per_second(5)),
    Policy::fixed_window("daily", Quota::per_day(100)),
];

fn app(store: impl Store) -> Router {
    let limiter = Limiter::new(store, POLICIES);
    let layer = RateLimitLayer::builder(limiter, PeerIp)
        .expose_decisions(true)
        .build();
    let degraded = |decisions: Decisions| async move {
        decisions
            .iter()
            .any(|decision| decision.is_degraded())
            .to_string()
    };
    Router::new()
        .route("/", get(degraded).layer(layer))
        .layer(MockConnectInfo(SocketAddr::from(([192, 0, 2, 7], 80))))
}

async fn send(app: &Router) -> (StatusCode, http::HeaderMap, String) {
    let response = app
        .clone()
        .oneshot(Request::get("/").body(Body::empty()).unwrap())
        .await
        .unwrap();
    let (parts, body) = response.into_parts();
    let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    (parts.status, parts.headers, body)
}

#[tokio::test]
async fn a_scripted_denial_reaches_every_field_of_the_response() {
    let store = ScriptedStore::new([Answer::deny(WAIT).by("daily"), Answer::allow()]);
    let app = app(store.clone());
    let (status, headers, body) = send(&app).await;
    assert_eq!(
        (status, &headers["retry-after"]),
        (StatusCode::TOO_MANY_REQUESTS, &"90".parse().unwrap())
    );
    assert_eq!(headers["ratelimit"], r#""burst";r=5, "daily";r=0;t=90"#);
    assert!(body.contains(r#""violated-policies":["daily"]"#), "{body}");

    let (status, headers, _) = send(&app).await;
    assert_eq!((status, headers.get("retry-after")), (StatusCode::OK, None));
    let checks = store.checks();
    assert_eq!(checks.len(), 2);
    assert_eq!(
        (checks[1].key(), checks[1].cost()),
        (&Key::from(IpAddr::from([192, 0, 2, 7])), Cost::ONE)
    );
}

#[tokio::test]
async fn an_outage_is_seen_by_the_handler_and_passes() {
    let store = FaultyStore::new(still());
    let app = app(store.clone());
    assert_eq!(send(&app).await.2, "false");
    store.fail_with(ErrorKind::ReadOnly);
    assert_eq!(send(&app).await.2, "true");
    store.recover();
    let (_, headers, degraded) = send(&app).await;
    assert_eq!(degraded, "false");
    assert!(
        headers["ratelimit"]
            .to_str()
            .unwrap()
            .contains(r#""daily";r=98"#),
        "the counts continue"
    );
}

#[tokio::test(start_paused = true)]
async fn a_waiting_layer_waits_as_the_script_says() {
    let limiter = Limiter::new(
        ScriptedStore::new([Answer::deny(WAIT), Answer::allow()]),
        POLICIES,
    );
    let layer = RateLimitLayer::builder(limiter, Global)
        .wait(2 * WAIT)
        .build();
    let start = tokio::time::Instant::now();
    assert_eq!(
        super::support::send(&layer, super::support::request())
            .await
            .status(),
        200
    );
    assert_eq!(start.elapsed(), WAIT);
}

#[tokio::test]
async fn a_handler_limiter_answers_from_the_script() {
    async fn mail(
        limiter: HandlerLimiter<Body>,
        mut request: Parts,
    ) -> Result<axum::response::Response, Rejected<Body>> {
        let admitted = limiter.check(&mut request, "ann@example.com").await?;
        Ok(admitted.complete("sent".into_response()))
    }
    let limits = Limiter::new(ScriptedStore::allow(), POLICIES);
    let store = ScriptedStore::new([
        Answer::allow(),
        Answer::deny(WAIT),
        Answer::fail(ErrorKind::Busy),
    ]);
    let mails = Limiter::builder(store.clone())
        .policies(POLICIES)
        .on_outage(Outage::Closed)
        .build();
    let limiter: HandlerLimiter<Body> = RateLimitLayer::new(limits, Global).handler_limiter(mails);
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let (parts, ()) = Request::new(()).into_parts();
        statuses.push(
            mail(limiter.clone(), parts)
                .await
                .map_or_else(|rejected| rejected.status(), |sent| sent.status()),
        );
    }
    assert_eq!(
        statuses.iter().map(StatusCode::as_u16).collect::<Vec<_>>(),
        [200, 429, 503]
    );
    assert_eq!(store.checks()[1].key(), &"ann@example.com".into());
}
