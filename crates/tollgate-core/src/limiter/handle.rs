//! A limiter that can be replaced while checks run.
//! Nothing is decided here: whoever checks takes the limiter out first. What a check asks is in
//! `ask.rs`.

use std::{fmt, ops::Deref, sync::Arc};

use arc_swap::{ArcSwap, Guard};

use super::{IntoPolicySet, Limiter};
use crate::PolicySet;

/// A limiter that can be replaced while checks run: [load](Self::load) it for each check.
///
/// Clones share the limiter. A replacement takes effect between two checks: each decision is made
/// by the policies of one limiter, and never by a mixture. Reading the limiter takes no lock.
///
/// Counters belong to the names of policies. A policy that keeps its name and its algorithm keeps
/// the units that are spent. A raised quota can be used at once, and a lowered quota holds at once.
/// A policy with a new name or another algorithm starts fresh, and so does one that begins or ends
/// to be [leased](crate::Policy::leased). Processes that change at different times then admit the
/// quota twice.
///
/// If the limiter is [published](crate::LimiterBuilder::published), operators see the new policies.
///
/// A caller that [waits](crate::limiter::CheckBuilder::wait) when the limiter is replaced continues
/// under the policies with which it began.
///
/// ```
/// use tollgate::{Limiter, LimiterHandle, MemoryStore, Policy, Quota};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
/// const API: Policy = Policy::fixed_window("api", Quota::per_day(2));
/// let handle = LimiterHandle::new(Limiter::new(MemoryStore::new(), API));
/// assert!(handle.load().check("acme").await?.is_allowed());
/// assert!(handle.load().check("acme").await?.is_allowed());
/// assert!(handle.load().check("acme").await?.is_denied());
///
/// handle.replace_policies(API.with_quota(Quota::per_day(10))?);
/// let decision = handle.load().check("acme").await?;
/// assert_eq!(decision.state("api").unwrap().remaining(), 7);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct LimiterHandle(Arc<ArcSwap<Limiter>>);

impl LimiterHandle {
    /// Creates a handle that holds `limiter`.
    #[must_use]
    pub fn new(limiter: Limiter) -> Self {
        let handle = Self(Arc::new(ArcSwap::from_pointee(limiter)));
        handle.publish();
        handle
    }

    /// Returns the current limiter. A later replacement does not change it.
    ///
    /// Call it for each check: `handle.load().check(key)`. Keep what it returns only for calls that
    /// must see the same policies, and clone the limiter to keep it for longer. Loading takes no
    /// lock and copies nothing.
    #[must_use]
    pub fn load(&self) -> impl Deref<Target = Limiter> + Send + Sync + use<> {
        LoadedLimiter(self.0.load())
    }

    /// Replaces the limiter. Returns the limiter from before.
    #[doc(alias = "store")]
    #[doc(alias = "swap")]
    #[allow(
        clippy::must_use_candidate,
        reason = "few callers need the limiter from before"
    )]
    pub fn replace(&self, limiter: Limiter) -> Limiter {
        let before = Limiter::clone(&self.0.swap(Arc::new(limiter)));
        self.publish();
        before
    }

    /// Replaces the policies of the limiter. Returns the policies from before.
    ///
    /// Store, name, deadline and all other options stay as they are, as with
    /// [`Limiter::with_policies`].
    ///
    /// # Panics
    ///
    /// When [`PolicySet::try_new`] refuses the policies. The old policies then stay in force. For
    /// policies that are known only at run time, call `try_new` and pass the set.
    pub fn replace_policies(&self, policies: impl IntoPolicySet) -> PolicySet {
        let policies = policies.into_policy_set();
        // Another thread may replace the limiter at the same time. Its store and options must not
        // be lost.
        let before = self
            .0
            .rcu(|limiter| limiter.with_policies(policies.clone()));
        self.publish();
        before.policies().clone()
    }

    /// Shows the policies that are held now to operators, if the limiter is published.
    fn publish(&self) {
        if let Some(publication) = &self.load().inner().publication {
            publication.replace_policies(|| self.load().policies().clone());
        }
    }
}

/// Reads the limiter without a copy.
struct LoadedLimiter(Guard<Arc<Limiter>>);

impl Deref for LoadedLimiter {
    type Target = Limiter;

    #[inline]
    fn deref(&self) -> &Limiter {
        &self.0
    }
}

impl From<Limiter> for LimiterHandle {
    fn from(limiter: Limiter) -> Self {
        Self::new(limiter)
    }
}

impl fmt::Debug for LimiterHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LimiterHandle")
            .field(&self.0.load())
            .finish()
    }
}
