//! Requests that several limiters and keys decide together.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use http::StatusCode;
use serde_json::json;
use tollgate::{
    Cost, Enforcement, Error, ErrorKind, Key, Limiter, Outage, Policy, Priority, Quota,
    store::StoreFuture,
};
use tollgate_tower::{
    Decisions, JointCheck, JointDecision, LimiterSource, RateLimitLayer, TieredLimiters,
    key::Global,
};

use crate::{state::state, support::*};

/// Checks two limiters, the second one only when the first allows the request.
fn source(first: &Limiter, second: &Limiter) -> LimiterSource {
    let both = (first.clone(), second.clone());
    LimiterSource::from_decider(move |_, check| {
        let (first, second) = both.clone();
        Ok(StoreFuture::pending(async move {
            let key = || Key::new("all");
            let one = first.check(key()).cost(check.costs()).await?;
            if one.is_denied() {
                return Ok(Some(JointDecision::denied().with(first, key(), one)));
            }
            let two = second.check(key()).cost(check.costs()).await?;
            let joint = if two.is_denied() {
                JointDecision::denied().with(second, key(), two)
            } else {
                JointDecision::allowed()
                    .with(first, key(), one)
                    .with(second, key(), two)
            };
            Ok(Some(joint))
        }))
    })
}

/// Decides each request as the first one.
fn always(decision: Result<JointDecision, Error>) -> LimiterSource {
    LimiterSource::from_decider(move |_, _| Ok(StoreFuture::ready(decision.clone().map(Some))))
}

fn two_limiters() -> (Limiter, Limiter) {
    let store = still();
    (
        Limiter::new(store.clone(), TWO),
        Limiter::new(store, HOURLY),
    )
}

#[tokio::test]
async fn a_denial_of_no_units_waits_for_the_next_unit_of_the_limit_that_is_spent() {
    let limiter = Limiter::new(still(), [TWO, HOURLY]);
    spend(&limiter, "all", 2).await;
    let look = limiter.check("all").cost(Cost::ZERO).await.unwrap();
    let joint = JointDecision::denied().with(limiter, Key::new("all"), look);
    let response = send(&RateLimitLayer::new(always(Ok(joint)), Global), request()).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(header(&response, "retry-after"), Some("30"));
}

#[tokio::test]
async fn every_header_format_joins_the_decisions_as_stacked_layers_do() {
    for format in HEADER_FORMATS {
        let (first, second) = two_limiters();
        let joint = RateLimitLayer::builder(source(&first, &second), Global)
            .header_format(format)
            .build();
        let (first, second) = two_limiters();
        let inner = RateLimitLayer::builder(first, Global)
            .header_format(format)
            .build();
        let outer = RateLimitLayer::builder(second, Global)
            .header_format(format)
            .build();
        for _ in 0..2 {
            let found = send(&joint, request()).await;
            let expected = send(&(outer.clone(), inner.clone()), request()).await;
            assert_eq!(found.headers(), expected.headers(), "{format:?}");
        }
        assert_eq!(
            send(&joint, request()).await.status(),
            StatusCode::TOO_MANY_REQUESTS
        );
    }
}

