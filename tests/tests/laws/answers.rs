//! Laws 2, 3 and 4: the remaining units, the time to retry and the reset time are exact.

use std::time::Duration;

use tollgate::{Decision, PolicySet};
use tollgate_test_support::policies;

use crate::{drain, key, least_burst, micros, on_both_stores, remaining, wander};

#[test]
fn law_02_exactly_the_remaining_units_pass() {
    on_both_stores(|subject, dice, algorithm| {
        let set = PolicySet::from(policies::small_policy(dice, "p", algorithm));
        let burst = u64::from(set.iter().next().expect("a policy").quota().burst());
        let fresh = subject.check(&set, &key(), 1);
        assert_eq!(remaining(&fresh), burst - 1, "a fresh {set:?}");
        wander(subject, dice, &set);
        let left = remaining(&subject.peek(&set, &key()));
        for passed in 0..left {
            let decision = subject.check(&set, &key(), 1);
            assert!(decision.is_allowed(), "{set:?}: {passed} of {left} passed");
            assert_eq!(remaining(&decision), left - passed - 1);
        }
        assert!(subject.check(&set, &key(), 1).is_denied(), "{set:?}: more than {left} passed");
    });
}

#[test]
fn law_03_the_time_to_retry_is_exact_and_never_zero() {
    on_both_stores(|subject, dice, algorithm| {
        let set = policies::set(dice, algorithm, 5);
        wander(subject, dice, &set);
        drain(subject, &set);
        let least = least_burst(&set);
        let cost = 1 + dice.below(u64::from(least)) as u32;
        let denied = subject.check(&set, &key(), cost);
        assert!(denied.is_denied());
        let retry = micros(denied.retry_after());
        assert!(retry > 0);
        subject.advance(retry - 1);
        assert!(subject.check(&set, &key(), cost).is_denied(), "{set:?}: cost {cost} passed 1 µs early");
        subject.advance(1);
        assert!(subject.check(&set, &key(), cost).is_allowed(), "{set:?}: cost {cost} denied after {retry} µs");
    });
}

#[test]
fn law_03_the_time_to_one_more_unit_is_exact() {
    on_both_stores(|subject, dice, algorithm| {
        let set = PolicySet::from(policies::policy(dice, "p", algorithm));
        wander(subject, dice, &set);
        let look = subject.peek(&set, &key());
        let state = look.states().next().expect("a state");
        let more = state.more_after().as_micros() as u64;
        if more == 0 {
            assert_eq!(state.remaining(), u64::from(state.policy().quota().burst()));
            return;
        }
        subject.advance(more - 1);
        assert_eq!(remaining(&subject.peek(&set, &key())), state.remaining(), "{set:?}");
        subject.advance(1);
        assert!(remaining(&subject.peek(&set, &key())) > state.remaining(), "{set:?}");
    });
}

#[test]
fn law_04_at_the_reset_time_the_state_equals_a_fresh_one() {
    on_both_stores(|subject, dice, algorithm| {
        let set = PolicySet::from(policies::policy(dice, "p", algorithm));
        wander(subject, dice, &set);
        drain(subject, &set);
        let denied = subject.check(&set, &key(), 1);
        let state = denied.states().next().expect("a state");
        let reset = state.reset_after().as_micros() as u64;
        assert!(Some(state.reset_after()) >= state.retry_after(), "{set:?}");
        let burst = u64::from(state.policy().quota().burst());
        let is_fresh = |look: Decision| {
            let state = look.states().next().expect("a state");
            state.remaining() == burst && state.reset_after() == Duration::ZERO
        };
        subject.advance(reset - 1);
        assert!(!is_fresh(subject.peek(&set, &key())), "{set:?}");
        subject.advance(1);
        assert!(is_fresh(subject.peek(&set, &key())), "{set:?}");
    });
}
