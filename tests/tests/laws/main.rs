//! The laws that every algorithm keeps, on both stores.
//!
//! The in-process store is tried on many random policies; the scripts, which agree with it bit for
//! bit (see `agreement.rs`), on some of the same.

mod subject;

use std::{collections::BTreeMap, time::Duration};

use subject::{
    Dice, InMemory, InRedis, Subject,
    policies::{self, ALGORITHMS, bound},
};
use tollgate::{Algorithm, Decision, Key, Policy, PolicySet, Quota};

/// Tries a law on every algorithm and both stores; more often in process, where it is cheap.
fn every(law: impl Fn(&mut dyn Subject, &mut Dice, Algorithm)) {
    let mut redis = InRedis::new();
    for &algorithm in ALGORITHMS {
        for seed in 0..200 {
            law(&mut InMemory::new(), &mut Dice::new(seed), algorithm);
        }
        for seed in 0..12 {
            redis.run(&["FLUSHALL".to_owned()]);
            redis.set_now(subject::START_US);
            law(&mut redis, &mut Dice::new(seed), algorithm);
        }
    }
}

fn key() -> Key {
    Key::from("subject")
}

fn micros(wait: Option<Duration>) -> u64 {
    wait.expect("a denial says when to come back").as_micros() as u64
}

/// Spends until the next unit is denied; answers how many passed.
fn drain(subject: &mut dyn Subject, policies: &PolicySet) -> u64 {
    let mut passed = 0;
    // Large steps first, so that a burst of a million is emptied in a few calls.
    let mut step = policies.iter().map(|policy| policy.quota().burst()).min().expect("a policy");
    while step > 0 {
        if subject.check(policies, &key(), step).is_allowed() {
            passed += u64::from(step);
        } else {
            step /= 2;
        }
    }
    passed
}

/// Moves somewhere into the life of a state: spends something, waits a little.
fn wander(subject: &mut dyn Subject, dice: &mut Dice, policies: &PolicySet) {
    for _ in 0..dice.below(12) {
        let policy = policies.iter().next().expect("a policy");
        let least = policies.iter().map(|policy| policy.quota().burst()).min().expect("a policy");
        let cost = 1 + dice.below(u64::from(least)) as u32;
        let _ = subject.check(policies, &key(), cost);
        let period = policy.quota().period().as_micros() as u64;
        subject.advance(dice.below(period / 2 + 2));
    }
}

fn remaining(decision: &Decision) -> u64 {
    decision.states().map(|state| state.remaining()).min().expect("a state")
}

#[test]
fn never_more_than_the_bound_is_admitted() {
    every(|subject, dice, algorithm| {
        let policy = policies::small_policy(dice, "p", algorithm);
        let set = PolicySet::from(policy.clone());
        let period = policy.quota().period().as_micros() as u64;
        let mut admitted: BTreeMap<u64, u64> = BTreeMap::new();
        for _ in 0..60 {
            // As much as passes, then on to where something changes, or its edge.
            *admitted.entry(subject.now()).or_default() += drain(subject, &set);
            let now = subject.now();
            let edge = period - now % period;
            let look = subject.peek(&set, &key());
            let state = look.states().next().expect("a state");
            let more = state.more_after().as_micros() as u64;
            let waits =
                [1, more.max(1), edge, edge.saturating_sub(1).max(1), period, period - 1, 1 + dice.below(period)];
            subject.advance(dice.pick(&waits).max(1));
        }
        let times: Vec<(u64, u64)> = admitted.into_iter().collect();
        for (first, &(from, _)) in times.iter().enumerate() {
            let mut sum = 0;
            for &(to, count) in &times[first..] {
                sum += count;
                // The shortest half-open interval (s, s + L] that holds both ends has L = to − from + 1.
                let most = bound(&policy, to - from + 1);
                assert!(sum <= most, "{policy:?}: {sum} in {} µs, {most} allowed", to - from + 1);
            }
        }
    });
}

