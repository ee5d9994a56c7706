//! Connections that end while nobody uses them. No decision is lost by it.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use deadpool_redis::{Config, Runtime};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tollgate::{Limiter, Outage, Policy, Quota, RedisStore, redis::RedisSource};
use tollgate_test_support::{PATIENCE, patient_limiter, remaining};
use tollgate_tests::{Authority, Proxy, RedisServer, machine, wait};

use crate::{
    paused_server::{self, Checks, PausedServer},
    suite::{CLUSTER, clear},
};

const LARGE: Policy = Policy::window_from_first_hit("large", Quota::per_day(1_000_000));

/// Longer than a connection may be silent before it is no longer trusted.
const SILENCE: Duration = Duration::from_secs(3);

async fn limiter(source: impl Into<RedisSource>) -> Limiter {
    let store = RedisStore::builder(source).connect_timeout(PATIENCE);
    patient_limiter(store.connect().await.expect("a store"), LARGE)
}

fn kill_all(server: &RedisServer) {
    assert!(
        server
            .command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])
            .int()
            >= 0
    );
}

/// Signs clients in, and closes each connection with the last answer. Returns the address, and the
/// number of connections.
async fn hangs_up() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("a port");
    let address = listener.local_addr().expect("an address");
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&accepted);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            let mut bytes = [0; 4_096];
            let read = stream.read(&mut bytes).await.unwrap_or(0);
            let commands = bytes[..read]
                .split(|byte| *byte == b'\n')
                .filter(|line| line.starts_with(b"*"))
                .count();
            let _ = stream.write_all(&b"+OK\r\n".repeat(commands)).await;
        }
    });
    (address, accepted)
}

#[tokio::test]
async fn a_server_that_ends_each_connection_before_a_call_is_sent_counts_as_away() {
    let (address, accepted) = hangs_up().await;
    let store = RedisStore::open(format!("redis://{address}")).expect("a store");
    let limiter = Limiter::builder(store)
        .policies(LARGE)
        .deadline(PATIENCE)
        .on_outage(Outage::Closed)
        .build();
    let error = limiter.check("acme").await.expect_err("no decision");
    assert!(error.kind().is_unavailable(), "{error}");
    // The check and the count of the replicas give up after a few connections each, and do not wait
    // for the deadline.
    let accepted = accepted.load(Ordering::Relaxed);
    assert!(
        (2..=12).contains(&accepted),
        "{accepted} connections: {error}"
    );
}

/// Runs a scene on this number of threads. A connection that is silent while the machine stands
/// still is given up, and so is a server. An answer that is read late makes a connection of the
/// application look as if it were in use.
fn undisturbed(threads: usize, scene: impl AsyncFn()) {
    machine::undisturbed_async(Duration::from_millis(5), threads, scene);
}

/// Kills all connections again and again, and checks each time. Every check is decided and charged
/// once.
async fn no_decision_is_lost(limiter: &Limiter, servers: &[&RedisServer]) {
    const ROUNDS: u64 = 30;
    const KEYS: u64 = 6;
    for round in 0..ROUNDS {
        for key in 0..KEYS {
            let decision = limiter.check(key).await;
            assert!(decision.is_ok(), "round {round}: {decision:?}");
        }
        for server in servers {
            kill_all(server);
        }
        // From a moment to a rest that is noticed: each has its own way to find the end.
        tokio::time::sleep(Duration::from_millis(1 + round % 4 * 7)).await;
    }
    for key in 0..KEYS {
        assert_eq!(remaining(limiter, key).await, 1_000_000 - ROUNDS);
    }
}

#[test]
fn killed_at_rest_at_one_server() {
    undisturbed(1, async || {
        let server = RedisServer::start();
        no_decision_is_lost(&limiter(server.url()).await, &[&server]).await;
    });
}

#[test]
fn killed_at_rest_on_several_threads() {
    undisturbed(2, async || {
        let server = RedisServer::start();
        no_decision_is_lost(&limiter(server.url()).await, &[&server]).await;
    });
}

#[test]
fn killed_at_rest_with_the_client_of_the_application() {
    undisturbed(1, async || {
        let server = RedisServer::start();
        let client = redis::Client::open(server.url()).expect("a client");
        no_decision_is_lost(&limiter(client).await, &[&server]).await;
    });
}

#[test]
fn killed_at_rest_with_a_pool_of_the_application() {
    undisturbed(1, async || {
        let server = RedisServer::start();
        let mut config = Config::from_url(server.url());
        config.pool = Some(deadpool_redis::PoolConfig::new(1));
        let pool = config.create_pool(Some(Runtime::Tokio1)).expect("a pool");
        no_decision_is_lost(&limiter(pool.clone()).await, &[&server]).await;
        assert_eq!(
            pool.status().size,
            1,
            "the connections that ended have left the pool"
        );
    });
}

