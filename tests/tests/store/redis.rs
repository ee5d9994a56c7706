//! `RedisStore` at one server: pools, URLs, and the cache of denials. What holds on every
//! deployment: `suite`.

use std::time::{Duration, Instant};

use deadpool_redis::{Config, Runtime};
use tollgate::{Cost, ErrorKind, Policy, Quota, RedisStore};
use tollgate_test_support::{PATIENCE, connected_store, decided, opened_store, patient_limiter};
use tollgate_tests::RedisServer;

/// So slow that no unit accrues while a test runs.
const HOURLY: Policy = Policy::token_bucket("hourly", Quota::per_hour(5));

#[tokio::test]
async fn a_pool_lends_one_connection_and_no_decision_pings() {
    let server = RedisServer::start();
    let pool = Config::from_url(server.url())
        .create_pool(Some(Runtime::Tokio1))
        .expect("a pool");
    let limiter = patient_limiter(
        RedisStore::open(pool.clone()).expect("a store"),
        Policy::token_bucket("api", Quota::per_hour(1_000)),
    );
    for _ in 0..200 {
        assert!(decided(&limiter, "acme").await.is_allowed());
    }
    // The server answers once before the connection is used. A connection that rests is asked
    // again, also on a busy machine.
    let pings = server.calls("ping");
    assert!((1..20).contains(&pings), "{pings} of 200 decisions pinged");
    assert_eq!(pool.status().size, 1);
    assert_eq!(pool.status().available, 0, "the connection stays lent");
}

#[tokio::test]
async fn a_cost_that_never_fits_does_not_reach_the_server() {
    let server = RedisServer::start();
    let limiter = patient_limiter(opened_store(server.url()), HOURLY);
    let error = limiter
        .check("acme")
        .cost(Cost::new(6))
        .await
        .expect_err("no decision");
    assert_eq!(error.kind(), ErrorKind::CostExceedsBurst);
    assert_eq!(
        error.to_string(),
        "cost 6 exceeds the burst 5 of policy hourly"
    );
    assert_eq!(server.calls("evalsha") + server.calls("eval"), 0);
}

#[test]
fn a_bad_url_or_prefix_is_refused_without_its_text() {
    for url in [
        "",
        "127.0.0.1",
        "http://user:hunter2@host",
        "redis://user:hunter2@host:port",
        "redis://:hunter2@[::1",
    ] {
        let error = RedisStore::open(url).expect_err(url);
        assert_eq!(error.kind(), ErrorKind::Config);
        let message = error.to_string();
        assert!(
            message.starts_with("the redis URL is not valid")
                || message.starts_with("the URL scheme must be"),
            "{error}"
        );
        assert!(!format!("{error:?} {error}").contains("hunter2"));
    }
    for prefix in ["", "a{b", "a b", "a\r\n"] {
        let error = RedisStore::builder("redis://127.0.0.1")
            .prefix(prefix)
            .build()
            .expect_err(prefix);
        assert!(error.to_string().starts_with("prefix must be"), "{error}");
    }
    let store = RedisStore::open("redis://user:hunter2@127.0.0.1/").expect("a store");
    assert!(!format!("{store:?}").contains("hunter2"));
}

#[test]
fn a_time_for_connecting_of_zero_or_above_a_day_is_refused() {
    const DAY: Duration = Duration::from_secs(86_400);
    for url in [
        "redis://127.0.0.1:1",
        "redis+sentinel://127.0.0.1:1/m",
        "redis+cluster://127.0.0.1:1",
    ] {
        let build = |timeout| RedisStore::builder(url).connect_timeout(timeout).build();
        let above = DAY + Duration::from_nanos(1);
        for wrong in [Duration::ZERO, above, Duration::MAX] {
            assert_eq!(
                build(wrong).expect_err(url).to_string(),
                format!("connect_timeout must be above 0 and at most 1 day, got {wrong:?}")
            );
        }
        assert!(build(DAY).is_ok(), "{url}");
    }
    for wrong in ["0", "25h"] {
        let error = RedisStore::open(format!("redis://127.0.0.1:1?connect_timeout={wrong}"));
        assert!(
            error.is_err_and(|error| error.kind() == ErrorKind::Config),
            "{wrong}"
        );
    }
}

/// Returns a store that remembers a denial for longer than a test takes, also on a busy machine.
async fn remembering(server: &RedisServer) -> RedisStore {
    RedisStore::builder(server.url())
        .deny_cache_cap(Duration::from_secs(3_600))
        .connect()
        .await
        .expect("a store")
}

