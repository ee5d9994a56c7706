//! Priorities: what the checks of a lower rank leave for those of a higher one.

use tollgate::{Cost, Costs, Policy, PolicySet, Priority, testing::ceiling};
use tollgate_test_support::{Dice, Subject, policies};

use super::{key, on_every_store};

/// The longest time between two critical checks. All of them fall into the years that a server can
/// store.
const LONGEST_US: u64 = 100_000_000_000_000;

/// Draws a policy whose burst leaves at least one unit to checks of a higher rank, and the priority
/// of the others.
fn draw(dice: &mut Dice, algorithm: tollgate::Algorithm) -> Option<(Policy, Priority)> {
    let policy = policies::policy(dice, "p", algorithm);
    let priority = Priority::percent(1 + dice.below(99) as u8);
    let burst = policy.quota().burst();
    (priority.units_of(burst) < burst).then_some((policy, priority))
}

/// Checks one unit or more at a priority.
fn ranked(subject: &mut dyn Subject, policies: &PolicySet, priority: Priority, cost: u64) -> bool {
    let burst = policies.iter().next().expect("a policy").quota().burst();
    let share = [ceiling(priority.units_of(burst), 0)];
    subject
        .check_under(policies, &key(), &Costs::new(Cost::new(cost)), &share)
        .is_allowed()
}

/// Spends all that a priority may spend at this instant.
fn saturate(subject: &mut dyn Subject, policies: &PolicySet, priority: Priority) {
    let mut step = priority.units_of(policies.iter().next().expect("a policy").quota().burst());
    while step > 0 {
        if !ranked(subject, policies, priority, step) {
            step /= 2;
        }
    }
}

#[test]
fn law_21_a_lower_rank_leaves_the_units_above_its_share() {
    on_every_store(|subject, dice, algorithm| {
        let Some((policy, priority)) = draw(dice, algorithm) else {
            return;
        };
        let (burst, period) = (
            policy.quota().burst(),
            policy.quota().period().as_micros() as u64,
        );
        let policies: PolicySet = policy.clone().into();
        for _ in 0..4 {
            saturate(subject, &policies, priority);
            let state = subject.peek(&policies, &key());
            let remaining = state.states().next().expect("a state").remaining();
            assert!(
                remaining >= burst - priority.units_of(burst),
                "{policy:?} {priority:?}: {remaining}"
            );
            assert!(
                !ranked(subject, &policies, priority, 1),
                "{policy:?} {priority:?}: not saturated"
            );
            subject.advance(1 + dice.below(period));
        }
    });
}

#[test]
fn law_21_critical_checks_within_what_is_left_are_never_denied() {
    on_every_store(|subject, dice, algorithm| {
        let Some((policy, priority)) = draw(dice, algorithm) else {
            return;
        };
        let quota = policy.quota();
        // An interval bucket is filled with its burst at most.
        let (burst, amount) = (quota.burst(), quota.amount().min(quota.burst()));
        let period = policies::longest_us(&policy);
        let left = burst - priority.units_of(burst);
        // Half of what is left, so that an algorithm which counts more than the last period has
        // room too.
        let pace =
            u128::from(period) * u128::from(burst) * 2 / (u128::from(amount) * u128::from(left));
        let pace = pace as u64 + 1;
        if pace > LONGEST_US {
            return;
        }
        let policies: PolicySet = policy.clone().into();
        for _ in 0..25 {
            // All that the others ask for, before and after.
            saturate(subject, &policies, priority);
            let decision = subject.check(&policies, &key(), 1);
            assert!(
                decision.is_allowed(),
                "{policy:?} {priority:?}: {decision:?}"
            );
            saturate(subject, &policies, priority);
            subject.advance(pace);
        }
    });
}
