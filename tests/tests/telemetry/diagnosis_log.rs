//! The log lines of the diagnosis on connecting.

use tollgate::RedisStore;
use tollgate_tests::{Log, RedisServer};

#[tokio::test]
async fn connecting_logs_each_finding_once() {
    let (log, _guard) = Log::of_this_thread();
    let server = RedisServer::start();
    let _ = RedisStore::connect(server.url()).await.expect("a store");
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
    let _ = RedisStore::connect(server.url()).await.expect("a store");
    assert_eq!(text().matches("TOLLGATE-EVICTION").count(), 1, "{}", text());
    assert_eq!(text().matches("WARN").count(), 1, "{}", text());
}
