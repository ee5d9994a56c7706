//! Rows: masters of a cluster, or of Sentinels, that are killed or cut off.

use std::{
    collections::BTreeSet,
    sync::mpsc::Receiver,
    thread,
    time::{Duration, Instant},
};

use tokio::{
    task::{block_in_place, spawn_blocking},
    time::sleep,
};
use tollgate::{Key, Limiter, Outage, Policy, Quota, RedisStore, redis::RedisSource};
use tollgate_tests::{
    Client, NetworkNamespace, Process, RedisCluster, RedisSentinels, RedisServer, server::calls_of,
};

use super::Pace;
use crate::{
    findings::Findings,
    load::{
        LARGE, Load, PATIENT, blocking, connected, decides, degraded, limiter, millis, sample,
        until,
    },
};

/// The word that makes this program the other side of a partition.
pub(super) const ISOLATED: &str = "isolated";

pub(super) async fn cluster(_: Pace) -> Findings {
    let mut findings = Findings::default();
    let cluster = blocking(RedisCluster::start).await;
    let large = connected(RedisSource::cluster(cluster.urls())).await;
    let slots: BTreeSet<u16> = cluster.slots_of(&cluster.nodes()[0]).into_iter().collect();
    let keys = (0..200_u64).map(Key::from);
    let (gone, others): (Vec<_>, Vec<_>) =
        keys.partition(|key| slots.contains(&cluster.slot(key.encoded())));
    for key in gone.iter().chain(&others) {
        decides(&large, key.clone()).await;
    }
    let load = Load::start(&large, 4, others);
    let probe = format!("probe:{{{}}}", gone[0].encoded());
    let killed = Instant::now();
    block_in_place(|| cluster.nodes()[0].kill());
    let heir = cluster.nodes()[3].addr();
    let writable = spawn_blocking(move || writable(heir, &probe));
    sleep(Duration::from_millis(200)).await;
    let decided = decides(&large, gone[0].clone()).await;
    let writable = writable.await.expect("a task");
    let after = decided.saturating_duration_since(writable);
    let samples = load.end_answered().await;
    findings.shown("the cluster's own outage", millis(writable - killed), "ms");
    let asked = "beyond it, until the store decides";
    findings.at_most(100.0, asked, millis(after), "ms");
    let asked = "checks of other masters' keys without the store";
    findings.at_most(0.0, asked, degraded(&samples), "%");
    findings
}

/// Waits until the server takes a write, and returns the time.
fn writable(addr: std::net::SocketAddr, key: &str) -> Instant {
    let began = Instant::now();
    let is_written = || {
        let mut client = Client::connect(addr).ok()?;
        let reply = client.command(&["SET", key, "1", "PX", "60000"]).ok()?;
        (!reply.is_error()).then_some(())
    };
    while is_written().is_none() {
        assert!(began.elapsed() < PATIENT, "no replica takes over");
        thread::sleep(Duration::from_millis(1));
    }
    Instant::now()
}

pub(super) async fn sentinels(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let (mut own, mut after) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..pace.of(3, 1) {
        let sentinels = blocking(|| RedisSentinels::start(false)).await;
        let large = connected(RedisSource::sentinel(sentinels.urls(), "m")).await;
        let load = Load::start(&large, 8, ["acme".into()]);
        let switched = sentinels.switched();
        let killed = Instant::now();
        sentinels.old().kill();
        let announced = announced(switched).await;
        let decided = decides(&large, "acme").await;
        until("checks to reach the new master", async || {
            sentinels.risen().is_some_and(|new| calls(new) > 0)
        })
        .await;
        load.end_answered().await;
        own = own.max(announced - killed);
        after = after.max(decided.saturating_duration_since(announced));
    }
    findings.shown("the Sentinels' own outage, longest", millis(own), "ms");
    let asked = "beyond it, until the store decides, longest";
    findings.at_most(50.0, asked, millis(after), "ms");
    findings
}

/// Waits for the time that another thread sends, without blocking the runtime.
async fn announced(by: Receiver<Instant>) -> Instant {
    let announced = blocking(move || by.recv_timeout(PATIENT)).await;
    announced.expect("it is announced")
}

fn calls(server: &RedisServer) -> u64 {
    calls_of(server, "evalsha") + calls_of(server, "eval")
}

