//! Connections of a store, also when a server forgets or breaks one.

use std::thread;

use tokio::{runtime, task};
use tollgate::{Policy, Quota};
use tollgate_test_support::{Deployment, PATIENCE, decided, patient_limiter, remaining};
use tollgate_tests::{RedisServer, wait};

pub(super) async fn a_forgotten_script_is_sent_once_and_charged_once(deployment: &Deployment) {
    let store = deployment
        .builder("scripts")
        .connect()
        .await
        .expect("a store");
    let set = [
        Policy::token_bucket("one", Quota::per_day(100)),
        Policy::sliding_window("two", Quota::per_day(100)),
    ];
    let limiter = patient_limiter(store, set);
    for spent in 1..=5 {
        deployment.on_every_master(&["SCRIPT", "FLUSH"]);
        let bodies = deployment.calls(&["eval"]);
        assert!(decided(&limiter, "alone").await.is_allowed());
        assert_eq!(
            deployment.calls(&["eval"]),
            bodies + 1,
            "the script is sent once"
        );
        assert_eq!(remaining(&limiter, "alone").await, 100 - spent);

        deployment.on_every_master(&["SCRIPT", "FLUSH"]);
        let crowd: Vec<_> = (0..20_u64)
            .map(|key| tokio::spawn(limiter.check(key).into_future()))
            .collect();
        for check in crowd {
            let decision = check.await.expect("a task").expect("a decision");
            assert!(
                decision
                    .states()
                    .all(|state| state.remaining() == 100 - spent),
                "{decision:?}"
            );
        }
    }
}

/// A check that a broken connection cut off is an error, never a second charge.
pub(super) async fn a_check_is_charged_once_at_most_when_its_connection_breaks(
    deployment: &Deployment,
) {
    let store = deployment
        .builder_as("victim", "once")
        .connect()
        .await
        .expect("a store");
    let limiter = patient_limiter(
        store,
        Policy::fixed_window("once", Quota::per_day(1_000_000)),
    );
    let mut spent = 0;
    let (mut calls, mut admitted) = (0, 0);
    for round in 0..40_u64 {
        let tasks: Vec<_> = (0..50_u64)
            .map(|at| tokio::spawn(limiter.check((round, at % 10)).into_future()))
            .collect();
        deployment.on_every_master(&["CLIENT", "KILL", "USER", "victim"]);
        for task in tasks {
            calls += 1;
            admitted += u64::from(
                task.await
                    .expect("a task")
                    .is_ok_and(|decision| decision.is_allowed()),
            );
        }
        for at in 0..10_u64 {
            // The first answers may be errors, of the killed connection or the circuit breaker.
            wait::until_async("a decision", PATIENCE, async || {
                limiter.peek((round, at)).await.is_ok()
            })
            .await;
            spent += 1_000_000 - remaining(&limiter, (round, at)).await;
        }
    }
    assert!(
        admitted <= spent && spent <= calls,
        "{calls} calls, {admitted} admitted, {spent} charged"
    );
    assert!(admitted > 0);
}

pub(super) async fn a_store_outlives_the_runtime_it_was_first_used_on(deployment: &Deployment) {
    let store = deployment.builder("runtimes").build().expect("a store");
    let limiter = patient_limiter(store, Policy::token_bucket("p", Quota::per_day(100)));
    let use_on_three_runtimes = || {
        for spent in 1..=3 {
            let runtime = runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            let left = runtime.block_on(async {
                let decision = limiter
                    .check("acme")
                    .await
                    .unwrap_or_else(|error| panic!("runtime {spent}: {error}"));
                decision.states().next().expect("a state").remaining()
            });
            assert_eq!(left, 100 - spent);
        }
    };
    task::block_in_place(|| {
        thread::scope(|scope| scope.spawn(use_on_three_runtimes).join().expect("a thread"));
    });
}

pub(super) async fn a_dropped_store_leaves_no_connection(deployment: &Deployment) {
    let connections = || {
        let list =
            |master: &RedisServer| master.command(&["CLIENT", "LIST", "TYPE", "normal"]).text();
        deployment
            .masters()
            .into_iter()
            .map(|master| list(master).matches("user=leaver").count())
            .sum::<usize>()
    };
    let store = deployment
        .builder_as("leaver", "leaver")
        .connect()
        .await
        .expect("a store");
    let limiter = patient_limiter(
        store.clone(),
        Policy::token_bucket("p", Quota::per_day(100)),
    );
    for key in 0..50_u64 {
        let _ = limiter.check(key).await.expect("a decision");
    }
    assert_eq!(
        connections(),
        deployment.masters().len(),
        "one connection to each master"
    );
    drop((limiter, store));
    wait::until_async("the connections to close", PATIENCE, async || {
        connections() == 0
    })
    .await;
}
