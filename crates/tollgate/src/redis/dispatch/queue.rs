//! The queue before one server. The lock comes from `redis::sync`, so that a model checker runs the same lines.

use std::{collections::VecDeque, sync::Weak};

use crate::redis::{
    server::Breaker,
    sync::{Mutex, MutexGuard},
};

/// Holds the checks that wait to be sent. Accepts none while the breaker is open.
#[derive(Debug)]
pub(in crate::redis) struct Queue<Q>(Mutex<Waiting<Q>>);

#[derive(Debug)]
pub(in crate::redis) struct Waiting<Q> {
    pub(in crate::redis) checks: VecDeque<Q>,
    /// Alive as long as the worker of this queue is.
    pub(in crate::redis) worker: Weak<()>,
    /// Tells whether no check can be added any more.
    pub(in crate::redis) is_closed: bool,
}

/// Has the epoch of the breaker at which it was queued.
pub(in crate::redis) trait Queued {
    fn breaker_epoch(&self) -> u64;
}

/// Tells why a check was not queued.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::redis) enum NotQueued {
    /// The breaker is open.
    BreakerOpen,
    /// Too many checks wait.
    Full,
}

impl<Q> Queue<Q> {
    pub(in crate::redis) fn new() -> Self {
        Self(Mutex::new(Waiting { checks: VecDeque::new(), worker: Weak::new(), is_closed: false }))
    }

    /// A panic cannot leave a partial queue behind this lock, so a poisoned lock is used as it is.
    pub(in crate::redis) fn lock(&self) -> MutexGuard<'_, Waiting<Q>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Adds a check. `check` is given the epoch of the breaker, under the lock: so the check is either refused here, or
    /// found by [`Waiting::take_overtaken`].
    pub(in crate::redis) fn push(
        &self,
        breaker: &Breaker,
        has_room: impl FnOnce(&mut VecDeque<Q>) -> bool,
        check: impl FnOnce(u64) -> Q,
    ) -> Result<MutexGuard<'_, Waiting<Q>>, NotQueued> {
        let mut waiting = self.lock();
        let epoch = breaker.epoch();
        if breaker.is_open() {
            return Err(NotQueued::BreakerOpen);
        }
        if !has_room(&mut waiting.checks) {
            return Err(NotQueued::Full);
        }
        waiting.checks.push_back(check(epoch));
        Ok(waiting)
    }
}

impl<Q: Queued> Waiting<Q> {
    /// Takes the checks that were queued before this epoch of the breaker.
    pub(in crate::redis) fn take_overtaken(&mut self, epoch: u64) -> VecDeque<Q> {
        let kept = self.checks.iter().position(|check| check.breaker_epoch() >= epoch).unwrap_or(self.checks.len());
        let later = self.checks.split_off(kept);
        std::mem::replace(&mut self.checks, later)
    }
}
