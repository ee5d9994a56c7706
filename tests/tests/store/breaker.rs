//! The circuit breaker of `RedisStore`: what opens it, what it saves while it is open, and what
//! closes it.

use std::{
    collections::BTreeSet,
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    time::{Duration, Instant},
};

use deadpool_redis::{Config, Runtime};
use tollgate::{ErrorKind, Limiter, Outage, Policy, Quota, RedisStore};
use tollgate_test_support::{PATIENCE, connected_store, decided, opened_store, remaining};
use tollgate_tests::{Mode, Proxy, RedisServer, ports, refusing_state, wait};

/// A deadline that a paused server always misses.
pub(crate) const SHORT: Duration = Duration::from_millis(30);

/// So large and slow that no unit accrues and no check is denied while a test runs.
const LARGE: Policy = Policy::window_from_first_hit("large", Quota::per_day(1_000_000));

pub(crate) fn limiter(store: &RedisStore, deadline: Duration, outage: Outage) -> Limiter {
    Limiter::builder(store.clone())
        .policies(LARGE)
        .deadline(deadline)
        .on_outage(outage)
        .build()
}

pub(crate) async fn spent(limiter: &Limiter, key: &str) -> u64 {
    1_000_000 - remaining(limiter, key).await
}

pub(crate) async fn available_again(store: &RedisStore) {
    wait::until_async("a probe to be answered", PATIENCE, async || {
        store.is_available()
    })
    .await;
}

#[tokio::test]
async fn three_timeouts_open_the_breaker_and_then_nothing_is_sent_and_nothing_waits() {
    let server = RedisServer::start();
    let store = connected_store(server.url()).await;
    // No replica is counted, so each call of a script is a check.
    let (patient, short) = (
        limiter(&store, PATIENCE, Outage::Closed),
        limiter(&store, SHORT, Outage::local(1)),
    );
    assert_eq!(spent(&patient, "acme").await, 0);
    let before = server.calls("evalsha");
    server.pause();
    for miss in 1..=3 {
        assert!(store.is_available(), "before miss {miss}");
        let decision = short.check("acme").await.expect("the local share decides");
        assert_eq!(decision.degraded(), Some(ErrorKind::Timeout));
    }
    assert!(!store.is_available());
    for _ in 0..10_000 {
        let decision = short
            .check("acme")
            .into_future()
            .into_ready()
            .expect("at once")
            .expect("the local share decides");
        assert_eq!(decision.degraded(), Some(ErrorKind::CircuitOpen));
    }
    server.resume();
    available_again(&store).await;
    assert_eq!(spent(&patient, "acme").await, 3);
    // All three were sent, and none of the 10 000. The peek and a count of the replicas are calls,
    // too.
    let sent = server.calls("evalsha") - before;
    assert!((3..10).contains(&sent), "{sent} calls");
}

#[tokio::test]
async fn a_check_with_an_open_breaker_is_decided_at_once_and_takes_no_more_allocations_than_in_process()
 {
    let store = RedisStore::open(format!("redis://127.0.0.1:{}", ports::free())).expect("a store");
    let away = limiter(&store, PATIENCE, Outage::default());
    let local = Limiter::new(tollgate::MemoryStore::new(), LARGE);
    assert_eq!(
        away.check("acme").await.expect("a decision").degraded(),
        Some(ErrorKind::ConnectionRefused)
    );
    assert!(!store.is_available());
    let allocations = |limiter: &Limiter| {
        let decide = || {
            assert!(
                limiter
                    .check("acme")
                    .into_future()
                    .into_ready()
                    .expect("at once")
                    .is_ok()
            );
        };
        // The first check stores the state of the key.
        decide();
        allocation_counter::measure(decide).count_total
    };
    assert_eq!(
        (allocations(&away), allocations(&local)),
        (0, 0),
        "allocations of a check"
    );
}

#[tokio::test]
async fn checks_that_wait_when_the_breaker_opens_are_answered_at_once() {
    let server = RedisServer::start();
    let store = connected_store(server.url()).await;
    let (patient, short) = (
        limiter(&store, PATIENCE * 3, Outage::Closed),
        limiter(&store, SHORT, Outage::Open),
    );
    assert_eq!(spent(&patient, "acme").await, 0);
    server.pause();
    // More checks than are sent at once: the rest waits in the queue.
    let waiting: Vec<_> = (0..2_000_u64)
        .map(|key| {
            let patient = patient.clone();
            tokio::spawn(async move { patient.check(key).await })
        })
        .collect();
    for _ in 0..3 {
        assert_eq!(
            short.check("acme").await.expect("open").degraded(),
            Some(ErrorKind::Timeout)
        );
    }
    assert!(!store.is_available());
    let mut errors = BTreeSet::new();
    for waiting in waiting {
        // A check that a slow machine starts only now is refused by the open breaker.
        let error = waiting.await.expect("a task").expect_err("no decision");
        errors.insert((error.kind().as_str(), error.to_string()));
    }
    assert!(
        errors.contains(&("timeout", "redis did not answer in time".to_owned())),
        "{errors:?}"
    );
    assert!(
        errors
            .iter()
            .all(|(reason, _)| ["timeout", "breaker"].contains(reason)),
        "{errors:?}"
    );
    server.resume();
    available_again(&store).await;
    assert!(patient.check("other").await.is_ok());
}

