//! Requests that are limited by two keys side by side, and costs for each policy.

use http::{Request, StatusCode};
use tollgate::{Cost, Costs, Limiter, Policy, Quota};
use tollgate_tower::{
    KeyExtractor, RateLimitLayer,
    key::{Global, Header},
};

use crate::support::*;

const PER_USER: Policy = Policy::fixed_window("per-user", Quota::per_day(2));
const SERVICE: Policy = Policy::fixed_window("service", Quota::per_day(3)).at_branch(2);

fn request_of(user: &str) -> Request<()> {
    Request::builder().header("user", user).body(()).unwrap()
}

#[tokio::test]
async fn the_answers_name_the_policies_of_all_branches_and_those_that_deny() {
    let limiter = Limiter::new(still(), [PER_USER, SERVICE]);
    let layer = RateLimitLayer::new(limiter, Header::new("user").with_branch(Global));
    let allowed = send(&layer, request_of("ann")).await;
    assert_eq!(
        header(&allowed, "ratelimit-policy"),
        Some(r#""per-user";q=2;w=86400, "service";q=3;w=86400"#)
    );
    assert_eq!(
        send(&layer, request_of("ann")).await.status(),
        StatusCode::OK
    );
    for (user, violated) in [("ann", "per-user"), ("bob", ""), ("bob", "service")] {
        let response = send(&layer, request_of(user)).await;
        match violated {
            "" => assert_eq!(response.status(), StatusCode::OK),
            _ => {
                assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
                let body = response.body();
                assert!(
                    body.contains(&format!(r#""violated-policies":["{violated}"]"#)),
                    "{body}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_key_without_a_branch_is_500_because_the_service_is_set_up_wrongly() {
    let layer = RateLimitLayer::new(
        Limiter::new(still(), [PER_USER, SERVICE]),
        Header::new("user"),
    );
    let response = send(&layer, request_of("ann")).await;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert!(!response.body().contains("branch"), "{}", response.body());
}

fn tokens_limiter() -> Limiter {
    let quota = Quota::per_day(100);
    Limiter::new(
        still(),
        [
            Policy::fixed_window("requests", quota),
            Policy::fixed_window("tokens", quota),
        ],
    )
}

async fn left(limiter: &Limiter) -> [u64; 2] {
    [
        remaining(limiter, "all", "requests").await,
        remaining(limiter, "all", "tokens").await,
    ]
}

#[tokio::test]
async fn each_policy_is_charged_its_own_cost_or_none_is() {
    let limiter = tokens_limiter();
    let layer = RateLimitLayer::builder(limiter.clone(), Global)
        .costs(|_| [("requests", 1), ("tokens", 60)])
        .build();
    assert_eq!(
        send(&layer, request_of("ann")).await.status(),
        StatusCode::OK
    );
    assert_eq!(left(&limiter).await, [99, 40]);
    let denied = send(&layer, request_of("ann")).await;
    assert!(
        denied.body().contains(r#""violated-policies":["tokens"]"#),
        "{}",
        denied.body()
    );
    assert_eq!(left(&limiter).await, [99, 40]);
    for wrong in [
        Costs::from([("tokens", 1)]),
        Costs::new(Cost::ONE).with("token", 7_u64),
    ] {
        let layer = RateLimitLayer::builder(limiter.clone(), Global)
            .costs(move |_| wrong.clone())
            .build();
        assert_eq!(
            send(&layer, request_of("ann")).await.status(),
            StatusCode::INTERNAL_SERVER_ERROR
        );
    }
    let too_many = RateLimitLayer::builder(limiter.clone(), Global)
        .costs(|_| [("requests", 1), ("tokens", 101)]);
    assert_eq!(
        send(&too_many.build(), request_of("ann")).await.status(),
        StatusCode::PAYLOAD_TOO_LARGE
    );
    assert_eq!(left(&limiter).await, [99, 40]);
}

#[tokio::test]
async fn the_final_cost_of_each_policy_is_its_own() {
    let costs = |_: &http::request::Parts| [("requests", 1), ("tokens", 50)];
    let limiter = tokens_limiter();
    let layer = RateLimitLayer::builder(limiter.clone(), Global).costs(costs);
    let layer = layer.final_costs(|outcome, decision| {
        assert_eq!(outcome.status(), Some(StatusCode::OK));
        assert_eq!(
            decision
                .states()
                .map(|state| state.cost().units())
                .collect::<Vec<_>>(),
            [1, 50]
        );
        [("tokens", 7)]
    });
    let _ = send(&layer.build(), request_of("ann")).await;
    assert_eq!(
        left(&limiter).await,
        [99, 93],
        "a policy without a final cost keeps its charge"
    );
    // One final cost is the most that each policy keeps.
    let limiter = tokens_limiter();
    let layer = RateLimitLayer::builder(limiter.clone(), Global)
        .costs(costs)
        .final_cost(|_, charged| {
            assert_eq!(charged, Cost::new(50));
            Cost::new(20)
        });
    let _ = send(&layer.build(), request_of("ann")).await;
    assert_eq!(left(&limiter).await, [99, 80]);
    let limiter = tokens_limiter();
    let layer = RateLimitLayer::builder(limiter.clone(), Global)
        .costs(costs)
        .charge_on(|status| !status.is_success());
    let _ = send(&layer.build(), request_of("ann")).await;
    assert_eq!(left(&limiter).await, [100, 100]);
}

#[tokio::test]
async fn costs_are_charged_after_the_response() {
    for (is_charged, expected) in [(true, [99, 40]), (false, [100, 100])] {
        let limiter = tokens_limiter();
        let layer = RateLimitLayer::builder(limiter.clone(), Global)
            .costs(|_| [("requests", 1), ("tokens", 60)])
            .charge_after(move |_| is_charged)
            .build();
        assert_eq!(
            send(&layer, request_of("ann")).await.status(),
            StatusCode::OK
        );
        assert_eq!(left(&limiter).await, expected);
        let second = send(&layer, request_of("ann")).await.status();
        assert_eq!(
            second,
            if is_charged {
                StatusCode::TOO_MANY_REQUESTS
            } else {
                StatusCode::OK
            }
        );
        assert_eq!(left(&limiter).await, expected);
    }
}
