//! Makes two things of a decision: the error of a denial, and the state of a key without a check.
//! The decision itself is in `mod.rs`.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use super::{Decision, PolicyState};
use crate::{ErrorKind, PolicySet};

/// Reports a denied request as an error, from [`Decision::into_result`].
///
/// The message names the policy that denies and the wait. It does not contain the key.
#[derive(Clone, Debug)]
pub struct Denied(Box<Decision>);

impl Decision {
    /// Turns a denial into an error, so that `?` ends the work on a denied request.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota};
    ///
    /// async fn send(limiter: &Limiter) -> Result<&'static str, Box<dyn std::error::Error>> {
    ///     limiter.check("acme").await?.into_result()?;
    ///     Ok("sent")
    /// }
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("mail", Quota::per_day(1)));
    /// assert_eq!(send(&limiter).await.unwrap(), "sent");
    /// let denied = send(&limiter).await.unwrap_err();
    /// assert!(denied.to_string().starts_with("rate limit mail exceeded, retry after"));
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Denied`], which holds the decision, when the request is denied.
    pub fn into_result(self) -> Result<(), Denied> {
        if self.is_allowed() {
            Ok(())
        } else {
            Err(Denied(Box::new(self)))
        }
    }
}

impl Denied {
    /// Returns the decision that denied the request.
    #[must_use = "this only returns the decision"]
    pub fn decision(&self) -> &Decision {
        &self.0
    }

    /// Returns how long until the same request would pass, if no other request spends from this
    /// key.
    ///
    /// `None` when a policy [blocks](Decision::is_blocked). Any other denial has a wait.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after()
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_blocked() {
            let name = self.0.strictest().map_or("", |state| state.policy().name());
            return write!(f, "rate limit {name} blocks all requests");
        }
        f.write_str("rate limit")?;
        if let Some(state) = self.0.strictest() {
            write!(f, " {}", state.policy().name())?;
        }
        f.write_str(" exceeded")?;
        match self.retry_after() {
            Some(wait) => write!(f, ", retry after {wait:?}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Denied {}

/// Describes what every policy has left for a key, from [`Limiter::peek`] or
/// [`PeekBuilder::cost`]. Nothing was spent.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
///
/// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("api", Quota::per_second(10)));
/// let state = limiter.peek("acme").await?;
/// assert_eq!(state.state("api").unwrap().remaining(), 10);
/// # Ok(()) }
/// ```
///
/// [`Limiter::peek`]: https://docs.rs/tollgate/latest/tollgate/struct.Limiter.html#method.peek
/// [`PeekBuilder::cost`]: https://docs.rs/tollgate/latest/tollgate/limiter/struct.PeekBuilder.html#method.cost
#[derive(Clone)]
pub struct KeyState(Decision);

impl KeyState {
    pub(crate) fn new(look: Decision) -> Self {
        Self(look.uncharged())
    }

    /// Returns how long until a check at the cost of the peek would be admitted, if nobody else
    /// spends. `None` when the check would be admitted now, and for a peek without a cost.
    /// [`PolicyState::retry_after`] has the wait of each policy.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after()
    }

    /// Returns the state of every policy, in the order of the set. Empty in an outage with
    /// [`Outage::Open`].
    ///
    /// [`Outage::Open`]: https://docs.rs/tollgate/latest/tollgate/enum.Outage.html#variant.Open
    #[must_use]
    pub fn states(&self) -> impl ExactSizeIterator<Item = PolicyState<'_>> {
        self.0.states()
    }

    /// Returns the state of the policy with this name. `None` when [`states`](Self::states) has no
    /// such policy.
    #[must_use]
    pub fn state(&self, name: &str) -> Option<PolicyState<'_>> {
        self.0.state(name)
    }

    /// Returns the policy with the smallest remaining share of its burst.
    #[must_use]
    pub fn strictest(&self) -> Option<PolicyState<'_>> {
        self.0.strictest()
    }

    /// Returns the delay that an allowed request would get if it came now: the wait for its turn in
    /// every [leaky bucket](crate::Algorithm::LeakyBucket) of the set.
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.0.delay()
    }

    /// Returns when the store answered, by its own clock, as [`Decision::decided_at`] does.
    #[must_use]
    pub fn decided_at(&self) -> Option<SystemTime> {
        self.0.decided_at()
    }

    /// Returns the policies.
    #[must_use]
    pub fn policies(&self) -> &PolicySet {
        self.0.policies()
    }

    /// Returns why the store did not answer. `None` when the store answered.
    #[must_use]
    pub fn degraded(&self) -> Option<ErrorKind> {
        self.0.degraded()
    }

    /// Returns whether the [`Outage`] answered instead of the store.
    ///
    /// [`Outage`]: https://docs.rs/tollgate/latest/tollgate/enum.Outage.html
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.0.is_degraded()
    }
}

impl fmt::Debug for KeyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyState")
            .field("degraded", &self.degraded())
            .field("states", &self.states().collect::<Vec<_>>())
            .finish()
    }
}
