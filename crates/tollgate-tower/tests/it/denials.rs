//! Responses to denials that differ in policies, formats or costs.

use std::{convert::Infallible, time::Duration};

use http::{Request, Response, StatusCode};
use tollgate::{
    Cost, Decision, Key, Limiter, MemoryStore, Policy, PolicySet, Quota, Store,
    store::{Check, CheckFuture, Clock, StoreFuture},
};
use tollgate_tower::{
    RateLimitLayer,
    key::{Global, Header},
    rejection::{Empty, Problem},
};
use tower::{Layer, Service};

use crate::support::*;

/// Returns requests for JSON, for text and for neither, and one with a cost of two.
fn requests() -> impl Iterator<Item = Request<()>> {
    let request = |accept, cost| {
        Request::builder()
            .header("accept", accept)
            .header("cost", cost)
            .body(())
            .unwrap()
    };
    [
        request("*/*", 1),
        request("text/html", 1),
        request("image/png", 1),
        request("*/*", 2),
    ]
    .into_iter()
}

/// Returns status, headers in their order, and body.
fn parts(response: &Response<String>) -> String {
    format!(
        "{:?} {:?} {:?}",
        response.status(),
        response.headers(),
        response.body()
    )
}

/// Returns the responses of a layer that has denied before and of a new one, in one tenth of a
/// second.
async fn both<L>(used: &L, new: impl Fn() -> L, at: usize) -> [Response<String>; 2]
where
    L: Layer<BoxedService>,
    L::Service: Service<Request<()>, Response = Response<String>, Error = Infallible>,
{
    let request = || requests().nth(at).unwrap();
    in_one_tenth(async || [send(used, request()).await, send(&new(), request()).await]).await
}

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

/// Compares the denials of layers that have denied before with those of new layers, at every step
/// of the clock.
async fn assert_denials_depend_on_the_state_alone(
    limiter: Limiter,
    clock: Clock,
    steps: u32,
    step: Duration,
) {
    let cost = |parts: &http::request::Parts| {
        Cost::new(parts.headers["cost"].to_str().unwrap().parse().unwrap())
    };
    for exposes in [false, true] {
        let problem = |format| {
            let builder = RateLimitLayer::builder(limiter.clone(), Global)
                .header_format(format)
                .cost(cost);
            builder.expose_headers(exposes).build()
        };
        let empty = |format| {
            let builder = RateLimitLayer::builder(limiter.clone(), Global)
                .header_format(format)
                .cost(cost);
            builder.respond_with(Empty).build()
        };
        let used: Vec<_> = HEADER_FORMATS
            .map(|format| (format, problem(format), empty(format)))
            .into();
        for _ in 0..steps {
            for (format, used_problem, used_empty) in &used {
                for at in 0..requests().count() {
                    let [old, new] = both(used_problem, || problem(*format), at).await;
                    assert_eq!(old.status(), 429);
                    assert_eq!(parts(&old), parts(&new), "{format:?}");
                    let [old, new] = both(used_empty, || empty(*format), at).await;
                    assert_eq!(parts(&old), parts(&new), "{format:?}");
                }
            }
            clock.advance(step);
        }
    }
}

#[tokio::test]
async fn a_denial_does_not_depend_on_earlier_denials() {
    let clock = Clock::manual(1_000_000_000);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let hourly = Policy::window_from_first_hit("hourly", Quota::per_hour(9));
    // The seconds of the two policies begin at different times.
    assert!(
        Limiter::new(store.clone(), hourly.clone())
            .check("all")
            .await
            .unwrap()
            .is_allowed()
    );
    clock.advance(Duration::from_millis(400));
    let limiter = Limiter::new(
        store,
        [TWO, hourly, Policy::sliding_log("log", Quota::per_day(3))],
    );
    // Leaves one unit of the log, so that a cost of two is denied by more than one policy.
    assert!(
        limiter
            .check("all")
            .cost(Cost::new(2))
            .await
            .unwrap()
            .is_allowed()
    );
    assert_denials_depend_on_the_state_alone(
        limiter.clone(),
        clock.clone(),
        9,
        Duration::from_millis(300),
    )
    .await;
    clock.advance(Duration::from_secs(120));
    assert!(limiter.check("all").await.unwrap().is_allowed());
    assert_denials_depend_on_the_state_alone(limiter, clock, 3, Duration::from_secs(600)).await;
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

/// Checks other policies than the limiter's for one key.
struct OtherPolicies(MemoryStore, PolicySet);

impl Store for OtherPolicies {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        let is_other = *check.key == Key::new("ann");
        self.0.check(Check::new(
            if is_other { &self.1 } else { check.policies },
            check.key,
            check.cost,
        ))
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        self.0.refund(check, decision)
    }

    fn reset(&self, check: Check<'_>) -> StoreFuture<()> {
        self.0.reset(check)
    }
}

#[tokio::test]
async fn a_denial_names_the_policies_that_the_store_has_checked() {
    let daily = |name| Policy::fixed_window(name, Quota::per_day(1));
    let limiter = Limiter::new(
        OtherPolicies(still(), daily("for-ann").into()),
        daily("for-all"),
    );
    let layer = RateLimitLayer::new(limiter, Header::new("user"));
    for (user, name) in [("bob", "for-all"), ("ann", "for-ann"), ("bob", "for-all")] {
        for _ in 0..4 {
            let response = send(&layer, request_with("user", user)).await;
            let violated = format!(r#""violated-policies":["{name}"]"#);
            assert!(
                response.status() == 200 || response.body().contains(&violated),
                "{user}: {}",
                response.body()
            );
        }
    }
}

#[tokio::test]
async fn each_layer_responds_with_its_own_policy() {
    for _ in 0..4 {
        for name in ["one", "other"] {
            let limiter = Limiter::new(still(), Policy::fixed_window(name, Quota::per_day(1)));
            let layer = RateLimitLayer::new(limiter, Global);
            for _ in 0..4 {
                let response = send(&layer, request()).await;
                assert!(
                    header(&response, "ratelimit")
                        .unwrap()
                        .starts_with(&format!("\"{name}\";")),
                    "{response:?}"
                );
            }
        }
    }
}
