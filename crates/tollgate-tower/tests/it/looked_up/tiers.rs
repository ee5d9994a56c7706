//! Tiers whose limiters are looked up.

use http::StatusCode;
use tollgate::{Limiter, LimiterHandle, Policy, Quota, tenants::TenantLimiters};
use tollgate_tower::{LimiterSource, RateLimitLayer, TieredLimiters, key::Global};

use crate::support::*;

fn limiter(name: &'static str) -> Limiter {
    Limiter::new(still(), Policy::token_bucket(name, Quota::per_minute(9)))
}

/// Finds the tier in a header, for tests.
fn by_header(tiers: TieredLimiters<String>, name: &'static str) -> TieredLimiters<String> {
    tiers.by(move |parts| parts.headers.get(name)?.to_str().ok().map(str::to_owned))
}

async fn policy_of(
    layer: &RateLimitLayer<Global>,
    tier: &str,
    inner: &str,
) -> (StatusCode, Option<String>) {
    let mut request = request_with("tier", tier);
    request
        .headers_mut()
        .insert("inner", inner.parse().unwrap());
    let response = send(layer, request).await;
    let name = header(&response, "ratelimit-policy")
        .map(|value| value.split('"').nth(1).unwrap().to_owned());
    (response.status(), name)
}

#[tokio::test]
async fn a_tier_may_have_any_source() {
    let handle = LimiterHandle::new(limiter("before"));
    let tenants = TenantLimiters::new(limiter("default-of-tenants"), async |tenant: u64| {
        Policy::try_new(
            format!("tenant-{tenant}"),
            tollgate::Algorithm::TokenBucket,
            Quota::per_minute(9),
        )
    });
    let nested = by_header(
        TieredLimiters::strict().tier("a".to_owned(), limiter("nested-a")),
        "inner",
    );
    let tiers = TieredLimiters::new(limiter("default"))
        .tier("handle".to_owned(), handle.clone())
        .tier(
            "tenant".to_owned(),
            LimiterSource::by_tenant(tenants, |_| Some(7)),
        )
        .tier("fixed".to_owned(), limiter("fixed"))
        .tier("nested".to_owned(), nested)
        .exempt("staff".to_owned());
    let layer = RateLimitLayer::new(by_header(tiers, "tier"), Global);
    let ok = |name: &str| (StatusCode::OK, Some(name.to_owned()));
    assert_eq!(policy_of(&layer, "handle", "").await, ok("before"));
    handle.replace(limiter("after"));
    assert_eq!(policy_of(&layer, "handle", "").await, ok("after"));
    assert_eq!(policy_of(&layer, "tenant", "").await, ok("tenant-7"));
    assert_eq!(policy_of(&layer, "fixed", "").await, ok("fixed"));
    assert_eq!(policy_of(&layer, "nested", "a").await, ok("nested-a"));
    assert_eq!(
        policy_of(&layer, "nested", "b").await,
        (StatusCode::INTERNAL_SERVER_ERROR, None)
    );
    assert_eq!(policy_of(&layer, "unlisted", "").await, ok("default"));
    assert_eq!(policy_of(&layer, "staff", "").await, (StatusCode::OK, None));
}
