//! Policies on the branches of a key. The branches lie below one outermost level, so that a cluster
//! decides them too.

use std::time::Duration;

use tollgate::{
    Cost, Key, Limiter, MemoryStore, Policy, PolicySet, Quota, store::Clock, testing::ALGORITHMS,
};
use tollgate_test_support::{
    Deployment, Dice, START_US, patient_limiter, policies, remaining_of_each,
};

use super::{
    decisions::{SCRIPTS, agree, in_order},
    load, store,
};

/// Returns a key of an address beside an API key, below one of the outermost levels.
fn key(outermost: u64, address: u64, api_key: u64) -> Key {
    Key::from(outermost).child(Key::from(("address", address)).with_branch(("api key", api_key)))
}

fn policies(address: u64, api_key: u64) -> PolicySet {
    PolicySet::from([
        Policy::token_bucket("address", Quota::per_day(address)),
        Policy::fixed_window("api-key", Quota::per_day(api_key)).at_branch(2),
    ])
}

pub(super) async fn a_batch_spends_exactly_the_quota_of_each_branch(deployment: &Deployment) {
    let set = policies(6, 4);
    let store = store(deployment, "one-batch", &set).await;
    let limiter = patient_limiter(store, set);
    for outermost in 0..3_u64 {
        // All checks wait in one task, so they leave in few batches. Most have one branch in
        // common, and not the other.
        let pairs: Vec<(u64, u64)> = (0..300_u64).map(|at| (at * 7 % 5, at / 2 % 6)).collect();
        let checks = pairs
            .iter()
            .map(|&(address, api_key)| {
                limiter
                    .check(key(outermost, address, api_key))
                    .into_future()
            })
            .collect();
        let decisions = in_order(checks).await;
        let (mut addresses, mut api_keys) = ([6; 5], [4; 6]);
        for (&(address, api_key), decision) in pairs.iter().zip(&decisions) {
            let left = (
                &mut addresses[address as usize],
                &mut api_keys[api_key as usize],
            );
            let expected = *left.0 > 0 && *left.1 > 0;
            assert_eq!(
                decision.is_allowed(),
                expected,
                "the first checks have the quota"
            );
            (*left.0, *left.1) = (*left.0 - u64::from(expected), *left.1 - u64::from(expected));
        }
    }
    deployment.assert_every_key_expires();
}

pub(super) async fn many_tasks_get_exactly_the_quota_of_each_branch(deployment: &Deployment) {
    let set = policies(60, 100);
    let store = store(deployment, "tasks", &set).await;
    let limiter = patient_limiter(store, set);
    let before = deployment.calls(SCRIPTS);
    let tasks: Vec<_> = (0..3_000_u64)
        .map(|at| {
            let limiter = limiter.clone();
            // Each pair occurs 66 times or more.
            let (address, api_key, cost) = (at % 5, at / 15 % 3, 1 + at % 2);
            tokio::spawn(async move {
                let decision = limiter
                    .check(key(at % 3, address, api_key))
                    .cost(Cost::new(cost))
                    .await;
                let is_allowed = decision.expect("a decision").is_allowed();
                (at % 3, address, api_key, if is_allowed { cost } else { 0 })
            })
        })
        .collect();
    let (mut addresses, mut api_keys) = ([[0; 5]; 3], [[0; 3]; 3]);
    for task in tasks {
        let (outermost, address, api_key, units) = task.await.expect("a task");
        addresses[outermost as usize][address as usize] += units;
        api_keys[outermost as usize][api_key as usize] += units;
    }
    for outermost in 0..3_u64 {
        for address in 0..5_u64 {
            for api_key in 0..3_u64 {
                let left = remaining_of_each(&limiter, key(outermost, address, api_key)).await;
                let spent = (
                    addresses[outermost as usize][address as usize],
                    api_keys[outermost as usize][api_key as usize],
                );
                assert_eq!(
                    left,
                    [60 - spent.0, 100 - spent.1],
                    "{outermost} {address} {api_key}"
                );
                // A request of two units may be denied while one is left.
                assert!(
                    left[0] <= 1 || left[1] <= 1,
                    "{left:?}: units are left that were wanted"
                );
            }
        }
    }
    assert!(
        deployment.calls(SCRIPTS) - before <= 3_050,
        "no check is sent twice"
    );
}

