//! The store in this process, as users hold it, with its options.
//! Which states a call changes is decided in `store/step.rs`; how they are kept in
//! `state_table.rs`.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use foldhash::fast::RandomState;
use smallvec::SmallVec;
use tollgate_model::{
    Entry,
    raw::{DecisionParts, KeyParts, MAX_BRANCHES, PolicySetParts},
};

use super::{
    exceptions::KeptExceptions,
    permit_table::PermitTable,
    shards::Shards,
    state_table::StateTable,
    tables::{self, BranchTables},
};
use crate::{
    Decision, Key, Store,
    clock::{Clock, micros},
    store::{
        Check, CheckFuture, ExceptionCall, ExceptionReply, ExceptionsInForce, PermitGrant,
        PermitRequest, ReservationId, Settlement, StoreFuture, check::CheckParts, step,
    },
};
#[cfg(feature = "testing")]
use crate::{Policy, PolicySet};
#[cfg(feature = "testing")]
use tollgate_model::raw::PolicyParts;

/// Stores counters inside the process.
///
/// It runs the same algorithms as a `RedisStore` and gives the same decisions,
/// but each process counts alone: two replicas together admit twice the quota. Use it in tests, in
/// a service with a single replica, and for limits that each replica keeps on its own. It also
/// takes over while Redis is unavailable, see [`Outage::Local`](crate::Outage::Local).
///
/// The store holds at most [`max_keys`](MemoryStoreBuilder::max_keys) states, one for each key and
/// policy. When it is full, it first drops the states that are fresh again, because nothing is
/// lost with them. When there are too few of these, it drops the states that have spent the
/// smallest share of their burst. Exhausted states are dropped last, so a flood of new keys evicts
/// idle keys before it resets the limit of an exhausted one. No background task runs.
///
/// The store is divided into 64 or more parts. All states of [nested](Key::child) keys with the
/// same outermost level lie in one part, so that one decision takes one lock. They share the room
/// of that part: 1/64 of the maximum or less.
///
/// [Reservations](crate::reservation::Reservation) are held beside the states, at most as many.
/// When there are more, the reservations that lapse first are dropped: they lapse early, and what
/// they charged stays charged.
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
pub struct MemoryStore(Arc<MemoryInner>);

struct MemoryInner {
    clock: Clock,
    hasher: RandomState,
    shards: Shards<StateTable>,
    permits: PermitTable,
    exceptions: KeptExceptions,
}

/// Builds a [`MemoryStore`] with options.
///
/// ```
/// use std::num::NonZeroUsize;
/// use tollgate::{MemoryStore, store::Clock};
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
        MemoryStoreBuilder {
            clock: None,
            max_keys: MAX_KEYS,
        }
    }

    /// Returns the number of states held now.
    ///
    /// The number includes states that are fresh again and were not dropped yet.
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
        let levels = tables::check_in(&mut timed.shard, hash, check, now_us);
        drop(timed);
        Decision::from_levels(check.policies, levels, check.charge(), now_us)
    }

    /// Decides and charges over a key with branches.
    #[cold]
    fn decide_branches(&self, check: Check<'_>) -> Decision {
        let (levels, now_us) = self.locked(check.key, |tables, now_us| {
            (step::check(tables, check, now_us, false), now_us)
        });
        Decision::from_levels(check.policies, levels, check.charge(), now_us)
    }

    /// Returns what a check would decide.
    pub(crate) fn look_now(&self, check: Check<'_>) -> Decision {
        let (levels, now_us) = self.locked(check.key, |tables, now_us| {
            (step::look(tables, check, now_us), now_us)
        });
        Decision::from_levels(check.policies, levels, check.charge(), now_us)
    }

    /// Refunds the cost that `check` spent at `spent_us`, or now.
    pub(crate) fn refund_at(
        &self,
        check: Check<'_>,
        spent_us: Option<u64>,
        decision: Option<&Decision>,
    ) {
        self.locked(check.key, |tables, now_us| {
            step::refund(tables, check, now_us, spent_us.unwrap_or(now_us), decision);
        });
    }

    pub(crate) fn reserve_now(
        &self,
        check: Check<'_>,
        id: &ReservationId,
        life_us: u64,
    ) -> Decision {
        let reserved = self.locked(check.key, |tables, now_us| {
            step::reserve(tables, check, id, life_us, now_us)
        });
        reserved.decision(check)
    }

    /// Settles a reservation at the costs of `check`, by the commit of this number.
    pub(crate) fn commit_now(
        &self,
        check: Check<'_>,
        id: &ReservationId,
        number: u64,
    ) -> Settlement {
        self.locked(check.key, |tables, now_us| {
            step::commit(tables, check, id, number, now_us)
        })
    }

    /// Locks the tables of all branches of a key, and calls `step` with them and the time.
    fn locked<T>(&self, key: &Key, step: impl FnOnce(&mut BranchTables<'_>, u64) -> T) -> T {
        let hashes = self.branch_hashes(key);
        let (tables, now_us) = self.0.shards.lock_all_at(&hashes, || self.0.clock.now_us());
        step(
            &mut BranchTables {
                tables,
                hashes: &hashes,
                key,
            },
            now_us,
        )
    }

    /// Returns the bytes in which Redis stores the record of a reservation, and its expiry in
    /// milliseconds.
    #[cfg(feature = "testing")]
    pub(crate) fn record(
        &self,
        policies: &PolicySet,
        key: &Key,
        id: &ReservationId,
    ) -> Option<(Vec<u8>, u64)> {
        let hash = self.hash(&key.branches()[0]);
        let (mut timed, now_us) = self.0.shards.lock_at(hash, || self.0.clock.now_us());
        let record = timed.shard.records().get(policies, key, id, now_us)?;
        Some((record.to_bytes(), record.expires_ms()))
    }

    /// Returns the hash of the outermost level. It selects the shard, so that all states of a
    /// decision have one lock.
    #[inline]
    fn hash(&self, key: &Key) -> u64 {
        key.level(1).hash(&self.0.hasher)
    }

    /// Returns the hash of the outermost level of each branch.
    fn branch_hashes(&self, key: &Key) -> SmallVec<[u64; MAX_BRANCHES]> {
        key.branches()
            .iter()
            .map(|branch| self.hash(branch))
            .collect()
    }

    /// Returns the permits of a key as they are stored elsewhere.
    #[cfg(feature = "testing")]
    pub(crate) fn stored_permits(&self, key: &Key, name: &str) -> Option<(Vec<u8>, u64)> {
        self.0
            .permits
            .stored(key.level(0).hash(&self.0.hasher), key, name)
    }

    /// Returns the state as it is stored elsewhere, and its expiry in milliseconds.
    #[cfg(feature = "testing")]
    pub(crate) fn stored(&self, policy: &Policy, key: &Key) -> Option<(Vec<u8>, u64)> {
        let key = policy.branch_of(key);
        let hash = self.hash(key);
        let timed = self.0.shards.lock(hash);
        let (state, policy) = timed.shard.state(hash, key, policy)?;
        Some((state.to_bytes(policy, None), state.expires_ms(policy)))
    }
}