/// Sends a request that has its turn at once, and one that leaves before its turn.
async fn leave_a_queue_early(layer: &RateLimitLayer<Global>) {
    assert_eq!(send(layer, request()).await.status(), StatusCode::OK);
    let second = tokio::time::timeout(Duration::from_secs(1), send(layer, request())).await;
    assert!(
        second.is_err(),
        "the turn of the second request is in a minute"
    );
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_tried_out_is_refunded_when_a_request_leaves_a_queue_early() {
    let queue = Policy::leaky_bucket("queue", Quota::per_minute(1).with_burst(3));
    let limiter = Limiter::new(tokio_clock_store(), queue);
    let tried = Limiter::new(tokio_clock_store(), HOURLY);
    let both = (limiter.clone(), tried.clone());
    let source = LimiterSource::from_decider(move |_, check| {
        let (limiter, tried) = both.clone();
        Ok(StoreFuture::pending(async move {
            let key = || Key::new("all");
            let one = limiter.check(key()).cost(check.costs()).await?;
            let two = tried.check(key()).cost(check.costs()).await?;
            let joint = JointDecision::allowed()
                .with(limiter, key(), one)
                .with_shadow(tried, key(), two);
            Ok(Some(joint))
        }))
    });
    let layer = RateLimitLayer::new(source, Global);
    leave_a_queue_early(&layer).await;
    assert_eq!(remaining(&limiter, "all", "queue").await, 2);
    assert_eq!(remaining(&tried, "all", "hourly").await, 2);
}

#[tokio::test]
async fn a_response_that_is_not_charged_refunds_all_limits_that_decided() {
    let (first, second) = two_limiters();
    let layer = RateLimitLayer::builder(source(&first, &second), Global)
        .charge_on(|_| false)
        .build();
    for _ in 0..5 {
        assert_eq!(send(&layer, request()).await.status(), StatusCode::OK);
    }
    assert_eq!(
        (
            remaining(&first, "all", "two").await,
            remaining(&second, "all", "hourly").await
        ),
        (2, 3)
    );
}

#[tokio::test]
async fn options_that_need_one_key_are_logged() {
    let (first, second) = two_limiters();
    let lines = logged("TOLLGATE-NO-KEY", async {
        let _ = RateLimitLayer::builder(source(&first, &second), Global)
            .wait(Duration::from_secs(1))
            .build();
        let _ = RateLimitLayer::builder(source(&first, &second), Global)
            .expose_decisions(true)
            .build();
        let ranked =
            RateLimitLayer::builder(source(&first, &second), Global).priority(|_| Priority::NORMAL);
        let _ = ranked.cost(|_| Cost::ONE).build();
    })
    .await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("wait"), "{lines:?}");
}

#[tokio::test]
async fn the_decisions_of_a_request_are_exposed_in_order() {
    let (first, second) = two_limiters();
    let layer = RateLimitLayer::builder(source(&first, &second), Global)
        .expose_decisions(true)
        .build();
    let response = send(&layer, request()).await;
    let decisions = response.extensions().get::<Decisions>().unwrap();
    let names: Vec<_> = decisions
        .iter()
        .map(|decision| decision.policies().iter().next().unwrap().name())
        .collect();
    assert_eq!(names, ["two", "hourly"]);
}

#[tokio::test]
async fn shadow_mode_lets_every_request_pass_without_headers() {
    let (first, second) = two_limiters();
    let layer = RateLimitLayer::builder(source(&first, &second), Global)
        .shadow(true)
        .build();
    for _ in 0..4 {
        let response = send(&layer, request()).await;
        assert_eq!(
            (response.status(), response.headers().len()),
            (StatusCode::OK, 0)
        );
    }
}

#[tokio::test]
async fn a_decider_stands_in_one_level_of_tiers_only() {
    let (first, second) = two_limiters();
    let tiers = TieredLimiters::<u8>::new(source(&first, &second));
    assert_eq!(
        send(&RateLimitLayer::new(tiers, Global), request())
            .await
            .status(),
        StatusCode::OK
    );
    let inner = TieredLimiters::<u8>::new(source(&first, &second));
    let nested = TieredLimiters::<u16>::new(inner);
    let response = send(&RateLimitLayer::new(nested, Global), request()).await;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
}

#[tokio::test]
async fn an_error_of_a_decider_is_answered_as_the_error_of_a_limiter() {
    for (kind, status) in [
        (ErrorKind::Unavailable, 503),
        (ErrorKind::CostExceedsBurst, 413),
        (ErrorKind::Config, 500),
    ] {
        let layer = RateLimitLayer::new(always(Err(Error::new(kind, "test"))), Global);
        assert_eq!(send(&layer, request()).await.status().as_u16(), status);
    }
}

