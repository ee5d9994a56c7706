//! Rows that need network namespaces: silent peers, lost packets, a host name that moves.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tollgate::{Cost, ErrorKind, Limiter};
use tollgate_tests::{NetworkNamespace, RedisServer, network_namespace};

use crate::{
    findings::Findings,
    load::{
        AMOUNT, Load, PATIENT, Sample, answers, connected, decides, degraded, millis, quantile,
        until,
    },
    pace::Pace,
};

/// The time of an outage that includes the timeout for connecting.
const WITH_CONNECTING: f64 = 1_500.0;

pub(super) async fn half_open(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let namespace = NetworkNamespace::start();
    let server = Arc::new(namespace.place(RedisServer::builder()).start());
    let (_, large) = connected(server.url_at(server.addr())).await;

    let load = Load::start(&large, 16, ["acme".into()]);
    let muted = Instant::now();
    namespace.drop_sent();
    tokio::time::sleep(pace.of(Duration::from_secs(3), Duration::from_millis(1_500))).await;
    namespace.restore();
    let mended = Instant::now();
    let added = millis(decides(&large, "acme").await - mended);
    let samples: Vec<Sample> = load
        .end()
        .await
        .into_iter()
        .filter(|it| it.was_between(muted, mended))
        .collect();
    let open = samples.iter().filter(|it| it.reason == Some("breaker"));
    findings
        .ms("check time, p99.9", quantile(&samples, 0.999))
        .at_most(55.0);
    findings
        .ms("the same, longest", quantile(&samples, 1.0))
        .at_most(70.0);
    findings
        .ms(
            "the same after the breaker opened, p99",
            quantile(open, 0.99),
        )
        .at_most(0.2);
    findings
        .ms("from the way back to the first decision", added)
        .at_most(1_200.0);

    if network_namespace::has_filter() {
        forgotten(&mut findings, &namespace, &server, &large).await;
    } else {
        println!("*** N4: A CONNECTION THAT IS FORGOTTEN IS NOT RAISED: nft is missing ***");
    }
    findings.keys(server.keys_and_expires());
    findings
}

/// Loses everything on the open connection for good, while others can be made.
async fn forgotten(
    findings: &mut Findings,
    namespace: &NetworkNamespace,
    server: &Arc<RedisServer>,
    large: &Limiter,
) {
    let own = server.command(&["CLIENT", "ID"]).int();
    let ports = || -> Vec<u16> {
        let clients = server.command(&["CLIENT", "LIST"]).text();
        let others = clients
            .lines()
            .filter(|line| !line.starts_with(&format!("id={own} ")));
        let addr = |line: &str| {
            line.split_once(" addr=")?
                .1
                .split(' ')
                .next()?
                .parse::<SocketAddr>()
                .ok()
        };
        others
            .map(|line| addr(line).expect("an address").port())
            .collect()
    };
    // The silent connection may exist until the system gives it up.
    until("one connection", async || ports().len() == 1).await;
    let port = ports()[0];
    let load = Load::start(large, 16, ["acme".into()]);
    let before = sockets(server.port());
    namespace.drop_port(port);
    let lost = Instant::now();
    until("the breaker", async || {
        large.peek("acme").await.is_ok_and(|it| it.is_degraded())
    })
    .await;
    let decided = decides(large, "acme").await;
    load.end().await;
    findings
        .ms(
            "from silence to the first decision on another connection",
            millis(decided - lost),
        )
        .at_most(WITH_CONNECTING);
    let left = sockets(server.port()).saturating_sub(before) as f64;
    findings
        .count("connections left open then", left)
        .at_most(0.0);
}

/// Counts the open connections of this network namespace to the port.
fn sockets(port: u16) -> usize {
    let table = fs::read_to_string("/proc/self/net/tcp").expect("linux tells");
    // "sl: local remote state …", ports in hexadecimal, 01 is open.
    let is_open = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words[2].ends_with(&format!(":{port:04X}")) && words[3] == "01"
    };
    table.lines().skip(1).filter(is_open).count()
}

