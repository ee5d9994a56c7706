//! A store that several runtimes share: a blocked or ended runtime does not stop checks on another.

use std::{
    future::{IntoFuture, poll_fn},
    pin::pin,
    sync::mpsc,
    task::Poll,
    thread,
    time::{Duration, Instant},
};

use deadpool_redis::Config;
use tokio::runtime::{Builder, Runtime};
use tollgate::{
    Cost, Error, ErrorKind, Limiter, MemoryStore, Outage, Policy, Quota, RedisStore,
    limiter::events::EventReceiver,
    permits::{Concurrency, ConcurrencyLimiter, Permit},
    redis::{RedisSource, RedisStoreBuilder},
    reservation::{Reservation, ReservationId},
    tenants::TenantLimiters,
};
use tollgate_rules::{RuleLimiter, Rules};
use tollgate_test_support::{opened_store, patient_limiter};
use tollgate_tests::RedisServer;
use tollgate_tower::MeteredReservation;

/// The test fails after this time.
const MUCH_TOO_LONG: Duration = Duration::from_secs(30);

const HOURLY: Policy = Policy::token_bucket("hourly", Quota::per_hour(5));

fn runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

fn limiter(server: &RedisServer) -> Limiter {
    let store = opened_store(server.url());
    Limiter::builder(store)
        .policies(HOURLY)
        .on_outage(Outage::Closed)
        .build()
}

fn is_late(error: &Error) -> bool {
    error.kind() == ErrorKind::Timeout
}

/// Checks until the store decides, however slow the machine is.
async fn decided(limiter: &Limiter) {
    let until = Instant::now() + MUCH_TOO_LONG;
    while let Err(error) = limiter.check("acme").await {
        assert!(Instant::now() < until, "{error}");
    }
}

#[test]
fn a_blocked_runtime_does_not_stop_checks_on_another() {
    let server = RedisServer::start();
    let limiter = limiter(&server);
    let (is_blocked, blocked) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let first = limiter.clone();
    let blocking = thread::spawn(move || {
        runtime().block_on(async {
            // From here on the tasks of the store run on this runtime.
            decided(&first).await;
            is_blocked.send(()).expect("the test");
            released.recv().expect("the test");
        });
    });
    blocked.recv().expect("a decision");
    let (answer, answered) = mpsc::channel();
    let asking = thread::spawn(move || {
        answer
            .send(runtime().block_on(limiter.check("acme").into_future()))
            .expect("the test");
    });
    let answer = answered
        .recv_timeout(MUCH_TOO_LONG)
        .expect("an answer, at the deadline");
    assert!(answer.is_err_and(|error| is_late(&error)));
    release.send(()).expect("the runtime");
    for thread in [blocking, asking] {
        thread.join().expect("a thread");
    }
}

/// A service may keep its store in a `static`, and each of its tests has a runtime.
#[test]
fn the_first_check_of_each_runtime_is_decided_by_the_store() {
    let server = RedisServer::start();
    let url = server.url();
    let pool = || {
        Config::from_url(server.url())
            .create_pool(Some(deadpool_redis::Runtime::Tokio1))
            .expect("a pool")
    };
    let sources = [
        RedisSource::from(url.as_str()),
        RedisSource::from(redis::Client::open(url.as_str()).expect("a client")),
        RedisSource::from(pool()),
    ];
    for source in sources {
        let described = format!("{source:?}");
        let limiter = patient_limiter(RedisStore::open(source).expect("a store"), HOURLY);
        for spent in 1..=5 {
            let decision = runtime().block_on(limiter.check(described.as_str()).into_future());
            let decision =
                decision.unwrap_or_else(|error| panic!("{described}, runtime {spent}: {error}"));
            assert_eq!(
                decision.states().next().expect("a state").remaining(),
                5 - spent,
                "{described}"
            );
        }
    }
}

