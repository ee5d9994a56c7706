//! The ways to a server: TLS with and without a client's certificate, what goes wrong there, RESP3, a
//! user, a socket.

use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use tollgate::{ErrorKind, Limiter, Outage, Policy, Quota, RedisStore, RedisStoreBuilder};
use tollgate_tests::{Mode, Proxy, RedisServer};

const PATIENT: Duration = Duration::from_secs(20);

/// An authority, and what it signs.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
struct Signed(String, String);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    fn sign(&self, change: impl FnOnce(&mut CertificateParams)) -> Signed {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).expect("parameters");
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        Signed(params.signed_by(&key, &self.issuer).expect("a certificate").pem(), key.serialize_pem())
    }

    fn server(&self, certificate: &Signed, asks: bool) -> RedisServer {
        RedisServer::builder().tls(&self.pem, &certificate.0, &certificate.1, asks).start()
    }
}

fn at(scheme: &str, port: u16) -> RedisStoreBuilder {
    RedisStore::builder(format!("{scheme}://127.0.0.1:{port}/"))
}

async fn decides(builder: RedisStoreBuilder) {
    let store = builder.connect_timeout(PATIENT).build().expect("a store");
    let limiter = Limiter::builder(store)
        .policies(Policy::token_bucket("p", Quota::per_hour(5)))
        .deadline(PATIENT)
        .on_outage(Outage::Closed)
        .build();
    for left in (0..5).rev() {
        let decision = limiter.check("acme").await.expect("a decision");
        assert_eq!(decision.states().next().expect("a state").remaining(), left);
    }
    assert!(limiter.check("acme").await.expect("a decision").is_denied());
}

/// An error within the time for connecting, never a hang.
async fn fails(what: &str, builder: RedisStoreBuilder, kind: ErrorKind, reasons: &[&str]) {
    let store = builder.connect_timeout(Duration::from_secs(2)).build().expect("a store");
    let began = Instant::now();
    let error = tokio::time::timeout(PATIENT, store.ping()).await.expect("an answer").expect_err(what);
    println!("{what}: {} after {:?}", error.reason(), began.elapsed());
    assert!(reasons.contains(&error.reason()), "{what}: {} {error}", error.reason());
    assert_eq!(error.kind(), kind, "{what}");
}

#[tokio::test]
async fn the_authority_is_believed_that_was_given() {
    let authority = Authority::new("ours");
    let server = authority.server(&authority.sign(|_| ()), false);
    decides(at("rediss", server.tls_port()).root_certificates(authority.pem.as_str())).await;
    let other = Authority::new("theirs");
    fails(
        "another authority",
        at("rediss", server.tls_port()).root_certificates(other.pem),
        ErrorKind::Config,
        &["tls"],
    )
    .await;
    fails("the platform's authorities", at("rediss", server.tls_port()), ErrorKind::Config, &["tls"]).await;
}

#[tokio::test]
async fn a_certificate_is_shown_to_a_server_that_asks() {
    let authority = Authority::new("ours");
    let server = authority.server(&authority.sign(|_| ()), true);
    let of = |authority: &Authority| at("rediss", server.tls_port()).root_certificates(authority.pem.as_str());
    let ours = authority.sign(|_| ());
    decides(of(&authority).client_certificate(ours.0, ours.1)).await;
    let stranger = Authority::new("theirs").sign(|_| ());
    // A server may hang up before its reason is read.
    for (what, builder) in [
        ("no certificate", of(&authority)),
        ("a stranger's certificate", of(&authority).client_certificate(stranger.0, stranger.1)),
    ] {
        let store = builder.connect_timeout(Duration::from_secs(2)).build().expect("a store");
        let error = tokio::time::timeout(PATIENT, store.ping()).await.expect("an answer").expect_err(what);
        println!("{what}: {} {error}", error.reason());
        assert!(["tls", "connection"].contains(&error.reason()), "{what}: {error}");
    }
}

