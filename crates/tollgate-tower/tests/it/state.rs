//! A caller's own state as JSON.

use std::time::{Duration, Instant};

use axum::{Router, body::Body, routing::get};
use http::{Method, Request, StatusCode, header};
use serde_json::{Value, json};
use tollgate::{
    Enforcement, Limiter, LimiterHandle, MemoryStore, Outage, Policy, PolicySet, Quota,
    limiter::Selection,
};
use tollgate_tower::{
    HeaderFormat, LimiterSource, RateLimitLayer, StateService,
    key::{Global, Header},
};
use tower::ServiceExt;

use crate::support::*;

const BURST: Policy = Policy::token_bucket("burst", Quota::per_minute(60).with_burst(4));

/// Asks for the state of a caller. Returns the status and the document.
pub(crate) async fn state(service: &StateService<Body>, api_key: &str) -> (StatusCode, Value) {
    let request = request_with("x-api-key", api_key);
    let response = service.clone().oneshot(request).await.unwrap();
    assert_eq!(response.headers()[header::CACHE_CONTROL], "no-store");
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), 10_000)
        .await
        .unwrap();
    (status, serde_json::from_slice(&body).unwrap())
}

fn layer(limiters: impl Into<LimiterSource>) -> RateLimitLayer<Header> {
    RateLimitLayer::new(limiters, Header::new("x-api-key"))
}

#[tokio::test]
async fn a_client_sees_what_is_left_and_spends_nothing() {
    let limiter = Limiter::new(
        still(),
        [BURST, Policy::fixed_window("day", Quota::per_day(1_000))],
    );
    let layer = layer(limiter.clone());
    let router = Router::new()
        .route("/", get(|| async { "hello" }))
        .route_layer(layer.clone())
        .route_service("/rate_limit", layer.state_service::<Body>());
    let address = serve(router).await;
    let client = reqwest::Client::new();
    let ask =
        |method: Method, path: &str| client.request(method, format!("http://{address}{path}"));
    for _ in 0..3 {
        let response = ask(Method::GET, "/")
            .header("x-api-key", "acme")
            .send()
            .await
            .unwrap();
        assert_eq!(response.status(), 200);
    }
    let now = second();
    for _ in 0..5 {
        let response = ask(Method::GET, "/rate_limit")
            .header("x-api-key", "acme")
            .send()
            .await
            .unwrap();
        assert_eq!(
            (
                response.status().as_u16(),
                &response.headers()["content-type"]
            ),
            (200, &"application/json".parse().unwrap())
        );
        let length: usize = response.headers()["content-length"]
            .to_str()
            .unwrap()
            .parse()
            .unwrap();
        let text = response.text().await.unwrap();
        assert_eq!(text.len(), length);
        let json: Value = serde_json::from_str(&text).unwrap();
        let burst = &json["resources"]["burst"];
        assert_eq!(
            (&burst["limit"], &burst["used"], &burst["remaining"]),
            (&json!(4), &json!(3), &json!(1))
        );
        let reset = burst["reset"].as_u64().unwrap();
        assert!((now..now + 100).contains(&reset), "{reset} {now}");
        assert_eq!(json["resources"]["day"]["remaining"], 997);
        // The least part is left of the burst.
        assert_eq!(&json["rate"], burst);
        assert_eq!(json.as_object().unwrap().len(), 2);
    }
    let head = ask(Method::HEAD, "/rate_limit")
        .header("x-api-key", "acme")
        .send()
        .await
        .unwrap();
    assert!(head.headers()["content-length"] != "0" && head.text().await.unwrap().is_empty());
    for (method, status) in [
        (Method::OPTIONS, 204),
        (Method::POST, 405),
        (Method::DELETE, 405),
    ] {
        let response = ask(method, "/rate_limit").send().await.unwrap();
        assert_eq!(
            (
                response.status().as_u16(),
                response.headers()["allow"].to_str().unwrap()
            ),
            (status, "GET, HEAD, OPTIONS")
        );
    }
    let without_key = ask(Method::GET, "/rate_limit").send().await.unwrap();
    assert_eq!(
        (
            without_key.status().as_u16(),
            &without_key.headers()["content-type"]
        ),
        (400, &"application/problem+json".parse().unwrap())
    );
    assert_eq!(remaining(&limiter, "acme", "burst").await, 1);
}

#[tokio::test]
async fn an_outage_is_503_also_where_the_layer_decides_in_process() {
    for outage in [Outage::Closed, Outage::Open, Outage::local(2)] {
        let (status, problem) = state(&layer(unavailable(outage)).state_service(), "acme").await;
        assert_eq!(
            (status.as_u16(), &problem["status"]),
            (503, &json!(503)),
            "{outage:?}"
        );
    }
}

#[tokio::test]
async fn a_key_with_too_few_levels_is_a_wrong_set_up_and_no_outage() {
    let layer = layer(Limiter::new(still(), TWO.at_level(2)));
    let (status, problem) = state(&layer.state_service(), "acme").await;
    assert_eq!((status.as_u16(), &problem["status"]), (500, &json!(500)));
}

#[tokio::test]
async fn a_caller_without_limits_has_no_resources() {
    let limiter = || Limiter::new(still(), ONE);
    let none = json!({"resources": {}});
    let exempt = RateLimitLayer::builder(limiter(), Header::new("x-api-key"))
        .exempt(|_| true)
        .build();
    let lifted = LimiterSource::from_fn(limiter(), |_| Selection::Exempt);
    let enforcement = Enforcement::share(0);
    let shadow = RateLimitLayer::builder(limiter(), Header::new("x-api-key"))
        .enforcement(enforcement.clone())
        .build();
    let services = [
        exempt.state_service(),
        layer(lifted).state_service(),
        shadow.state_service(),
    ];
    for service in &services {
        assert_eq!(state(service, "acme").await, (StatusCode::OK, none.clone()));
    }
    enforcement.set(100).unwrap();
    assert_eq!(
        state(&services[2], "acme").await.1["resources"]["one"]["remaining"],
        1
    );
}

