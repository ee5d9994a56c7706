//! The log lines of the diagnosis on connecting, and of a store that connects with its first check
//! to a server that can decide nothing.

use tollgate::{Policy, Quota};
use tollgate_test_support::{PATIENCE, connected_store, decided, opened_store, patient_limiter};
use tollgate_tests::{Log, RedisServer, wait};

#[tokio::test]
async fn connecting_logs_each_finding_once() {
    let (log, _guard) = Log::of_this_thread();
    let server = RedisServer::start();
    let _ = connected_store(server.url()).await;
    // A server is far for a moment while the machine is busy.
    let text = || {
        let text = log.text();
        let lines = text
            .lines()
            .filter(|line| !line.contains("TOLLGATE-DISTANT"));
        lines.collect::<Vec<_>>().join("\n")
    };
    assert!(!text().contains("TOLLGATE-"), "{}", text());
    server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let _ = connected_store(server.url()).await;
    assert_eq!(text().matches("TOLLGATE-EVICTION").count(), 1, "{}", text());
    assert_eq!(text().matches("WARN").count(), 1, "{}", text());
}

#[tokio::test]
async fn the_first_check_of_a_store_that_was_opened_logs_why_its_server_decides_nothing() {
    let server = RedisServer::start();
    let sentinel = RedisServer::builder()
        .sentinel(format!("sentinel monitor m 127.0.0.1 {} 1", server.port()))
        .start();
    let replica = RedisServer::start();
    let port = server.port().to_string();
    replica.command(&["REPLICAOF", "127.0.0.1", &port]);
    for (server, why) in [(&replica, "is a replica"), (&sentinel, "is a Sentinel")] {
        let (log, _guard) = Log::of_this_thread();
        let store = opened_store(server.url());
        let limiter = patient_limiter(store, Policy::token_bucket("p", Quota::per_hour(5)));
        let lines = || {
            let line = format!("redis at {} {why} and decides nothing", server.addr());
            log.text().matches(&line).count()
        };
        for _ in 0..5 {
            let _ = limiter.check("acme").await;
        }
        wait::until_async("the reason", PATIENCE, async || lines() > 0).await;
        for _ in 0..5 {
            let _ = limiter.check("acme").await;
        }
        assert_eq!(lines(), 1, "{}", log.text());
    }
}

#[tokio::test]
async fn a_server_in_order_is_asked_for_nothing_by_a_store_that_was_opened() {
    let server = RedisServer::start();
    let store = opened_store(server.url());
    let limiter = patient_limiter(store, Policy::token_bucket("p", Quota::per_hour(5)));
    assert!(decided(&limiter, "acme").await.is_allowed());
    assert_eq!((server.calls("role"), server.calls("eval")), (0, 1));
}
