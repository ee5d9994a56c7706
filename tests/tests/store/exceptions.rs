//! Exceptions of a store on a server that fails, or forgets.

use std::{num::NonZeroU32, time::Duration};

use tollgate::{
    ErrorKind, Lease, Limiter, Outage, Policy, Quota, RedisStore,
    limiter::Replicas,
    store::{Clock, ExceptionChange},
};
use tollgate_test_support::PATIENCE;
use tollgate_tests::{RedisServer, wait};

use crate::suite::exceptions::{exception, replica, until};

const TEN: Quota = Quota::per_day(10);

async fn store(server: &RedisServer) -> RedisStore {
    let store = RedisStore::connect(server.url()).await;
    store.expect("a store")
}

/// Lets the server fail in this way while an exception is in force, and waits for its end.
async fn ends_in_an_outage(fail: fn(&RedisServer)) -> (RedisServer, Limiter) {
    let server = RedisServer::start();
    let limiter = Limiter::builder(store(&server).await)
        .policies(Policy::window_from_first_hit("daily", Quota::per_day(5)))
        .on_outage(Outage::Local {
            replicas: Replicas::Fixed(NonZeroU32::MIN),
        })
        .published()
        .build();
    let lasts = Duration::from_secs(6);
    let granted = exception("acme", ExceptionChange::Quota(TEN), lasts);
    limiter.grant_exception(granted).await.expect("a grant");
    until(&limiter, "acme", TEN).await;
    fail(&server);
    wait::until_async("an outage", PATIENCE, async || quota(&limiter).await.0).await;
    wait::until_async("the end of the exception", PATIENCE, async || {
        quota(&limiter).await == (true, Quota::per_day(5))
    })
    .await;
    (server, limiter)
}

/// Returns whether a check is decided by the outage rule, and its quota.
async fn quota(limiter: &Limiter) -> (bool, Quota) {
    let decision = limiter.check("acme").await.expect("a decision");
    let state = decision.state("daily").expect("a state");
    (decision.is_degraded(), state.policy().quota())
}

#[tokio::test]
async fn an_exception_ends_in_time_although_the_server_is_gone() {
    ends_in_an_outage(RedisServer::kill).await;
}

/// A server that stands still forgets nothing: what has ended meanwhile does not come back, and what
/// was granted for longer is in force as before.
#[tokio::test]
async fn an_exception_ends_in_time_although_the_server_stands_still() {
    let (server, limiter) = ends_in_an_outage(RedisServer::pause).await;
    server.resume();
    wait::until_async("the store", PATIENCE, async || !quota(&limiter).await.0).await;
    assert_eq!(quota(&limiter).await.1, Quota::per_day(5));
    let hour = Duration::from_secs(3_600);
    let granted = exception("acme", ExceptionChange::Quota(TEN), hour);
    limiter.grant_exception(granted).await.expect("a grant");
    until(&limiter, "acme", TEN).await;
    server.pause();
    wait::until_async("an outage", PATIENCE, async || quota(&limiter).await.0).await;
    assert_eq!(
        quota(&limiter).await.1,
        TEN,
        "it is in force without the store"
    );
    server.resume();
    wait::until_async("the store", PATIENCE, async || !quota(&limiter).await.0).await;
    until(&limiter, "acme", TEN).await;
}

#[tokio::test]
async fn the_clock_of_a_replica_does_not_matter_and_a_server_that_forgets_has_no_exceptions() {
    let server = RedisServer::start();
    let limiters = [replica(store(&server).await), replica(store(&server).await)];
    let hour = Duration::from_secs(3_600);
    for key in ["acme", "other"] {
        let granted = exception(key, ExceptionChange::Quota(TEN), hour);
        limiters[0].grant_exception(granted).await.expect("a grant");
    }
    for limiter in &limiters {
        until(limiter, "other", TEN).await;
    }
    server.command(&["FLUSHALL"]);
    for limiter in &limiters {
        until(limiter, "acme", Quota::per_day(5)).await;
    }
    // What is granted anew is known, although the versions of the server began again.
    let again = exception("acme", ExceptionChange::Quota(TEN), hour);
    limiters[1].grant_exception(again).await.expect("a grant");
    for limiter in &limiters {
        until(limiter, "acme", TEN).await;
        until(limiter, "other", Quota::per_day(5)).await;
    }
    // A store with a clock of its own goes by that, which is decades behind here.
    let clock = Clock::manual(1_000_000);
    let by_clock = RedisStore::builder(server.url())
        .prefix("by-clock")
        .clock(clock.clone())
        .connect()
        .await
        .expect("a store");
    let limiter = replica(by_clock);
    let granted = exception("acme", ExceptionChange::Quota(TEN), hour);
    limiter.grant_exception(granted).await.expect("a grant");
    until(&limiter, "acme", TEN).await;
    clock.advance(hour);
    until(&limiter, "acme", Quota::per_day(5)).await;
}

