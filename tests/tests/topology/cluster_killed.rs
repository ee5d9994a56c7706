//! `RedisStore` in a Redis Cluster whose masters are killed, one after the other, until none of the
//! first masters runs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tollgate::{ErrorKind, Key, Limiter, Outage, Policy, Quota, RedisStore, redis::RedisSource};
use tollgate_test_support::{PATIENCE, decided, patient_limiter, remaining};
use tollgate_tests::{RedisCluster, RedisServer, wait};

/// The longest time in which a replica becomes a master.
const TAKING_OVER: Duration = Duration::from_secs(60);

const AMOUNT: u64 = 1_000_000;

/// Returns the keys of this server, and the keys of the others.
fn keys(cluster: &RedisCluster, server: &RedisServer) -> (Vec<Key>, Vec<Key>) {
    (0..60_u64).map(Key::from).partition(|key| {
        let slot = cluster.slot(key.encoded());
        cluster.owner(slot, server).port() == server.port()
    })
}

/// Counts the requests for the slots at the running servers.
fn slot_requests(nodes: &[RedisServer]) -> u64 {
    nodes
        .iter()
        .filter(|node| node.is_running())
        .map(|node| node.calls("cluster|slots"))
        .sum()
}

#[test]
fn killed_masters_degrade_only_their_own_slots_until_a_replica_takes_over_and_all_seeds_may_go() {
    crate::undisturbed(masters_are_killed);
}

async fn masters_are_killed() {
    let cluster = RedisCluster::start();
    let nodes = cluster.nodes();
    let policy = Policy::window_from_first_hit("p", Quota::per_day(AMOUNT));
    // One seed, which is killed first.
    let store = RedisStore::builder(RedisSource::cluster(&cluster.urls()[..1]))
        .deny_cache_cap(Duration::ZERO)
        .connect()
        .await
        .expect("a store");
    let limiter = |deadline, outage| {
        Limiter::builder(store.clone())
            .policies(policy.clone())
            .deadline(deadline)
            .on_outage(outage)
            .build()
    };
    let patient = patient_limiter(store.clone(), policy.clone());
    let usual = limiter(Duration::from_millis(50), Outage::Open);

    for (round, master) in nodes[..3].iter().enumerate() {
        let replica = &nodes[round + 3];
        let (its, others) = keys(&cluster, master);
        assert!(!its.is_empty() && !others.is_empty());
        for key in its.iter().chain(&others) {
            let _ = patient.check(key.clone()).await.expect("a decision");
        }
        // The replica has received everything.
        master.command(&["WAIT", "1", "30000"]);
        let before: Vec<u64> = {
            let mut before = Vec::new();
            for key in &its {
                before.push(remaining(&patient, key.clone()).await);
            }
            before
        };

        let is_over = Arc::new(AtomicBool::new(false));
        let untouched = {
            let (patient, is_over, others) =
                (patient.clone(), Arc::clone(&is_over), others.clone());
            tokio::spawn(async move {
                let mut checks = 0_u64;
                while !is_over.load(Ordering::Relaxed) {
                    let key = &others[checks as usize % others.len()];
                    let decision = decided(&patient, key.clone()).await;
                    assert!(!decision.is_degraded());
                    checks += 1;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                checks
            })
        };

        let requests = slot_requests(&nodes[round + 1..]);
        let killed = Instant::now();
        master.kill();
        let (mut degraded, mut late) = (0, 0);
        while let Some(kind) = decided(&usual, its[0].clone()).await.degraded() {
            assert!(
                killed.elapsed() < TAKING_OVER,
                "no server takes over the slots"
            );
            degraded += 1;
            late += u64::from(kind == ErrorKind::Timeout);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // At least 50 ms pass after each request, and a second server is asked no earlier.
        let most = 2 * (killed.elapsed().as_millis() as u64 / 50 + 2);
        let requests = slot_requests(&nodes[round + 1..]) - requests;
        assert!(
            (1..=most).contains(&requests),
            "{requests} requests for the slots, at most {most} are allowed"
        );
        is_over.store(true, Ordering::Relaxed);
        let checks = untouched.await.expect("a task");
        assert!(degraded > 0 && checks > 0);

        // The replica has the counts of the killed master, and received the script.
        assert!(
            replica.calls("eval") > 0,
            "the body was sent to the replica"
        );
        for (at, (key, before)) in its.iter().zip(before).enumerate() {
            let spent = if at == 0 {
                before - remaining(&patient, key.clone()).await
            } else {
                0
            };
            // A busy server may have decided a check after its deadline.
            assert!(spent <= 1 + late, "only the last check was decided in time");
            assert_eq!(remaining(&patient, key.clone()).await, before - spent);
        }
        wait::until_async("every server to be used again", PATIENCE, async || {
            let _ = store.ping().await;
            store.is_available()
        })
        .await;
    }

    // None of the first masters runs, and neither does the only seed.
    for key in (0..200_u64).map(|at| Key::from(("new", at))) {
        assert!(decided(&patient, key.clone()).await.is_allowed());
        assert_eq!(remaining(&patient, key).await, AMOUNT - 1);
    }
    // The killed masters return as replicas, and no check fails.
    for (at, master) in nodes[..3].iter().enumerate() {
        master.restart();
        let _ = patient.check(at as u64).await.expect("a decision");
    }
    cluster.wait_until_whole();
    let (keys, expires) = cluster.keys_and_expires();
    assert!(keys > 0 && keys == expires, "{keys} keys, {expires} expire");
}
