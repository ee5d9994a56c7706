//! Checks from threads without a runtime, and what a check says that finds none.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use tokio::runtime::Builder;
use tollgate::{
    Cost, Error, ErrorKind, Key, Limiter, MemoryStore, Outage, Policy, PolicySet, Quota,
    RedisStore, Store, limiter::CheckBuilder, redis::RedisSource,
};
use tollgate_test_support::{PATIENCE, SilentStore, opened_store, patient_limiter};
use tollgate_tests::RedisServer;

const DAILY: Policy = Policy::token_bucket("daily", Quota::per_day(100));

fn limiter(server: &RedisServer) -> Limiter {
    patient_limiter(opened_store(server.url()), DAILY)
}

#[test]
fn threads_without_a_runtime_share_one_limit_over_redis() {
    let server = RedisServer::start();
    let limiter = limiter(&server);
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let limiter = limiter.clone();
            thread::spawn(move || {
                let checks = (0..20).map(|_| {
                    limiter
                        .block_on(limiter.check("acme"))
                        .expect("the store decides")
                });
                checks.filter(|decision| decision.is_allowed()).count()
            })
        })
        .collect();
    let admitted: usize = threads
        .into_iter()
        .map(|thread| thread.join().expect("a thread"))
        .sum();
    assert_eq!(admitted, 100, "of 160 checks");
}

#[test]
fn every_call_runs_in_a_thread_without_a_runtime() {
    let server = RedisServer::start();
    let store = opened_store(server.url());
    let limiter = patient_limiter(store, Policy::sliding_log("log", Quota::per_day(100)));
    let left = || {
        limiter
            .block_on(limiter.peek("acme"))
            .expect("a state")
            .state("log")
            .expect("a policy")
            .remaining()
    };
    let decide = |check: CheckBuilder<'_>| limiter.block_on(check).expect("a decision");
    assert!(decide(limiter.check("acme").tag("ann")).is_allowed());
    let decision = decide(limiter.check("acme").cost(Cost::new(10)));
    assert!(decide(limiter.check("acme").wait(PATIENCE)).is_allowed());
    assert!(decide(limiter.check("acme").cost(Cost::new(2)).wait(PATIENCE)).is_allowed());
    assert_eq!(left(), 86);
    limiter
        .block_on(limiter.refund("acme", Cost::new(4)).of(&decision))
        .expect("a refund");
    limiter
        .block_on(limiter.refund("acme", Cost::new(2)))
        .expect("a refund");
    assert_eq!(left(), 92);
    assert_eq!(
        limiter
            .block_on(limiter.entries("acme", 100))
            .expect("a list")
            .len(),
        8
    );
    limiter.block_on(limiter.reset("acme")).expect("a reset");
    assert_eq!(left(), 100);
}

#[test]
fn a_blocking_check_ends_at_its_deadline() {
    let server = RedisServer::start();
    let store = opened_store(server.url());
    let patient = patient_limiter(store.clone(), DAILY);
    assert!(
        patient
            .block_on(patient.check("acme"))
            .expect("a decision")
            .is_allowed()
    );
    let short = Limiter::builder(store)
        .policies(DAILY)
        .deadline(Duration::from_millis(30))
        .build();
    server.pause();
    assert_eq!(
        short
            .block_on(short.check("acme"))
            .expect("the local share")
            .degraded(),
        Some(ErrorKind::Timeout)
    );
    server.resume();
}

#[test]
fn a_blocking_check_in_an_async_task_panics_with_words_before_it_is_sent() {
    let server = RedisServer::start();
    let limiter = limiter(&server);
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let asking = limiter.clone();
    let task =
        async move { tokio::spawn(async move { asking.block_on(asking.check("acme")) }).await };
    let panic = runtime.block_on(task).expect_err("a panic").into_panic();
    let words = panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref().cloned());
    assert!(words.expect("words").contains("from within a runtime"));
    let left = limiter.block_on(limiter.peek("acme")).expect("a state");
    assert_eq!(left.state("daily").expect("a policy").remaining(), 100);
}

#[test]
fn a_blocking_check_works_wherever_a_thread_may_block() {
    let server = RedisServer::start();
    let limiter = limiter(&server);
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let asking = limiter.clone();
    let decision = runtime.block_on(async {
        tokio::task::spawn_blocking(move || asking.block_on(asking.check("acme"))).await
    });
    assert!(decision.expect("a task").expect("a decision").is_allowed());
    // Nothing drives this runtime while the thread waits.
    let entered = runtime.enter();
    assert!(
        limiter
            .block_on(limiter.check("acme"))
            .expect("a decision")
            .is_allowed()
    );
    drop(entered);
    // A store in the process has nothing to wait for.
    let memory = Limiter::new(MemoryStore::new(), DAILY);
    runtime.block_on(async {
        assert!(
            memory
                .block_on(memory.check("acme"))
                .expect("a decision")
                .is_allowed()
        );
        memory.block_on(memory.reset("acme")).expect("a reset");
    });
}

/// Polls once in a thread without a runtime.
fn poll_once<T>(call: impl IntoFuture<Output = T>) -> Poll<T> {
    pin!(call.into_future()).poll(&mut Context::from_waker(Waker::noop()))
}

fn assert_names_the_runtime<T>(outcome: Poll<Result<T, Error>>, call: &str) {
    let Poll::Ready(Err(error)) = outcome else {
        panic!("{call}: an error at once")
    };
    assert_eq!(error.kind(), ErrorKind::NoRuntime, "{call}: {error}");
    assert!(
        error.to_string().contains("tokio runtime")
            && error.to_string().contains("Limiter::block_on"),
        "{error}"
    );
}

#[test]
fn outside_a_runtime_every_call_names_what_is_missing() {
    let one = RedisStore::open("redis://127.0.0.1:1").expect("a store");
    let cluster = RedisStore::open(RedisSource::cluster(["redis://127.0.0.1:1"])).expect("a store");
    let stores: [Box<dyn Store>; 3] = [
        Box::new(one.clone()),
        Box::new(cluster.clone()),
        Box::new(SilentStore::new(false)),
    ];
    for store in stores {
        let limiter = Limiter::builder(store)
            .policies(Policy::sliding_log("log", Quota::per_day(100)))
            .on_outage(Outage::Open)
            .build();
        assert_names_the_runtime(poll_once(limiter.check("acme")), "check");
        assert_names_the_runtime(poll_once(limiter.peek("acme")), "peek");
        assert_names_the_runtime(
            poll_once(limiter.check("acme").wait(PATIENCE)),
            "a check that waits",
        );
    }
    let set = PolicySet::from(DAILY);
    for store in [one, cluster] {
        let limiter = Limiter::new(store.clone(), DAILY);
        assert_names_the_runtime(poll_once(limiter.refund("acme", Cost::ONE)), "refund");
        assert_names_the_runtime(poll_once(limiter.reset("acme")), "reset");
        assert_names_the_runtime(poll_once(store.ping()), "ping");
        assert_names_the_runtime(poll_once(store.diagnose([])), "diagnose");
        let key = Key::new("acme");
        let check = tollgate::store::Check::new(&set, &key, Cost::ONE);
        assert_names_the_runtime(poll_once(store.check(check)), "a check without a deadline");
    }
    assert!(matches!(
        poll_once(Limiter::new(MemoryStore::new(), DAILY).check("acme")),
        Poll::Ready(Ok(_))
    ));
}