#[tokio::test]
async fn limiters_that_are_looked_up_replaced_or_stacked_show_their_state() {
    let handle = LimiterHandle::new(Limiter::new(still(), ONE));
    let all = RateLimitLayer::new(Limiter::new(still(), TWO), Global);
    let service = layer(handle.clone()).state_service().and(&all);
    let (_, json) = state(&service, "acme").await;
    assert_eq!(
        (
            &json["resources"]["one"]["limit"],
            &json["resources"]["two"]["limit"]
        ),
        (&json!(1), &json!(2))
    );
    handle.replace_policies(PolicySet::from(
        ONE.with_quota(Quota::per_minute(9)).unwrap(),
    ));
    let (_, json) = state(&service, "acme").await;
    assert_eq!(json["resources"]["one"]["limit"], 9);
    // The first layer rejects the request for all.
    let response = service.clone().oneshot(Request::new(())).await.unwrap();
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);

    // Of two policies of one name, the one with fewer units left is shown.
    let (more, less) = (Limiter::new(still(), HOURLY), Limiter::new(still(), HOURLY));
    assert!(less.check("all").await.unwrap().is_allowed());
    for (first, second) in [(&more, &less), (&less, &more)] {
        let service = RateLimitLayer::new(first.clone(), Global).state_service();
        let service = service.and(&RateLimitLayer::new(second.clone(), Global));
        assert_eq!(
            state(&service, "acme").await.1["resources"]["hourly"]["remaining"],
            2
        );
    }
}

#[tokio::test]
async fn the_rate_is_that_of_the_limit_with_the_least_part_left() {
    let (day, minute) = (
        Policy::fixed_window("day", Quota::per_day(100)),
        Limiter::new(still(), BURST),
    );
    let day = Limiter::new(still(), day);
    assert!(minute.check("acme").await.unwrap().is_allowed());
    for (spent, limit) in [(20, 4), (70, 100)] {
        spend(&day, "acme", spent).await;
        let service = layer(minute.clone())
            .state_service()
            .and(&layer(day.clone()));
        assert_eq!(state(&service, "acme").await.1["rate"]["limit"], limit);
    }
}

#[tokio::test]
async fn a_lockout_shows_the_failures_left_and_its_end_and_a_blocked_caller_nothing() {
    let minute = Duration::from_secs(60);
    let limiter = Limiter::new(
        still(),
        Policy::lockout("log-in", Quota::per_hour(2), minute, minute),
    );
    let service = layer(limiter.clone()).state_service();
    for left in [1, 0] {
        let _ = limiter.check("acme").await.unwrap();
        assert_eq!(state(&service, "acme").await.1["rate"]["remaining"], left);
    }
    let before = second();
    let reset = state(&service, "acme").await.1["rate"]["reset"]
        .as_u64()
        .unwrap();
    let expected = before + 60..=second() + 61;
    assert!(expected.contains(&reset), "{reset} in {expected:?}");
    let blocked = layer(LimiterSource::from_fn(limiter, |_| Selection::Blocked)).state_service();
    let (_, json) = state(&blocked, "acme").await;
    assert_eq!(
        (&json["rate"]["limit"], &json["rate"]["remaining"]),
        (&json!(0), &json!(0))
    );
}

#[tokio::test]
async fn a_window_begins_and_ends_with_its_second_for_callers() {
    const HOUR: u64 = 3_600;
    let api_key = |limiter: Limiter| {
        RateLimitLayer::builder(limiter, Header::new("x-api-key"))
            .header_formats([HeaderFormat::GitHub, HeaderFormat::Anthropic])
            .build()
    };
    // The store reads its own clock before the header is written. A machine that stands still
    // between the two asks again.
    loop {
        let store = MemoryStore::new();
        let hourly = Policy::fixed_window("hourly", Quota::per_hour(9));
        let bucket = Policy::token_bucket("bucket", Quota::per_hour(1_000));
        let layer = api_key(Limiter::new(store, [hourly, bucket]));
        let before = Instant::now();
        let response = send(&layer, request_with("x-api-key", "acme")).await;
        let (_, document) = state(&layer.state_service(), "acme").await;
        if before.elapsed() > Duration::from_millis(500) {
            continue;
        }
        let reset: u64 = header(&response, "x-ratelimit-reset")
            .unwrap()
            .parse()
            .unwrap();
        let now = second();
        assert!(
            reset.is_multiple_of(HOUR) && (now..=now + HOUR).contains(&reset),
            "{reset}"
        );
        let at = header(&response, "anthropic-ratelimit-requests-reset").unwrap();
        assert!(at.ends_with(":00:00Z"), "{at}");
        let hourly = &document["resources"]["hourly"];
        assert_eq!(
            (&hourly["reset"], &hourly["start"]),
            (&json!(reset), &json!(reset - HOUR))
        );
        assert_eq!(document["resources"]["bucket"].get("start"), None);
        return;
    }
}

#[tokio::test]
async fn the_resets_of_a_store_with_another_clock_are_those_of_this_machine() {
    let layer = layer(Limiter::new(
        still(),
        Policy::fixed_window("day", Quota::per_day(9)),
    ));
    let now = second();
    let (_, document) = state(&layer.state_service(), "acme").await;
    let day = &document["resources"]["day"];
    // 1000 s of the day have passed on the clock of the store, and nothing is spent.
    assert!(day["reset"].as_u64().unwrap() >= now, "{day}");
    assert!(day["start"].as_u64().unwrap() >= now - 1_000, "{day}");
}
