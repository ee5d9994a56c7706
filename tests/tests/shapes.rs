//! Measures the memory of policy sets: the scripts belong to the list of algorithms, and not to the set. A program of its
//! own, because it counts the lists of the whole process.

use std::sync::{Mutex, MutexGuard};

use tollgate::{
    Algorithm, Policy, PolicySet, Quota,
    testing::{Script, shapes},
};

/// Keeps the tests of this program from counting the shapes of each other.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

const SETS: usize = 1_000_000;

#[test]
fn a_million_sets_of_one_shape_hold_its_scripts_once() {
    let _alone = alone();
    assert_eq!(shapes(), 0);
    let mut kept = Vec::new();
    let mut texts = Vec::new();
    for at in 0..SETS {
        let policy = Policy::try_new(format!("tenant-{at}"), Algorithm::TokenBucket, Quota::per_second(1 + at as u64));
        let script = Script::new(policy.expect("a policy"));
        let text = script.text().as_ptr() as usize;
        if at % 100 == 0 {
            kept.push(script);
            texts.push(text);
        }
    }
    assert_eq!(shapes(), 1);
    texts.dedup();
    assert_eq!(texts.len(), 1, "each set has a text of its own");
    drop(kept);
    assert_eq!(shapes(), 0);
}

/// A hostile configuration cannot fill the memory with scripts: those of a list that no set uses are dropped.
#[test]
fn a_shape_ends_with_the_last_set_that_uses_it() {
    let _alone = alone();
    let quota = Quota::per_minute(5);
    let all = tollgate::testing::ALGORITHMS;
    let policy = |at: usize, algorithm| Policy::try_new(format!("p{at}"), algorithm, quota).expect("a policy");
    let mut most = 0;
    for first in all {
        for second in all {
            for third in all {
                let set = [policy(0, first), policy(1, second), policy(2, third)];
                let set = PolicySet::try_new(set).expect("a set");
                let script = Script::new(set.clone());
                assert!(!script.text().is_empty());
                let copy = set.clone();
                drop(set);
                drop(script);
                assert_eq!(shapes(), 1, "a copy of the set still uses the shape");
                most = most.max(shapes());
                drop(copy);
                assert_eq!(shapes(), 0);
            }
        }
    }
    assert_eq!(most, 1);
}

#[test]
fn a_tenant_with_a_quota_of_its_own_takes_less_than_200_bytes() {
    let _alone = alone();
    let named =
        Policy::try_new("a-name-of-the-longest-kind-that-there-may-be", Algorithm::TokenBucket, Quota::per_day(1));
    for policy in [Policy::token_bucket("api", Quota::per_second(10)), named.expect("a policy")] {
        // The shape and its scripts belong to all tenants.
        let first = Script::new(policy.clone());
        assert!(!first.text().is_empty());
        let mut tenant = None;
        let made = allocation_counter::measure(|| {
            let own = policy.with_quota(Quota::per_second(77)).expect("a policy");
            let script = Script::new(own);
            assert!(!script.text().is_empty());
            tenant = Some(script);
        });
        assert!(made.bytes_current < 200, "{made:?}");
        assert!(made.bytes_max < 200, "{made:?}");
        assert!(made.bytes_current > 0, "{made:?}");
        drop(tenant);
    }
}
