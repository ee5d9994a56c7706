//! Policies on the branches of a key.

use tollgate::{Algorithm, Cost, Costs, Key, Policy, PolicySet};
use tollgate_test_support::{Dice, Subject, policies};

use crate::{on_every_store, remaining};

/// Returns a set with a policy on each of three branches, and one on the outer level of the second.
fn set(dice: &mut Dice, algorithm: Algorithm) -> PolicySet {
    let policy = |dice: &mut Dice, name| policies::small_policy(dice, name, algorithm);
    PolicySet::from([
        policy(dice, "first"),
        policy(dice, "outer").at_branch(2).at_level(1),
        policy(dice, "second").at_branch(2),
        policy(dice, "third").at_branch(3),
    ])
}

fn key(first: u64, second: [u64; 2], third: u64) -> Key {
    Key::from(first)
        .with_branch(Key::from(second[0]).child(second[1]))
        .with_branch(third)
}

fn left(subject: &mut dyn Subject, policies: &PolicySet, key: &Key) -> Vec<u64> {
    subject
        .peek(policies, key)
        .states()
        .map(|state| state.remaining())
        .collect()
}

fn bursts(policies: &PolicySet) -> Vec<u64> {
    policies
        .iter()
        .map(|policy| policy.quota().burst())
        .collect()
}

/// Returns the policy as a limiter of the branch alone has it.
fn alone(policy: &Policy) -> PolicySet {
    PolicySet::from(policy.clone().at_branch(1))
}

#[test]
fn keys_share_the_states_of_their_common_branches_and_no_other() {
    on_every_store(|subject, dice, algorithm| {
        let set = set(dice, algorithm);
        assert!(subject.check(&set, &key(1, [2, 3], 4), 1).is_allowed());
        let [full, spent] = [
            bursts(&set),
            bursts(&set)
                .into_iter()
                .map(|burst| burst - 1)
                .collect::<Vec<_>>(),
        ];
        assert_eq!(left(subject, &set, &key(1, [2, 3], 4)), spent);
        assert_eq!(
            left(subject, &set, &key(1, [5, 3], 5)),
            [spent[0], full[1], full[2], full[3]]
        );
        assert_eq!(
            left(subject, &set, &key(5, [2, 5], 4)),
            [full[0], spent[1], full[2], spent[3]]
        );
        assert_eq!(
            left(subject, &set, &key(2, [4, 3], 1)),
            full,
            "at other places"
        );
        // The state of a branch is that of the branch's key alone.
        let branches = [
            Key::from(1_u64),
            Key::from(2_u64),
            Key::from(2_u64).child(3_u64),
            Key::from(4_u64),
        ];
        for ((policy, branch), spent) in set.iter().zip(&branches).zip(&spent) {
            let whole = Policy::try_new(policy.name(), policy.algorithm(), policy.quota())
                .expect("a policy");
            assert_eq!(left(subject, &whole.into(), branch), [*spent]);
        }
    });
}

#[test]
fn a_denial_on_one_branch_leaves_no_trace_on_another() {
    on_every_store(|subject, dice, algorithm| {
        let set = set(dice, algorithm);
        let denying = set
            .iter()
            .nth(dice.below(4) as usize)
            .expect("four policies")
            .clone();
        let key = key(1, [2, 3], 4);
        // Spends all of one policy by itself.
        assert!(
            subject
                .check(
                    &PolicySet::from(denying.clone()),
                    &key,
                    denying.quota().burst()
                )
                .is_allowed()
        );
        let before: Vec<_> = set
            .iter()
            .map(|policy| subject.stored(policy, &key))
            .collect();
        let denied = subject.check(&set, &key, 1);
        assert!(denied.is_denied());
        let exceeded: Vec<_> = denied
            .states()
            .filter(|state| state.is_exceeded())
            .map(|s| s.policy().name())
            .collect();
        assert_eq!(exceeded, [denying.name()]);
        let after: Vec<_> = set
            .iter()
            .map(|policy| subject.stored(policy, &key))
            .collect();
        assert_eq!(after, before, "{set:?}");
        assert_eq!(
            after.iter().flatten().count(),
            1,
            "only the spent state is stored"
        );
    });
}

#[test]
fn a_refund_reaches_every_branch_and_a_reset_what_each_branch_has_alone() {
    on_every_store(|subject, dice, algorithm| {
        let set = set(dice, algorithm);
        let (full, spent) = (
            bursts(&set),
            bursts(&set)
                .into_iter()
                .map(|burst| burst - 1)
                .collect::<Vec<_>>(),
        );
        let key = key(1, [2, 3], 4);
        assert!(subject.check(&set, &key, 1).is_allowed());
        subject.reset(&set, &key);
        assert_eq!(
            left(subject, &set, &key),
            [full[0], spent[1], full[2], full[3]],
            "the outer level is shared"
        );
        subject.reset(&set, &Key::from(9_u64).with_branch(2_u64));
        assert_eq!(left(subject, &set, &key), full);
        let now = subject.now();
        assert!(subject.check(&set, &key, 1).is_allowed());
        subject.refund(&set, &key, 1, now);
        assert_eq!(left(subject, &set, &key), full);
    });
}

/// Keys with branches decide as their branches one by one, all or nothing, over any schedule.
#[test]
fn branches_are_charged_as_their_keys_alone_or_none_is() {
    on_every_store(|subject, dice, algorithm| {
        let set = policies::branched_set(dice, algorithm, 4);
        // The same branches at other parts hold what each policy has been charged alone.
        let (together, apart) = (
            |key: &Key| Key::new("together").child(key),
            |key: &Key| Key::new("apart").child(key),
        );
        let set: PolicySet = set
            .iter()
            .map(|policy| {
                policy
                    .level()
                    .map_or(policy.clone(), |level| policy.clone().at_level(level + 1))
            })
            .collect::<Vec<_>>()
            .into();
        for _ in 0..12 {
            let key = policies::branched_key(dice);
            let costs: Vec<u64> = set
                .iter()
                .map(|policy| dice.below(policy.quota().burst().min(1_000) + 1))
                .collect();
            let named = set
                .iter()
                .zip(&costs)
                .fold(Costs::new(Cost::ZERO), |named, (policy, &cost)| {
                    named.with(policy.name().to_owned(), cost)
                });
            let branch = |policy: &Policy| apart(&key.branches()[usize::from(policy.branch()) - 1]);
            let mut fits = Vec::new();
            for (policy, &cost) in set.iter().zip(&costs) {
                fits.push(cost <= remaining(&subject.peek(&alone(policy), &branch(policy))));
            }
            let decision = subject.check_costs(&set, &together(&key), &named, "");
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
                for (policy, &cost) in set.iter().zip(&costs) {
                    assert!(
                        subject
                            .check(&alone(policy), &branch(policy), cost)
                            .is_allowed()
                    );
                }
            }
            for policy in set.iter() {
                let one = alone(policy).iter().next().expect("a policy").clone();
                let states = [
                    subject.stored(policy, &together(&key)),
                    subject.stored(&one, &branch(policy)),
                ];
                assert_eq!(states[0], states[1], "{costs:?} of {set:?}");
            }
            let policy = set.iter().next().expect("a policy");
            subject.advance(dice.below(policy.quota().period().as_micros() as u64));
        }
    });
}
