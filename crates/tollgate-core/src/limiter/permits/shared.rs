//! The pools of all keys of a limiter behind their locks, and what all clones of the limiter share.
//! What one pool does is in `pool.rs`, which needs no lock.

use std::{
    collections::{HashMap, hash_map::Entry},
    ops::Deref,
    sync::{
        Arc, MutexGuard,
        atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use foldhash::fast::RandomState;
use tokio::sync::{Notify, mpsc::UnboundedSender};
use tollgate_model::{
    Concurrency,
    raw::{ConcurrencyParts, KeyParts},
};

use super::pool::{PermitPool, PoolRules};
use crate::{
    Key,
    clock::{Clock, micros},
    limiter::{
        LimiterInner,
        fifo::{Callers, Fifo},
        metrics::PermitMetrics,
    },
    lock::Lock,
    random,
};

/// The number of parts of the table of pools, each behind its own lock.
const SHARDS: usize = 16;

/// The life of permits in the process, ten years. They never lapse, because the process that holds
/// them is the one that would renew them.
const FOREVER: Duration = Duration::from_secs(315_360_000);

pub(super) struct ConcurrencyInner {
    pub(super) limiter: Arc<LimiterInner>,
    pub(super) policy: Concurrency,
    pub(super) rules: PoolRules,
    pub(super) clock: Clock,
    /// The random name of this replica.
    pub(super) replica: u64,
    /// The number of the last call.
    numbers: AtomicU64,
    hasher: RandomState,
    shards: [Lock<HashMap<Key, Arc<KeyPool>, RandomState>>; SHARDS],
    /// The mean time for which a permit was held, in microseconds. 0 before the first one was given
    /// back.
    mean_held_us: AtomicU64,
    /// The callers that wait, over all keys.
    pub(super) waiting: Callers,
    pub(super) upkeep: Upkeep,
    pub(super) metrics: PermitMetrics,
}

/// Sends pools to the task that renews permits, while it runs.
#[derive(Default)]
pub(super) struct Upkeep(pub(super) Lock<Option<UnboundedSender<PoolRef>>>);

/// The permits of one key in this process.
pub(super) struct KeyPool {
    pub(super) key: Key,
    state: Lock<PoolState>,
    /// The limit of the caller that asked last.
    pub(super) limit: AtomicU32,
    /// Held during a call to the store: one call of a key is under way at a time.
    pub(super) calling: tokio::sync::Mutex<()>,
    /// The callers that wait.
    pub(super) queue: Fifo,
    /// Wakes the first of them when a permit comes back.
    pub(super) freed: Notify,
    /// The number of [`PoolRef`]s. Changed under the lock of the table.
    users: AtomicUsize,
}

/// The state of a pool that is behind its lock.
#[derive(Default)]
pub(super) struct PoolState {
    pub(super) pool: PermitPool,
    /// The number of calls that have begun.
    pub(super) begun: u64,
    /// The number of the last call that left a caller without a permit.
    pub(super) denied_in: u64,
}

/// A use of a pool. A pool stays in the table while it is used or holds permits.
pub(super) struct PoolRef {
    pub(super) shared: Arc<ConcurrencyInner>,
    pool: Arc<KeyPool>,
}

impl ConcurrencyInner {
    pub(super) fn new(limiter: Arc<LimiterInner>, policy: Concurrency, clock: Clock) -> Arc<Self> {
        let is_in_process = limiter.is_in_process;
        let life = if is_in_process {
            FOREVER
        } else {
            policy.life()
        };
        let hasher = RandomState::default();
        Arc::new(Self {
            rules: PoolRules {
                is_pooled: !is_in_process && !policy.is_exact(),
                life_us: micros(life),
            },
            replica: random::bits(),
            numbers: AtomicU64::new(0),
            shards: std::array::from_fn(|_| Lock::new(HashMap::with_hasher(hasher.clone()))),
            hasher,
            mean_held_us: AtomicU64::new(0),
            waiting: Callers::new(policy.most_waiting()),
            upkeep: Upkeep::default(),
            metrics: PermitMetrics::new(policy.name()),
            limiter,
            policy,
            clock,
        })
    }

    pub(super) fn pool(self: &Arc<Self>, key: Key) -> PoolRef {
        let mut shard = self.shard(&key);
        let pool = match shard.entry(key) {
            Entry::Occupied(entry) => Arc::clone(entry.get()),
            Entry::Vacant(entry) => {
                let pool = Arc::new(KeyPool::new(entry.key().clone(), self.policy.limit()));
                Arc::clone(entry.insert(pool))
            }
        };
        self.use_pool(pool)
    }

    /// Returns the pools that need a call, and drops those that hold nothing.
    pub(super) fn due(self: &Arc<Self>) -> Vec<PoolRef> {
        let now_us = self.clock.now_us();
        let mut due = Vec::new();
        for shard in &self.shards {
            shard.lock().retain(|_, pool| {
                let state = pool.lock();
                if state.pool.is_due(now_us, self.rules) {
                    due.push(self.use_pool(Arc::clone(pool)));
                }
                pool.users.load(Ordering::Relaxed) > 0 || !state.pool.is_idle(now_us)
            });
        }
        due
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().is_empty())
    }

    /// Counts a user of the pool. The caller has locked the shard.
    fn use_pool(self: &Arc<Self>, pool: Arc<KeyPool>) -> PoolRef {
        pool.users.fetch_add(1, Ordering::Relaxed);
        PoolRef {
            shared: Arc::clone(self),
            pool,
        }
    }

    fn shard(&self, key: &Key) -> MutexGuard<'_, HashMap<Key, Arc<KeyPool>, RandomState>> {
        let hash = key.level(0).hash(&self.hasher);
        self.shards[(hash >> 32) as usize % SHARDS].lock()
    }

    pub(super) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Adds the time for which a permit was held to the mean.
    pub(super) fn note_held(&self, held_us: u64) {
        let mean_us = self.mean_held_us.load(Ordering::Relaxed);
        let next_us = if mean_us == 0 {
            held_us
        } else {
            mean_us - mean_us / 8 + held_us / 8
        };
        self.mean_held_us.store(next_us.max(1), Ordering::Relaxed);
    }

    /// Estimates when a permit is given back: the mean time for which permits were held in this
    /// process, divided by those in flight. One second before the first one was given back.
    pub(super) fn retry_after(&self, in_flight: u64) -> Duration {
        let mean_us = match self.mean_held_us.load(Ordering::Relaxed) {
            0 => return Duration::from_secs(1),
            mean_us => mean_us,
        };
        Duration::from_micros(mean_us / in_flight.max(1)).max(Duration::from_millis(1))
    }
}

