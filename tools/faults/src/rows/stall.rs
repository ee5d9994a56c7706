//! Rows: servers that accept bytes and do not answer.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use deadpool_redis::{Config, PoolConfig, Runtime};
use tollgate::{Outage, RedisStore};
use tollgate_tests::RedisServer;

use crate::{
    findings::Findings,
    load::{
        AMOUNT, LARGE, Load, Sample, decides, limiter, millis, patient_limiter, quantile,
        remaining, sample, store_at,
    },
    pace::Pace,
};

pub(super) async fn server(pace: Pace) -> Findings {
    const TASKS: usize = 16;
    let mut findings = Findings::default();
    let server = RedisServer::start();
    let store = store_at(&server).await;
    let large = limiter(&store, LARGE, Outage::default());
    let (mut stalled, mut added, mut most, mut met) = (Vec::new(), Duration::ZERO, 0.0_f64, 0);
    for round in 0..pace.of(30_u64, 6) {
        decides(&large, round).await;
        let load = Load::start(&large, TASKS, [round.into()]);
        tokio::time::sleep(Duration::from_millis(100)).await;
        let paused = Instant::now();
        server.pause();
        tokio::time::sleep(Duration::from_millis([150, 700, 1_500][round as usize % 3])).await;
        let resumed = Instant::now();
        server.resume();
        added = added.max(decides(&large, round).await - resumed);
        let samples = load.end().await;
        // Checks that the open breaker answered were never sent.
        let calls = samples
            .iter()
            .filter(|sample| sample.reason != Some("breaker"))
            .count();
        let charged = AMOUNT - remaining(&patient_limiter(store.clone(), LARGE), round).await;
        most = most.max(charged as f64 / calls as f64);
        let those: Vec<Sample> = samples
            .into_iter()
            .filter(|it| it.was_between(paused, resumed))
            .collect();
        met = met.max(those.iter().filter(|it| is_sent(it)).count());
        stalled.extend(those);
    }
    let sent: Vec<Sample> = stalled.iter().filter(|it| is_sent(it)).copied().collect();
    let open: Vec<Sample> = stalled
        .iter()
        .filter(|it| it.reason == Some("breaker"))
        .copied()
        .collect();
    assert!(
        !sent.is_empty() && !open.is_empty(),
        "{} sent, {} not",
        sent.len(),
        open.len()
    );
    // The checks that were pending when the third reached its deadline, one per task, and the two
    // that reached theirs before: their tasks have asked again.
    let asked =
        format!("checks that met a stall before the breaker opened, of {TASKS} tasks, most");
    findings
        .count(asked, met as f64)
        .at_most((TASKS + 2) as f64);
    let late = sent.len();
    let asked = format!("check time of those, {late} in all, p50");
    findings.ms(asked, quantile(&sent, 0.5));
    findings
        .ms("the same, p99.9", quantile(&sent, 0.999))
        .at_most(55.0);
    findings
        .ms("the same, longest", quantile(&sent, 1.0))
        .at_most(70.0);
    findings
        .ms(
            "check time after the breaker opened, p99",
            quantile(&open, 0.99),
        )
        .at_most(0.2);
    findings
        .count("charges per call that was sent", most)
        .at_most(1.0);
    findings
        .ms(
            "from going on to the first decision, longest",
            millis(added),
        )
        .at_most(20.0);
    findings.keys(server.keys_and_expires());
    findings
}

/// Returns whether the check was sent and not decided by the store.
fn is_sent(sample: &Sample) -> bool {
    sample.reason.is_some_and(|reason| reason != "breaker")
}

pub(super) async fn pool(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let server = Arc::new(RedisServer::start());
    let mut config = Config::from_url(server.url_at(server.addr()));
    config.pool = Some(PoolConfig::new(2));
    let store = RedisStore::open(config.create_pool(Some(Runtime::Tokio1)).expect("a pool"))
        .expect("a store");
    let large = limiter(&store, LARGE, Outage::default());
    let mut samples = Vec::new();
    for _ in 0..pace.of(10, 3) {
        decides(&large, "acme").await;
        server.command(&["CLIENT", "PAUSE", "200", "WRITE"]);
        let tasks: Vec<_> = (0..500_u64)
            .map(|key| {
                let large = large.clone();
                tokio::spawn(async move { sample(&large, key).await })
            })
            .collect();
        for task in tasks {
            samples.push(task.await.expect("a task"));
        }
    }
    findings.longest_check(&samples);
    let without = samples.iter().filter(|sample| !sample.is_allowed).count();
    findings
        .count("checks without an answer", without as f64)
        .at_most(0.0);
    findings.keys(server.keys_and_expires());
    findings
}
