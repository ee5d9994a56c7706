//! More checks than the server can decide within their deadline.

use std::{collections::BTreeMap, time::Duration};

use tokio::task::JoinSet;
use tollgate::{Algorithm, ErrorKind, Limiter, Outage, Policy, PolicySet, Quota};
use tollgate_test_support::{PATIENCE, connected_store, decided};
use tollgate_tests::{RedisServer, wait};

/// Eight policies whose script takes the server long.
fn slow() -> PolicySet {
    let policy = |name: u8| {
        let algorithm = Algorithm::SlidingBuckets { buckets: 60 };
        Policy::try_new(format!("p{name}"), algorithm, Quota::per_day(1_000_000)).expect("a policy")
    };
    PolicySet::try_new((0..8).map(policy)).expect("a set")
}

/// Asks more than the server can decide. Returns whether the breaker stays closed, and the reasons
/// of the answers.
async fn overload() -> (bool, BTreeMap<&'static str, u32>) {
    let server = RedisServer::start();
    let store = connected_store(server.url()).await;
    let limiter = Limiter::builder(store.clone())
        .policies(slow())
        .deadline(Duration::from_secs(1))
        .on_outage(Outage::Open)
        .build();
    wait::until_async("the store decides", PATIENCE, async || {
        !decided(&limiter, "warm").await.is_degraded()
    })
    .await;

    // Callers come as fast as this machine can make them, until some hundred were refused.
    let (mut callers, mut reasons) = (JoinSet::new(), BTreeMap::<_, u32>::new());
    let mut key = 0_u64;
    while reasons.get("overload").copied().unwrap_or(0) < 500 && store.is_available() {
        for _ in 0..200 {
            let check = limiter.check(key).into_future();
            callers.spawn(async move { check.await.expect("a decision").degraded() });
            key += 1;
        }
        tokio::task::yield_now().await;
        while let Some(reason) = callers.try_join_next() {
            *reasons
                .entry(reason.expect("a caller").map_or("", ErrorKind::as_str))
                .or_default() += 1;
        }
    }
    while let Some(reason) = callers.join_next().await {
        *reasons
            .entry(reason.expect("a caller").map_or("", ErrorKind::as_str))
            .or_default() += 1;
    }
    let stays_closed = store.is_available() && !reasons.contains_key("breaker");
    // After the burst, checks are sent again at once.
    wait::until_async("the store decides again", PATIENCE, async || {
        !decided(&limiter, "after").await.is_degraded()
    })
    .await;
    (stays_closed, reasons)
}

/// A server is silent for the deadlines of three checks in a row where the machine stands still. So
/// the burst is repeated.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_answered_in_time_is_refused_early_and_the_breaker_stays_closed() {
    let mut seen = Vec::new();
    for _ in 0..5 {
        let (stays_closed, reasons) = overload().await;
        if stays_closed {
            assert!(reasons[""] > 0 && reasons["overload"] >= 500, "{reasons:?}");
            return;
        }
        seen.push(reasons);
    }
    panic!("the breaker opened each time: {seen:?}");
}
