//! `RedisStore` in a Redis Cluster without faults: rights, seeds, diagnosis, and configuration
//! errors.

use std::sync::Arc;

use tokio::sync::MutexGuard;
use tollgate::{
    Cost, ErrorKind, Key, Limiter, Outage, Policy, PolicySet, Quota, RedisStore, redis::RedisSource,
};
use tollgate_test_support::{Deployment, PATIENCE, decided, patient_limiter, remaining};
use tollgate_tests::{RedisCluster, RedisServer, ports, server::SLOTS, wait};

use crate::suite::{CLUSTER, clear};

/// The cluster of this program, empty and for this test alone.
struct Held(MutexGuard<'static, Deployment>);

impl std::ops::Deref for Held {
    type Target = RedisCluster;

    fn deref(&self) -> &RedisCluster {
        match &*self.0 {
            Deployment::Cluster(cluster) => cluster,
            Deployment::Single(_) => panic!("the deployment is a cluster"),
        }
    }
}

async fn cluster() -> Held {
    let deployment = CLUSTER.lock().await;
    clear(&deployment);
    Held(deployment)
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
        "+zadd",
        "+zremrangebyscore",
        "+zcard",
        "+pexpire",
        "+asking",
        "+cluster|slots",
    ];
    let page = include_str!("../../../docs/redis.md");
    assert!(
        page.contains("`+asking +cluster|slots`"),
        "they are documented"
    );
    let blind = &rights[..rights.len() - 1];
    let cluster = cluster().await;
    for node in cluster.nodes() {
        for (user, rights) in [("app", &rights[..]), ("blind", blind)] {
            let words = [&["ACL", "SETUSER", user], rights].concat();
            assert_eq!(node.command(&words).text(), "OK");
        }
    }
    let urls = |user: &str, query: &str| -> Vec<String> {
        let url = |node: &RedisServer| format!("redis://{user}:secret@{}/{query}", node.addr());
        cluster.nodes().iter().map(url).collect()
    };
    for (at, query) in ["", "?protocol=resp3"].into_iter().enumerate() {
        let store = RedisStore::builder(RedisSource::cluster(urls("app", query)))
            .prefix("acl")
            .connect_timeout(PATIENCE);
        let store = store.connect().await.expect("a store");
        let set = [
            Policy::token_bucket("a", Quota::per_day(10)),
            Policy::fixed_window("b", Quota::per_day(10)),
        ];
        let limiter = patient_limiter(store.clone(), set);
        for key in 0..20_u64 {
            assert!(decided(&limiter, (at as u64, key)).await.is_allowed());
        }
        let findings = store
            .diagnose([limiter.policies().clone()])
            .await
            .expect("a look");
        assert_eq!(findings, [], "{query}");
    }
    let error = RedisStore::builder(RedisSource::cluster(urls("blind", "")))
        .connect_timeout(PATIENCE)
        .connect()
        .await
        .expect_err("the user may not read the slots");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    let wrong: Vec<_> = urls("app", "")
        .into_iter()
        .map(|url| url.replace("secret", "hunter2"))
        .collect();
    let store = RedisStore::builder(RedisSource::cluster(wrong)).connect_timeout(PATIENCE);
    let error = store.connect().await.expect_err("the password is wrong");
    assert_eq!(error.kind(), ErrorKind::Authentication);
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}

