//! A source that is a function: it opens the streams, over which everything else is as ever.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UnixStream},
};
use tollgate::{
    ErrorKind, Policy, Quota, RedisStore,
    credentials::{Credentials, Provider},
    redis::{RedisSource, RedisStoreBuilder},
};
use tollgate_test_support::{PATIENCE, decided, patient_limiter};
use tollgate_tests::{Authority, Mode, Proxy, RedisServer, wait};

const HOURLY: Policy = Policy::token_bucket("hourly", Quota::per_hour(5));

async fn decides(builder: RedisStoreBuilder) {
    let store = builder.connect_timeout(PATIENCE).connect().await;
    let limiter = patient_limiter(store.expect("a store"), HOURLY);
    for left in (0..5).rev() {
        let decision = decided(&limiter, "acme").await;
        assert_eq!(decision.states().next().expect("a state").remaining(), left);
    }
    assert!(decided(&limiter, "acme").await.is_denied());
}

fn tcp(port: u16) -> RedisSource {
    RedisSource::dial(move || TcpStream::connect(("127.0.0.1", port)))
}

#[tokio::test]
async fn a_stream_of_any_kind_leads_to_the_server() {
    let server = RedisServer::builder()
        .arg("--unixsocket", "redis.sock")
        .start();
    let socket = server.directory().join("redis.sock");
    decides(RedisStore::builder(RedisSource::dial(move || {
        UnixStream::connect(socket.clone())
    })))
    .await;
    server.command(&["FLUSHALL"]);

    // A proxy that wants to know where to.
    let addr = server.addr();
    let through = move || async move {
        let (near, far) = tokio::io::duplex(1_024);
        let mut server = TcpStream::connect(addr).await?;
        tokio::spawn(async move {
            let mut far = far;
            let mut greeting = [0; 4];
            far.read_exact(&mut greeting).await?;
            assert_eq!(&greeting, b"open");
            far.write_all(b"!").await?;
            tokio::io::copy_bidirectional(&mut far, &mut server).await
        });
        let mut stream = near;
        stream.write_all(b"open").await?;
        assert_eq!(stream.read_u8().await?, b'!');
        Ok(stream)
    };
    decides(RedisStore::builder(RedisSource::dial(through))).await;
}

#[tokio::test]
async fn user_password_and_database_stand_in_the_server_url_or_come_from_a_provider() {
    let server = RedisServer::builder().password("hunter2").start();
    decides(RedisStore::builder(tcp(server.port())).server_url("redis://:hunter2@any/3")).await;
    let keyspace = server.info("keyspace");
    assert!(keyspace.contains_key("db3") && !keyspace.contains_key("db0"));

    server.command(&["FLUSHALL"]);
    let provider = Provider::new(|| async { Ok(Credentials::new("hunter2")) });
    decides(RedisStore::builder(tcp(server.port())).credentials(provider)).await;

    let builder = RedisStore::builder(tcp(server.port())).connect_timeout(PATIENCE);
    let error = builder.connect().await.expect_err("no password");
    assert_eq!(error.kind(), ErrorKind::Authentication);
    assert_eq!(
        error.to_string(),
        "cannot connect to the redis server that the application dials: redis refuses the user or password"
    );
}

#[tokio::test]
async fn tls_on_the_stream_is_for_the_host_of_the_server_url() {
    let authority = Authority::new("ours");
    let server = authority.server(&authority.sign(), false);
    let of = |url: &str| {
        RedisStore::builder(tcp(server.tls_port()))
            .server_url(url)
            .root_certificates(authority.pem())
    };
    decides(of("rediss://localhost")).await;
    let builder = of("rediss://elsewhere.test").connect_timeout(PATIENCE);
    let error = builder.connect().await.expect_err("another name");
    assert_eq!(error.kind(), ErrorKind::Tls);
    assert!(error.to_string().contains("is for another name"), "{error}");

    assert_eq!(
        of("redis://any").build().expect_err("no TLS").to_string(),
        "certificates need a rediss:// URL"
    );
}

#[tokio::test]
async fn an_error_of_the_function_is_an_outage_and_the_function_is_called_again_after_it() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    let (dials, addr) = (Arc::new(AtomicU32::new(0)), proxy.addr());
    let counted = Arc::clone(&dials);
    let source = RedisSource::dial(move || {
        let first = counted.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            match first {
                true => Err(io::Error::from(io::ErrorKind::ConnectionRefused)),
                false => TcpStream::connect(addr).await,
            }
        }
    });
    assert_eq!(format!("{source:?}"), "RedisSource::Streams(..)");
    let builder = RedisStore::builder(source).connect_timeout(PATIENCE);
    let store = builder.build().expect("a store");
    let error = store.ping().await.expect_err("nobody listens");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(
        error.to_string(),
        "cannot connect to the redis server that the application dials: nothing listens there"
    );
    let limiter = patient_limiter(store, HOURLY);
    let works = async || limiter.check("acme").await.is_ok();
    wait::until_async("a connection", PATIENCE, works).await;

    // A stream that ends while it rests is replaced.
    proxy.reset_all();
    wait::until_async("another connection", PATIENCE, works).await;
    assert!(dials.load(Ordering::SeqCst) >= 3);
    proxy.set(Mode::Refuse);
}
