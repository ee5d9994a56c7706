//! Checks that wait to be sent. The lock comes from the module above, so that the same lines run
//! under a model checker.

use std::{collections::VecDeque, sync::Weak};

use super::{
    breaker::Breaker,
    sync::{Mutex, MutexGuard},
};

/// A queue that takes nothing while the breaker is open.
#[derive(Debug)]
pub(super) struct Queue<J>(Mutex<Waiting<J>>);

#[derive(Debug)]
pub(super) struct Waiting<J> {
    pub(super) jobs: VecDeque<J>,
    /// Alive as long as the task that serves this queue is.
    pub(super) server: Weak<()>,
    /// Nobody can add to the queue any more.
    pub(super) closed: bool,
}

/// What waits, and since which opening of the breaker.
pub(super) trait Dated {
    fn asked_after(&self) -> u64;
}

/// Why a job was not taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The server is not asked.
    Open,
    /// Too many wait.
    Full,
}

impl<J> Queue<J> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Waiting { jobs: VecDeque::new(), server: Weak::new(), closed: false }))
    }

    /// A panic while the lock is held leaves a whole queue behind, so the lock is never poisoned.
    pub(super) fn lock(&self) -> MutexGuard<'_, Waiting<J>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Adds a job. It is told how often the breaker has opened so far, under the lock: it is either
    /// refused here or found by [`Waiting::overtaken`].
    pub(super) fn push(
        &self,
        breaker: &Breaker,
        room: impl FnOnce(&mut VecDeque<J>) -> bool,
        job: impl FnOnce(u64) -> J,
    ) -> Result<MutexGuard<'_, Waiting<J>>, Refused> {
        let mut waiting = self.lock();
        let asked_after = breaker.openings();
        if breaker.is_open() {
            return Err(Refused::Open);
        }
        if !room(&mut waiting.jobs) {
            return Err(Refused::Full);
        }
        waiting.jobs.push_back(job(asked_after));
        Ok(waiting)
    }
}

impl<J: Dated> Waiting<J> {
    /// Takes out what was asked before the breaker opened for the time given.
    pub(super) fn overtaken(&mut self, openings: u64) -> VecDeque<J> {
        let kept = self.jobs.iter().position(|job| job.asked_after() >= openings).unwrap_or(self.jobs.len());
        let later = self.jobs.split_off(kept);
        std::mem::replace(&mut self.jobs, later)
    }
}
