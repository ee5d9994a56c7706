//! Queues of callers that wait in this process, one for each key.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use crate::{Algorithm, Decision, Key};

/// Holds the queues of a limiter: one for each key that somebody waits for.
#[derive(Debug)]
pub(crate) struct WaitQueues {
    queues: Mutex<HashMap<Key, WaitQueue>>,
    /// The number of waiting callers in all queues together.
    pub(super) waiting: AtomicUsize,
    max_waiting: usize,
}

/// The callers that wait for one key.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    waiting: usize,
    /// Held by the first caller of the queue. Tokio's mutex passes it on in the order of arrival.
    front: Arc<tokio::sync::Mutex<()>>,
    /// The latest denial that the first caller received.
    last_denial: Option<Denial>,
}

/// A denial and the time of the next attempt.
#[derive(Clone, Debug)]
pub(super) struct Denial {
    pub(super) decision: Decision,
    pub(super) retry_at: Instant,
}

impl Denial {
    /// Returns the earliest time at which a caller behind `ahead` others can be admitted. Each of
    /// the others spends at least one unit.
    pub(super) fn earliest_behind(&self, ahead: usize) -> Instant {
        let Some(state) = self.decision.binding() else { return self.retry_at };
        let quota = state.policy().quota();
        let (ahead, amount, period_ns) = (ahead as u128, u128::from(quota.amount()), quota.period().as_nanos());
        let wait_ns = match state.policy().algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => period_ns * ahead / amount,
            // With the other algorithms many units can return at the same time.
            _ => period_ns * (ahead / amount),
        };
        let wait = Duration::from_nanos(u64::try_from(wait_ns).unwrap_or(u64::MAX));
        self.retry_at.checked_add(wait).unwrap_or(self.retry_at)
    }
}

/// The membership of one caller in a queue. Dropping it leaves the queue.
pub(super) struct QueueTicket<'a> {
    queues: &'a WaitQueues,
    key: &'a Key,
    pub(super) front: Arc<tokio::sync::Mutex<()>>,
}

impl WaitQueues {
    pub(crate) fn new(max_waiting: usize) -> Self {
        Self { queues: Mutex::default(), waiting: AtomicUsize::new(0), max_waiting }
    }

    /// Returns `true` when somebody waits for the key.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0 && self.lock().contains_key(key)
    }

    /// Adds a caller to the end of the queue.
    ///
    /// Refuses when too many callers wait, or when the caller cannot be admitted before the
    /// deadline. The error holds the latest denial of the queue, if there is one.
    pub(super) fn join<'a>(
        &'a self,
        key: &'a Key,
        deadline: Option<Instant>,
    ) -> Result<QueueTicket<'a>, Option<Box<Denial>>> {
        let mut queues = self.lock();
        let queue = queues.get(key);
        let denial = queue.and_then(|queue| queue.last_denial.as_ref());
        let is_too_late = |queue: &WaitQueue, denial: &Denial| {
            deadline.is_some_and(|deadline| denial.earliest_behind(queue.waiting) > deadline)
        };
        if self.waiting.load(Ordering::Relaxed) >= self.max_waiting
            || queue.zip(denial).is_some_and(|(queue, denial)| is_too_late(queue, denial))
        {
            return Err(denial.cloned().map(Box::new));
        }
        let queue = queues.entry(key.clone()).or_default();
        queue.waiting += 1;
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Ok(QueueTicket { queues: self, key, front: Arc::clone(&queue.front) })
    }

    /// Locks the queues. Poisoning is ignored: each queue is changed in one step, so a panic leaves every queue valid.
    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<Key, WaitQueue>> {
        self.queues.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl QueueTicket<'_> {
    /// Stores the denial of the first caller for the callers behind it.
    pub(super) fn set_last_denial(&self, denial: Denial) {
        if let Some(queue) = self.queues.lock().get_mut(self.key) {
            queue.last_denial = Some(denial);
        }
    }

    /// Returns the latest denial of the queue.
    pub(super) fn last_denial(&self) -> Option<Denial> {
        self.queues.lock().get(self.key).and_then(|queue| queue.last_denial.clone())
    }
}

impl Drop for QueueTicket<'_> {
    fn drop(&mut self) {
        let mut queues = self.queues.lock();
        self.queues.waiting.fetch_sub(1, Ordering::Relaxed);
        if let Some(queue) = queues.get_mut(self.key) {
            queue.waiting -= 1;
            if queue.waiting == 0 {
                queues.remove(self.key);
            }
        }
    }
}
