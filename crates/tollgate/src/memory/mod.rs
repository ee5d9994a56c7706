//! The in-process store.

#[cfg(feature = "testing")]
pub(crate) mod lockless;
mod shard;
mod shards;
mod subject;

/// What [`shards`] is built from; a model checker brings its own.
mod sync {
    pub(super) use std::sync::{Mutex, MutexGuard};
}

use std::{
    fmt,
    hash::{BuildHasher, Hasher},
    num::NonZeroUsize,
    sync::Arc,
};

use foldhash::fast::RandomState;

use crate::{Check, CheckFuture, Clock, Decision, Entry, Key, PolicySet, Store, StoreFuture, algorithm::State};
use shard::Shard;
use shards::Shards;

/// A store inside the process: the same algorithms, the same answers, for one replica alone.
///
/// Use it for tests, for a service that runs once, and for limits that are each replica's own. It
/// is what answers while Redis is away, see [`Outage::Local`](crate::Outage::Local).
///
/// It holds at most [`max_keys`](MemoryStoreBuilder::max_keys) states (one for each key and
/// policy). A state that equals a fresh one is dropped when room is needed, without a thread or a
/// task. When there is none of those, the states nearest to fresh go first and a drained one last:
/// a flood of new keys cannot wash away the limit of a key that is at its limit, before all idle
/// ones are gone.
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
    shards: Shards<Shard>,
}

/// Builds a [`MemoryStore`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct MemoryStoreBuilder {
    clock: Option<Clock>,
    max_keys: NonZeroUsize,
}

/// The default of [`MemoryStoreBuilder::max_keys`].
const MAX_KEYS: NonZeroUsize = NonZeroUsize::new(1 << 18).expect("not zero");

/// With fewer two cores meet too often.
const SHARDS: usize = 64;

/// With more room a shard would stand still for too long when it is tidied up. A table of a power
/// of two is just full then: seven eighths are.
const MOST_ROOM: usize = 2_048 / 8 * 7;

impl MemoryStore {
    /// A store of at most 262 144 states (about 20 MB when full), on the monotonic clock.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A builder for the options.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder { clock: None, max_keys: MAX_KEYS }
    }

    /// How many states are held now, fresh ones that were not dropped yet among them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.shards.each().map(|timed| timed.shard.len()).sum()
    }

    /// Whether no state is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Decides at once.
    #[inline]
    pub(crate) fn decide(&self, check: Check<'_>) -> Decision {
        let hash = self.hash(check.key);
        let (mut timed, now_us) = self.0.shards.lock_at(hash, || self.0.clock.now_us());
        let readings = timed.shard.check(hash, check, now_us);
        drop(timed);
        Decision::from_readings(check.policies, readings, check.cost, now_us)
    }

    pub(crate) fn give_back(&self, check: Check<'_>, spent_us: u64) {
        let hash = self.hash(check.key);
        let (mut timed, now_us) = self.0.shards.lock_at(hash, || self.0.clock.now_us());
        timed.shard.refund(hash, check, now_us, spent_us);
    }

    #[inline]
    fn hash(&self, key: &Key) -> u64 {
        hash(&self.0.hasher, key.as_bytes())
    }

    /// The state as it is held, for tests that look whether it changed.
    #[cfg(test)]
    pub(crate) fn debug(&self, policy: &crate::Policy, key: &Key) -> String {
        let hash = self.hash(key);
        format!("{:?}", self.0.shards.lock(hash).shard.state(hash, key, policy).map(|(state, _)| state))
    }

    #[cfg(feature = "testing")]
    pub(crate) fn stored(&self, policy: &crate::Policy, key: &Key) -> Option<crate::testing::Stored> {
        let hash = self.hash(key);
        let timed = self.0.shards.lock(hash);
        let (state, policy) = timed.shard.state(hash, key, policy)?;
        Some(crate::testing::Stored { value: state.to_value(policy), expires_ms: state.expires_ms(policy) })
    }
}

#[inline]
fn hash(hasher: &RandomState, key: &[u8]) -> u64 {
    let mut state = hasher.build_hasher();
    state.write(key);
    state.finish()
}

impl Store for MemoryStore {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        StoreFuture::ready(Ok(self.decide(check)))
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        self.give_back(check, decision.map_or_else(|| self.0.clock.now_us(), Decision::at_us));
        StoreFuture::ready(Ok(()))
    }

    fn reset(&self, policies: &PolicySet, key: &Key) -> StoreFuture<()> {
        let hash = self.hash(key);
        self.0.shards.lock(hash).shard.reset(hash, policies, key);
        StoreFuture::ready(Ok(()))
    }

    fn entries(&self, policies: &PolicySet, key: &Key, limit: usize) -> StoreFuture<Vec<Entry>> {
        let log = match policies.log() {
            Ok(log) => log,
            Err(error) => return StoreFuture::ready(Err(error)),
        };
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
    /// How many states the store holds at most, one for each key and policy; 262 144 by default.
    /// The bound is kept per shard (64 of them, or more), so a store may drop a state a little
    /// earlier.
    pub fn max_keys(mut self, max_keys: NonZeroUsize) -> Self {
        self.max_keys = max_keys;
        self
    }

    /// The clock to read, [`Clock::monotonic`] by default.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// The store.
    #[must_use]
    pub fn build(self) -> MemoryStore {
        // A small store is one shard, so that its bound is exact.
        let max_keys = self.max_keys.get();
        let shards = if max_keys < 16 * SHARDS { 1 } else { SHARDS.max(max_keys.div_ceil(MOST_ROOM)) };
        let room = max_keys / shards;
        let hasher = RandomState::default();
        MemoryStore(Arc::new(Inner {
            clock: self.clock.unwrap_or_else(Clock::monotonic),
            shards: Shards::new(shards, || Shard::new(room, hasher.clone())),
            hasher,
        }))
    }
}