#[test]
fn killed_at_rest_with_sentinels() {
    undisturbed(1, async || {
        let server = RedisServer::start();
        let sentinel = RedisServer::builder()
            .sentinel(format!("sentinel monitor m 127.0.0.1 {} 1", server.port()))
            .start();
        let source = RedisSource::sentinel([sentinel.url_at(sentinel.addr())], "m");
        no_decision_is_lost(&limiter(source).await, &[&server, &sentinel]).await;
    });
}

#[test]
fn killed_at_rest_at_every_master_of_a_cluster() {
    undisturbed(1, async || {
        let deployment = CLUSTER.lock().await;
        clear(&deployment);
        let store = deployment.builder("rest").connect().await.expect("a store");
        no_decision_is_lost(&patient_limiter(store, LARGE), &deployment.masters()).await;
    });
}

#[test]
fn killed_at_rest_over_tls() {
    undisturbed(1, async || {
        let authority = Authority::new("ours");
        let server = authority.server(&authority.sign(), false);
        let url = format!("rediss://127.0.0.1:{}", server.tls_port());
        let store = RedisStore::builder(url)
            .root_certificates(authority.pem())
            .connect_timeout(PATIENCE)
            .connect()
            .await
            .expect("a store");
        no_decision_is_lost(&patient_limiter(store, LARGE), &[&server]).await;
    });
}

#[tokio::test]
async fn a_connection_that_ends_is_replaced_before_the_next_check() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    let limiter = limiter(proxy.url()).await;
    assert!(limiter.check("acme").await.is_ok());
    for _ in 0..2 {
        let before = proxy.accepted();
        proxy.reset_all();
        wait::until_async("a new connection", PATIENCE, async || {
            proxy.accepted() > before
        })
        .await;
    }
    let connections = proxy.accepted();
    assert!(limiter.check("acme").await.is_ok());
    assert_eq!(proxy.accepted(), connections, "the check dials none");
}

#[test]
fn a_connection_that_the_server_closes_at_rest_is_replaced() {
    undisturbed(1, async || {
        let server = RedisServer::start();
        let proxy = Proxy::start(server.addr());
        let limiter = limiter(proxy.url()).await;
        assert!(limiter.check("acme").await.is_ok());
        server.command(&["CONFIG", "SET", "timeout", "1"]);
        wait::until_async("a new connection", PATIENCE, async || proxy.accepted() > 1).await;
        // A check that comes at the moment of the next end would be lost.
        let set = server.client().command(&["CONFIG", "SET", "timeout", "0"]);
        assert_eq!(set.expect("an answer").text(), "OK");
        assert!(limiter.check("acme").await.is_ok());
        assert_eq!(remaining(&limiter, "acme").await, 999_998);
    });
}

/// Returns a server on a paused clock, and a limiter that has made one check there. The first answer
/// takes no time: a server that was slow to answer it counts as far, and need not prove itself
/// before a check.
async fn near() -> (PausedServer, Limiter) {
    let server = PausedServer::start();
    let store = RedisStore::open(server.url()).expect("a store");
    let limiter = patient_limiter(store, paused_server::HOURLY);
    assert!(limiter.check("acme").await.is_ok());
    (server, limiter)
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_was_forgotten_without_a_word_is_replaced_by_the_next_check() {
    let (server, limiter) = near().await;
    tokio::time::sleep(SILENCE).await;
    server.forget_all();
    let before = tokio::time::Instant::now();
    assert!(limiter.check("acme").await.is_ok());
    // The clock is paused: the time is that of the timers.
    assert!(
        before.elapsed() < Duration::from_secs(1),
        "the check waited {:?} on a connection that never answers",
        before.elapsed()
    );
    assert_eq!(server.accepted(), 2);
    assert_eq!(
        server.checks(),
        Checks {
            answered: 2,
            swallowed: 0
        }
    );
}

/// The same holds for a connection that no check uses.
#[tokio::test(start_paused = true)]
async fn a_connection_that_was_forgotten_without_a_word_is_replaced_without_a_check() {
    let (server, limiter) = near().await;
    server.forget_all();
    tokio::time::sleep(PATIENCE / 2).await;
    assert_eq!(server.accepted(), 2);
    assert!(limiter.check("acme").await.is_ok());
    assert_eq!(
        server.checks(),
        Checks {
            answered: 2,
            swallowed: 0
        }
    );
    assert_eq!(server.accepted(), 2, "the check dials none");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_was_silent_answers_before_a_check_is_sent_and_is_kept() {
    let (mut server, limiter) = near().await;
    tokio::time::sleep(SILENCE).await;
    server.pings();
    assert!(limiter.check("acme").await.is_ok());
    assert_eq!(server.pings().len(), 1);
    assert!(limiter.check("acme").await.is_ok());
    assert_eq!(server.pings().len(), 0, "it has just answered");
    assert_eq!(server.accepted(), 1);
}

#[test]
fn a_connection_whose_runtime_ended_loses_no_decision() {
    let server = RedisServer::start();
    let store = RedisStore::open(server.url()).expect("a store");
    let limiter = patient_limiter(store, LARGE);
    for _ in 0..5 {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        assert!(
            runtime
                .block_on(limiter.check("acme").into_future())
                .is_ok()
        );
    }
}
