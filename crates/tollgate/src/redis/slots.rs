//! A fixed number of places for what is remembered of a key. The atomics come from the module above, so that the same
//! lines run under a model checker.

use std::sync::Arc;

use super::sync::{ArcSwapOption, AtomicU32, AtomicU64, Ordering, fence};

/// Two places for each hash. To look takes no lock; what was asked for before something was forgotten is not remembered
/// afterwards.
pub(super) struct Slots<T>(Box<[Pair<T>]>);

/// Most looks find that a key is not here and go on to ask, so what they read lies side by side, in one line of the
/// processor's memory.
#[repr(align(32))]
struct Pair<T> {
    /// The hash of what stands in each place, in part. A hint that spares most keys the look at it: two keys may share
    /// one, and it may be that of what stood here before.
    marks: [AtomicU32; 2],
    /// How often something was to be forgotten here.
    forgotten: AtomicU64,
    held: [ArcSwapOption<T>; 2],
}

/// How often something was to be forgotten of a key when it was asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Epoch(u64);

impl<T> Slots<T> {
    /// # Panics
    ///
    /// When `count` is odd.
    pub(super) fn new(count: usize) -> Self {
        assert!(count.is_multiple_of(2), "places come in pairs");
        let pair = || Pair {
            marks: [AtomicU32::new(0), AtomicU32::new(0)],
            forgotten: AtomicU64::new(0),
            held: [ArcSwapOption::empty(), ArcSwapOption::empty()],
        };
        Self(std::iter::repeat_with(pair).take(count / 2).collect())
    }

    /// What `look` finds in that which is remembered of a key.
    #[inline]
    pub(super) fn find<R>(&self, hash: u64, look: impl Fn(&T) -> Option<R>) -> Option<R> {
        let pair = self.pair(hash);
        for (of, held) in pair.marks.iter().zip(&pair.held) {
            if of.load(Ordering::Acquire) == mark(hash)
                && let Some(held) = held.load().as_deref()
                && let Some(found) = look(held)
            {
                return Some(found);
            }
        }
        None
    }

    /// To be taken before that is asked for which may be remembered.
    #[inline]
    pub(super) fn epoch(&self, hash: u64) -> Epoch {
        Epoch(self.pair(hash).forgotten.load(Ordering::Acquire))
    }

    /// Remembers what was asked for at `epoch`, in the place of that which has the least rank.
    pub(super) fn remember<K: Ord>(&self, hash: u64, epoch: Epoch, one: T, rank: impl Fn(Option<&T>) -> K) {
        let pair = self.pair(hash);
        let places = pair.marks.iter().zip(&pair.held);
        let Some((of, held)) = places.min_by_key(|(_, held)| rank(held.load().as_deref())) else { return };
        held.store(Some(Arc::new(one)));
        of.store(mark(hash), Ordering::Release);
        // Either we see here that something was forgotten, or whoever forgets sees what we stored.
        fence(Ordering::SeqCst);
        if self.epoch(hash) != epoch {
            held.store(None);
        }
    }

    /// Forgets what `is` says of a key.
    pub(super) fn forget(&self, hash: u64, is: impl Fn(&T) -> bool) {
        let pair = self.pair(hash);
        pair.forgotten.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        for held in &pair.held {
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

/// Never that of an empty place. (The other half of the hash finds the pair.)
fn mark(hash: u64) -> u32 {
    (hash >> 32) as u32 | 1
}
