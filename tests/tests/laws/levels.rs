//! Policies at the levels of a nested key.

use tollgate::{Algorithm, Key, PolicySet};
use tollgate_test_support::{Dice, Subject, policies};

use crate::on_every_store;

/// Returns a set with one policy at each level of a key of three levels, the whole key included.
fn set(dice: &mut Dice, algorithm: Algorithm) -> PolicySet {
    let policy = |dice: &mut Dice, name| policies::small_policy(dice, name, algorithm);
    PolicySet::from([
        policy(dice, "outermost").at_level(1),
        policy(dice, "middle").at_level(2),
        policy(dice, "whole"),
    ])
}

fn key(outermost: u64, middle: u64, inner: u64) -> Key {
    Key::from(outermost).child(middle).child(inner)
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

#[test]
fn keys_share_the_states_of_their_common_outer_levels_and_no_other() {
    on_every_store(|subject, dice, algorithm| {
        let set = set(dice, algorithm);
        assert!(subject.check(&set, &key(1, 1, 1), 1).is_allowed());
        let [full, spent] = [
            bursts(&set),
            bursts(&set).into_iter().map(|burst| burst - 1).collect(),
        ];
        assert_eq!(left(subject, &set, &key(1, 1, 1)), spent);
        assert_eq!(
            left(subject, &set, &key(1, 1, 2)),
            [spent[0], spent[1], full[2]]
        );
        assert_eq!(
            left(subject, &set, &key(1, 2, 1)),
            [spent[0], full[1], full[2]]
        );
        assert_eq!(left(subject, &set, &key(2, 1, 1)), full);
        // A policy that meters a key whole has the state that the same policy has at this level of
        // a longer key.
        let whole = PolicySet::from(policies_without_levels(&set));
        assert_eq!(left(subject, &whole, &Key::from(1_u64))[0], spent[0]);
        assert_eq!(
            left(subject, &whole, &Key::from(1_u64).child(1_u64))[1],
            spent[1]
        );
    });
}

fn policies_without_levels(set: &PolicySet) -> Vec<tollgate::Policy> {
    let whole = |policy: &tollgate::Policy| {
        tollgate::Policy::try_new(policy.name(), policy.algorithm(), policy.quota())
            .expect("a policy")
    };
    set.iter().map(whole).collect()
}

#[test]
fn a_denial_at_one_level_leaves_no_trace_at_another() {
    on_every_store(|subject, dice, algorithm| {
        let set = set(dice, algorithm);
        let at = dice.below(3) as usize;
        let denying = set.iter().nth(at).expect("three policies").clone();
        // Spends all of one policy by itself, for the levels that it meters.
        let alone = PolicySet::from(denying.clone());
        assert!(
            subject
                .check(&alone, &key(1, 1, 1), denying.quota().burst())
                .is_allowed()
        );
        let before: Vec<_> = set
            .iter()
            .map(|policy| subject.stored(policy, &key(1, 1, 1)))
            .collect();
        let denied = subject.check(&set, &key(1, 1, 1), 1);
        assert!(denied.is_denied());
        let exceeded: Vec<_> = denied
            .states()
            .filter(|state| state.is_exceeded())
            .map(|s| s.policy().name())
            .collect();
        assert_eq!(exceeded, [denying.name()]);
        let after: Vec<_> = set
            .iter()
            .map(|policy| subject.stored(policy, &key(1, 1, 1)))
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
fn a_refund_reaches_every_level_and_a_reset_the_own_level_alone() {
    on_every_store(|subject, dice, algorithm| {
        let set = set(dice, algorithm);
        let (full, spent) = (
            bursts(&set),
            bursts(&set)
                .into_iter()
                .map(|burst| burst - 1)
                .collect::<Vec<_>>(),
        );
        assert!(subject.check(&set, &key(1, 1, 1), 1).is_allowed());
        subject.reset(&set, &key(1, 1, 1));
        assert_eq!(
            left(subject, &set, &key(1, 1, 1)),
            [spent[0], spent[1], full[2]]
        );
        // The key of an outer level resets that level.
        subject.reset(&set, &Key::from(1_u64).child(1_u64));
        assert_eq!(
            left(subject, &set, &key(1, 1, 1)),
            [spent[0], full[1], full[2]]
        );
        subject.reset(&set, &Key::from(1_u64));
        assert_eq!(left(subject, &set, &key(1, 1, 1)), full);
        let (key, now) = (key(1, 1, 2), subject.now());
        assert!(subject.check(&set, &key, 1).is_allowed());
        subject.refund(&set, &key, 1, now);
        assert_eq!(left(subject, &set, &key), full);
    });
}
