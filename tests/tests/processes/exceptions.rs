//! Exceptions on two replicas whose clocks are wrong, and a server whose clock is wrong, too.
#![cfg(target_os = "linux")]

use std::{net::SocketAddr, time::Duration};

use tollgate::{
    Limiter, Policy, Quota, RedisStore,
    store::{Exception, ExceptionChange},
};
use tollgate_tests::{Process, RedisServer, WallClock, ports, wait};

use crate::http;

const PATIENCE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// The policy of the example, whose service does not know that its clock is wrong.
const TENANT: Policy = Policy::token_bucket("tenant", Quota::per_hour(10));

/// The units that a response says are left. `None` without an answer of the limiter.
fn left(address: SocketAddr, tenant: &str) -> Option<u64> {
    let (_, answer) = http::send(address, "GET", "/", &[("X-Tenant", tenant)]);
    let answer = answer.to_ascii_lowercase();
    let field = answer
        .lines()
        .find_map(|line| line.strip_prefix("ratelimit:"));
    let left = field?.split(';').find_map(|part| part.strip_prefix("r="));
    left?.parse().ok()
}

/// An exception is granted for an hour, by the clock of a server that is an hour and a half wrong, to
/// replicas of which one is two hours ahead, and the other two hours behind. So it would never be in
/// force on the one, and last three hours on the other, if they went by their own clocks.
#[tokio::test]
async fn an_exception_begins_and_ends_by_the_clock_of_the_server_however_wrong_all_clocks_are() {
    let clock = WallClock::new();
    clock.back(HOUR * 3 / 2);
    let server = RedisServer::builder().clock(&clock).start();
    let skewed = |skew_us: i64| {
        let own = WallClock::new();
        own.set_offset_us(skew_us);
        let address = SocketAddr::from(([127, 0, 0, 1], ports::free()));
        let mut command = Process::example("console");
        command
            .env("LISTEN", address.to_string())
            .env("REDIS_URL", server.url())
            .envs(own.variables());
        (Process::start(command, "Open"), address, own)
    };
    let replicas = [7_200_000_000, -7_200_000_000].map(skewed);
    let addresses = [replicas[0].1, replicas[1].1];
    let all = |tenant: &str, is_excepted: bool| {
        let has = |left: u64| (left > 10) == is_excepted;
        addresses
            .iter()
            .all(|at| left(*at, tenant).is_some_and(has))
    };
    wait::until("both replicas", PATIENCE, || all("acme", false));

    // This process has the right time, and is none of the replicas.
    let operator = Limiter::builder(RedisStore::connect(server.url()).await.expect("a store"))
        .policies(TENANT)
        .name("tenants")
        .deadline(PATIENCE)
        .build();
    let change = ExceptionChange::Quota(Quota::per_hour(70_000));
    let granted = Exception::new("tenant", "acme", change, HOUR)
        .by("ann")
        .because("a test");
    operator.grant_exception(granted).await.expect("a grant");
    wait::until("the exception on both", PATIENCE, || all("acme", true));
    assert!(all("other", false));

    // Most of the hour passes for the server. Whoever asks it after that has asked with this time.
    clock.forward(HOUR - Duration::from_secs(600));
    let asked = server.calls("hget");
    wait::until("several calls", PATIENCE, || {
        server.calls("hget") >= asked + 6
    });
    assert!(all("acme", true), "it ends by the clock of the server");
    clock.forward(Duration::from_secs(601));
    wait::until("the end on both", PATIENCE, || all("acme", false));
    assert!(operator.exceptions().await.expect("a list").is_empty());
}
