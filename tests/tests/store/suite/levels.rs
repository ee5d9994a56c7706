//! Policies at the levels of a nested key.

use std::time::Duration;

use tollgate::{
    Cost, Key, MemoryStore, Policy, PolicySet, Quota, store::Clock, testing::ALGORITHMS,
};
use tollgate_test_support::{
    Deployment, Dice, START_US, decided, patient_limiter, policies, remaining_of_each,
};

use super::{
    decisions::{SCRIPTS, agree, in_order},
    load, store,
};

/// The quota of the outer level, and the number of inner keys that compete for it.
const OUTER: u64 = 20;
const INNER: u64 = 300;

fn policies() -> PolicySet {
    PolicySet::from([
        Policy::token_bucket("outer", Quota::per_day(OUTER)).at_level(1),
        Policy::fixed_window("inner", Quota::per_day(2)),
    ])
}

pub(super) async fn a_batch_spends_exactly_the_quota_of_an_outer_level(deployment: &Deployment) {
    let set = policies();
    let store = store(deployment, "one-batch", &set).await;
    let limiter = patient_limiter(store, set);
    for outermost in 0..3_u64 {
        // All checks wait in one task, so they leave in few batches.
        let checks = (0..INNER)
            .map(|inner| {
                limiter
                    .check(Key::from(outermost).child(inner))
                    .into_future()
            })
            .collect();
        let decisions = in_order(checks).await;
        let admitted: Vec<_> = decisions
            .iter()
            .map(|decision| decision.is_allowed())
            .collect();
        let first: Vec<_> = (0..INNER).map(|at| at < OUTER).collect();
        assert_eq!(admitted, first, "the first checks have the quota");
    }
    let keys = deployment
        .masters()
        .iter()
        .map(|master| master.command(&["DBSIZE"]).int() as u64)
        .sum::<u64>();
    assert_eq!(keys, 3 * (1 + OUTER), "a denial creates no key");
    deployment.assert_every_key_expires();
}

pub(super) async fn many_tasks_get_exactly_the_quota_of_an_outer_level(deployment: &Deployment) {
    const OUTERMOST: u64 = 3;
    const AMOUNT: u64 = 300;
    let outer = Policy::fixed_window("outer", Quota::per_day(AMOUNT)).at_level(1);
    let set = PolicySet::from([outer, Policy::token_bucket("inner", Quota::per_day(1_000))]);
    let store = store(deployment, "tasks", &set).await;
    let limiter = patient_limiter(store, set);
    let before = deployment.calls(SCRIPTS);
    let tasks: Vec<_> = (0..3_000_u64)
        .map(|at| {
            let limiter = limiter.clone();
            // Several outer levels, equal keys and two costs, in one queue.
            let (outermost, key) = (at % OUTERMOST, Key::from(at % OUTERMOST).child(at % 50));
            let cost = Cost::new(1 + at % 2);
            tokio::spawn(async move {
                let decision = limiter.check(key).cost(cost).await.expect("a decision");
                (
                    outermost,
                    if decision.is_allowed() {
                        cost.units()
                    } else {
                        0
                    },
                )
            })
        })
        .collect();
    let mut spent = [0; OUTERMOST as usize];
    for task in tasks {
        let (outermost, units) = task.await.expect("a task");
        spent[outermost as usize] += units;
    }
    assert_eq!(spent, [AMOUNT; OUTERMOST as usize]);
    assert!(
        deployment.calls(SCRIPTS) - before <= 3_000,
        "no check is sent twice"
    );
}

pub(super) async fn nested_decisions_are_those_of_the_in_process_store(deployment: &Deployment) {
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
        let set = policies::nested_set(&mut dice, algorithm, 4);
        load(deployment, &set);
        let key = |dice: &mut Dice| {
            Key::from((seed, dice.below(3)))
                .child(dice.below(3))
                .child(dice.below(2))
        };
        agree(&set, &redis, &memory, &clock, &mut dice, key).await;
    }
    deployment.assert_every_key_expires();
}

pub(super) async fn all_states_of_a_nested_key_lie_in_one_slot(deployment: &Deployment) {
    let set = policies();
    let store = store(deployment, "slot", &set).await;
    let limiter = patient_limiter(store, set);
    for outermost in ["acme", "a{b}c", &"long".repeat(40)] {
        // No text of an inner level selects the slot.
        let key = Key::new(outermost).child("x{y}z").child("}");
        assert!(limiter.check(&key).await.expect("a decision").is_allowed());
        let owner = deployment.owner(&key);
        let tag = Key::new(outermost).encoded().to_owned();
        let inner = key.encoded()[tag.len()..].to_owned();
        for name in [
            format!("slot:{{{tag}}}:outer:t1"),
            format!("slot:{{{tag}}}{inner}:inner:f1"),
        ] {
            assert_eq!(owner.command(&["EXISTS", &name]).int(), 1, "{name}");
        }
    }
}

pub(super) async fn a_denied_flood_of_inner_keys_leaves_no_key(deployment: &Deployment) {
    let set = policies();
    let store = store(deployment, "flood", &set).await;
    let limiter = patient_limiter(store, set);
    let keys = || {
        deployment
            .masters()
            .iter()
            .map(|master| master.command(&["DBSIZE"]).int())
            .sum::<i64>()
    };
    let check = |inner: u64| limiter.check(Key::new("acme").child(inner));
    for inner in 0..OUTER {
        assert!(check(inner).await.expect("a decision").is_allowed());
    }
    let before = keys();
    for inner in OUTER..1_000 {
        assert!(check(inner).await.expect("a decision").is_denied());
    }
    assert_eq!(keys(), before);
}

pub(super) async fn a_reset_leaves_outer_levels_and_a_refund_reaches_them(deployment: &Deployment) {
    let set = policies();
    let builder = deployment
        .builder("refund")
        .deny_cache_cap(Duration::from_secs(3_600));
    let limiter = patient_limiter(builder.connect().await.expect("a store"), set);
    let (ann, bob) = (Key::new("acme").child("ann"), Key::new("acme").child("bob"));
    for _ in 0..2 {
        assert!(limiter.check(&ann).await.expect("a decision").is_allowed());
    }
    assert_eq!(remaining_of_each(&limiter, &ann).await, [OUTER - 2, 0]);
    limiter.reset(&ann).await.expect("a reset");
    assert_eq!(remaining_of_each(&limiter, &ann).await, [OUTER - 2, 2]);
    for inner in 0..OUTER - 2 {
        assert!(
            decided(&limiter, Key::new("acme").child(inner))
                .await
                .is_allowed()
        );
    }
    // The denial is remembered, and forgotten when another key of the outer level returns a unit.
    for _ in 0..2 {
        assert!(limiter.check(&bob).await.expect("a decision").is_denied());
    }
    limiter
        .refund(Key::new("acme").child(0_u64), Cost::ONE)
        .await
        .expect("a refund");
    assert!(limiter.check(&bob).await.expect("a decision").is_allowed());
    assert!(limiter.check(&bob).await.expect("a decision").is_denied());
    limiter.reset(Key::new("acme")).await.expect("a reset");
    assert_eq!(remaining_of_each(&limiter, &bob).await, [OUTER, 1]);
    assert!(limiter.check(&bob).await.expect("a decision").is_allowed());
}
