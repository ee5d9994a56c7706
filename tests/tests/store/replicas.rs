//! The processes of a prefix count themselves in Redis, and an outage divides by the last count.

use std::{num::NonZeroU32, sync::Arc};

use tokio::runtime::{Builder, Handle, Runtime};
use tollgate::{Limiter, Outage, Policy, Quota, RedisStore, ReplicaCount, Store};
use tollgate_test_support::{PATIENCE, patient_limiter};
use tollgate_tests::{RedisServer, wait};

/// So slow that no unit accrues while a test runs.
const DAILY: Policy = Policy::fixed_window("daily", Quota::per_day(24));

const KEY: &str = "tollgate:{replicas}";

fn limiter(store: impl Store) -> Limiter {
    Limiter::builder(store).policies(DAILY).deadline(PATIENCE).build()
}

fn counted(store: &RedisStore) -> ReplicaCount {
    store.replicas().expect("a store that counts")
}

async fn until(count: &ReplicaCount, number: u32) {
    wait::until_async(format!("{number} replicas"), PATIENCE, async || count.get() == NonZeroU32::new(number)).await;
}

/// Makes other processes known, which called `ago_us` ago.
fn add(server: &RedisServer, names: &[&str], ago_us: u64) {
    let time = server.command(&["TIME"]);
    let [seconds, micros] = [0, 1].map(|at| time.items()[at].text().parse::<u64>().expect("a number"));
    let called = (seconds * 1_000_000 + micros - ago_us).to_string();
    for name in names {
        assert!(!server.command(&["ZADD", KEY, &called, name]).is_error());
    }
}

/// Spends from a key until it is denied, without the store. Returns the number of admissions.
async fn spend_locally(limiter: &Limiter, key: &str) -> u64 {
    let mut admitted = 0;
    loop {
        let decision = limiter.check(key).await.expect("a decision");
        assert!(decision.is_degraded());
        match decision.is_allowed() {
            true => admitted += 1,
            false => return admitted,
        }
    }
}

#[tokio::test]
async fn an_outage_divides_the_quota_by_the_processes_that_were_counted_last() {
    let server = RedisServer::start();
    let store = RedisStore::connect(server.url()).await.expect("a store");
    let (counting, fixed) = (
        limiter(Arc::new(store.clone()) as Arc<dyn Store>),
        Limiter::builder(store.clone()).policies(DAILY).deadline(PATIENCE).on_outage(Outage::local(2)).build(),
    );
    let count = counted(&store);
    until(&count, 1).await;
    add(&server, &["gone"], 60_000_000);
    wait::until_async("3 replicas", PATIENCE, async || {
        // The others call as well, however slow this process is.
        add(&server, &["second", "third"], 0);
        count.get() == NonZeroU32::new(3)
    })
    .await;
    assert!(server.command(&["ZSCORE", KEY, "gone"]).is_nil(), "a lapsed process is dropped");
    server.kill();
    assert_eq!(spend_locally(&counting, "acme").await, 24 / 3);
    assert_eq!(spend_locally(&fixed, "acme").await, 24 / 2);
    // The server comes back without data. The other processes have not called yet.
    server.restart();
    wait::until_async("the store to count again", PATIENCE, async || server.command(&["ZCARD", KEY]).int() == 1).await;
    assert_eq!(count.get(), NonZeroU32::new(3), "one small count after an outage is not believed");
    server.kill();
    assert_eq!(spend_locally(&counting, "other").await, 24 / 3);
}

#[tokio::test]
async fn a_process_counts_once_for_each_prefix_whatever_it_has_of_stores_and_limiters() {
    let server = RedisServer::start();
    let store = |prefix: &str| RedisStore::builder(server.url()).prefix(prefix).build().expect("a store");
    let stores = [store("tollgate"), store("tollgate"), store("other")];
    let counts = stores.each_ref().map(counted);
    let _limiters = stores.each_ref().map(|store| [limiter(store.clone()), limiter(store.clone())]);
    for count in &counts {
        until(count, 1).await;
    }
    let named = |key| {
        let names = server.command(&["ZRANGE", key, "0", "-1"]);
        names.items().iter().map(|name| name.text().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(named(KEY), named("other:{replicas}"));
    assert_eq!(named(KEY).len(), 1);
    let expiry: i64 = server.command(&["PTTL", KEY]).int();
    assert!((1..=8_000).contains(&expiry), "{expiry} ms");
}

#[tokio::test]
async fn no_process_is_counted_that_has_no_use_for_it_and_no_task_is_left() {
    let server = RedisServer::start();
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let store = RedisStore::connect(server.url()).await.expect("a store");
    let others = [
        patient_limiter(store.clone(), DAILY),
        Limiter::builder(store.clone()).policies(DAILY).deadline(PATIENCE).on_outage(Outage::local(3)).build(),
    ];
    for limiter in &others {
        assert!(limiter.check("acme").await.expect("a decision").is_allowed());
    }
    assert_eq!(server.command(&["EXISTS", KEY]).int(), 0);
    drop((others, store));
    wait::until_async("all tasks to end with the store", PATIENCE, async || tasks() == 0).await;

    // No check is made here, because a check starts tasks that end at their own time.
    let store = RedisStore::connect(server.url()).await.expect("a store");
    let before = tasks();
    let (count, limiters) = (counted(&store), [limiter(store.clone()), limiter(store.clone())]);
    until(&count, 1).await;
    assert_eq!(tasks(), before + 1, "one task for each store");
    drop((count, limiters));
    wait::until_async("the task to end with the last limiter", PATIENCE, async || tasks() == before).await;
    let limiter = limiter(store.clone());
    until(&counted(&store), 1).await;
    assert_eq!(tasks(), before + 1, "a later limiter is counted again");
    drop((limiter, store));
    wait::until_async("the task to end with the store", PATIENCE, async || tasks() == 0).await;
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

#[test]
fn a_store_goes_on_counting_on_the_next_runtime() {
    let server = RedisServer::start();
    let store = RedisStore::open(server.url()).expect("a store");
    // Built without a runtime: the first check starts the task.
    let (limiter, count) = (limiter(store.clone()), counted(&store));
    assert_eq!(count.get(), None);
    for _ in 0..2 {
        server.command(&["DEL", KEY]);
        runtime().block_on(async {
            let _ = limiter.check("acme").await.expect("a decision");
            wait::until_async("the process to be counted", PATIENCE, async || {
                server.command(&["EXISTS", KEY]).int() == 1
            })
            .await;
        });
    }
    assert_eq!(count.get(), NonZeroU32::new(1));
}