pub(super) async fn loss(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let namespace = NetworkNamespace::start();
    let server = namespace.place(RedisServer::builder()).start();
    let (_, large) = connected(server.url_at(server.addr())).await;
    let time = pace.of(Duration::from_secs(10), Duration::from_secs(3));
    let mut next = 0;
    let mut wrong = 0;
    let mut measure = async |findings: &mut Findings, what: &str| {
        let (samples, its) = crowd(&large, &mut next, time).await;
        wrong += its;
        let without = degraded(&samples) / samples.len() as f64;
        findings.ms(format!("{what}: check time, p99"), quantile(&samples, 0.99));
        findings
            .ms(format!("{what}: longest"), quantile(&samples, 1.0))
            .at_most(70.0);
        findings.percent(
            format!("{what}: decided without the store"),
            100.0 * without,
        );
    };
    if network_namespace::has_filter() {
        for percent in [1, 5, 20] {
            namespace.drop_packets(percent);
            measure(&mut findings, &format!("{percent} % of packets lost")).await;
        }
        namespace.drop_packets(0);
    } else {
        println!("*** N6: LOST PACKETS ARE NOT RAISED: nft is missing ***");
    }
    decides(&large, "acme").await;
    namespace.limit_rate(512);
    measure(&mut findings, "512 kbit/s").await;
    findings
        .count(format!("decisions misread, of {next}"), f64::from(wrong))
        .at_most(0.0);
    findings
}

/// Makes checks for some time, each with a key and a cost of its own, and counts the answers that
/// do not show them.
async fn crowd(large: &Limiter, next: &mut u64, time: Duration) -> (Vec<Sample>, u32) {
    const TASKS: u64 = 16;
    let is_over = Arc::new(AtomicBool::new(false));
    let first = *next;
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (large, is_over) = (large.clone(), Arc::clone(&is_over));
            tokio::spawn(async move {
                let (mut samples, mut wrong, mut at) = (Vec::new(), 0, first + task);
                while !is_over.load(Ordering::Relaxed) {
                    let (began, cost) = (Instant::now(), at % 5_000 + 1);
                    let decision = large
                        .check(("lossy", at))
                        .cost(Cost::new(cost))
                        .await
                        .expect("the replica decides");
                    let (took, reason) =
                        (began.elapsed(), decision.degraded().map(ErrorKind::as_str));
                    let left = decision.states().next().expect("a state").remaining();
                    wrong += u32::from(reason.is_none() && left != AMOUNT - cost);
                    samples.push(Sample {
                        began,
                        took,
                        is_allowed: decision.is_allowed(),
                        reason,
                    });
                    at += TASKS;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                (samples, wrong, at)
            })
        })
        .collect();
    tokio::time::sleep(time).await;
    is_over.store(true, Ordering::Relaxed);
    let (mut all, mut wrong) = (Vec::new(), 0);
    for task in tasks {
        let (samples, its, at) = task.await.expect("a task");
        all.extend(samples);
        wrong += its;
        *next = at.max(*next);
    }
    (all, wrong)
}

/// A hosts file of this mount namespace, in the place of the system's until it is dropped.
struct Hosts {
    _directory: tempfile::TempDir,
    file: PathBuf,
}

impl Hosts {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let file = directory.path().join("hosts");
        fs::write(&file, "").expect("it is our directory");
        let mounted = Command::new("mount")
            .arg("--bind")
            .arg(&file)
            .arg("/etc/hosts")
            .status();
        assert!(
            mounted.is_ok_and(|status| status.success()),
            "/etc/hosts cannot be laid over"
        );
        Self {
            _directory: directory,
            file,
        }
    }

    fn point(&self, name: &str, address: Ipv4Addr) {
        fs::write(
            &self.file,
            format!("127.0.0.1 localhost\n{address} {name}\n"),
        )
        .expect("it is our file");
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
    let mut longest = Duration::ZERO;
    for _ in 0..pace.of(5, 2) {
        let old = RedisServer::start();
        let elsewhere = Ipv4Addr::new(127, 0, 0, 2);
        let new = Arc::new(
            RedisServer::builder()
                .address(elsewhere)
                .port(old.port())
                .start(),
        );
        hosts.point(NAME, Ipv4Addr::LOCALHOST);
        let (_, large) = connected(format!("redis://{NAME}:{}/", old.port())).await;
        let load = Load::start(&large, 8, ["acme".into()]);
        hosts.point(NAME, elsewhere);
        let gone = Instant::now();
        let old = tokio::task::spawn_blocking(move || {
            old.kill();
            old
        });
        let old = old.await.expect("it is killed");
        until("checks at the new server", async || {
            new.calls("evalsha") + new.calls("eval") > 0
        })
        .await;
        longest = longest.max(decides(&large, "acme").await - gone);
        load.end().await;
        assert!(!old.is_running());
        answers(&new, &["PING"], "PONG").await;
        findings.keys(new.keys_and_expires());
    }
    assert!(longest < PATIENT);
    findings
        .ms(
            "from the end of the old server to a decision of the new one, longest",
            millis(longest),
        )
        .at_most(200.0);
    findings
}
