//! The rank of a check: the part of each burst that it may spend.
//! It becomes a ceiling in `charge.rs`. Ranks by what customers spend are computed in
//! `limiter/fair_shares.rs`.

use std::fmt;

use crate::{
    Ceiling, Cost, Error, ErrorKind, Policy, PolicySet,
    charge::{CeilingParts, Charge},
    policy::PolicyParts,
    policy_set::beyond_hidden,
};

/// Ranks a check: it may spend up to a share of each burst, and leaves the rest to checks of a
/// higher rank.
///
/// Set it with [`Costs::with_priority`](crate::Costs::with_priority). A check without a priority is
/// [critical](Self::CRITICAL).
///
/// All ranks spend from one counter, over all replicas. A check is denied if more than its share of
/// the burst would then be spent. So the units above the share are always left for checks that rank
/// higher. Stripe calls this a [fleet usage load shedder](https://stripe.com/blog/rate-limiters).
///
/// A priority ranks every policy of a limiter, except those that are [unranked](Policy::unranked).
/// Rank what requests of several kinds share and what protects the service. A quota that belongs to
/// one customer is unranked: a rank would take a part of what the customer has paid for.
///
/// The wait of a denial is exact: it ends when the units fit the share.
/// [`remaining`](crate::PolicyState::remaining) counts what the rank can have. The share
/// is rounded up to whole units, so a burst of 1 has no room for ranks. In a leaky bucket, it is a
/// share of the places in the queue.
///
/// A check that [waits][`CheckBuilder::wait`] with a priority below critical goes
/// into no debt: it tries again when its units fit its share.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
/// use tollgate::{Cost, Costs, Limiter, MemoryStore, Policy, Priority, Quota};
///
/// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("api", Quota::per_hour(10)));
/// let background = Costs::new(Cost::ONE).with_priority(Priority::BACKGROUND);
/// for _ in 0..6 {
///     assert!(limiter.check("all").cost(background.clone()).await?.is_allowed());
/// }
/// assert!(limiter.check("all").cost(background).await?.is_denied());
/// assert!(limiter.check("all").await?.is_allowed(), "four units are left for critical checks");
/// # Ok(()) }
/// ```
///
/// # Errors of a check
///
/// [`ErrorKind::Config`](crate::ErrorKind::Config) with a [leased](crate::Policy::leased) policy
/// that is ranked: its units are taken in advance, and have no rank.
/// [`ErrorKind::CostExceedsBurst`](crate::ErrorKind::CostExceedsBurst) for a cost above the share.
///
/// [`CheckBuilder::wait`]: https://docs.rs/tollgate/latest/tollgate/limiter/struct.CheckBuilder.html#method.wait
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u8);

impl Priority {
    /// Spends up to the whole burst.
    pub const CRITICAL: Self = Self(100);

    /// Spends up to 90 % of each burst.
    pub const NORMAL: Self = Self(90);

    /// Spends up to 60 % of each burst.
    pub const BACKGROUND: Self = Self(60);

    /// Creates the priority of checks that spend up to `percent` of each burst.
    ///
    /// # Panics
    ///
    /// When `percent` is not 1 to 100. In a `const` this fails the build.
    #[must_use]
    pub const fn percent(percent: u8) -> Self {
        assert!(
            percent >= 1 && percent <= 100,
            "the share of a priority must be 1 to 100 percent"
        );
        Self(percent)
    }

    /// Creates the priority, for a share that is known only at run time.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when `percent` is not 1 to 100.
    pub fn try_percent(percent: u8) -> Result<Self, Error> {
        match percent {
            1..=100 => Ok(Self(percent)),
            _ => Err(Error::config(format!(
                "the share of a priority must be 1 to 100 percent, got {percent}"
            ))),
        }
    }

    /// Returns the share of each burst, in percent.
    #[must_use]
    pub const fn as_percent(self) -> u8 {
        self.0
    }

    /// Returns the units of a burst that a check of this priority may spend.
    #[must_use]
    pub const fn units_of(self, burst: u64) -> u64 {
        // Bursts are below 10^15.
        (burst * self.0 as u64).div_ceil(100)
    }

    /// Returns the units of a policy that a check of this priority may spend: its share of the
    /// burst, or the whole burst of an [unranked](Policy::unranked) policy.
    #[must_use]
    pub fn units_of_policy(self, policy: &Policy) -> u64 {
        let burst = policy.quota_ref().burst();
        if policy.is_ranked() {
            self.units_of(burst)
        } else {
            burst
        }
    }
}

/// Refuses policies that have no ranks, although they are ranked.
pub fn refuse_leased(policies: &PolicySet) -> Result<(), Error> {
    match policies
        .iter()
        .find(|policy| policy.is_leased() && policy.is_ranked())
    {
        Some(leased) => Err(Error::config(format!(
            "policy {} is leased, and its units have no priority",
            leased.name()
        ))),
        None => Ok(()),
    }
}

impl fmt::Debug for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Priority({} %)", self.0)
    }
}

/// Puts a charge under the share of a priority.
pub trait PriorityParts: Sized {
    /// Returns the charge under the share of this priority.
    ///
    /// # Errors
    ///
    /// [`CostExceedsBurst`](crate::ErrorKind::CostExceedsBurst) for a cost above the share, and
    /// [`Config`](crate::ErrorKind::Config) when a policy is leased.
    fn rank(self, policies: &PolicySet, charge: Charge) -> Result<Charge, Error>;
}

impl PriorityParts for Priority {
    fn rank(self, policies: &PolicySet, charge: Charge) -> Result<Charge, Error> {
        if self == Self::CRITICAL || !policies.iter().any(Policy::is_ranked) {
            return Ok(charge);
        }
        refuse_leased(policies)?;
        for (policy, cost) in policies.iter().zip(charge.borrow().iter(policies.len())) {
            let (burst, cost, units) = (
                policy.quota_ref().burst(),
                cost.units(),
                self.units_of_policy(policy),
            );
            if cost > units && cost <= burst {
                let message = match policy.is_hidden() {
                    true => beyond_hidden(Cost::new(cost)),
                    false => format!(
                        "cost {cost} exceeds the {units} units that a priority of {} % may spend of policy {}",
                        self.0,
                        policy.name()
                    ),
                };
                return Err(Error::new(ErrorKind::CostExceedsBurst, message));
            }
        }
        Ok(charge.under(
            policies
                .iter()
                .map(|policy| Ceiling::share_of(self, policy)),
        ))
    }
}
