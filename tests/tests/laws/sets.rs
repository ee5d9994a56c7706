//! Policies of a set are checked together.

use tollgate::{Cost, Costs, Key, Policy, PolicySet};
use tollgate_test_support::{Dice, policies};

use crate::{drain, key, on_every_store, remaining, wander};

#[test]
fn a_set_is_charged_whole_or_not_at_all() {
    on_every_store(|subject, dice, algorithm| {
        let set = policies::set(dice, algorithm, 5);
        wander(subject, dice, &set);
        drain(subject, &set);
        let before = subject.peek(&set, &key());
        let denied = subject.check(&set, &key(), 1);
        assert!(denied.is_denied());
        assert!(denied.states().any(|state| state.is_exceeded()));
        for (state, before) in denied.states().zip(before.states()) {
            assert_eq!(state.remaining(), before.remaining(), "{set:?}");
            assert_eq!(state.is_exceeded(), state.remaining() == 0, "{set:?}");
            assert_eq!(state.retry_after().is_some(), state.is_exceeded());
        }
        let longest = denied
            .states()
            .filter_map(|state| state.retry_after())
            .max();
        assert_eq!(denied.retry_after(), longest);
    });
}

#[test]
fn policies_of_one_name_share_their_counter_across_sets() {
    on_every_store(|subject, dice, algorithm| {
        let shared = policies::small_policy(dice, "shared", algorithm);
        let alone = PolicySet::from(shared.clone());
        let other = policies::policy(dice, "other", algorithm);
        let pair = PolicySet::from([other, shared.clone()]);
        let _ = subject.check(&alone, &key(), 1);
        let left = subject
            .peek(&pair, &key())
            .state("shared")
            .expect("the policy")
            .remaining();
        assert_eq!(left, shared.quota().burst() - 1);
    });
}

/// A set with a cost for each policy decides as its policies do one by one, all or nothing.
#[test]
fn each_policy_is_charged_its_own_cost_or_none_is() {
    on_every_store(|subject, dice, algorithm| {
        let set = policies::set(dice, algorithm, 5);
        let (together, apart) = (Key::from("together"), Key::from("apart"));
        let alone: Vec<PolicySet> = set.iter().cloned().map(PolicySet::from).collect();
        for _ in 0..8 {
            let draw = |dice: &mut Dice, policy: &Policy| {
                dice.below(policy.quota().burst().min(1_000) + 1)
            };
            let costs: Vec<u64> = set.iter().map(|policy| draw(dice, policy)).collect();
            let named = set
                .iter()
                .zip(&costs)
                .fold(Costs::new(Cost::ZERO), |named, (policy, &cost)| {
                    named.with(policy.name().to_owned(), cost)
                });
            let fits: Vec<bool> = alone
                .iter()
                .zip(&costs)
                .map(|(one, &cost)| cost <= remaining(&subject.peek(one, &apart)))
                .collect();
            let decision = subject.check_costs(&set, &together, &named, "");
            assert_eq!(
                decision.is_allowed(),
                fits.iter().all(|&fits| fits),
                "{costs:?} of {set:?}"
            );
            for ((state, &cost), &fits) in decision.states().zip(&costs).zip(&fits) {
                assert_eq!(
                    (state.cost(), state.is_exceeded()),
                    (Cost::new(cost), !fits),
                    "{costs:?} of {set:?}"
                );
            }
            if decision.is_allowed() {
                for (one, &cost) in alone.iter().zip(&costs) {
                    assert!(subject.check(one, &apart, cost).is_allowed());
                }
            }
            for policy in set.iter() {
                let states = [&together, &apart].map(|key| subject.stored(policy, key));
                assert_eq!(states[0], states[1], "{costs:?} of {set:?}");
            }
            let policy = set.iter().next().expect("a policy");
            subject.advance(dice.below(policy.quota().period().as_micros() as u64));
        }
    });
}
