//! Rows: servers that are away and return, that stand still, and that refuse to decide.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::time::sleep;
use tollgate::{Key, Outage, Policy, Quota, RedisStore};
use tollgate_tests::{RedisServer, RefusingState, refusing_state};

use super::Pace;
use crate::{
    findings::Findings,
    load::{
        Load, Sample, connected, decides, degraded, kill, large, limiter, longest, millis,
        quantile, restart, sample, until,
    },
};

pub(super) async fn late(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let server = Arc::new(RedisServer::start());
    server.kill();
    let large = large(&RedisStore::open(server.url_at(server.addr())).expect("a store"));
    let first = sample(&large, "acme").await;
    assert!(first.is_allowed && first.reason.is_some());
    longest(
        &mut findings,
        "the first check, without the server",
        &[first],
    );
    let load = Load::start(&large, 4, ["acme".into()]);
    sleep(pace.of(Duration::from_secs(3), Duration::from_millis(500))).await;
    let answered = restart(&server).await;
    let decided = decides(&large, "acme").await;
    load.end_answered().await;
    let asked = "from its first answer to the first decision";
    let after = decided.saturating_duration_since(answered);
    // After three seconds the pause between two probes has grown to some 280 ms.
    findings.at_most(300.0, asked, millis(after), "ms");
    findings
}

pub(super) async fn killed(pace: Pace) -> Findings {
    const BURST: u64 = 100;
    let mut findings = Findings::default();
    let (mut after, mut gap) = (Duration::ZERO, 0.0_f64);
    for round in 0..pace.of(5, 1) {
        let server = Arc::new(RedisServer::start());
        let store = RedisStore::connect(server.url_at(server.addr())).await;
        let store = store.expect("a store");
        let policy = Policy::token_bucket("small", Quota::per_day(BURST));
        let (small, large) = (limiter(&store, policy, Outage::default()), large(&store));
        let spending = Load::start(&small, 4, [Key::from(round as u64)]);
        let load = Load::start(&large, 4, ["large".into()]);
        // The quota is spent, then the server goes.
        sleep(Duration::from_millis(500)).await;
        kill(&server).await;
        sleep(Duration::from_millis(500)).await;
        let answered = restart(&server).await;
        let decided = decides(&large, "large").await;
        after = after.max(decided.saturating_duration_since(answered));
        // A denial is cached for a second at most; then the fresh quota is spent.
        sleep(Duration::from_millis(1_500)).await;
        let samples = spending.end().await;
        for (is_local, most) in [(false, 2 * BURST), (true, BURST)] {
            let admitted = |it: &&Sample| it.is_allowed && it.reason.is_some() == is_local;
            let admitted = samples.iter().filter(admitted).count() as u64;
            assert!(
                admitted <= most,
                "without the store: {is_local}: {admitted} of {most}"
            );
        }
        gap = gap.max(degraded(&load.end_answered().await));
    }
    let asked = "checks decided without it, the server away for half a second of three";
    findings.shown(asked, gap, "%");
    let asked = "outage beyond the server's own, longest";
    findings.at_most(50.0, asked, millis(after), "ms");
    findings
}

pub(super) async fn stalled(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let server = RedisServer::start();
    let large = connected(server.url_at(server.addr())).await;
    let (mut stalled, mut after) = (Vec::new(), Duration::ZERO);
    for round in 0..pace.of(30_u64, 6) {
        decides(&large, round).await;
        let load = Load::start(&large, 16, [round.into()]);
        sleep(Duration::from_millis(100)).await;
        let paused = Instant::now();
        server.pause();
        sleep(Duration::from_millis([150, 700, 1_500][round as usize % 3])).await;
        let resumed = Instant::now();
        server.resume();
        after = after.max(decides(&large, round).await - resumed);
        let met = |it: &Sample| it.was_between(paused, resumed);
        stalled.extend(load.end_answered().await.into_iter().filter(met));
    }
    meet_silence(&mut findings, &stalled);
    let asked = "from going on to the first decision, longest";
    findings.at_most(20.0, asked, millis(after), "ms");
    findings
}

/// Adds the times of checks at a server that says nothing: before the breaker opened, and after.
pub(super) fn meet_silence(findings: &mut Findings, samples: &[Sample]) {
    let undecided = samples.iter().copied().filter(|it| it.reason.is_some());
    let (open, sent): (Vec<_>, Vec<_>) = undecided.partition(|it| it.reason == Some("breaker"));
    assert!(
        !sent.is_empty() && !open.is_empty(),
        "nobody met the silence"
    );
    findings.at_most(55.0, "check time, p99.9", quantile(&sent, 0.999), "ms");
    longest(findings, "check time, longest", &sent);
    let asked = "check time after the breaker opened, p99";
    findings.at_most(0.2, asked, quantile(&open, 0.99), "ms");
}

pub(super) async fn connections(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let server = RedisServer::start();
    let large = connected(server.url_at(server.addr())).await;
    let load = Load::start(&large, 16, ["acme".into()]);
    for _ in 0..pace.of(100, 20) {
        server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        sleep(Duration::from_millis(100)).await;
    }
    decides(&large, "acme").await;
    let samples = load.end_answered().await;
    let asked = "checks decided without the store, a kill each 100 ms";
    findings.shown(asked, degraded(&samples), "%");
    findings
}

pub(super) async fn refusing(_: Pace) -> Findings {
    let mut findings = Findings::default();
    for state in refusing_state::ALL {
        let (word, server) = (state.reason, RefusingState::server());
        let large = connected(server.url_at(server.addr())).await;
        let load = Load::start(&large, 4, ["acme".into()]);
        state.enter(&server);
        until(word, async || {
            sample(&large, "probe").await.reason == Some(word)
        })
        .await;
        sleep(Duration::from_millis(500)).await;
        state.leave(&server);
        let relieved = Instant::now();
        let after = millis(decides(&large, "acme").await - relieved);
        let mut samples = load.end_answered().await;
        samples.retain(|sample| sample.reason.is_some());
        longest(&mut findings, &format!("{word}: longest check"), &samples);
        let asked = format!("{word}: from its end to the first decision");
        findings.at_most(1_200.0, asked, after, "ms");
    }
    findings
}
