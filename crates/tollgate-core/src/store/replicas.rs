//! How many replicas share a limit, and which limiters are counted together.
//! How they are counted is in `tollgate-remote/src/presence/counter.rs`, and what is divided by the number in
//! `limiter/outage/`.

use std::{
    fmt,
    num::NonZeroU32,
    sync::{
        Arc, Weak,
        atomic::{AtomicU32, Ordering},
    },
};

use tollgate_model::raw::{PolicySetParts, hash_name};

use crate::PolicySet;

/// Identifies the limiters whose replicas are counted together: limiters of the same name, with
/// policies of the same names, levels and algorithms in the same order.
///
/// Programs that share only a prefix are not counted together. Quotas do not matter: they may
/// change, and differ from tenant to tenant. `Display` writes the 16 hexadecimal digits that a
/// `RedisStore` uses in its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReplicaGroup(u64);

impl ReplicaGroup {
    /// Counts the limits of a process together that have no group of their own, because it has very
    /// many.
    pub const FURTHER: Self = Self(0);

    /// Creates the group of a limiter with this [name](crate::Limiter::name) and these policies.
    #[must_use]
    pub fn new(limiter: &str, policies: &PolicySet) -> Self {
        Self(
            (hash_name(limiter.as_bytes()).rotate_left(29) ^ policies.fingerprint())
                .wrapping_mul(0x9e37_79b9_7f4a_7c15),
        )
    }

    /// Parses what `Display` writes.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_whole = text.len() == 16 && text.bytes().all(|sign| sign.is_ascii_hexdigit());
        is_whole.then(|| u64::from_str_radix(text, 16).ok().map(Self))?
    }

    /// Creates the group of a limiter of permits.
    pub(crate) fn of_permits(name: &str) -> Self {
        Self(!hash_name(name.as_bytes()))
    }
}

impl fmt::Display for ReplicaGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The number of replicas that a [`Store`](crate::Store) counted last. Clones share the number.
///
/// A store hands it out with [`Store::replicas`](crate::Store::replicas), and counts as long as a
/// clone is held.
///
/// ```
/// use std::num::NonZeroU32;
/// use tollgate::store::ReplicaCount;
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
    #[must_use]
    pub fn downgrade(&self) -> WeakReplicaCount {
        WeakReplicaCount(Arc::downgrade(&self.0))
    }
}

/// Refers to a count that nobody may hold any more.
#[derive(Debug, Default)]
pub struct WeakReplicaCount(Weak<AtomicU32>);

impl WeakReplicaCount {
    /// Returns the count while a limiter holds it.
    pub fn upgrade(&self) -> Option<ReplicaCount> {
        self.0.upgrade().map(ReplicaCount)
    }
}
