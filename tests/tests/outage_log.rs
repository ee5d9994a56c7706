//! The log lines of an outage. A program of its own, because tracing decides once per process whether a line is enabled.

use std::time::Duration;

use tollgate::{Limiter, Policy, Quota, RedisStore};
use tollgate_test_support::PATIENCE;
use tollgate_tests::{Log, RedisServer, wait};

const HOURLY: Policy = Policy::token_bucket("hourly", Quota::per_hour(5));

#[tokio::test]
async fn an_outage_is_logged_once_as_it_begins_and_once_as_it_ends() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let server = RedisServer::start();
    let limiter = Limiter::builder(RedisStore::open(server.url()).expect("a store"))
        .policies(HOURLY)
        .deadline(Duration::from_secs(2))
        .build();
    assert!(!limiter.check("sk_live_key").await.expect("a decision").is_degraded());
    server.kill();
    for _ in 0..20 {
        assert!(limiter.check("sk_live_key").await.expect("a decision").is_degraded());
    }
    server.restart();
    wait::until_async("the store decides again", PATIENCE, async || {
        !limiter.check("sk_live_key").await.expect("a decision").is_degraded()
    })
    .await;
    let text = log.text();
    assert_eq!(text.matches("decided without the store").count(), 1, "{text}");
    assert_eq!(text.matches("decides again").count(), 1, "{text}");
    assert!(!text.contains("sk_live_key"), "{text}");
}
