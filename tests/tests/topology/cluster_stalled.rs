//! `RedisStore` in a Redis Cluster whose master stops answering: connections stay open, no answer
//! comes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tollgate::{ErrorKind, Key, Limiter, Outage, Policy, Quota, RedisStore, redis::RedisSource};
use tollgate_test_support::{PATIENCE, decided, patient_limiter, remaining};
use tollgate_tests::{RedisCluster, server::field, wait};

const DEADLINE: Duration = Duration::from_millis(50);

const AMOUNT: u64 = 1_000_000;

#[test]
fn a_stalled_master_degrades_only_its_own_slots_until_a_replica_takes_over() {
    crate::undisturbed(a_master_stands_still);
}

async fn a_master_stands_still() {
    let cluster = RedisCluster::start();
    let stalled = &cluster.nodes()[1];
    let (its, others): (Vec<Key>, Vec<Key>) = (0..60_u64).map(Key::from).partition(|key| {
        let slot = cluster.slot(key.encoded());
        cluster.owner(slot, stalled).port() == stalled.port()
    });
    let policy = Policy::window_from_first_hit("p", Quota::per_day(AMOUNT));
    for node in cluster.nodes() {
        assert_eq!(
            node.command(&["ACL", "SETUSER", "app", "on", "nopass", "~*", "+@all"])
                .text(),
            "OK"
        );
    }
    let seed = format!("redis://app:any@{}", cluster.nodes()[0].addr());
    let store = RedisStore::builder(RedisSource::cluster([seed]))
        .deny_cache_cap(Duration::ZERO)
        .build()
        .expect("a store");
    wait::until_async("an answer", PATIENCE, async || store.ping().await.is_ok()).await;
    let patient = patient_limiter(store.clone(), policy.clone());
    let usual = Limiter::builder(store.clone())
        .policies(policy)
        .deadline(DEADLINE)
        .on_outage(Outage::Open)
        .build();
    for key in its.iter().chain(&others) {
        let _ = patient.check(key.clone()).await.expect("a decision");
    }
    stalled.command(&["WAIT", "1", "30000"]);

    // A short stall, in which no replica takes over: the calls that were sent are executed after
    // it, once.
    let mut calls = 0_u64;
    stalled.pause();
    while store.is_available() {
        let _ = usual.check(its[0].clone()).await.expect("open");
        calls += 1;
        assert!(calls < 1_000, "the breaker never opens");
    }
    stalled.resume();
    wait::until_async("the server to be used again", PATIENCE, async || {
        store.is_available()
    })
    .await;
    let spent = AMOUNT - 1 - remaining(&patient, its[0].clone()).await;
    assert!(spent <= calls, "{spent} charged for {calls} calls");
    patient.reset(its[0].clone()).await.expect("a reset");
    let _ = patient.check(its[0].clone()).await.expect("a decision");
    stalled.command(&["WAIT", "1", "30000"]);

    let is_over = Arc::new(AtomicBool::new(false));
    let untouched = {
        let (patient, is_over) = (patient.clone(), Arc::clone(&is_over));
        tokio::spawn(async move {
            let mut asked = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                let key = &others[asked as usize % others.len()];
                assert!(!decided(&patient, key.clone()).await.is_degraded());
                asked += 1;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            asked
        })
    };

    let replica = &cluster.nodes()[4];
    let is_replaced = || field(replica, "replication", "role") == "master";
    let began = Instant::now();
    stalled.pause();
    let mut asked = vec![0_u64; its.len()];
    let mut decided = vec![0_u64; its.len()];
    let mut was_reset = vec![false; its.len()];
    let mut reasons = Vec::new();
    loop {
        assert!(began.elapsed() < PATIENCE, "no server takes over the slots");
        let at = reasons.len() % its.len();
        let decision = usual.check(its[at].clone()).await.expect("open");
        asked[at] += 1;
        match decision.degraded().map(ErrorKind::as_str) {
            None => {
                decided[at] += 1;
                break;
            }
            Some("breaker") => {
                reasons.push("breaker");
                // A server may have taken over by now, and a busy one may answer too late.
                match usual.reset(its[at].clone()).await {
                    Err(error) if error.kind() == ErrorKind::CircuitOpen => {}
                    outcome => {
                        assert!(is_replaced(), "a reset waits for the server: {outcome:?}");
                        was_reset[at] = true;
                    }
                }
            }
            Some(reason) => reasons.push(reason),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    is_over.store(true, Ordering::Relaxed);
    let asked_others = untouched.await.expect("a task");
    // Three checks reach their deadline; then the breaker is open, and no check waits.
    assert!(
        reasons
            .iter()
            .all(|reason| ["timeout", "breaker"].contains(reason)),
        "{reasons:?}"
    );
    assert!(
        reasons
            .iter()
            .filter(|reason| **reason == "timeout")
            .count()
            >= 3,
        "{reasons:?}"
    );
    assert!(reasons.contains(&"breaker") && asked_others > 0);

    // The stalled master executes the calls that it had received, and learns that it is a replica
    // now. Its charges are discarded with its data; the slots were charged once at most.
    stalled.resume();
    wait::until("the stalled master to be a replica", PATIENCE, || {
        stalled.info("replication")["role"] == "slave"
    });
    wait::until_async("the connection to it to be dropped", PATIENCE, async || {
        !stalled
            .command(&["CLIENT", "LIST", "TYPE", "normal"])
            .text()
            .contains("user=app")
    })
    .await;
    cluster.wait_until_whole();
    for (at, key) in its.iter().enumerate().filter(|(at, _)| !was_reset[*at]) {
        let spent = AMOUNT - 1 - remaining(&patient, key.clone()).await;
        assert!(
            decided[at] <= spent && spent <= asked[at],
            "{spent} spent, {} of {} decided",
            decided[at],
            asked[at]
        );
    }
    let (keys, expires) = cluster.keys_and_expires();
    assert!(keys > 0 && keys == expires, "{keys} keys, {expires} expire");
}
