//! Masters that Sentinels replace.

use std::time::{Duration, Instant};

use tollgate::{Limiter, Outage, RedisStore};
use tollgate_tests::{RedisSentinels, RedisServer, server::calls_of};

use crate::{
    Pace,
    load::{LARGE, Load, PATIENT, decides, limiter, millis, told, until},
    report::{Findings, Target},
};

async fn start() -> (RedisSentinels, Limiter) {
    let sentinels = tokio::task::spawn_blocking(|| RedisSentinels::start(false)).await.expect("they start");
    let store = RedisStore::sentinel(sentinels.urls(), "m").connect().await.expect("a store");
    let large = limiter(&store, LARGE, Outage::default());
    decides(&large, "acme").await;
    (sentinels, large)
}

fn calls(server: &RedisServer) -> u64 {
    calls_of(server, "evalsha") + calls_of(server, "eval")
}

async fn is_asked(sentinels: &RedisSentinels) {
    until("checks to reach the new master", async || sentinels.risen().is_some_and(|new| calls(new) > 0)).await;
}

pub(super) async fn killed(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let (mut own, mut added) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..pace.of(3, 1) {
        let (sentinels, large) = start().await;
        let load = Load::start(&large, 8, ["acme".into()]);
        let switched = sentinels.switched();
        let killed = Instant::now();
        sentinels.old().kill();
        let told = told(switched).await;
        let decided = decides(&large, "acme").await;
        is_asked(&sentinels).await;
        load.end().await;
        own = own.max(told - killed);
        added = added.max(decided.saturating_duration_since(told));
    }
    findings.figure("the Sentinels' own outage, longest", Target::None, millis(own), " ms");
    findings.figure("beyond it, until the store decides, longest", Target::AtMost(200.0), millis(added), " ms");
    findings.score(7, "added outage: Sentinel kill", Target::AtMost(50.0), millis(added), " ms");
    findings
}

pub(super) async fn planned(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let (mut stray, mut degraded) = (Duration::ZERO, 0);
    for _ in 0..pace.of(3, 1) {
        let (sentinels, large) = start().await;
        let load = Load::start(&large, 8, ["acme".into()]);
        let switched = sentinels.switched();
        sentinels.fail_over();
        let (old, mut seen, mut last, mut told) = (sentinels.old(), 0, Instant::now(), None);
        // Until nothing came there for a while after the switch.
        while told.is_none_or(|told: Instant| last.max(told).elapsed() < Duration::from_millis(500)) {
            let now = calls(old);
            if now > seen {
                (seen, last) = (now, Instant::now());
            }
            told = told.or_else(|| switched.try_recv().ok());
            assert!(last.elapsed() < PATIENT, "nobody tells of another master");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        is_asked(&sentinels).await;
        assert_eq!(calls(old), seen, "the old master is left");
        stray = stray.max(told.map_or(Duration::ZERO, |told| last.saturating_duration_since(told)));
        degraded = degraded.max(load.end().await.iter().filter(|sample| sample.reason.is_some()).count());
    }
    findings.figure("traffic at the old master after the switch, longest", Target::AtMost(100.0), millis(stray), " ms");
    findings.figure("checks without the store, most", Target::None, degraded as f64, "");
    findings.score(
        6,
        "traffic at the old master after a planned fail-over",
        Target::AtMost(100.0),
        millis(stray),
        " ms",
    );
    findings
}

pub(super) async fn woken(_: Pace) -> Findings {
    let mut findings = Findings::default();
    let (sentinels, large) = start().await;
    let load = Load::start(&large, 8, ["acme".into()]);
    let (old, switched) = (sentinels.old(), sentinels.switched());
    old.pause();
    told(switched).await;
    decides(&large, "acme").await;
    is_asked(&sentinels).await;
    old.resume();
    // What it had been sent while it slept.
    let woken = calls(old);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let stray = (calls(old) - woken) as f64;
    load.end().await;
    findings.figure("calls at the old master in 2 s after it woke", Target::AtMost(0.0), stray, "");
    findings
}
