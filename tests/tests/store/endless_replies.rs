//! A server that sends more than was asked for: the connection ends before the reply is kept, and
//! the outage rule decides.

use tollgate::{Cost, ErrorKind, Limiter, Policy, Quota, RedisStore, redis::RedisStoreBuilder};
use tollgate_test_support::{PATIENCE, patient_limiter};
use tollgate_tests::{Mode, Proxy, RedisServer, wait};

const HOURLY: Policy = Policy::token_bucket("hourly", Quota::per_hour(5));

/// More than any reply of a store has.
const MUCH: usize = 4 * 1024 * 1024;

/// Returns the bytes of replies that do not end: their beginning, and then the same bytes again and
/// again.
fn endless(begin: &str, again: &str) -> Mode {
    Mode::Garbage(
        [
            begin.as_bytes(),
            &again.as_bytes().repeat(MUCH / again.len()),
        ]
        .concat(),
    )
}

async fn limiter(builder: RedisStoreBuilder) -> Limiter {
    patient_limiter(
        builder
            .connect_timeout(PATIENCE)
            .connect()
            .await
            .expect("a store"),
        HOURLY,
    )
}

#[tokio::test]
async fn a_reply_without_an_end_ends_the_connection_and_the_next_one_works() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    let replies = [
        ("a text of 2 GB", "$2000000000\r\n", "x"),
        ("a text with a format", "=2000000000\r\ntxt:", "x"),
        ("an error of 2 GB", "!2000000000\r\nERR ", "x"),
        ("an endless line", "+", "x"),
        ("an endless error", "-ERR ", "x"),
        ("an endless number", ":", "1"),
        ("a big number", "(", "1"),
        ("an array of a billion values", "*1000000000\r\n", ":1\r\n"),
        ("an array of many empty values", "*2000\r\n", "*2000\r\n"),
        ("arrays in arrays", "", "*1\r\n"),
        ("a map", "%1000000000\r\n", "_\r\n"),
        ("a set", "~1000000000\r\n", "_\r\n"),
        ("attributes", "|1000000000\r\n", "_\r\n"),
        ("attributes of attributes", "", "|0\r\n"),
        ("a push", ">1000000000\r\n", "_\r\n"),
    ];
    for (what, begin, again) in replies {
        let limiter = limiter(RedisStore::builder(proxy.url())).await;
        proxy.set(endless(begin, again));
        let error = limiter.check("acme").await.expect_err(what);
        assert_eq!(error.kind(), ErrorKind::Protocol, "{what}: {error}");
        assert!(
            error.to_string().contains("longer than any"),
            "{what}: {error}"
        );
        proxy.set(Mode::Pass);
        wait::until_async("the next connection works", PATIENCE, async || {
            limiter.check("other").await.is_ok()
        })
        .await;
    }
}

#[tokio::test]
async fn answers_that_nobody_asked_for_end_the_connection() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    for (what, again) in [
        ("answers", "+OK\r\n"),
        ("pushes", ">2\r\n+message\r\n+x\r\n"),
    ] {
        let limiter = limiter(RedisStore::builder(proxy.url())).await;
        let before = proxy.accepted();
        proxy.set(endless("", again));
        assert!(limiter.check("acme").await.is_err(), "{what}");
        proxy.set(Mode::Pass);
        wait::until_async("a connection works", PATIENCE, async || {
            limiter.check("other").await.is_ok()
        })
        .await;
        assert!(proxy.accepted() > before, "{what}: the connection goes on");
    }
}

#[tokio::test]
async fn a_long_list_that_was_asked_for_is_read() {
    const ENTRIES: u64 = 20_000;
    let server = RedisServer::start();
    let store = RedisStore::builder(server.url())
        .connect_timeout(PATIENCE)
        .connect()
        .await
        .expect("a store");
    let limiter = patient_limiter(store, Policy::sliding_log("log", Quota::per_day(ENTRIES)));
    let tag = [b'x'; 64];
    assert!(
        limiter
            .check("acme")
            .cost(Cost::new(ENTRIES))
            .tag(&tag)
            .await
            .expect("a decision")
            .is_allowed()
    );
    for asked in [ENTRIES as usize, 10, usize::MAX] {
        let entries = limiter.entries("acme", asked).await.expect("a list");
        assert_eq!(entries.len(), asked.min(ENTRIES as usize));
        assert!(entries.iter().all(|entry| entry.tag() == tag));
    }
}
