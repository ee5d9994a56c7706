//! Fair shares in a layer: whose request it is.

use std::num::NonZeroU32;

use http::{Request, StatusCode};
use tollgate::{Cost, Costs, Customer, Limiter, Policy, Priority, Quota, store::Clock};
use tollgate_tower::{
    HandlerLimiter, LimiterSource, RateLimitLayer, RequestLimiter, TieredLimiters,
    key::{Global, Header},
};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::*;

fn fair() -> Limiter {
    Limiter::builder(still())
        .policies(Policy::token_bucket("service", Quota::per_second(1_000)))
        .outage_clock(Clock::manual(0))
        .fair_shares()
        .build()
}

fn of(customer: &'static str) -> Request<()> {
    request_with("x-api-key", customer)
}

/// Sends requests of a customer until one is denied. Returns how many passed.
async fn passed(layer: &RateLimitLayer<Global>, customer: &'static str) -> usize {
    let mut passed = 0;
    while send(layer, of(customer)).await.status() == StatusCode::OK {
        passed += 1;
        assert!(passed <= 1_000, "{customer}");
    }
    passed
}

#[tokio::test]
async fn a_heavy_customer_leaves_a_part_to_each_other_and_those_without_a_name_are_one() {
    let layer = || {
        RateLimitLayer::builder(fair(), Global)
            .customer(Header::new("x-api-key"))
            .build()
    };
    let shared = layer();
    assert_eq!(passed(&shared, "heavy").await, 880);
    assert!(passed(&shared, "light").await > 0);
    let shared = layer();
    let nobody = async || send(&shared, Request::new(())).await.status();
    while nobody().await == StatusCode::OK {}
    assert!(passed(&shared, "third").await > 0);
}

#[tokio::test]
async fn a_customer_of_a_greater_weight_gets_more() {
    let layer = RateLimitLayer::builder(fair(), Global)
        .weighted_customer(Header::new("x-api-key"), |parts| {
            let is_gold = parts.headers["x-api-key"] == "gold";
            NonZeroU32::new(if is_gold { 100 } else { 1 }).unwrap()
        })
        .build();
    let [mut plain, mut gold] = [0, 0];
    for _ in 0..1_000 {
        for (customer, passed) in [("plain", &mut plain), ("gold", &mut gold)] {
            let status = send(&layer, of(customer)).await.status();
            *passed += usize::from(status == StatusCode::OK);
        }
    }
    assert!(gold > plain * 5 / 4, "{gold} and {plain}");
}

