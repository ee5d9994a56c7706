//! Connections on which the server falls silent, without an end.

use std::time::Duration;

use tollgate::{ErrorKind, Limiter, Outage, RedisStore};
use tollgate_test_support::PATIENCE;
use tollgate_tests::{Proxy, RedisServer, ports, wait};

use crate::breaker::{SHORT, available_again, limiter, spent};

/// Returns a store behind the proxy, a limiter that waits for it, and one with a short deadline.
///
/// On a busy machine, a check with a short deadline can be sent on a new connection and still be
/// late. So the two limiters have keys of their own where units are counted.
fn limiters(proxy: &Proxy, connect_timeout: Duration) -> (RedisStore, Limiter, Limiter) {
    let store = RedisStore::builder(proxy.url())
        .connect_timeout(connect_timeout)
        .build()
        .expect("a store");
    let (patient, short) = (
        limiter(&store, PATIENCE, Outage::Closed),
        limiter(&store, SHORT, Outage::Open),
    );
    (store, patient, short)
}

#[tokio::test]
async fn a_silent_connection_is_replaced() {
    let (silent, healthy) = (RedisServer::start(), RedisServer::start());
    let proxy = Proxy::start(silent.addr());
    let (store, patient, short) = limiters(&proxy, Duration::from_secs(1));
    assert_eq!(spent(&patient, "acme").await, 0);
    silent.pause();
    proxy.set_target(healthy.addr());
    for _ in 0..3 {
        assert!(short.check("late").await.expect("open").is_degraded());
    }
    available_again(&store).await;
    assert!(patient.check("acme").await.is_ok());
    assert_eq!(
        spent(&patient, "acme").await,
        1,
        "the check is sent once, to the other server"
    );
}

/// The task that waits for a late answer to a check must not keep the connection open.
#[tokio::test]
async fn a_silent_connection_is_closed_when_another_took_its_place() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    let (store, patient, short) = limiters(&proxy, Duration::from_secs(1));
    assert!(patient.check("acme").await.is_ok());
    assert_eq!(proxy.open(), 1);
    proxy.forget_all();
    for _ in 0..3 {
        assert_eq!(
            short.check("late").await.expect("open").degraded(),
            Some(ErrorKind::Timeout)
        );
    }
    available_again(&store).await;
    wait::until_async("the silent connection to be closed", PATIENCE, async || {
        proxy.open() == 1
    })
    .await;
    assert_eq!(spent(&patient, "acme").await, 1, "on the new connection");
}

#[tokio::test]
async fn a_silent_connection_is_used_again_when_it_answers_and_no_other_can_be_made() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    let (store, patient, short) = limiters(&proxy, Duration::from_millis(200));
    wait::until_async("the store decides", PATIENCE, async || {
        patient.check("acme").await.is_ok()
    })
    .await;
    let before = proxy.accepted();
    // The open connection is silent, and a new one cannot be made.
    proxy.set_target(([127, 0, 0, 1], ports::free()).into());
    server.pause();
    wait::until_async("the breaker to open", PATIENCE, async || {
        short.check("acme").await.expect("open").is_degraded() && !store.is_available()
    })
    .await;
    wait::until_async("another connection to be tried", PATIENCE, async || {
        proxy.accepted() > before + 1
    })
    .await;
    assert!(!store.is_available());
    server.resume();
    available_again(&store).await;
    assert!(patient.check("acme").await.is_ok());
}
