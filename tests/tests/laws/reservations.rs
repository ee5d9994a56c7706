//! Laws 14 to 16 and 18: reservations, their settlement, and debts.

use tollgate::{
    Cost, Costs, Decision, Key, Policy, PolicySet, Quota,
    reservation::{ReservationId, Settlement},
};
use tollgate_test_support::{Dice, Stored, Subject, policies};

use crate::{drain, key, least_burst, micros, on_every_store, remaining};

const LIFE_US: u64 = 600_000_000;

fn id(at: impl AsRef<[u8]>) -> ReservationId {
    ReservationId::try_new(at).expect("an id")
}

fn costs(units: u64) -> Costs {
    Costs::new(Cost::new(units))
}

fn reserve(subject: &mut dyn Subject, set: &PolicySet, at: &ReservationId, units: u64) -> Decision {
    subject.reserve(set, &key(), at, &costs(units), LIFE_US)
}

fn commit(
    subject: &mut dyn Subject,
    set: &PolicySet,
    at: &ReservationId,
    units: u64,
) -> Settlement {
    subject.commit(set, &key(), at, &costs(units), 1)
}

/// Returns what is stored under each policy.
fn stored(subject: &mut dyn Subject, set: &PolicySet) -> Vec<Option<Stored>> {
    set.iter()
        .map(|policy| subject.stored(policy, &key()))
        .collect()
}

/// Returns a state without what a token bucket remembers for a late refund.
fn without_trace(mut stored: Stored) -> Stored {
    if stored.value.len() == 64 {
        stored.value.truncate(24);
    }
    stored
}

#[test]
fn law_14_a_reservation_charges_what_a_check_charges_and_the_same_id_charges_nothing() {
    on_every_store(|subject, dice, algorithm| {
        let set = policies::set(dice, algorithm, 3);
        let cost = 1 + dice.below(least_burst(&set));
        let reserved = reserve(subject, &set, &id("a"), cost);
        let state = stored(subject, &set);
        let again = reserve(subject, &set, &id("a"), cost);
        assert_eq!(format!("{reserved:?}"), format!("{again:?}"));
        assert_eq!(stored(subject, &set), state);
        let other = Key::from("other");
        let checked = subject.check(&set, &other, cost);
        assert_eq!(format!("{reserved:?}"), format!("{checked:?}"));
        for (policy, state) in set.iter().zip(state) {
            assert_eq!(
                subject.stored(policy, &other),
                state.map(without_trace),
                "{policy:?}"
            );
        }
    });
}

#[test]
fn law_14_a_denied_reservation_leaves_no_trace_and_its_id_stays_free() {
    on_every_store(|subject, dice, algorithm| {
        let set = policies::set(dice, algorithm, 3);
        drain(subject, &set);
        let before = stored(subject, &set);
        let burst = least_burst(&set);
        let denied = reserve(subject, &set, &id("a"), burst);
        assert!(denied.is_denied());
        assert_eq!(stored(subject, &set), before);
        assert_eq!(commit(subject, &set, &id("a"), 0), Settlement::Lapsed);
        subject.advance(micros(denied.retry_after()));
        assert!(reserve(subject, &set, &id("a"), burst).is_allowed());
    });
}

/// Commits, double commits, late commits and drops in any order: the policy has spent their sum.
#[test]
fn law_15_what_is_spent_is_the_sum_of_all_final_costs_and_of_what_was_not_settled() {
    on_every_store(|subject, dice, algorithm| {
        // So long a period that nothing returns meanwhile.
        let amount = 1_000 + dice.below(9_000);
        let year = std::time::Duration::from_secs(365 * 86_400);
        let set = policies::of_one_period(algorithm, Quota::new(amount, year));
        let (mut spent, mut held) = (0, Vec::new());
        for at in 0..40 {
            match dice.below(3) {
                0 | 1 => {
                    let cost = dice.below(100);
                    if reserve(subject, &set, &id(at.to_string()), cost).is_allowed() {
                        spent += cost;
                        held.push((id(at.to_string()), cost));
                    }
                }
                _ if !held.is_empty() => {
                    let (at, estimate) = held.swap_remove(dice.below(held.len() as u64) as usize);
                    let cost = dice.below(300);
                    assert_eq!(commit(subject, &set, &at, cost), Settlement::Settled);
                    spent = spent - estimate + cost;
                    // The same number would be the same commit, sent again.
                    let again = subject.commit(&set, &key(), &at, &costs(dice.below(300)), 2);
                    assert_eq!(again, Settlement::AlreadySettled);
                }
                _ => {}
            }
        }
        // What was dropped lapses, and a late commit changes nothing.
        subject.advance(LIFE_US);
        for (at, _) in held {
            assert_eq!(commit(subject, &set, &at, 0), Settlement::Lapsed);
        }
        let left = remaining(&subject.peek(&set, &key()));
        let expected = amount.saturating_sub(spent);
        // A bucket has gained at most one unit in ten minutes of a year.
        assert!(
            left <= expected + 1,
            "{algorithm:?}: {left}, not {expected}"
        );
        // A queue does not take back a place that is not the last one.
        if algorithm != tollgate::Algorithm::LeakyBucket {
            assert!(left >= expected, "{algorithm:?}: {left}, not {expected}");
        }
    });
}