#[tokio::test]
async fn sentinels_and_the_servers_they_name_speak_tls() {
    let authority = Authority::new("ours");
    let server = authority.server(&authority.sign(|_| ()), true);
    let signed = authority.sign(|_| ());
    let sentinel = RedisServer::builder()
        .tls(&authority.pem, &signed.0, &signed.1, true)
        .sentinel(format!("tls-replication yes\nsentinel monitor m 127.0.0.1 {} 1", server.tls_port()))
        .start();
    let ours = authority.sign(|_| ());
    let of = |server_url: &str| {
        RedisStore::sentinel([format!("rediss://127.0.0.1:{}", sentinel.tls_port())], "m")
            .server_url(server_url)
            .root_certificates(authority.pem.as_str())
    };
    decides(of("rediss://any").client_certificate(ours.0.as_str(), ours.1.as_str())).await;
    // Where one of both sides is spoken to as it does not want to be.
    for builder in [of("redis://any").client_certificate(ours.0.as_str(), ours.1.as_str()), of("rediss://any")] {
        let store = builder.build().expect("a store");
        let error = tokio::time::timeout(PATIENT, store.ping()).await.expect("an answer").expect_err("no way");
        assert!(["tls", "connection", "timeout"].contains(&error.reason()), "{error}");
    }
}

#[tokio::test]
async fn what_is_expired_or_of_another_name_is_refused() {
    let authority = Authority::new("ours");
    let expired = authority.sign(|params| {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
    });
    let server = authority.server(&expired, false);
    let builder = at("rediss", server.tls_port()).root_certificates(authority.pem.as_str());
    fails("an expired certificate", builder, ErrorKind::Config, &["tls"]).await;
    let elsewhere = authority.sign(|params| {
        params.subject_alt_names = vec![rcgen::SanType::DnsName("elsewhere.test".try_into().expect("a name"))];
    });
    let server = authority.server(&elsewhere, false);
    let builder = at("rediss", server.tls_port()).root_certificates(authority.pem.as_str());
    fails("a certificate of another name", builder, ErrorKind::Config, &["tls"]).await;
}

#[tokio::test]
async fn tls_meets_no_tls_and_neither_waits_for_ever() {
    let authority = Authority::new("ours");
    let server = authority.server(&authority.sign(|_| ()), false);
    let roots = |builder: RedisStoreBuilder| builder.root_certificates(authority.pem.as_str());
    let unavailable = ErrorKind::Unavailable;
    fails("plain to a TLS port", at("redis", server.tls_port()), unavailable, &["connection"]).await;
    let store = roots(at("rediss", server.port())).connect_timeout(Duration::from_secs(2)).build().expect("a store");
    let error = tokio::time::timeout(PATIENT, store.ping()).await.expect("an answer").expect_err("no TLS there");
    println!("TLS to a plain port: {} {error}", error.reason());
    assert!(["tls", "connection", "timeout"].contains(&error.reason()), "{error}");
    // A port that takes bytes and says nothing.
    let silent = Proxy::start(server.addr());
    silent.set(Mode::Stall);
    fails("TLS to silence", roots(at("rediss", silent.port())), ErrorKind::Timeout, &["timeout"]).await;
    fails("plain to silence", at("redis", silent.port()), ErrorKind::Timeout, &["timeout"]).await;
}

#[test]
fn certificates_that_cannot_be_used_are_refused_when_the_store_is_built() {
    let authority = Authority::new("ours");
    let signed = authority.sign(|_| ());
    for builder in [
        at("redis", 1).root_certificates(authority.pem.as_str()),
        at("rediss", 1).root_certificates("PLANTED"),
        at("rediss", 1).client_certificate("PLANTED", signed.1.as_str()),
        at("rediss", 1).client_certificate(signed.0.as_str(), "PLANTED"),
    ] {
        assert!(!format!("{builder:?}").contains("PLANTED"));
        let error = builder.build().expect_err("it cannot be used");
        assert_eq!((error.kind(), error.reason()), (ErrorKind::Config, "tls"), "{error}");
        assert!(!format!("{error} {error:?}").contains("PLANTED"), "{error}");
    }
}

#[tokio::test]
async fn resp3_a_user_and_a_socket_lead_there_too() {
    let server = RedisServer::builder().arg("--unixsocket", "redis.sock").start();
    let user = ["ACL", "SETUSER", "app", "on", ">p@ss/word", "allkeys", "+@all"];
    assert!(!server.command(&user).is_error());
    let (addr, socket) = (server.addr(), server.directory().join("redis.sock"));
    for url in [
        format!("redis://{addr}/?protocol=resp3"),
        format!("redis://app:p%40ss%2Fword@{addr}/0"),
        format!("redis://app:p%40ss%2Fword@{addr}/3?protocol=resp3"),
        format!("unix://{}", socket.display()),
        format!("unix://{}?user=app&pass=p%40ss%2Fword&db=2", socket.display()),
    ] {
        decides(RedisStore::builder(&url)).await;
        server.command(&["FLUSHALL"]);
    }
}
