//! Rows: servers that are away and return.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tollgate::{Key, Outage, Policy, Quota, RedisStore};
use tollgate_tests::{Process, RedisServer};

use crate::{
    findings::Findings,
    load::{LARGE, Load, PATIENT, decides, limiter, millis, part, restart, sample, store_at},
    pace::Pace,
};

pub(super) async fn late(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let server = Arc::new(RedisServer::start());
    server.kill();
    let store = RedisStore::open(server.url_at(server.addr())).expect("a store");
    let limiter = limiter(&store, LARGE, Outage::default());
    let first = sample(&limiter, "acme").await;
    assert!(first.is_allowed && first.reason.is_some());
    findings
        .ms("the first check, without the server", millis(first.took))
        .at_most(70.0);
    let load = Load::start(&limiter, 4, ["acme".into()]);
    tokio::time::sleep(pace.of(Duration::from_secs(3), Duration::from_millis(500))).await;
    let answered = restart(&server).await;
    let added = decides(&limiter, "acme")
        .await
        .saturating_duration_since(answered);
    let samples = load.end().await;
    findings
        .ms("from its first answer to the first decision", millis(added))
        .at_most(200.0);
    let refused = samples.iter().filter(|sample| !sample.is_allowed).count();
    findings
        .count("checks without an answer or refused", refused as f64)
        .at_most(0.0);
    findings.keys(server.keys_and_expires());
    findings
}

pub(super) async fn killed(pace: Pace) -> Findings {
    const BURST: u64 = 100;
    let mut findings = Findings::default();
    let (mut added, mut extra, mut local, mut degraded) = (Duration::ZERO, 0.0_f64, 0.0_f64, 0);
    for round in 0..pace.of(5, 1) {
        let server = Arc::new(RedisServer::start());
        let store = store_at(&server).await;
        let small = limiter(
            &store,
            Policy::token_bucket("small", Quota::per_day(BURST)),
            Outage::default(),
        );
        let large = limiter(&store, LARGE, Outage::default());
        let began = Instant::now();
        let load = Load::start(&small, 4, [Key::from(round as u64)]);
        let deny = Load::start(&large, 4, ["large".into()]);
        // The quota is spent, then the server goes.
        while began.elapsed() < Duration::from_millis(500) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let killing = Arc::clone(&server);
        tokio::task::spawn_blocking(move || killing.kill())
            .await
            .expect("it is killed");
        tokio::time::sleep(Duration::from_millis(500)).await;
        let answered = restart(&server).await;
        added = added.max(
            decides(&large, "large")
                .await
                .saturating_duration_since(answered),
        );
        // A denial is cached for a second at most; then the fresh quota is spent.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        let samples = load.end().await;
        let allowed = |is_local: bool| {
            let those = samples
                .iter()
                .filter(|it| it.is_allowed && it.reason.is_some() == is_local);
            those.count() as u64
        };
        extra = extra.max(allowed(false).saturating_sub(BURST) as f64 / BURST as f64);
        local = local.max(allowed(true) as f64 / BURST as f64);
        degraded = degraded.max(
            deny.end()
                .await
                .iter()
                .filter(|sample| sample.reason.is_some())
                .count(),
        );
        findings.keys(server.keys_and_expires());
    }
    findings
        .count("extra bursts of a key by the store", extra)
        .at_most(1.0);
    findings
        .count("bursts of a key by the local share in the gap", local)
        .at_most(1.0);
    findings.count(
        "checks decided without it in the gap, most",
        degraded as f64,
    );
    findings
        .ms("outage beyond the server's own, longest", millis(added))
        .at_most(50.0);
    findings
}

pub(super) async fn processes(pace: Pace) -> Findings {
    const PROCESSES: usize = 8;
    let mut findings = Findings::default();
    let server = Arc::new(RedisServer::start());
    let mut processes: Vec<Process> = (0..PROCESSES)
        .map(|_| Process::start(part("process", &server.url_at(server.addr())), "decided"))
        .collect();
    let killing = Arc::clone(&server);
    tokio::task::spawn_blocking(move || killing.kill())
        .await
        .expect("it is killed");
    tokio::time::sleep(pace.of(Duration::from_secs(5), Duration::from_secs(1))).await;
    let answered = restart(&server).await;
    tokio::time::sleep_until((answered + Duration::from_secs(1)).into()).await;
    // The connections of this program: this one, and those that waited for the start.
    let received: f64 = server.info("stats")["total_connections_received"]
        .parse()
        .expect("a number");
    let ours = 3.0;
    for process in &mut processes {
        process.wait_for_line("again");
    }
    let bodies = server.calls("eval") as f64;
    let each = (received - ours).max(0.0) / PROCESSES as f64;
    findings
        .count("new connections in the first second, per process", each)
        .at_most(1.0);
    // Three scripts: for one key, for many, and for the count of replicas.
    findings
        .count("scripts sent with their body, per process", bodies / 8.0)
        .at_most(3.0);
    findings.keys(server.keys_and_expires());
    findings
}

/// Runs one of the processes: prints a line when the store decides, and another when it decides
/// again after an outage.
pub(crate) fn process(url: &str) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let store = RedisStore::connect(url).await.expect("a store");
        let limiter = limiter(&store, LARGE, Outage::default());
        decides(&limiter, "acme").await;
        println!("decided");
        let _load = Load::start(&limiter, 16, (0..1_000_u64).map(Key::from));
        let began = Instant::now();
        while sample(&limiter, "acme").await.reason.is_none() {
            assert!(began.elapsed() < PATIENT, "the server stays");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        decides(&limiter, "acme").await;
        println!("again");
        // Until it is killed.
        std::future::pending::<()>().await;
    });
}
