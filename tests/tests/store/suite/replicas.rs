//! Cases about the count of replicas.

use std::num::NonZeroU32;

use tollgate::{Limiter, Policy, Quota, Store};
use tollgate_test_support::{Deployment, PATIENCE};
use tollgate_tests::wait;

pub(super) async fn the_processes_of_a_prefix_are_counted_at_one_key(deployment: &Deployment) {
    let store = deployment.builder("counted").build().expect("a store");
    let limiter = Limiter::new(store, Policy::token_bucket("hourly", Quota::per_hour(5)));
    let store = deployment.builder("counted").build().expect("a store");
    let count = store.replicas().expect("a store that counts");
    wait::until_async("the process to be counted", PATIENCE, async || count.get().is_some()).await;
    assert_eq!(count.get(), Some(NonZeroU32::MIN), "two stores of one process are one replica");
    let key = ["EXISTS", "counted:{replicas}"];
    let holders: i64 = deployment
        .masters()
        .iter()
        .map(|master| master.command(&key))
        .filter(|it| !it.is_error())
        .map(|it| it.int())
        .sum();
    assert_eq!(holders, 1);
    drop(limiter);
}
