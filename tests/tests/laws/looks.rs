//! Law 12: a peek changes nothing. With a cost, it tells when that cost fits.

use std::time::Duration;

use tollgate::{Algorithm, Decision, Policy, PolicySet, Quota, store::StoredState};
use tollgate_test_support::{Dice, InMemory, InRedis, Stored, Subject, calls::Script, policies};

use crate::{drain, key, least_burst, micros, on_every_store, remaining, wander};

/// Returns the time until there is one unit more, in microseconds.
fn more_us(look: &Decision) -> u64 {
    look.states()
        .map(|state| state.next_unit_after().as_micros() as u64)
        .max()
        .expect("a state")
}

/// Looks at a cost, and shows that the check is denied one microsecond before the wait has passed
/// and admitted then.
fn assert_exact(subject: &mut dyn Subject, policies: &PolicySet, cost: u64) {
    let stored = |subject: &mut dyn Subject| {
        policies
            .iter()
            .map(|policy| subject.stored(policy, &key()))
            .collect::<Vec<_>>()
    };
    let before = stored(subject);
    let look = subject.look(policies, &key(), cost);
    if look.is_denied() {
        let wait = micros(look.retry_after());
        subject.advance(wait - 1);
        assert!(
            subject.look(policies, &key(), cost).is_denied(),
            "{policies:?}: {cost} fits before {wait} µs"
        );
        subject.advance(1);
        assert!(
            subject.look(policies, &key(), cost).is_allowed(),
            "{policies:?}: {cost} does not fit after {wait} µs"
        );
    }
    let left = remaining(&subject.look(policies, &key(), cost));
    assert_eq!(
        stored(subject),
        before,
        "{policies:?}: a look at {cost} changed the state"
    );
    assert!(
        subject.check(policies, &key(), cost).is_allowed(),
        "{policies:?}"
    );
    assert!(
        left >= cost,
        "{policies:?}: {left} units remain where {cost} fit"
    );
}

#[test]
fn law_12_a_look_at_a_cost_charges_nothing_and_tells_when_it_fits() {
    on_every_store(|subject, dice, algorithm| {
        let policies = PolicySet::from(policies::policy(dice, "p", algorithm));
        wander(subject, dice, &policies);
        for _ in 0..3 {
            assert_exact(subject, &policies, 1 + dice.below(least_burst(&policies)));
        }
    });
}

#[test]
fn law_12_a_look_answers_as_a_check_does() {
    on_every_store(|subject, dice, algorithm| {
        let policies = PolicySet::from(policies::policy(dice, "p", algorithm));
        wander(subject, dice, &policies);
        for _ in 0..6 {
            let cost = dice.below(least_burst(&policies) + 1);
            let look = subject.look(&policies, &key(), cost);
            let decision = subject.check(&policies, &key(), cost);
            assert_eq!(
                (look.is_allowed(), look.retry_after()),
                (decision.is_allowed(), decision.retry_after())
            );
            if decision.is_denied() || cost == 0 {
                let of = |decision: &Decision| {
                    decision
                        .states()
                        .map(|state| format!("{state:?}"))
                        .collect::<Vec<_>>()
                };
                assert_eq!(of(&look), of(&decision), "{policies:?}");
            }
            subject.advance(dice.below(1_000_000));
        }
    });
}

#[test]
fn law_12_a_stored_state_tells_when_a_cost_fits_as_a_look_does() {
    on_every_store(|subject, dice, algorithm| {
        let policies = PolicySet::from(policies::small_policy(dice, "p", algorithm));
        let policy = policies.iter().next().expect("a policy");
        wander(subject, dice, &policies);
        let cost = 1 + dice.below(least_burst(&policies));
        let Some(Stored { value, .. }) = subject.stored(policy, &key()) else {
            return;
        };
        if algorithm == Algorithm::SlidingLog {
            return;
        }
        let name = Script::new(policies.clone()).keys(&key()).remove(0);
        let tag = name.rsplit(':').next().expect("a tag");
        let state = StoredState::decode(tag, &value).expect("a state");
        let wait = subject
            .look(&policies, &key(), cost)
            .retry_after()
            .unwrap_or_default();
        let quota = policy.quota();
        assert_eq!(
            state.fits_after(subject.now(), cost, &quota),
            Some(wait),
            "{policy:?} {cost} {state:?}"
        );
        assert_eq!(
            state.fits_after(subject.now(), quota.burst() + 1, &quota),
            None
        );
    });
}

