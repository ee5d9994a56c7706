//! Queues of callers that wait in this process, one for each key and policy set.
//!
//! Limiters that differ in their policies alone share the queues. A denial is passed to the callers behind, so
//! callers with other policies have a queue of their own.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::contest::Contests;
use crate::{Decision, Key, PolicySet};

/// The queues of a limiter: one for each key and policy set that somebody waits for.
#[derive(Debug)]
pub(crate) struct WaitQueues {
    queues: Mutex<HashMap<Key, KeyQueues>>,
    /// The number of waiting callers: in all queues together, and for their delays.
    pub(super) waiting: AtomicUsize,
    max_waiting: usize,
    pub(super) contests: Contests,
}

/// The queues of one key. Nearly always there is one.
#[derive(Debug, Default)]
pub(super) struct KeyQueues(Vec<WaitQueue>);

/// The callers that wait for one key under one policy set.
#[derive(Debug)]
struct WaitQueue {
    policies: PolicySet,
    waiting: usize,
    /// Held by the first caller of the queue. Tokio's mutex passes it on in the order of arrival.
    front: Arc<tokio::sync::Mutex<()>>,
    /// The latest denial that the first caller received.
    last_denial: Option<Denial>,
}

/// A denial, the time of the next attempt, and that of the turn.
#[derive(Clone, Debug)]
pub(super) struct Denial {
    pub(super) decision: Decision,
    pub(super) retry_at: Instant,
    /// The earliest turn of the caller, if nobody else spends: in a queue, after all that is in it.
    pub(super) turn_at: Instant,
}

impl Denial {
    /// Creates the denial that arrived at `now`. The error is an admission, or a denial whose turn never comes.
    pub(super) fn of(decision: Decision, now: Instant) -> Result<Self, Decision> {
        let retry_at = decision.retry_after().and_then(|retry| now.checked_add(retry));
        match retry_at.zip(now.checked_add(decision.turn_after())) {
            Some((retry_at, turn_at)) => Ok(Self { retry_at, turn_at: turn_at.max(retry_at), decision }),
            None => Err(decision),
        }
    }

    /// Returns the earliest turn of a caller behind `ahead` others. Each of the others spends at least one unit.
    pub(super) fn earliest_behind(&self, ahead: usize) -> Instant {
        let Some(state) = self.decision.binding() else { return self.turn_at };
        let quota = state.policy().quota();
        let (ahead, amount, period_ns) = (ahead as u128, u128::from(quota.amount()), quota.period().as_nanos());
        let wait_ns = match state.policy().algorithm().is_continuous() {
            true => period_ns * ahead / amount,
            // Many units can return at the same time.
            false => period_ns * (ahead / amount),
        };
        let wait = Duration::from_nanos(u64::try_from(wait_ns).unwrap_or(u64::MAX));
        self.turn_at.checked_add(wait).unwrap_or(self.turn_at)
    }
}

/// The membership of one caller in a queue. Dropping it leaves the queue.
pub(super) struct QueueTicket<'a> {
    queues: &'a WaitQueues,
    key: &'a Key,
    policies: &'a PolicySet,
    pub(super) front: Arc<tokio::sync::Mutex<()>>,
}

impl WaitQueues {
    pub(crate) fn new(max_waiting: usize) -> Self {
        Self { queues: Mutex::default(), waiting: AtomicUsize::new(0), max_waiting, contests: Contests::default() }
    }

    /// Returns `true` when somebody waits for the key under these policies.
    pub(super) fn has(&self, key: &Key, policies: &PolicySet) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
            && self.lock().get(key).is_some_and(|queues| queues.find(policies).is_some())
    }

    /// Returns whether the most callers wait.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) >= self.max_waiting
    }

    /// Counts a caller that waits for its delay, until the returned value is dropped.
    pub(super) fn count(&self) -> impl Drop + '_ {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Counted(&self.waiting)
    }

    /// Adds a caller to the end of the queue.
    ///
    /// Refuses when too many callers wait, or when the caller cannot be admitted before the
    /// deadline. The error holds the latest denial of the queue, if there is one.
    pub(super) fn join<'a>(
        &'a self,
        key: &'a Key,
        policies: &'a PolicySet,
        deadline: Option<Instant>,
    ) -> Result<QueueTicket<'a>, Option<Box<Denial>>> {
        let mut queues = self.lock();
        let queue = queues.get(key).and_then(|queues| queues.find(policies));
        let denial = queue.and_then(|queue| queue.last_denial.as_ref());
        let is_too_late = |queue: &WaitQueue, denial: &Denial| {
            deadline.is_some_and(|deadline| denial.earliest_behind(queue.waiting) > deadline)
        };
        if self.is_full() || queue.zip(denial).is_some_and(|(queue, denial)| is_too_late(queue, denial)) {
            return Err(denial.cloned().map(Box::new));
        }
        let front = queues.entry(key.clone()).or_default().join(policies);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Ok(QueueTicket { queues: self, key, policies, front })
    }

    /// Locks the queues. Poisoning is ignored: each queue is changed in one step, so a panic leaves every queue valid.
    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<Key, KeyQueues>> {
        self.queues.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A caller that waits for its delay.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl KeyQueues {
    fn find(&self, policies: &PolicySet) -> Option<&WaitQueue> {
        self.0.iter().find(|queue| queue.policies == *policies)
    }

    fn find_mut(&mut self, policies: &PolicySet) -> Option<&mut WaitQueue> {
        self.0.iter_mut().find(|queue| queue.policies == *policies)
    }

    /// Adds a caller. Returns the lock that the first caller of its queue holds.
    fn join(&mut self, policies: &PolicySet) -> Arc<tokio::sync::Mutex<()>> {
        if let Some(queue) = self.find_mut(policies) {
            queue.waiting += 1;
            return Arc::clone(&queue.front);
        }
        let front = Arc::default();
        let queue = WaitQueue { policies: policies.clone(), waiting: 1, front: Arc::clone(&front), last_denial: None };
        self.0.push(queue);
        front
    }

    /// Removes a caller.
    fn leave(&mut self, policies: &PolicySet) {
        if let Some(queue) = self.find_mut(policies) {
            queue.waiting -= 1;
        }
        self.0.retain(|queue| queue.waiting > 0);
    }
}

impl QueueTicket<'_> {
    /// Stores the denial of the first caller for the callers behind it.
    pub(super) fn set_last_denial(&self, denial: Denial) {
        if let Some(queue) = self.queues.lock().get_mut(self.key).and_then(|queues| queues.find_mut(self.policies)) {
            queue.last_denial = Some(denial);
        }
    }

    /// Returns the latest denial of the queue.
    pub(super) fn last_denial(&self) -> Option<Denial> {
        self.queues.lock().get(self.key)?.find(self.policies)?.last_denial.clone()
    }
}

impl Drop for QueueTicket<'_> {
    fn drop(&mut self) {
        let mut queues = self.queues.lock();
        self.queues.waiting.fetch_sub(1, Ordering::Relaxed);
        if let Some(of_key) = queues.get_mut(self.key) {
            of_key.leave(self.policies);
            if of_key.0.is_empty() {
                queues.remove(self.key);
            }
        }
    }
}
