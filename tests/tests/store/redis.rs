//! `RedisStore` as an application uses it: against a real server, on its clock.

use std::time::{Duration, Instant};

use deadpool_redis::{Config, Runtime};
use tollgate::{Cost, ErrorKind, Limiter, Outage, Policy, Quota, RedisStore};
use tollgate_tests::RedisServer;

/// Long enough that a slow machine never decides without the server by mistake.
const PATIENT: Duration = Duration::from_secs(20);

/// So slow that nothing accrues while a test runs.
const HOURLY: Policy = Policy::token_bucket("hourly", Quota::per_hour(5));

fn limiter(store: RedisStore, policy: Policy) -> Limiter {
    Limiter::builder(store).policies(policy).deadline(PATIENT).on_outage(Outage::Closed).build()
}

async fn remaining(limiter: &Limiter, key: &str) -> u64 {
    limiter.peek(key).await.expect("a decision").states().next().expect("a state").remaining()
}

#[tokio::test]
async fn replicas_share_one_limit() {
    let server = RedisServer::start();
    let mut passed = 0;
    for replica in 0..5 {
        let store = RedisStore::connect(server.url()).await.expect("a store");
        let limiter = limiter(store, HOURLY);
        for _ in 0..=replica {
            passed += u64::from(limiter.check("acme").await.expect("a decision").is_allowed());
        }
    }
    assert_eq!(passed, 5);
}

#[tokio::test]
async fn one_decision_is_one_call_and_a_denial_writes_nothing() {
    let server = RedisServer::start();
    let store = RedisStore::builder(server.url()).without_deny_cache().build().expect("a store");
    let set = [
        HOURLY,
        Policy::fixed_window("daily", Quota::per_day(100)),
        Policy::window_from_first_hit("hit", Quota::per_day(100)),
    ];
    let limiter = Limiter::builder(store).policies(set).deadline(PATIENT).on_outage(Outage::Closed).build();
    // The first call carries the script.
    assert!(limiter.check("acme").await.expect("a decision").is_allowed());
    // Within one window or second, what is charged is written in place.
    let written = || server.calls("set") + server.calls("setrange");
    let (scripts, writes) = (server.calls("evalsha"), written());
    for _ in 0..4 {
        assert!(limiter.check("acme").await.expect("a decision").is_allowed());
    }
    assert_eq!(server.calls("evalsha"), scripts + 4);
    assert_eq!(written(), writes + 3 * 4);
    for _ in 0..10 {
        assert!(limiter.check("acme").await.expect("a decision").is_denied());
    }
    assert_eq!(server.calls("evalsha"), scripts + 14);
    assert_eq!(written(), writes + 3 * 4, "a denial wrote");
    assert_eq!(server.calls("eval"), 1);
    let (keys, expires) = server.keys_and_expires();
    assert_eq!((keys, expires), (3, 3), "every key expires");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_are_admitted_exactly_the_burst() {
    let server = RedisServer::start();
    let store = RedisStore::connect(server.url()).await.expect("a store");
    let limiter = limiter(store, Policy::token_bucket("hot", Quota::per_hour(100)));
    let tasks: Vec<_> = (0..1_000)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.check("acme").await.expect("a decision").is_allowed() })
        })
        .collect();
    let mut passed = 0;
    for task in tasks {
        passed += u64::from(task.await.expect("a task"));
    }
    assert_eq!(passed, 100);
}

#[tokio::test]
async fn a_pool_is_asked_once_and_never_pinged_per_decision() {
    let server = RedisServer::start();
    let pool = Config::from_url(server.url()).create_pool(Some(Runtime::Tokio1)).expect("a pool");
    let limiter = limiter(RedisStore::from_pool(pool.clone()), Policy::token_bucket("api", Quota::per_hour(1_000)));
    for _ in 0..200 {
        assert!(limiter.check("acme").await.expect("a decision").is_allowed());
    }
    assert_eq!(server.calls("ping"), 0);
    assert_eq!(pool.status().size, 1);
    assert_eq!(pool.status().available, 0, "the connection stays lent");
}

#[tokio::test]
async fn a_refund_and_a_reset_reach_the_server() {
    let server = RedisServer::start();
    let limiter = limiter(RedisStore::connect(server.url()).await.expect("a store"), HOURLY);
    let decision = limiter.check_cost("acme", Cost::new(4)).await.expect("a decision");
    limiter.refund_decision("acme", &decision, Cost::new(3)).await.expect("a refund");
    assert_eq!(remaining(&limiter, "acme").await, 4);
    limiter.refund("acme", Cost::new(100)).await.expect("a refund");
    assert_eq!(remaining(&limiter, "acme").await, 5);
    let _ = limiter.check_cost("acme", Cost::new(5)).await.expect("a decision");
    limiter.reset("acme").await.expect("a reset");
    assert_eq!(remaining(&limiter, "acme").await, 5);
    assert_eq!(server.keys_and_expires(), (0, 0));
}

#[tokio::test]
async fn a_cost_that_never_fits_does_not_reach_the_server() {
    let server = RedisServer::start();
    let limiter = limiter(RedisStore::connect(server.url()).await.expect("a store"), HOURLY);
    let error = limiter.check_cost("acme", Cost::new(6)).await.expect_err("no decision");
    assert_eq!(error.kind(), ErrorKind::CostExceedsBurst);
    assert_eq!(error.to_string(), "cost 6 exceeds the burst 5 of policy hourly");
    assert_eq!(server.calls("evalsha") + server.calls("eval"), 0);
}

