//! The state of one policy at the moment of a decision: what a caller reads of it. The decision makes
//! it of the reading of a level.

use std::{
    ops::Range,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::{
    Cost, Policy,
    algorithm::{Numbers, period_us},
};

/// Describes one policy for a key at the moment of a decision, after the charge if there was one.
#[derive(Clone, Copy)]
pub struct PolicyState<'a> {
    pub(super) policy: &'a Policy,
    pub(super) is_exceeded: bool,
    pub(super) numbers: Numbers,
    pub(super) delay_us: u64,
    pub(super) cost: u64,
    /// The units that are left to higher priorities.
    pub(super) kept: u64,
    /// When the store decided. 0 if it did not say.
    pub(super) at_us: u64,
}

impl<'a> PolicyState<'a> {
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

    /// Returns how many more requests of cost one, and of the same [priority](crate::Priority),
    /// would pass at this instant.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.numbers.remaining.saturating_sub(self.kept)
    }

    /// Returns the units that the [priority](crate::Priority) of the check leaves to higher ones. 0 for
    /// the highest priority.
    #[must_use]
    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// Returns the units of the burst that are spent, by requests of every priority. In a debt that
    /// is the whole burst.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use tollgate::{Cost, Costs, Limiter, MemoryStore, Policy, Priority, Quota};
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("fleet", Quota::per_hour(10)));
    /// let _ = limiter.check("all").cost(7).await?;
    /// let background = Costs::new(Cost::ONE).with_priority(Priority::BACKGROUND);
    /// let denied = limiter.check("all").cost(background).await?;
    /// let fleet = denied.state("fleet").unwrap();
    /// assert_eq!((fleet.remaining(), fleet.spent()), (0, 7));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn spent(&self) -> u64 {
        self.policy
            .quota_ref()
            .burst()
            .saturating_sub(self.numbers.remaining)
    }

    /// Returns how long until the denied request would fit, if no other request spends.
    ///
    /// `Some`, and never zero, exactly when [`is_exceeded`](Self::is_exceeded) and the quota does
    /// not [block](crate::Quota::is_blocked).
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        // A state that another program wrote may deny although the arithmetic finds no wait.
        let can_wait = self.is_exceeded && !self.policy.quota_ref().is_blocked();
        can_wait.then(|| Duration::from_micros(self.numbers.retry_us.max(1)))
    }

    /// Returns how long until the turn of the allowed request in this [leaky
    /// bucket](crate::Algorithm::LeakyBucket), or until the debt of the policy is paid.
    ///
    /// Zero for a denial, for a policy that is neither a leaky bucket nor in debt, and for one that
    /// the request spends nothing from.
    #[must_use]
    pub fn delay(&self) -> Duration {
        Duration::from_micros(self.delay_us)
    }

    /// Returns how long until the whole burst is available, if no request spends.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        Duration::from_micros(self.numbers.reset_us)
    }

    /// Returns how long until one unit more than [`remaining`](Self::remaining) is available. Zero
    /// when nothing is spent. The parameter `t` of the `RateLimit` header field has this time.
    #[must_use]
    pub fn next_unit_after(&self) -> Duration {
        Duration::from_micros(self.numbers.more_us)
    }

    /// Returns the period whose units are counted, from its begin to its end, by the clock of the
    /// store: of a [fixed window](crate::Algorithm::FixedWindow), of a window of a calendar, and of
    /// a [window from the first hit](crate::Algorithm::WindowFromFirstHit) that has begun.
    ///
    /// `None` for every other policy, whose units come back one by one, and where the store did not
    /// say [when it decided](crate::Decision::decided_at).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use std::time::{Duration, UNIX_EPOCH};
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota, store::Clock};
    ///
    /// let store = MemoryStore::builder().clock(Clock::manual(5_000_000_000)).build();
    /// let limiter = Limiter::new(store, Policy::fixed_window("hourly", Quota::per_hour(10)));
    /// let period = limiter.peek("acme").await?.state("hourly").unwrap().period().unwrap();
    /// assert_eq!(period.start, UNIX_EPOCH + Duration::from_secs(3_600));
    /// assert_eq!(period.end, UNIX_EPOCH + Duration::from_secs(7_200));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn period(&self) -> Option<Range<SystemTime>> {
        let known = Some(self.at_us).filter(|&at_us| at_us > 0)?;
        let period = period_us(self.policy, known, self.numbers.more_us)?;
        Some(instant(period.start)..instant(period.end))
    }
}

crate::debug_fields! {
    PolicyState<'a>: policy = .policy.name(), remaining = .remaining(),
    retry_after = .retry_after(), reset_after = .reset_after()
}

/// Returns the instant of a time on the clock of a store.
pub(super) fn instant(at_us: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(at_us)
}
