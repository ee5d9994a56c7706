//! Tries what is refused, what is not there, what has no room, and what the server does not do: each is known
//! by the kind of its error.

use std::time::Duration;

use tollgate::{Limiter, Policy, Quota, RedisStore, Store, store::ExceptionList};
use tollgate_operator::{ExceptionRequest, Operator, OperatorError, OperatorErrorKind};
use tollgate_postgres::{Durability, PostgresStore};
use tollgate_tests::{PostgresServer, RedisServer, no_server, wait};

use super::{PATIENCE, operator};

fn line(at: usize) -> String {
    format!("search\tdaily\tc{at}\t8999999999000000\t9000000000000000\tfactor 2\tann\tr")
}

async fn grant(
    operator: &Operator,
    limiter: &str,
    key: &str,
    change: &str,
) -> Result<(), OperatorError> {
    let request = ExceptionRequest::new(limiter, key, change, "2h");
    let request = request.by("ann").because("a move");
    operator.grant_exception(&request).await.map(drop)
}

#[track_caller]
fn assert_kind<T: std::fmt::Debug>(
    answer: Result<T, OperatorError>,
    kind: OperatorErrorKind,
    words: &str,
) {
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(words), "{error}");
    let is_refused = !matches!(
        kind,
        OperatorErrorKind::Forbidden | OperatorErrorKind::Unavailable
    );
    assert_eq!(error.is_refused(), is_refused, "{error}");
}

/// Asks for what cannot be beside a service, then fills the store.
async fn each_has_its_kind(url: &str, store: impl Store, fill: impl AsyncFnOnce()) {
    let limiter = Limiter::builder(store)
        .policies(Policy::fixed_window("daily", Quota::per_day(5)))
        .name("search")
        .deadline(PATIENCE)
        .published()
        .build();
    let operator = operator(url);
    wait::until_async("the published limiter", PATIENCE, async || {
        let _ = limiter.check("acme").await.unwrap();
        let limiters = operator.limiters().await.unwrap();
        let limiters = serde_json::to_string(&limiters).unwrap();
        limiters.contains("search")
    })
    .await;

    use OperatorErrorKind::{Full, NotFound, Refused};
    let refused = grant(&operator, "search", "acme", "factor 0").await;
    assert_kind(refused, Refused, "factor of an exception");
    let empty = operator.peek("", None).await;
    assert_kind(empty, Refused, "key must have 1 to 4096 bytes");
    let share = operator.set_share("search", Some("101%")).await;
    assert_kind(share, Refused, "share: ");
    let unknown = grant(&operator, "other", "acme", "factor 2").await;
    assert_kind(unknown, NotFound, "no limiter other is published");
    let unknown = operator.set_share("other", Some("5%")).await;
    assert_kind(unknown, NotFound, "no limiter other is published");
    let none = operator.withdraw_exception("search", None, "acme").await;
    assert_kind(none, NotFound, "there is no exception for acme");

    fill().await;
    let full = grant(&operator, "search", "one-more", "factor 2").await;
    assert_kind(full, Full, "exceptions of a store must be at most 4096");
    // One that is there is changed, and one that was withdrawn makes room.
    grant(&operator, "search", "c7", "factor 3").await.unwrap();
    let withdrawn = operator.withdraw_exception("search", None, "c7").await;
    withdrawn.unwrap();
    grant(&operator, "search", "one-more", "factor 2")
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_redis_refuses_has_a_kind() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    let store = RedisStore::connect(server.url()).await.unwrap();
    each_has_its_kind(&server.url(), store, async || {
        for at in 0..ExceptionList::MAX {
            let name = format!("search\tdaily\tc{at}");
            server.command(&["HSET", "tollgate:{replicas}:exceptions", &name, &line(at)]);
        }
    })
    .await;

    // Whose rights do not suffice is not refused: the server is.
    let rules = [
        "ACL", "SETUSER", "ann", "on", ">secret", "~*", "+ping", "+client", "+hello",
    ];
    server.command(&rules);
    let ann = server.url().replacen("redis://", "redis://ann:secret@", 1);
    let forbidden = operator(&ann).limiters().await;
    assert_kind(forbidden, OperatorErrorKind::Forbidden, "NOPERM");
    let away = server.url();
    drop(server);
    let operator = Operator::builder(away).timeout(Duration::from_secs(5));
    let away = operator.build().unwrap().limiters().await;
    assert_kind(away, OperatorErrorKind::Unavailable, "cannot connect to");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_postgres_refuses_has_a_kind() {
    if no_server() {
        return;
    }
    let server = PostgresServer::start();
    let store = PostgresStore::builder(server.url()).create(Durability::Unlogged);
    let store = store.connect().await.unwrap();
    each_has_its_kind(&server.url(), store.clone(), async || {
        let lines: String = (0..ExceptionList::MAX).map(|at| line(at) + "\n").collect();
        let name = "{replicas}:exceptions".as_bytes();
        store.replace(name, Some(lines.as_bytes())).await.unwrap();
    })
    .await;
}
