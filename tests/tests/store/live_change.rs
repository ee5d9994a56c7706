//! Policies that are replaced while checks run.

use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use tokio::sync::watch;
use tollgate::{
    Algorithm, Cost, Decision, Limiter, LimiterHandle, MemoryStore, Policy, PolicySet, Quota,
    store::Clock,
};
use tollgate_test_support::{
    PATIENCE, connected_store, decided_at, patient_limiter, remaining, remaining_of_each, stream,
};
use tollgate_tests::RedisServer;

/// In a full run.
const SWAPS: u64 = 10_000;
const SETS: u64 = 4;
/// More than any machine checks while the sets are replaced.
const AMOUNT: u64 = 1_000_000_000_000;

/// Returns a set with one policy that all sets have, under another quota in each, and one of its
/// own.
fn set(number: u64) -> PolicySet {
    let number = number % SETS;
    let own = Policy::try_new(
        format!("own-{number}"),
        Algorithm::FixedWindow,
        Quota::per_day(AMOUNT),
    );
    let shared = Policy::fixed_window("shared", Quota::per_day(AMOUNT))
        .with_quota(Quota::per_day(AMOUNT + number));
    PolicySet::try_new([shared.expect("a policy"), own.expect("a policy")]).expect("a set")
}

/// Panics unless the policies and the states of a decision belong to one of these sets.
fn assert_of_one_set(decision: &Decision, sets: &[PolicySet]) {
    assert!(decision.is_allowed() && !decision.is_degraded());
    let set = sets
        .iter()
        .find(|set| *set == decision.policies())
        .expect("one of the sets");
    assert!(
        decision
            .states()
            .map(|state| state.policy().clone())
            .eq(set.iter().cloned()),
        "{decision:?}"
    );
}

/// Panics unless every check was charged once to the shared policy, and once to that of one set.
async fn assert_all_charged(limiter: &Limiter, checks: u64) {
    let mut of_sets = 0;
    for number in 0..SETS {
        let left = remaining_of_each(&limiter.with_policies(set(number)), "acme").await;
        assert_eq!(left[0], AMOUNT + number - checks);
        of_sets += AMOUNT - left[1];
    }
    assert_eq!(of_sets, checks);
}

#[tokio::test]
async fn ten_thousand_swaps_lose_no_decision_of_four_threads_and_mix_none() {
    let swaps = stream::part_of(SWAPS);
    let store = MemoryStore::builder()
        .clock(Clock::manual(1_000_000_000))
        .build();
    let sets: Vec<_> = (0..SETS).map(set).collect();
    let handle = LimiterHandle::new(Limiter::new(store, set(0)));
    let (checks, has_checked, is_over) =
        (Mutex::new(0_u64), Condvar::new(), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let check = handle
                        .load()
                        .check("acme")
                        .into_future()
                        .into_ready()
                        .expect("an answer at once");
                    assert_of_one_set(&check.expect("a decision"), &sets);
                    *checks.lock().expect("no panic") += 1;
                    has_checked.notify_one();
                }
            });
        }
        // Each swap follows at least one check more than the swap before.
        for swap in 1..=swaps {
            let seen = checks.lock().expect("no panic");
            let before = *seen;
            drop(
                has_checked
                    .wait_while(seen, |checks| *checks == before)
                    .expect("no panic"),
            );
            assert_eq!(handle.replace_policies(set(swap)), set(swap - 1));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let checks = checks.into_inner().expect("no panic");
    assert!(checks >= swaps);
    assert_all_charged(&handle.load(), checks).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_swaps_lose_no_decision_over_redis_and_mix_none() {
    let swaps = stream::part_of(SWAPS);
    let server = RedisServer::start();
    let store = connected_store(server.url()).await;
    let sets: Arc<[_]> = (0..SETS).map(set).collect();
    let handle = LimiterHandle::new(
        Limiter::builder(store)
            .policies(set(0))
            .deadline(PATIENCE)
            .build(),
    );
    let (checks, mut has_checked) = watch::channel(0_u64);
    let is_over = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let (handle, checks, sets) = (handle.clone(), checks.clone(), Arc::clone(&sets));
            let is_over = Arc::clone(&is_over);
            tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    assert_of_one_set(
                        &handle.load().check("acme").await.expect("a decision"),
                        &sets,
                    );
                    checks.send_modify(|checks| *checks += 1);
                }
            })
        })
        .collect();
    for swap in 1..=swaps {
        has_checked.changed().await.expect("the tasks run");
        assert_eq!(handle.replace_policies(set(swap)), set(swap - 1));
    }
    is_over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("no panic");
    }
    let checks = *checks.borrow();
    assert!(checks >= swaps);
    assert_all_charged(&handle.load(), checks).await;
}

