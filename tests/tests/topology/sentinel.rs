//! `RedisStore` with Sentinels: one master, two replicas, three Sentinels.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::Receiver,
    },
    time::{Duration, Instant},
};

use deadpool_redis::sentinel::SentinelServerType;
use tollgate::{
    Enforcement, ErrorKind, Limiter, Outage, Policy, Quota, RedisStore, redis::RedisSource,
};
use tollgate_test_support::{PATIENCE, patient_limiter};
use tollgate_tests::{
    Mode, Proxy, RedisSentinels, RedisServer,
    server::{calls_of, field},
    wait,
};

use crate::undisturbed;

const LARGE: Policy = Policy::window_from_first_hit("large", Quota::per_day(10_000_000));

/// Starts a server, and a Sentinel that names it `m`.
fn server_with_sentinel() -> (RedisServer, RedisServer) {
    let server = RedisServer::start();
    let sentinel = RedisServer::builder()
        .sentinel(format!("sentinel monitor m 127.0.0.1 {} 1", server.port()))
        .start();
    (server, sentinel)
}

/// Returns a store with the usual time for connecting, which has connected.
async fn store(topology: &RedisSentinels) -> RedisStore {
    // Where the servers have a password, the URL of the first one carries it.
    let store = RedisStore::builder(RedisSource::sentinel(topology.urls(), "m"))
        .server_url(topology.old().url_at(topology.old().addr()))
        .build()
        .expect("a store");
    wait::until_async("an answer", PATIENCE, async || store.ping().await.is_ok()).await;
    store
}

/// Checks every millisecond, and counts the decisions of the server.
struct Load {
    limiter: Limiter,
    decided: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<()>,
}

impl Load {
    fn start(store: &RedisStore) -> Self {
        let limiter = Limiter::builder(store.clone())
            .policies(LARGE)
            .on_outage(Outage::Open)
            .build();
        let (decided, is_over) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let task = {
            let (limiter, decided, is_over) =
                (limiter.clone(), Arc::clone(&decided), Arc::clone(&is_over));
            tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let decision = limiter.check("acme").await.expect("open");
                    decided.fetch_add(u64::from(!decision.is_degraded()), Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            })
        };
        Self {
            limiter,
            decided,
            is_over,
            task,
        }
    }

    async fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.task.await.expect("a task");
    }

    /// Waits until the server decides.
    async fn decides(&self) {
        wait::until_async("the store to decide", PATIENCE, async || {
            !self
                .limiter
                .check("acme")
                .await
                .expect("open")
                .is_degraded()
        })
        .await;
    }
}

fn role(server: &RedisServer) -> String {
    field(server, "replication", "role")
}

fn calls(server: &RedisServer) -> u64 {
    calls_of(server, "evalsha")
}

async fn announces(switched: Receiver<Instant>) {
    let announced = tokio::task::spawn_blocking(move || switched.recv_timeout(PATIENCE))
        .await
        .expect("a task");
    announced.expect("the Sentinels announce another master");
}

/// Waits for a hundred decisions.
async fn decides_on(load: &Load) {
    let reached = load.decided.load(Ordering::Relaxed);
    wait::until_async("a hundred more", PATIENCE, async || {
        load.decided.load(Ordering::Relaxed) > reached + 100
    })
    .await;
}

async fn receives_checks(server: &RedisServer) {
    let before = calls(server);
    wait::until_async("checks to reach the new master", PATIENCE, async || {
        calls(server) > before
    })
    .await;
}

#[test]
fn a_planned_fail_over_moves_all_checks_before_the_old_master_is_demoted() {
    undisturbed(async || {
        let topology = RedisSentinels::start(false);
        let store = store(&topology).await;
        let load = Load::start(&store);
        load.decides().await;
        let announced = topology.switched();
        topology.fail_over();
        announces(announced).await;
        let new = topology.risen().expect("a new master");
        receives_checks(new).await;
        assert_eq!(
            role(topology.old()),
            "master",
            "the checks moved before the demotion"
        );
        let at_move = calls(topology.old());
        receives_checks(new).await;
        decides_on(&load).await;
        assert_eq!(
            calls(topology.old()),
            at_move,
            "no check reaches the old master"
        );
        load.end().await;
    });
}

