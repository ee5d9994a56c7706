//! `RedisStore` in a Redis Cluster with a slot whose move goes on for long: some of its keys are at
//! one server, some at the other.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tollgate::{Cost, ErrorKind, Key, Lease, Policy, Quota};
use tollgate_test_support::decided;
use tollgate_test_support::remaining_of_each as remaining;
use tollgate_tests::RedisServer;

use super::cluster_moves::{CLUSTER, a_key, limiter, moves};

const AMOUNT: u64 = 1_000_000;

/// Returns how often a server answered that some keys of a call are elsewhere.
fn refused(server: &RedisServer) -> u64 {
    let stats = server.info("errorstats");
    stats.get("errorstat_TRYAGAIN").map_or(0, |count| {
        count.trim_start_matches("count=").parse().expect("a count")
    })
}

/// Returns keys of one slot.
fn keys_beside(key: &Key, count: u64) -> Arc<[Key]> {
    (0..count)
        .map(|at| key.clone().child(at.to_string()))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_of_a_slot_that_stays_open_leave_apart() {
    let _held = moves().await;
    const TASKS: usize = 64;
    const CHECKS: usize = 60;
    let limiter = limiter(
        "open",
        Policy::window_from_first_hit("open", Quota::per_day(AMOUNT)),
    )
    .await;
    let (key, slot, from, to) = a_key("open");
    let keys = keys_beside(&key, 40);
    let mut admitted = BTreeMap::<usize, u64>::new();
    // Half of the keys exist. The others are new while the slot is open, and begin at the other
    // server.
    for at in 0..20 {
        assert!(decided(&limiter, keys[at].clone()).await.is_allowed());
        admitted.insert(at, 1);
    }
    CLUSTER.begin_move(slot, from, to);
    let before = refused(from) + refused(to);
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (limiter, keys) = (limiter.clone(), Arc::clone(&keys));
            tokio::spawn(async move {
                let mut asked = Vec::new();
                for check in 0..CHECKS {
                    let at = (task * 7 + check * 11) % keys.len();
                    let decision = decided(&limiter, keys[at].clone()).await;
                    assert!(decision.is_allowed());
                    asked.push(at);
                }
                asked
            })
        })
        .collect();
    for task in tasks {
        for at in task.await.expect("a task") {
            *admitted.entry(at).or_default() += 1;
        }
    }
    let refused = refused(from) + refused(to) - before;
    CLUSTER.move_keys(slot, from, to);
    CLUSTER.end_move(slot, from, to);
    for (at, count) in admitted {
        assert_eq!(
            remaining(&limiter, keys[at].clone()).await,
            [AMOUNT - count],
            "key {at}"
        );
    }
    CLUSTER.move_slots([slot], to, from);
    // Calls over several keys are under way when the first is refused, and one goes out each time
    // that the store forgets.
    assert!(
        refused < 100,
        "{refused} calls refused for {} checks",
        TASKS * CHECKS
    );
}

/// A server has no key of a fresh subject, or some of them. It decides no call over several.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_over_several_keys_do_not_wait_for_the_end_of_a_move_that_does_not_come() {
    /// Less than the deadline.
    const MUCH_TOO_LONG: Duration = Duration::from_secs(30);
    let _held = moves().await;
    let daily = |name: &'static str| Policy::window_from_first_hit(name, Quota::per_day(AMOUNT));
    let one = limiter("stuck", daily("one")).await;
    let set = limiter("stuck", [daily("two"), daily("three")]).await;
    let leased = limiter("stuck", daily("leased").leased(Lease::new())).await;
    let (key, slot, from, to) = a_key("stuck");
    let keys = keys_beside(&key, 2);
    let known = keys[0].clone();
    assert!(decided(&set, known.clone()).await.is_allowed());
    CLUSTER.begin_move(slot, from, to);
    let fresh = || keys[1].clone();
    let refused = [
        tokio::time::timeout(MUCH_TOO_LONG, set.check(fresh()))
            .await
            .map(|answer| answer.map(drop)),
        tokio::time::timeout(MUCH_TOO_LONG, leased.check(fresh()))
            .await
            .map(|answer| answer.map(drop)),
        tokio::time::timeout(MUCH_TOO_LONG, one.reserve(fresh(), Cost::ONE).into_future())
            .await
            .map(|answer| answer.map(drop)),
    ];
    for answer in refused {
        let error = answer
            .expect("an answer before the deadline")
            .expect_err("keys that no server has all of");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("slot"), "{error}");
    }
    // One key is decided at one of the servers, and so are several that are all at the same one.
    assert!(one.check(fresh()).await.expect("a decision").is_allowed());
    assert!(decided(&set, known.clone()).await.is_allowed());
    CLUSTER.move_keys(slot, from, to);
    CLUSTER.end_move(slot, from, to);
    assert_eq!(remaining(&set, known).await, [AMOUNT - 2; 2]);
    for limiter in [&set, &leased] {
        assert!(decided(limiter, fresh()).await.is_allowed());
    }
    CLUSTER.move_slots([slot], to, from);
}
