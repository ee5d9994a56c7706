//! One URL chooses the store: memory, one server, a socket, Sentinels, a cluster.

use std::sync::Arc;

use tollgate::{Policy, Quota, Store};
use tollgate_test_support::{decided, patient_limiter, remaining};
use tollgate_tests::{RedisCluster, RedisServer};

const HOURLY: Policy = Policy::token_bucket("hourly", Quota::per_hour(5));

/// Spends through one store of this URL, and looks through another.
async fn shares_one_limit(url: &str) {
    let connected = tollgate::connect(url)
        .await
        .unwrap_or_else(|error| panic!("{url}: {error}"));
    let lazy = tollgate::open(url).unwrap_or_else(|error| panic!("{url}: {error}"));
    let decision = patient_limiter(Arc::clone(&connected), HOURLY)
        .check("acme")
        .await
        .expect("a decision");
    assert!(decision.is_allowed() && !decision.is_degraded(), "{url}");
    assert_eq!(
        remaining(&patient_limiter(lazy, HOURLY), "acme").await,
        4,
        "{url}"
    );
}

#[tokio::test]
async fn a_memory_url_is_a_store_of_its_own() {
    let store: Arc<dyn Store> = tollgate::connect("memory:").await.expect("a store");
    let limiter = patient_limiter(Arc::clone(&store), HOURLY);
    assert!(decided(&limiter, "acme").await.is_allowed());
    assert_eq!(remaining(&patient_limiter(store, HOURLY), "acme").await, 4);
    let other = tollgate::open("memory:").expect("a store");
    assert_eq!(remaining(&patient_limiter(other, HOURLY), "acme").await, 5);
}

#[test]
fn a_url_of_each_form_opens_a_store_and_no_other_does() {
    let opened = |url: &str| tollgate::open(url).map(|store| store.is_in_process());
    for (url, is_in_process) in [
        ("memory:", true),
        ("memory://", true),
        ("redis://h", false),
        ("redis://h/?prefix=shop", false),
        ("redis+unix:///s", false),
        ("unix:///s", false),
        ("redis+sentinel://h/m", false),
        ("redis+cluster://h,i", false),
    ] {
        assert_eq!(opened(url).expect(url), is_in_process, "{url}");
    }
    for url in [
        "memory://elsewhere",
        "http://h",
        "h:6379",
        "",
        "redis+cluster://",
        "redis+sentinel://h",
        "redis://h/?prefx=shop",
    ] {
        assert!(opened(url).is_err(), "{url}");
    }
}

#[tokio::test]
async fn a_server_is_found_by_host_and_port_and_by_its_socket() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("redis.sock");
    let socket = socket.to_str().expect("a path in UTF-8");
    let server = RedisServer::builder().arg("--unixsocket", socket).start();
    shares_one_limit(&server.url()).await;
    server.command(&["FLUSHALL"]);
    shares_one_limit(&format!("redis+unix://{socket}")).await;
}

#[tokio::test]
async fn a_master_is_found_through_the_sentinels_of_the_url() {
    let server = RedisServer::builder().password("hunter2").start();
    let lines = format!(
        "sentinel monitor limits 127.0.0.1 {} 1\nsentinel auth-pass limits hunter2",
        server.port()
    );
    let sentinel = RedisServer::builder().sentinel(lines).start();
    let sentinel = sentinel.addr();
    // The first address has no listener. The password is that of the server.
    shares_one_limit(&format!(
        "redis+sentinel://:hunter2@127.0.0.1:1,{sentinel}/limits"
    ))
    .await;
    let error = tollgate::connect(format!("redis+sentinel://:hunter2@{sentinel}/other"))
        .await
        .err()
        .expect("an error");
    assert_eq!(
        error.to_string(),
        "the sentinels know no master with the given name"
    );
}

#[tokio::test]
async fn a_cluster_is_found_through_any_server_of_the_url() {
    let cluster = RedisCluster::start();
    let hosts: Vec<_> = cluster
        .nodes()
        .iter()
        .map(|node| node.addr().to_string())
        .collect();
    shares_one_limit(&format!("redis+cluster://127.0.0.1:1,{}", hosts.join(","))).await;
}
