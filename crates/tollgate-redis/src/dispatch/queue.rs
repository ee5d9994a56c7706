//! The queue before one server. The lock comes from `redis::sync`, so that a model checker runs the
//! same lines.
//! When the checks leave is decided in `pacer/`, who takes them is the worker.

use std::collections::{HashSet, VecDeque};

use super::pacer::Pacer;
use crate::{
    server::Breaker,
    sync::{Lock, MutexGuard},
};

/// Holds the checks that wait to be sent, and their pacer. Accepts none while the breaker is open.
#[derive(Debug)]
pub(crate) struct Queue<Q>(Lock<Waiting<Q>>);

#[derive(Debug)]
pub(crate) struct Waiting<Q> {
    checks: VecDeque<Q>,
    /// The number of waiting checks by the hash of their key: hot keys have many.
    key_counts: Box<[u32]>,
    pub(super) pacer: Pacer,
    pub(super) scripts: KnownScripts,
    /// No check can be added any more.
    pub(crate) is_closed: bool,
}

/// The number of distinct hashes. A power of two.
const HASHES: usize = 1_024;

/// A check in a queue.
pub(crate) trait Queued {
    /// Returns the epoch of the breaker at which it was queued.
    fn breaker_epoch(&self) -> u64;

    /// Returns the hash of the key.
    fn key_hash(&self) -> u64;
}

/// The scripts that the server has cached, because their bodies were sent on the current connection.
#[derive(Debug, Default)]
pub(super) struct KnownScripts {
    /// The number of the connection.
    connection: u64,
    shas: HashSet<String>,
    /// The last one. Most calls are of the same script.
    last: String,
}

/// The most scripts that are remembered. With one more, all are forgotten, and each body is sent
/// again.
const MOST_SCRIPTS: usize = 4_096;

impl KnownScripts {
    /// Returns whether the server has the script from this connection, and records that it has from
    /// now on: on `false`, the caller sends its body.
    pub(super) fn know(&mut self, connection: u64, sha: &str) -> bool {
        if self.connection != connection || self.shas.len() > MOST_SCRIPTS {
            *self = Self {
                connection,
                ..Self::default()
            };
        }
        if self.last == sha {
            return true;
        }
        sha.clone_into(&mut self.last);
        !self.shas.insert(sha.to_owned())
    }

    /// Forgets all scripts, because the server has.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

impl<Q: Queued> Queue<Q> {
    pub(super) fn new(pacer: Pacer) -> Self {
        let (checks, key_counts, scripts) = (
            VecDeque::new(),
            vec![0; HASHES].into(),
            KnownScripts::default(),
        );
        Self(Lock::new(Waiting {
            checks,
            key_counts,
            pacer,
            scripts,
            is_closed: false,
        }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Waiting<Q>> {
        self.0.lock()
    }

    /// Locks the queue for a check that comes, and returns the epoch of the breaker. `None` while
    /// the breaker is open. The epoch is read under the lock: so the check is either refused here,
    /// or found by [`Waiting::take_overtaken`].
    pub(crate) fn enter(&self, breaker: &Breaker) -> Option<(MutexGuard<'_, Waiting<Q>>, u64)> {
        let waiting = self.lock();
        let epoch = breaker.epoch();
        (!breaker.is_open()).then_some((waiting, epoch))
    }
}

impl<Q: Queued> Waiting<Q> {
    pub(crate) fn len(&self) -> usize {
        self.checks.len()
    }

    /// Returns how many checks of a key wait, or more: keys whose hashes collide are counted together.
    pub(crate) fn waiting_of_key(&self, key_hash: u64) -> usize {
        self.key_counts[slot(key_hash)] as usize
    }

    /// Adds a check.
    pub(crate) fn push_back(&mut self, check: Q) {
        self.pacer.queued();
        *self.count_of(check.key_hash()) += 1;
        self.checks.push_back(check);
    }

    /// Takes the check that has waited longest.
    pub(crate) fn pop_front(&mut self) -> Option<Q> {
        let check = self.checks.pop_front()?;
        *self.count_of(check.key_hash()) -= 1;
        Some(check)
    }

    /// Puts a check back before all others.
    pub(crate) fn push_front(&mut self, check: Q) {
        *self.count_of(check.key_hash()) += 1;
        self.checks.push_front(check);
    }

    /// Keeps the checks for which this holds.
    pub(crate) fn retain(&mut self, keep: impl Fn(&Q) -> bool) {
        self.checks.retain(keep);
        self.count_again();
    }

    /// Takes all checks.
    pub(crate) fn take_all(&mut self) -> VecDeque<Q> {
        self.key_counts.fill(0);
        std::mem::take(&mut self.checks)
    }

    /// Takes the checks that were queued before this epoch of the breaker.
    pub(crate) fn take_overtaken(&mut self, epoch: u64) -> VecDeque<Q> {
        let kept = self
            .checks
            .iter()
            .position(|check| check.breaker_epoch() >= epoch)
            .unwrap_or(self.checks.len());
        let later = self.checks.split_off(kept);
        let overtaken = std::mem::replace(&mut self.checks, later);
        self.count_again();
        overtaken
    }

    fn count_of(&mut self, key_hash: u64) -> &mut u32 {
        &mut self.key_counts[slot(key_hash)]
    }

    fn count_again(&mut self) {
        self.key_counts.fill(0);
        for check in &self.checks {
            self.key_counts[slot(check.key_hash())] += 1;
        }
    }
}

fn slot(key_hash: u64) -> usize {
    key_hash as usize % HASHES
}
