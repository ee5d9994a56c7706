//! `RedisStore` in a Redis Cluster that is well.

mod subject;

use std::{
    collections::BTreeSet,
    sync::LazyLock,
    time::{Duration, Instant},
};

use subject::{
    Dice,
    policies::{self, ALGORITHMS},
    stream::told,
};
use tollgate::{
    Check, Clock, Cost, ErrorKind, Key, Limiter, MemoryStore, Outage, Policy, PolicySet, Quota, RedisStore,
    RedisStoreBuilder, Store, testing::Script,
};
use tollgate_tests::{RedisCluster, RedisServer, ports};

/// One cluster for all tests of this file; it ends with the process. Every test has a prefix of its own.
static CLUSTER: LazyLock<RedisCluster> = LazyLock::new(RedisCluster::start);

/// Held by who needs the scripts to stay and by who flushes them: what is sent twice may be overtaken.
static SCRIPTS: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Long enough that a slow machine never decides without the server by mistake.
const PATIENT: Duration = Duration::from_secs(20);

fn builder(prefix: &str) -> RedisStoreBuilder {
    RedisStore::cluster(CLUSTER.urls()).prefix(prefix).connect_timeout(PATIENT)
}

fn limiter(store: &RedisStore, policies: impl Into<PolicySet>) -> Limiter {
    Limiter::builder(store.clone()).policies(policies).deadline(PATIENT).on_outage(Outage::Closed).build()
}

async fn remaining(limiter: &Limiter, key: impl Into<Key>) -> u64 {
    limiter.peek(key).await.expect("a decision").states().next().expect("a state").remaining()
}

/// The URLs for a user of a test's own, who may do everything.
fn urls_of(user: &str) -> Vec<String> {
    let url = |node: &RedisServer| {
        let words = ["ACL", "SETUSER", user, "on", "nopass", "~*", "+@all"];
        assert_eq!(node.command(&words).text(), "OK");
        format!("redis://{user}:any@{}", node.addr())
    };
    CLUSTER.nodes().iter().map(url).collect()
}

/// Everything that is there expires.
fn assert_no_key_is_left_for_good() {
    let (keys, expires) = CLUSTER.keys_and_expires();
    assert!(keys > 0);
    assert_eq!(keys, expires);
}

#[tokio::test]
async fn decisions_are_those_of_the_in_process_store() {
    let _held = SCRIPTS.lock().await;
    let clock = Clock::manual(subject::START_US);
    let redis = builder("agree").clock(clock.clone()).connect().await.expect("a store");
    let memory = MemoryStore::builder().clock(clock.clone()).build();
    let mut checks = 0;
    for (seed, &algorithm) in (0..).zip(ALGORITHMS) {
        let mut dice = Dice::new(seed);
        for most in [1, 4] {
            let set = policies::set(&mut dice, algorithm, most);
            // A call whose script the server does not know yet is sent again, and may be overtaken meanwhile.
            let script = Script::new(set.clone());
            for master in CLUSTER.masters() {
                for text in [script.text(), script.batch_text()] {
                    assert!(!master.command(&["SCRIPT", "LOAD", text]).is_error());
                }
            }
            let least = set.iter().map(|policy| policy.quota().burst()).min().expect("a policy");
            let period_us = set.iter().next().expect("a policy").quota().period().as_micros() as u64;
            for _ in 0..15 {
                clock.set(clock.now_us() + dice.pick(&[0, 1, period_us / 2, period_us]).min(100_000_000_000_000));
                // At once, some keys several times: they leave together.
                let keys: Vec<(Key, Cost)> = (0..60)
                    .map(|_| {
                        let key = Key::from((most, seed, dice.below(40)));
                        (key, Cost::new(dice.pick(&[0, 1, 1, 1, least])))
                    })
                    .collect();
                let asked: Vec<_> =
                    keys.iter().map(|(key, cost)| tokio::spawn(redis.check(Check::new(&set, key, *cost)))).collect();
                for ((key, cost), asked) in keys.iter().zip(asked) {
                    let expected = memory.check(Check::new(&set, key, *cost)).await.expect("a decision");
                    let decision = asked.await.expect("a task").expect("a decision");
                    assert_eq!(told(&decision), told(&expected), "{algorithm:?} seed {seed} {cost:?} {set:?}");
                    checks += 1;
                }
            }
        }
    }
    println!("{checks} checks agree");
    for master in CLUSTER.masters() {
        assert!(master.calls("evalsha") > 0, "every master takes part");
    }
    assert_no_key_is_left_for_good();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hot_key_is_coalesced_and_never_above_its_bound() {
    let store = builder("hot").without_deny_cache().connect().await.expect("a store");
    let hot = limiter(&store, Policy::token_bucket("hot", Quota::per_day(3_000)));
    let before = CLUSTER.calls("evalsha") + CLUSTER.calls("eval");
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            let hot = hot.clone();
            tokio::spawn(async move {
                let mut admitted = 0;
                for _ in 0..100 {
                    admitted += u64::from(hot.check("hot").await.expect("a decision").is_allowed());
                }
                admitted
            })
        })
        .collect();
    let mut admitted = 0;
    for task in tasks {
        admitted += task.await.expect("a task");
    }
    assert_eq!(admitted, 3_000);
    let calls = CLUSTER.calls("evalsha") + CLUSTER.calls("eval") - before;
    println!("{calls} calls for 10000 checks");
    assert_no_key_is_left_for_good();
}