#[test]
fn a_bad_url_or_prefix_is_refused_without_its_text() {
    for url in ["", "127.0.0.1", "http://user:hunter2@host", "redis://user:hunter2@host:port", "redis://:hunter2@[::1"]
    {
        let error = RedisStore::open(url).expect_err(url);
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().starts_with("the redis URL does not parse"), "{error}");
        assert!(!format!("{error:?} {error}").contains("hunter2"));
    }
    for prefix in ["", "a{b", "a b", "a\r\n"] {
        let error = RedisStore::builder("redis://127.0.0.1").prefix(prefix).build().expect_err(prefix);
        assert!(error.to_string().starts_with("prefix must be"), "{error}");
    }
    let store = RedisStore::open("redis://user:hunter2@127.0.0.1/").expect("a store");
    assert!(!format!("{store:?}").contains("hunter2"));
}

#[tokio::test]
async fn stores_with_different_prefixes_do_not_share() {
    let server = RedisServer::start();
    let store = |prefix: &str| RedisStore::builder(server.url()).prefix(prefix).build().expect("a store");
    let (one, other) = (limiter(store("one"), HOURLY), limiter(store("other"), HOURLY));
    let _ = one.check(("acme", 7_u64)).await.expect("a decision");
    assert_eq!(other.peek(("acme", 7_u64)).await.expect("a decision").states().next().expect("a state").remaining(), 5);
    assert_eq!(server.command(&["KEYS", "*"]).items()[0].text(), "one:{acme,#7}:hourly:t1");
}

#[tokio::test]
async fn a_repeated_denial_does_not_reach_the_server() {
    let server = RedisServer::start();
    let store = RedisStore::connect(server.url()).await.expect("a store");
    let policies =
        [HOURLY, Policy::fixed_window("daily", Quota::per_day(100)), Policy::sliding_log("log", Quota::per_day(9))];
    let limiter =
        Limiter::builder(store.clone()).policies(policies).on_outage(Outage::Closed).deadline(PATIENT).build();
    for _ in 0..5 {
        assert!(limiter.check("acme").await.expect("a decision").is_allowed());
    }
    let first = limiter.check("acme").await.expect("a decision");
    assert!(first.is_denied());
    let calls = server.calls("evalsha");
    let began = Instant::now();
    for _ in 0..100 {
        let decision = limiter.check("acme").into_ready().expect("known at once").expect("a decision");
        assert!(decision.is_denied() && !decision.is_degraded());
        for (state, first) in decision.states().zip(first.states()) {
            assert_eq!(state.remaining(), first.remaining());
            assert_eq!(state.is_exceeded(), first.is_exceeded());
            let (reset, at_first) = (state.reset_after(), first.reset_after());
            assert!(reset <= at_first && reset + PATIENT > at_first, "{reset:?} {at_first:?}");
        }
        let (retry, at_first) = (decision.retry_after().expect("denied"), first.retry_after().expect("denied"));
        assert!(retry <= at_first && retry + began.elapsed() + PATIENT > at_first);
    }
    assert_eq!(server.calls("evalsha"), calls, "the server was asked");
    // Another cost, another key, other policies are other questions.
    assert!(limiter.check_cost("acme", Cost::new(2)).into_ready().is_err());
    assert!(limiter.check("other").into_ready().is_err());
    assert!(limiter.peek("acme").into_ready().is_err());
    // What gives units back here is seen here at once.
    limiter.refund("acme", Cost::ONE).await.expect("a refund");
    assert!(limiter.check("acme").await.expect("a decision").is_allowed());
    assert!(limiter.check("acme").await.expect("a decision").is_denied());
    limiter.reset("acme").await.expect("a reset");
    assert!(limiter.check("acme").await.expect("a decision").is_allowed());
}

#[tokio::test]
async fn a_remembered_denial_ends_when_the_wait_does() {
    let server = RedisServer::start();
    let store = RedisStore::connect(server.url()).await.expect("a store");
    for policy in [
        Policy::token_bucket("bucket", Quota::new(1, Duration::from_millis(80))),
        Policy::window_from_first_hit("hit", Quota::new(1, Duration::from_millis(80))),
        Policy::sliding_log("log", Quota::new(1, Duration::from_millis(80))),
        Policy::sliding_window("window", Quota::new(1, Duration::from_millis(80))),
    ] {
        let limiter = limiter(store.clone(), policy);
        let began = Instant::now();
        let mut admitted = 0;
        while admitted < 5 {
            match limiter.check("acme").await.expect("a decision").retry_after() {
                None => admitted += 1,
                // Waiting as told, with what a timer may be early.
                Some(wait) => tokio::time::sleep(wait + Duration::from_millis(1)).await,
            }
            assert!(began.elapsed() < PATIENT, "{:?} never lets go", limiter.policies());
        }
        assert!(began.elapsed() >= Duration::from_millis(4 * 80), "{:?}", limiter.policies());
    }
}

#[tokio::test]
async fn a_denial_is_remembered_up_to_the_cap() {
    let server = RedisServer::start();
    for (cap, pause, is_asked) in [
        (Duration::from_secs(3_600), Duration::from_millis(1_100), false),
        (Duration::from_millis(10), Duration::from_millis(20), true),
        (Duration::ZERO, Duration::ZERO, true),
    ] {
        let store = RedisStore::builder(server.url()).deny_cache_cap(cap).connect().await.expect("a store");
        let limiter = limiter(store, Policy::token_bucket("hourly", Quota::per_hour(1)));
        let key = format!("{cap:?}");
        assert!(limiter.check(&*key).await.expect("a decision").is_allowed());
        assert!(limiter.check(&*key).await.expect("a decision").is_denied());
        let before = server.calls("evalsha");
        tokio::time::sleep(pause).await;
        assert!(limiter.check(&*key).await.expect("a decision").is_denied());
        assert_eq!(server.calls("evalsha") - before, u64::from(is_asked), "{cap:?}");
    }
}
