use std::{fmt, num::NonZeroUsize, sync::Arc};

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::{
    decision::{self, BranchTables, OneTable},
    shards::Shards,
    state_table::StateTable,
};
#[cfg(any(test, feature = "testing"))]
use crate::Policy;
use crate::{
    Check, CheckFuture, Clock, Decision, Entry, Key, PolicySet, Store, StoreFuture, algorithm::State, key::MAX_BRANCHES,
};

/// Stores counters inside the process.
///
/// It runs the same algorithms as a [`RedisStore`](crate::RedisStore) and gives the same decisions,
/// but each process counts alone: two replicas together admit twice the quota. Use it in tests, in
/// a service with a single replica, and for limits that each replica keeps on its own. It also
/// takes over while Redis is unavailable, see [`Outage::Local`](crate::Outage::Local).
///
/// The store holds at most [`max_keys`](MemoryStoreBuilder::max_keys) states, one for each key and
/// policy. When it is full, it first drops the states that equal a fresh one, because nothing is
/// lost with them. When there are too few of these, it drops the states that have spent the
/// smallest share of their burst. Exhausted states are dropped last, so a flood of new keys evicts
/// idle keys before it resets the limit of an exhausted one. No background task runs.
///
/// All states of [nested](Key::child) keys with the same outermost level lie in one of 64 or more parts of the store, so
/// that one decision takes one lock. They share the room of that part: 1/64 of the maximum or less.
///
/// Clones share the states.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
///
/// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("api", Quota::per_second(10)));
/// assert_eq!(limiter.check("acme").await?.state("api").unwrap().remaining(), 9);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MemoryStore(Arc<Inner>);

struct Inner {
    clock: Clock,
    hasher: RandomState,
    shards: Shards<StateTable>,
}

/// Builds a [`MemoryStore`] with options.
///
/// ```
/// use std::num::NonZeroUsize;
/// use tollgate::{Clock, MemoryStore};
///
/// let max_keys = NonZeroUsize::new(100_000).expect("not zero");
/// let store = MemoryStore::builder().max_keys(max_keys).clock(Clock::manual(0)).build();
/// assert!(store.is_empty());
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct MemoryStoreBuilder {
    clock: Option<Clock>,
    max_keys: NonZeroUsize,
}

/// The default of [`MemoryStoreBuilder::max_keys`].
const MAX_KEYS: NonZeroUsize = NonZeroUsize::new(1 << 18).expect("not zero");

/// The number of shards. With fewer, two cores would often wait for the same lock.
const SHARDS: usize = 64;

/// The most states of a shard. A larger shard would hold its lock for too long while it drops
/// states. The hash table is exactly full then: it uses seven eighths of a power of two.
const MAX_ROOM: usize = 2_048 / 8 * 7;

impl MemoryStore {
    /// Creates a store of at most 262 144 states (about 20 MB when full) on the monotonic clock.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Returns a builder for the options.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder { clock: None, max_keys: MAX_KEYS }
    }

    /// Returns the number of states held now.
    ///
    /// The number includes states that equal a fresh one and were not dropped yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.shards.each().map(|timed| timed.shard.len()).sum()
    }

    /// Returns `true` when the store holds no state.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Decides and charges at once.
    #[inline]
    pub(crate) fn decide(&self, check: Check<'_>) -> Decision {
        if check.key.has_branches() {
            return self.decide_branches(check);
        }
        let hash = self.hash(check.key);
        let (mut timed, now_us) = self.0.shards.lock_at(hash, || self.0.clock.now_us());
        let levels = decision::check_in(&mut timed.shard, hash, check, now_us);
        drop(timed);
        Decision::from_levels(check.policies, levels, check.charge(), now_us)
    }

    /// Decides and charges over a key with branches.
    #[cold]
    fn decide_branches(&self, check: Check<'_>) -> Decision {
        let hashes = self.branch_hashes(check.key);
        let (tables, now_us) = self.0.shards.lock_all_at(&hashes, || self.0.clock.now_us());
        let mut tables = BranchTables { tables, hashes: &hashes, key: check.key };
        let levels = decision::check_all(&mut tables, check, now_us);
        drop(tables);
        Decision::from_levels(check.policies, levels, check.charge(), now_us)
    }

    /// Refunds the cost that `check` spent at `spent_us`.
    pub(crate) fn refund_at(&self, check: Check<'_>, spent_us: u64) {
        if check.key.has_branches() {
            let hashes = self.branch_hashes(check.key);
            let (tables, now_us) = self.0.shards.lock_all_at(&hashes, || self.0.clock.now_us());
            let mut tables = BranchTables { tables, hashes: &hashes, key: check.key };
            return decision::refund(&mut tables, check, now_us, spent_us);
        }
        let hash = self.hash(check.key);
        let (mut timed, now_us) = self.0.shards.lock_at(hash, || self.0.clock.now_us());
        decision::refund(&mut OneTable { table: &mut timed.shard, hash, key: check.key }, check, now_us, spent_us);
    }

    /// Returns the hash of the outermost level. It selects the shard, so that all states of a decision have one lock.
    #[inline]
    fn hash(&self, key: &Key) -> u64 {
        key.level(1).hash(&self.0.hasher)
    }

    /// Returns the hash of the outermost level of each branch.
    fn branch_hashes(&self, key: &Key) -> SmallVec<[u64; MAX_BRANCHES]> {
        key.branches().iter().map(|branch| self.hash(branch)).collect()
    }

    /// Returns the state as text. Tests use it to see whether the state changed.
    #[cfg(test)]
    pub(crate) fn debug(&self, policy: &Policy, key: &Key) -> String {
        let key = policy.branch_of(key);
        let hash = self.hash(key);
        format!("{:?}", self.0.shards.lock(hash).shard.state(hash, key, policy).map(|(state, _)| state))
    }

    /// Returns the state in the form in which Redis stores it.
    #[cfg(feature = "testing")]
    pub(crate) fn stored(&self, policy: &Policy, key: &Key) -> Option<crate::algorithm::Stored> {
        let key = policy.branch_of(key);
        let hash = self.hash(key);
        let timed = self.0.shards.lock(hash);
        let (state, policy) = timed.shard.state(hash, key, policy)?;
        Some(crate::algorithm::Stored { value: state.to_value(policy), expires_ms: state.expires_ms(policy) })
    }
}