/// A process without Sentinels cannot learn of the fail-over.
#[test]
fn an_old_master_with_min_replicas_admits_nothing_after_a_fail_over() {
    undisturbed(async || {
        let topology = RedisSentinels::start(false);
        topology.want_replicas();
        let load = Load::start(&store(&topology).await);
        load.decides().await;
        let stays = RedisStore::connect(topology.old().url())
            .await
            .expect("a store");
        let stays = patient_limiter(stays, LARGE);
        assert!(stays.check("acme").await.is_ok());
        let announced = topology.switched();
        topology.fail_over();
        announces(announced).await;
        // A Sentinel may hear of the new master before the other replica has left the old one.
        wait::until_async("both replicas to leave", PATIENCE, async || {
            field(topology.old(), "replication", "connected_slaves") == "0"
        })
        .await;
        for _ in 0..100 {
            let error = stays
                .check("acme")
                .await
                .expect_err("the old master has no replicas");
            // It may be a replica itself by now.
            assert!(
                ["noreplicas", "readonly", "breaker"].contains(&error.kind().as_str()),
                "{}: {error}",
                error.kind().as_str()
            );
        }
        // The new master has a replica and decides.
        receives_checks(topology.risen().expect("a new master")).await;
        load.decides().await;
        load.end().await;
    });
}

#[test]
fn a_killed_master_is_replaced_with_passwords_on_both_sides() {
    undisturbed(async || {
        let topology = RedisSentinels::start(true);
        let store = store(&topology).await;
        let load = Load::start(&store);
        let enforcement = Enforcement::share(0);
        let _published = Limiter::builder(store.clone())
            .policies(LARGE)
            .published_with(enforcement.clone())
            .build();
        load.decides().await;
        let announced = topology.switched();
        topology.old().kill();
        announces(announced).await;
        load.decides().await;
        receives_checks(topology.risen().expect("a new master")).await;
        // Operators see the limits at the new master, and are obeyed. A Sentinel that hears of the
        // fail-over late chooses another master, so each look asks for the master anew.
        let shown = "large=10000000/day, window_from_first_hit; enforced 70%; limiter large";
        let mut cleared = 0;
        wait::until_async("the limits", PATIENCE, async || {
            let Some(new) = topology.risen() else {
                return false;
            };
            let mut client = new.client();
            let mut ask = |words: &[&str]| {
                let reply = client.command(words).ok();
                reply.filter(|reply| !reply.is_error())
            };
            if cleared != new.port() {
                if ask(&["DEL", "tollgate:{replicas}:limits"]).is_none() {
                    return false;
                }
                cleared = new.port();
            }
            ask(&["HSET", "tollgate:{replicas}:shares", "large", "70%"]).is_some()
                && enforcement.percent() == 70
                && ask(&["ZSCORE", "tollgate:{replicas}:limits", shown])
                    .is_some_and(|score| !score.is_nil())
        })
        .await;
        load.end().await;
    });
}

#[test]
fn an_old_master_that_resumes_receives_no_checks() {
    undisturbed(async || {
        let topology = RedisSentinels::start(false);
        let store = store(&topology).await;
        let load = Load::start(&store);
        load.decides().await;
        let old = topology.old();
        let announced = topology.switched();
        old.pause();
        announces(announced).await;
        load.decides().await;
        let new = topology.risen().expect("a new master");
        receives_checks(new).await;
        old.resume();
        // The calls that it had received before it was stopped.
        let woken = calls(old);
        decides_on(&load).await;
        receives_checks(new).await;
        assert_eq!(calls(old), woken, "no check reaches the old master");
        load.end().await;
    });
}

/// Such a pool does not notice a planned fail-over, which is documented. It notices a dead master.
#[test]
fn a_pool_of_sentinels_finds_the_next_master() {
    undisturbed(async || {
        let topology = RedisSentinels::start(false);
        let urls = topology.urls();
        let config = deadpool_redis::sentinel::Config::from_urls(
            urls,
            "m".to_owned(),
            SentinelServerType::Master,
        );
        let pool = config
            .create_pool(Some(deadpool_redis::Runtime::Tokio1))
            .expect("a pool");
        let load = Load::start(&RedisStore::open(pool).expect("a store"));
        load.decides().await;
        topology.old().kill();
        wait::until("another master", PATIENCE, || topology.risen().is_some());
        load.decides().await;
        receives_checks(topology.risen().expect("a new master")).await;
        load.end().await;
    });
}

#[tokio::test]
async fn exactly_the_documented_rights_are_enough() {
    let documented = include_str!("../../../docs/redis.md");
    let rights = documented
        .lines()
        .find_map(|line| line.strip_prefix("`+sentinel|"))
        .expect("a line of rights");
    let rights = format!("+sentinel|{}", rights.split('`').next().expect("its end"));
    let (_server, sentinel) = server_with_sentinel();
    let words = [
        "ACL",
        "SETUSER",
        "watcher",
        "on",
        ">secret",
        "resetchannels",
    ];
    let words: Vec<_> = words.into_iter().chain(rights.split(' ')).collect();
    let reply = sentinel.command(&words);
    assert!(!reply.is_error(), "{}", reply.text());
    let url = format!("redis://watcher:secret@{}", sentinel.addr());
    let _store = RedisStore::builder(RedisSource::sentinel([url], "m"))
        .connect_timeout(PATIENCE)
        .connect()
        .await
        .expect("a store");
    wait::until_async("a subscription", PATIENCE, async || {
        sentinel
            .command(&["CLIENT", "LIST"])
            .text()
            .lines()
            .any(|client| client.contains(" sub=1 "))
    })
    .await;
    let refused = sentinel.command(&["ACL", "LOG"]);
    assert_eq!(refused.items().len(), 0, "{refused:?}");
}