#[tokio::test]
async fn a_check_dropped_before_its_deadline_is_no_timeout() {
    let server = RedisServer::start();
    let store = connected_store(server.url()).await;
    let patient = limiter(&store, PATIENCE, Outage::Closed);
    assert_eq!(spent(&patient, "acme").await, 0);
    server.pause();
    for _ in 0..20 {
        let mut check = pin!(patient.check("acme").into_future());
        let is_pending = poll_fn(|cx| Poll::Ready(check.as_mut().poll(cx).is_pending())).await;
        assert!(is_pending);
    }
    assert!(store.is_available());
    server.resume();
    assert!(patient.check("acme").await.is_ok());
}

#[tokio::test]
async fn answers_between_timeouts_keep_the_breaker_closed() {
    let server = RedisServer::start();
    let store = connected_store(server.url()).await;
    let (patient, short) = (
        limiter(&store, PATIENCE, Outage::Closed),
        limiter(&store, SHORT, Outage::Open),
    );
    for _ in 0..4 {
        server.pause();
        for _ in 0..2 {
            assert_eq!(
                short.check("acme").await.expect("open").degraded(),
                Some(ErrorKind::Timeout)
            );
        }
        server.resume();
        assert!(patient.check("acme").await.is_ok());
        assert!(store.is_available());
    }
}

