//! Shards of a store, each behind its own lock. The lock type comes from `super::sync`, so that a
//! model checker can run the same lines.
//! What is in a shard is not known here: states are in `state_table.rs`, permits in
//! `permit_table.rs`.

use super::sync::{Lock, MutexGuard};

/// Splits a store into shards with one lock each. The hash of the outermost level of a key selects
/// its shard.
pub(super) struct Shards<S>(Box<[CacheLine<S>]>);

/// Starts at a cache line of the processor. A shard that fills one line then touches no second one,
/// and two threads with different shards do not share a line.
#[repr(align(64))]
struct CacheLine<S>(Lock<Timed<S>>);

/// The locks of several shards at once.
pub(super) struct LockedShards<'a, S> {
    /// The index of each shard, in ascending order, and its lock.
    locked: Vec<(usize, MutexGuard<'a, Timed<S>>)>,
    count: usize,
}

/// A shard and the time of its latest decision.
pub(super) struct Timed<S> {
    pub(super) shard: S,
    newest_us: u64,
}

impl<S> Shards<S> {
    pub(super) fn new(count: usize, shard: impl Fn() -> S) -> Self {
        let line = || {
            CacheLine(Lock::new(Timed {
                shard: shard(),
                newest_us: 0,
            }))
        };
        Self(std::iter::repeat_with(line).take(count).collect())
    }

    /// Locks the shard of a key.
    #[inline]
    pub(super) fn lock(&self, hash: u64) -> MutexGuard<'_, Timed<S>> {
        self.0[place(hash, self.0.len())].0.lock()
    }

    /// Locks the shard of a key and returns the time. The time is never before the shard's latest
    /// decision, unless the clock went back.
    #[inline]
    pub(super) fn lock_at(
        &self,
        hash: u64,
        clock: impl Fn() -> u64,
    ) -> (MutexGuard<'_, Timed<S>>, u64) {
        // The clock is read before locking, so that the lock is held for a shorter time.
        let mut now_us = clock();
        let mut timed = self.lock(hash);
        if now_us < timed.newest_us {
            // Another thread decided in between, or the clock went back.
            now_us = clock();
        }
        timed.newest_us = now_us;
        (timed, now_us)
    }

    /// Locks the shards of several keys together.
    ///
    /// The locks are taken in the order of the shards. So two threads never wait for each other.
    pub(super) fn lock_all(&self, hashes: &[u64]) -> LockedShards<'_, S> {
        let mut places: Vec<usize> = hashes
            .iter()
            .map(|&hash| place(hash, self.0.len()))
            .collect();
        places.sort_unstable();
        places.dedup();
        LockedShards {
            locked: places
                .into_iter()
                .map(|at| (at, self.0[at].0.lock()))
                .collect(),
            count: self.0.len(),
        }
    }

    /// Locks the shards of several keys together and returns the time, as
    /// [`lock_at`](Self::lock_at) does: the time is never before the latest decision of any of
    /// them, unless the clock went back.
    pub(super) fn lock_all_at(
        &self,
        hashes: &[u64],
        clock: impl Fn() -> u64,
    ) -> (LockedShards<'_, S>, u64) {
        let mut now_us = clock();
        let mut shards = self.lock_all(hashes);
        if shards
            .locked
            .iter()
            .any(|(_, timed)| now_us < timed.newest_us)
        {
            now_us = clock();
        }
        shards
            .locked
            .iter_mut()
            .for_each(|(_, timed)| timed.newest_us = now_us);
        (shards, now_us)
    }

    pub(super) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, Timed<S>>> {
        self.0.iter().map(|line| line.0.lock())
    }
}

impl<S> LockedShards<'_, S> {
    /// Returns the shard of a key whose hash was given.
    pub(super) fn shard(&mut self, hash: u64) -> &mut S {
        let wanted = place(hash, self.count);
        let at = self.locked.partition_point(|(at, _)| *at < wanted);
        &mut self.locked[at].1.shard
    }
}

/// Returns the index of the shard of a key, of `count` shards.
#[inline]
fn place(hash: u64, count: usize) -> usize {
    // The upper half of the hash selects the shard: the table inside uses the low bits. The
    // multiplication scales it to the number of shards and is cheaper than a remainder.
    (((hash >> 32) * count as u64) >> 32) as usize
}