#[tokio::test]
async fn a_sentinel_far_away_is_heard_within_the_time_for_connecting() {
    let (_server, sentinel) = server_with_sentinel();
    let line = Proxy::start(sentinel.addr());
    line.set(Mode::Delay(Duration::from_millis(300)));
    let connect = |timeout| {
        let url = sentinel.url_at(line.addr());
        RedisStore::builder(RedisSource::sentinel([url], "m"))
            .connect_timeout(timeout)
            .connect()
    };
    connect(PATIENCE).await.expect("a store");
    let error = connect(Duration::from_millis(500)).await;
    let error = error.expect_err("two answers take longer");
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
}

/// Returns the number of the Sentinel's newest decision about `m`.
fn decision_of(sentinel: &RedisServer) -> String {
    let reply = sentinel.command(&["SENTINEL", "MASTER", "m"]);
    let words: Vec<_> = reply.items().iter().map(|word| word.text()).collect();
    let pair = words.chunks(2).find(|pair| pair[0] == "config-epoch");
    pair.expect("a number")[1].clone()
}

#[tokio::test]
async fn sentinels_that_lost_their_decisions_are_believed_again() {
    let server = RedisServer::start();
    let monitor = format!("monitor m 127.0.0.1 {} 1", server.port());
    let sentinel = RedisServer::builder()
        .sentinel(format!("sentinel {monitor}\nsentinel config-epoch m 7"))
        .start();
    assert_eq!(decision_of(&sentinel), "7");
    let source = RedisSource::sentinel([sentinel.url_at(sentinel.addr())], "m");
    let builder = RedisStore::builder(source).connect_timeout(PATIENCE);
    let store = builder.connect().await.expect("a store");
    for words in ["remove m", &monitor] {
        let words: Vec<_> = ["sentinel"].into_iter().chain(words.split(' ')).collect();
        assert_eq!(sentinel.command(&words).text(), "OK");
    }
    assert_eq!(decision_of(&sentinel), "0");
    // The store asks the Sentinel again where the master is.
    server.restart();
    wait::until_async("an answer", PATIENCE, async || store.ping().await.is_ok()).await;
}

#[tokio::test]
async fn an_unknown_master_is_a_clear_error() {
    let (server, sentinel) = server_with_sentinel();
    let url = sentinel.url_at(sentinel.addr());
    let error = RedisStore::builder(RedisSource::sentinel([&url], "other"))
        .connect_timeout(PATIENCE)
        .connect()
        .await
        .expect_err("no such master");
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert_eq!(
        error.to_string(),
        "the sentinels know no master with the given name"
    );
    let store = RedisStore::builder(RedisSource::sentinel([&*url, "redis://127.0.0.1:1"], "m"))
        .connect_timeout(PATIENCE)
        .connect()
        .await;
    assert!(
        store.is_ok(),
        "one unreachable sentinel does no harm: {store:?}"
    );
    let error = RedisStore::builder(RedisSource::sentinel(["redis://127.0.0.1:1"], "m"))
        .connect_timeout(PATIENCE)
        .connect()
        .await
        .expect_err("nobody there");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
    // The server that the sentinel names reports that it is a replica.
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    let error = RedisStore::builder(RedisSource::sentinel([&url], "m"))
        .connect_timeout(PATIENCE)
        .connect()
        .await
        .expect_err("a replica");
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    for builder in [
        RedisStore::builder(RedisSource::sentinel([""; 0], "m")),
        RedisStore::builder(RedisSource::sentinel(["http://:hunter2@host"], "m")),
        RedisStore::builder(RedisSource::sentinel([&url], "m")).server_url("hunter2"),
        RedisStore::builder(RedisSource::sentinel([&url], "m"))
            .server_url("redis://:hunter2@any?prefix=shop"),
        RedisStore::builder(RedisSource::sentinel(
            ["redis://:hunter2@host?connect_timeout=2s"],
            "m",
        )),
        RedisStore::builder("redis://127.0.0.1").server_url("redis://127.0.0.1"),
    ] {
        let error = builder.build().expect_err("it cannot be");
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}
