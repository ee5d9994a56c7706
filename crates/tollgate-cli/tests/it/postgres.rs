//! The subcommands on PostgreSQL, beside the tests that run them on Redis.

use std::time::Duration;

use tollgate::{Enforcement, Limiter, Policy, Quota};
use tollgate_postgres::{Durability, PostgresStore};
use tollgate_tests::{PostgresServer, wait};

use super::{Run, tollgate, with_published_limits};

const DAY: Policy = Policy::fixed_window("day", Quota::new(5, Duration::from_secs(3_650 * 86_400)));
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the limiter `search` with a share that operators set.
async fn search(server: &PostgresServer, enforcement: &Enforcement) -> Limiter {
    let store = PostgresStore::builder(server.url()).create(Durability::Unlogged);
    Limiter::builder(store.connect().await.unwrap())
        .policies([DAY, Policy::sliding_log("log", Quota::per_hour(3))])
        .name("search")
        .published_with(enforcement.clone())
        .deadline(PATIENCE)
        .build()
}

fn run(server: &PostgresServer, arguments: &[&str]) -> Run {
    tollgate([arguments, &["--redis", &server.url()]].concat())
}

fn published(server: &PostgresServer, arguments: &[&str]) -> Run {
    with_published_limits(|| run(server, arguments))
}

#[tokio::test(flavor = "multi_thread")]
async fn states_in_postgres_are_shown_and_reset_as_those_in_redis() {
    let server = PostgresServer::start();
    let limiter = search(&server, &Enforcement::share(0)).await;
    for _ in 0..5 {
        let _ = limiter.check("acme").await.unwrap();
    }
    let _ = limiter.check("other").await.unwrap();
    let who = published(&server, &["who"]);
    who.assert_printed(0, "acme  log     sliding_log  3/hour");
    who.assert_printed(0, "\n1 limited, of 4 states\n");
    // A page of one row at a time, and a key whose name begins another one.
    let who = run(&server, &["who", "--count", "1", "--policy", "day=1/3650d"]);
    who.assert_printed(0, "2 limited, of 4 states, 2 without a known limit\n");
    let peek = published(&server, &["peek", "acme", "--cost", "2"]);
    peek.assert_printed(0, "2 units of day fit now\n");
    // An hour, or less by what the commands before have taken.
    peek.assert_printed(0, "2 units of log fit in ");
    let key = run(
        &server,
        &["peek", "tollgate:{acme}:log:s1", "--format", "json"],
    )
    .json();
    assert_eq!(key["states"][0]["spent"], 3, "{key}");
    run(&server, &["peek", "acm"]).assert_printed(0, "nothing is spent\n");
    let top = published(&server, &["top", "--once", "-n1", "--by", "share"]);
    top.assert_printed(0, "100.0");
    wait::until("a limiter in plain text", PATIENCE, || {
        let plain = ["top", "--plain", "--refreshes", "2", "--interval", "1s"];
        run(&server, &plain).stdout.contains("search")
    });

    let dry = run(&server, &["reset", "acme", "--dry-run"]);
    dry.assert_printed(0, "would remove tollgate:{acme}:log:s1, 3 spent");
    let reset = run(&server, &["reset", "acme"]);
    reset.assert_printed(0, "removed tollgate:{acme}:log:s1, 3 spent");
    published(&server, &["who"]).assert_printed(0, "0 limited, of 2 states\n");
    assert!(limiter.check("acme").await.unwrap().is_allowed());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_share_of_a_limiter_in_postgres_is_set_and_withdrawn() {
    let server = PostgresServer::start();
    let shares = [Enforcement::share(0), Enforcement::share(0)];
    let limiters = [
        search(&server, &shares[0]).await,
        search(&server, &shares[1]).await,
    ];
    let set = published(&server, &["enforce", "search", "25%"]);
    set.assert_printed(0, "search is enforced for 25% of the keys");
    let until = async |percent| {
        wait::until_async("the share", PATIENCE, async || {
            shares.iter().all(|share| share.percent() == percent)
        })
        .await;
    };
    until(25).await;
    run(&server, &["enforce"]).assert_printed(0, "25%");
    run(&server, &["enforce", "search", "--clear"]).assert_printed(0, "in force again");
    until(0).await;
    run(&server, &["enforce", "other", "1%"]).assert_failed("no limiter other is published");
    drop(limiters);
}

#[test]
fn a_database_that_refuses_is_named_without_the_password() {
    let server = PostgresServer::start();
    let url = |user: &str| server.url().replacen("postgres@", &format!("{user}@"), 1);
    let no_table = tollgate([
        "top",
        "--once",
        "--redis",
        &url("postgres"),
        "--prefix",
        "none",
    ]);
    no_table.assert_failed("has no such table");
    let guarded = url("guarded:hunter2");
    let refused = tollgate(["who", "--redis", &guarded]);
    refused.assert_failed("cannot connect to 127.0.0.1:");
    for wrong in [
        "postgres://ann:hunter2/x@h/d",
        "postgres://ann:hunter2@h/d?port=x",
    ] {
        let run = tollgate(["who", "--redis", wrong]);
        run.assert_failed("valid");
        assert!(!run.stderr.contains("hunter2"), "{}", run.stderr);
    }
    assert!(!refused.stderr.contains("hunter2"), "{}", refused.stderr);
}
