//! Whether the server is asked. The atomics come from the module above, so that the same lines run
//! under a model checker.

use super::sync::{AtomicU32, AtomicU64, Ordering};

/// A breaker for one server.
///
/// Closed: checks go to the server. Open: they are answered without it, until one probe was
/// answered. It opens when [`LIMIT`] checks in a row ran into their deadline and nothing was heard
/// from the server in between, and at once when no connection can be made.
///
/// Who opens it starts the probe, so there is never more than one.
#[derive(Debug)]
pub(super) struct Breaker {
    /// How often it opened, and in the low byte the misses in a row; at [`LIMIT`] it is open.
    word: AtomicU64,
    /// Probes that were answered since a check was.
    in_vain: AtomicU32,
}

/// So many checks in a row that ran into their deadline open it.
const LIMIT: u64 = 3;

const MISSES: u64 = 0xff;
const OPENING: u64 = MISSES + 1;

impl Breaker {
    pub(super) fn new() -> Self {
        Self { word: AtomicU64::new(0), in_vain: AtomicU32::new(0) }
    }

    pub(super) fn is_open(&self) -> bool {
        self.word.load(Ordering::Acquire) & MISSES == LIMIT
    }

    /// How often it opened. What was asked before the last opening is not waited for.
    pub(super) fn openings(&self) -> u64 {
        self.word.load(Ordering::Acquire) / OPENING
    }

    /// A check ran into its deadline. Says whether that opened it.
    pub(super) fn missed(&self) -> bool {
        let count = |word: u64| match word & MISSES {
            LIMIT => None,
            misses if misses == LIMIT - 1 => Some(word + OPENING + 1),
            _ => Some(word + 1),
        };
        let before = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, count);
        before.is_ok_and(|word| word & MISSES == LIMIT - 1)
    }

    /// Opens it at once. Says whether it was closed.
    pub(super) fn open(&self) -> bool {
        let open = |word: u64| (word & MISSES != LIMIT).then_some((word & !MISSES) + OPENING + LIMIT);
        self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, open).is_ok()
    }

    /// The server said something. Only a probe closes what is open: a late answer tells of the
    /// past.
    pub(super) fn heard(&self) {
        let forget = |word: u64| matches!(word & MISSES, 1..LIMIT).then_some(word & !MISSES);
        if forget(self.word.load(Ordering::Relaxed)).is_some() {
            let _ = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, forget);
        }
    }

    /// A check was answered in time.
    pub(super) fn served(&self) {
        if self.in_vain.load(Ordering::Relaxed) > 0 {
            self.in_vain.store(0, Ordering::Relaxed);
        }
    }

    /// The probe was answered. For the one that probes.
    pub(super) fn close(&self) {
        self.in_vain.fetch_add(1, Ordering::Relaxed);
        self.leave(0);
    }

    /// Nobody probes any more: the next check that misses its deadline opens it again.
    pub(super) fn abandon(&self) {
        self.leave(LIMIT - 1);
    }

    /// How many probes were answered since a check was: a server that answers probes and no checks
    /// is probed less and less often.
    pub(super) fn in_vain(&self) -> u32 {
        self.in_vain.load(Ordering::Relaxed)
    }

    fn leave(&self, misses: u64) {
        let leave = |word: u64| (word & MISSES == LIMIT).then_some((word & !MISSES) + misses);
        let _ = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, leave);
    }
}