#[test]
fn a_check_whose_runtime_ends_is_answered_on_the_next() {
    let server = RedisServer::start();
    let limiter = limiter(&server);
    let mut check = pin!(limiter.check("acme").into_future());
    let ending = runtime();
    ending.block_on(poll_fn(|cx| {
        assert!(check.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    }));
    drop(ending);
    runtime().block_on(async {
        let answer = tokio::time::timeout(MUCH_TOO_LONG, check)
            .await
            .expect("an answer");
        assert!(answer.is_err_and(|error| is_late(&error)));
        decided(&limiter).await;
    });
}

#[test]
fn a_runtime_without_timers_is_an_error_of_each_call_that_may_wait() {
    let server = RedisServer::start();
    let over_redis = limiter(&server);
    let in_process = Limiter::new(MemoryStore::new(), HOURLY);
    let store = opened_store(server.url());
    let permits = ConcurrencyLimiter::new(store, Concurrency::new("exports", 2));
    for _ in 0..2 {
        let untimed = Builder::new_current_thread()
            .enable_io()
            .build()
            .expect("a runtime");
        untimed.block_on(async {
            let connected = RedisStore::connect(server.url()).await.map(drop);
            let answers = [
                connected,
                over_redis.check("acme").await.map(drop),
                over_redis.peek("acme").await.map(drop),
                over_redis.reset("acme").await.map(drop),
                over_redis.reserve("acme", Cost::ONE).await.map(drop),
                over_redis.check("acme").wait(MUCH_TOO_LONG).await.map(drop),
                in_process.check("acme").wait(MUCH_TOO_LONG).await.map(drop),
                permits.acquire("acme").await.map(drop),
            ];
            for (at, answer) in answers.into_iter().enumerate() {
                let error = answer.expect_err("no timers");
                assert_eq!(error.kind(), ErrorKind::NoRuntime, "call {at}: {error}");
                assert!(error.to_string().contains("timers"), "call {at}: {error}");
            }
            // A decision in the process waits for nothing.
            assert!(
                in_process
                    .check("acme")
                    .await
                    .expect("a decision")
                    .is_allowed()
            );
        });
    }
    runtime().block_on(decided(&over_redis));
}

/// Compiles for a future that a task of a runtime with several threads may await.
fn send<F: IntoFuture<IntoFuture: Send>>(_: F) {}

fn futures_of_a_store(store: &RedisStore, builder: RedisStoreBuilder) {
    send(tollgate::connect("redis://127.0.0.1/"));
    send(tollgate::connect(String::new()));
    send(RedisStore::connect("redis://127.0.0.1/"));
    send(builder.connect());
    send(store.ping());
    send(store.release_leases());
    send(store.diagnose([HOURLY.into()]));
}

fn futures_of_a_limiter(
    limiter: &Limiter,
    reservation: &Reservation,
    tenants: &TenantLimiters<String>,
) {
    let id = ReservationId::random();
    send(limiter.check("acme").cost(2).wait(MUCH_TOO_LONG));
    send(limiter.peek("acme"));
    send(limiter.refund("acme", 1));
    send(limiter.reset("acme"));
    send(limiter.entries("acme", 1));
    send(limiter.reserve("acme", 1));
    send(limiter.commit("acme", &id, 1));
    send(reservation.commit(1));
    send(reservation.cancel());
    send(tenants.limiter_for(&String::new()));
}

fn futures_of_rules_and_layers(
    limiter: &RuleLimiter,
    rules: &Rules,
    reservation: MeteredReservation,
) {
    send(limiter.check("shop", &[], 1));
    send(limiter.check_plan(&rules.current().plan("shop", &[], 1).expect("a plan")));
    send(reservation.commit(1));
}

fn futures_of_permits(
    limiter: &ConcurrencyLimiter,
    permit: &Permit,
    released: Permit,
    events: &mut EventReceiver,
) {
    send(limiter.acquire("acme"));
    send(limiter.try_acquire("acme"));
    send(permit.lost());
    send(permit.run(std::future::ready(())));
    send(released.release());
    send(events.recv());
}

#[test]
fn every_future_can_be_awaited_in_a_spawned_task() {
    // That these compile is the test.
    let _ = (
        futures_of_a_store,
        futures_of_a_limiter,
        futures_of_rules_and_layers,
        futures_of_permits,
    );
}
