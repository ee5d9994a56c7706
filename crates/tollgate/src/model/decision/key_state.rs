use std::{fmt, time::Duration};

use super::{Decision, PolicyState};
use crate::{ErrorKind, PolicySet};

/// Describes what every policy has left for a key, from [`Limiter::peek`](crate::Limiter::peek) or
/// [`Limiter::peek_cost`](crate::Limiter::peek_cost). Nothing was spent.
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
#[derive(Clone)]
pub struct KeyState(Decision);

impl KeyState {
    pub(crate) fn new(look: Decision) -> Self {
        Self(look.uncharged())
    }

    /// Returns how long until a check at the cost of the peek would be admitted, if nobody else spends. `None` when it would
    /// be admitted now, and for a peek without a cost. [`PolicyState::retry_after`] has the wait of each policy.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use std::time::Duration;
    /// use tollgate::{Clock, Cost, Limiter, MemoryStore, Policy, Quota};
    ///
    /// let store = MemoryStore::builder().clock(Clock::manual(0)).build();
    /// let limiter = Limiter::new(store, Policy::fixed_window("rows", Quota::per_minute(100)));
    /// let _ = limiter.check_cost("acme", Cost::new(99)).await?;
    /// let state = limiter.peek_cost("acme", Cost::new(2)).await?;
    /// assert_eq!(state.retry_after(), Some(Duration::from_secs(60)));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after()
    }

    /// Returns the state of every policy, in the order of the set. Empty in an outage with
    /// [`Outage::Open`](crate::Outage::Open).
    #[must_use]
    pub fn states(&self) -> impl ExactSizeIterator<Item = PolicyState<'_>> {
        self.0.states()
    }

    /// Returns the state of the policy with this name.
    #[must_use]
    pub fn state(&self, name: &str) -> Option<PolicyState<'_>> {
        self.0.state(name)
    }

    /// Returns the policy with the smallest remaining share of its burst.
    #[must_use]
    pub fn binding(&self) -> Option<PolicyState<'_>> {
        self.0.binding()
    }

    /// Returns the delay that an allowed request would be told if it came now: the wait for its turn in every
    /// [queue](crate::Algorithm::LeakyBucket) of the set.
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.0.delay()
    }

    /// Returns the policies.
    #[must_use]
    pub fn policies(&self) -> &PolicySet {
        self.0.policies()
    }

    /// Returns why the store did not answer. `None` when it did.
    #[must_use]
    pub fn degraded(&self) -> Option<ErrorKind> {
        self.0.degraded()
    }

    /// Returns whether the [`Outage`](crate::Outage) answered instead of the store.
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
