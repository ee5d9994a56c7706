use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use hashbrown::HashTable;

use super::entry::Entry;
use crate::{Check, CheckFuture, Clock, Cost, Key, PolicySet, model::lease::LeaseCounts};

/// Holds the units that this process was granted, by key and policies.
///
/// A key has an entry while it is asked for. A lookup takes one lock of 64.
pub(in crate::redis) struct Pots {
    shards: Box<[Mutex<Shard>]>,
    /// Goes on while the system sleeps: the server's clock does.
    clock: Clock,
    /// The time at which the next shard is swept.
    sweep_us: AtomicU64,
    next_swept: AtomicUsize,
}

#[derive(Default)]
pub(super) struct Shard {
    entries: HashTable<Entry>,
    counts: LeaseCounts,
    /// The time at which the entries were last thinned out.
    thinned_us: u64,
}

/// Names a key of which this process holds units.
#[derive(Clone, Debug)]
pub(in crate::redis) struct Holder {
    pub(in crate::redis) policies: PolicySet,
    pub(in crate::redis) key: Key,
}

const SHARDS: usize = 64;

/// The most entries of a shard. Keys beyond are not leased.
const MOST: usize = 512;

/// The least time between two sweeps, and between two times at which a full shard is thinned out.
const PAUSE_US: u64 = 20_000;

impl Pots {
    pub(in crate::redis) fn new(clock: Clock) -> Arc<Self> {
        let shards = std::iter::repeat_with(Mutex::default).take(SHARDS).collect();
        Arc::new(Self { shards, clock, sweep_us: AtomicU64::new(0), next_swept: AtomicUsize::new(0) })
    }

    /// Spends the cost of a check from the units of its key. Otherwise the check needs a trip, and the error is its time.
    ///
    /// A check with a tag makes a trip, because the log at the server stores the tag. So does one with different costs.
    pub(in crate::redis) fn spend(&self, check: &Check<'_>, hash: u64) -> Result<CheckFuture, u64> {
        let now_us = self.now_us();
        let charge = check.charge();
        let can_lease = charge.each.is_none() && check.tag.is_empty() && charge.cost > Cost::ZERO;
        let mut shard = self.lock(hash);
        match shard.find(check.policies, check.key, hash) {
            (Some(entry), counts) => {
                entry.count(now_us, charge.cost.units());
                let decided = if can_lease { entry.decide(check.policies, charge, now_us) } else { None };
                if let Some(decision) = decided {
                    counts.trips_saved += 1;
                    drop(shard);
                    return Ok(CheckFuture::ready(Ok(decision)));
                }
            }
            (None, _) if can_lease => shard.insert(hash, check, now_us),
            (None, _) => {}
        }
        Err(now_us)
    }

    /// Returns whether this process holds the cost of a check in units of its key.
    pub(in crate::redis) fn hold(&self, check: &Check<'_>, hash: u64) -> bool {
        let now_us = self.now_us();
        let mut shard = self.lock(hash);
        let entry = shard.find(check.policies, check.key, hash).0;
        check.each.is_none() && entry.is_some_and(|entry| entry.pot.covers(now_us, check.cost.units()))
    }

    /// Takes back units of a decision that was leased, at `spent_us` by the server's clock. Otherwise the server has to refund
    /// them, and the error is the time at which it has charged them, as far as it is known.
    pub(in crate::redis) fn refund(
        &self,
        policies: &PolicySet,
        key: &Key,
        hash: u64,
        units: u64,
        spent_us: u64,
    ) -> Result<(), u64> {
        let now_us = self.now_us();
        let mut shard = self.lock(hash);
        let entry = shard.find(policies, key, hash).0.ok_or(spent_us)?;
        match entry.pot.refund(now_us, units) {
            Some(_) => Ok(()),
            None => Err(entry.charges.of(spent_us).unwrap_or(spent_us)),
        }
    }

    /// Forgets the units of a key, because its states were removed.
    pub(in crate::redis) fn clear(&self, key: &Key, hash: u64) {
        self.lock(hash).retain(|entry| entry.key != *key);
    }

