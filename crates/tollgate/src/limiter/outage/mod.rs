mod fallback;
mod phase;
mod share;

use std::num::NonZeroU32;

pub(crate) use fallback::Fallback;
pub(crate) use phase::Phase;

/// Selects the answer to a check that the store cannot decide in time.
///
/// An outage is not a denial: no client is answered that it sent too much because Redis is away.
///
/// Units spent in an outage are not written to the store. After the outage, it has the state from before: a key may spend
/// its share, and then the rest of its quota in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outage {
    /// Allows every request. For limits that shape traffic.
    Open,
    /// Fails every check with an [`Error`](crate::Error). The middleware answers 503. For limits that protect something,
    /// a log-in for example. Give such a limiter a [deadline](crate::LimiterBuilder::deadline) of 1 s, because a check that is
    /// late fails too.
    Closed,
    /// Decides in this process, on this replica's share of the quota. The default, with counted replicas.
    ///
    /// Amount and burst are divided by the number of [`replicas`](Replicas); each share is at least 1. With a
    /// [`RedisStore`](crate::RedisStore) the replicas count themselves: the sum of all shares is the quota. A share
    /// starts fresh, so a key that spent its quota at the store has its share once more in an outage.
    ///
    /// The memory of each limiter in an outage is bounded: 114 688 states (one for each key and policy), 8.5 MB of
    /// tables and 80 bytes more for each key of over 30 bytes, 18 MB at most. A [nested](crate::Key::child) key
    /// has up to 64 bytes for each level, 40 MB at most with four levels. The entries of logs and the slices of sliding
    /// buckets are added to this. A full table drops the states that are nearest to fresh, as in
    /// [`MemoryStore`](crate::MemoryStore). A key that has spent its share stays denied while other keys have spent less
    /// of theirs.
    Local {
        /// The number of replicas that share the quota.
        replicas: Replicas,
    },
}

impl Outage {
    /// Returns [`Outage::Local`] for this number of replicas.
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Outage, Policy, Quota};
    ///
    /// const THREE_REPLICAS: Outage = Outage::local(3);
    /// let limiter = Limiter::builder(MemoryStore::new())
    ///     .policies(Policy::token_bucket("api", Quota::per_second(30)))
    ///     .on_outage(THREE_REPLICAS)
    ///     .build();
    /// assert_eq!(limiter.policies().len(), 1);
    /// ```
    ///
    /// # Panics
    ///
    /// When `replicas` is 0. As a constant, this fails the build.
    #[must_use]
    pub const fn local(replicas: u32) -> Self {
        match NonZeroU32::new(replicas) {
            Some(replicas) => Self::Local { replicas: Replicas::Fixed(replicas) },
            None => panic!("replicas must be at least 1, got 0"),
        }
    }
}

impl Default for Outage {
    fn default() -> Self {
        Self::Local { replicas: Replicas::Counted }
    }
}

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