#[tokio::test]
async fn every_master_is_diagnosed_and_a_finding_is_reported_once() {
    let cluster = cluster().await;
    let store = RedisStore::builder(RedisSource::cluster(cluster.urls()))
        .prefix("diagnosis")
        .connect_timeout(PATIENCE)
        .connect()
        .await
        .expect("a store");
    let policies = PolicySet::from(Policy::token_bucket("p", Quota::per_day(10)));
    let last = cluster.masters().pop().expect("a master");
    last.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let findings = store.diagnose([policies.clone()]).await.expect("a look");
    assert_eq!(
        findings
            .iter()
            .map(|finding| finding.code())
            .collect::<Vec<_>>(),
        ["TOLLGATE-EVICTION"]
    );
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
async fn branches_in_different_slots_are_refused_and_nothing_is_charged() {
    let cluster = cluster().await;
    let store = RedisStore::builder(RedisSource::cluster(cluster.urls()))
        .prefix("slots")
        .connect_timeout(PATIENCE)
        .connect()
        .await
        .expect("a store");
    let policy = |name| Policy::token_bucket(name, Quota::per_day(10));
    let set = [policy("address"), policy("user").at_branch(2)];
    // No outage answers for a key that can never be decided.
    let limiter = Limiter::builder(Arc::new(store))
        .policies(set)
        .deadline(PATIENCE)
        .on_outage(Outage::Open)
        .build();
    let apart = Key::new("a").with_branch("b");
    assert_ne!(cluster.slot("a"), cluster.slot("b"));
    assert!(!limiter.can_decide(&apart));
    let errors = [
        limiter
            .check(&apart)
            .await
            .expect_err("no server has both slots"),
        limiter
            .peek(&apart)
            .await
            .expect_err("no server has both slots"),
        limiter
            .refund(&apart, Cost::ONE)
            .await
            .expect_err("no server has both slots"),
        limiter
            .reset(&apart)
            .await
            .expect_err("no server has both slots"),
    ];
    for error in errors {
        assert_eq!(
            (error.kind(), error.kind().is_config()),
            (ErrorKind::CrossSlot, true)
        );
        assert_eq!(
            error.to_string(),
            "policies address and user meter branches of a key in different cluster slots; nest the branches in one \
             outermost level, or use a limiter for each"
        );
    }
    let keys = || {
        cluster
            .masters()
            .iter()
            .map(|master| master.command(&["DBSIZE"]).int())
            .sum::<i64>()
    };
    assert_eq!(keys(), 0);

    // Branches below one level are decided, and so are policies on one of several branches,
    // wherever the others lie.
    let nested = Key::new("acme").child(apart.clone());
    assert!(limiter.can_decide(&nested) && decided(&limiter, &nested).await.is_allowed());
    for part in 0..20_u64 {
        let second = limiter.with_policies(policy("user").at_branch(2));
        let key = Key::new("a").with_branch(part);
        assert!(
            second.can_decide(&key) && second.check(&key).await.expect("a decision").is_allowed()
        );
        second.reset(&key).await.expect("a reset");
        assert_eq!(remaining(&second, &key).await, 10);
    }
    assert_eq!(keys(), 2);
}

#[tokio::test]
async fn one_reachable_seed_is_enough() {
    let dead = || format!("redis://127.0.0.1:{}", ports::free());
    let cluster = cluster().await;
    let urls = [dead(), dead(), cluster.urls().swap_remove(4), dead()];
    let store = RedisStore::builder(RedisSource::cluster(urls))
        .prefix("seeds")
        .connect()
        .await
        .expect("a store");
    let limiter = patient_limiter(store, Policy::token_bucket("p", Quota::per_day(10)));
    for key in 0..20_u64 {
        assert_eq!(
            decided(&limiter, key)
                .await
                .states()
                .next()
                .expect("a state")
                .remaining(),
            9
        );
    }
}

#[tokio::test]
async fn without_any_seed_checks_are_refused_at_once_and_the_cluster_is_found_later() {
    let server = RedisServer::builder()
        .arg("--cluster-enabled", "yes")
        .start();
    server.kill();
    let store = RedisStore::builder(RedisSource::cluster([server.url_at(server.addr())]))
        .build()
        .expect("a store");
    let policy = Policy::token_bucket("p", Quota::per_day(10));
    let limiter = patient_limiter(store.clone(), policy);
    let error = limiter
        .check("acme")
        .await
        .expect_err("nothing listens there");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    assert!(!store.is_available());
    server.restart();
    // The server may have saved its slots before it was killed.
    let reply = server.add_slots(0..SLOTS).text();
    assert!(reply == "OK" || reply.contains("already busy"), "{reply}");
    wait::until_async("the cluster to be found", PATIENCE, async || {
        limiter.check("acme").await.is_ok()
    })
    .await;
    assert!(store.is_available());
    assert_eq!(remaining(&limiter, "acme").await, 9);
}

#[tokio::test]
async fn a_configuration_that_is_no_cluster_is_a_clear_error() {
    let refused = |urls: &[&str]| {
        let error = RedisStore::builder(RedisSource::cluster(urls.iter().copied()))
            .build()
            .expect_err("it cannot be");
        assert_eq!(error.kind(), ErrorKind::Config);
        error.to_string()
    };
    assert_eq!(refused(&[]), "cluster URLs must be at least 1, got 0");
    assert_eq!(
        refused(&["redis://h", "redis://i/7"]),
        "a redis cluster has only database 0, got 7"
    );
    assert!(refused(&["unix:///tmp/socket"]).contains("a host and a port, got a socket path"));
    for other in [
        "redis://:hunter2@i",
        "redis://app@i",
        "redis://i/?protocol=resp3",
    ] {
        let message = refused(&["redis://h", other]);
        assert!(
            message.contains("must differ in host and port only") && !message.contains("hunter2"),
            "{message}"
        );
    }
    assert!(refused(&["http://h"]).contains("is not valid"));
    for urls in [
        &["redis://h?prefix=shop"][..],
        &["redis://h", "redis://i/?protocol=resp3&prefix=shop"],
    ] {
        assert_eq!(
            refused(urls),
            "the option prefix must not stand in server_url, or in a URL of a list: set RedisStoreBuilder::prefix, or use one \
             redis+sentinel:// or redis+cluster:// URL"
        );
    }
    assert!(refused(&["redis://h?prefx=shop"]).contains("got \"prefx=shop\""));
    let error = RedisStore::builder(RedisSource::cluster(["redis://h"]))
        .prefix("{tag}")
        .build()
        .expect_err("a brace");
    assert_eq!(error.kind(), ErrorKind::Config);

    let alone = RedisServer::start();
    let error = RedisStore::builder(RedisSource::cluster([alone.url_at(alone.addr())]))
        .connect()
        .await
        .expect_err("it is no cluster");
    assert_eq!(error.kind(), ErrorKind::ClusterMismatch);
    assert_eq!(
        error.to_string(),
        "the redis server is not part of a cluster, but the store was built for a cluster"
    );
}
