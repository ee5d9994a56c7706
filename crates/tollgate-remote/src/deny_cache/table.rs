//! A table of a fixed size. The atomics come from `sync.rs`, so that a model checker runs the
//! same lines.
//! What is kept in it, and when it ends, is decided in `cache.rs`.

use std::{iter, sync::Arc};

use crate::sync::{ArcSwapOption, AtomicU32, AtomicU64, Ordering, fence};

/// Keeps up to two entries for each hash. A lookup takes no lock. An entry that was requested
/// before its key was forgotten is not inserted afterwards.
pub(crate) struct EpochTable<T>(Box<[Pair<T>]>);

/// Most lookups find nothing. All that such a lookup reads lies side by side, in one cache line.
#[repr(align(32))]
struct Pair<T> {
    /// A part of the hash of each entry. It saves most lookups the comparison of the key. Two keys
    /// may share a mark, and a mark may belong to an earlier entry.
    marks: [AtomicU32; 2],
    /// Counts how often a key of this pair was forgotten.
    epoch: AtomicU64,
    entries: [ArcSwapOption<T>; 2],
}

/// Marks a time in the life of a pair: how often one of its keys was forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PairEpoch(u64);

impl iter::Sum for PairEpoch {
    fn sum<I: Iterator<Item = Self>>(epochs: I) -> Self {
        Self(epochs.map(|Self(count)| count).fold(0, u64::wrapping_add))
    }
}

impl<T> EpochTable<T> {
    /// # Panics
    ///
    /// When `count` is odd.
    pub(crate) fn new(count: usize) -> Self {
        assert!(count.is_multiple_of(2), "entries come in pairs");
        let pair = || Pair {
            marks: [AtomicU32::new(0), AtomicU32::new(0)],
            epoch: AtomicU64::new(0),
            entries: [ArcSwapOption::empty(), ArcSwapOption::empty()],
        };
        Self(std::iter::repeat_with(pair).take(count / 2).collect())
    }

    /// Returns the first result of `look` on the entries of a key.
    #[inline]
    pub(crate) fn find<R>(&self, hash: u64, look: impl Fn(&T) -> Option<R>) -> Option<R> {
        let pair = self.pair(hash);
        for (mark_of, held) in pair.marks.iter().zip(&pair.entries) {
            if mark_of.load(Ordering::Acquire) == mark(hash)
                && let Some(held) = held.load().as_deref()
                && let Some(found) = look(held)
            {
                return Some(found);
            }
        }
        None
    }

    /// Returns the epoch of a key. Take it before the entry is requested.
    #[inline]
    pub(crate) fn epoch(&self, hash: u64) -> PairEpoch {
        PairEpoch(self.pair(hash).epoch.load(Ordering::Acquire))
    }

    /// Inserts an entry that was requested at `epoch`, in place of the entry with the smallest
    /// rank.
    pub(crate) fn insert<K: Ord>(
        &self,
        hash: u64,
        epoch: PairEpoch,
        one: T,
        rank: impl Fn(Option<&T>) -> K,
    ) {
        let pair = self.pair(hash);
        let entries = pair.marks.iter().zip(&pair.entries);
        let Some((mark_of, held)) = entries.min_by_key(|(_, held)| rank(held.load().as_deref()))
        else {
            return;
        };
        held.store(Some(Arc::new(one)));
        mark_of.store(mark(hash), Ordering::Release);
        // Either this thread sees that the key was forgotten, or the thread that forgets sees the
        // new entry.
        fence(Ordering::SeqCst);
        if self.epoch(hash) != epoch {
            held.store(None);
        }
    }

    /// Removes the entries of a key for which `is` returns true.
    pub(crate) fn forget(&self, hash: u64, is: impl Fn(&T) -> bool) {
        let pair = self.pair(hash);
        pair.epoch.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        for held in &pair.entries {
            if held.load().as_deref().is_some_and(&is) {
                held.store(None);
            }
        }
    }

    #[inline]
    fn pair(&self, hash: u64) -> &Pair<T> {
        &self.0[hash as usize % self.0.len()]
    }
}

/// Returns the mark of a hash. It is never zero, the mark of an empty entry. (The other half of the
/// hash selects the pair.)
fn mark(hash: u64) -> u32 {
    (hash >> 32) as u32 | 1
}
