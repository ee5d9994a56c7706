//! What is logged of an outage. Alone in its file: whether a line is logged at all is decided once
//! per process.

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use tollgate::{Limiter, Policy, Quota, RedisStore};
use tollgate_tests::{RedisServer, wait};

const PATIENT: Duration = Duration::from_secs(20);
const HOURLY: Policy = Policy::token_bucket("hourly", Quota::per_hour(5));

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
    wait::until_async("the store decides again", PATIENT, async || {
        !limiter.check("sk_live_key").await.expect("a decision").is_degraded()
    })
    .await;
    let text = String::from_utf8(log.0.lock().expect("the log").clone()).expect("text");
    assert_eq!(text.matches("decided without the store").count(), 1, "{text}");
    assert_eq!(text.matches("decides again").count(), 1, "{text}");
    assert!(!text.contains("sk_live_key"), "{text}");
}
