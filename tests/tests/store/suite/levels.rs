//! Policies at the levels of a nested key: what a key with branches does not show.

use std::time::Duration;

use tollgate::{Cost, Key, Policy, PolicySet, Quota};
use tollgate_test_support::{Deployment, decided, patient_limiter, remaining_of_each};

use super::store;

/// The quota of the outer level.
const OUTER: u64 = 20;

fn policies() -> PolicySet {
    PolicySet::from([
        Policy::token_bucket("outer", Quota::per_day(OUTER)).at_level(1),
        Policy::fixed_window("inner", Quota::per_day(2)),
    ])
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