impl Store for MemoryStore {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        StoreFuture::ready(Ok(self.decide(check)))
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        self.refund_at(check, decision.map_or_else(|| self.0.clock.now_us(), Decision::at_us));
        StoreFuture::ready(Ok(()))
    }

    fn reset(&self, policies: &PolicySet, key: &Key) -> StoreFuture<()> {
        let hashes = self.branch_hashes(key);
        let mut tables = BranchTables { tables: self.0.shards.lock_all(&hashes), hashes: &hashes, key };
        decision::reset(&mut tables, policies, key);
        StoreFuture::ready(Ok(()))
    }

    fn entries(&self, policies: &PolicySet, key: &Key, limit: usize) -> StoreFuture<Vec<Entry>> {
        let log = match policies.log() {
            Ok(log) => log,
            Err(error) => return StoreFuture::ready(Err(error)),
        };
        let key = log.branch_of(key);
        let hash = self.hash(key);
        let (timed, now_us) = self.0.shards.lock_at(hash, || self.0.clock.now_us());
        let entries = match timed.shard.state(hash, key, log) {
            Some((State::SlidingLog(state), _)) => {
                let entries = state.entries(log.quota().period_us(), now_us).take(limit);
                entries.map(|(at_us, tag)| Entry::new(at_us, tag)).collect()
            }
            _ => Vec::new(),
        };
        StoreFuture::ready(Ok(entries))
    }

    fn is_in_process(&self) -> bool {
        true
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("clock", &self.0.clock).finish_non_exhaustive()
    }
}

impl MemoryStoreBuilder {
    /// Sets the maximum number of states, one for each key and policy; 262 144 by default.
    ///
    /// A state takes about 80 bytes, a sliding window of buckets or a sliding log more. From 1024
    /// states on, the store is split into 64 or more shards, and each shard holds its part of the
    /// maximum. A full shard drops states even when another shard has room.
    pub fn max_keys(mut self, max_keys: NonZeroUsize) -> Self {
        self.max_keys = max_keys;
        self
    }

    /// Sets the clock; [`Clock::monotonic`] by default.
    ///
    /// Tests use [`Clock::manual`] to move the time without sleeping, and [`Clock::tokio`] where the
    /// time of tokio is paused.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Creates the store.
    #[must_use]
    pub fn build(self) -> MemoryStore {
        // A small store is one shard, so that its maximum is exact.
        let max_keys = self.max_keys.get();
        let shards = if max_keys < 16 * SHARDS { 1 } else { SHARDS.max(max_keys.div_ceil(MAX_ROOM)) };
        let room = max_keys / shards;
        let hasher = RandomState::default();
        MemoryStore(Arc::new(Inner {
            clock: self.clock.unwrap_or_else(Clock::monotonic),
            shards: Shards::new(shards, || StateTable::new(room, hasher.clone())),
            hasher,
        }))
    }
}
