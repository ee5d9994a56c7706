//! Rows: what an outage logs, and what several replicas admit together in one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::task::LocalSet;
use tollgate::{Key, Limiter, Outage, Policy, Quota, RedisStore, Store, store::ReplicaGroup};
use tollgate_tests::{Log, Process, RedisServer};

use crate::{
    findings::{Findings, Target},
    load::{LARGE, PATIENT, decides, limiter, millis, part, restart, sample, until},
    pace::Pace,
};

/// The part of one replica in the row about replicas.
pub(crate) const REPLICA: &str = "replica";

/// A quota that every row here shares out. No unit accrues while a row runs.
const AMOUNT: u32 = 400;

const SHARED: Policy = Policy::fixed_window("shared", Quota::per_day(AMOUNT as u64));

pub(super) async fn remembered(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    // Only this thread logs into it, so every task of the row runs here.
    let (log, _guard) = Log::of_this_thread();
    let counts = || ["decided without the store", "decides again"].map(|line| log.text().matches(line).count() as f64);

    let server = Arc::new(RedisServer::start());
    let store =
        RedisStore::builder(server.url_at(server.addr())).deny_cache_cap(PATIENT).connect().await.expect("a store");
    let shared = limiter(&store, SHARED, Outage::default());
    while sample(&shared, "denied").await.is_allowed {}
    let is_over = AtomicBool::new(false);
    let fresh = std::cell::Cell::new(0_u64);
    let load = async |limiter: &Limiter| {
        while !is_over.load(Ordering::Relaxed) {
            fresh.set(fresh.get() + 1);
            sample(limiter, fresh.get()).await;
            assert!(!sample(limiter, "denied").await.is_allowed);
            tokio::task::yield_now().await;
        }
    };
    let faults = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let killing = Arc::clone(&server);
        tokio::task::spawn_blocking(move || killing.kill()).await.expect("it is killed");
        tokio::time::sleep(pace.of(Duration::from_secs(5), Duration::from_secs(1))).await;
        let away = counts();
        restart(&server).await;
        until("the end of the outage to be logged", async || counts()[1] > 0.0).await;
        tokio::time::sleep(pace.of(Duration::from_secs(2), Duration::from_millis(500))).await;
        is_over.store(true, Ordering::Relaxed);
        away
    };
    let tasks = async { tokio::join!(load(&shared), load(&shared), load(&shared), load(&shared)) };
    let (away, _) = LocalSet::new().run_until(async { tokio::join!(faults, tasks) }).await;
    let checks = 2 * fresh.get();
    findings.figure(format!("lines at its begin, in {checks} checks"), Target::AtMost(1.0), away[0], "");
    findings.figure("lines at its end while the server is away", Target::AtMost(0.0), away[1], "");
    let [begins, ends] = counts();
    findings.figure("lines at its begin, with the server back", Target::AtMost(1.0), begins, "");
    findings.figure("lines at its end, with the server back", Target::AtMost(1.0), ends, "");
    findings
}

pub(super) async fn replicas(_: Pace) -> Findings {
    let mut findings = Findings::default();
    let server = Arc::new(RedisServer::start());
    // Each replica with the number of outages that it has seen.
    let mut replicas: Vec<(Process, usize)> = Vec::new();
    for number in [1, 8, 3] {
        let changed = Instant::now();
        replicas.truncate(number);
        while replicas.len() < number {
            let replica = part(REPLICA, &server.url_at(server.addr()));
            replicas.push((Process::start(replica, "outage 0"), 0));
        }
        for (process, outages) in &mut replicas {
            process.wait_for_line(&format!("outage {outages}: {number} replicas"));
        }
        let known = changed.elapsed();
        let killing = Arc::clone(&server);
        tokio::task::spawn_blocking(move || killing.kill()).await.expect("it is killed");
        let mut admitted = 0;
        for (process, outages) in &mut replicas {
            let line = process.wait_for_line(&format!("outage {outages}: admitted"));
            admitted += line.rsplit(' ').next().and_then(|word| word.parse::<u32>().ok()).expect("a number");
            *outages += 1;
        }
        restart(&server).await;
        for (process, outages) in &mut replicas {
            process.wait_for_line(&format!("outage {outages}: "));
        }
        let share = f64::from(admitted) / f64::from(AMOUNT);
        findings.figure(format!("{number} replicas: admitted in all, to the quota"), Target::AtMost(1.0), share, "");
        let least = f64::from(AMOUNT - number as u32) / f64::from(AMOUNT);
        findings.figure(format!("{number} replicas: the same, but for rounding"), Target::AtLeast(least), share, "");
        findings.figure(format!("{number} replicas: known to all after"), Target::None, millis(known), " ms");
    }
    findings.keys(server.keys_and_expires());
    findings
}

/// Runs one replica: prints each number of replicas, and what it admits on one key in each outage.
pub(crate) fn replica(url: &str) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let store = RedisStore::connect(url).await.expect("a store");
        let count = store.replicas(ReplicaGroup::new("shared", &SHARED.into())).expect("a store that counts");
        let (shared, large) = (limiter(&store, SHARED, Outage::default()), limiter(&store, LARGE, Outage::default()));
        for outage in 0_u64.. {
            let mut known = None;
            while sample(&large, "probe").await.reason.is_none() {
                if count.get().is_some() && count.get() != known {
                    known = count.get();
                    println!("outage {outage}: {} replicas", known.map_or(0, u32::from));
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let mut admitted = 0;
            while sample(&shared, Key::from(outage)).await.is_allowed {
                admitted += 1;
            }
            println!("outage {outage}: admitted {admitted}");
            decides(&large, "probe").await;
        }
    });
}
