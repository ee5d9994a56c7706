//! Units that come back after a response, while other requests are under way: below the limit
//! nobody is denied.
//!
//! A unit takes half a minute to accrue, so a machine that stands still for ten seconds costs a
//! third of a unit for each request that is under way.

use std::{convert::Infallible, time::Duration};

use http::{Request, Response, StatusCode};
use tokio::{task::JoinSet, time::sleep};
use tollgate::{Lease, Limiter, MemoryStore, Policy, Quota, RedisStore, store::Clock};
use tollgate_test_support::{Deployment, Kind, START_US, decided_at, patient_limiter, remaining};
use tollgate_tests::RedisServer;
use tollgate_tower::{RateLimitLayer, key::Global};
use tower::{Layer, ServiceExt, service_fn};

const REQUESTS: usize = 240;

/// How long a request works.
const WORK: Duration = Duration::from_millis(4);

/// Returns a limit that so many callers do not reach at once: alone, beside another one, and
/// leased.
fn limits(callers: usize) -> [Vec<Policy>; 3] {
    let logins = Policy::token_bucket(
        "logins",
        Quota::per_hour(120).with_burst(callers as u64 + 90),
    );
    let day = Policy::token_bucket("day", Quota::per_day(2_000));
    [
        vec![logins.clone()],
        vec![logins.clone(), day],
        vec![logins.leased(Lease::new())],
    ]
}

/// Lets callers send requests one after the other. Returns how many requests were denied.
async fn denied<F>(callers: usize, request: impl Fn() -> F + Clone + Send + 'static) -> usize
where
    F: Future<Output = bool> + Send + 'static,
{
    let mut crowd = JoinSet::new();
    for _ in 0..callers {
        let request = request.clone();
        crowd.spawn(async move {
            let mut denied = 0;
            for _ in 0..REQUESTS.div_ceil(callers) {
                denied += usize::from(!request().await);
            }
            denied
        });
    }
    crowd.join_all().await.into_iter().sum()
}

/// Checks, works, and returns the unit. Returns whether the check was admitted.
async fn check_and_refund(limiter: Limiter) -> bool {
    let decision = limiter.check("check").await.expect("a decision");
    sleep(WORK).await;
    limiter
        .refund("check", 1)
        .of(&decision)
        .await
        .expect("refunded");
    decision.is_allowed()
}

/// Logs in with success through a layer that charges failures alone. Returns whether the request
/// was admitted.
async fn log_in(layer: RateLimitLayer<Global>) -> bool {
    let handler = service_fn(|_: Request<()>| async {
        sleep(WORK).await;
        Ok::<_, Infallible>(Response::new(String::new()))
    });
    let response = layer
        .layer(handler)
        .oneshot(Request::new(()))
        .await
        .expect("a response");
    response.status() == StatusCode::OK
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn units_that_come_back_late_deny_nobody() {
    let deployment =
        Deployment::start(Kind::Server, "units_that_come_back_late_deny_nobody").expect("a server");
    for callers in [1, 2, 16, 64] {
        for (at, policies) in limits(callers).into_iter().enumerate() {
            let redis = deployment
                .builder(&format!("late-{callers}-{at}"))
                .connect()
                .await
                .expect("a store");
            for limiter in [
                patient_limiter(MemoryStore::new(), policies.clone()),
                patient_limiter(redis, policies),
            ] {
                let layer = RateLimitLayer::builder(limiter.clone(), Global)
                    .charge_on(|status| status == StatusCode::UNAUTHORIZED)
                    .build();
                let by_layer = denied(callers, move || log_in(layer.clone())).await;
                let by_limiter = denied(callers, move || check_and_refund(limiter.clone())).await;
                assert_eq!(
                    (by_layer, by_limiter),
                    (0, 0),
                    "{callers} callers, limit {at}"
                );
            }
        }
    }
}

/// A bucket of ten a minute is full again after six seconds, and the unit of the check with it.
#[tokio::test]
async fn a_clock_of_the_process_tells_how_late_a_refund_is() {
    let clock = Clock::manual(START_US);
    let server = RedisServer::start();
    let redis = RedisStore::builder(server.url())
        .clock(clock.clone())
        .connect()
        .await
        .expect("a store");
    let memory = MemoryStore::builder().clock(clock.clone()).build();
    let minute = Policy::token_bucket("minute", Quota::per_minute(10));
    for limiter in [
        patient_limiter(redis, minute.clone()),
        patient_limiter(memory, minute),
    ] {
        let decision = limiter.check("ann").await.expect("a decision");
        clock.advance(Duration::from_secs(6));
        assert!(decided_at(&limiter, "ann", 10).await.is_allowed());
        limiter
            .refund("ann", 1)
            .of(&decision)
            .await
            .expect("refunded");
        assert_eq!(remaining(&limiter, "ann").await, 0);
    }
}
