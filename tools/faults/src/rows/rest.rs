//! Rows: connections that end while nobody uses them. The server is healthy all the time.

use std::time::{Duration, Instant};

use deadpool_redis::{Config, PoolConfig, Runtime};
use tollgate::{Limiter, Outage, RedisStore, redis::RedisSource};
use tollgate_tests::{Authority, Proxy, RedisCluster, RedisServer};

use crate::{
    findings::{Findings, Target},
    load::{LARGE, decides, limiter, millis, sample},
    pace::Pace,
};

const LOST: &str = "checks decided without a healthy store";

/// Longer than the server keeps a connection that is not used: it looks about once a second.
const REST: Duration = Duration::from_millis(3_500);

pub(super) async fn closed(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let server = RedisServer::start();
    let large = used(server.url_at(server.addr())).await;
    server.command(&["CONFIG", "SET", "timeout", "1"]);
    let mut lost = 0;
    for _ in 0..pace.of(10, 2) {
        let rested = Instant::now();
        while rested.elapsed() < REST {
            // The connection of this program is in use all the time.
            server.command(&["PING"]);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        lost += lost_checks(&large, 1).await;
    }
    findings.figure(LOST, Target::AtMost(0.0), f64::from(lost), "");
    findings.keys(server.keys_and_expires());
    findings
}

pub(super) async fn killed(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let server = RedisServer::start();
    let large = used(server.url_at(server.addr())).await;
    let before = received(&server);
    let rounds = pace.of(200, 30);
    let lost = kill(&large, &[&server], rounds).await;
    let dials = (received(&server) - before) / f64::from(rounds);
    findings.figure(format!("{LOST}, of {rounds}"), Target::AtMost(0.0), f64::from(lost), "");
    findings.figure("new connections per kill", Target::AtMost(1.0), dials, "");
    findings.keys(server.keys_and_expires());
    findings
}

pub(super) async fn forgotten(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let server = RedisServer::start();
    let (mut lost, mut longest, mut dials) = (0, Duration::ZERO, 0);
    // One check comes soon after the box forgot the connection, the other when a PING has found out.
    for rest in [Duration::ZERO, Duration::from_secs(8)] {
        for _ in 0..pace.of(5, 1) {
            let proxy = Proxy::start(server.addr());
            // The count of the replicas would use the connection every other second.
            let large = used_with(Outage::local(1), proxy.url()).await;
            tokio::time::sleep(REST).await;
            proxy.forget_all();
            tokio::time::sleep(rest).await;
            let first = sample(&large, "acme").await;
            lost += u32::from(first.reason.is_some()) + lost_checks(&large, 1).await;
            longest = longest.max(first.took);
            dials = dials.max(proxy.accepted() - 1);
        }
    }
    findings.figure(LOST, Target::AtMost(0.0), f64::from(lost), "");
    findings.figure("longest first check", Target::AtMost(50.0), millis(longest), " ms");
    findings.figure("new connections, most", Target::AtMost(1.0), dials as f64, "");
    findings.keys(server.keys_and_expires());
    findings
}

pub(super) async fn elsewhere(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let rounds = pace.of(100, 20);
    let mut lost_at = |name: &str, lost: u32| {
        findings.figure(format!("{name}: {LOST}"), Target::AtMost(0.0), f64::from(lost), "");
    };
    let server = RedisServer::start();
    let sentinel = RedisServer::builder().sentinel(format!("sentinel monitor m 127.0.0.1 {} 1", server.port())).start();
    let large = used(RedisSource::sentinel([sentinel.url()], "m")).await;
    lost_at("Sentinel", kill(&large, &[&server, &sentinel], rounds).await);
    drop(large);

    let mut config = Config::from_url(server.url_at(server.addr()));
    config.pool = Some(PoolConfig::new(1));
    let large = used(config.create_pool(Some(Runtime::Tokio1)).expect("a pool")).await;
    lost_at("a pool", kill(&large, &[&server], rounds).await);
    drop(large);

    let authority = Authority::new("ours");
    let secure = authority.server(&authority.sign(), false);
    let url = format!("rediss://127.0.0.1:{}", secure.tls_port());
    let store = RedisStore::builder(url).root_certificates(authority.pem()).connect().await.expect("a store");
    let large = limiter(&store, LARGE, Outage::default());
    decides(&large, "acme").await;
    lost_at("TLS", kill(&large, &[&secure], rounds).await);

    let cluster = RedisCluster::start();
    let store = RedisStore::connect(RedisSource::cluster(cluster.urls())).await.expect("a store");
    let large = limiter(&store, LARGE, Outage::default());
    for key in 0..KEYS {
        decides(&large, key).await;
    }
    lost_at("a cluster", kill(&large, &cluster.masters(), rounds).await);
    for server in [&server, &secure] {
        findings.keys(server.keys_and_expires());
    }
    findings.keys(cluster.keys_and_expires());
    findings
}

/// So many keys that each master of a cluster has one.
const KEYS: u64 = 6;

/// Returns a limiter whose connection has been used.
async fn used(source: impl Into<RedisSource>) -> Limiter {
    used_with(Outage::default(), source).await
}

async fn used_with(outage: Outage, source: impl Into<RedisSource>) -> Limiter {
    let store = RedisStore::connect(source).await.expect("a store");
    let large = limiter(&store, LARGE, outage);
    decides(&large, "acme").await;
    large
}

/// Kills all connections, waits 1 to 100 ms and checks some keys, again and again. Returns how many checks the store did
/// not decide.
async fn kill(large: &Limiter, servers: &[&RedisServer], rounds: u32) -> u32 {
    let mut lost = 0;
    for round in 0..rounds {
        for server in servers {
            server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        }
        tokio::time::sleep(Duration::from_millis([1, 3, 10, 30, 100][round as usize % 5])).await;
        lost += lost_checks(large, KEYS).await;
    }
    lost
}

async fn lost_checks(large: &Limiter, keys: u64) -> u32 {
    let mut lost = 0;
    for key in 0..keys {
        lost += u32::from(sample(large, key).await.reason.is_some());
    }
    lost
}

fn received(server: &RedisServer) -> f64 {
    server.info("stats")["total_connections_received"].parse().expect("a number")
}
