//! The log lines of a server that is too far.

use std::time::Duration;

use tollgate::{ErrorKind, Limiter, Policy, Quota, RedisStore};
use tollgate_test_support::{PATIENCE, decided};
use tollgate_tests::{Log, Mode, Proxy, RedisServer, wait};

#[tokio::test]
async fn a_far_server_is_logged_once_with_its_code_and_once_as_it_is_near_again() {
    let (log, _guard) = Log::of_this_thread();
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    let store = RedisStore::builder(proxy.url()).connect_timeout(PATIENCE);
    let limiter = Limiter::builder(store.build().expect("a store"))
        .policies(Policy::fixed_window("large", Quota::per_day(1_000_000)))
        .deadline(Duration::from_millis(150))
        .build();
    let reason = async || decided(&limiter, "sk_live_key").await.degraded();
    wait::until_async("the store decides", PATIENCE, async || {
        reason().await.is_none()
    })
    .await;
    proxy.set(Mode::Delay(Duration::from_millis(400)));
    wait::until_async("a far server", PATIENCE, async || {
        reason().await == Some(ErrorKind::Distant)
    })
    .await;
    for _ in 0..1_000 {
        assert_eq!(reason().await, Some(ErrorKind::Distant));
    }
    proxy.set(Mode::Pass);
    wait::until_async("the store decides again", PATIENCE, async || {
        reason().await.is_none()
    })
    .await;
    let text = log.text();
    let lines: Vec<_> = text
        .lines()
        .filter(|line| line.contains("TOLLGATE-DISTANT"))
        .collect();
    let [line] = lines[..] else {
        panic!("one line: {text}")
    };
    assert!(
        line.contains("WARN") && line.contains("a deadline of 150ms"),
        "{line}"
    );
    assert!(line.contains("set LimiterBuilder::deadline to "), "{line}");
    assert_eq!(
        text.matches("fits the deadlines of all checks again")
            .count(),
        1,
        "{text}"
    );
    assert!(!text.contains("sk_live_key"), "{text}");
}
