//! Rows: masters that Sentinels replace.

use std::time::{Duration, Instant};

use tollgate::{Limiter, Outage, Policy, Quota, RedisStore, redis::RedisSource};
use tollgate_tests::{Process, RedisSentinels, RedisServer, server::calls_of};

use crate::{
    findings::Findings,
    load::{LARGE, Load, PATIENT, announced, decides, limiter, millis, sample, until},
    pace::Pace,
};

async fn start() -> (RedisSentinels, Limiter) {
    let sentinels = tokio::task::spawn_blocking(|| RedisSentinels::start(false))
        .await
        .expect("they start");
    let store = RedisStore::builder(RedisSource::sentinel(sentinels.urls(), "m"))
        .connect()
        .await
        .expect("a store");
    let large = limiter(&store, LARGE, Outage::default());
    decides(&large, "acme").await;
    (sentinels, large)
}

fn calls(server: &RedisServer) -> u64 {
    calls_of(server, "evalsha") + calls_of(server, "eval")
}

async fn is_asked(sentinels: &RedisSentinels) {
    until("checks to reach the new master", async || {
        sentinels.risen().is_some_and(|new| calls(new) > 0)
    })
    .await;
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
        let announced = announced(switched).await;
        let decided = decides(&large, "acme").await;
        is_asked(&sentinels).await;
        load.end().await;
        own = own.max(announced - killed);
        added = added.max(decided.saturating_duration_since(announced));
    }
    findings.ms("the Sentinels' own outage, longest", millis(own));
    findings
        .ms("beyond it, until the store decides, longest", millis(added))
        .at_most(50.0);
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
        let (old, mut seen, mut last, mut announced) = (sentinels.old(), 0, Instant::now(), None);
        // Until no call came for a while after the switch.
        while announced.is_none_or(|announced: Instant| {
            last.max(announced).elapsed() < Duration::from_millis(500)
        }) {
            let now = calls(old);
            if now > seen {
                (seen, last) = (now, Instant::now());
            }
            announced = announced.or_else(|| switched.try_recv().ok());
            assert!(last.elapsed() < PATIENT, "nobody tells of another master");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        is_asked(&sentinels).await;
        assert_eq!(calls(old), seen, "the old master is left");
        stray = stray.max(announced.map_or(Duration::ZERO, |announced| {
            last.saturating_duration_since(announced)
        }));
        degraded = degraded.max(
            load.end()
                .await
                .iter()
                .filter(|sample| sample.reason.is_some())
                .count(),
        );
    }
    let stayed = stays(&RedisSentinels::start(false)).await;
    let asked =
        "with min-replicas-to-write 1: admissions at the old master by a process that stays there";
    findings.count(asked, stayed).at_most(0.0);
    findings
        .ms(
            "traffic at the old master after the switch, longest",
            millis(stray),
        )
        .at_most(100.0);
    findings.count("checks without the store, most", degraded as f64);
    findings
}

/// Counts the admissions at the old master by a process that knows only it, in a thousand checks
/// after a fail-over.
async fn stays(sentinels: &RedisSentinels) -> f64 {
    sentinels.want_replicas();
    let store = RedisStore::connect(sentinels.old().url_at(sentinels.old().addr()))
        .await
        .expect("a store");
    let large = limiter(&store, LARGE, Outage::Closed);
    decides(&large, "acme").await;
    let switched = sentinels.switched();
    sentinels.fail_over();
    announced(switched).await;
    let mut admitted = 0;
    for _ in 0..1_000 {
        admitted += u64::from(large.check("acme").await.is_ok());
    }
    admitted as f64
}

/// The quota that both sides of a partition spend.
const SPLIT: Policy = Policy::token_bucket("split", Quota::per_day(1_000));

