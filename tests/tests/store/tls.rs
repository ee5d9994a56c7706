//! Connections to a server: TLS with and without a client certificate, its errors, RESP3, a user, a
//! socket.

use std::time::Duration;

use tollgate::{
    ErrorKind, Policy, Quota, RedisStore,
    redis::{RedisSource, RedisStoreBuilder},
};
use tollgate_test_support::{PATIENCE, patient_limiter};
use tollgate_tests::{Authority, Mode, Proxy, RedisServer, wait};

fn at(scheme: &str, port: u16) -> RedisStoreBuilder {
    RedisStore::builder(format!("{scheme}://127.0.0.1:{port}/"))
}

async fn decides(builder: RedisStoreBuilder) {
    let store = builder.connect_timeout(PATIENCE).build().expect("a store");
    // Sentinels have a time limit of their own, which a busy machine may miss.
    wait::until_async("a connection", PATIENCE, async || {
        store.ping().await.is_ok()
    })
    .await;
    let limiter = patient_limiter(store, Policy::token_bucket("p", Quota::per_hour(5)));
    for left in (0..5).rev() {
        let decision = limiter.check("acme").await.expect("a decision");
        assert_eq!(decision.states().next().expect("a state").remaining(), left);
    }
    assert!(limiter.check("acme").await.expect("a decision").is_denied());
}

/// Expects one of these errors, within the time for connecting. Returns its words.
async fn fails(what: &str, builder: RedisStoreBuilder, kinds: &[ErrorKind]) -> String {
    // A server that tells an error does so however slow the machine is.
    let time = if kinds.contains(&ErrorKind::Timeout) {
        Duration::from_secs(2)
    } else {
        PATIENCE
    };
    let store = builder.connect_timeout(time).build().expect("a store");
    let error = tokio::time::timeout(2 * PATIENCE, store.ping())
        .await
        .expect("an answer")
        .expect_err(what);
    assert!(kinds.contains(&error.kind()), "{what}: {error:?}");
    error.to_string()
}

#[tokio::test]
async fn a_server_certificate_of_the_given_authority_is_accepted_and_no_other() {
    let authority = Authority::new("ours");
    let server = authority.server(&authority.sign(), false);
    decides(at("rediss", server.tls_port()).root_certificates(authority.pem())).await;
    let other = Authority::new("theirs");
    for (what, builder) in [
        (
            "another authority",
            at("rediss", server.tls_port()).root_certificates(other.pem()),
        ),
        (
            "the platform's authorities",
            at("rediss", server.tls_port()),
        ),
    ] {
        let message = fails(what, builder, &[ErrorKind::Tls]).await;
        let expected = format!(
            "cannot connect to redis at 127.0.0.1:{}: TLS with redis failed: the authority that signed the server's \
             certificate is not trusted here",
            server.tls_port()
        );
        assert_eq!(message, expected, "{what}");
    }
}

#[tokio::test]
async fn a_client_certificate_is_sent_to_a_server_that_requests_one() {
    let authority = Authority::new("ours");
    let server = authority.server(&authority.sign(), true);
    let of =
        |authority: &Authority| at("rediss", server.tls_port()).root_certificates(authority.pem());
    let ours = authority.sign();
    decides(of(&authority).client_certificate(ours.certificate, ours.key)).await;
    let stranger = Authority::new("theirs").sign();
    // The server may close the connection before its reason is read.
    for (what, builder) in [
        ("no certificate", of(&authority)),
        (
            "a stranger's certificate",
            of(&authority).client_certificate(stranger.certificate, stranger.key),
        ),
    ] {
        fails(what, builder, &[ErrorKind::Tls, ErrorKind::ConnectionLost]).await;
    }
}