/// Law 11: a raised quota can be used at once, a lowered one holds at once.
#[tokio::test]
async fn spent_units_stay_spent_under_the_new_policies() {
    let store = MemoryStore::builder()
        .clock(Clock::manual(1_000_000_000))
        .build();
    let hourly = |amount| {
        Policy::token_bucket("api", Quota::per_hour(10)).with_quota(Quota::per_hour(amount))
    };
    let handle = LimiterHandle::new(Limiter::new(store, hourly(10).expect("a policy")));
    assert!(
        handle
            .load()
            .check("acme")
            .cost(Cost::new(10))
            .await
            .expect("a decision")
            .is_allowed()
    );
    assert!(
        handle
            .load()
            .check("acme")
            .await
            .expect("a decision")
            .is_denied()
    );
    handle.replace_policies(hourly(1_000).expect("a policy"));
    assert_eq!(remaining(&handle.load(), "acme").await, 990);
    handle.replace_policies(hourly(5).expect("a policy"));
    assert!(
        handle
            .load()
            .check("acme")
            .await
            .expect("a decision")
            .is_denied()
    );
    assert_eq!(remaining(&handle.load(), "other").await, 5);
}

#[tokio::test]
async fn a_refund_returns_to_the_policies_that_were_charged() {
    let day = |name: &str| {
        Policy::try_new(name, Algorithm::FixedWindow, Quota::per_day(10)).expect("a policy")
    };
    let handle = LimiterHandle::new(Limiter::new(MemoryStore::new(), day("old")));
    let decision = handle
        .load()
        .check("acme")
        .cost(Cost::new(4))
        .await
        .expect("a decision");
    let old = handle.load();
    handle.replace_policies(day("new"));
    assert!(
        handle
            .load()
            .check("acme")
            .cost(Cost::new(4))
            .await
            .expect("a decision")
            .is_allowed()
    );
    handle
        .load()
        .refund("acme", Cost::new(4))
        .of(&decision)
        .await
        .expect("a refund");
    assert_eq!(
        (
            remaining(&old, "acme").await,
            remaining(&handle.load(), "acme").await
        ),
        (10, 6)
    );
}

/// Two threads replace at once: one the limiter, the other its policies. Neither change is lost.
#[test]
fn a_replaced_limiter_is_not_lost_to_replaced_policies() {
    let swaps = stream::part_of(SWAPS);
    let named = |name: String| {
        Limiter::builder(MemoryStore::new())
            .policies(set(0))
            .name(name)
            .build()
    };
    let handle = LimiterHandle::new(named("0".to_owned()));
    thread::scope(|scope| {
        scope.spawn(|| {
            for at in 1..=swaps {
                let before = handle.replace(named(at.to_string()));
                assert_eq!(before.name(), (at - 1).to_string());
            }
        });
        scope.spawn(|| (0..swaps).for_each(|at| drop(handle.replace_policies(set(at)))));
    });
    assert_eq!(handle.load().name(), swaps.to_string());
}

#[tokio::test]
async fn a_log_lists_what_is_spent_whatever_its_quota_became() {
    let server = RedisServer::start();
    let redis = connected_store(server.url()).await;
    let log = |amount: u64| {
        Policy::sliding_log("log", Quota::per_day(10)).with_quota(Quota::per_day(amount))
    };
    for limiter in [
        patient_limiter(redis, log(10).expect("a policy")),
        patient_limiter(MemoryStore::new(), log(10).expect("a policy")),
    ] {
        let _ = decided_at(&limiter, "acme", Cost::new(8)).await;
        for amount in [10, 3, 0, 100] {
            let limiter = limiter.with_policies(log(amount).expect("a policy"));
            for (limit, listed) in [(0, 0), (5, 5), (100, 8), (usize::MAX, 8)] {
                let entries = limiter.entries("acme", limit).await.expect("entries");
                assert_eq!(entries.len(), listed, "at most {limit} under {amount}");
            }
        }
    }
}
