//! What the threads of a process share. The lock comes from the module above, so that the same
//! lines run under a model checker.

use super::sync::{Mutex, MutexGuard};

/// Parts of a store, each behind a lock of its own. Which one a key is in, its hash says.
pub(super) struct Shards<S>(Box<[Mutex<Timed<S>>]>);

/// A part, and when it was last decided on.
pub(super) struct Timed<S> {
    pub(super) shard: S,
    newest_us: u64,
}

impl<S> Shards<S> {
    pub(super) fn new(count: usize, shard: impl Fn() -> S) -> Self {
        let timed = || Mutex::new(Timed { shard: shard(), newest_us: 0 });
        Self(std::iter::repeat_with(timed).take(count).collect())
    }

    /// The part of a key, alone.
    #[inline]
    pub(super) fn lock(&self, hash: u64) -> MutexGuard<'_, Timed<S>> {
        // The table inside uses the low bits and the topmost seven of a product of it. This is the
        // upper half's share of the shards: a multiplication where a remainder would be a division.
        let at = (((hash >> 32) * self.0.len() as u64) >> 32) as usize;
        lock(&self.0[at])
    }

    /// The part of a key, alone, and the time. It is that of the last decision or later, as long as
    /// the clock does not go back.
    #[inline]
    pub(super) fn lock_at(&self, hash: u64, clock: impl Fn() -> u64) -> (MutexGuard<'_, Timed<S>>, u64) {
        // Before the lock, so that it is held for less.
        let mut now_us = clock();
        let mut timed = self.lock(hash);
        if now_us < timed.newest_us {
            // Another was faster in between, or the clock went back.
            now_us = clock();
        }
        timed.newest_us = now_us;
        (timed, now_us)
    }

    /// All parts, one after the other.
    pub(super) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, Timed<S>>> {
        self.0.iter().map(lock)
    }
}

/// A panic while the lock is held leaves whole states behind, so the lock is never poisoned.
#[inline]
fn lock<S>(shard: &Mutex<Timed<S>>) -> MutexGuard<'_, Timed<S>> {
    shard.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