#[tokio::test]
async fn refusals_by_configuration_do_not_open_the_breaker() {
    let server = RedisServer::start();
    let rights = [
        "ACL",
        "SETUSER",
        "less",
        "on",
        ">secret",
        "~tollgate:*",
        "+eval",
        "+evalsha",
        "+get",
        "+ping",
    ];
    assert!(!server.command(&rights).is_error());
    let store = RedisStore::builder(format!("redis://less:secret@{}", server.addr()))
        .connect_timeout(PATIENCE)
        .build()
        .expect("a store");
    let limiter = limiter(&store, PATIENCE, Outage::Closed);
    for _ in 0..10 {
        let error = limiter.check("acme").await.expect_err("a right is missing");
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(store.is_available());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_check_connects_while_the_breaker_is_open_and_one_connection_is_made_after() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    let store = RedisStore::builder(proxy.url())
        .connect_timeout(PATIENCE)
        .connect()
        .await
        .expect("a store");
    // A call on the closing connection may wait for its deadline, which has to be shorter than that
    // of the test.
    let limiter = limiter(&store, PATIENCE / 10, Outage::Open);
    wait::until_async("the store decides", PATIENCE, async || {
        !limiter.check("acme").await.expect("open").is_degraded()
    })
    .await;
    proxy.set(Mode::Refuse);
    wait::until_async("no connection to be had", PATIENCE, async || {
        limiter.check("acme").await.expect("open").is_degraded() && !store.is_available()
    })
    .await;
    let (began, dialled) = (Instant::now(), proxy.accepted());
    for _ in 0..20_000 {
        assert!(limiter.check("acme").await.expect("open").is_degraded());
    }
    let probes = proxy.accepted() - dialled;
    let most = 2 + (began.elapsed().as_millis() / 45) as usize;
    assert!(probes <= most, "{probes} connections for 20000 checks");

    let stats = |name: &str| server.info("stats")[name].parse::<u64>().expect("a number");
    let hammering: Vec<_> = (0..16)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let began = Instant::now();
                while limiter.check("acme").await.expect("open").is_degraded() {
                    assert!(began.elapsed() < PATIENCE, "the store never decides again");
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    let before = stats("total_connections_received");
    proxy.set(Mode::Pass);
    for task in hammering {
        task.await.expect("a task");
    }
    assert_eq!(
        stats("total_connections_received") - before,
        1,
        "for 16 tasks"
    );
}

/// The late answers to two checks are refusals. So two more timeouts are not three in a row.
#[tokio::test]
async fn a_refusal_is_an_answer_between_timeouts() {
    let server = RedisServer::start();
    let store = connected_store(server.url()).await;
    let (patient, short) = (
        limiter(&store, PATIENCE, Outage::Closed),
        limiter(&store, SHORT, Outage::Open),
    );
    assert!(patient.check("acme").await.is_ok());
    refusing_state::OUT_OF_MEMORY.enter(&server);
    for round in 1..=3 {
        server.pause();
        for _ in 0..2 {
            assert_eq!(
                short.check("acme").await.expect("open").degraded(),
                Some(ErrorKind::Timeout)
            );
        }
        assert!(store.is_available(), "round {round}");
        server.resume();
        // The answers come in order, so both late answers are here.
        let error = patient
            .check("acme")
            .await
            .expect_err("the server has no memory");
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    }
}

#[tokio::test]
async fn a_check_is_charged_once_at_most_through_a_stall() {
    let server = RedisServer::start();
    let store = connected_store(server.url()).await;
    let (patient, short) = (
        limiter(&store, PATIENCE, Outage::Closed),
        limiter(&store, SHORT, Outage::default()),
    );
    for stall in [150, 700, 1_500].map(Duration::from_millis) {
        let key = format!("{stall:?}");
        // Both scripts are loaded, so that every call that is sent is charged.
        for warm in [1, 4] {
            let callers: Vec<_> = (0..warm)
                .map(|_| tokio::spawn(patient.check("warm").into_future()))
                .collect();
            for caller in callers {
                assert!(caller.await.expect("a task").is_ok());
            }
        }
        server.pause();
        let began = Instant::now();
        let mut calls = 0;
        while calls == 0 || began.elapsed() < stall {
            let callers: Vec<_> = (0..4)
                .map(|_| tokio::spawn(short.check(key.as_str()).into_future()))
                .collect();
            for caller in callers {
                assert!(
                    caller
                        .await
                        .expect("a task")
                        .expect("the local share decides")
                        .is_degraded()
                );
                calls += 1;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        server.resume();
        available_again(&store).await;
        let charged = spent(&patient, &key).await;
        assert!(charged <= calls);
        assert!(
            (1..=8).contains(&charged),
            "the calls sent before the breaker opened: {charged}"
        );
    }
}

#[test]
fn an_outage_does_not_outlive_the_runtime_that_probed() {
    let server = RedisServer::start();
    let store = opened_store(server.url());
    let short = limiter(&store, SHORT, Outage::Open);
    let run = |work: &dyn Fn() -> std::pin::Pin<Box<dyn Future<Output = ()>>>| {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime")
            .block_on(work());
    };
    server.pause();
    let one = short.clone();
    run(&|| {
        let short = one.clone();
        Box::pin(async move {
            while short.check("acme").await.expect("open").degraded()
                != Some(ErrorKind::CircuitOpen)
            {}
        })
    });
    assert!(
        store.is_available(),
        "no probe is left, so checks are sent again"
    );
    // The second time one timeout is enough.
    run(&|| {
        let short = short.clone();
        Box::pin(async move {
            let mut reasons = Vec::new();
            while !reasons.contains(&"breaker") && reasons.len() < 10 {
                reasons.extend(
                    decided(&short, "acme")
                        .await
                        .degraded()
                        .map(ErrorKind::as_str),
                );
            }
            assert_eq!(reasons, ["timeout", "breaker"]);
        })
    });
    server.resume();
    let patient = limiter(&store, PATIENCE, Outage::Closed);
    run(&|| {
        let patient = patient.clone();
        Box::pin(async move {
            wait::until_async("the store decides", PATIENCE, async || {
                patient.check("acme").await.is_ok()
            })
            .await;
        })
    });
}

/// A demoted master still answers PING, so a pool would lend its connection for ever.
#[tokio::test]
async fn a_replica_refuses_once_per_connection() {
    let server = RedisServer::start();
    let pool = Config::from_url(server.url())
        .create_pool(Some(Runtime::Tokio1))
        .expect("a pool");
    for store in [opened_store(server.url()), opened_store(pool.clone())] {
        server.command(&["CONFIG", "RESETSTAT"]);
        let limiter = limiter(&store, PATIENCE, Outage::Closed);
        assert!(limiter.check("acme").await.is_ok());
        server.command(&["REPLICAOF", "127.0.0.1", "1"]);
        let refused = || {
            let errors = server.info("errorstats");
            errors.get("errorstat_READONLY").map_or(0, |it| {
                it.trim_start_matches("count=").parse().expect("a number")
            })
        };
        wait::until_async("three refusals", PATIENCE, async || {
            let error = limiter.check("acme").await.expect_err("a replica");
            assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
            refused() >= 3
        })
        .await;
        let connections: u64 = server.info("stats")["total_connections_received"]
            .parse()
            .expect("a number");
        // The first connection of the pool was made before the statistics were reset.
        assert!(
            refused() <= connections + 1,
            "{} READONLY on {connections} connections",
            refused()
        );
        server.command(&["REPLICAOF", "NO", "ONE"]);
        wait::until_async("the store decides again", PATIENCE, async || {
            limiter.check("acme").await.is_ok()
        })
        .await;
    }
    assert!(pool.status().size <= 1, "{:?}", pool.status());
}