#[tokio::test]
async fn in_shadow_mode_all_requests_pass_and_shares_are_counted_all_the_same() {
    let limiter = fair();
    let layer = RateLimitLayer::builder(limiter.clone(), Global)
        .customer(Header::new("x-api-key"))
        .shadow(true)
        .build();
    for _ in 0..1_000 {
        assert_eq!(send(&layer, of("heavy")).await.status(), StatusCode::OK);
    }
    // It was counted until it had its share.
    let left = limiter.peek("all").await.unwrap();
    let left = left.state("service").unwrap().remaining();
    assert!((100..990).contains(&left), "{left}");
    let enforced = RateLimitLayer::builder(limiter, Global)
        .customer(Header::new("x-api-key"))
        .build();
    assert_eq!(
        send(&enforced, of("heavy")).await.status(),
        StatusCode::TOO_MANY_REQUESTS
    );
    assert_eq!(send(&enforced, of("light")).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn what_a_service_charges_counts_for_the_customer_of_its_request() {
    let layer = RateLimitLayer::builder(fair(), Global)
        .customer(Header::new("x-api-key"))
        .expose_request_limiter(None)
        .build();
    let rows = service_fn(|request: Request<()>| async move {
        let rows = request.extensions().get::<RequestLimiter>().unwrap();
        let result = rows.check(Cost::new(100)).await;
        let passes = rows.admits(&result);
        Ok::<_, std::convert::Infallible>(http::Response::new(passes.to_string()))
    });
    let service = layer.layer(rows);
    let passes = async |customer| {
        let response = service.clone().oneshot(of(customer)).await.unwrap();
        (response.status() == StatusCode::OK).then(|| response.into_body())
    };
    let mut heavy = 0;
    while passes("heavy").await.as_deref() == Some("true") {
        heavy += 1;
    }
    assert_eq!(heavy, 8, "909 units are too many");
    assert_eq!(passes("light").await.as_deref(), Some("true"));
}

#[tokio::test]
async fn after_the_response_a_customer_is_charged_for_its_share() {
    let layer = RateLimitLayer::builder(fair(), Global)
        .customer(Header::new("x-api-key"))
        .cost(|_| Cost::new(10))
        .charge_after(|status| status.is_success())
        .build();
    let heavy = passed(&layer, "heavy").await;
    assert!((5..90).contains(&heavy), "{heavy}");
    assert!(passed(&layer, "light").await > 0);
}

#[test]
#[should_panic(expected = "a layer with customers needs limiters with fair shares")]
fn a_layer_with_customers_over_a_limiter_without_fair_shares_is_not_built() {
    let _ = RateLimitLayer::builder(Limiter::new(still(), ONE), Global)
        .customer(Header::new("x-api-key"))
        .build();
}

#[test]
#[should_panic(expected = "a layer with customers needs limiters with fair shares")]
fn a_tier_without_fair_shares_has_no_customers() {
    let tiers = TieredLimiters::new(fair()).tier(1_u8, Limiter::new(still(), ONE));
    let _ = RateLimitLayer::builder(tiers.by(|_| Some(1)), Global)
        .customer(Header::new("x-api-key"))
        .build();
}

#[tokio::test]
async fn a_limiter_that_is_looked_up_without_fair_shares_answers_500_and_not_without_a_customer() {
    let limits = || LimiterSource::from_fn(fair(), |_| Limiter::new(still(), ONE));
    let layer = RateLimitLayer::builder(limits(), Global)
        .customer(Header::new("x-api-key"))
        .build();
    let status = send(&layer, of("acme")).await.status();
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    let layer = RateLimitLayer::new(limits(), Global);
    assert_eq!(send(&layer, of("acme")).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn other_limiters_of_handlers_and_of_services_have_no_customers_where_they_have_no_shares() {
    let other = || Limiter::new(still(), TWO);
    let builder = || RateLimitLayer::builder(fair(), Global).customer(Header::new("x-api-key"));
    let layer = builder().expose_request_limiter(Some(other())).build();
    let service = layer.layer(service_fn(|request: Request<()>| async move {
        let rows = request.extensions().get::<RequestLimiter>().unwrap();
        let result = rows.check(Cost::ONE).await;
        Ok::<_, std::convert::Infallible>(http::Response::new(result.is_ok().to_string()))
    }));
    let response = service.oneshot(of("acme")).await.unwrap();
    assert_eq!(response.into_body(), "true");

    let handler: HandlerLimiter<String> = builder().build().handler_limiter(other());
    let (mut parts, ()) = of("acme").into_parts();
    assert!(handler.check(&mut parts, "all").await.is_ok());
    assert!(
        handler
            .check_costs(&mut parts, "all", Cost::ONE)
            .await
            .is_ok()
    );
    // Who names a customer by hand wants a share.
    let costs = Costs::new(Cost::ONE).with_customer(Customer::new("acme"));
    let Err(rejected) = handler.check_costs(&mut parts, "all", costs).await else {
        panic!("the limiter has no shares");
    };
    assert_eq!(rejected.status(), StatusCode::INTERNAL_SERVER_ERROR);
}

#[test]
#[should_panic(expected = "the requests of a layer have a priority or a customer, got both")]
fn a_layer_has_no_priorities_and_customers() {
    let _ = RateLimitLayer::builder(fair(), Global)
        .priority(|_| Priority::BACKGROUND)
        .customer(Header::new("x-api-key"));
}
