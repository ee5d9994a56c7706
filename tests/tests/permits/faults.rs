//! Lost replies, and servers that go away and come back.

use std::time::Duration;

use tollgate::{
    RedisStore,
    permits::{Concurrency, ConcurrencyLimiter},
};
use tollgate_test_support::{
    PATIENCE, connected_store,
    permits::{LostReply, OlderCopy, closed_permits, held_by_all},
};
use tollgate_tests::{Mode, Proxy, RedisServer, wait};

use crate::{take, undisturbed};

const TWO: Concurrency = Concurrency::new("jobs", 2).exact();

/// Returns a replica that misses its deadline when a reply is lost.
fn impatient(store: RedisStore, policy: Concurrency) -> ConcurrencyLimiter {
    closed_permits(store, policy, Duration::from_secs(1))
}

#[test]
fn lost_replies_of_acquire_renewal_and_release_are_never_counted_twice() {
    undisturbed(lost_replies);
}

async fn lost_replies() {
    for call in LostReply::ALL {
        for is_exact in [true, false] {
            let after = call.lose(Duration::from_secs(2), is_exact).await;
            assert!(
                after.most_held <= 2 && after.most_in_use <= 2,
                "{call:?}: {after:?}"
            );
            assert_eq!(
                after.lost, 0,
                "{call:?}: a permit is lost though the server holds it"
            );
        }
    }
}

#[tokio::test]
async fn calls_that_break_with_their_connection_are_never_counted_twice() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    let store = RedisStore::connect(server.url_at(proxy.addr()) + "?connect_timeout=1m")
        .await
        .expect("a store");
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
            permits.extend(acquired.and_then(Result::ok));
            assert!(held_by_all(&server) <= 2 && permits.len() <= 2);
            !permits.is_empty()
        })
        .await;
        permits.pop();
    }
    drop(permits);
    wait::until_async("no permit to be held", PATIENCE, async || {
        held_by_all(&server) == 0
    })
    .await;
}

#[test]
fn permits_outlast_a_restart_of_the_server_and_are_counted_again() {
    undisturbed(a_restart);
}

async fn a_restart() {
    let server = RedisServer::start();
    let store = connected_store(server.url()).await;
    let limiter = impatient(store, TWO);
    let permits = [
        take(&limiter, "acme").await.expect("a permit"),
        take(&limiter, "acme").await.expect("a permit"),
    ];
    server.kill();
    assert!(limiter.acquire("acme").await.is_err());
    assert!(permits.iter().all(|permit| !permit.is_lost()));
    server.restart();
    assert_eq!(held_by_all(&server), 0, "the server has lost its data");
    wait::until_async("a renewal", PATIENCE, async || held_by_all(&server) == 2).await;
    assert!(permits.iter().all(|permit| !permit.is_lost()));
    assert!(take(&limiter, "acme").await.is_none());
}

#[test]
fn permits_that_an_older_copy_of_the_state_lacks_are_counted_again_if_they_fit() {
    undisturbed(an_older_copy);
}

async fn an_older_copy() {
    for is_exact in [true, false] {
        let after = OlderCopy::take_over(Duration::from_secs(3), is_exact).await;
        assert!(
            after.lost == 0 && after.most_held <= 5,
            "exact: {is_exact}: {after:?}"
        );
    }
}

#[test]
fn permits_are_lost_when_the_server_stays_away_for_a_life() {
    undisturbed(a_server_that_stays_away);
}

async fn a_server_that_stays_away() {
    let server = RedisServer::start();
    let store = connected_store(server.url()).await;
    let limiter = impatient(store, TWO.with_life(Duration::from_secs(1)));
    let permit = take(&limiter, "acme").await.expect("a permit");
    server.kill();
    permit.lost().await;
    assert!(permit.is_lost());
    server.restart();
    let mut permits = Vec::new();
    wait::until_async("both permits", PATIENCE, async || {
        let acquired = limiter.acquire("acme").await.ok();
        permits.extend(acquired.and_then(Result::ok));
        permits.len() == 2
    })
    .await;
    drop(permit);
    assert_eq!(held_by_all(&server), 2, "a lost permit is not given back");
}
