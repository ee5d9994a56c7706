//! Law 12: a peek changes nothing, a reset makes the state fresh, a refund gives back what was spent.

use std::time::Duration;

use tollgate::{Algorithm, Key, Policy, PolicySet, Quota};
use tollgate_test_support::{Subject, policies, stream::figures};

use crate::{drain, key, least_burst, on_both_stores, remaining, wander};

#[test]
fn law_12_a_peek_changes_nothing() {
    on_both_stores(|subject, dice, algorithm| {
        let set = policies::set(dice, algorithm, 5);
        wander(subject, dice, &set);
        let stored =
            |subject: &mut dyn Subject| -> Vec<_> { set.iter().map(|policy| subject.stored(policy, &key())).collect() };
        let before = stored(subject);
        let first = figures(&subject.peek(&set, &key()));
        assert!(first.0, "a peek is never denied");
        assert_eq!(figures(&subject.peek(&set, &key())), first, "{set:?}");
        assert_eq!(stored(subject), before, "{set:?}");
        // A key that was never checked is not stored by a peek.
        let other = Key::from("another");
        let _ = subject.peek(&set, &other);
        assert!(set.iter().all(|policy| subject.stored(policy, &other).is_none()));
    });
}

#[test]
fn law_12_a_refund_gives_back_what_was_spent_and_no_more() {
    on_both_stores(|subject, dice, algorithm| {
        let set = policies::set(dice, algorithm, 3);
        let least = least_burst(&set);
        let cost = 1 + dice.below(least);
        let _ = subject.check(&set, &key(), cost);
        let spent_us = subject.now();
        subject.refund(&set, &key(), 1, spent_us);
        let look = subject.peek(&set, &key());
        for state in look.states() {
            assert_eq!(state.remaining(), state.policy().quota().burst() - cost + 1, "{state:?}");
        }
        subject.refund(&set, &key(), least, spent_us);
        subject.refund(&set, &key(), least, spent_us);
        let look = subject.peek(&set, &key());
        for state in look.states() {
            assert_eq!(state.remaining(), state.policy().quota().burst(), "{state:?}");
            assert_eq!(subject.stored(state.policy(), &key()), None, "{state:?}");
        }
        // Nothing was spent, so nothing is given back.
        subject.refund(&set, &Key::from("stranger"), 1, spent_us);
        assert!(set.iter().all(|policy| subject.stored(policy, &Key::from("stranger")).is_none()));
    });
}

#[test]
fn law_12_a_refund_never_crosses_into_a_newer_window() {
    on_both_stores(|subject, _, algorithm| {
        if policies::has_burst(algorithm) {
            return;
        }
        let set = PolicySet::from(Policy::try_new("p", algorithm, Quota::per_minute(5)).expect("a policy"));
        let _ = subject.check(&set, &key(), 3);
        let spent_us = subject.now();
        subject.advance(60_000_000);
        let _ = subject.check(&set, &key(), 2);
        subject.refund(&set, &key(), 3, spent_us);
        assert_eq!(remaining(&subject.peek(&set, &key())), 3, "{algorithm:?}");
    });
}

#[test]
fn law_12_a_reset_makes_the_state_fresh() {
    on_both_stores(|subject, dice, algorithm| {
        let set = policies::set(dice, algorithm, 5);
        wander(subject, dice, &set);
        drain(subject, &set);
        subject.reset(&set, &key());
        let look = subject.peek(&set, &key());
        for state in look.states() {
            assert_eq!(state.remaining(), state.policy().quota().burst(), "{state:?}");
            assert_eq!(state.reset_after(), Duration::ZERO, "{state:?}");
        }
    });
}

#[test]
fn law_12_an_interval_bucket_gives_no_unit_back_that_a_fill_gave_back() {
    on_both_stores(|subject, _, algorithm| {
        if algorithm != Algorithm::IntervalBucket {
            return;
        }
        let quota = Quota::new(10, Duration::from_secs(10)).with_burst(11);
        let set = PolicySet::from(Policy::interval_bucket("p", quota));
        let _ = subject.check(&set, &key(), 1);
        let spent_us = subject.now();
        subject.advance(10_000_000);
        assert!(subject.check(&set, &key(), 11).is_allowed());
        subject.refund(&set, &key(), 1, spent_us);
        assert_eq!(remaining(&subject.peek(&set, &key())), 0);
    });
}
