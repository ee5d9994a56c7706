//! The processes with the same limits count themselves in Redis, and an outage divides by the last
//! count.

use std::{num::NonZeroU32, sync::Arc};

use tokio::runtime::{Builder, Handle, Runtime};
use tollgate::{
    Limiter, Outage, Policy, Quota, RedisStore, Store,
    store::{ReplicaCount, ReplicaGroup},
};
use tollgate_test_support::{PATIENCE, connected_store, decided, opened_store, patient_limiter};
use tollgate_tests::{RedisServer, wait};

/// So slow that no unit accrues while a test runs.
const DAILY: Policy = Policy::window_from_first_hit("daily", Quota::per_day(24));

/// Returns the group of the processes that have [`DAILY`].
fn group() -> ReplicaGroup {
    ReplicaGroup::new("daily", &DAILY.into())
}

/// Returns the key of the set of these processes.
fn key() -> String {
    format!("tollgate:{{replicas}}:{}", group())
}

fn limiter(store: impl Store) -> Limiter {
    Limiter::builder(store)
        .policies(DAILY)
        .deadline(PATIENCE)
        .build()
}

fn counted(store: &RedisStore) -> ReplicaCount {
    store.replicas(group()).expect("a store that counts")
}

async fn until(count: &ReplicaCount, number: u32) {
    wait::until_async(format!("{number} replicas"), PATIENCE, async || {
        count.get() == NonZeroU32::new(number)
    })
    .await;
}

