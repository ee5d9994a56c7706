//! Limiters that are selected by the tier of a request.

use http::{Request, StatusCode};
use tollgate::{Limiter, Policy, Quota};
use tollgate_tower::{RateLimitLayer, TieredLimiters, key::Global};

use crate::support::*;

#[derive(Clone, PartialEq, Eq, Hash)]
enum Plan {
    Free,
    Pro,
    Staff,
    Unlisted,
}

fn limiter(name: &'static str) -> Limiter {
    Limiter::new(still(), Policy::token_bucket(name, Quota::per_minute(1)))
}

fn tiers() -> TieredLimiters<Plan> {
    TieredLimiters::strict()
        .tier(Plan::Free, limiter("free"))
        .tier(Plan::Pro, limiter("pro"))
        .exempt(Plan::Staff)
}

/// Sends a request of a plan. Returns the status and `RateLimit-Policy`.
async fn policy_of(
    layer: &RateLimitLayer<Global>,
    plan: Option<Plan>,
) -> (StatusCode, Option<String>) {
    let mut request = Request::new(());
    plan.and_then(|plan| request.extensions_mut().insert(plan));
    let response = send(layer, request).await;
    (
        response.status(),
        header(&response, "ratelimit-policy").map(str::to_owned),
    )
}

#[tokio::test]
async fn each_tier_has_its_own_policies_and_counters() {
    let layer = RateLimitLayer::new(tiers(), Global);
    let free = Some(r#""free";q=1;w=60"#.to_owned());
    let pro = Some(r#""pro";q=1;w=60"#.to_owned());
    assert_eq!(
        policy_of(&layer, Some(Plan::Free)).await,
        (StatusCode::OK, free.clone())
    );
    assert_eq!(
        policy_of(&layer, Some(Plan::Free)).await,
        (StatusCode::TOO_MANY_REQUESTS, free)
    );
    assert_eq!(
        policy_of(&layer, Some(Plan::Pro)).await,
        (StatusCode::OK, pro.clone())
    );
    assert_eq!(
        policy_of(&layer, Some(Plan::Pro)).await,
        (StatusCode::TOO_MANY_REQUESTS, pro)
    );
    for _ in 0..3 {
        assert_eq!(
            policy_of(&layer, Some(Plan::Staff)).await,
            (StatusCode::OK, None)
        );
    }
}

#[tokio::test]
async fn strict_tiers_answer_a_missing_or_unlisted_tier_with_500() {
    let layer = RateLimitLayer::new(tiers(), Global);
    assert_eq!(
        policy_of(&layer, None).await,
        (StatusCode::INTERNAL_SERVER_ERROR, None)
    );
    assert_eq!(
        policy_of(&layer, Some(Plan::Unlisted)).await,
        (StatusCode::INTERNAL_SERVER_ERROR, None)
    );
}

#[tokio::test]
async fn a_missing_or_unlisted_tier_has_the_default_limiter() {
    let layer = RateLimitLayer::new(
        TieredLimiters::new(limiter("default")).tier(Plan::Pro, limiter("pro")),
        Global,
    );
    let default = Some(r#""default";q=1;w=60"#.to_owned());
    assert_eq!(
        policy_of(&layer, None).await,
        (StatusCode::OK, default.clone())
    );
    assert_eq!(
        policy_of(&layer, Some(Plan::Unlisted)).await,
        (StatusCode::TOO_MANY_REQUESTS, default)
    );
    assert_eq!(policy_of(&layer, Some(Plan::Pro)).await.0, StatusCode::OK);
}