#[tokio::test]
async fn checks_of_one_key_are_decided_in_the_order_they_came() {
    let _held = SCRIPTS.lock().await;
    let store = builder("order").connect().await.expect("a store");
    let log = limiter(&store, Policy::sliding_log("log", Quota::per_day(100)));
    let tags: Vec<String> = (0..60).map(|at| format!("number {at}")).collect();
    let asked: Vec<_> = tags.iter().map(|tag| tokio::spawn(log.check_tagged("acme", Cost::ONE, tag))).collect();
    for asked in asked {
        assert!(asked.await.expect("a task").expect("a decision").is_allowed());
    }
    let entries = log.entries("acme", 100).await.expect("entries");
    let noted: Vec<_> = entries.iter().rev().map(|entry| String::from_utf8_lossy(entry.tag()).into_owned()).collect();
    assert_eq!(noted, tags);
}

#[tokio::test]
async fn refund_reset_and_entries_find_the_server_of_the_key() {
    let store = builder("refund").connect().await.expect("a store");
    let set = [
        Policy::token_bucket("bucket", Quota::per_day(10)),
        Policy::fixed_window("window", Quota::per_day(10)),
        Policy::sliding_log("log", Quota::per_day(10)),
    ];
    let limiter = limiter(&store, set);
    let mut owners = BTreeSet::new();
    for key in 0..30_u64 {
        let decision = limiter.check_cost(key, Cost::new(4)).await.expect("a decision");
        assert_eq!(limiter.entries(key, 10).await.expect("entries").len(), 4);
        limiter.refund_decision(key, &decision, Cost::new(3)).await.expect("a refund");
        for state in limiter.peek(key).await.expect("a decision").states() {
            assert_eq!(state.remaining(), 9, "{state:?}");
        }
        limiter.reset(key).await.expect("a reset");
        assert_eq!(remaining(&limiter, key).await, 10);
        let slot = CLUSTER.slot(Key::from(key).encoded());
        owners.insert(CLUSTER.owner(slot, &CLUSTER.nodes()[0]).port());
    }
    assert_eq!(owners.len(), 3, "the keys lie at every master");
}

#[tokio::test]
async fn forgotten_scripts_are_sent_once_and_charged_once() {
    let _held = SCRIPTS.lock().await;
    let store = builder("scripts").connect().await.expect("a store");
    let set = [Policy::token_bucket("one", Quota::per_day(100)), Policy::sliding_window("two", Quota::per_day(100))];
    let limiter = limiter(&store, set);
    for spent in 1..=5 {
        for master in CLUSTER.masters() {
            master.command(&["SCRIPT", "FLUSH"]);
        }
        let asked: Vec<_> = (0..20_u64).map(|key| tokio::spawn(limiter.check(key))).collect();
        for asked in asked {
            let decision = asked.await.expect("a task").expect("a decision");
            assert!(decision.states().all(|state| state.remaining() == 100 - spent), "{decision:?}");
        }
    }
}