#[tokio::test]
async fn a_decider_is_told_the_cost_the_priority_and_which_keys_are_enforced() {
    let enforcement = Enforcement::share(0);
    let told = Arc::new(Mutex::new(Vec::new()));
    let seen = told.clone();
    let source = LimiterSource::from_decider(move |_, check| {
        seen.lock().unwrap().push(check);
        Ok(StoreFuture::ready(Ok(Some(JointDecision::blocked(
            Key::new("all"),
        )))))
    });
    let layer = RateLimitLayer::builder(source, Global).enforcement(enforcement.clone());
    let layer = layer
        .cost(|_| Cost::new(7))
        .priority(|_| Priority::BACKGROUND)
        .build();
    assert_eq!(send(&layer, request()).await.status(), StatusCode::OK);
    enforcement.set(100).unwrap();
    let response = send(&layer, request()).await;
    assert_eq!(
        (response.status(), header(&response, "retry-after")),
        (StatusCode::TOO_MANY_REQUESTS, None)
    );
    assert_eq!(
        state(&layer.state_service(), "acme").await,
        (StatusCode::OK, json!({"resources": {}}))
    );
    let told = told.lock().unwrap();
    let facts = |check: &JointCheck| {
        (
            check.cost().units(),
            check.priority(),
            check.is_enforced(&Key::new("all")),
            check.is_look(),
        )
    };
    let (background, critical) = (Priority::BACKGROUND, Priority::CRITICAL);
    assert_eq!(
        told.iter().map(facts).collect::<Vec<_>>(),
        [
            (7, background, false, false),
            (7, background, true, false),
            (0, critical, true, true)
        ]
    );
    assert_eq!(
        (told[0].costs().cost_of("any"), told[0].costs().priority()),
        (Some(Cost::new(7)), background)
    );
}

#[tokio::test]
async fn a_caller_sees_the_state_of_all_limits_that_decide_together() {
    let (first, second) = two_limiters();
    let layer = RateLimitLayer::new(source(&first, &second), Global);
    assert_eq!(send(&layer, request()).await.status(), StatusCode::OK);
    let (status, document) = state(&layer.state_service(), "acme").await;
    let left = |name: &str| document["resources"][name]["remaining"].as_u64();
    assert_eq!(
        (status.as_u16(), left("two"), left("hourly")),
        (200, Some(1), Some(2)),
        "{document}"
    );

    let layer = RateLimitLayer::builder(source(&first, &second), Global)
        .enforcement(Enforcement::share(0))
        .build();
    assert_eq!(
        state(&layer.state_service(), "acme").await,
        (StatusCode::OK, json!({"resources": {}}))
    );
    let away = unavailable(Outage::Open);
    let layer = RateLimitLayer::new(source(&away, &second), Global);
    assert_eq!(
        state(&layer.state_service(), "acme").await.0,
        StatusCode::SERVICE_UNAVAILABLE
    );
}

#[tokio::test]
async fn a_client_that_is_never_served_gets_403_unless_the_limit_is_in_shadow() {
    for (share, status) in [(100, StatusCode::FORBIDDEN), (0, StatusCode::OK)] {
        let layer = RateLimitLayer::builder(
            always(Ok(JointDecision::forbidden(Key::new("all")))),
            Global,
        );
        let layer = layer.enforcement(Enforcement::share(share)).build();
        assert_eq!(send(&layer, request()).await.status(), status);
        assert_eq!(state(&layer.state_service(), "acme").await.0, status);
    }
}

#[cfg(feature = "metrics")]
#[test]
fn decisions_are_counted_by_their_policies_and_shadow_ones_as_such() {
    let series = tollgate_tests::Series::of(async {
        let store = still();
        let both = (
            Limiter::new(store.clone(), HOURLY),
            Limiter::new(store, ONE),
        );
        let source = LimiterSource::from_decider(move |_, check| {
            let (limiter, tried) = both.clone();
            Ok(StoreFuture::pending(async move {
                let key = || Key::new("all");
                let (one, two) = (
                    limiter.check(key()).await?,
                    tried.check(key()).cost(check.costs()).await?,
                );
                let joint = JointDecision::allowed()
                    .with(limiter, key(), one)
                    .with_shadow(tried, key(), two);
                Ok(Some(joint))
            }))
        });
        let layer = RateLimitLayer::new(source, Global);
        for left in ["2", "1"] {
            let response = send(&layer, request()).await;
            assert_eq!(
                header(&response, "ratelimit").unwrap(),
                format!(r#""hourly";r={left};t=3600"#)
            );
        }
    });
    series.assert_counts(
        "
        tollgate_decisions_total policy=hourly outcome=allowed 2
        tollgate_decisions_total policy=one outcome=allowed 1
        tollgate_decisions_total policy=one outcome=shadowed 1
        ",
    );
}
