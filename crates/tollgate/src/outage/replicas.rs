#[cfg(feature = "redis")]
use std::sync::Weak;
use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

/// Selects the number of replicas that share the quota in an [outage](crate::Outage::Local).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Replicas {
    /// Takes the number that the store counted last before the outage. The default.
    ///
    /// The number is 1 until the store has counted once, and for a store that does not count: see
    /// [`Store::replicas`](crate::Store::replicas). A process that starts in an outage does not know the others and
    /// enforces the whole quota.
    #[default]
    Counted,
    /// Takes this number.
    Fixed(NonZeroU32),
}

/// Holds the number of replicas that a [`Store`](crate::Store) counted last. Clones share the number.
///
/// A store hands it out with [`Store::replicas`](crate::Store::replicas), and counts as long as a clone is held.
///
/// ```
/// use std::num::NonZeroU32;
/// use tollgate::ReplicaCount;
///
/// let count = ReplicaCount::new();
/// assert_eq!(count.get(), None);
/// count.clone().set(NonZeroU32::MIN);
/// assert_eq!(count.get(), NonZeroU32::new(1));
/// ```
#[derive(Clone, Debug, Default)]
pub struct ReplicaCount(Arc<AtomicU32>);

impl ReplicaCount {
    /// Creates a count that is not known yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number. `None` until it was counted once.
    #[must_use]
    #[inline]
    pub fn get(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.0.load(Ordering::Relaxed))
    }

    /// Sets the number.
    pub fn set(&self, replicas: NonZeroU32) {
        self.0.store(replicas.get(), Ordering::Relaxed);
    }

    /// Returns a reference that does not keep the store counting.
    #[cfg(feature = "redis")]
    pub(crate) fn downgrade(&self) -> WeakReplicaCount {
        WeakReplicaCount(Arc::downgrade(&self.0))
    }
}

/// Refers to a count that nobody may hold any more.
#[derive(Debug, Default)]
#[cfg(feature = "redis")]
pub(crate) struct WeakReplicaCount(Weak<AtomicU32>);

#[cfg(feature = "redis")]
impl WeakReplicaCount {
    /// Returns the count while a limiter holds it.
    pub(crate) fn upgrade(&self) -> Option<ReplicaCount> {
        self.0.upgrade().map(ReplicaCount)
    }
}