#[tokio::test]
async fn sentinels_and_the_servers_they_name_are_reached_over_tls() {
    let authority = Authority::new("ours");
    let server = authority.server(&authority.sign(), true);
    let signed = authority.sign();
    let sentinel = RedisServer::builder()
        .tls(authority.pem(), &signed.certificate, &signed.key, true)
        .sentinel(format!(
            "tls-replication yes\nsentinel monitor m 127.0.0.1 {} 1",
            server.tls_port()
        ))
        .start();
    let ours = authority.sign();
    let of = |server_url: &str| {
        RedisStore::builder(RedisSource::sentinel(
            [format!("rediss://127.0.0.1:{}", sentinel.tls_port())],
            "m",
        ))
        .server_url(server_url)
        .root_certificates(authority.pem())
    };
    decides(of("rediss://any").client_certificate(ours.certificate.as_str(), ours.key.as_str()))
        .await;
    // One of both sides requires what the client does not do.
    for builder in [
        of("redis://any").client_certificate(ours.certificate.as_str(), ours.key.as_str()),
        of("rediss://any"),
    ] {
        let store = builder.build().expect("a store");
        let error = tokio::time::timeout(PATIENCE, store.ping())
            .await
            .expect("an answer")
            .expect_err("no way");
        assert!(
            ["tls", "connection", "timeout"].contains(&error.kind().as_str()),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_certificate_that_is_expired_or_of_another_name_is_refused() {
    let authority = Authority::new("ours");
    let server = authority.server(&authority.sign_expired(), false);
    let builder = at("rediss", server.tls_port()).root_certificates(authority.pem());
    let message = fails("an expired certificate", builder, &[ErrorKind::Tls]).await;
    assert!(
        message.ends_with("the server's certificate has expired"),
        "{message}"
    );
    let server = authority.server(&authority.sign_elsewhere(), false);
    let builder = at("rediss", server.tls_port()).root_certificates(authority.pem());
    let message = fails("a certificate of another name", builder, &[ErrorKind::Tls]).await;
    assert!(
        message.ends_with("the server's certificate is for another name than the host of the URL"),
        "{message}"
    );
}

#[tokio::test]
async fn tls_to_a_plain_port_and_plain_to_a_tls_port_end_with_an_error() {
    let authority = Authority::new("ours");
    let server = authority.server(&authority.sign(), false);
    let roots = |builder: RedisStoreBuilder| builder.root_certificates(authority.pem());
    let message = fails(
        "plain to a TLS port",
        at("redis", server.tls_port()),
        &[ErrorKind::ConnectionLost],
    )
    .await;
    assert!(
        message.ends_with("if it expects TLS, the URL begins with rediss"),
        "{message}"
    );
    let any = [
        ErrorKind::Tls,
        ErrorKind::ConnectionLost,
        ErrorKind::Timeout,
    ];
    let message = fails(
        "TLS to a plain port",
        roots(at("rediss", server.port())),
        &any,
    )
    .await;
    // That is no reason to try TLS.
    assert!(!message.contains("rediss"), "{message}");
    // A port that accepts bytes and never answers.
    let silent = Proxy::start(server.addr());
    silent.set(Mode::Stall);
    fails(
        "TLS to silence",
        roots(at("rediss", silent.port())),
        &[ErrorKind::Timeout],
    )
    .await;
    fails(
        "plain to silence",
        at("redis", silent.port()),
        &[ErrorKind::Timeout],
    )
    .await;
}

#[test]
fn certificates_that_cannot_be_used_are_refused_when_the_store_is_built() {
    let authority = Authority::new("ours");
    let signed = authority.sign();
    for builder in [
        at("redis", 1).root_certificates(authority.pem()),
        at("rediss", 1).root_certificates("PLANTED"),
        at("rediss", 1).client_certificate("PLANTED", signed.key.as_str()),
        at("rediss", 1).client_certificate(signed.certificate.as_str(), "PLANTED"),
    ] {
        assert!(!format!("{builder:?}").contains("PLANTED"));
        let error = builder.build().expect_err("it cannot be used");
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(!format!("{error} {error:?}").contains("PLANTED"), "{error}");
    }
}

#[test]
fn sentinels_and_servers_without_tls_use_no_certificates_and_no_server_is_plain_by_default() {
    let authority = Authority::new("ours");
    let of = |scheme: &str, server_url: Option<&str>| {
        let source = RedisSource::sentinel([format!("{scheme}://h")], "m");
        let builder = RedisStore::builder(source);
        match server_url {
            Some(url) => builder.server_url(url),
            None => builder,
        }
    };
    let refused = |builder: RedisStoreBuilder| {
        let error = builder.build().expect_err("it cannot be used");
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        error.to_string()
    };
    for server_url in [None, Some("redis://any")] {
        for pem in [authority.pem(), "PLANTED"] {
            let builder = of("redis", server_url).root_certificates(pem);
            assert_eq!(refused(builder), "certificates need a rediss:// URL");
        }
    }
    assert!(refused(of("rediss", None)).contains("server_url is not set"));
    for (sentinels, servers) in [
        ("rediss", "redis://any"),
        ("redis", "rediss://any"),
        ("rediss", "rediss://any"),
    ] {
        let with = |pem: &str| of(sentinels, Some(servers)).root_certificates(pem);
        assert!(
            with(authority.pem()).build().is_ok(),
            "{sentinels} {servers}"
        );
        assert_eq!(
            refused(with("PLANTED")),
            "the root certificates contain no certificate in PEM"
        );
    }
}

#[tokio::test]
async fn resp3_a_user_and_a_socket_work() {
    let server = RedisServer::builder()
        .arg("--unixsocket", "redis.sock")
        .start();
    let user = [
        "ACL",
        "SETUSER",
        "app",
        "on",
        ">p@ss/word",
        "allkeys",
        "+@all",
    ];
    assert!(!server.command(&user).is_error());
    let (addr, socket) = (server.addr(), server.directory().join("redis.sock"));
    for url in [
        format!("redis://{addr}/?protocol=resp3"),
        format!("redis://app:p%40ss%2Fword@{addr}/0"),
        format!("redis://app:p%40ss%2Fword@{addr}/3?protocol=resp3"),
        format!("unix://{}", socket.display()),
        format!(
            "unix://{}?user=app&pass=p%40ss%2Fword&db=2",
            socket.display()
        ),
    ] {
        decides(RedisStore::builder(&url)).await;
        server.command(&["FLUSHALL"]);
    }
}