impl Store for MemoryStore {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        if let Some(blocked) = StoreFuture::if_blocked(check) {
            return blocked;
        }
        StoreFuture::decided(self.decide(check))
    }

    fn look(&self, check: Check<'_>) -> CheckFuture {
        if let Some(blocked) = StoreFuture::if_blocked(check) {
            return blocked;
        }
        StoreFuture::decided(self.look_now(check))
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        if let Some(blocked) = StoreFuture::if_blocked(check) {
            return blocked;
        }
        self.refund_at(check, decision.map(Decision::at_us), decision);
        StoreFuture::decided(())
    }

    fn reserve(&self, check: Check<'_>, id: &ReservationId, time_to_live: Duration) -> CheckFuture {
        if let Some(blocked) = StoreFuture::if_blocked(check) {
            return blocked;
        }
        StoreFuture::decided(self.reserve_now(check, id, micros(time_to_live)))
    }

    fn commit(&self, check: Check<'_>, id: &ReservationId) -> StoreFuture<Settlement> {
        if let Some(blocked) = StoreFuture::if_blocked(check) {
            return blocked;
        }
        StoreFuture::decided(self.commit_now(check, id, check.number()))
    }

    fn reset(&self, check: Check<'_>) -> StoreFuture<()> {
        let hashes = self.branch_hashes(check.key);
        let mut tables = BranchTables {
            tables: self.0.shards.lock_all(&hashes),
            hashes: &hashes,
            key: check.key,
        };
        step::reset(&mut tables, check);
        StoreFuture::ready(Ok(()))
    }

    fn entries(&self, check: Check<'_>, limit: usize) -> StoreFuture<Vec<Entry>> {
        let log = match check.policies.log() {
            Ok(log) => log,
            Err(error) => return StoreFuture::ready(Err(error)),
        };
        let entries = self.locked(check.key, |tables, now_us| {
            step::entries(tables, (0, log), now_us, limit)
        });
        StoreFuture::ready(Ok(entries))
    }

    fn permits(&self, request: PermitRequest<'_>) -> StoreFuture<PermitGrant> {
        let hash = request.key.level(0).hash(&self.0.hasher);
        StoreFuture::ready(Ok(self.0.permits.decide(hash, &self.0.clock, &request)))
    }

    fn is_in_process(&self) -> bool {
        true
    }

    fn follow_exceptions(&self, exceptions: &ExceptionsInForce) {
        self.0.exceptions.follow(exceptions, &self.0.clock);
    }

    fn exceptions(&self, call: ExceptionCall) -> StoreFuture<ExceptionReply> {
        StoreFuture::ready(self.0.exceptions.call(&call, &self.0.clock))
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

crate::debug_fields! { MemoryStore: clock = .0.clock, .. }

impl MemoryStoreBuilder {
    /// Sets the maximum number of states, one for each key and policy; 262 144 by default.
    ///
    /// A state takes about 80 bytes, and more with sliding buckets or a sliding log. From 1024
    /// states on, the store is divided into 64 or more parts, and each part holds its share of the
    /// maximum. A full part drops states even when another part has room.
    pub fn max_keys(mut self, max_keys: NonZeroUsize) -> Self {
        self.max_keys = max_keys;
        self
    }

    /// Sets the clock; [`Clock::monotonic`] by default.
    ///
    /// Tests use [`Clock::manual`] to move the time without sleeping, and [`Clock::tokio`] where
    /// the time of tokio is paused.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Creates the store.
    #[must_use]
    pub fn build(self) -> MemoryStore {
        // A small store is one shard, so that its maximum is exact.
        let max_keys = self.max_keys.get();
        let shards = if max_keys < 16 * SHARDS {
            1
        } else {
            SHARDS.max(max_keys.div_ceil(MAX_ROOM))
        };
        let room = max_keys / shards;
        let hasher = RandomState::default();
        MemoryStore(Arc::new(MemoryInner {
            clock: self.clock.unwrap_or_else(Clock::monotonic),
            shards: Shards::new(shards, || StateTable::new(room, hasher.clone())),
            permits: PermitTable::new(&hasher),
            exceptions: KeptExceptions::default(),
            hasher,
        }))
    }
}