#[tokio::test]
async fn a_repeated_denial_does_not_reach_the_server() {
    let server = RedisServer::start();
    let store = remembering(&server).await;
    let policies = [
        HOURLY,
        Policy::fixed_window("daily", Quota::per_day(100)),
        Policy::sliding_log("log", Quota::per_day(9)),
    ];
    let limiter = patient_limiter(store, policies);
    for _ in 0..5 {
        assert!(decided(&limiter, "acme").await.is_allowed());
    }
    let first = limiter.check("acme").await.expect("a decision");
    assert!(first.is_denied());
    let calls = server.calls("evalsha");
    let began = Instant::now();
    for _ in 0..100 {
        let decision = limiter
            .check("acme")
            .into_future()
            .into_ready()
            .expect("known at once")
            .expect("a decision");
        assert!(decision.is_denied() && !decision.is_degraded());
        for (state, first) in decision.states().zip(first.states()) {
            assert_eq!(state.remaining(), first.remaining());
            assert_eq!(state.is_exceeded(), first.is_exceeded());
            let (reset, at_first) = (state.reset_after(), first.reset_after());
            assert!(
                reset <= at_first && reset + PATIENCE > at_first,
                "{reset:?} {at_first:?}"
            );
        }
        let (retry, at_first) = (
            decision.retry_after().expect("denied"),
            first.retry_after().expect("denied"),
        );
        assert!(retry <= at_first && retry + began.elapsed() + PATIENCE > at_first);
    }
    assert_eq!(server.calls("evalsha"), calls, "a cached denial was sent");
    // Another cost, another key and a peek are not in the cache.
    assert!(
        limiter
            .check("acme")
            .cost(Cost::new(2))
            .into_future()
            .into_ready()
            .is_err()
    );
    assert!(limiter.check("other").into_future().into_ready().is_err());
    let _ = limiter.peek("acme").await.expect("a state");
    assert_eq!(server.calls("evalsha"), calls + 1, "a peek is sent");
    // A refund and a reset through this store are effective at once.
    limiter.refund("acme", Cost::ONE).await.expect("a refund");
    assert!(decided(&limiter, "acme").await.is_allowed());
    assert!(limiter.check("acme").await.expect("a decision").is_denied());
    limiter.reset("acme").await.expect("a reset");
    assert!(decided(&limiter, "acme").await.is_allowed());
}

#[tokio::test]
async fn a_remembered_denial_of_one_limiter_does_not_answer_for_another() {
    let server = RedisServer::start();
    let store = remembering(&server).await;
    let small = patient_limiter(
        store.clone(),
        Policy::token_bucket("small", Quota::per_hour(1)),
    );
    let large = patient_limiter(
        store.clone(),
        Policy::token_bucket("large", Quota::per_hour(10)),
    );
    assert!(small.check("acme").await.expect("a decision").is_allowed());
    for _ in 0..10 {
        assert!(small.check("acme").await.expect("a decision").is_denied());
        assert!(large.check("acme").await.expect("a decision").is_allowed());
    }
    assert!(large.check("acme").await.expect("a decision").is_denied());
    // The same policy in a limiter of its own.
    let calls = server.calls("evalsha");
    let clone = patient_limiter(store, Policy::token_bucket("small", Quota::per_hour(1)));
    assert!(clone.check("acme").await.expect("a decision").is_denied());
    assert_eq!(
        server.calls("evalsha"),
        calls,
        "the denial of the same policy is remembered"
    );
}

#[tokio::test]
async fn a_remembered_denial_ends_when_the_wait_does() {
    let server = RedisServer::start();
    let store = connected_store(server.url()).await;
    for policy in [
        Policy::token_bucket("bucket", Quota::new(1, Duration::from_millis(80))),
        Policy::window_from_first_hit("hit", Quota::new(1, Duration::from_millis(80))),
        Policy::sliding_log("log", Quota::new(1, Duration::from_millis(80))),
        Policy::sliding_window("window", Quota::new(1, Duration::from_millis(80))),
    ] {
        let limiter = patient_limiter(store.clone(), policy);
        let began = Instant::now();
        let mut admitted = 0;
        while admitted < 5 {
            match decided(&limiter, "acme").await.retry_after() {
                None => admitted += 1,
                // Waits as the answer says, and as long as a timer may be early.
                Some(wait) => tokio::time::sleep(wait + Duration::from_millis(1)).await,
            }
            assert!(
                began.elapsed() < PATIENCE,
                "{:?} never lets go",
                limiter.policies()
            );
        }
        assert!(
            began.elapsed() >= Duration::from_millis(4 * 80),
            "{:?}",
            limiter.policies()
        );
    }
}

#[tokio::test]
async fn a_denial_is_remembered_up_to_the_cap() {
    let server = RedisServer::start();
    for (cap, pause, is_asked) in [
        (
            Duration::from_secs(3_600),
            Duration::from_millis(1_100),
            false,
        ),
        (Duration::from_millis(10), Duration::from_millis(20), true),
        (Duration::ZERO, Duration::ZERO, true),
    ] {
        let store = RedisStore::builder(server.url())
            .deny_cache_cap(cap)
            .connect()
            .await
            .expect("a store");
        let limiter = patient_limiter(store, Policy::token_bucket("hourly", Quota::per_hour(1)));
        let key = format!("{cap:?}");
        assert!(limiter.check(&*key).await.expect("a decision").is_allowed());
        assert!(limiter.check(&*key).await.expect("a decision").is_denied());
        let before = server.calls("evalsha");
        tokio::time::sleep(pause).await;
        assert!(limiter.check(&*key).await.expect("a decision").is_denied());
        assert_eq!(
            server.calls("evalsha") - before,
            u64::from(is_asked),
            "{cap:?}"
        );
    }
}
