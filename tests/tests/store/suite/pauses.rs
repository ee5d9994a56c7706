//! Pauses for which another service asks, over a store that replicas share.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use http::{Request, Response};
use tokio::{sync::Barrier, task::JoinSet};
use tollgate::{Limiter, Policy, Quota};
use tollgate_outgoing::OutgoingLayer;
use tollgate_test_support::{Deployment, PATIENCE, patient_limiter};
use tollgate_tests::{Reply, wait};
use tollgate_tower::key::Global;
use tower::{Layer, ServiceExt, service_fn};

const CALLS: Policy = Policy::token_bucket("api", Quota::per_second(1_000));

const PAUSE: Duration = Duration::from_millis(600);

/// The server's clock and ours may run apart.
const SLACK: Duration = Duration::from_millis(5);

/// Returns the time for which the calls are paused.
async fn left(limiter: &Limiter) -> Duration {
    let pause = Policy::leaky_bucket(
        "api/pause",
        Quota::per_second(1_000_000).with_burst(61_000_000),
    );
    let state = limiter
        .with_policies(pause)
        .peek("all")
        .await
        .expect("a peek");
    state.states().next().expect("a policy").reset_after()
}

async fn replica(deployment: &Deployment) -> Limiter {
    patient_limiter(
        deployment
            .builder("paused")
            .connect()
            .await
            .expect("a store"),
        CALLS,
    )
}

/// Makes a call, and returns when it arrived. The service refuses it for this many milliseconds,
/// once all calls of the barrier are there.
async fn call(limiter: &Limiter, refused_ms: Option<u64>, barrier: Arc<Barrier>) -> Instant {
    let arrived = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&arrived);
    let api = service_fn(move |_: Request<()>| {
        *seen.lock().expect("no panic") = Some(Instant::now());
        let response = Response::builder().status(if refused_ms.is_some() { 429 } else { 200 });
        let response = response.header("retry-after-ms", refused_ms.unwrap_or_default());
        let barrier = Arc::clone(&barrier);
        async move {
            barrier.wait().await;
            Ok::<_, Infallible>(response.body(String::new()).expect("a response"))
        }
    });
    let Ok(_) = OutgoingLayer::new(limiter.clone(), Global)
        .layer(api)
        .oneshot(Request::new(()))
        .await;
    arrived
        .lock()
        .expect("no panic")
        .expect("the call was made")
}

/// Returns the barrier of one call.
fn alone() -> Arc<Barrier> {
    Arc::new(Barrier::new(1))
}

/// Waits until the store has a pause that ends at this time or later.
async fn paused_until(limiter: &Limiter, end: Instant) {
    wait::until_async("the pause", PATIENCE, async || {
        Instant::now() + left(limiter).await >= end
    })
    .await;
}

pub(super) async fn the_answer_to_one_replica_pauses_the_calls_of_all(deployment: &Deployment) {
    let (one, other) = (replica(deployment).await, replica(deployment).await);
    let refused = call(&one, Some(PAUSE.as_millis() as u64), alone()).await;
    paused_until(&other, refused + PAUSE - SLACK).await;
    let called = call(&other, None, alone()).await;
    assert!(called - refused >= PAUSE - SLACK, "{:?}", called - refused);
    assert_eq!(left(&other).await, Duration::ZERO);
    // The key expires with the second in which the pause ends.
    let expiry = deployment
        .owner(&"all".into())
        .command(&["PTTL", "paused:{all}:api/pause:l1"]);
    assert!(matches!(expiry, Reply::Int(-2..=1_000)), "{expiry:?}");
}

pub(super) async fn replicas_that_are_refused_at_once_pause_for_the_longest_of_their_times(
    deployment: &Deployment,
) {
    const REPLICAS: u64 = 12;
    let mut replicas = Vec::new();
    for _ in 0..REPLICAS {
        replicas.push(replica(deployment).await);
    }
    let before = Instant::now();
    let (mut calls, barrier) = (JoinSet::new(), Arc::new(Barrier::new(REPLICAS as usize)));
    for (limiter, at) in replicas.iter().cloned().zip(0..) {
        let barrier = Arc::clone(&barrier);
        calls.spawn(async move {
            call(&limiter, Some(20_000 + at * 7 % REPLICAS * 1_000), barrier).await
        });
    }
    calls.join_all().await;
    let longest = Duration::from_secs(20 + REPLICAS - 1);
    // The last pause may still be on its way. Longer ones are not cut by it, and pauses do not add
    // up.
    paused_until(&replicas[0], before + longest - SLACK).await;
    assert!(left(&replicas[0]).await <= longest);
}
