//! `RedisStore` in a Redis Cluster whose masters are killed, one after the other, until none of the first is left.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tollgate::{Key, Limiter, Outage, Policy, Quota, RedisStore};
use tollgate_tests::{RedisCluster, RedisServer, wait};

/// Long enough that a slow machine never decides without the server by mistake.
const PATIENT: Duration = Duration::from_secs(60);

/// How long a replica may take to become a master.
const TAKING_OVER: Duration = Duration::from_secs(60);

const AMOUNT: u64 = 1_000_000;

/// Keys whose slots the server has, and keys of the others.
fn keys(cluster: &RedisCluster, server: &RedisServer) -> (Vec<Key>, Vec<Key>) {
    (0..60_u64).map(Key::from).partition(|key| {
        let slot = cluster.slot(key.encoded());
        cluster.owner(slot, server).port() == server.port()
    })
}

async fn remaining(limiter: &Limiter, key: &Key) -> u64 {
    limiter.peek(key.clone()).await.expect("a decision").states().next().expect("a state").remaining()
}

/// How often those who run were asked what the cluster is like.
fn looks(nodes: &[RedisServer]) -> u64 {
    nodes.iter().filter(|node| node.is_running()).map(|node| node.calls("cluster|slots")).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_master_takes_its_slots_with_it_for_as_long_as_they_have_no_server_and_the_seeds_may_all_go() {
    let cluster = RedisCluster::start();
    let nodes = cluster.nodes();
    let policy = Policy::fixed_window("p", Quota::per_day(AMOUNT as u32));
    // One seed, which is the first to go.
    let store = RedisStore::cluster([nodes[0].url()]).without_deny_cache().connect().await.expect("a store");
    let limiter = |deadline, outage| {
        Limiter::builder(store.clone()).policies(policy.clone()).deadline(deadline).on_outage(outage).build()
    };
    let patient = limiter(PATIENT, Outage::Closed);
    let usual = limiter(Duration::from_millis(50), Outage::Open);

    for (round, master) in nodes[..3].iter().enumerate() {
        let replica = &nodes[round + 3];
        let (its, others) = keys(&cluster, master);
        assert!(!its.is_empty() && !others.is_empty());
        for key in its.iter().chain(&others) {
            let _ = patient.check(key.clone()).await.expect("a decision");
        }
        // What it has told the replica will be there.
        master.command(&["WAIT", "1", "30000"]);
        let before: Vec<u64> = {
            let mut before = Vec::new();
            for key in &its {
                before.push(remaining(&patient, key).await);
            }
            before
        };

        let is_over = Arc::new(AtomicBool::new(false));
        let untouched = {
            let (patient, is_over, others) = (patient.clone(), Arc::clone(&is_over), others.clone());
            tokio::spawn(async move {
                let mut asked = 0_u64;
                while !is_over.load(Ordering::Relaxed) {
                    let key = &others[asked as usize % others.len()];
                    let decision = patient.check(key.clone()).await.expect("the other servers are well");
                    assert!(!decision.is_degraded());
                    asked += 1;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                asked
            })
        };

        let looks = self::looks(&nodes[round + 1..]);
        let killed = Instant::now();
        master.kill();
        // The server's own outage: until the replica takes a write to one of the slots.
        let addr = (replica.addr(), cluster.slot(its[0].encoded()));
        let taken_over = tokio::task::spawn_blocking({
            let (mut client, key) = (replica.client(), its[0].encoded().to_owned());
            move || {
                let key = format!("probe:{{{key}}}");
                wait::until("the replica to take over", TAKING_OVER, || {
                    !client.command(&["SET", &key, "1", "PX", "60000"]).expect("a reply").is_error()
                });
                killed.elapsed()
            }
        });
        let (mut degraded, mut longest) = (0, Duration::ZERO);
        let back = loop {
            assert!(killed.elapsed() < TAKING_OVER, "its slots never come back, {addr:?}");
            let started = Instant::now();
            let decision = usual.check(its[0].clone()).await.expect("open");
            if !decision.is_degraded() {
                break killed.elapsed();
            }
            longest = longest.max(started.elapsed());
            degraded += 1;
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        let taken_over = taken_over.await.expect("a thread");
        // A pause of 50 ms at least follows each look, and so long must it last before a second server is asked.
        let (most, looks) =
            (2 * (killed.elapsed().as_millis() as u64 / 50 + 2), self::looks(&nodes[round + 1..]) - looks);
        assert!((1..=most).contains(&looks), "{looks} looks, {most} may be");
        is_over.store(true, Ordering::Relaxed);
        let asked = untouched.await.expect("a task");
        println!(
            "killed: replica writable after {taken_over:?}, its slots decided again after {back:?}; meanwhile \
             {degraded} checks of it answered without it in {longest:?} at most, {asked} checks of the others with 0 errors, {looks} looks"
        );
        assert!(degraded > 0 && asked > 0);

        // The counts are those of the dead one, and the new one knows the script now.
        assert!(replica.calls("eval") > 0, "the body was sent to the replica");
        for (at, (key, before)) in its.iter().zip(before).enumerate() {
            let spent = if at == 0 { before - remaining(&patient, key).await } else { 0 };
            assert!(spent <= 1, "one check was decided with the servers");
            assert_eq!(remaining(&patient, key).await, before - spent);
        }
        wait::until_async("every server to be asked again", PATIENT, async || {
            let _ = store.ping().await;
            store.is_asked()
        })
        .await;
    }

    // Nobody of those who had slots at first is left, the only seed among them.
    for key in (0..200_u64).map(|at| Key::from(("new", at))) {
        assert!(patient.check(key.clone()).await.expect("a decision").is_allowed());
        assert_eq!(remaining(&patient, &key).await, AMOUNT - 1);
    }
    // Those who were there come back as replicas, and nobody minds.
    for (at, master) in nodes[..3].iter().enumerate() {
        master.restart();
        let _ = patient.check(at as u64).await.expect("a decision");
    }
    cluster.wait_until_whole();
    let (keys, expires) = cluster.keys_and_expires();
    assert!(keys > 0 && keys == expires, "{keys} keys, {expires} expire");
}