/// Whatever a broken connection cut off is an error, never a second charge.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_charged_once_at_most() {
    let store = RedisStore::cluster(urls_of("victim")).prefix("once").connect_timeout(PATIENT);
    let store = store.connect().await.expect("a store");
    let limiter = limiter(&store, Policy::fixed_window("once", Quota::per_day(1_000_000)));
    let mut spent = 0;
    let (mut asked, mut admitted) = (0, 0);
    for round in 0..40_u64 {
        let tasks: Vec<_> = (0..50_u64).map(|at| tokio::spawn(limiter.check((round, at % 10)))).collect();
        for master in CLUSTER.masters() {
            master.command(&["CLIENT", "KILL", "USER", "victim"]);
        }
        for task in tasks {
            asked += 1;
            admitted += u64::from(task.await.expect("a task").is_ok_and(|decision| decision.is_allowed()));
        }
        for at in 0..10_u64 {
            // The connection that was killed last, or the breaker, may be in the way for a moment.
            let left = loop {
                if let Ok(decision) = limiter.peek((round, at)).await {
                    break decision.states().next().expect("a state").remaining();
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            };
            spent += 1_000_000 - left;
        }
    }
    println!("{asked} calls, {admitted} admitted, {spent} charged");
    assert!(admitted <= spent && spent <= asked, "{asked} calls, {admitted} admitted, {spent} charged");
    assert!(admitted > 0);
}

#[tokio::test]
async fn a_user_with_the_least_rights_is_enough_and_a_missing_one_is_named() {
    let rights = [
        "on",
        ">secret",
        "resetkeys",
        "~acl:*",
        "+evalsha",
        "+eval",
        "+ping",
        "+time",
        "+get",
        "+mget",
        "+set",
        "+setrange",
        "+del",
        "+info",
        "+asking",
        "+cluster|slots",
    ];
    let operations = include_str!("../../docs/operations.md");
    assert!(operations.contains("`+asking +cluster|slots`"), "they are documented");
    let blind = &rights[..rights.len() - 1];
    for node in CLUSTER.nodes() {
        for (user, rights) in [("app", &rights[..]), ("blind", blind)] {
            let words = [&["ACL", "SETUSER", user], rights].concat();
            assert_eq!(node.command(&words).text(), "OK");
        }
    }
    let urls = |user: &str, query: &str| -> Vec<String> {
        let url = |node: &RedisServer| format!("redis://{user}:secret@{}/{query}", node.addr());
        CLUSTER.nodes().iter().map(url).collect()
    };
    for (at, query) in ["", "?protocol=resp3"].into_iter().enumerate() {
        let store = RedisStore::cluster(urls("app", query)).prefix("acl").connect_timeout(PATIENT);
        let store = store.connect().await.expect("a store");
        let set = [Policy::token_bucket("a", Quota::per_day(10)), Policy::fixed_window("b", Quota::per_day(10))];
        let limiter = limiter(&store, set);
        for key in 0..20_u64 {
            assert!(limiter.check((at as u64, key)).await.expect("a decision").is_allowed());
        }
        let findings = store.diagnose([limiter.policies().clone()]).await.expect("a look");
        // Another test sets an eviction policy.
        assert!(findings.iter().all(|finding| finding.code() == "TOLLGATE-EVICTION"), "{query} {findings:?}");
    }
    let error = RedisStore::cluster(urls("blind", "")).connect().await.expect_err("it may not look");
    assert_eq!((error.kind(), error.reason()), (ErrorKind::Config, "acl"));
    let wrong: Vec<_> = urls("app", "").into_iter().map(|url| url.replace("secret", "hunter2")).collect();
    let store = RedisStore::cluster(wrong);
    let error = store.connect().await.expect_err("the password is wrong");
    assert_eq!((error.kind(), error.reason()), (ErrorKind::Config, "auth"));
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}

#[tokio::test]
async fn every_master_is_diagnosed_and_told_of_once() {
    let cluster = &CLUSTER;
    let store = builder("diagnosis").connect().await.expect("a store");
    let policies = PolicySet::from(Policy::token_bucket("p", Quota::per_day(10)));
    let last = cluster.masters().pop().expect("a master");
    last.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let findings = store.diagnose([policies.clone()]).await.expect("a look");
    assert_eq!(findings.iter().map(|finding| finding.code()).collect::<Vec<_>>(), ["TOLLGATE-EVICTION"]);
    for master in cluster.masters() {
        master.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    }
    let findings = store.diagnose([policies]).await.expect("a look");
    assert_eq!(findings.len(), 1, "{findings:?}");
    for master in cluster.masters() {
        master.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    }
}

