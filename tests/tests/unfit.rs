//! Servers that answer and cannot decide: each is an outage of its own kind, counted by its word.

use std::{collections::BTreeMap, time::Duration};

use tollgate::{Degraded, ErrorKind, Limiter, Outage, Policy, Quota, RedisStore};
use tollgate_tests::{RedisServer, wait};

const PATIENT: Duration = Duration::from_secs(20);
const HOURLY: Policy = Policy::token_bucket("hourly", Quota::per_hour(5_000));

/// A closed limiter, whose errors are looked at, and one that decides by itself, whose decisions are.
struct Pair {
    closed: Limiter,
    local: Limiter,
    counted: BTreeMap<&'static str, u32>,
}

impl Pair {
    async fn new(server: &RedisServer) -> Self {
        let store = RedisStore::connect(server.url()).await.expect("a store");
        let build =
            |outage| Limiter::builder(store.clone()).policies(HOURLY).deadline(PATIENT).on_outage(outage).build();
        let pair = Self { closed: build(Outage::Closed), local: build(Outage::default()), counted: BTreeMap::new() };
        assert!(!pair.local.check("acme").await.expect("a decision").is_degraded());
        pair
    }

    async fn meets(&mut self, reason: &'static str, message: &str) {
        wait::until_async(reason, PATIENT, async || {
            self.closed.check("acme").await.is_err_and(|error| error.reason() == reason)
        })
        .await;
        let error = self.closed.check("acme").await.expect_err("no decision");
        assert_eq!((error.kind(), error.reason()), (ErrorKind::Unavailable, reason));
        assert_eq!(error.to_string(), message);
        let decision = self.local.check("acme").await.expect("the replica decides by itself");
        assert_eq!(decision.degraded(), Some(Degraded::Unavailable));
        *self.counted.entry(decision.degraded_reason().expect("degraded")).or_default() += 1;
        assert_eq!(self.counted.get(reason), Some(&1), "{:?}", self.counted);
    }

    async fn recovers(&self) {
        wait::until_async("the store decides again", PATIENT, async || self.closed.check("acme").await.is_ok()).await;
    }
}

fn set(server: &RedisServer, name: &str, value: &str) {
    let reply = server.command(&["CONFIG", "SET", name, value]);
    assert!(!reply.is_error(), "{name} {value}: {}", reply.text());
}

#[tokio::test]
async fn out_of_memory() {
    let server = RedisServer::start();
    let mut pair = Pair::new(&server).await;
    set(&server, "maxmemory", "1");
    pair.meets("oom", "redis is out of memory (OOM)").await;
    set(&server, "maxmemory", "0");
    pair.recovers().await;
}

#[tokio::test]
async fn too_few_replicas() {
    let server = RedisServer::start();
    let mut pair = Pair::new(&server).await;
    set(&server, "min-replicas-to-write", "1");
    pair.meets("noreplicas", "redis has too few replicas to write (NOREPLICAS)").await;
    set(&server, "min-replicas-to-write", "0");
    pair.recovers().await;
}

#[tokio::test]
async fn a_replica_and_one_that_lost_its_master() {
    let server = RedisServer::start();
    let mut pair = Pair::new(&server).await;
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    pair.meets("readonly", "the redis server is a replica (READONLY)").await;
    set(&server, "replica-serve-stale-data", "no");
    pair.meets("masterdown", "the redis replica lost its master (MASTERDOWN)").await;
    server.command(&["REPLICAOF", "NO", "ONE"]);
    pair.recovers().await;
}

#[tokio::test]
async fn saving_fails() {
    let server = RedisServer::start();
    let mut pair = Pair::new(&server).await;
    // The dump is written beside, and cannot take the place of a directory.
    let dump = server.directory().join("dump.rdb");
    std::fs::create_dir(&dump).expect("it is our directory");
    std::fs::write(dump.join("taken"), "").expect("it is our directory");
    set(&server, "save", "3600 1");
    server.command(&["BGSAVE"]);
    wait::until("saving to fail", PATIENT, || server.info("persistence")["rdb_last_bgsave_status"] == "err");
    pair.meets("misconf", "redis refuses writes because it cannot persist (MISCONF)").await;
    set(&server, "save", "");
    pair.recovers().await;
}

#[tokio::test]
async fn busy_with_somebody_elses_script() {
    let server = RedisServer::builder().arg("--busy-reply-threshold", "50").start();
    let mut pair = Pair::new(&server).await;
    let mut other = server.client();
    let endless = std::thread::spawn(move || other.command(&["EVAL", "while true do end", "0"]).map(drop));
    pair.meets("busy", "redis is busy running a script (BUSY)").await;
    wait::until("the script to be killed", PATIENT, || !server.command(&["SCRIPT", "KILL"]).is_error());
    let _ = endless.join().expect("a thread");
    pair.recovers().await;
}

#[tokio::test]
async fn loading_its_data() {
    let server = RedisServer::builder()
        .arg("--enable-debug-command", "yes")
        .arg("--loading-process-events-interval-bytes", "1024")
        .start();
    let mut pair = Pair::new(&server).await;
    server.command(&["DEBUG", "POPULATE", "10000", "filler", "100"]);
    // Of the key: 10 s in all. It is told while it loads, and told to make haste at the end.
    set(&server, "key-load-delay", "1000");
    let mut other = server.client();
    let reload = std::thread::spawn(move || other.command(&["DEBUG", "RELOAD"]).map(drop));
    pair.meets("loading", "redis is loading its data (LOADING)").await;
    server.kill();
    let _ = reload.join().expect("a thread");
    server.restart();
    pair.recovers().await;
}

#[tokio::test]
async fn too_many_clients() {
    let server = RedisServer::start();
    let mut pair = Pair::new(&server).await;
    // The one that is left is that which gives these commands.
    set(&server, "maxclients", "1");
    server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    pair.meets("maxclients", "redis has too many clients already").await;
    set(&server, "maxclients", "100");
    pair.recovers().await;
}