#[test]
fn law_12_a_stored_debt_is_read_without_its_mark() {
    let mark = 1e15;
    let spent = |tag: &str, numbers: &[f64], quota: Option<&Quota>| {
        let value: Vec<u8> = numbers.iter().flat_map(|word| word.to_le_bytes()).collect();
        let state = StoredState::decode(tag, &value).expect("a state");
        state.spent(1_000_000, 3_000_000, quota)
    };
    let hundred = Quota::per_second(100);
    for quota in [None, Some(&hundred)] {
        assert_eq!(spent("t1", &[6e6, mark, 1e4], quota), 500);
        assert_eq!(spent("l1", &[6e6, mark, 1e4], quota), 500);
        assert_eq!(spent("i1", &[1e6, mark + 500.0], quota), 500);
        assert_eq!(spent("w1", &[1e6, mark + 500.0, 0.0], quota), 500);
    }
    // The last of three units per second returns a third of a microsecond after the whole ones.
    let three = Quota::per_second(3);
    let numbers = [6e6, mark + 1.0, 1e6 / 3.0];
    assert_eq!(spent("t1", &numbers, Some(&three)), 16);
}

/// The quotas of an algorithm of which the second holds less, at the same rate.
fn lowered(dice: &mut Dice, algorithm: Algorithm) -> [PolicySet; 2] {
    let burst = 2 + dice.below(9);
    let quota = |units: u64| match algorithm {
        Algorithm::IntervalBucket => Quota::new(2, Duration::from_millis(200)).with_burst(units),
        _ if algorithm.has_burst() => Quota::per_second(10).with_burst(units),
        _ => Quota::new(units, Duration::from_secs(1)),
    };
    [10, burst.min(9)].map(|units| {
        PolicySet::from(Policy::try_new("p", algorithm, quota(units)).expect("a policy"))
    })
}

#[test]
fn law_12_a_look_after_a_lowered_quota_tells_when_there_is_one_unit_more() {
    on_every_store(|subject, dice, algorithm| {
        let [high, low] = lowered(dice, algorithm);
        drain(subject, &high);
        subject.advance(dice.below(400_000));
        for _ in 0..3 {
            let look = subject.look(&low, &key(), 0);
            let (left, more) = (remaining(&look), more_us(&look));
            if more == 0 {
                return;
            }
            subject.advance(more - 1);
            assert_eq!(
                remaining(&subject.look(&low, &key(), 0)),
                left,
                "{algorithm:?}: a unit before {more} µs"
            );
            subject.advance(1);
            assert!(
                remaining(&subject.look(&low, &key(), 0)) > left,
                "{algorithm:?}: no unit after {more} µs"
            );
        }
        let cost = 1 + dice.below(least_burst(&low));
        assert_exact(subject, &low, cost);
    });
}

/// An interval bucket and a sliding window are cut whenever they are read, and a check that denies
/// stores nothing.
#[test]
fn law_12_a_look_after_a_lowered_quota_answers_as_a_check_where_that_stores_nothing() {
    on_every_store(|subject, dice, algorithm| {
        if !matches!(
            algorithm,
            Algorithm::IntervalBucket | Algorithm::SlidingWindow
        ) {
            return;
        }
        let [high, low] = lowered(dice, algorithm);
        drain(subject, &high);
        for _ in 0..4 {
            subject.advance(dice.below(900_000));
            let cost = 1 + dice.below(least_burst(&low));
            let look = subject.look(&low, &key(), cost);
            let decision = subject.check(&low, &key(), cost);
            assert_eq!(
                (look.is_allowed(), look.retry_after()),
                (decision.is_allowed(), decision.retry_after()),
                "{algorithm:?}"
            );
        }
    });
}

#[test]
fn law_12_a_bucket_of_ten_that_becomes_one_of_five_has_a_unit_after_550_ms() {
    let [ten, five] = [10, 5].map(|burst| {
        PolicySet::from(Policy::token_bucket(
            "p",
            Quota::per_second(10).with_burst(burst),
        ))
    });
    for subject in [
        &mut InMemory::new() as &mut dyn Subject,
        &mut InRedis::new(),
    ] {
        drain(subject, &ten);
        subject.advance(50_000);
        let look = subject.look(&five, &key(), 1);
        assert_eq!(
            (more_us(&look), micros(look.retry_after())),
            (550_000, 550_000)
        );
        subject.advance(550_000);
        assert!(subject.check(&five, &key(), 1).is_allowed());
    }
}

#[test]
fn law_12_a_look_at_a_set_tells_when_all_policies_admit() {
    on_every_store(|subject, dice, algorithm| {
        let policies = PolicySet::from([
            policies::small_policy(dice, "p", algorithm),
            Policy::sliding_log("log", Quota::per_second(1 + dice.below(9))),
            Policy::token_bucket("bucket", Quota::per_minute(1 + dice.below(60))),
        ]);
        wander(subject, dice, &policies);
        assert_exact(subject, &policies, 1 + dice.below(least_burst(&policies)));
    });
}