#[test]
fn law_15_a_commit_refunds_no_window_that_opened_later() {
    on_every_store(|subject, dice, algorithm| {
        if algorithm.has_burst() {
            return;
        }
        let set = PolicySet::from(
            Policy::try_new("p", algorithm, Quota::per_minute(50)).expect("a policy"),
        );
        let _ = reserve(subject, &set, &id("a"), 30);
        subject.advance(120_000_000 + dice.below(60_000_000));
        let _ = subject.check(&set, &key(), 20);
        assert_eq!(commit(subject, &set, &id("a"), 0), Settlement::Settled);
        assert_eq!(remaining(&subject.peek(&set, &key())), 30, "{algorithm:?}");
    });
}

#[test]
fn law_16_in_debt_nothing_is_left_and_waits_are_exact() {
    on_every_store(|subject, dice, algorithm| {
        let set = policies::set(dice, algorithm, 3);
        let burst = least_burst(&set);
        let is_logged = |policy: &Policy| policy.algorithm() == tollgate::Algorithm::SlidingLog;
        if burst > 1_000 && set.iter().any(is_logged) {
            return;
        }
        let _ = reserve(subject, &set, &id("a"), 1);
        assert_eq!(
            commit(subject, &set, &id("a"), burst + 1 + dice.below(2 * burst)),
            Settlement::Settled
        );
        let look = subject.peek(&set, &key());
        assert!(look.is_allowed(), "a cost of zero is never denied");
        assert_eq!(remaining(&look), 0);
        let cost = 1 + dice.below(burst);
        let wait = micros(subject.check(&set, &key(), cost).retry_after());
        assert!(wait > 0);
        subject.advance(wait - 1);
        assert!(subject.check(&set, &key(), cost).is_denied(), "{set:?}");
        subject.advance(1);
        assert!(subject.check(&set, &key(), cost).is_allowed(), "{set:?}");
    });
}

#[test]
fn law_16_at_the_reset_time_a_debt_is_paid() {
    on_every_store(|subject, dice, algorithm| {
        let set = PolicySet::from(policies::policy(dice, "p", algorithm));
        let burst = least_burst(&set);
        if burst > 1_000 && algorithm == tollgate::Algorithm::SlidingLog {
            return;
        }
        let _ = reserve(subject, &set, &id("a"), 1);
        assert_eq!(
            commit(subject, &set, &id("a"), 3 * burst),
            Settlement::Settled
        );
        let reset = subject
            .peek(&set, &key())
            .states()
            .map(|state| state.reset_after())
            .max()
            .expect("a state");
        subject.advance(reset.as_micros() as u64 - 1);
        assert!(
            subject
                .peek(&set, &key())
                .states()
                .any(|state| state.reset_after().as_micros() == 1),
            "{set:?}"
        );
        subject.advance(1);
        assert_eq!(remaining(&subject.peek(&set, &key())), burst, "{set:?}");
    });
}

#[test]
fn law_16_a_commit_of_any_cost_spends_at_most_eight_bursts() {
    on_every_store(|subject, dice: &mut Dice, algorithm| {
        let amount = 1 + dice.below(100);
        let set = policies::of_one_period(algorithm, Quota::per_minute(amount));
        for at in 0..3 {
            let _ = reserve(subject, &set, &id(at.to_string()), 0);
            assert_eq!(
                commit(subject, &set, &id(at.to_string()), u64::MAX),
                Settlement::Settled
            );
        }
        let reset = subject
            .peek(&set, &key())
            .states()
            .map(|state| state.reset_after())
            .max()
            .expect("a state");
        assert!(reset.as_secs() <= 8 * 60, "{algorithm:?} {reset:?}");
    });
}

#[test]
fn law_18_an_id_belongs_to_a_key_and_its_policies() {
    on_every_store(|subject, dice, algorithm| {
        let sets = ["first", "second"].map(|name| {
            let quota = Quota::per_day(2 + dice.below(50));
            PolicySet::from(Policy::try_new(name, algorithm, quota).expect("a policy"))
        });
        let both = PolicySet::from(
            sets.each_ref()
                .map(|set| set.iter().next().expect("a policy").clone()),
        );
        for set in sets.iter().chain([&both]) {
            let before = remaining(&subject.peek(set, &key()));
            assert!(reserve(subject, set, &id("a"), 1).is_allowed());
            assert_eq!(
                remaining(&subject.peek(set, &key())),
                before - 1,
                "{set:?}: charged for itself"
            );
        }
        // The second limiter is exhausted: it denies, whatever the first one holds under the id.
        drain(subject, &sets[1]);
        assert!(reserve(subject, &sets[1], &id("b"), 1).is_denied());
        assert!(reserve(subject, &sets[0], &id("b"), 0).is_allowed());
        assert!(
            reserve(subject, &sets[1], &id("b"), 1).is_denied(),
            "{algorithm:?}"
        );
        for set in sets.iter().chain([&both]) {
            assert_eq!(commit(subject, set, &id("a"), 1), Settlement::Settled);
            assert_eq!(
                subject.commit(set, &key(), &id("a"), &costs(1), 2),
                Settlement::AlreadySettled
            );
        }
    });
}