    /// Sweeps one shard, unless another was swept a moment ago: drops the entries that nobody has asked for during two
    /// generations, and lists the holders of units that nobody has asked for during half a generation.
    #[inline]
    pub(in crate::redis) fn sweep(&self, now_us: u64) -> Vec<Holder> {
        let due_us = self.sweep_us.load(Ordering::Relaxed);
        let next_us = now_us + PAUSE_US;
        if now_us < due_us
            || self.sweep_us.compare_exchange(due_us, next_us, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return Vec::new();
        }
        let mut shard = self.lock_at(self.next_swept.fetch_add(1, Ordering::Relaxed));
        shard.retain(|entry| !entry.is_idle(now_us, [2, 1]));
        shard.holders(now_us, |entry| entry.is_idle(now_us, [1, 2])).collect()
    }

    /// Lists all keys of which this process holds units.
    pub(in crate::redis) fn holders(&self) -> Vec<Holder> {
        let now_us = self.now_us();
        (0..SHARDS).flat_map(|at| self.lock_at(at).holders(now_us, |_| true).collect::<Vec<_>>()).collect()
    }

    /// Counts what became of the leased units.
    #[cfg(feature = "metrics")]
    pub(in crate::redis) fn counts(&self) -> LeaseCounts {
        let now_us = self.now_us();
        let mut sum = LeaseCounts::default();
        for at in 0..SHARDS {
            let shard = self.lock_at(at);
            sum.add(&shard.counts);
            sum.held += shard.entries.iter().map(|entry| entry.pot.held(now_us)).sum::<u64>();
        }
        sum
    }

    pub(super) fn now_us(&self) -> u64 {
        self.clock.now_us()
    }

    pub(super) fn lock(&self, hash: u64) -> MutexGuard<'_, Shard> {
        self.lock_at((hash >> 32) as usize)
    }

    /// A panic cannot leave a partial entry behind this lock, so a poisoned lock is used as it is.
    fn lock_at(&self, at: usize) -> MutexGuard<'_, Shard> {
        self.shards[at % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shard {
    /// Returns the entry of a key, and the counts of the shard.
    pub(super) fn find(
        &mut self,
        policies: &PolicySet,
        key: &Key,
        hash: u64,
    ) -> (Option<&mut Entry>, &mut LeaseCounts) {
        (self.entries.find_mut(hash, |entry| entry.is_of(policies, key)), &mut self.counts)
    }

    /// Adds the entry of a key, if there is room.
    fn insert(&mut self, hash: u64, check: &Check<'_>, now_us: u64) {
        if self.entries.len() >= MOST && self.thinned_us + PAUSE_US <= now_us {
            self.thinned_us = now_us;
            // A flood of keys that are asked for once must not keep out those that are asked for often.
            self.retain(|entry| std::mem::take(&mut entry.checks) > 1 || entry.pot.held(now_us) > 0);
        }
        if self.entries.len() < MOST {
            let mut entry = Entry::new(hash, check, now_us);
            entry.count(now_us, check.charge().cost.units());
            self.entries.insert_unique(hash, entry, |entry| entry.hash);
        }
    }

    /// Drops entries. Their units lapse at the server.
    fn retain(&mut self, mut is_kept: impl FnMut(&mut Entry) -> bool) {
        self.entries.retain(|entry| {
            let kept = is_kept(entry);
            if !kept {
                entry.pot.clear();
            }
            self.counts.lapsed += entry.pot.take_lapsed();
            kept
        });
    }

    fn holders(&self, now_us: u64, mut is_listed: impl FnMut(&Entry) -> bool) -> impl Iterator<Item = Holder> {
        let holds = move |entry: &&Entry| entry.pot.held(now_us) > 0 && is_listed(entry);
        self.entries
            .iter()
            .filter(holds)
            .map(|entry| Holder { policies: entry.policies.clone(), key: entry.key.clone() })
    }
}

impl fmt::Debug for Pots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pots").field("clock", &self.clock).finish_non_exhaustive()
    }
}
