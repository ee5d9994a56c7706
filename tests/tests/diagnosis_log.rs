//! What is logged of a server as it is connected to. Alone in its file: whether a line is logged at
//! all is decided once per process.

use tollgate::RedisStore;
use tollgate_tests::{Log, RedisServer};

#[tokio::test]
async fn connecting_logs_each_finding_once() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let server = RedisServer::start();
    let _ = RedisStore::connect(server.url()).await.expect("a store");
    let said = || log.text();
    assert!(!said().contains("TOLLGATE-"), "{}", said());
    server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let _ = RedisStore::connect(server.url()).await.expect("a store");
    assert_eq!(said().matches("TOLLGATE-EVICTION").count(), 1, "{}", said());
    assert_eq!(said().matches("WARN").count(), 1, "{}", said());
}
