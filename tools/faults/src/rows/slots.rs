//! Rows: one slot of a cluster that is in the middle of a move.

use std::time::Duration;

use tollgate::{Key, Lease, Outage, Policy, Quota, RedisStore, redis::RedisSource, store::Clock};
use tollgate_tests::RedisCluster;

use crate::{
    findings::{Findings, Target},
    load::{LARGE, Load, PATIENT, decides, limiter, patient_limiter, quantile},
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

pub(super) async fn log(pace: Pace) -> Findings {
    const AMOUNT: u64 = 5;
    let mut findings = Findings::default();
    let cluster = start().await;
    let clock = Clock::manual(4_000_000_000_000_000);
    let store = RedisStore::builder(RedisSource::cluster(cluster.urls()))
        .connect_timeout(PATIENT)
        .deny_cache_cap(Duration::ZERO)
        .clock(clock.clone());
    let period = Duration::from_secs(10);
    let policy = Policy::sliding_log("log", Quota::new(AMOUNT, period));
    let log = patient_limiter(store.connect().await.expect("a store"), policy);
    let (slot, keys) = keys(&cluster, pace.of(200, 20));
    let (mut errors, mut above, mut checks) = (0, 0, 0);
    let (from, to) = (&cluster.nodes()[0], &cluster.nodes()[1]);
    for key in keys {
        let mut admitted = async || {
            let mut admitted = 0;
            for _ in 0..2 * AMOUNT {
                checks += 1;
                match log.check(key.clone()).await {
                    Ok(decision) => admitted += u64::from(decision.is_allowed()),
                    Err(_) => errors += 1,
                }
            }
            admitted
        };
        let mut off = AMOUNT.abs_diff(admitted().await);
        cluster.begin_move(slot, from, to);
        clock.set(clock.now_us() - 3 * period.as_micros() as u64);
        off += admitted().await;
        clock.advance(period);
        off += AMOUNT.abs_diff(admitted().await);
        cluster.cancel_move(slot, from, to);
        above += off;
    }
    findings.figure(format!("errors of {checks} checks of sliding logs"), Target::AtMost(0.0), f64::from(errors), "");
    findings.figure("admissions more or less than the log has room for", Target::AtMost(0.0), above as f64, "");
    findings.keys(cluster.keys_and_expires());
    findings
}
