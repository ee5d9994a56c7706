//! Laws 2, 3 and 4: the remaining units, the time to retry and the reset time are exact.

use std::time::Duration;

use tollgate::{Decision, PolicySet};
use tollgate_test_support::{policies, stream::figures};

use crate::{drain, key, least_burst, micros, on_every_store, remaining, wander};

#[test]
fn law_02_exactly_the_remaining_units_pass() {
    on_every_store(|subject, dice, algorithm| {
        let set = PolicySet::from(policies::small_policy(dice, "p", algorithm));
        let burst = set.iter().next().expect("a policy").quota().burst();
        let fresh = subject.check(&set, &key(), 1);
        assert_eq!(remaining(&fresh), burst - 1, "a fresh {set:?}");
        wander(subject, dice, &set);
        let left = remaining(&subject.peek(&set, &key()));
        for passed in 0..left {
            let decision = subject.check(&set, &key(), 1);
            assert!(decision.is_allowed(), "{set:?}: {passed} of {left} passed");
            assert_eq!(remaining(&decision), left - passed - 1);
        }
        assert!(
            subject.check(&set, &key(), 1).is_denied(),
            "{set:?}: more than {left} passed"
        );
    });
}

/// The same for quotas of any size: the remaining units pass at once, and one more does not.
#[test]
fn law_02_the_remaining_units_pass_at_once_and_one_more_does_not() {
    on_every_store(|subject, dice, algorithm| {
        let set = PolicySet::from(policies::large_policy(dice, "p", algorithm));
        let burst = least_burst(&set);
        assert_eq!(
            remaining(&subject.check(&set, &key(), 1)),
            burst - 1,
            "a fresh {set:?}"
        );
        wander(subject, dice, &set);
        let left = remaining(&subject.peek(&set, &key()));
        if left < burst {
            assert!(
                subject.check(&set, &key(), left + 1).is_denied(),
                "{set:?}: more than {left} passed"
            );
        }
        if left > 0 {
            let decision = subject.check(&set, &key(), left);
            assert!(decision.is_allowed(), "{set:?}: {left} units did not pass");
            assert_eq!(remaining(&decision), 0, "{set:?}");
        }
        assert!(
            subject.check(&set, &key(), 1).is_denied(),
            "{set:?}: more than {left} passed"
        );
    });
}

#[test]
fn law_03_the_time_to_retry_is_exact_and_never_zero() {
    on_every_store(|subject, dice, algorithm| {
        let set = policies::set(dice, algorithm, 5);
        wander(subject, dice, &set);
        drain(subject, &set);
        let least = least_burst(&set);
        let cost = 1 + dice.below(least);
        let denied = subject.check(&set, &key(), cost);
        assert!(denied.is_denied());
        let retry = micros(denied.retry_after());
        assert!(retry > 0);
        subject.advance(retry - 1);
        assert!(
            subject.check(&set, &key(), cost).is_denied(),
            "{set:?}: cost {cost} passed 1 µs early"
        );
        subject.advance(1);
        assert!(
            subject.check(&set, &key(), cost).is_allowed(),
            "{set:?}: cost {cost} denied after {retry} µs"
        );
    });
}

#[test]
fn law_03_the_time_to_one_more_unit_is_exact() {
    on_every_store(|subject, dice, algorithm| {
        let set = PolicySet::from(policies::policy(dice, "p", algorithm));
        wander(subject, dice, &set);
        let look = subject.peek(&set, &key());
        let state = look.states().next().expect("a state");
        let more = state.next_unit_after().as_micros() as u64;
        if more == 0 {
            assert_eq!(state.remaining(), state.policy().quota().burst());
            return;
        }
        subject.advance(more - 1);
        assert_eq!(
            remaining(&subject.peek(&set, &key())),
            state.remaining(),
            "{set:?}"
        );
        subject.advance(1);
        assert!(
            remaining(&subject.peek(&set, &key())) > state.remaining(),
            "{set:?}"
        );
    });
}

/// The units that are left when a cost above one is denied, and the time to one more, are those of
/// a peek.
#[test]
fn law_03_a_denial_of_a_higher_cost_tells_the_time_to_one_more_unit() {
    on_every_store(|subject, dice, algorithm| {
        let set = PolicySet::from(policies::policy(dice, "p", algorithm));
        let burst = least_burst(&set);
        // Some of the burst is left, and less than the cost.
        let _ = subject.check(&set, &key(), burst / 2 + 1);
        subject.advance(dice.below(3));
        let _ = subject.check(&set, &key(), 1);
        let denied = subject.check(&set, &key(), burst);
        assert!(denied.is_denied(), "{set:?}");
        let (denied, peek) = (figures(&denied), figures(&subject.peek(&set, &key())));
        for ((left, _, reset, more), (peek_left, _, peek_reset, peek_more)) in
            denied.1.iter().zip(&peek.1)
        {
            assert_eq!(
                (left, reset, more),
                (peek_left, peek_reset, peek_more),
                "{set:?}"
            );
        }
        let more = denied.1[0].3.as_micros() as u64;
        subject.advance(more - 1);
        assert_eq!(
            remaining(&subject.peek(&set, &key())),
            denied.1[0].0,
            "{set:?}"
        );
        subject.advance(1);
        assert!(
            remaining(&subject.peek(&set, &key())) > denied.1[0].0,
            "{set:?}"
        );
    });
}

#[test]
fn law_04_at_the_reset_time_the_state_equals_a_fresh_one() {
    on_every_store(|subject, dice, algorithm| {
        let set = PolicySet::from(policies::policy(dice, "p", algorithm));
        wander(subject, dice, &set);
        drain(subject, &set);
        let denied = subject.check(&set, &key(), 1);
        let state = denied.states().next().expect("a state");
        let reset = state.reset_after().as_micros() as u64;
        assert!(Some(state.reset_after()) >= state.retry_after(), "{set:?}");
        let burst = state.policy().quota().burst();
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
