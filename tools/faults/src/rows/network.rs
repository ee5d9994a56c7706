//! Rows that need network namespaces: silent peers, lost packets, a host name that moves.

use std::{
    fs,
    net::Ipv4Addr,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use tokio::time::sleep;
use tollgate::Key;
use tollgate_tests::{NetworkNamespace, RedisServer, network_namespace};

use super::{Pace, away::meet_silence};
use crate::{
    findings::Findings,
    load::{Load, Sample, connected, decides, degraded, kill, longest, millis, until},
};

pub(super) async fn half_open(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let namespace = NetworkNamespace::start();
    let server = namespace.place(RedisServer::builder()).start();
    let large = connected(server.url_at(server.addr())).await;
    let load = Load::start(&large, 16, ["acme".into()]);
    let muted = Instant::now();
    namespace.drop_sent();
    sleep(pace.of(Duration::from_secs(3), Duration::from_millis(1_500))).await;
    namespace.restore();
    let mended = Instant::now();
    let after = millis(decides(&large, "acme").await - mended);
    let mut samples = load.end_answered().await;
    samples.retain(|it| it.was_between(muted, mended));
    meet_silence(&mut findings, &samples);
    let asked = "from the way back to the first decision";
    findings.at_most(1_200.0, asked, after, "ms");
    findings
}

pub(super) async fn loss(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let namespace = NetworkNamespace::start();
    let server = namespace.place(RedisServer::builder()).start();
    let large = connected(server.url_at(server.addr())).await;
    let time = pace.of(Duration::from_secs(10), Duration::from_secs(3));
    let mut measure = async |what: String| {
        let load = Load::start(&large, 16, (0..1_000_u64).map(Key::from));
        sleep(time).await;
        let samples: Vec<Sample> = load.end_answered().await;
        longest(&mut findings, &format!("{what}: longest check"), &samples);
        let asked = format!("{what}: decided without the store");
        findings.shown(asked, degraded(&samples), "%");
    };
    if network_namespace::has_filter() {
        for percent in [1, 5, 20] {
            namespace.drop_packets(percent);
            measure(format!("{percent} % of packets lost")).await;
        }
        namespace.drop_packets(0);
    } else {
        println!("*** N6: LOST PACKETS ARE NOT RAISED: nft is missing ***");
    }
    decides(&large, "acme").await;
    namespace.limit_rate(512);
    measure("512 kbit/s".to_owned()).await;
    findings
}

/// A hosts file of this mount namespace, in the place of the system's until it is dropped.
struct Hosts(TempDir);

impl Hosts {
    fn new() -> Self {
        let hosts = Self(tempfile::tempdir().expect("a temporary directory can be made"));
        hosts.write("");
        let mut mount = Command::new("mount");
        mount.arg("--bind").arg(hosts.0.path().join("hosts"));
        let mounted = mount.arg("/etc/hosts").status();
        let is_over = mounted.is_ok_and(|status| status.success());
        assert!(is_over, "/etc/hosts cannot be laid over");
        hosts
    }

    fn write(&self, line: &str) {
        let lines = format!("127.0.0.1 localhost\n{line}\n");
        fs::write(self.0.path().join("hosts"), lines).expect("it is our directory");
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("/etc/hosts").status();
    }
}

pub(super) async fn name(pace: Pace) -> Findings {
    const NAME: &str = "limits.test";
    let mut findings = Findings::default();
    assert!(network_namespace::is_inside());
    let hosts = Hosts::new();
    let mut after = Duration::ZERO;
    for _ in 0..pace.of(5, 2) {
        let old = Arc::new(RedisServer::start());
        let elsewhere = Ipv4Addr::new(127, 0, 0, 2);
        let new = RedisServer::builder().address(elsewhere).port(old.port());
        let new = new.start();
        hosts.write(&format!("127.0.0.1 {NAME}"));
        let large = connected(format!("redis://{NAME}:{}/", old.port())).await;
        let load = Load::start(&large, 8, ["acme".into()]);
        hosts.write(&format!("{elsewhere} {NAME}"));
        let gone = Instant::now();
        kill(&old).await;
        until("checks at the new server", async || {
            new.calls("evalsha") + new.calls("eval") > 0
        })
        .await;
        after = after.max(decides(&large, "acme").await - gone);
        load.end_answered().await;
    }
    let asked = "from the end of the old server to a decision of the new one, longest";
    findings.at_most(200.0, asked, millis(after), "ms");
    findings
}