impl Upkeep {
    /// Gives back what is idle in the pool, soon. Without the task, its permits lapse.
    pub(super) fn give_back(&self, pool: PoolRef) {
        let pool = match &*self.0.lock() {
            Some(sender) => sender.send(pool).err().map(|unsent| unsent.0),
            None => Some(pool),
        };
        // Dropped without the lock.
        drop(pool);
    }
}

impl KeyPool {
    fn new(key: Key, limit: u32) -> Self {
        Self {
            key,
            state: Lock::default(),
            limit: AtomicU32::new(limit),
            calling: tokio::sync::Mutex::default(),
            queue: Fifo::default(),
            freed: Notify::new(),
            users: AtomicUsize::new(0),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock()
    }
}

impl Deref for PoolRef {
    type Target = KeyPool;

    fn deref(&self) -> &KeyPool {
        &self.pool
    }
}

impl Clone for PoolRef {
    fn clone(&self) -> Self {
        let _shard = self.shared.shard(&self.key);
        self.shared.use_pool(Arc::clone(&self.pool))
    }
}

impl Drop for PoolRef {
    fn drop(&mut self) {
        let mut shard = self.shared.shard(&self.pool.key);
        let is_last = self.pool.users.fetch_sub(1, Ordering::Relaxed) == 1;
        if is_last && self.lock().pool.is_idle(self.shared.clock.now_us()) {
            shard.remove(&self.pool.key);
        }
    }
}