/// Makes other processes known, which called `ago_us` ago.
fn add(server: &RedisServer, names: &[&str], ago_us: u64) {
    let time = server.command(&["TIME"]);
    let [seconds, micros] =
        [0, 1].map(|at| time.items()[at].text().parse::<u64>().expect("a number"));
    let called = (seconds * 1_000_000 + micros - ago_us).to_string();
    for name in names {
        assert!(!server.command(&["ZADD", &key(), &called, name]).is_error());
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
    let store = connected_store(server.url()).await;
    let (counting, fixed) = (
        limiter(Arc::new(store.clone()) as Arc<dyn Store>),
        Limiter::builder(store.clone())
            .policies(DAILY)
            .deadline(PATIENCE)
            .on_outage(Outage::local(2))
            .build(),
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
    assert!(
        server.command(&["ZSCORE", &key(), "gone"]).is_nil(),
        "a lapsed process is dropped"
    );
    server.kill();
    assert_eq!(spend_locally(&counting, "acme").await, 24 / 3);
    assert_eq!(spend_locally(&fixed, "acme").await, 24 / 2);
    // The server comes back without data. The other processes have not called yet.
    server.restart();
    wait::until_async("the store to count again", PATIENCE, async || {
        server.command(&["ZCARD", &key()]).int() == 1
    })
    .await;
    assert_eq!(
        count.get(),
        NonZeroU32::new(3),
        "one small count after an outage is not believed"
    );
    server.kill();
    assert_eq!(spend_locally(&counting, "other").await, 24 / 3);
}

#[tokio::test]
async fn a_process_counts_once_for_each_prefix_whatever_it_has_of_stores_and_limiters() {
    let server = RedisServer::start();
    let store = |prefix: &str| {
        RedisStore::builder(server.url())
            .prefix(prefix)
            .build()
            .expect("a store")
    };
    let stores = [store("tollgate"), store("tollgate"), store("other")];
    let counts = stores.each_ref().map(counted);
    let _limiters = stores
        .each_ref()
        .map(|store| [limiter(store.clone()), limiter(store.clone())]);
    for count in &counts {
        until(count, 1).await;
    }
    let named = |key: &str| {
        let names = server.command(&["ZRANGE", key, "0", "-1"]);
        names
            .items()
            .iter()
            .map(|name| name.text().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(named(&key()), named(&key().replace("tollgate", "other")));
    assert_eq!(named(&key()).len(), 1);
    // Where the machine has stood still, the set has expired and is made again.
    wait::until_async("an expiry", PATIENCE, async || {
        (1..=8_000).contains(&server.command(&["PTTL", &key()]).int())
    })
    .await;
}

/// Returns the sets in which processes count themselves.
fn sets(server: &RedisServer) -> Vec<String> {
    server
        .command(&["KEYS", "tollgate:{replicas}:????????????????"])
        .items()
        .iter()
        .map(|key| key.text().to_owned())
        .collect()
}

#[tokio::test]
async fn each_limiter_counts_the_replicas_of_its_own_limits_in_one_call() {
    let server = RedisServer::start();
    let store = connected_store(server.url()).await;
    let named = |name: &'static str| {
        let limiter = Limiter::builder(store.clone())
            .policies(DAILY)
            .name(name)
            .deadline(PATIENCE)
            .build();
        (
            limiter,
            store
                .replicas(ReplicaGroup::new(name, &DAILY.into()))
                .expect("a store that counts"),
        )
    };
    let ((shared, of_shared), (own, of_own)) = (named("shared"), named("own"));
    let set = format!(
        "tollgate:{{replicas}}:{}",
        ReplicaGroup::new("shared", &DAILY.into())
    );
    wait::until_async(
        "a second process with one of two limits",
        PATIENCE,
        async || {
            let now = server.command(&["TIME"]).items()[0].text().to_owned() + "000000";
            server.command(&["ZADD", &set, &now, "second"]);
            of_shared.get() == NonZeroU32::new(2) && of_own.get() == NonZeroU32::new(1)
        },
    )
    .await;
    // No script may run between the two numbers.
    let all = || server.calls("evalsha") + server.calls("eval");
    // A report of what the process enforces sets one expiry, and counts nothing.
    let scripts = || all() - (server.calls("pexpire") - server.calls("zcard"));
    let numbers = || loop {
        let (before, calls, counts) = (all(), scripts(), server.calls("zcard"));
        if all() == before {
            break (calls, counts);
        }
    };
    let (calls, counts) = numbers();
    wait::until_async("another call", PATIENCE, async || {
        server.calls("zcard") > counts
    })
    .await;
    let (calls_after, counts_after) = numbers();
    assert_eq!(
        counts_after - counts,
        2 * (calls_after - calls),
        "one call for both limiters"
    );
    // A limiter that is added later is counted too.
    let (_added, of_added) = named("added");
    until(&of_added, 1).await;
    server.kill();
    assert_eq!(
        (
            spend_locally(&shared, "acme").await,
            spend_locally(&own, "acme").await
        ),
        (24 / 2, 24)
    );
}

#[tokio::test]
async fn a_process_with_very_many_limiters_has_a_bounded_number_of_sets() {
    let server = RedisServer::start();
    let store = connected_store(server.url()).await;
    let name = |at: usize| format!("limiter-{at}");
    let limiters: Vec<_> = (0..100)
        .map(|at| {
            Limiter::builder(store.clone())
                .policies(DAILY)
                .name(name(at))
                .deadline(PATIENCE)
                .build()
        })
        .collect();
    let count = |at| {
        store
            .replicas(ReplicaGroup::new(&name(at), &DAILY.into()))
            .expect("a store that counts")
    };
    until(&count(0), 1).await;
    until(&count(99), 1).await;
    // The last of them have one set together. The sets expire while the machine stands still, and
    // are made again.
    let mut most = 0;
    wait::until_async("all sets", PATIENCE, async || {
        let count = sets(&server).len();
        most = most.max(count);
        count == 32 + 1
    })
    .await;
    assert_eq!(most, 32 + 1);
    drop(limiters);
    // The sets of the limiters that were dropped expire.
    let (_limiter, kept) = (limiter(store.clone()), counted(&store));
    until(&kept, 1).await;
    wait::until_async("the other sets to expire", PATIENCE, async || {
        sets(&server) == [key()]
    })
    .await;
}

#[tokio::test]
async fn no_process_is_counted_that_has_no_use_for_it_and_no_task_is_left() {
    let server = RedisServer::start();
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let store = connected_store(server.url()).await;
    let others = [
        patient_limiter(store.clone(), DAILY),
        Limiter::builder(store.clone())
            .policies(DAILY)
            .deadline(PATIENCE)
            .on_outage(Outage::local(3))
            .build(),
    ];
    for limiter in &others {
        assert!(decided(limiter, "acme").await.is_allowed());
    }
    assert_eq!(server.command(&["EXISTS", &key()]).int(), 0);
    drop((others, store));
    wait::until_async("all tasks to end with the store", PATIENCE, async || {
        tasks() == 0
    })
    .await;

    // No check is made here, because a check starts tasks that end at their own time.
    let store = connected_store(server.url()).await;
    // The timer of the calls ends at its own time, too.
    let until_tasks =
        async |count| wait::until_async("so many tasks", PATIENCE, async || tasks() == count).await;
    let of_connection = 2;
    until_tasks(of_connection).await;
    let (count, limiters) = (
        counted(&store),
        [limiter(store.clone()), limiter(store.clone())],
    );
    until(&count, 1).await;
    // One task for each store.
    until_tasks(of_connection + 1).await;
    drop((count, limiters));
    // It ends with the last limiter, and a later limiter is counted again.
    until_tasks(of_connection).await;
    let limiter = limiter(store.clone());
    until(&counted(&store), 1).await;
    until_tasks(of_connection + 1).await;
    drop((limiter, store));
    wait::until_async("the task to end with the store", PATIENCE, async || {
        tasks() == 0
    })
    .await;
}

fn runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

#[test]
fn a_store_goes_on_counting_on_the_next_runtime() {
    let server = RedisServer::start();
    let store = opened_store(server.url());
    // Built without a runtime: the first check starts the task.
    let (limiter, count) = (limiter(store.clone()), counted(&store));
    assert_eq!(count.get(), None);
    for _ in 0..2 {
        server.command(&["DEL", &key()]);
        runtime().block_on(async {
            let _ = limiter.check("acme").await.expect("a decision");
            wait::until_async("the process to be counted", PATIENCE, async || {
                server.command(&["EXISTS", &key()]).int() == 1
            })
            .await;
        });
    }
    assert_eq!(count.get(), NonZeroU32::new(1));
}
