//! Rows: one slot of a cluster that is in the middle of a move.

use std::time::Duration;

use tollgate::{Key, Lease, Outage, RedisStore, redis::RedisSource};
use tollgate_tests::RedisCluster;

use crate::{
    findings::{Findings, Target},
    load::{LARGE, Load, PATIENT, decides, limiter, quantile},
    pace::Pace,
};

async fn start() -> RedisCluster {
    tokio::task::spawn_blocking(RedisCluster::start).await.expect("a cluster")
}

/// Returns keys of one slot of the first server.
fn keys(cluster: &RedisCluster, count: u64) -> (u16, Vec<Key>) {
    let slots = cluster.slots_of(&cluster.nodes()[0]);
    let of_first = |key: &Key| slots.contains(&cluster.slot(key.encoded()));
    let outer = (0..1_000_u64).map(Key::from).find(of_first).expect("a key");
    (cluster.slot(outer.encoded()), (0..count).map(|at| outer.clone().child(at)).collect())
}

pub(super) async fn open(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let cluster = start().await;
    let store = RedisStore::builder(RedisSource::cluster(cluster.urls())).connect_timeout(PATIENT);
    let store = store.connect().await.expect("a store");
    let large = limiter(&store, LARGE, Outage::default());
    let (slot, mut keys) = keys(&cluster, 60);
    let leased_keys = keys.split_off(40);
    // Half of the keys exist, the others are new and begin at the other server.
    for key in &keys[..20] {
        decides(&large, key.clone()).await;
    }
    let (from, to) = (&cluster.nodes()[0], &cluster.nodes()[1]);
    cluster.begin_move(slot, from, to);
    let load = Load::start(&large, 64, keys);
    tokio::time::sleep(Duration::from_secs(pace.of(10, 3))).await;
    let samples = load.end().await;
    let errors = samples.iter().filter(|sample| sample.reason.is_some()).count() as f64;
    let asked = format!("checks without the store, of {} by 64 tasks", samples.len());
    findings.figure(asked, Target::AtMost(1.0), 100.0 * errors / samples.len() as f64, " %");
    findings.figure("check time, p99", Target::None, quantile(&samples, 0.99), " ms");
    findings.figure("the same, longest", Target::None, quantile(&samples, 1.0), " ms");
    // No server has both keys of a subject, and the slot has been open for long.
    let leased = limiter(&store, LARGE.leased(Lease::new()), Outage::default());
    let load = Load::start(&leased, 16, leased_keys);
    tokio::time::sleep(Duration::from_secs(pace.of(5, 2))).await;
    let samples = load.end().await;
    let waited = samples.iter().filter(|sample| sample.reason == Some("timeout")).count() as f64;
    let asked = format!("checks of a leased policy that wait for their deadline, of {}", samples.len());
    findings.figure(asked, Target::AtMost(1.0), 100.0 * waited / samples.len() as f64, " %");
    findings.figure("the same: check time, p99", Target::None, quantile(&samples, 0.99), " ms");
    findings.keys(cluster.keys_and_expires());
    findings
}
