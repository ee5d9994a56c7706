//! Sets the terms on which a policy is leased.
//! The terms and their conditions are in `lease/mod.rs`.

use super::Policy;
use crate::{Error, Lease};

impl Policy {
    /// Leases units of the policy in advance to replicas that ask for a key often, on these
    /// [terms](Lease).
    ///
    /// Such a replica spends its units in process, without a trip to the store for each check. The
    /// bound of the algorithm holds unchanged: leased units count as used.
    ///
    /// Either all processes lease the policy or none: units with and without leases are counted
    /// separately, so a mixture admits the quota twice.
    ///
    /// No limiter is built over a store on a server that does not lease: only a
    /// `RedisStore` does. A store in process has no trip to save. A leaky
    /// bucket and a lockout cannot be leased.
    ///
    /// # Panics
    ///
    /// Panics when [`try_leased`](Self::try_leased) would fail. In a `const` this fails the build.
    #[must_use]
    #[track_caller]
    pub const fn leased(mut self, lease: Lease) -> Self {
        match lease.checked(self.algorithm, &self.quota) {
            Ok(terms) => self.lease = terms,
            Err(unmet) => panic!("{}", unmet.text),
        }
        self
    }

    /// Leases units of the policy, as [`leased`](Self::leased) does, on terms that are known only
    /// at run time.
    ///
    /// ```
    /// use tollgate::{Lease, Policy, Quota};
    ///
    /// let error = Policy::token_bucket("tiny", Quota::per_second(10)).try_leased(Lease::new()).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "lease share of the burst must be at least 8 units, got 1 (1/8 of 10 per 1s) in policy tiny",
    /// );
    /// ```
    ///
    /// # Errors
    ///
    /// Fails with [`ErrorKind::Config`](crate::ErrorKind::Config) when a generation is not 100 ms
    /// to 60 s in whole milliseconds, when the share is zero, when the share of the burst is below
    /// 8 units, and for a leaky bucket and a lockout. A [blocked](crate::Quota::is_blocked) policy
    /// may be leased, and never grants a unit.
    pub fn try_leased(mut self, lease: Lease) -> Result<Self, Error> {
        self.lease = lease
            .checked(self.algorithm, &self.quota)
            .map_err(|unmet| unmet.error(lease, self.name(), &self.quota))?;
        Ok(self)
    }
}
