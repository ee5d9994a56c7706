//! Tests the part of a decision that concerns one branch of its key.

use tollgate_model::raw::{CostsParts, DecisionParts};

use super::*;
use crate::Costs;

fn policies() -> PolicySet {
    let quota = Quota::per_hour(10);
    PolicySet::from([
        Policy::sliding_log("log", quota).at_branch(2),
        Policy::token_bucket("bucket", quota),
        Policy::fixed_window("outer", quota)
            .at_branch(2)
            .at_level(1),
    ])
}

#[test]
fn a_part_is_the_decision_of_its_branch_alone() {
    let (store, set) = (MemoryStore::new(), policies());
    let key = Key::new("a").with_branch(Key::new("b").child("c"));
    let costs = Costs::new(Cost::ONE)
        .with("log", 2_u64)
        .charge(&set)
        .expect("costs");
    let decision = store.decide(Check::of(&set, &key, costs.borrow()));
    let figures = |decision: &Decision| {
        let states = decision.states();
        states
            .map(|state| {
                (
                    state.policy().name().to_owned(),
                    state.remaining(),
                    state.cost(),
                )
            })
            .collect::<Vec<_>>()
    };
    let second = decision.branch(2).expect("policies of the branch");
    assert_eq!(
        figures(&second),
        [
            ("log".into(), 8, Cost::new(2)),
            ("outer".into(), 9, Cost::ONE)
        ]
    );
    assert_eq!(
        second
            .policies()
            .iter()
            .map(|policy| (policy.branch(), policy.level()))
            .collect::<Vec<_>>(),
        [(1, None), (1, Some(1))]
    );
    assert_eq!(
        figures(&decision.branch(1).expect("a policy of the branch")),
        [("bucket".into(), 9, Cost::ONE)]
    );
    assert!(decision.branch(3).is_none());
    // The part and the branch's key alone are all that a refund needs.
    store.refund_at(
        Check::of(second.policies(), &key.branches()[1], second.charge()),
        Some(second.at_us()),
        None,
    );
    let left = store.decide(Check::new(&set, &key, Cost::ZERO));
    assert_eq!(
        left.states()
            .map(|state| state.remaining())
            .collect::<Vec<_>>(),
        [10, 9, 10]
    );
}
