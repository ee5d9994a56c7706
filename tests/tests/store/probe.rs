//! Tests when a probe is sent, on a clock that is paused.

use std::time::Duration;

use tokio::time::Instant;
use tollgate::{ErrorKind, Limiter, Outage, RedisStore};
use tollgate_test_support::PATIENCE;
use tollgate_tests::wait;

use crate::paused_server::{HOURLY, PausedServer};

fn limiter(server: &PausedServer) -> (RedisStore, Limiter) {
    let store = RedisStore::open(server.url()).expect("a store");
    let limiter = Limiter::builder(store.clone())
        .policies(HOURLY)
        .deadline(Duration::from_millis(30))
        .on_outage(Outage::Open)
        .build();
    (store, limiter)
}

/// Misses three deadlines, and returns when the breaker opened.
async fn open(store: &RedisStore, limiter: &Limiter) -> Instant {
    for timeout in 1..=3 {
        assert!(store.is_available(), "before timeout {timeout}");
        assert_eq!(
            limiter.check("acme").await.expect("open").degraded(),
            Some(ErrorKind::Timeout)
        );
    }
    assert!(!store.is_available());
    Instant::now()
}

async fn closed(store: &RedisStore) {
    wait::until_async("the answer to close it", PATIENCE, async || {
        store.is_available()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_open_connection_is_probed_at_the_moment_when_the_breaker_opens() {
    let mut server = PausedServer::start();
    let (store, limiter) = limiter(&server);
    server.hold_checks(true);
    let opened = open(&store, &limiter).await;
    closed(&store).await;
    let pings: Vec<_> = server
        .pings()
        .into_iter()
        .filter(|&at| at >= opened)
        .collect();
    assert_eq!(pings, [opened], "no pause before the first probe");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_probes_and_no_checks_is_probed_after_a_pause() {
    let mut server = PausedServer::start();
    let (store, limiter) = limiter(&server);
    server.hold_checks(true);
    let first = open(&store, &limiter).await;
    closed(&store).await;
    let second = open(&store, &limiter).await;
    closed(&store).await;
    let pings: Vec<_> = server
        .pings()
        .into_iter()
        .filter(|&at| at >= first)
        .collect();
    assert!(
        matches!(pings[..], [one, two] if one == first && two >= second + Duration::from_millis(100)),
        "{pings:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_outage_after_an_answered_check_is_probed_at_once_like_the_first() {
    let mut server = PausedServer::start();
    let (store, limiter) = limiter(&server);
    for _ in 0..3 {
        server.hold_checks(true);
        let opened = open(&store, &limiter).await;
        closed(&store).await;
        assert!(
            server.pings().contains(&opened),
            "no pause before the first probe"
        );
        server.hold_checks(false);
        assert!(!limiter.check("acme").await.expect("open").is_degraded());
    }
}
