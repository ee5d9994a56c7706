//! Decisions that a test has written down.
//! The store that gives them to a service under test is in `test_util/`.

use std::time::Duration;

use super::{Decision, PolicyLevels};
use crate::{
    Policy,
    algorithm::{Numbers, PolicyLevel},
    charge::ChargeRef,
    decision::DecisionParts,
    micros::micros,
};

/// Writes a decision that no state has led to.
pub trait ScriptedDecision: Sized {
    /// Turns this decision on a fresh key into a denial with this wait, by the policies that
    /// `is_denying` selects. All other policies stay fresh.
    fn into_denial(
        self,
        charge: ChargeRef<'_>,
        is_denying: impl Fn(&Policy) -> bool,
        wait: Duration,
    ) -> Self;
}

impl ScriptedDecision for Decision {
    fn into_denial(
        self,
        charge: ChargeRef<'_>,
        is_denying: impl Fn(&Policy) -> bool,
        wait: Duration,
    ) -> Self {
        let wait_us = micros(wait).max(1);
        let numbers = self.states().map(|state| match is_denying(state.policy()) {
            true => {
                let reset_us = wait_us.max(state.policy().quota().period_us());
                Numbers {
                    remaining: 0,
                    retry_us: wait_us,
                    reset_us,
                    more_us: wait_us,
                }
            }
            false => Numbers {
                remaining: state.remaining(),
                ..Numbers::default()
            },
        });
        let levels = self.levels.iter(&self.policies);
        let levels = levels.map(|(policy, level)| {
            (
                policy,
                PolicyLevel {
                    fits: !is_denying(policy),
                    ..level
                },
            )
        });
        let levels = PolicyLevels::collect(levels).with_numbers(numbers.collect());
        Self::from_levels(&self.policies, levels, charge, self.at_us)
    }
}
