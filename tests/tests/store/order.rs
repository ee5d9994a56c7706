//! Checks of one key are decided in the order in which they came, also when the server forgets its
//! scripts.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
};

use tollgate::{Cost, Decision, Policy, PolicySet, Quota, RedisStore, Store, store::Check};
use tollgate_test_support::{PATIENCE, calls::Script, connected_store, patient_limiter, remaining};
use tollgate_tests::{RedisServer, wait};

use crate::{forgetful_server::ForgetfulServer, suite::decisions::in_order};

const DAILY: Policy = Policy::fixed_window("daily", Quota::per_day(10_000));

fn left(decision: &Decision) -> u64 {
    decision.states().next().expect("a state").remaining()
}

/// Sends checks of these costs for one key at once, and returns the remaining units after each.
async fn leaves(store: &RedisStore, key: &str, costs: &[u64]) -> Vec<u64> {
    let set = PolicySet::from(DAILY);
    let key = key.into();
    let checks = costs
        .iter()
        .map(|cost| store.check(Check::new(&set, &key, Cost::new(*cost))))
        .collect();
    in_order(checks).await.iter().map(left).collect()
}

/// Returns the remaining units after each of the same checks, one after the other.
fn expected(costs: &[u64]) -> Vec<u64> {
    let spend = |left: &mut u64, cost: &u64| {
        *left -= *cost;
        Some(*left)
    };
    costs.iter().scan(10_000, spend).collect()
}

async fn store(server: &ForgetfulServer) -> RedisStore {
    let store = connected_store(server.url()).await;
    // The server knows the script for a single check and that for many.
    assert_eq!(leaves(&store, "single", &[1]).await, expected(&[1]));
    for key in ["warm", "hot"] {
        assert_eq!(leaves(&store, key, &[1; 60]).await, expected(&[1; 60]));
    }
    store
}

#[tokio::test]
async fn equal_checks_keep_their_order_when_the_first_batch_is_refused_and_the_next_is_not() {
    let redis = RedisServer::start();
    let server = ForgetfulServer::start(&redis);
    let store = store(&server).await;
    for refused in 1..=4 {
        server.forget(refused);
        let key = format!("refused {refused}");
        assert_eq!(
            leaves(&store, &key, &[1; 60]).await,
            expected(&[1; 60]),
            "{refused} batches are refused"
        );
        assert!(server.has_refused());
    }
}

/// The answers to several costs differ, so callers cannot change places. All that is under way
/// behind a refused batch is refused too, as long as nobody loads the scripts again.
#[tokio::test]
async fn checks_of_several_costs_keep_their_order_when_the_server_forgets_its_scripts() {
    let redis = RedisServer::start();
    let server = ForgetfulServer::start(&redis);
    let store = store(&server).await;
    let costs: Vec<u64> = (0..60).map(|at| 1 + at % 3).collect();
    assert_eq!(leaves(&store, "mixed", &costs).await, expected(&costs));
    for round in 0..20 {
        server.forget_until_loaded();
        let key = format!("round {round}");
        assert_eq!(
            leaves(&store, &key, &costs).await,
            expected(&costs),
            "round {round}"
        );
        assert!(server.has_refused());
    }
}

/// Another client has loaded the scripts again before the batch arrives that is under way behind a
/// refused one. So the later batch may be decided first.
#[tokio::test]
async fn checks_of_several_costs_are_each_charged_once_when_a_batch_is_refused_and_the_next_is_not()
{
    let redis = RedisServer::start();
    let server = ForgetfulServer::start(&redis);
    let store = store(&server).await;
    let costs: Vec<u64> = (0..60).map(|at| 1 + at % 3).collect();
    for refused in 1..=4 {
        server.forget(refused);
        let key = format!("refused {refused}");
        let leaves = leaves(&store, &key, &costs).await;
        let mut decided: Vec<(u64, u64)> = leaves.into_iter().zip(costs.iter().copied()).collect();
        decided.sort_unstable_by_key(|&(left, _)| std::cmp::Reverse(left));
        let (leaves, costs): (Vec<_>, Vec<_>) = decided.into_iter().unzip();
        assert_eq!(leaves, expected(&costs), "{refused} batches are refused");
        server.forget(0);
    }
}

/// A check of another cost comes while a batch with its key is under way, and that batch is
/// refused. The two may change places, and both are charged once.
#[tokio::test]
async fn a_check_of_another_cost_does_not_wait_for_the_answer_to_one_of_its_key() {
    let redis = RedisServer::start();
    let server = ForgetfulServer::start(&redis);
    let store = store(&server).await;
    let limiter = patient_limiter(store, DAILY);
    server.hold(true);
    server.forget(1);
    let first = tokio::spawn(limiter.check("acme").into_future());
    wait::until_async("the first check to be refused", PATIENCE, async || {
        server.has_refused()
    })
    .await;
    let second = tokio::spawn(limiter.check("acme").cost(Cost::new(2)).into_future());
    // All tasks run until they wait: the second check leaves now.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    server.hold(false);
    let [first, second] =
        [first, second].map(async |check| check.await.expect("a task").expect("a decision"));
    assert_eq!((left(&first.await), left(&second.await)), (9_997, 9_998));
}

/// Another client loads the scripts again and again, and the server forgets them all the time.
#[tokio::test]
async fn checks_keep_their_order_through_a_storm_of_flushes_while_another_client_loads_the_scripts()
{
    let server = RedisServer::start();
    let store = connected_store(server.url()).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let storm = {
        let (mut client, is_over) = (server.client(), Arc::clone(&is_over));
        std::thread::spawn(move || {
            let script = Script::new(DAILY);
            let (check, batch) = (script.text(), script.batch_text());
            while !is_over.load(Ordering::Relaxed) {
                for words in [
                    ["SCRIPT", "FLUSH", ""],
                    ["SCRIPT", "LOAD", check],
                    ["SCRIPT", "LOAD", batch],
                ] {
                    let words = words
                        .into_iter()
                        .filter(|word| !word.is_empty())
                        .collect::<Vec<_>>();
                    assert!(!client.command(&words).expect("a reply").is_error());
                }
            }
        })
    };
    for round in 0..300 {
        let key = format!("round {round}");
        assert_eq!(
            leaves(&store, &key, &[1; 60]).await,
            expected(&[1; 60]),
            "round {round}"
        );
    }
    is_over.store(true, Ordering::Relaxed);
    storm.join().expect("the storm");
}

#[tokio::test]
async fn a_caller_that_gives_up_in_the_queue_is_not_charged() {
    let server = RedisServer::start();
    let store = connected_store(server.url()).await;
    let limiter = patient_limiter(store, DAILY);
    assert!(limiter.check("warm").await.is_ok());
    {
        let (mut given_up, mut kept) = (
            pin!(limiter.check("acme").into_future()),
            pin!(limiter.check("other").into_future()),
        );
        // The first poll queues a check. The task that sends checks does not run in between.
        poll_fn(|cx| {
            assert!(given_up.as_mut().poll(cx).is_pending() && kept.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
    }
    assert_eq!(remaining(&limiter, "acme").await, 10_000);
    assert_eq!(remaining(&limiter, "other").await, 10_000);
}
