//! The options of a layer do the same for a limiter that is looked up as for a fixed one.

use std::{convert::Infallible, time::Duration};

use http::{Request, Response, StatusCode};
use tokio::time::sleep;
use tollgate::{Cost, KeySecret, Limiter};
use tollgate_tower::{
    Decisions, LimiterSource, RateLimitLayer, RequestLimiter,
    key::{Global, Header},
};
use tower::{Layer, ServiceExt, service_fn};

use super::sources;
use crate::support::*;

/// Describes a response completely: status, headers in their order, body.
async fn describe(layer: &RateLimitLayer<Global>, accept: &str) -> String {
    let response = send(layer, request_with("accept", accept)).await;
    format!(
        "{:?} {:?} {}",
        response.status(),
        response.headers(),
        response.body()
    )
}

#[tokio::test(start_paused = true)]
async fn responses_are_those_of_a_fixed_limiter_in_every_format() {
    for format in HEADER_FORMATS {
        for policies in [vec![TWO], vec![TWO, HOURLY]] {
            let all = in_one_tenth(async || {
                let mut all = Vec::new();
                for (name, source) in sources(&still(), policies.clone()) {
                    let layer = RateLimitLayer::builder(source, Global)
                        .header_format(format)
                        .expose_headers(true)
                        .partition_key(KeySecret::new("32 bytes that nobody else knows."))
                        .build();
                    let mut responses = Vec::new();
                    for accept in ["*/*", "*/*", "application/json", "text/plain"] {
                        responses.push(describe(&layer, accept).await);
                    }
                    all.push((name, responses));
                }
                all
            })
            .await;
            // All sources share one store, so only the first one finds it fresh.
            let (first, fixed) = &all[0];
            assert_eq!(*first, "fixed");
            for (name, responses) in &all {
                assert_eq!(responses[2..], fixed[2..], "{name}, {format:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_outside_the_process_is_asked_after_the_look_up() {
    for (name, source) in sources(&Late(still()), TWO).into_iter().skip(4) {
        let layer = RateLimitLayer::new(source, Header::new("key"));
        for (key, expected) in [("a", 200), ("a", 200), ("a", 429), ("b", 200)] {
            let status = send(&layer, request_with("key", &format!("{name} {key}")))
                .await
                .status();
            assert_eq!(status, expected, "{name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_request_limiter_and_the_decisions_are_those_that_were_looked_up() {
    for at in 0..6 {
        let store = still();
        let (name, source) = sources(&store, HOURLY).into_iter().nth(at).unwrap();
        let layer = RateLimitLayer::builder(source, Global)
            .expose_request_limiter(None)
            .expose_decisions(true)
            .build();
        let service = layer.layer(service_fn(|request: Request<()>| async move {
            let limiter = request.extensions().get::<RequestLimiter>().unwrap();
            assert_eq!(limiter.limiter().unwrap().policies(), &HOURLY.into());
            let result = limiter.check(Cost::new(2)).await;
            assert!(limiter.admits(&result));
            let again = limiter.check(Cost::ONE).await;
            assert!(!limiter.admits(&again));
            Ok::<_, Infallible>(Response::new(String::new()))
        }));
        let Ok(response) = service.oneshot(request()).await;
        let decisions = response.extensions().get::<Decisions>().unwrap();
        assert_eq!(decisions.state("hourly").unwrap().remaining(), 2, "{name}");
        assert_eq!(
            remaining(&Limiter::new(store, HOURLY), "all", "hourly").await,
            0,
            "{name}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_own_limiter_of_the_request_limiter_stays_fixed() {
    for (name, source) in sources(&still(), HOURLY) {
        let own = Limiter::new(still(), TWO);
        let layer = RateLimitLayer::builder(source, Header::new("key"))
            .expose_request_limiter(Some(own))
            .build();
        let service = layer.layer(service_fn(|request: Request<()>| async move {
            let limiter = request.extensions().get::<RequestLimiter>().unwrap();
            Ok::<_, Infallible>(Response::new(
                limiter
                    .limiter()
                    .unwrap()
                    .policies()
                    .iter()
                    .next()
                    .unwrap()
                    .name()
                    .to_owned(),
            ))
        }));
        let Ok(response) = service.oneshot(request_with("key", name)).await;
        assert_eq!(response.body(), "two", "{name}");
        assert_eq!(
            header(&response, "ratelimit"),
            Some(r#""hourly";r=2;t=3600"#),
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_function_selects_the_default_by_none_and_no_limit_by_an_exemption() {
    use tollgate::limiter::Selection;
    let source = LimiterSource::from_fn(Limiter::new(still(), TWO), |parts| {
        match parts.headers.get("plan").map(|plan| plan.as_bytes()) {
            Some(b"hourly") => Selection::from(HOURLY),
            Some(b"staff") => Selection::Exempt,
            _ => Selection::Default,
        }
    });
    let layer = RateLimitLayer::new(source, Global);
    for (plan, expected) in [
        ("hourly", Some("\"hourly\"")),
        ("staff", None),
        ("", Some("\"two\"")),
    ] {
        let response = send(&layer, request_with("plan", plan)).await;
        let name = header(&response, "ratelimit").map(|value| value.split(';').next().unwrap());
        assert_eq!(name, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_ends_its_look_up_and_charges_nothing() {
    let store = still();
    let (_, source) = sources(&store, HOURLY).into_iter().next_back().unwrap();
    let service = RateLimitLayer::new(source, Global).layer(hello());
    let cancelled =
        tokio::time::timeout(Duration::from_millis(5), service.clone().oneshot(request())).await;
    assert!(cancelled.is_err());
    sleep(Duration::from_millis(20)).await;
    assert_eq!(
        remaining(&Limiter::new(store, HOURLY), "all", "hourly").await,
        3
    );
    assert_eq!(
        service.oneshot(request()).await.unwrap().status(),
        StatusCode::OK
    );
}
