//! Rows: wrong passwords, too many clients, wrong certificates.

use std::time::{Duration, Instant};

use tollgate::{Outage, RedisStore, redis::RedisStoreBuilder};
use tollgate_tests::{Authority, Mode, Proxy, RedisServer, refusing_state};

use crate::{
    findings::Findings,
    load::{LARGE, Load, PATIENT, connected, decides, limiter, millis, sample, store_at, until},
    pace::Pace,
};

pub(super) async fn password(_: Pace) -> Findings {
    const PLANTED: &str = "planted-password";
    let mut findings = Findings::default();
    let server = RedisServer::builder().password(PLANTED).start();
    let store = store_at(&server).await;
    let (large, closed) = (
        limiter(&store, LARGE, Outage::default()),
        limiter(&store, LARGE, Outage::Closed),
    );
    decides(&large, "acme").await;
    let load = Load::start(&large, 4, ["acme".into()]);
    server.command(&["CONFIG", "SET", "requirepass", "another"]);
    server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    until("a refusal", async || {
        sample(&large, "acme").await.reason == Some("auth")
    })
    .await;
    let error = closed.check("acme").await.expect_err("no decision");
    let output = format!("{error} {error:?} {store:?} {large:?}");
    server.command(&["CONFIG", "SET", "requirepass", PLANTED]);
    let mended = Instant::now();
    let added = decides(&large, "acme").await - mended;
    let samples = load.end().await;
    let counted = samples
        .iter()
        .filter(|sample| sample.reason == Some("auth"))
        .count() as f64;
    findings
        .count("checks counted as `auth`", counted)
        .at_least(1.0);
    findings.longest_check(&samples);
    findings
        .ms(
            "from the right password to the first decision",
            millis(added),
        )
        .at_most(1_200.0);
    findings
        .count(
            "passwords in errors and Debug",
            output.matches(PLANTED).count() as f64,
        )
        .at_most(0.0);
    findings
}

pub(super) async fn clients(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    let (_, large) = connected(proxy.url()).await;
    let load = Load::start(&large, 16, ["acme".into()]);
    refusing_state::TOO_MANY_CLIENTS.enter(&server);
    until("a refusal", async || {
        sample(&large, "acme").await.reason == Some("maxclients")
    })
    .await;
    let (began, before) = (Instant::now(), proxy.accepted());
    tokio::time::sleep(pace.of(Duration::from_secs(5), Duration::from_secs(2))).await;
    let rate = (proxy.accepted() - before) as f64 / began.elapsed().as_secs_f64();
    refusing_state::TOO_MANY_CLIENTS.leave(&server);
    let relieved = Instant::now();
    let added = decides(&large, "acme").await - relieved;
    let samples = load.end().await;
    findings
        .count("new connections a second", rate)
        .at_most(20.0);
    findings.longest_check(&samples);
    findings
        .ms("from room for clients to the first decision", millis(added))
        .at_most(1_200.0);
    findings
}

pub(super) async fn tls(_: Pace) -> Findings {
    const CONNECTING: Duration = Duration::from_secs(1);
    let mut findings = Findings::default();
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let [plain, asking, expired, elsewhere] = [
        ours.server(&ours.sign(), false),
        ours.server(&ours.sign(), true),
        ours.server(&ours.sign_expired(), false),
        ours.server(&ours.sign_elsewhere(), false),
    ];
    let silent = Proxy::start(plain.addr());
    silent.set(Mode::Stall);
    let at = |scheme: &str, port: u16| RedisStore::builder(format!("{scheme}://127.0.0.1:{port}/"));
    let trusting = |port: u16| at("rediss", port).root_certificates(ours.pem());
    let stranger = theirs.sign();
    let cases: [(&str, RedisStoreBuilder); 8] = [
        (
            "another authority",
            at("rediss", plain.tls_port()).root_certificates(theirs.pem()),
        ),
        ("expired", trusting(expired.tls_port())),
        ("another name", trusting(elsewhere.tls_port())),
        ("no client certificate", trusting(asking.tls_port())),
        (
            "a stranger's",
            trusting(asking.tls_port()).client_certificate(stranger.certificate, stranger.key),
        ),
        ("plain to TLS", at("redis", plain.tls_port())),
        ("TLS to plain", trusting(plain.port())),
        ("TLS to silence", trusting(silent.port())),
    ];
    let (mut longest, mut hung) = (Duration::ZERO, 0.0);
    for (what, builder) in cases {
        let store = builder
            .connect_timeout(CONNECTING)
            .build()
            .expect("a store");
        let began = Instant::now();
        match tokio::time::timeout(PATIENT, store.ping()).await {
            Ok(answer) => drop(answer.expect_err(what)),
            Err(_) => hung += 1.0,
        }
        longest = longest.max(began.elapsed());
    }
    findings.count("cases of 8 that hang", hung).at_most(0.0);
    findings
        .ms(
            "longest time to the error, 1000 ms for connecting",
            millis(longest),
        )
        .at_most(1_100.0);
    findings
}
