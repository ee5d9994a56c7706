//! The rules for an outage from which users choose, and this replica's share of a quota.
//! When a rule is applied is decided in `fallback.rs`.

mod fallback;

use std::{
    num::{NonZeroU32, NonZeroUsize},
    sync::OnceLock,
};

use tollgate_model::raw::PolicySetParts;

use crate::{
    Decision, MemoryStore,
    clock::Clock,
    store::{Check, ReplicaCount, ReservationId, Settlement, check::CheckParts},
};
pub(crate) use fallback::{Fallback, OutagePeriod};

/// Selects the answer to a check that the store cannot decide in time.
///
/// An outage is not a denial: no client gets 429 because Redis is away.
///
/// Units spent in an outage are not written to the store. After the outage, the store has its state
/// from before. So a key may spend its share in the outage, and then the rest of its quota in the
/// store.
#[doc(alias = "fail open")]
#[doc(alias = "fail closed")]
#[doc(alias = "fallback")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outage {
    /// Allows every request. For limits that shape traffic.
    Open,
    /// Fails every check with an [`Error`](crate::Error). The middleware answers 503. For limits
    /// that protect something, a log-in for example. Give such a limiter a
    /// [deadline](crate::LimiterBuilder::deadline) of 1 s, because a late check fails too.
    Closed,
    /// Decides in this process, on this replica's share of the quota. The default, with counted
    /// replicas.
    ///
    /// Amount and burst are divided by the number of [`replicas`](Replicas); each share is at least 1. With a
    /// `RedisStore` the replicas count themselves: the sum of all shares is the quota. A share
    /// starts fresh, so a key that spent its quota at the store has its share once more in an outage.
    ///
    /// The memory of each limiter in an outage is bounded: 114 688 states (one for each key and
    /// policy), 8.5 MB of tables and 80 bytes more for each key of over 30 bytes, 18 MB at most. A
    /// [nested](crate::Key::child) key has up to 64 bytes for each level, 40 MB at most with four
    /// levels. The entries of logs and the slices of sliding buckets are added to this. A full
    /// table drops the keys that have spent least, as [`MemoryStore`](crate::MemoryStore) does.
    Local {
        /// The number of replicas that share the quota.
        replicas: Replicas,
    },
}

impl Outage {
    /// Returns [`Outage::Local`] for this number of replicas.
    ///
    /// # Panics
    ///
    /// When `replicas` is 0. In a `const` this fails the build.
    #[must_use]
    pub const fn local(replicas: u32) -> Self {
        match NonZeroU32::new(replicas) {
            Some(replicas) => Self::Local {
                replicas: Replicas::Fixed(replicas),
            },
            None => panic!("replicas must be at least 1, got 0"),
        }
    }
}

impl Default for Outage {
    fn default() -> Self {
        Self::Local {
            replicas: Replicas::Counted,
        }
    }
}

/// Selects the number of replicas that share the quota in an [outage](crate::Outage::Local).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Replicas {
    /// Takes the number that the store counted last before the outage. The default.
    ///
    /// The number is 1 until the store has counted once, and for a store that does not count: see
    /// [`Store::replicas`](crate::Store::replicas). A process that starts in an outage does not
    /// know the others and enforces the whole quota.
    #[default]
    Counted,
    /// Takes this number.
    Fixed(NonZeroU32),
}

/// The most states that an outage keeps in the process: 64 tables of 2 048 places, each filled to
/// the point at which it would double.
const MAX_KEYS: NonZeroUsize = NonZeroUsize::new(64 * 2_048 / 8 * 7).expect("not zero");

/// Decides on this replica's share of the quota of any policies.
#[derive(Debug)]
struct LocalShare {
    /// Created in the first outage. An empty store takes ten kilobytes, and a process may have many
    /// limiters.
    store: OnceLock<MemoryStore>,
    clock: Clock,
    /// The number of replicas while `count` knows none.
    fixed: NonZeroU32,
    /// `None` for a fixed number of replicas, and for a store that does not count them.
    count: Option<ReplicaCount>,
}

impl LocalShare {
    /// Creates the share of one replica of `replicas`, or of as many as `count` knows.
    fn new(replicas: NonZeroU32, count: Option<ReplicaCount>, clock: Option<Clock>) -> Self {
        Self {
            store: OnceLock::new(),
            clock: clock.unwrap_or_else(Clock::monotonic),
            fixed: replicas,
            count,
        }
    }

    fn store(&self) -> &MemoryStore {
        self.store.get_or_init(|| {
            MemoryStore::builder()
                .max_keys(MAX_KEYS)
                .clock(self.clock.clone())
                .build()
        })
    }

    /// Returns the number of replicas that share the quota now.
    fn replicas(&self) -> NonZeroU32 {
        self.count
            .as_ref()
            .and_then(ReplicaCount::get)
            .unwrap_or(self.fixed)
    }

    /// Asks the store of the process, by a check of the share. A share may be smaller than a cost
    /// that fits the whole quota. Such a cost spends the whole share, or all that its rank has of
    /// it.
    fn ask(
        &self,
        check: Check<'_>,
        ask: impl FnOnce(&MemoryStore, Check<'_>) -> Decision,
    ) -> Decision {
        check.policies.with_share(self.replicas(), |policies| {
            let charge = policies.cut(check.charge());
            ask(
                self.store(),
                Check { policies, ..check }.with_charge(&charge),
            )
        })
    }

    fn commit(&self, check: Check<'_>, id: &ReservationId) -> Settlement {
        check.policies.with_share(self.replicas(), |policies| {
            self.store()
                .commit_now(Check { policies, ..check }, id, check.number())
        })
    }
}
