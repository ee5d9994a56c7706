//! The queue before one server. The lock comes from `redis::sync`, so that a model checker runs the same lines.

use std::collections::VecDeque;

use super::pacer::Pacer;
use crate::redis::{
    server::Breaker,
    sync::{Mutex, MutexGuard},
};

/// Holds the checks that wait to be sent, and their pacer. Accepts none while the breaker is open.
#[derive(Debug)]
pub(in crate::redis) struct Queue<Q>(Mutex<Waiting<Q>>);

#[derive(Debug)]
pub(in crate::redis) struct Waiting<Q> {
    checks: VecDeque<Q>,
    /// The number of waiting checks by the hash of their key.
    crowds: Box<[u32]>,
    pub(super) pacer: Pacer,
    /// Is true when no check can be added any more.
    pub(in crate::redis) is_closed: bool,
}

/// The number of distinct hashes. A power of two.
const CROWDS: usize = 1_024;

/// A check in a queue.
pub(in crate::redis) trait Queued {
    /// Returns the epoch of the breaker at which it was queued.
    fn breaker_epoch(&self) -> u64;

    /// Returns the hash of the key.
    fn key_hash(&self) -> u64;
}

/// The reason why a check was not queued.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::redis) enum NotQueued<E> {
    /// The breaker is open.
    BreakerOpen,
    /// It is refused, or takes another way.
    Elsewhere(E),
}

impl<Q: Queued> Queue<Q> {
    pub(super) fn new(pacer: Pacer) -> Self {
        let (checks, crowds) = (VecDeque::new(), vec![0; CROWDS].into());
        Self(Mutex::new(Waiting { checks, crowds, pacer, is_closed: false }))
    }

    /// A panic cannot leave a partial queue behind this lock, so a poisoned lock is used as it is.
    pub(in crate::redis) fn lock(&self) -> MutexGuard<'_, Waiting<Q>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Adds the check that `admit` returns. It is given the epoch of the breaker, under the lock: so the check is either
    /// refused here, or found by [`Waiting::take_overtaken`].
    pub(in crate::redis) fn push<E>(
        &self,
        breaker: &Breaker,
        admit: impl FnOnce(&mut Waiting<Q>, u64) -> Result<Q, E>,
    ) -> Result<(), NotQueued<E>> {
        let mut waiting = self.lock();
        let epoch = breaker.epoch();
        if breaker.is_open() {
            return Err(NotQueued::BreakerOpen);
        }
        let check = admit(&mut waiting, epoch).map_err(NotQueued::Elsewhere)?;
        waiting.pacer.queued();
        *waiting.crowd_of(check.key_hash()) += 1;
        waiting.checks.push_back(check);
        Ok(())
    }
}

impl<Q: Queued> Waiting<Q> {
    pub(in crate::redis) fn len(&self) -> usize {
        self.checks.len()
    }

    /// Returns about how many checks of a key wait, at least as many as there are.
    pub(in crate::redis) fn crowd(&self, key_hash: u64) -> usize {
        self.crowds[slot(key_hash)] as usize
    }

    /// Takes the check that has waited longest.
    pub(in crate::redis) fn pop_front(&mut self) -> Option<Q> {
        let check = self.checks.pop_front()?;
        *self.crowd_of(check.key_hash()) -= 1;
        Some(check)
    }

    /// Puts a check back before all others.
    pub(in crate::redis) fn push_front(&mut self, check: Q) {
        *self.crowd_of(check.key_hash()) += 1;
        self.checks.push_front(check);
    }

    /// Keeps the checks for which this holds.
    pub(in crate::redis) fn retain(&mut self, keep: impl Fn(&Q) -> bool) {
        self.checks.retain(keep);
        self.count_again();
    }

    /// Takes all checks.
    pub(in crate::redis) fn take_all(&mut self) -> VecDeque<Q> {
        self.crowds.fill(0);
        std::mem::take(&mut self.checks)
    }

    /// Takes the checks that were queued before this epoch of the breaker.
    pub(in crate::redis) fn take_overtaken(&mut self, epoch: u64) -> VecDeque<Q> {
        let kept = self.checks.iter().position(|check| check.breaker_epoch() >= epoch).unwrap_or(self.checks.len());
        let later = self.checks.split_off(kept);
        let overtaken = std::mem::replace(&mut self.checks, later);
        self.count_again();
        overtaken
    }

    fn crowd_of(&mut self, key_hash: u64) -> &mut u32 {
        &mut self.crowds[slot(key_hash)]
    }

    fn count_again(&mut self) {
        self.crowds.fill(0);
        for check in &self.checks {
            self.crowds[slot(check.key_hash())] += 1;
        }
    }
}

fn slot(key_hash: u64) -> usize {
    key_hash as usize % CROWDS
}
