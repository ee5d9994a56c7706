//! Replicas share a limit on every deployment.

use std::time::Duration;

use tollgate::{Key, permits::Concurrency};
use tollgate_test_support::{Deployment, Kind, PATIENCE};
use tollgate_tests::wait;

use crate::{replica, undisturbed};

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
