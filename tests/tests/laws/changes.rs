//! Law 11: policies may change at run time.

use std::time::Duration;

use tollgate::{Algorithm, Cost, Costs, Policy, PolicySet, Quota, testing::ALGORITHMS};
use tollgate_test_support::{InMemory, InRedis, Subject, policies};

use crate::{drain, key, least_burst, micros, on_every_store, remaining};

#[test]
fn law_11_a_raised_limit_is_usable_at_once() {
    on_every_store(|subject, _, algorithm| {
        let policy =
            |quota| PolicySet::from(Policy::try_new("p", algorithm, quota).expect("a policy"));
        let (low, high) = (
            policy(Quota::per_hour(10)),
            policy(Quota::per_second(1_000)),
        );
        drain(subject, &low);
        assert!(subject.check(&low, &key(), 1).is_denied());
        let decision = subject.check(&high, &key(), 1);
        assert!(decision.is_allowed(), "{algorithm:?}: {decision:?}");
    });
}

#[test]
fn law_11_a_lowered_limit_holds_at_once_and_no_wait_exceeds_its_own_drain_time() {
    on_every_store(|subject, dice, algorithm| {
        let policy =
            |quota| PolicySet::from(Policy::try_new("p", algorithm, quota).expect("a policy"));
        let high = policy(Quota::per_second(1_000));
        for _ in 0..dice.below(1_000) {
            let _ = subject.check(&high, &key(), 1);
        }
        let quota = dice.pick(&[
            Quota::per_second(10),
            Quota::per_minute(30),
            Quota::per_second(999),
        ]);
        let low = policy(quota);
        let left = remaining(&subject.peek(&low, &key()));
        assert!(left <= quota.burst(), "{algorithm:?}");
        let passed = drain(subject, &low);
        assert_eq!(passed, left, "{algorithm:?}");
        let denied = subject.check(&low, &key(), 1);
        let retry = micros(denied.retry_after());
        let drain_us = 2 * policies::longest_us(low.iter().next().expect("a policy"));
        assert!(retry <= drain_us, "{algorithm:?}: {retry} µs");
        subject.advance(retry - 1);
        assert!(
            subject.check(&low, &key(), 1).is_denied(),
            "{algorithm:?} {quota:?}"
        );
        subject.advance(1);
        assert!(
            subject.check(&low, &key(), 1).is_allowed(),
            "{algorithm:?} {quota:?}"
        );
    });
}

#[test]
fn law_11_another_algorithm_under_the_same_name_starts_fresh() {
    let mut redis = InRedis::new();
    let mut memory = InMemory::new();
    for one in ALGORITHMS {
        for other in ALGORITHMS {
            for subject in [&mut redis as &mut dyn Subject, &mut memory] {
                let policy = |algorithm| {
                    PolicySet::from(
                        Policy::try_new("p", algorithm, Quota::per_hour(5)).expect("a policy"),
                    )
                };
                subject.reset(&policy(one), &key());
                subject.reset(&policy(other), &key());
                drain(subject, &policy(one));
                let expected = if one == other { 0 } else { 5 };
                assert_eq!(
                    remaining(&subject.peek(&policy(other), &key())),
                    expected,
                    "{one:?} {other:?}"
                );
            }
        }
    }
}

#[test]
fn law_11_a_small_quota_becomes_a_large_one_and_back() {
    on_every_store(|subject, dice, algorithm| {
        let small = PolicySet::from(policies::small_policy(dice, "p", algorithm));
        let large = PolicySet::from(policies::large_policy(dice, "p", algorithm));
        for (old, new) in [(&small, &large), (&large, &small), (&small, &large)] {
            let _ = subject.check(old, &key(), 1 + dice.below(least_burst(old)));
            drain(subject, old);
            let burst = least_burst(new);
            let left = remaining(&subject.peek(new, &key()));
            assert!(left <= burst, "{old:?} {new:?}");
            assert_eq!(drain(subject, new), left, "{old:?} {new:?}");
            let cost = 1 + dice.below(burst);
            let denied = subject.check(new, &key(), cost);
            let retry = micros(denied.retry_after());
            let policy = new.iter().next().expect("a policy");
            let (quota, longest_us) = (policy.quota(), u128::from(policies::longest_us(policy)));
            let refills = u128::from(burst).div_ceil(u128::from(quota.amount()));
            assert!(
                u128::from(retry) <= 2 * refills * longest_us,
                "{old:?} {new:?}: {retry} µs"
            );
            subject.advance(retry - 1);
            assert!(
                subject.check(new, &key(), cost).is_denied(),
                "{old:?} {new:?}: {cost} passed early"
            );
            subject.advance(1);
            assert!(
                subject.check(new, &key(), cost).is_allowed(),
                "{old:?} {new:?}: {cost} denied"
            );
        }
    });
}

