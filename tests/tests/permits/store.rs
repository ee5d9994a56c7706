//! Replicas share a limit on every deployment.

use std::time::Duration;

use tollgate::{ErrorKind, Key, RedisStore, permits::Concurrency};
use tollgate_test_support::{
    Deployment, Kind, PATIENCE,
    permits::{held_by_all, holders},
};
use tollgate_tests::{RedisServer, machine, wait};

use crate::{replica, take, undisturbed};

/// Permits that are idle go back after a third of it.
const LIFE: Duration = Duration::from_secs(12);

async fn replicas_share_one_limit(deployment: &Deployment) {
    let stores = [(); 3].map(|()| deployment.builder("permits").build().expect("a store"));
    for policy in [
        Concurrency::new("exact", 5).exact(),
        Concurrency::new("pooled", 5),
    ] {
        let policy = policy.with_life(Duration::from_secs(1));
        let replicas = stores
            .each_ref()
            .map(|store| replica(store.clone(), policy.clone()));
        for key in [
            Key::new("acme"),
            Key::new("acme").child("ann"),
            Key::bytes(b"{x}:\0 \n"),
        ] {
            let mut held = Vec::new();
            let mut all_denied = async || {
                let mut denied = 0;
                for replica in &replicas {
                    match replica.acquire(&key).await.expect("the store answers") {
                        Ok(permit) => held.push(permit),
                        Err(_) => denied += 1,
                    }
                }
                assert!(held.len() <= 5, "{} permits are held", held.len());
                denied == 3 && held.len() == 5
            };
            wait::until_async("all five permits", PATIENCE, &mut all_denied).await;
            deployment.assert_every_key_expires();
            assert!(held.iter().all(|permit| !permit.is_lost()));
            drop(held);
        }
        // Idle permits go back by themselves, and nothing is left.
        wait::until_async("no key to be left", PATIENCE, async || {
            deployment.keys_and_expires().0 == 0
        })
        .await;
    }
}

#[test]
fn replicas_share_one_limit_on_a_server() {
    undisturbed(async || {
        let deployment = Deployment::start(Kind::Server, "permits").expect("a server");
        replicas_share_one_limit(&deployment).await;
    });
}

#[test]
fn replicas_share_one_limit_on_a_cluster() {
    undisturbed(async || {
        let deployment = Deployment::start(Kind::Cluster, "permits").expect("a cluster");
        replicas_share_one_limit(&deployment).await;
    });
}

#[test]
fn replicas_share_one_limit_on_valkey() {
    undisturbed(async || {
        if let Some(deployment) = Deployment::start(
            Kind::Valkey,
            "permits::store::replicas_share_one_limit_on_valkey",
        ) {
            replicas_share_one_limit(&deployment).await;
        }
    });
}

#[test]
fn a_65th_replica_is_refused_and_counts_nothing() {
    machine::undisturbed_async(LIFE / 3, 1, sixty_five_replicas);
}

async fn sixty_five_replicas() {
    let server = RedisServer::start();
    let store = RedisStore::connect(server.url()).await.expect("a store");
    for policy in [
        Concurrency::new("jobs", 1_000).exact(),
        Concurrency::new("jobs", 1_000),
    ] {
        let policy = policy.with_life(LIFE);
        // Each limiter is a replica of its own.
        let replicas: Vec<_> = (0..65)
            .map(|_| replica(store.clone(), policy.clone()))
            .collect();
        let mut permits = Vec::new();
        for replica in &replicas[..64] {
            permits.push(take(replica, "acme").await.expect("a permit"));
        }
        let before = holders(&server);
        assert_eq!(before.len(), 64);
        let error = replicas[64]
            .acquire("acme")
            .await
            .expect_err("64 replicas hold permits");
        assert_eq!(error.kind(), ErrorKind::Config);
        assert_eq!(
            error.to_string(),
            "64 other replicas hold permits of this key of concurrency jobs"
        );
        assert_eq!(holders(&server), before, "the refused call changes nothing");
        // A replica among the 64 gets more permits, and its place is free when it holds none.
        for _ in 0..10 {
            permits.push(take(&replicas[0], "acme").await.expect("a permit"));
        }
        assert_eq!(holders(&server).len(), 64);
        permits.clear();
        wait::until_async("the 65th replica to get a permit", PATIENCE, async || {
            permits.extend(replicas[64].acquire("acme").await.ok().and_then(Result::ok));
            assert!(holders(&server).len() <= 64);
            !permits.is_empty()
        })
        .await;
        drop(permits);
        wait::until_async("no permit to be held", PATIENCE, async || {
            held_by_all(&server) == 0
        })
        .await;
    }
}
