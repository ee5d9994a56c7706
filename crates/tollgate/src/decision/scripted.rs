//! Decisions that a test has written down.

use std::time::Duration;

use super::Decision;
use crate::{
    Check, Cost, MemoryStore, Policy,
    algorithm::{Numbers, PolicyLevel},
    clock::micros,
    policy_levels::PolicyLevels,
};

impl Decision {
    /// Returns the decision on a fresh key: it has the whole burst of each policy, less the cost.
    pub(crate) fn on_a_fresh_key(check: Check<'_>) -> Self {
        MemoryStore::new().decide(check)
    }

    /// Returns a denial with this wait, by the policies that `is_denying` selects. All other policies are fresh.
    pub(crate) fn denial(check: Check<'_>, is_denying: impl Fn(&Policy) -> bool, wait: Duration) -> Self {
        let fresh = Self::on_a_fresh_key(Check::new(check.policies, check.key, Cost::ZERO));
        let wait_us = micros(wait).max(1);
        let numbers = fresh.states().map(|state| match is_denying(state.policy()) {
            true => {
                let reset_us = wait_us.max(state.policy().quota().period_us());
                Numbers { remaining: 0, retry_us: wait_us, reset_us, more_us: wait_us }
            }
            false => Numbers { remaining: state.remaining(), ..Numbers::default() },
        });
        let levels = fresh.levels.iter(check.policies);
        let levels = levels.map(|(policy, level)| (policy, PolicyLevel { fits: !is_denying(policy), ..level }));
        let levels = PolicyLevels::collect(levels).with_numbers(numbers.collect());
        Self::from_levels(check.policies, levels, check.charge(), fresh.at_us)
    }
}