#[test]
fn what_remains_is_exactly_what_passes() {
    every(|subject, dice, algorithm| {
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
fn the_time_to_retry_is_exact_and_never_zero() {
    every(|subject, dice, algorithm| {
        let set = policies::set(dice, algorithm, 5);
        wander(subject, dice, &set);
        drain(subject, &set);
        let least = set.iter().map(|policy| policy.quota().burst()).min().expect("a policy");
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
fn the_time_to_one_more_unit_is_exact() {
    every(|subject, dice, algorithm| {
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
fn at_the_reset_time_the_state_equals_a_fresh_one() {
    every(|subject, dice, algorithm| {
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

#[test]
fn a_denial_and_a_peek_leave_no_trace() {
    every(|subject, dice, algorithm| {
        let set = policies::set(dice, algorithm, 5);
        wander(subject, dice, &set);
        drain(subject, &set);
        let look =
            |subject: &mut dyn Subject| -> Vec<_> { set.iter().map(|policy| subject.stored(policy, &key())).collect() };
        let before = look(subject);
        assert!(subject.check(&set, &key(), 1).is_denied());
        assert!(subject.peek(&set, &key()).is_allowed());
        assert_eq!(look(subject), before, "{set:?}");
        // Somebody nobody has seen.
        let stranger = Key::from("stranger");
        let _ = subject.peek(&set, &stranger);
        assert!(set.iter().all(|policy| subject.stored(policy, &stranger).is_none()));
    });
}

#[test]
fn one_cost_is_worth_as_many_units() {
    every(|subject, dice, algorithm| {
        let set = PolicySet::from(policies::small_policy(dice, "p", algorithm));
        let (whole, units) = (Key::from("whole"), Key::from("units"));
        for _ in 0..6 {
            let policy = set.iter().next().expect("a policy");
            let left = remaining(&subject.peek(&set, &whole));
            assert_eq!(left, remaining(&subject.peek(&set, &units)), "{set:?}");
            let cost = 1 + dice.below(u64::from(policy.quota().burst())) as u32;
            let allowed = subject.check(&set, &whole, cost).is_allowed();
            assert_eq!(allowed, u64::from(cost) <= left, "{set:?}");
            for _ in 0..if allowed { cost } else { 0 } {
                assert!(subject.check(&set, &units, 1).is_allowed(), "{set:?}");
            }
            let policy = set.iter().next().expect("a policy");
            assert_eq!(subject.stored(policy, &whole), subject.stored(policy, &units), "{set:?}");
            subject.advance(dice.below(policy.quota().period().as_micros() as u64));
        }
    });
}

#[test]
fn over_whole_periods_exactly_the_amount_accrues() {
    every(|subject, dice, algorithm| {
        if !policies::accrues_exactly(algorithm) {
            return;
        }
        let policy = policies::small_policy(dice, "p", algorithm);
        let quota = policy.quota();
        // A burst below the amount overflows within a period.
        let quota = quota.with_burst(quota.burst().max(quota.amount()));
        let set = PolicySet::from(Policy::try_new("p", algorithm, quota).expect("a policy"));
        let (amount, period) = (u64::from(quota.amount()), quota.period().as_micros() as u64);
        // From an edge of the clock's windows, so that the aligned ones count whole periods too.
        let now = subject.now();
        subject.set_now(now - now % period + period);
        drain(subject, &set);
        let mut passed = 0;
        let rounds = 7;
        for _ in 0..rounds {
            let first = dice.below(period + 1);
            subject.advance(first);
            passed += drain(subject, &set);
            subject.advance(period - first);
            passed += drain(subject, &set);
        }
        assert_eq!(passed, rounds * amount, "{policy:?}");
    });
}

#[test]
fn a_client_that_polls_each_millisecond_gets_its_rate() {
    let mut subject = InMemory::new();
    for &algorithm in ALGORITHMS.iter().filter(|&&algorithm| policies::accrues_exactly(algorithm)) {
        for quota in [Quota::per_second(1), Quota::per_second(3), Quota::new(10, Duration::from_secs(7))] {
            let set = PolicySet::from(Policy::try_new("p", algorithm, quota).expect("a policy"));
            let period = quota.period().as_micros() as u64;
            let now = subject.now();
            subject.set_now(now - now % period + period);
            subject.reset(&set, &key());
            drain(&mut subject, &set);
            let mut passed = 0;
            let rounds = 5;
            // A window gives its units one poll at a time, from its first millisecond on.
            for _ in 0..rounds * period / 1_000 + u64::from(quota.amount()) {
                subject.advance(1_000);
                passed += u64::from(subject.check(&set, &key(), 1).is_allowed());
            }
            assert_eq!(passed, rounds * u64::from(quota.amount()), "{set:?}");
        }
    }
}

#[test]
fn idling_restores_the_burst_and_no_more() {
    every(|subject, dice, algorithm| {
        let policy = policies::policy(dice, "p", algorithm);
        let set = PolicySet::from(policy.clone());
        wander(subject, dice, &set);
        drain(subject, &set);
        let drained = subject.peek(&set, &key());
        let reset = drained.states().next().expect("a state").reset_after().as_micros() as u64;
        let period = policy.quota().period().as_micros() as u64;
        subject.advance(reset + dice.below(10 * period + 10));
        assert_eq!(drain(subject, &set), u64::from(policy.quota().burst()), "{policy:?}");
    });
}

#[test]
fn every_key_expires_when_it_is_fresh_and_at_most_a_second_later() {
    every(|subject, dice, algorithm| {
        let set = policies::set(dice, algorithm, 5);
        wander(subject, dice, &set);
        let decision = subject.check(&set, &key(), 1);
        if decision.is_denied() {
            return;
        }
        for state in decision.states() {
            let stored = subject.stored(state.policy(), &key()).expect("a state that was charged");
            let fresh_us = subject.now() + state.reset_after().as_micros() as u64;
            let expires_us = stored.expires_ms * 1_000;
            assert!((fresh_us..=fresh_us + 1_000_000).contains(&expires_us.max(fresh_us)), "{state:?}");
            assert!(expires_us + 1_000 > fresh_us, "{state:?}: expires {expires_us}, fresh {fresh_us}");
        }
    });
}

#[test]
fn a_clock_that_goes_back_gives_nothing_twice() {
    every(|subject, dice, algorithm| {
        let policy = policies::policy(dice, "p", algorithm);
        let set = PolicySet::from(policy.clone());
        let period = policy.quota().period().as_micros() as u64;
        let drain_us = period.max(period * u64::from(policy.quota().burst()) / u64::from(policy.quota().amount()));
        // What a window or a bucket holds still counts while the next one lasts.
        let drain_us = if policies::accrues_exactly(algorithm) { drain_us } else { 2 * period };
        // Well inside a window.
        let now = subject.now();
        subject.set_now(now - now % period + period / 2);
        drain(subject, &set);
        let steps = [1, period / 2 + 1, period, 3 * period, 1_000_000, 3_600_000_000, 86_400_000_000];
        let back = dice.pick(&steps).min(1_000_000_000_000_000);
        subject.set_now(subject.now() - back);
        let denied = subject.check(&set, &key(), 1);
        assert!(denied.is_denied(), "{policy:?}: {back} µs back admits a drained key");
        let retry = micros(denied.retry_after());
        assert!(retry <= 2 * drain_us, "{policy:?}: {back} µs back, {retry} µs to wait");
        subject.advance(retry - 1);
        assert!(subject.check(&set, &key(), 1).is_denied(), "{policy:?}");
        subject.advance(1);
        assert!(subject.check(&set, &key(), 1).is_allowed(), "{policy:?}");
    });
}

#[test]
fn a_raised_limit_is_usable_at_once() {
    every(|subject, _, algorithm| {
        let policy = |quota| PolicySet::from(Policy::try_new("p", algorithm, quota).expect("a policy"));
        let (low, high) = (policy(Quota::per_hour(10)), policy(Quota::per_second(1_000)));
        drain(subject, &low);
        assert!(subject.check(&low, &key(), 1).is_denied());
        let decision = subject.check(&high, &key(), 1);
        assert!(decision.is_allowed(), "{algorithm:?}: {decision:?}");
    });
}

#[test]
fn a_lowered_limit_holds_at_once_and_nobody_waits_longer_than_its_own_drain() {
    every(|subject, dice, algorithm| {
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
fn another_algorithm_under_the_same_name_starts_fresh() {
    let mut redis = InRedis::new();
    let mut memory = InMemory::new();
    for &one in ALGORITHMS {
        for &other in ALGORITHMS {
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

#[test]
fn a_refund_gives_back_what_is_spent_and_no_more() {
    every(|subject, dice, algorithm| {
        let set = policies::set(dice, algorithm, 3);
        let least = set.iter().map(|policy| policy.quota().burst()).min().expect("a policy");
        let cost = 1 + dice.below(u64::from(least)) as u32;
        let _ = subject.check(&set, &key(), cost);
        let spent_us = subject.now();
        subject.refund(&set, &key(), 1, spent_us);
        let look = subject.peek(&set, &key());
        for state in look.states() {
            assert_eq!(state.remaining(), u64::from(state.policy().quota().burst() - cost + 1), "{state:?}");
        }
        subject.refund(&set, &key(), least, spent_us);
        subject.refund(&set, &key(), least, spent_us);
        let look = subject.peek(&set, &key());
        for state in look.states() {
            assert_eq!(state.remaining(), u64::from(state.policy().quota().burst()), "{state:?}");
            assert_eq!(subject.stored(state.policy(), &key()), None, "{state:?}");
        }
        // What nobody has spent cannot come back.
        subject.refund(&set, &Key::from("stranger"), 1, spent_us);
        assert!(set.iter().all(|policy| subject.stored(policy, &Key::from("stranger")).is_none()));
    });
}

#[test]
fn a_refund_never_crosses_into_a_newer_window() {
    every(|subject, _, algorithm| {
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
fn a_reset_makes_fresh() {
    every(|subject, dice, algorithm| {
        let set = policies::set(dice, algorithm, 5);
        wander(subject, dice, &set);
        drain(subject, &set);
        subject.reset(&set, &key());
        let look = subject.peek(&set, &key());
        for state in look.states() {
            assert_eq!(state.remaining(), u64::from(state.policy().quota().burst()), "{state:?}");
            assert_eq!(state.reset_after(), Duration::ZERO, "{state:?}");
        }
    });
}

#[test]
fn a_set_is_charged_whole_or_not_at_all() {
    every(|subject, dice, algorithm| {
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
    every(|subject, dice, algorithm| {
        let shared = policies::small_policy(dice, "shared", algorithm);
        let alone = PolicySet::from(shared.clone());
        let other = policies::policy(dice, "other", algorithm);
        let pair = PolicySet::from([other, shared.clone()]);
        let _ = subject.check(&alone, &key(), 1);
        let left = subject.peek(&pair, &key()).state("shared").expect("the policy").remaining();
        assert_eq!(left, u64::from(shared.quota().burst()) - 1);
    });
}