/// Of the two quotas many units accrue in a microsecond, so a few units are only a part of a
/// microsecond.
#[test]
fn law_11_another_rate_keeps_units_that_take_less_than_a_microsecond() {
    on_every_store(|subject, dice, algorithm| {
        if algorithm == Algorithm::SlidingLog {
            return;
        }
        let policy =
            |quota| PolicySet::from(Policy::try_new("p", algorithm, quota).expect("a policy"));
        let (fast, slow) = (
            Quota::per_minute(4_000_000_000),
            Quota::new(4_000_000_000, Duration::from_secs(120)),
        );
        let now = subject.now();
        subject.set_now(now - now % 120_000_000);
        let spent = 1 + dice.below(60);
        let _ = subject.check(&policy(fast), &key(), spent);
        let left = remaining(&subject.peek(&policy(slow), &key()));
        // 66 units accrue in a microsecond.
        assert!(
            left <= fast.burst() - spent,
            "{algorithm:?}: {spent} units are forgotten"
        );
        assert!(
            left >= fast.burst() - 100,
            "{algorithm:?}: {spent} units have become {}",
            fast.burst() - left
        );
    });
}

#[test]
fn law_11_the_same_rate_under_another_amount_is_understood() {
    on_every_store(|subject, dice, algorithm| {
        let policy =
            |quota| PolicySet::from(Policy::try_new("p", algorithm, quota).expect("a policy"));
        let quota = |scale| Quota::new(3 * scale, Duration::from_secs(scale)).with_burst(3 * scale);
        // The units of the greater amount are told in smaller parts of a microsecond.
        let (fine, coarse) = (policy(quota(7)), policy(quota(1)));
        let _ = subject.check(&fine, &key(), 1 + dice.below(2));
        subject.advance(1 + dice.below(100));
        let left = remaining(&subject.peek(&coarse, &key()));
        assert!(left <= 3, "{algorithm:?}");
        assert_eq!(drain(subject, &coarse), left, "{algorithm:?}");
        let retry = micros(subject.check(&coarse, &key(), 1).retry_after());
        subject.advance(retry);
        assert!(
            subject.check(&coarse, &key(), 1).is_allowed(),
            "{algorithm:?}: denied after {retry} µs"
        );
    });
}

/// A lower amount locks a key until the window of its failures ends, which is no lockout.
#[test]
fn law_11_failures_that_a_lowered_amount_makes_too_many_deny_until_their_window_ends() {
    let lockout = |amount| {
        let (first, longest) = (Duration::from_secs(120), Duration::from_secs(3_600));
        PolicySet::from(Policy::lockout(
            "p",
            Quota::new(amount, Duration::from_secs(600)),
            first,
            longest,
        ))
    };
    let (high, low) = (lockout(10), lockout(3));
    for subject in [
        &mut InRedis::new() as &mut dyn Subject,
        &mut InMemory::new(),
    ] {
        for _ in 0..5 {
            assert!(subject.check(&high, &key(), 1).is_allowed());
        }
        subject.advance(60_000_000);
        for _ in 0..2 {
            assert_eq!(
                micros(subject.check(&low, &key(), 1).retry_after()),
                540_000_000
            );
        }
        subject.advance(540_000_000);
        // The window was no lockout, so the first lockout takes the first time.
        assert_eq!(drain(subject, &low), 3);
        assert_eq!(
            micros(subject.check(&low, &key(), 1).retry_after()),
            120_000_000
        );
    }
}

/// A refund takes its own failure back. It does not end a lockout to which as many others led.
#[test]
fn law_22_a_refund_by_an_earlier_amount_does_not_end_a_lockout() {
    let lockout = |amount| {
        let hour = Duration::from_secs(3_600);
        PolicySet::from(Policy::lockout(
            "p",
            Quota::new(amount, Duration::from_secs(60)),
            hour,
            hour,
        ))
    };
    let (high, low) = (lockout(10), lockout(3));
    for subject in [
        &mut InRedis::new() as &mut dyn Subject,
        &mut InMemory::new(),
    ] {
        let (decision, spent_us) = (subject.check(&high, &key(), 1), subject.now());
        assert_eq!(drain(subject, &low), 2);
        subject.owe(&low, &key(), 1);
        subject.advance(600_000_000);
        subject.refund_decision(&high, &key(), &Costs::new(Cost::ONE), &decision, spent_us);
        assert_eq!(
            micros(subject.check(&low, &key(), 1).retry_after()),
            3_000_000_000
        );
        // With the third failure the lockout goes.
        subject.refund(&low, &key(), 1, spent_us);
        assert!(subject.check(&low, &key(), 1).is_allowed());
    }
}