#[tokio::test]
async fn one_seed_that_lives_is_enough() {
    let dead = || format!("redis://127.0.0.1:{}", ports::free());
    let urls = [dead(), dead(), CLUSTER.nodes()[4].url(), dead()];
    let store = RedisStore::cluster(urls).prefix("seeds").connect().await.expect("a store");
    let limiter = limiter(&store, Policy::token_bucket("p", Quota::per_day(10)));
    for key in 0..20_u64 {
        assert_eq!(limiter.check(key).await.expect("a decision").states().next().expect("a state").remaining(), 9);
    }
}

#[tokio::test]
async fn without_any_seed_checks_are_refused_at_once_and_the_cluster_is_found_later() {
    let server = RedisServer::builder().arg("--cluster-enabled", "yes").start();
    server.kill();
    let store = RedisStore::cluster([server.url()]).build().expect("a store");
    let policy = Policy::token_bucket("p", Quota::per_day(10));
    let limiter = Limiter::builder(store.clone()).policies(policy).deadline(PATIENT).on_outage(Outage::Closed).build();
    let error = limiter.check("acme").await.expect_err("nobody is there");
    assert_eq!(error.reason(), "refused");
    assert!(!store.is_asked());
    server.restart();
    let words = ["CLUSTER", "ADDSLOTSRANGE", "0", "16383"];
    // What it wrote down before it was killed, if it did.
    let reply = server.command(&words).text();
    assert!(reply == "OK" || reply.contains("already busy"), "{reply}");
    let started = Instant::now();
    while limiter.check("acme").await.is_err() {
        assert!(started.elapsed() < Duration::from_secs(60), "it is never found");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(store.is_asked());
    assert_eq!(remaining(&limiter, "acme").await, 9);
}

#[tokio::test]
async fn what_cannot_be_a_cluster_is_a_clear_error() {
    let refused = |urls: &[&str]| {
        let error = RedisStore::cluster(urls.iter().copied()).build().expect_err("it cannot be");
        assert_eq!(error.kind(), ErrorKind::Config);
        error.to_string()
    };
    assert_eq!(refused(&[]), "cluster URLs must be 1 at least, got 0");
    assert_eq!(refused(&["redis://h", "redis://i/7"]), "a redis cluster has database 0 alone, got 7");
    assert!(refused(&["unix:///tmp/socket"]).contains("host and port, got a socket"));
    for other in ["redis://:hunter2@i", "redis://app@i", "redis://i/?protocol=resp3"] {
        let told = refused(&["redis://h", other]);
        assert!(told.contains("must not differ") && !told.contains("hunter2"), "{told}");
    }
    assert!(refused(&["http://h"]).contains("does not parse"));
    let error = RedisStore::cluster(["redis://h"]).prefix("{tag}").build().expect_err("a brace");
    assert_eq!(error.kind(), ErrorKind::Config);

    let alone = RedisServer::start();
    let error = RedisStore::cluster([alone.url()]).connect().await.expect_err("it is no cluster");
    assert_eq!((error.kind(), error.reason()), (ErrorKind::Config, "cluster"));
    assert_eq!(error.to_string(), "redis is no cluster, but was configured as one");
}

#[test]
fn a_store_outlives_the_runtime_it_was_first_used_on() {
    let store = builder("runtimes").build().expect("a store");
    let limiter = limiter(&store, Policy::token_bucket("p", Quota::per_day(100)));
    for spent in 1..=3 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let left = runtime.block_on(async {
            // The connection of the last runtime is found to be dead once.
            for _ in 0..2 {
                if let Ok(decision) = limiter.check("acme").await {
                    return decision.states().next().expect("a state").remaining();
                }
            }
            panic!("no decision on runtime {spent}");
        });
        assert_eq!(left, 100 - spent);
    }
}

#[test]
fn a_store_that_is_dropped_leaves_no_connection() {
    let clients = |name: &str| {
        let list = |master: &RedisServer| master.command(&["CLIENT", "LIST", "TYPE", "normal"]).text();
        CLUSTER.masters().into_iter().map(|master| list(master).matches(name).count()).sum::<usize>()
    };
    let urls = urls_of("leaver");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store = RedisStore::cluster(urls).prefix("leaver").connect().await.expect("a store");
        let limiter = limiter(&store, Policy::token_bucket("p", Quota::per_day(100)));
        for key in 0..50_u64 {
            let _ = limiter.check(key).await.expect("a decision");
        }
        assert_eq!(clients("user=leaver"), 3, "one connection to each master");
        drop((limiter, store));
        tollgate_tests::wait::until_async("the connections to go", PATIENT, async || clients("user=leaver") == 0).await;
    });
}
