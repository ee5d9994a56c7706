//! What is logged of a server as it is connected to. Alone in its file: whether a line is logged at
//! all is decided once per process.

use std::{
    io,
    sync::{Arc, Mutex},
};

use tollgate::RedisStore;
use tollgate_tests::RedisServer;

/// Collects what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("the log").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn connecting_logs_each_finding_once() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let server = RedisServer::start();
    let _ = RedisStore::connect(server.url()).await.expect("a store");
    let said = || String::from_utf8(log.0.lock().expect("the log").clone()).expect("text");
    assert!(!said().contains("TOLLGATE-"), "{}", said());
    server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let _ = RedisStore::connect(server.url()).await.expect("a store");
    assert_eq!(said().matches("TOLLGATE-EVICTION").count(), 1, "{}", said());
    assert_eq!(said().matches("WARN").count(), 1, "{}", said());
}
