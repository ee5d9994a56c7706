//! Ceilings: what a check may leave spent, in place of the burst.

use tollgate::{Algorithm, Cost, Costs, PolicySet, store::Ceiling, testing::ceiling};
use tollgate_test_support::{Dice, policies};

use super::{key, micros, on_every_store};

/// Returns a ceiling for each policy that is not below the cost, and leaves no room for a wait.
fn below_the_burst(dice: &mut Dice, policies: &PolicySet, cost: u64) -> Vec<Ceiling> {
    let burst = |policy: &tollgate::Policy| policy.quota().burst();
    policies
        .iter()
        .map(|policy| ceiling(cost + dice.below(burst(policy) - cost + 1), 0))
        .collect()
}

#[test]
fn law_19_a_check_under_a_ceiling_leaves_no_more_spent_and_its_denial_is_exact_and_free() {
    on_every_store(|subject, dice, algorithm| {
        let policies: PolicySet = policies::policy(dice, "p", algorithm).into();
        let policy = policies.iter().next().expect("a policy").clone();
        let burst = policy.quota().burst();
        let cost = 1 + dice.below(burst.min(3));
        let ceilings = below_the_burst(dice, &policies, cost);
        let costs = Costs::new(Cost::new(cost));
        for _ in 0..burst.min(20) {
            let decision = subject.check_under(&policies, &key(), &costs, &ceilings);
            if decision.is_allowed() {
                let spent = burst - decision.states().next().expect("a state").remaining();
                assert!(
                    spent <= ceilings[0].units(),
                    "{policy:?} {ceilings:?}: {spent}"
                );
                subject.advance(dice.below(1_000));
                continue;
            }
            let stored = subject.stored(&policy, &key());
            let (begin, retry) = (subject.now(), micros(decision.retry_after()));
            if retry > 1 {
                subject.set_now(begin + retry - 1);
                let early = subject.check_under(&policies, &key(), &costs, &ceilings);
                assert!(early.is_denied(), "{policy:?} {ceilings:?} {retry}");
            }
            assert_eq!(
                subject.stored(&policy, &key()),
                stored,
                "a denial charges nothing"
            );
            subject.set_now(begin + retry);
            let due = subject.check_under(&policies, &key(), &costs, &ceilings);
            assert!(due.is_allowed(), "{policy:?} {ceilings:?} {retry}");
        }
    });
}

#[test]
fn law_19_a_queue_takes_exactly_the_requests_that_leave_in_time() {
    on_every_store(|subject, dice, algorithm| {
        if algorithm != Algorithm::LeakyBucket {
            return;
        }
        let policies: PolicySet = policies::policy(dice, "p", algorithm).into();
        let quota = policies.iter().next().expect("a policy").quota().to_owned();
        let unit = (quota.period().as_micros() as u64).div_ceil(quota.amount());
        for _ in 0..30 {
            let cost = 1 + dice.below(quota.burst().min(3));
            let wait_us = dice.below(4 * unit + 1);
            let asked = [ceiling(cost, wait_us)];
            let before = subject.peek(&policies, &key());
            let state = before.states().next().expect("a state");
            let fits =
                state.reset_after().as_micros() as u64 <= wait_us && state.remaining() >= cost;
            let decision =
                subject.check_under(&policies, &key(), &Costs::new(Cost::new(cost)), &asked);
            assert_eq!(
                decision.is_allowed(),
                fits,
                "{quota:?} cost {cost} within {wait_us}"
            );
            assert!(decision.delay().as_micros() as u64 <= wait_us);
            subject.advance(dice.below(unit + 1));
        }
    });
}
