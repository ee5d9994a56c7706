//! Policies of a set are checked together.

use tollgate::PolicySet;
use tollgate_test_support::policies;

use crate::{drain, key, on_both_stores, wander};

#[test]
fn a_set_is_charged_whole_or_not_at_all() {
    on_both_stores(|subject, dice, algorithm| {
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
        let longest = denied.states().filter_map(|state| state.retry_after()).max();
        assert_eq!(denied.retry_after(), longest);
    });
}

#[test]
fn policies_of_one_name_share_their_counter_across_sets() {
    on_both_stores(|subject, dice, algorithm| {
        let shared = policies::small_policy(dice, "shared", algorithm);
        let alone = PolicySet::from(shared.clone());
        let other = policies::policy(dice, "other", algorithm);
        let pair = PolicySet::from([other, shared.clone()]);
        let _ = subject.check(&alone, &key(), 1);
        let left = subject.peek(&pair, &key()).state("shared").expect("the policy").remaining();
        assert_eq!(left, shared.quota().burst() - 1);
    });
}
