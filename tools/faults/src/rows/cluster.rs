//! Rows: a cluster whose masters die, stand still, or are all replaced.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tollgate::{Key, Limiter, Outage, RedisStore, redis::RedisSource};
use tollgate_tests::{Client, RedisCluster, RedisServer};

use crate::{
    findings::Findings,
    load::{LARGE, Load, PATIENT, decides, degraded, limiter, millis, quantile},
    pace::Pace,
};

/// Returns keys of the first master, and keys of the others.
fn keys(cluster: &RedisCluster) -> (Vec<Key>, Vec<Key>) {
    let first = &cluster.nodes()[0];
    let slots: std::collections::BTreeSet<u16> = cluster.slots_of(first).into_iter().collect();
    (0..200_u64)
        .map(Key::from)
        .partition(|key| slots.contains(&cluster.slot(key.encoded())))
}

async fn start() -> Arc<RedisCluster> {
    tokio::task::spawn_blocking(|| Arc::new(RedisCluster::start()))
        .await
        .expect("a cluster")
}

async fn store(cluster: &RedisCluster) -> RedisStore {
    RedisStore::builder(RedisSource::cluster(cluster.urls()))
        .connect_timeout(PATIENT)
        .connect()
        .await
        .expect("a store")
}

async fn all_decide(large: &Limiter, keys: &[Key]) {
    for key in keys {
        decides(large, key.clone()).await;
    }
}

pub(super) async fn killed(_: Pace) -> Findings {
    let mut findings = Findings::default();
    let cluster = start().await;
    let large = limiter(&store(&cluster).await, LARGE, Outage::default());
    let (gone, others) = keys(&cluster);
    all_decide(&large, &gone).await;
    all_decide(&large, &others).await;
    let load = Load::start(&large, 4, others);
    let own = {
        let (cluster, key) = (
            Arc::clone(&cluster),
            format!("probe:{{{}}}", gone[0].encoded()),
        );
        tokio::task::spawn_blocking(move || {
            let heir = cluster.nodes()[3].addr();
            let mut client: Option<Client> = None;
            let killed = Instant::now();
            cluster.nodes()[0].kill();
            loop {
                client = client.or_else(|| Client::connect(heir).ok());
                let reply = client
                    .as_mut()
                    .map(|client| client.command(&["SET", &key, "1", "PX", "60000"]));
                match reply {
                    Some(Ok(reply)) if !reply.is_error() => return (killed, Instant::now()),
                    Some(Err(_)) => client = None,
                    _ => {}
                }
                assert!(killed.elapsed() < PATIENT, "no replica takes over");
                std::thread::sleep(Duration::from_millis(1));
            }
        })
    };
    tokio::time::sleep(Duration::from_millis(200)).await;
    let decided = decides(&large, gone[0].clone()).await;
    let (killed, writable) = own.await.expect("a task");
    let samples = load.end().await;
    let added = millis(decided.saturating_duration_since(writable));
    findings.ms("the cluster's own outage", millis(writable - killed));
    findings
        .ms("beyond it, until the store decides", added)
        .at_most(100.0);
    let errors = degraded(&samples);
    let asked = format!(
        "checks of other masters' keys without the store, of {}",
        samples.len()
    );
    findings.count(asked, errors).at_most(0.0);
    findings
}

pub(super) async fn stalled(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let cluster = start().await;
    let large = limiter(&store(&cluster).await, LARGE, Outage::default());
    let (still, others) = keys(&cluster);
    all_decide(&large, &still).await;
    all_decide(&large, &others).await;
    let (mut here, mut there) = (Vec::new(), Vec::new());
    for _ in 0..pace.of(10, 3) {
        let (these, those) = (
            Load::start(&large, 8, still.clone()),
            Load::start(&large, 8, others.clone()),
        );
        let paused = Instant::now();
        cluster.nodes()[0].pause();
        tokio::time::sleep(Duration::from_millis(500)).await;
        let resumed = Instant::now();
        cluster.nodes()[0].resume();
        all_decide(&large, &still[..1]).await;
        here.extend(
            these
                .end()
                .await
                .into_iter()
                .filter(|it| it.was_between(paused, resumed)),
        );
        there.extend(those.end().await);
    }
    assert!(
        here.iter().any(|sample| sample.reason == Some("timeout")),
        "nobody met the stall"
    );
    findings
        .ms("check time of its keys, p99.9", quantile(&here, 0.999))
        .at_most(55.0);
    findings
        .ms("the same, longest", quantile(&here, 1.0))
        .at_most(70.0);
    let errors = degraded(&there);
    let asked = format!(
        "checks of other masters' keys without the store, of {}",
        there.len()
    );
    findings.count(asked, errors).at_most(0.0);
    findings.keys(cluster.keys_and_expires());
    findings
}

pub(super) async fn renewed(_: Pace) -> Findings {
    let mut findings = Findings::default();
    let mut cluster = tokio::task::spawn_blocking(RedisCluster::start)
        .await
        .expect("a cluster");
    let seeds = cluster.nodes().len();
    let large = limiter(&store(&cluster).await, LARGE, Outage::default());
    let keys: Vec<Key> = (0..200_u64).map(Key::from).collect();
    all_decide(&large, &keys).await;
    let load = Load::start(&large, 8, keys.clone());
    let own = tokio::task::block_in_place(|| cluster.renew());
    all_decide(&large, &keys).await;
    let gone = tokio::task::block_in_place(|| {
        cluster.nodes()[..seeds].iter().for_each(RedisServer::kill);
        Instant::now()
    });
    all_decide(&large, &keys).await;
    let decided = Instant::now();
    // Servers that none of the seeds knows.
    let (from, to) = (&cluster.nodes()[seeds], &cluster.nodes()[seeds + 1]);
    let slots = tokio::task::block_in_place(|| {
        let slots: Vec<u16> = cluster.slots_of(from).into_iter().take(500).collect();
        cluster.move_slots(slots.iter().copied(), from, to);
        slots.len()
    });
    all_decide(&large, &keys).await;
    let samples = load.end().await;
    let errors = |from: Instant| {
        let late = samples.iter().filter(|sample| sample.began >= from);
        late.clone()
            .filter(|sample| sample.reason.is_some())
            .count() as f64
            / late.count() as f64
    };
    let all = 100.0 * errors(samples[0].began);
    findings.percent(
        "checks without the store, three servers taking over and six killed",
        all,
    );
    let added = millis(decided.saturating_duration_since(gone));
    findings.ms(
        "the longest of these take-overs, the cluster's own",
        millis(own),
    );
    let asked = "from the end of the last seed until all keys are decided by others";
    findings.ms(asked, added).at_most(200.0);
    let asked =
        format!("checks without the store after that, {slots} slots moving among the others");
    findings
        .percent(asked, 100.0 * errors(decided))
        .at_most(0.0);
    findings.keys(cluster.keys_and_expires());
    findings
}
