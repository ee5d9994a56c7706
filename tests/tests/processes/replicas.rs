//! A program that shares a prefix and has other limits is no replica.

use tollgate::{Limiter, Policy, Quota};
use tollgate_test_support::{PATIENCE, connected_store, decided};
use tollgate_tests::{Process, RedisServer, ports, wait};

/// So slow that no unit accrues while a test runs.
const DAILY: Policy = Policy::window_from_first_hit("exports", Quota::per_day(24));

#[tokio::test]
async fn another_program_under_the_same_prefix_takes_no_share_of_a_quota() {
    let server = RedisServer::start();
    let mut command = Process::program("quickstart");
    command
        .env("LISTEN", format!("127.0.0.1:{}", ports::free()))
        .env("REDIS_URL", server.url());
    let _other = Process::start(command, "Try");
    let sets = || {
        server
            .command(&["KEYS", "tollgate:{replicas}*"])
            .items()
            .len()
    };
    wait::until_async("the other program to be counted", PATIENCE, async || {
        sets() > 0
    })
    .await;

    let store = connected_store(server.url()).await;
    let limiter = Limiter::builder(store)
        .policies(DAILY)
        .deadline(PATIENCE)
        .build();
    let calls = server.calls("zcard");
    wait::until_async("three counts", PATIENCE, async || {
        server.calls("zcard") >= calls + 6
    })
    .await;
    server.kill();
    let mut admitted = 0;
    while decided(&limiter, "acme").await.is_allowed() {
        admitted += 1;
    }
    assert_eq!(
        admitted, 24,
        "the whole quota, because no other process has these limits"
    );
}