/// The quota that both sides of a partition spend.
const SPLIT: Policy = Policy::token_bucket("split", Quota::per_day(1_000));

pub(super) async fn partition(_: Pace) -> Findings {
    let mut findings = Findings::default();
    for (what, has_min_replicas) in [("", false), ("min-replicas-to-write 1: ", true)] {
        let (both, stray, left) = cut_off(has_min_replicas).await;
        assert!(
            both <= 2.0,
            "{what}both masters admit {both} bursts of a key"
        );
        findings.shown(format!("{what}bursts of a key, by both masters"), both, "");
        if has_min_replicas {
            let asked = format!("{what}traffic at the old master after the cut");
            // The server counts in whole seconds, and checks once a second; its lag may be two.
            findings.at_most(4_200.0, asked, millis(stray), "ms");
        }
        let asked = format!("{what}from the end of the cut until the new master is asked");
        // The store asks the Sentinels once a second, and connecting may take as long.
        findings.at_most(2_200.0, asked, millis(left), "ms");
    }
    findings
}

/// Cuts this process and the master off from the replicas and the Sentinels, and lets both sides
/// spend. Returns the bursts that both admit, the time for which the old master admits after the
/// cut, and the time until it is left after the end.
async fn cut_off(has_min_replicas: bool) -> (f64, Duration, Duration) {
    let namespace = NetworkNamespace::start();
    let sentinels = block_in_place(|| RedisSentinels::start_in(&namespace));
    if has_min_replicas {
        sentinels.want_replicas();
    }
    let store = RedisStore::connect(RedisSource::sentinel(sentinels.urls(), "m")).await;
    let store = store.expect("a store");
    let [split, large] = [SPLIT, LARGE].map(|policy| limiter(&store, policy, Outage::Closed));
    let mut here = 0;
    for _ in 0..100 {
        here += spent(&split).await;
    }
    sentinels.old().command(&["WAIT", "2", "30000"]);
    let load = Load::start(&large, 8, ["large".into()]);
    let cut = Instant::now();
    namespace.cut();
    let this = std::env::current_exe().expect("this program has a path");
    let mut other_side = namespace.command(this);
    other_side.args([ISOLATED, &sentinels.urls().join(",")]);
    let there = spawn_blocking(move || {
        let process = Process::start(other_side, "spent");
        process
            .ready_line()
            .trim_start_matches("spent ")
            .parse::<u64>()
    });
    // Slowly, so that units are left when the other master takes over.
    let mut asked = 0;
    while !there.is_finished() || !has_min_replicas && asked < 2_000 {
        here += spent(&split).await;
        asked += 1;
        sleep(Duration::from_millis(2)).await;
    }
    let there = there.await.expect("the other side").expect("a number");
    assert!(there > 0, "the other side has a master");
    let samples = load.end().await;
    let decided = samples
        .iter()
        .filter(|it| it.is_allowed && it.reason.is_none());
    let last = decided.map(|it| it.began + it.took).max().unwrap_or(cut);
    namespace.restore();
    let mended = Instant::now();
    until("another master", async || sentinels.risen().is_some()).await;
    let new = sentinels.risen().expect("there is one");
    let before = calls(new);
    until("checks to reach it", async || {
        sample(&large, "large").await.is_allowed && calls(new) > before
    })
    .await;
    let both = (here + there) as f64 / 1_000.0;
    (both, last.saturating_duration_since(cut), mended.elapsed())
}

/// Spends one unit, if the store admits it.
async fn spent(split: &Limiter) -> u64 {
    u64::from(sample(split, "acme").await.is_allowed)
}

/// Runs the other side: spends the quota at the next master, as soon as there is one.
pub(super) fn isolated(urls: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let source = RedisSource::sentinel(urls.split(','), "m");
        let store = RedisStore::builder(source).build().expect("a store");
        let split = limiter(&store, SPLIT, Outage::Closed);
        decides(&split, "acme").await;
        let mut spent = 0;
        loop {
            match split.check("acme").await {
                Ok(decision) if decision.is_denied() => break,
                Ok(_) => spent += 1,
                Err(_) => sleep(Duration::from_millis(1)).await,
            }
        }
        println!("spent {spent}");
        // Until it is killed.
        std::future::pending::<()>().await;
    });
}
