//! Cases about the count of replicas.

use std::num::NonZeroU32;

use tollgate::{Limiter, Policy, Quota, Store, store::ReplicaGroup};
use tollgate_test_support::{Deployment, PATIENCE};
use tollgate_tests::wait;

const HOURLY: Policy = Policy::token_bucket("hourly", Quota::per_hour(5));

pub(super) async fn the_processes_of_a_prefix_are_counted_at_one_key(deployment: &Deployment) {
    let group = ReplicaGroup::new("hourly", &HOURLY.into());
    let stores = [(); 2].map(|()| deployment.builder("counted").build().expect("a store"));
    let limiters = stores
        .each_ref()
        .map(|store| Limiter::new(store.clone(), HOURLY));
    for store in &stores {
        let count = store.replicas(group).expect("a store that counts");
        wait::until_async("the process to be counted", PATIENCE, async || {
            count.get().is_some()
        })
        .await;
        assert_eq!(
            count.get(),
            Some(NonZeroU32::MIN),
            "two stores of one process are one replica"
        );
    }
    let masters = deployment.masters();
    let key = format!("counted:{{replicas}}:{group}");
    // Where the machine has stood still, the set has expired and is made again.
    wait::until_async("one process in the set", PATIENCE, async || {
        let sets = masters
            .iter()
            .map(|master| master.command(&["ZCARD", &key]));
        // The other masters of a cluster answer MOVED.
        let sizes = sets
            .filter(|reply| !reply.is_error())
            .map(|reply| reply.int());
        sizes.collect::<Vec<_>>() == [1]
    })
    .await;
    drop(limiters);
}