#[tokio::test]
async fn a_store_keeps_some_thousand_exceptions_and_refuses_more() {
    let server = RedisServer::start();
    let limiter = replica(store(&server).await);
    // Written at once, as a grant writes them.
    let most = tollgate::store::ExceptionList::MAX;
    let line = |at: usize| {
        format!("daily\tdaily\tc{at}\t8999999999000000\t9000000000000000\tfactor 2\tann\ta move")
    };
    for at in 0..most {
        let name = format!("daily\tdaily\tc{at}");
        server.command(&["HSET", "tollgate:{replicas}:exceptions", &name, &line(at)]);
    }
    server.command(&["HSET", "tollgate:{replicas}:exceptions", "", "by hand"]);
    let grant = async |key: &str| {
        let granted = exception(key, ExceptionChange::Factor(3.0), Duration::from_secs(60));
        limiter.grant_exception(granted).await
    };
    let error = grant("one-more").await.expect_err("a refusal");
    assert_eq!(error.kind(), ErrorKind::Full);
    assert_eq!(
        error.to_string(),
        "exceptions of a store must be at most 4096, and no further one is granted"
    );
    assert_eq!(limiter.exceptions().await.expect("a list").len(), most);
    // All of them are in force, and one of them can be changed.
    until(&limiter, "c4095", TEN).await;
    grant("c7")
        .await
        .expect("a change")
        .expect("the one before");
    until(&limiter, "c7", Quota::per_day(15)).await;
}

#[tokio::test]
async fn a_leased_policy_gives_a_key_no_more_than_its_exception_says() {
    let server = RedisServer::start();
    let policy = Policy::window_from_first_hit("daily", Quota::per_day(800)).leased(Lease::new());
    let limiter = Limiter::builder(store(&server).await)
        .policies(policy)
        .deadline(PATIENCE)
        .published()
        .build();
    let mut admitted = 0;
    let mut spend = async |most: usize| {
        for _ in 0..most {
            let decision = limiter.check("acme").await.expect("a decision");
            if decision.is_denied() {
                break;
            }
            admitted += 1;
        }
        admitted
    };
    // Some units are held by this process when the exception begins.
    assert_eq!(spend(300).await, 300);
    let twice = exception(
        "acme",
        ExceptionChange::Factor(2.0),
        Duration::from_secs(3_600),
    );
    limiter.grant_exception(twice).await.expect("a grant");
    until(&limiter, "acme", Quota::per_day(1_600)).await;
    // The units that were held before the exception lapse, and count as used until then.
    let admitted = spend(5_000).await;
    assert!((801..=1_600).contains(&admitted), "{admitted}");
}

/// A line of another program beside the exceptions hides none of them, and is dropped at the next
/// grant.
#[tokio::test]
async fn a_foreign_line_hides_no_exception() {
    let server = RedisServer::start();
    let limiter = Limiter::builder(store(&server).await)
        .policies(Policy::window_from_first_hit("daily", Quota::per_day(5)))
        .name("api")
        .published()
        .build();
    let key = b"tollgate:{replicas}:exceptions" as &[u8];
    for (field, line) in [
        ("bytes", b"\xff\xfe\t\x00" as &[u8]),
        (
            "parts",
            b"api\tdaily\tacme\t1\t99999999999999999999\tquota 9/day\tann\t\xff",
        ),
        ("lines", b"a\nb\r\n"),
    ] {
        server.command(&[b"HSET" as &[u8], key, field.as_bytes(), line]);
    }
    server.command(&[b"HSET" as &[u8], key, b"", b"1"]);
    assert_eq!(limiter.exceptions().await.expect("a list"), []);
    let hour = Duration::from_secs(3_600);
    let granted = exception("acme", ExceptionChange::Quota(TEN), hour);
    limiter.grant_exception(granted).await.expect("a grant");
    until(&limiter, "acme", TEN).await;
    server.command(&[b"HSET" as &[u8], key, b"later", b"\xff"]);
    server.command(&[b"HSET" as &[u8], key, b"", b"2"]);
    assert_eq!(limiter.exceptions().await.expect("a list").len(), 1);
}
