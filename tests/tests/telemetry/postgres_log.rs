//! The log lines of the store in PostgreSQL: one for what happens a thousand times, and no text of
//! the server as it came.

use tollgate::{Limiter, Outage, Policy, Quota};
use tollgate_postgres::PostgresStore;
use tollgate_test_support::{PATIENCE, decided};
use tollgate_tests::{
    Log, LyingPostgres,
    lying_postgres::{Asked, Lie, complete, message, report},
    wait,
};

const HOURLY: Policy = Policy::token_bucket("hourly", Quota::per_hour(5));

async fn limiter(server: &LyingPostgres) -> Limiter {
    let store = PostgresStore::connect(server.url()).await.expect("a store");
    Limiter::builder(store)
        .policies(HOURLY)
        .deadline(PATIENCE)
        .on_outage(Outage::Open)
        .build()
}

/// Returns the lines that have these words.
fn lines<'l>(text: &'l str, words: &str) -> Vec<&'l str> {
    text.lines().filter(|line| line.contains(words)).collect()
}

#[tokio::test]
async fn many_notices_are_one_line_whose_text_is_escaped() {
    let (log, _guard) = Log::of_this_thread();
    let server = LyingPostgres::start(|_| None);
    let limiter = limiter(&server).await;
    let notice = report(
        b'N',
        "00000",
        "\u{1b}[2J\n2026-01-01 ERROR forged: all is lost",
    );
    server.set(move |asked| match asked {
        Asked::Query("BEGIN") => Some(Lie::Bytes([notice.repeat(100), complete(0)].concat())),
        _ => None,
    });
    for key in 0..30_u64 {
        assert!(!limiter.check(key).await.expect("a decision").is_degraded());
    }
    let text = log.text();
    let [line] = lines(&text, "postgres sent a notice")[..] else {
        panic!("{text}");
    };
    assert!(line.contains("notice=\\u{1b}[2J\\n2026"), "{line}");
    assert!(lines(&text, "forged").len() == 1, "{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
}

#[tokio::test]
async fn many_connections_that_end_are_one_line() {
    let (log, _guard) = Log::of_this_thread();
    let server = LyingPostgres::start(|_| None);
    let limiter = limiter(&server).await;
    server.set(|asked| {
        matches!(asked, Asked::Rows(text, _) if text.contains("unnest")).then_some(Lie::End)
    });
    for key in 0..50_u64 {
        assert!(limiter.check(key).await.expect("a decision").is_degraded());
    }
    server.set(|_| None);
    wait::until_async("the store to decide", PATIENCE, async || {
        let decision = limiter.check("acme").await;
        decision.is_ok_and(|decision| !decision.is_degraded())
    })
    .await;
    let text = log.text();
    let ended = lines(&text, "a connection to postgres ended");
    assert_eq!(ended.len(), 1, "{text}");
    let of_pool = lines(&text, "deadpool");
    assert!(of_pool.is_empty(), "{text}");
}

/// A server may close a connection with a reason. The line has it.
#[tokio::test]
async fn a_connection_that_the_server_ends_says_why() {
    let (log, _guard) = Log::of_this_thread();
    let server = LyingPostgres::start(|_| None);
    let limiter = limiter(&server).await;
    server.set(|asked| {
        matches!(asked, Asked::Rows(..)).then(|| Lie::Bytes(message(b'x', b"garbage")))
    });
    assert!(decided(&limiter, "acme").await.is_degraded());
    server.set(|_| None);
    wait::until_async("the store to decide", PATIENCE, async || {
        let decision = limiter.check("acme").await;
        decision.is_ok_and(|decision| !decision.is_degraded())
    })
    .await;
    let text = log.text();
    let [line] = lines(&text, "decided without the store")[..] else {
        panic!("{text}");
    };
    assert!(line.contains("reason=\"protocol\""), "{line}");
}
