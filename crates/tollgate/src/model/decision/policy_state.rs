use std::{fmt, time::Duration};

use crate::{Cost, Policy, model::algorithm::Numbers};

/// Describes one policy for a key at the moment of a decision, after the charge if there was one.
#[derive(Clone, Copy)]
pub struct PolicyState<'a> {
    policy: &'a Policy,
    is_exceeded: bool,
    numbers: Numbers,
    delay_us: u64,
    cost: u64,
}

impl<'a> PolicyState<'a> {
    pub(super) fn new(policy: &'a Policy, is_exceeded: bool, numbers: Numbers, delay_us: u64, cost: u64) -> Self {
        Self { policy, is_exceeded, numbers, delay_us, cost }
    }

    /// Returns the policy.
    #[must_use]
    pub fn policy(&self) -> &'a Policy {
        self.policy
    }

    /// Returns whether this policy denies the request.
    #[must_use]
    pub fn is_exceeded(&self) -> bool {
        self.is_exceeded
    }

    /// Returns the units that the request spends from this policy, or would have spent.
    #[must_use]
    pub fn cost(&self) -> Cost {
        Cost::new(self.cost)
    }

    /// Returns how many more requests of cost one would pass at this instant.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.numbers.remaining
    }

    /// Returns how long until the denied request would fit, if no other request spends.
    ///
    /// `Some`, and never zero, exactly when [`is_exceeded`](Self::is_exceeded) and the quota does not
    /// [block](crate::Quota::is_blocked).
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        // A state that another program wrote may deny although the arithmetic finds no wait.
        let can_wait = self.is_exceeded && !self.policy.quota_ref().is_blocked();
        can_wait.then(|| Duration::from_micros(self.numbers.retry_us.max(1)))
    }

    /// Returns how long until the turn of the allowed request in this queue, or until the debt is paid into which it went.
    ///
    /// Zero for a denial, and for a policy that is neither a [queue](crate::Algorithm::LeakyBucket) nor in debt.
    #[must_use]
    pub fn delay(&self) -> Duration {
        Duration::from_micros(self.delay_us)
    }

    /// Returns how long until the whole burst is available, if no request spends.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        Duration::from_micros(self.numbers.reset_us)
    }

    /// Returns how long until one unit more than [`remaining`](Self::remaining) is available. Zero when nothing is
    /// spent. This is the `t` of the `RateLimit` header field.
    #[must_use]
    pub fn more_after(&self) -> Duration {
        Duration::from_micros(self.numbers.more_us)
    }
}

impl fmt::Debug for PolicyState<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyState")
            .field("policy", &self.policy.name())
            .field("remaining", &self.remaining())
            .field("retry_after", &self.retry_after())
            .field("reset_after", &self.reset_after())
            .finish()
    }
}
