//! Responses to denials: who is locked out, and which of several policies is named.

use std::time::Duration;

use http::StatusCode;
use tollgate::{Limiter, MemoryStore, Policy, PolicySet, Quota, store::Clock};
use tollgate_tower::{
    RateLimitLayer,
    key::{Global, Header},
    rejection::Problem,
};

use crate::support::*;

#[tokio::test]
async fn who_is_locked_out_gets_the_type_of_abnormal_usage() {
    const ABNORMAL: &str = r##"{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected","title":"Abnormal usage detected","status":429,"detail":"Policy login: try again in 60 s.","violated-policies":["login"]}"##;
    let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3_600));
    let lockout = || Policy::lockout("login", Quota::per_hour(1), minute, hour);
    let day = Policy::fixed_window("day", Quota::per_day(50));
    let denial = async |policies: PolicySet, responder: Problem, accept: &str| {
        let limiter = Limiter::new(still(), policies);
        let layer = RateLimitLayer::builder(limiter, Global)
            .respond_with(responder)
            .build();
        while send(&layer, request_with("accept", accept)).await.status() == StatusCode::OK {}
        let denied = send(&layer, request_with("accept", accept)).await;
        assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
        denied.into_body()
    };
    let of = async |policies| denial(policies, Problem::new(), "*/*").await;
    assert_eq!(of([lockout(), day.clone()].into()).await, ABNORMAL);
    // The quota of a policy that locks nobody out is exceeded, and so is one that nobody may see.
    for others in [
        PolicySet::from([day.clone(), TWO]),
        lockout().hidden().into(),
    ] {
        assert!(of(others).await.contains("#quota-exceeded"));
    }
    let text = denial(lockout().into(), Problem::new(), "text/html").await;
    assert_eq!(
        text,
        "Abnormal usage detected. Policy login: try again in 60 s.\n"
    );
    let own = denial(lockout().into(), Problem::types_at("/problems"), "*/*").await;
    assert!(
        own.starts_with(r##"{"type":"/problems#abnormal-usage-detected","##),
        "{own}"
    );
}

#[tokio::test]
async fn the_problem_document_names_the_strictest_policy_of_several() {
    // Both policies deny for the same number of whole seconds. They differ by 100 ms.
    let clock = Clock::manual(0);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let [a, b] = ["a", "b"]
        .map(|name| Policy::token_bucket(name, Quota::new(1, Duration::from_millis(9_500))));
    let limiter = Limiter::new(store.clone(), [a.clone(), b.clone()]);
    let layer = RateLimitLayer::new(limiter, Header::new("user"));
    for (user, first, second) in [("ann", &a, &b), ("bob", &b, &a)] {
        for policy in [first, second] {
            let single = Limiter::new(store.clone(), policy.clone());
            assert!(single.check(user).await.unwrap().is_allowed());
            clock.advance(Duration::from_millis(100));
        }
        for _ in 0..3 {
            let response = send(&layer, request_with("user", user)).await;
            assert!(
                response
                    .body()
                    .contains(&format!("Policy {}:", second.name())),
                "{user}: {}",
                response.body()
            );
        }
    }
}
