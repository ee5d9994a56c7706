//! Laws 12 and 20: a peek changes nothing, a reset makes the state fresh, a refund gives back what
//! was spent as if it had been given back at once.

use std::{collections::VecDeque, time::Duration};

use tollgate::{
    Algorithm, CalendarUnit, Cost, Costs, Decision, Key, Policy, PolicySet, Quota,
    reservation::{ReservationId, Settlement},
};
use tollgate_test_support::{Dice, Subject, policies, stream::figures};

use crate::{drain, key, least_burst, micros, on_every_store, remaining, wander};

#[test]
fn law_12_a_peek_changes_nothing() {
    on_every_store(|subject, dice, algorithm| {
        let set = policies::set(dice, algorithm, 5);
        wander(subject, dice, &set);
        let stored = |subject: &mut dyn Subject| -> Vec<_> {
            set.iter()
                .map(|policy| subject.stored(policy, &key()))
                .collect()
        };
        let before = stored(subject);
        let first = figures(&subject.peek(&set, &key()));
        assert!(first.0, "a peek is never denied");
        assert_eq!(figures(&subject.peek(&set, &key())), first, "{set:?}");
        assert_eq!(stored(subject), before, "{set:?}");
        // A key that was never checked is not stored by a peek.
        let other = Key::from("another");
        let _ = subject.peek(&set, &other);
        assert!(
            set.iter()
                .all(|policy| subject.stored(policy, &other).is_none())
        );
    });
}

#[test]
fn law_12_a_refund_gives_back_what_was_spent_and_no_more() {
    on_every_store(|subject, dice, algorithm| {
        let set = policies::set(dice, algorithm, 3);
        let least = least_burst(&set);
        let cost = 1 + dice.below(least);
        let _ = subject.check(&set, &key(), cost);
        let spent_us = subject.now();
        subject.refund(&set, &key(), 1, spent_us);
        let look = subject.peek(&set, &key());
        for state in look.states() {
            assert_eq!(
                state.remaining(),
                state.policy().quota().burst() - cost + 1,
                "{state:?}"
            );
        }
        subject.refund(&set, &key(), least, spent_us);
        subject.refund(&set, &key(), least, spent_us);
        let look = subject.peek(&set, &key());
        for state in look.states() {
            assert_eq!(
                state.remaining(),
                state.policy().quota().burst(),
                "{state:?}"
            );
            assert_eq!(state.reset_after(), Duration::ZERO, "{state:?}");
        }
        // Nothing was spent, so nothing is given back.
        subject.refund(&set, &Key::from("stranger"), 1, spent_us);
        assert!(
            set.iter()
                .all(|policy| subject.stored(policy, &Key::from("stranger")).is_none())
        );
    });
}