pub(super) async fn branched_decisions_are_those_of_the_in_process_store(deployment: &Deployment) {
    let clock = Clock::manual(START_US);
    let redis = deployment
        .builder("agree")
        .clock(clock.clone())
        .connect()
        .await
        .expect("a store");
    let memory = MemoryStore::builder().clock(clock.clone()).build();
    for (seed, algorithm) in (0..).zip(ALGORITHMS) {
        let mut dice = Dice::new(seed);
        let set = policies::branched_set(&mut dice, algorithm, 4);
        load(deployment, &set);
        let key = |dice: &mut Dice| {
            Key::from(("outermost", seed, dice.below(2))).child(policies::branched_key(dice))
        };
        agree(&set, &redis, &memory, &clock, &mut dice, key).await;
    }
    deployment.assert_every_key_expires();
}

pub(super) async fn a_state_is_stored_as_that_of_the_branch_alone(deployment: &Deployment) {
    let set = policies(5, 5);
    let store = store(deployment, "names", &set).await;
    let limiter = patient_limiter(store, set);
    let key = Key::new("acme").child(Key::new("x{y}z").with_branch(Key::new("ann").child("7")));
    assert!(limiter.check(&key).await.expect("a decision").is_allowed());
    let owner = deployment.owner(&Key::new("acme"));
    for name in [
        "names:{acme}>x%7by%7dz:address:t1",
        "names:{acme}>ann>7:api-key:f1",
    ] {
        assert_eq!(owner.command(&["EXISTS", name]).int(), 1, "{name}");
    }
    // The counter of the address is that of a limiter on the address.
    let address = limiter.with_policies(Policy::token_bucket("address", Quota::per_day(5)));
    assert_eq!(
        remaining_of_each(&address, Key::new("acme").child("x{y}z")).await,
        [4]
    );
}

pub(super) async fn a_refund_and_a_reset_of_one_branch_end_the_denials_of_keys_that_share_it(
    deployment: &Deployment,
) {
    let set = policies(2, 5);
    let builder = deployment
        .builder("refund")
        .deny_cache_cap(Duration::from_secs(3_600));
    let limiter = patient_limiter(builder.connect().await.expect("a store"), set.clone());
    let address = limiter.with_policies(set.iter().next().expect("a policy").clone());
    let is_allowed = async |limiter: &Limiter, key: &Key| {
        limiter.check(key).await.expect("a decision").is_allowed()
    };
    let (ann, bob) = (key(1, 1, 1), key(1, 1, 2));
    let alone = ann.branches()[0].clone();
    assert!(is_allowed(&limiter, &ann).await && is_allowed(&limiter, &bob).await);
    let before = deployment.calls(SCRIPTS);
    for _ in 0..3 {
        // Each of the three keys remembers its denial by the address.
        assert!(!is_allowed(&limiter, &ann).await && !is_allowed(&limiter, &bob).await);
        assert!(!is_allowed(&address, &alone).await);
    }
    assert_eq!(
        deployment.calls(SCRIPTS) - before,
        3,
        "a remembered denial is not sent"
    );
    // A unit comes back by a refund to another key with the same address.
    limiter.refund(&bob, Cost::ONE).await.expect("a refund");
    assert!(is_allowed(&limiter, &ann).await);
    assert!(!is_allowed(&limiter, &ann).await && !is_allowed(&address, &alone).await);
    limiter.refund(&bob, Cost::ONE).await.expect("a refund");
    assert!(is_allowed(&address, &alone).await);
    // By a refund to the address alone.
    assert!(!is_allowed(&limiter, &ann).await);
    address.refund(&alone, Cost::ONE).await.expect("a refund");
    assert!(is_allowed(&limiter, &ann).await);
    assert!(!is_allowed(&limiter, &bob).await && !is_allowed(&address, &alone).await);
    // By a reset of a key with branches.
    limiter.reset(&ann).await.expect("a reset");
    assert_eq!(remaining_of_each(&limiter, &ann).await, [2, 5]);
    assert!(is_allowed(&address, &alone).await && is_allowed(&limiter, &bob).await);
}
