//! Law 9: an absent state equals a fresh one, and every key expires.

use tollgate::{Key, Policy, PolicySet, Quota, testing::ALGORITHMS};
use tollgate_test_support::{InRedis, START_US, Subject, calls::Script, policies, stream::figures};
use tollgate_tests::expiry_command;

use crate::{key, on_every_store, wander};

#[test]
fn law_09_every_key_expires_when_it_is_fresh_and_at_most_a_second_later() {
    on_every_store(|subject, dice, algorithm| {
        let set = policies::set(dice, algorithm, 5);
        wander(subject, dice, &set);
        let decision = subject.check(&set, &key(), 1);
        if decision.is_denied() {
            return;
        }
        for state in decision.states() {
            let stored = subject
                .stored(state.policy(), &key())
                .expect("a state that was charged");
            let fresh_us = subject.now() + state.reset_after().as_micros() as u64;
            let expires_us = stored.expires_ms * 1_000;
            assert!(
                (fresh_us..=fresh_us + 1_000_000).contains(&expires_us.max(fresh_us)),
                "{state:?}"
            );
            assert!(
                expires_us + 1_000 > fresh_us,
                "{state:?}: expires {expires_us}, fresh {fresh_us}"
            );
        }
    });
}

#[test]
fn law_09_an_absent_state_equals_a_fresh_one() {
    on_every_store(|subject, dice, algorithm| {
        let set = policies::set(dice, algorithm, 5);
        let absent = figures(&subject.peek(&set, &key()));
        assert!(
            set.iter()
                .all(|policy| subject.stored(policy, &key()).is_none())
        );
        wander(subject, dice, &set);
        let fresh_after = subject
            .peek(&set, &key())
            .states()
            .map(|state| state.reset_after())
            .max();
        subject.advance(fresh_after.expect("a set has a policy").as_micros() as u64);
        let absent_now = figures(&subject.peek(&set, &Key::from("another")));
        assert_eq!(figures(&subject.peek(&set, &key())), absent_now, "{set:?}");
        assert_eq!(absent.1.len(), absent_now.1.len());
    });
}

/// A key without an expiry is not kept for ever: the next charge outside of the same window or
/// second sets one.
#[test]
fn law_09_a_planted_key_without_an_expiry_heals() {
    let mut redis = InRedis::new();
    for algorithm in ALGORITHMS {
        let set = PolicySet::from(
            Policy::try_new("p", algorithm, Quota::per_minute(10)).expect("a policy"),
        );
        redis.run(&["FLUSHALL"]);
        redis.set_now(START_US - START_US % 3_600_000_000);
        let _ = redis.check(&set, &key(), 1);
        let at = Script::new(set.clone()).keys(&key()).remove(0);
        assert_eq!(redis.run(&["PERSIST", &at]).int(), 1, "{algorithm:?}");
        redis.advance(60_000_000);
        let _ = redis.check(&set, &key(), 1);
        assert!(redis.run(&expiry_command(at)).int() > 0, "{algorithm:?}");
    }
}
