//! Law 11: policies may change at run time.

use tollgate::{Policy, PolicySet, Quota, testing::ALGORITHMS};
use tollgate_test_support::{InMemory, InRedis, Subject};

use crate::{drain, key, micros, on_both_stores, remaining};

#[test]
fn law_11_a_raised_limit_is_usable_at_once() {
    on_both_stores(|subject, _, algorithm| {
        let policy = |quota| PolicySet::from(Policy::try_new("p", algorithm, quota).expect("a policy"));
        let (low, high) = (policy(Quota::per_hour(10)), policy(Quota::per_second(1_000)));
        drain(subject, &low);
        assert!(subject.check(&low, &key(), 1).is_denied());
        let decision = subject.check(&high, &key(), 1);
        assert!(decision.is_allowed(), "{algorithm:?}: {decision:?}");
    });
}

#[test]
fn law_11_a_lowered_limit_holds_at_once_and_no_wait_exceeds_its_own_drain_time() {
    on_both_stores(|subject, dice, algorithm| {
        let policy = |quota| PolicySet::from(Policy::try_new("p", algorithm, quota).expect("a policy"));
        let high = policy(Quota::per_second(1_000));
        for _ in 0..dice.below(1_000) {
            let _ = subject.check(&high, &key(), 1);
        }
        let quota = dice.pick(&[Quota::per_second(10), Quota::per_minute(30), Quota::per_second(999)]);
        let low = policy(quota);
        let left = remaining(&subject.peek(&low, &key()));
        assert!(left <= u64::from(quota.burst()), "{algorithm:?}");
        let passed = drain(subject, &low);
        assert_eq!(passed, left, "{algorithm:?}");
        let denied = subject.check(&low, &key(), 1);
        let retry = micros(denied.retry_after());
        let drain_us = 2 * quota.period().as_micros() as u64;
        assert!(retry <= drain_us, "{algorithm:?}: {retry} µs");
        subject.advance(retry - 1);
        assert!(subject.check(&low, &key(), 1).is_denied(), "{algorithm:?} {quota:?}");
        subject.advance(1);
        assert!(subject.check(&low, &key(), 1).is_allowed(), "{algorithm:?} {quota:?}");
    });
}

#[test]
fn law_11_another_algorithm_under_the_same_name_starts_fresh() {
    let mut redis = InRedis::new();
    let mut memory = InMemory::new();
    for one in ALGORITHMS {
        for other in ALGORITHMS {
            for subject in [&mut redis as &mut dyn Subject, &mut memory] {
                let policy =
                    |algorithm| PolicySet::from(Policy::try_new("p", algorithm, Quota::per_hour(5)).expect("a policy"));
                subject.reset(&policy(one), &key());
                subject.reset(&policy(other), &key());
                drain(subject, &policy(one));
                let expected = if one == other { 0 } else { 5 };
                assert_eq!(remaining(&subject.peek(&policy(other), &key())), expected, "{one:?} {other:?}");
            }
        }
    }
}
