//! Who is denied again and again: an answer that was given before is what would be written anew.

use std::time::Duration;

use http::{Request, Response};
use tollgate::{
    Check, CheckFuture, Clock, Cost, Decision, Key, Limiter, MemoryStore, Policy, PolicySet, Quota, Store, StoreFuture,
};
use tollgate_tower::{
    RateLimitLayer,
    key::{Global, Header},
    rejection::Empty,
};

use crate::support::*;

/// What different clients ask: for JSON, for text, for neither, and with a cost of two.
fn requests() -> impl Iterator<Item = Request<()>> {
    let asking = |accept, cost| Request::builder().header("accept", accept).header("cost", cost).body(()).unwrap();
    [asking("*/*", 1), asking("text/html", 1), asking("image/png", 1), asking("*/*", 2)].into_iter()
}

/// All that stands in an answer, in its order.
fn whole(response: &Response<String>) -> String {
    format!("{:?} {:?} {:?}", response.status(), response.headers(), response.body())
}

/// Whether layers that have answered before say at every moment what one says that has just been made.
async fn answers_like_new(limiter: Limiter, clock: Clock, steps: u32, step: Duration) {
    let cost = |parts: &http::request::Parts| Cost::new(parts.headers["cost"].to_str().unwrap().parse().unwrap());
    for exposes in [false, true] {
        let problem = |dialect| {
            let builder = RateLimitLayer::builder(limiter.clone(), Global).header_format(dialect).cost(cost);
            builder.expose_headers(exposes).build()
        };
        let empty = |dialect| {
            let builder = RateLimitLayer::builder(limiter.clone(), Global).header_format(dialect).cost(cost);
            builder.respond_with(Empty).build()
        };
        let seasoned: Vec<_> = HEADER_FORMATS.map(|dialect| (dialect, problem(dialect), empty(dialect))).into();
        for _ in 0..steps {
            for (dialect, seasoned, seasoned_empty) in &seasoned {
                for _ in 0..3 {
                    for (asked, again) in requests().zip(requests()) {
                        let (old, new) = (send(seasoned, asked).await, send(&problem(*dialect), again).await);
                        assert_eq!(old.status(), 429);
                        assert_eq!(whole(&old), whole(&new), "{dialect:?}");
                    }
                    for (asked, again) in requests().zip(requests()) {
                        let (old, new) = (send(seasoned_empty, asked).await, send(&empty(*dialect), again).await);
                        assert_eq!(whole(&old), whole(&new), "{dialect:?}");
                    }
                }
            }
            clock.advance(step);
        }
    }
}

#[tokio::test]
async fn what_was_said_before_is_said_as_if_anew() {
    let clock = Clock::manual(1_000_000_000);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let hourly = Policy::window_from_first_hit("hourly", Quota::per_hour(9));
    // Their seconds do not begin at the same moment.
    assert!(Limiter::new(store.clone(), hourly.clone()).check("all").await.unwrap().is_allowed());
    clock.advance(Duration::from_millis(400));
    let limiter = Limiter::new(store, [TWO, hourly, Policy::sliding_log("log", Quota::per_day(3))]);
    // Not all at once: the second is denied by more than one.
    assert!(limiter.check_cost("all", Cost::new(2)).await.unwrap().is_allowed());
    answers_like_new(limiter.clone(), clock.clone(), 9, Duration::from_millis(300)).await;
    clock.advance(Duration::from_secs(120));
    assert!(limiter.check("all").await.unwrap().is_allowed());
    answers_like_new(limiter, clock, 3, Duration::from_secs(600)).await;
}

#[tokio::test]
async fn the_policy_that_binds_is_named_when_another_denies_too() {
    // Both deny, for as many seconds; which of the two is the last to let pass is a matter of microseconds.
    let clock = Clock::manual(0);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let [a, b] = ["a", "b"].map(|name| Policy::token_bucket(name, Quota::new(1, Duration::from_millis(9_500))));
    let limiter = Limiter::new(store.clone(), [a.clone(), b.clone()]);
    let layer = RateLimitLayer::new(limiter, Header::new("who"));
    let as_whom = |who| Request::builder().header("who", who).body(()).unwrap();
    for (who, first, second) in [("ann", &a, &b), ("bob", &b, &a)] {
        for policy in [first, second] {
            let alone = Limiter::new(store.clone(), policy.clone());
            assert!(alone.check(who).await.unwrap().is_allowed());
            clock.advance(Duration::from_millis(100));
        }
        for _ in 0..3 {
            let answer = send(&layer, as_whom(who)).await;
            assert!(answer.body().contains(&format!("Policy {}:", second.name())), "{who}: {}", answer.body());
        }
    }
}

/// Asks other policies than it is told for some keys.
struct Other(MemoryStore, PolicySet);

impl Store for Other {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        let is_other = *check.key == Key::new("ann");
        self.0.check(Check::new(if is_other { &self.1 } else { check.policies }, check.key, check.cost))
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        self.0.refund(check, decision)
    }

    fn reset(&self, policies: &PolicySet, key: &Key) -> StoreFuture<()> {
        self.0.reset(policies, key)
    }
}

#[tokio::test]
async fn a_store_that_asks_other_policies_is_answered_with_those() {
    let daily = |name| Policy::fixed_window(name, Quota::per_day(1));
    let limiter = Limiter::new(Other(still(), daily("for-ann").into()), daily("for-all"));
    let layer = RateLimitLayer::new(limiter, Header::new("who"));
    for (who, name) in [("bob", "for-all"), ("ann", "for-ann"), ("bob", "for-all")] {
        for _ in 0..4 {
            let answer = send(&layer, Request::builder().header("who", who).body(()).unwrap()).await;
            let violated = format!(r#""violated-policies":["{name}"]"#);
            assert!(answer.status() == 200 || answer.body().contains(&violated), "{who}: {}", answer.body());
        }
    }
}

#[tokio::test]
async fn one_limit_does_not_answer_for_another() {
    for _ in 0..4 {
        for name in ["one", "other"] {
            let limiter = Limiter::new(still(), Policy::fixed_window(name, Quota::per_day(1)));
            let layer = RateLimitLayer::new(limiter, Global);
            for _ in 0..4 {
                let answer = send(&layer, request()).await;
                assert!(field(&answer, "ratelimit").unwrap().starts_with(&format!("\"{name}\";")), "{answer:?}");
            }
        }
    }
}
