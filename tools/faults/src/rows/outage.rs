//! Rows: what several replicas admit together in an outage.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tollgate::{Key, Outage, Policy, Quota, RedisStore, Store, store::ReplicaGroup};
use tollgate_tests::{Process, RedisServer};

use crate::{
    findings::Findings,
    load::{LARGE, decides, limiter, millis, part, restart, sample},
    pace::Pace,
};

/// The part of one replica in the row about replicas.
pub(crate) const REPLICA: &str = "replica";

/// A quota that every row here shares out. No unit accrues while a row runs.
const AMOUNT: u32 = 400;

const SHARED: Policy = Policy::fixed_window("shared", Quota::per_day(AMOUNT as u64));

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
        tokio::task::spawn_blocking(move || killing.kill())
            .await
            .expect("it is killed");
        let mut admitted = 0;
        for (process, outages) in &mut replicas {
            let line = process.wait_for_line(&format!("outage {outages}: admitted"));
            admitted += line
                .rsplit(' ')
                .next()
                .and_then(|word| word.parse::<u32>().ok())
                .expect("a number");
            *outages += 1;
        }
        restart(&server).await;
        for (process, outages) in &mut replicas {
            process.wait_for_line(&format!("outage {outages}: "));
        }
        let share = f64::from(admitted) / f64::from(AMOUNT);
        findings
            .count(
                format!("{number} replicas: admitted in all, to the quota"),
                share,
            )
            .at_most(1.0);
        let least = f64::from(AMOUNT - number as u32) / f64::from(AMOUNT);
        findings
            .count(
                format!("{number} replicas: the same, but for rounding"),
                share,
            )
            .at_least(least);
        findings.ms(
            format!("{number} replicas: known to all after"),
            millis(known),
        );
    }
    findings.keys(server.keys_and_expires());
    findings
}

/// Runs one replica: prints each number of replicas, and what it admits on one key in each outage.
pub(crate) fn replica(url: &str) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let store = RedisStore::connect(url).await.expect("a store");
        let count = store
            .replicas(ReplicaGroup::new("shared", &SHARED.into()))
            .expect("a store that counts");
        let (shared, large) = (
            limiter(&store, SHARED, Outage::default()),
            limiter(&store, LARGE, Outage::default()),
        );
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
