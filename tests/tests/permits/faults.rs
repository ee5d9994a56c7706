//! Lost replies, and servers that go away and come back.

use std::time::Duration;

use tollgate::{Concurrency, ConcurrencyLimiter, ErrorKind, Limiter, Outage, Policy, Quota, RedisStore};
use tollgate_test_support::PATIENCE;
use tollgate_tests::{Mode, Proxy, RedisServer, wait};

use crate::{held, replica, take};

const KEY: &str = "tollgate:{acme}:jobs:p1";

const TWO: Concurrency = Concurrency::new("jobs", 2).exact();

/// Returns a replica that misses its deadline when a reply is lost.
fn impatient(store: RedisStore, policy: Concurrency) -> ConcurrencyLimiter {
    let any = Policy::token_bucket("any", Quota::per_second(1));
    let limiter = Limiter::builder(store).policies(any).on_outage(Outage::Closed).deadline(Duration::from_secs(1));
    limiter.build().concurrency(policy)
}

#[tokio::test]
async fn lost_replies_of_acquire_and_release_are_never_counted_twice() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    let store = RedisStore::connect(server.url_at(proxy.addr())).await.expect("a store");
    let policy = TWO.life(Duration::from_secs(4));
    let (limiter, other) =
        (impatient(store, policy.clone()), RedisStore::connect(server.url()).await.expect("a store"));
    let other = replica(other, policy);
    let first = take(&limiter, "acme").await.expect("a permit");

    proxy.set(Mode::Mute);
    let error = limiter.acquire("acme").await.expect_err("the reply is lost");
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(held(&server, KEY), [2], "the server has executed the call");
    assert!(first.release().await.is_err());
    proxy.set(Mode::Pass);

    // Both permits come back, and no more than both.
    let mut permits = Vec::new();
    wait::until_async("both permits", PATIENCE, async || {
        permits.extend(take(&other, "acme").await);
        assert!(held(&server, KEY).iter().sum::<u32>() <= 2);
        permits.len() == 2
    })
    .await;
    assert!(take(&other, "acme").await.is_none());
    drop(permits);
    wait::until_async("no permit to be held", PATIENCE, async || held(&server, KEY).is_empty()).await;
}

#[tokio::test]
async fn calls_that_break_with_their_connection_are_never_counted_twice() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    let store = RedisStore::connect(server.url_at(proxy.addr())).await.expect("a store");
    let limiter = impatient(store, TWO);
    let mut permits = Vec::new();
    for round in 0..20 {
        if round % 3 == 0 {
            proxy.set(Mode::CutAfter(0));
            let _ = limiter.acquire("acme").await;
            proxy.set(Mode::Pass);
        }
        wait::until_async("a permit", PATIENCE, async || {
            let acquired = limiter.acquire("acme").await.ok();
            permits.extend(acquired.and_then(|acquired| acquired.into_result().ok()));
            assert!(held(&server, KEY).iter().sum::<u32>() <= 2 && permits.len() <= 2);
            !permits.is_empty()
        })
        .await;
        permits.pop();
    }
    drop(permits);
    wait::until_async("no permit to be held", PATIENCE, async || held(&server, KEY).is_empty()).await;
}

#[tokio::test]
async fn permits_outlast_a_restart_of_the_server_and_are_counted_again() {
    let server = RedisServer::start();
    let store = RedisStore::connect(server.url()).await.expect("a store");
    let limiter = impatient(store, TWO);
    let permits = [take(&limiter, "acme").await.expect("a permit"), take(&limiter, "acme").await.expect("a permit")];
    server.kill();
    assert!(limiter.acquire("acme").await.is_err());
    assert!(permits.iter().all(|permit| !permit.is_lost()));
    server.restart();
    assert_eq!(held(&server, KEY), [0; 0], "the server has lost its data");
    wait::until_async("a renewal", PATIENCE, async || held(&server, KEY) == [2]).await;
    assert!(permits.iter().all(|permit| !permit.is_lost()));
    assert!(take(&limiter, "acme").await.is_none());
}

#[tokio::test]
async fn permits_are_lost_when_the_server_stays_away_for_a_life() {
    let server = RedisServer::start();
    let store = RedisStore::connect(server.url()).await.expect("a store");
    let limiter = impatient(store, TWO.life(Duration::from_secs(1)));
    let permit = take(&limiter, "acme").await.expect("a permit");
    server.kill();
    permit.lost().await;
    assert!(permit.is_lost());
    server.restart();
    let mut permits = Vec::new();
    wait::until_async("both permits", PATIENCE, async || {
        let acquired = limiter.acquire("acme").await.ok();
        permits.extend(acquired.and_then(|acquired| acquired.into_result().ok()));
        permits.len() == 2
    })
    .await;
    drop(permit);
    assert_eq!(held(&server, KEY), [2], "a lost permit is not given back");
}