pub(super) async fn partition(_: Pace) -> Findings {
    let mut findings = Findings::default();
    let (both, _, left) = cut_off(false).await;
    findings
        .count("bursts of a key that both masters admit", both)
        .at_most(2.0);
    let (both, stray, left_too) = cut_off(true).await;
    findings
        .count("the same with min-replicas-to-write 1", both)
        .at_most(2.0);
    let asked = "with it: traffic at the old master after the cut, min-replicas-max-lag 2";
    // The server counts in whole seconds, and checks once a second.
    findings.ms(asked, millis(stray)).at_most(4_200.0);
    // The store asks the Sentinels once a second, and connecting may take as long.
    let asked = "from the end of the cut until the new master is asked, longest";
    findings
        .ms(asked, millis(left.max(left_too)))
        .at_most(2_200.0);
    findings
}

/// Cuts this process and the master off from the replicas and the Sentinels, and lets both sides
/// spend. Returns the bursts that both admit, the time for which the old master admits after the
/// cut, and the time until it is left after the end.
async fn cut_off(has_min_replicas: bool) -> (f64, Duration, Duration) {
    let namespace = tollgate_tests::NetworkNamespace::start();
    let start = || RedisSentinels::start_in(&namespace);
    let sentinels = tokio::task::block_in_place(start);
    if has_min_replicas {
        sentinels.want_replicas();
    }
    let store = RedisStore::builder(RedisSource::sentinel(sentinels.urls(), "m"))
        .connect()
        .await
        .expect("a store");
    let (split, large) = (
        limiter(&store, SPLIT, Outage::Closed),
        limiter(&store, LARGE, Outage::Closed),
    );
    let mut here = 0;
    for _ in 0..100 {
        here += u64::from(
            split
                .check("acme")
                .await
                .is_ok_and(|decision| decision.is_allowed()),
        );
    }
    sentinels.old().command(&["WAIT", "2", "30000"]);
    let load = Load::start(&large, 8, ["large".into()]);
    let cut = Instant::now();
    namespace.cut();
    let there = {
        let mut command =
            namespace.command(std::env::current_exe().expect("this program has a path"));
        command.args(["isolated", &sentinels.urls().join(",")]);
        tokio::task::spawn_blocking(move || {
            Process::start(command, "spent").ready_line().to_owned()
        })
    };
    // Slowly, so that units are left when the other master takes over.
    let mut asked = 0;
    while !there.is_finished() || !has_min_replicas && asked < 2_000 {
        here += u64::from(
            split
                .check("acme")
                .await
                .is_ok_and(|decision| decision.is_allowed()),
        );
        asked += 1;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let line = there.await.expect("the other side");
    let there: u64 = line
        .split(' ')
        .nth(1)
        .and_then(|it| it.parse().ok())
        .expect("a number");
    assert!(there > 0, "the other side has a master");
    let samples = load.end().await;
    let last = samples
        .iter()
        .filter(|it| it.is_allowed && it.reason.is_none())
        .map(|it| it.began + it.took)
        .max();
    let stray = last.map_or(Duration::ZERO, |last| last.saturating_duration_since(cut));
    namespace.restore();
    let mended = Instant::now();
    until("another master", async || sentinels.risen().is_some()).await;
    let new = sentinels.risen().expect("there is one");
    let before = calls(new);
    until("checks to reach it", async || {
        sample(&large, "large").await.is_allowed && calls(new) > before
    })
    .await;
    ((here + there) as f64 / 1_000.0, stray, mended.elapsed())
}

/// Runs the other side: spends the quota at the next master, as soon as there is one.
pub(crate) fn isolated(urls: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let store = RedisStore::builder(RedisSource::sentinel(urls.split(','), "m"))
            .build()
            .expect("a store");
        let split = limiter(&store, SPLIT, Outage::Closed);
        decides(&split, "acme").await;
        let mut spent = 0;
        loop {
            match split.check("acme").await {
                Ok(decision) if decision.is_denied() => break,
                Ok(_) => spent += 1,
                Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
        println!("spent {spent}");
        // Until it is killed.
        std::future::pending::<()>().await;
    });
}
