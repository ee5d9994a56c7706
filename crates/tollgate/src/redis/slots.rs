//! A fixed number of places for what is remembered of a key. The atomics come from the module above, so that the same
//! lines run under a model checker.

use std::sync::Arc;

use super::sync::{ArcSwapOption, AtomicU64, Ordering, fence};

/// Two places for each hash. To look takes no lock; what was asked for before something was forgotten is not remembered
/// afterwards.
pub(super) struct Slots<T>(Box<[Slot<T>]>);

struct Slot<T> {
    /// The hash of what stands here. A hint that spares most keys the look at it: two keys may share one, and it may be
    /// that of what stood here before.
    mark: AtomicU64,
    held: ArcSwapOption<T>,
    /// How often something was to be forgotten here.
    forgotten: AtomicU64,
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
        let slot = || Slot { mark: AtomicU64::new(0), held: ArcSwapOption::empty(), forgotten: AtomicU64::new(0) };
        Self(std::iter::repeat_with(slot).take(count).collect())
    }

    /// What `look` finds in that which is remembered of a key.
    #[inline]
    pub(super) fn find<R>(&self, hash: u64, look: impl Fn(&T) -> Option<R>) -> Option<R> {
        for slot in self.pair(hash) {
            if slot.mark.load(Ordering::Acquire) == mark(hash)
                && let Some(held) = slot.held.load().as_deref()
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
        Epoch(self.pair(hash).iter().map(|slot| slot.forgotten.load(Ordering::Acquire)).sum())
    }

    /// Remembers what was asked for at `epoch`, in the place of that which has the least rank.
    pub(super) fn remember<K: Ord>(&self, hash: u64, epoch: Epoch, one: T, rank: impl Fn(Option<&T>) -> K) {
        let least = self.pair(hash).iter().min_by_key(|slot| rank(slot.held.load().as_deref()));
        let Some(slot) = least else { return };
        slot.held.store(Some(Arc::new(one)));
        slot.mark.store(mark(hash), Ordering::Release);
        // Either we see here that something was forgotten, or whoever forgets sees what we stored.
        fence(Ordering::SeqCst);
        if self.epoch(hash) != epoch {
            slot.held.store(None);
        }
    }

    /// Forgets what `is` says of a key.
    pub(super) fn forget(&self, hash: u64, is: impl Fn(&T) -> bool) {
        for slot in self.pair(hash) {
            slot.forgotten.fetch_add(1, Ordering::AcqRel);
        }
        fence(Ordering::SeqCst);
        for slot in self.pair(hash) {
            if slot.held.load().as_deref().is_some_and(&is) {
                slot.held.store(None);
            }
        }
    }

    fn pair(&self, hash: u64) -> &[Slot<T>] {
        let at = (hash as usize % self.0.len()) & !1;
        &self.0[at..at + 2]
    }
}

/// Never that of an empty place.
fn mark(hash: u64) -> u64 {
    hash | 1
}
