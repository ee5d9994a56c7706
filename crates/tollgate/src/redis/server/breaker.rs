//! The circuit breaker of one server. The atomics come from `redis::sync`, so that a model checker runs the same lines.

use crate::redis::sync::{AtomicU32, AtomicU64, Ordering};

/// Decides whether checks are sent to the server.
///
/// Closed: checks go to the server. Open: checks are answered without it, until the server answers one probe. The
/// breaker opens when [`LIMIT`] calls in a row miss their deadline with no other sign of life in between, and at once
/// when no connection can be made.
///
/// The caller that opens the breaker starts the probe. So there is never more than one probe.
#[derive(Debug)]
pub(in crate::redis) struct Breaker {
    /// The epoch, and in the low byte the number of misses in a row. The breaker is open at [`LIMIT`].
    word: AtomicU64,
    /// Probes that were answered since a check was answered.
    probes_in_vain: AtomicU32,
}

/// The number of misses in a row that opens the breaker.
const LIMIT: u64 = 3;

const MISSES: u64 = 0xff;
const EPOCH: u64 = MISSES + 1;

impl Breaker {
    pub(in crate::redis) fn new() -> Self {
        Self { word: AtomicU64::new(0), probes_in_vain: AtomicU32::new(0) }
    }

    pub(in crate::redis) fn is_open(&self) -> bool {
        self.word.load(Ordering::Acquire) & MISSES == LIMIT
    }

    /// Returns how often the breaker has opened. A check from an earlier epoch is no longer waited for.
    pub(in crate::redis) fn epoch(&self) -> u64 {
        self.word.load(Ordering::Acquire) / EPOCH
    }

    /// Counts a check that missed its deadline. Returns whether that opened the breaker.
    pub(in crate::redis) fn missed(&self) -> bool {
        let count = |word: u64| match word & MISSES {
            LIMIT => None,
            misses if misses == LIMIT - 1 => Some(word + EPOCH + 1),
            _ => Some(word + 1),
        };
        let before = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, count);
        before.is_ok_and(|word| word & MISSES == LIMIT - 1)
    }

    /// Opens the breaker at once. Returns whether it was closed.
    pub(in crate::redis) fn open(&self) -> bool {
        let open = |word: u64| (word & MISSES != LIMIT).then_some((word & !MISSES) + EPOCH + LIMIT);
        self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, open).is_ok()
    }

    /// Resets the misses of a closed breaker after a sign of life. Only a probe closes an open one: an answer may be late.
    pub(in crate::redis) fn heard(&self) {
        let forget = |word: u64| matches!(word & MISSES, 1..LIMIT).then_some(word & !MISSES);
        if forget(self.word.load(Ordering::Relaxed)).is_some() {
            let _ = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, forget);
        }
    }

    /// Notes that a check was answered in time.
    pub(in crate::redis) fn check_answered(&self) {
        if self.probes_in_vain.load(Ordering::Relaxed) > 0 {
            self.probes_in_vain.store(0, Ordering::Relaxed);
        }
    }

    /// Closes the breaker after an answered probe. Only the probe calls this.
    pub(in crate::redis) fn close(&self) {
        self.probes_in_vain.fetch_add(1, Ordering::Relaxed);
        self.leave(0);
    }

    /// Closes the breaker because no task probes any more. The next missed check opens it again.
    pub(in crate::redis) fn abandon(&self) {
        self.leave(LIMIT - 1);
    }

    /// Returns how many probes were answered since a check was answered. A server that answers probes and no checks is
    /// probed less and less often.
    pub(in crate::redis) fn probes_in_vain(&self) -> u32 {
        self.probes_in_vain.load(Ordering::Relaxed)
    }

    fn leave(&self, misses: u64) {
        let leave = |word: u64| (word & MISSES == LIMIT).then_some((word & !MISSES) + misses);
        let _ = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, leave);
    }
}