#[test]
fn law_12_a_refund_never_crosses_into_a_newer_window() {
    on_every_store(|subject, _, algorithm| {
        if algorithm.has_burst() {
            return;
        }
        let set = PolicySet::from(
            Policy::try_new("p", algorithm, Quota::per_minute(5)).expect("a policy"),
        );
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
    on_every_store(|subject, dice, algorithm| {
        let set = policies::set(dice, algorithm, 5);
        wander(subject, dice, &set);
        drain(subject, &set);
        subject.reset(&set, &key());
        let look = subject.peek(&set, &key());
        for state in look.states() {
            assert_eq!(
                state.remaining(),
                state.policy().quota().burst(),
                "{state:?}"
            );
            assert_eq!(state.reset_after(), Duration::ZERO, "{state:?}");
        }
    });
}

/// Sixty reservations of the whole burst, one in each period, are cancelled at one instant, with a
/// check after each.
#[test]
fn law_20_late_refunds_give_no_unit_twice() {
    on_every_store(|subject, _, algorithm| {
        let period = Duration::from_secs(10);
        let set = policies::of_one_period(algorithm, Quota::new(10, period));
        let (all, life_us) = (Costs::new(Cost::new(10)), 3_600_000_000);
        for at in 0..60 {
            if let Some(wait) = subject
                .reserve(&set, &key(), &id(at), &all, life_us)
                .retry_after()
            {
                subject.advance(micros(Some(wait)));
                assert!(
                    subject
                        .reserve(&set, &key(), &id(at), &all, life_us)
                        .is_allowed()
                );
            }
            subject.advance(if at < 59 { 10_000_000 } else { 0 });
        }
        let mut net = 10;
        for at in 0..60 {
            assert_eq!(
                subject.commit(&set, &key(), &id(at), &Costs::new(Cost::ZERO), 1),
                Settlement::Settled
            );
            net += if subject.check(&set, &key(), 10).is_allowed() {
                10
            } else {
                0
            };
        }
        // The last reservation was cancelled as well.
        assert!(net <= 20, "{algorithm:?}: {net}");
    });
}

fn id(at: usize) -> ReservationId {
    ReservationId::try_new(at.to_string()).expect("an id")
}

fn costs(units: u64) -> Costs {
    Costs::new(Cost::new(units))
}

/// The units of a check or a reservation that were not returned.
struct Charge {
    at_us: u64,
    units: u64,
    by: By,
}

enum By {
    Check(Decision),
    Reservation(ReservationId),
    Settled,
}

#[test]
fn law_20_what_is_not_returned_is_within_the_bound_in_any_interval() {
    on_every_store(|subject, dice, algorithm| {
        let period_us = dice.pick(&[1_000_000, 10_000_000, 7_000_003, 600_000_000]);
        let mut quota = Quota::new(1 + dice.below(12), Duration::from_micros(period_us));
        if algorithm.has_burst() {
            quota = quota.with_burst(1 + dice.below(3 * quota.amount()));
        }
        let policy = Policy::try_new("p", algorithm, quota).expect("a policy");
        let set = PolicySet::from(policy.clone());
        let mut charges: Vec<Charge> = Vec::new();
        for step in 0..60 {
            let (cost, at_us) = (1 + dice.below(quota.burst()), subject.now());
            match dice.below(8) {
                0 | 1 => {
                    let decision = subject.check(&set, &key(), cost);
                    if decision.is_allowed() {
                        charges.push(Charge {
                            at_us,
                            units: cost,
                            by: By::Check(decision),
                        });
                    }
                }
                2 | 3 => {
                    if subject
                        .reserve(&set, &key(), &id(step), &costs(cost), 3_600_000_000)
                        .is_allowed()
                    {
                        charges.push(Charge {
                            at_us,
                            units: cost,
                            by: By::Reservation(id(step)),
                        });
                    }
                }
                4..=6 if !charges.is_empty() => {
                    let at = dice.below(charges.len() as u64) as usize;
                    let charge = &mut charges[at];
                    let back = dice.below(charge.units + 1);
                    match &charge.by {
                        By::Check(decision) => {
                            subject.refund_decision(
                                &set,
                                &key(),
                                &costs(back),
                                decision,
                                charge.at_us,
                            );
                            charge.units -= back;
                        }
                        By::Reservation(id) => {
                            charge.units -= back;
                            let _ = subject.commit(&set, &key(), id, &costs(charge.units), 1);
                        }
                        By::Settled => {}
                    }
                    charge.by = By::Settled;
                }
                4..=6 => {}
                _ => subject.advance(dice.below(2 * period_us)),
            }
            let mut net = 0;
            for charge in charges.iter().rev() {
                net += charge.units;
                let most = policies::net_bound(&policy, subject.now() - charge.at_us + 1);
                assert!(
                    net <= most,
                    "{policy:?}, step {step}: {net} in {} us",
                    subject.now() - charge.at_us
                );
            }
        }
    });
}

/// Other requests keep the bucket empty while one works for 20 seconds, which is two times the
/// drain time.
#[test]
fn law_20_a_token_bucket_that_was_busy_gets_everything_back() {
    on_every_store(|subject, _, algorithm| {
        if algorithm != Algorithm::TokenBucket {
            return;
        }
        let set = PolicySet::from(Policy::token_bucket(
            "p",
            Quota::new(100, Duration::from_secs(10)),
        ));
        assert!(
            subject
                .reserve(&set, &key(), &id(0), &costs(40), 600_000_000)
                .is_allowed()
        );
        for _ in 0..200 {
            drain(subject, &set);
            subject.advance(100_000);
        }
        drain(subject, &set);
        assert_eq!(
            subject.commit(&set, &key(), &id(0), &costs(15), 1),
            Settlement::Settled
        );
        assert_eq!(remaining(&subject.peek(&set, &key())), 25);
    });
}

/// Nobody reserved. What was spent before is still missing, so the bucket cannot have been full.
#[test]
fn law_20_a_token_bucket_that_was_drained_gets_everything_back_without_a_reservation() {
    on_every_store(|subject, _, algorithm| {
        if algorithm != Algorithm::TokenBucket {
            return;
        }
        let set = PolicySet::from(Policy::token_bucket(
            "p",
            Quota::new(100, Duration::from_secs(10)),
        ));
        let _ = subject.check(&set, &key(), 60);
        let spent: Vec<_> = (0..4)
            .map(|_| (subject.check(&set, &key(), 10), subject.now()))
            .collect();
        subject.advance(5_000_000);
        drain(subject, &set);
        for (decision, spent_us) in &spent {
            subject.refund_decision(&set, &key(), &costs(10), decision, *spent_us);
        }
        assert_eq!(remaining(&subject.peek(&set, &key())), 40);
        // The bucket is full after a while, and then nobody gets a unit back.
        subject.advance(60_000_000);
        let late = (subject.check(&set, &key(), 10), subject.now());
        subject.advance(1_000_000);
        drain(subject, &set);
        subject.refund_decision(&set, &key(), &costs(10), &late.0, late.1);
        assert_eq!(remaining(&subject.peek(&set, &key())), 0);
    });
}

/// Half of the burst is missing at least, whatever was spent and returned before, and however long
/// the work takes.
#[test]
fn law_20_a_token_bucket_that_was_half_drained_gets_an_eighth_back() {
    on_every_store(|subject, dice, algorithm| {
        if algorithm != Algorithm::TokenBucket {
            return;
        }
        let set = PolicySet::from(Policy::token_bucket(
            "p",
            Quota::new(80, Duration::from_secs(10)),
        ));
        let (unit_us, half_us, life_us) = (125_000, 5_000_000, 3_600_000_000);
        let missing_us = |subject: &mut dyn Subject| {
            micros(
                subject
                    .peek(&set, &key())
                    .states()
                    .next()
                    .map(|state| state.reset_after()),
            )
        };
        for at in 0..dice.below(12) as usize {
            let _ = subject.reserve(&set, &key(), &id(at), &costs(1 + dice.below(30)), life_us);
            subject.advance(dice.below(6_000_000));
            let back = dice.below(at as u64 + 1) as usize;
            let _ = subject.commit(&set, &key(), &id(back), &costs(0), 1);
        }
        let units = 1 + dice.below(10);
        while missing_us(subject) < half_us || remaining(&subject.peek(&set, &key())) < units {
            let is_low = missing_us(subject) < half_us;
            if is_low {
                drop(subject.check(&set, &key(), 1));
            } else {
                subject.advance(unit_us);
            }
        }
        assert!(
            subject
                .reserve(&set, &key(), &id(100), &costs(units), life_us)
                .is_allowed()
        );
        for at in 0..dice.below(60) as usize {
            let above_us = missing_us(subject) - half_us;
            subject.advance(dice.below(above_us + 1));
            let cost = 1 + dice.below(30);
            let _ = match dice.below(2) {
                0 => subject.check(&set, &key(), cost),
                _ => subject.reserve(&set, &key(), &id(200 + at), &costs(cost), life_us),
            };
        }
        let before_us = missing_us(subject);
        assert_eq!(
            subject.commit(&set, &key(), &id(100), &costs(0), 1),
            Settlement::Settled
        );
        assert_eq!(before_us - missing_us(subject), units * unit_us);
    });
}

/// The trace keeps two times. It returns nothing of an older reservation, and no more than was
/// missing since.
#[test]
fn law_20_a_token_bucket_remembers_two_times() {
    on_every_store(|subject, dice, algorithm| {
        if algorithm != Algorithm::TokenBucket {
            return;
        }
        let set = PolicySet::from(Policy::token_bucket(
            "p",
            Quota::new(100, Duration::from_secs(10)),
        ));
        let reserve = |subject: &mut dyn Subject, at, units| {
            assert!(
                subject
                    .reserve(&set, &key(), &id(at), &costs(units), 600_000_000)
                    .is_allowed()
            );
        };
        reserve(subject, 0, 10);
        subject.advance(100_000);
        assert!(subject.check(&set, &key(), 51).is_allowed());
        reserve(subject, 1, 10);
        subject.advance(3_000_000);
        // Since the second reservation 40 were missing at least, and since the third one 90.
        assert!(subject.check(&set, &key(), 60).is_allowed());
        subject.advance(1_000_000);
        reserve(subject, 2, 5);
        for _ in 0..20 {
            subject.advance(500_000);
            drain(subject, &set);
        }
        // Sometimes only five were missing for a moment.
        let least = dice.pick(&[5, 95]);
        subject.advance((100 - least) * 100_000);
        drain(subject, &set);
        for (at, back) in [
            (0, 0),
            (1, least.min(10)),
            (2, if least < 10 { 0 } else { 5 }),
        ] {
            assert_eq!(
                subject.commit(&set, &key(), &id(at), &costs(0), 1),
                Settlement::Settled
            );
            assert_eq!(
                drain(subject, &set),
                back,
                "reservation {at}, {least} missing"
            );
        }
    });
}

/// A bucket of 10 was full after 10 seconds, whatever a request before the change has spent.
#[test]
fn law_20_a_lowered_burst_bounds_what_earlier_requests_return() {
    on_every_store(|subject, _, algorithm| {
        if algorithm != Algorithm::TokenBucket {
            return;
        }
        let of_burst = |burst| {
            let quota = Quota::new(10, Duration::from_secs(10)).with_burst(burst);
            PolicySet::from(Policy::token_bucket("p", quota))
        };
        let (high, low) = (of_burst(100), of_burst(10));
        let (decision, spent_us) = (subject.check(&high, &key(), 100), subject.now());
        assert!(subject.check(&low, &key(), 1).is_denied());
        subject.advance(50_000_000);
        assert_eq!(drain(subject, &low), 10);
        subject.refund_decision(&low, &key(), &costs(10), &decision, spent_us);
        assert_eq!(remaining(&subject.peek(&low, &key())), 0);
    });
}

#[test]
fn law_12_an_interval_bucket_gives_no_unit_back_that_a_fill_gave_back() {
    on_every_store(|subject, _, algorithm| {
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

/// Callers below the limit spend, work for a while, and give back, in any order: none is denied.
#[test]
fn law_20_what_comes_back_in_its_own_time_is_returned_whatever_others_do() {
    on_every_store(|subject, dice, algorithm| {
        // A queue takes back its last place alone.
        if algorithm == Algorithm::LeakyBucket {
            return;
        }
        let period_us = dice.pick(&[60_000_000, 3_600_000_000, 700_000_003]);
        let callers = dice.pick(&[1, 2, 16, 64]);
        let amount = 4 * (callers + 5 + dice.below(20));
        let set = policies::of_one_period(
            algorithm,
            Quota::new(amount, Duration::from_micros(period_us)),
        );
        let mut out: VecDeque<(Decision, u64)> = VecDeque::new();
        for request in 0..400 {
            subject.advance(dice.below(if callers > 2 { 800 } else { 8_000 }));
            while out.len() >= callers as usize {
                let (decision, spent_us) = out
                    .remove(dice.below(out.len() as u64) as usize)
                    .expect("one is out");
                // A token bucket that is alone is told the time at which the check was sent.
                let spent_us = spent_us
                    - if algorithm == Algorithm::TokenBucket {
                        dice.below(300)
                    } else {
                        0
                    };
                subject.refund_decision(&set, &key(), &costs(1), &decision, spent_us);
            }
            let (decision, spent_us) = (subject.check(&set, &key(), 1), subject.now());
            assert!(
                decision.is_allowed(),
                "{algorithm:?}: request {request} of {callers} callers, {amount} per {period_us} us"
            );
            out.push_back((decision, spent_us));
        }
    });
}

/// After Δ, `k − Δ/T` units come back at least, whatever was spent and returned in between.
#[test]
fn law_20_a_refund_returns_no_less_than_what_cannot_have_accrued_since() {
    on_every_store(|subject, dice, algorithm| {
        if algorithm != Algorithm::TokenBucket {
            return;
        }
        let (amount, unit_us) = (20 + dice.below(30), 500_000);
        let quota = Quota::new(amount, Duration::from_micros(amount * unit_us));
        let set = PolicySet::from(Policy::token_bucket("p", quota));
        let missing_us = |subject: &mut dyn Subject| {
            micros(
                subject
                    .peek(&set, &key())
                    .states()
                    .next()
                    .map(|state| state.reset_after()),
            )
        };
        let mut out: Vec<(Decision, u64, u64)> = Vec::new();
        for _ in 0..80 {
            subject.advance(dice.below(400_000));
            let units = 1 + dice.below(4);
            let decision = subject.check(&set, &key(), units);
            if decision.is_allowed() {
                out.push((decision, subject.now(), units));
            }
            if out.len() > 1 && dice.below(2) == 0 {
                let (decision, spent_us, units) =
                    out.swap_remove(dice.below(out.len() as u64) as usize);
                let before_us = missing_us(subject);
                subject.refund_decision(&set, &key(), &costs(units), &decision, spent_us);
                let owed_us = (units * unit_us)
                    .saturating_sub(subject.now() - spent_us)
                    .min(before_us);
                assert!(
                    before_us - missing_us(subject) >= owed_us,
                    "{units} after {} us",
                    subject.now() - spent_us
                );
            }
        }
    });
}

/// A settlement takes no more from what is stored than the units that it returns, whatever quota
/// its decision knew. A denial takes nothing.
#[test]
fn law_22_a_settlement_by_an_earlier_quota_changes_its_own_units_alone() {
    on_every_store(|subject, dice, algorithm| {
        let (period, has_bursts) = (
            Duration::from_secs(dice.pick(&[10, 86_400])),
            dice.below(2) == 0,
        );
        let of = |quota| policies::of_one_period(algorithm, quota);
        let changed = |dice: &mut Dice| {
            let quota = Quota::new(1 + dice.below(60), period);
            of(if has_bursts && algorithm.has_burst() {
                quota.with_burst(1 + dice.below(90))
            } else {
                quota
            })
        };
        // What is spent, as the greatest quota sees it.
        let most = of(Quota::new(1_000, period));
        let left = |subject: &mut dyn Subject| remaining(&subject.peek(&most, &key()));
        let (mut set, mut out) = (changed(dice), Vec::new());
        for at in 0..60 {
            let (units, before) = ((1 + dice.below(4)).min(least_burst(&set)), left(subject));
            match dice.below(6) {
                0 => set = changed(dice),
                1 => subject.advance(dice.below(period.as_micros() as u64 / 40)),
                2 => {
                    let decision = subject.check(&set, &key(), units);
                    if decision.is_allowed() {
                        out.push((set.clone(), decision, subject.now(), units, None));
                    } else {
                        let after = left(subject);
                        assert!(
                            after == before || has_bursts,
                            "{algorithm:?}: a denial took {before} to {after}"
                        );
                    }
                }
                3 => {
                    let decision =
                        subject.reserve(&set, &key(), &id(at), &costs(units), 3_600_000_000_000);
                    if decision.is_allowed() {
                        out.push((set.clone(), decision, subject.now(), units, Some(id(at))));
                    }
                }
                _ if !out.is_empty() => {
                    let (set, decision, spent_us, units, id) =
                        out.swap_remove(dice.below(out.len() as u64) as usize);
                    let cost = if id.is_some() {
                        dice.below(units + 4)
                    } else {
                        0
                    };
                    match id {
                        None => subject.refund_decision(
                            &set,
                            &key(),
                            &costs(units),
                            &decision,
                            spent_us,
                        ),
                        Some(id) => _ = subject.commit(&set, &key(), &id, &costs(cost), 1),
                    }
                    // A look at another rate is exact to a unit.
                    let most =
                        before + units.saturating_sub(cost) + u64::from(algorithm.is_continuous());
                    let after = left(subject);
                    assert!(
                        after <= most,
                        "{algorithm:?}: {units} settled at {cost} took {before} to {after}"
                    );
                }
                _ => {}
            }
        }
    });
}

/// A settlement counts in the window that is stored, also when its decision knew another period.
#[test]
fn law_22_a_settlement_by_an_earlier_period_changes_its_own_units_alone() {
    on_every_store(|subject, dice, algorithm| {
        let is_window = matches!(
            algorithm,
            Algorithm::FixedWindow
                | Algorithm::WindowFromFirstHit
                | Algorithm::CalendarWindow { .. }
        );
        if !is_window {
            return;
        }
        let of = |is_long| {
            if let Algorithm::CalendarWindow { zone, .. } = algorithm {
                let unit = [CalendarUnit::Day, CalendarUnit::Month][usize::from(is_long)];
                return PolicySet::from(Policy::calendar_window("p", 100, unit, zone));
            }
            let seconds = [60, 3_600][usize::from(is_long)];
            policies::of_one_period(algorithm, Quota::new(100, Duration::from_secs(seconds)))
        };
        let is_raised = dice.below(2) == 0;
        let (earlier, later) = (of(!is_raised), of(is_raised));
        let units = 1 + dice.below(4);
        let reserved = subject.reserve(&earlier, &key(), &id(0), &costs(units), 10_000_000_000);
        assert!(reserved.is_allowed());
        subject.advance(dice.below(90_000_000));
        assert!(subject.check(&later, &key(), 20).is_allowed());
        let policy = later.iter().next().expect("a policy");
        let seen = |subject: &mut dyn Subject| {
            let expires_ms = subject.stored(policy, &key()).map(|state| state.expires_ms);
            (remaining(&subject.peek(&later, &key())), expires_ms)
        };
        let before = seen(subject);
        subject.advance(dice.below(120_000_000));
        let (is_open, cost) = (
            before
                .1
                .is_some_and(|ends_ms| subject.now() < ends_ms * 1_000 - 1_000),
            dice.below(units + 4),
        );
        subject.commit(&earlier, &key(), &id(0), &costs(cost), 1);
        let after = seen(subject);
        if is_open {
            let returned = units.saturating_sub(cost);
            assert!(
                after.0 <= before.0 + returned && after.1 == before.1,
                "{algorithm:?}: {units} settled at {cost} took {before:?} to {after:?}"
            );
        }
    });
}

/// Eight requests are under way while the quota is raised, and settled then.
#[test]
fn law_22_a_raised_quota_is_not_spent_twice() {
    on_every_store(|subject, dice, algorithm| {
        let day = Duration::from_secs(86_400);
        let [low, high] =
            [10, 1_000].map(|amount| policies::of_one_period(algorithm, Quota::new(amount, day)));
        for at in 0..8 {
            assert!(
                subject
                    .reserve(&low, &key(), &id(at), &costs(1), 3_600_000_000)
                    .is_allowed()
            );
        }
        let mut passed = 8 + drain(subject, &high);
        for at in 0..8 {
            let cost = dice.below(4);
            assert_eq!(
                subject.commit(&low, &key(), &id(at), &costs(cost), 1),
                Settlement::Settled
            );
            passed += drain(subject, &high);
        }
        assert!(passed <= 1_008, "{algorithm:?}: {passed}");
    });
}

/// Replicas of two versions decide with two amounts, in turns.
#[test]
fn law_22_amounts_that_take_turns_admit_no_more_than_the_greater_one() {
    on_every_store(|subject, dice, algorithm| {
        let amounts = [dice.pick(&[1, 10, 900]), 1_000];
        let period = Duration::from_secs(dice.pick(&[60, 86_400]));
        let sets =
            amounts.map(|amount| policies::of_one_period(algorithm, Quota::new(amount, period)));
        let passed: u64 = (0..16).map(|turn| drain(subject, &sets[turn % 2])).sum();
        assert!(passed <= 1_000, "{algorithm:?} {amounts:?}: {passed}");
    });
}
