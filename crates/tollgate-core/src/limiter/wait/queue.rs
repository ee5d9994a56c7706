//! Queues of callers that wait in this process, one for each key and policy set.
//!
//! Limiters that differ in their policies alone share the queues. A denial is passed to the callers
//! behind, so callers with other policies have a queue of their own.
//! When a caller checks again is decided in `mod.rs`; how callers stand in line is in `fifo.rs`.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::time::Instant;
use tollgate_model::raw::DecisionParts;

use crate::{
    Decision, Key, PolicySet,
    limiter::fifo::{Caller, Callers, Fifo},
    lock::Lock,
    random,
};

/// The queues of a limiter: one for each key and policy set that somebody waits for.
#[derive(Debug)]
pub(crate) struct WaitQueues {
    pub(super) queues: Lock<HashMap<Key, KeyQueues>>,
    /// The number of waiting callers: in all queues together, and for their delays.
    pub(super) waiting: Callers,
    pub(super) contests: Contests,
}

/// The queues of one key. Nearly always there is one.
#[derive(Debug, Default)]
pub(super) struct KeyQueues(Vec<WaitQueue>);

/// The callers that wait for one key under one policy set.
#[derive(Debug)]
struct WaitQueue {
    policies: PolicySet,
    queue: Arc<Fifo>,
    /// The latest denial that the first caller received.
    last_denial: Option<QueuedDenial>,
}

/// A denial, and the times of the next attempt and of the turn.
#[derive(Clone, Debug)]
pub(super) struct QueuedDenial {
    pub(super) decision: Decision,
    pub(super) retry_at: Instant,
    /// The earliest turn of the caller, if nobody else spends: in a queue, after all that is in it.
    pub(super) turn_at: Instant,
}

impl QueuedDenial {
    /// Creates the denial that arrived at `now`. The error is an admission, or a denial whose turn
    /// never comes.
    pub(super) fn of(decision: Decision, now: Instant) -> Result<Self, Decision> {
        let retry_at = decision
            .retry_after()
            .and_then(|retry| now.checked_add(retry));
        match retry_at.zip(now.checked_add(decision.turn_after())) {
            Some((retry_at, turn_at)) => Ok(Self {
                retry_at,
                turn_at: turn_at.max(retry_at),
                decision,
            }),
            None => Err(decision),
        }
    }

    /// Returns the earliest turn of a caller behind `ahead` others. Each of the others spends at
    /// least one unit.
    pub(super) fn earliest_behind(&self, ahead: usize) -> Instant {
        let Some(state) = self.decision.strictest() else {
            return self.turn_at;
        };
        let quota = state.policy().quota();
        let (ahead, amount, period_ns) = (
            ahead as u128,
            u128::from(quota.amount()),
            quota.period().as_nanos(),
        );
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
    pub(super) queue: Arc<Fifo>,
    _waits: Caller<'a>,
}

impl WaitQueues {
    pub(crate) fn new(max_waiting: usize) -> Self {
        Self {
            queues: Lock::default(),
            waiting: Callers::new(max_waiting),
            contests: Contests::default(),
        }
    }

    /// Returns `true` when somebody waits for the key under these policies.
    pub(super) fn has(&self, key: &Key, policies: &PolicySet) -> bool {
        self.waiting.callers() > 0
            && self
                .queues
                .lock()
                .get(key)
                .is_some_and(|queues| queues.find(policies).is_some())
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
    ) -> Result<QueueTicket<'a>, Option<Box<QueuedDenial>>> {
        let mut queues = self.queues.lock();
        let queue = queues.get(key).and_then(|queues| queues.find(policies));
        let denial = queue.and_then(|queue| queue.last_denial.as_ref());
        let is_too_late = |queue: &WaitQueue, denial: &QueuedDenial| {
            deadline
                .is_some_and(|deadline| denial.earliest_behind(queue.queue.callers()) > deadline)
        };
        let is_late = queue
            .zip(denial)
            .is_some_and(|(queue, denial)| is_too_late(queue, denial));
        let Some(waits) = (if is_late { None } else { self.waiting.join() }) else {
            return Err(denial.cloned().map(Box::new));
        };
        let queue = queues.entry(key.clone()).or_default().join(policies);
        Ok(QueueTicket {
            queues: self,
            key,
            policies,
            queue,
            _waits: waits,
        })
    }
}

impl KeyQueues {
    fn find(&self, policies: &PolicySet) -> Option<&WaitQueue> {
        self.0.iter().find(|queue| queue.policies == *policies)
    }

    fn find_mut(&mut self, policies: &PolicySet) -> Option<&mut WaitQueue> {
        self.0.iter_mut().find(|queue| queue.policies == *policies)
    }

    /// Adds a caller. Returns its queue.
    fn join(&mut self, policies: &PolicySet) -> Arc<Fifo> {
        let queue = self
            .find(policies)
            .map_or_else(Arc::default, |queue| Arc::clone(&queue.queue));
        if queue.callers() == 0 {
            self.0.push(WaitQueue {
                policies: policies.clone(),
                queue: Arc::clone(&queue),
                last_denial: None,
            });
        }
        queue.join();
        queue
    }
}

impl QueueTicket<'_> {
    /// Stores the denial of the first caller for the callers behind it.
    pub(super) fn set_last_denial(&self, denial: QueuedDenial) {
        if let Some(queue) = self
            .queues
            .queues
            .lock()
            .get_mut(self.key)
            .and_then(|queues| queues.find_mut(self.policies))
        {
            queue.last_denial = Some(denial);
        }
    }

    pub(super) fn last_denial(&self) -> Option<QueuedDenial> {
        self.queues
            .queues
            .lock()
            .get(self.key)?
            .find(self.policies)?
            .last_denial
            .clone()
    }
}

impl Drop for QueueTicket<'_> {
    fn drop(&mut self) {
        let mut queues = self.queues.queues.lock();
        if self.queue.leave()
            && let Some(of_key) = queues.get_mut(self.key)
        {
            of_key.0.retain(|queue| queue.queue.callers() > 0);
            if of_key.0.is_empty() {
                queues.remove(self.key);
            }
        }
    }
}

/// The most time by which a caller comes later.
const LATEST: Duration = Duration::from_millis(10);

/// The longest time for which a place counts as got lately, and refused callers are expected after
/// their time.
const LONGEST_PACE: Duration = Duration::from_secs(60);

/// The most keys whose contests are known.
const MOST_CONTESTS: usize = 1_024;

/// The contests of several processes for the places of full queues: one for each key whose callers
/// were refused.
///
/// Callers that were refused come back when a place is free, and the first one gets it. Timers fire
/// in steps of a millisecond, and the steps of two processes keep their distance. So the same
/// process would come first each time. Here a process that got a place lately comes behind the
/// others, and each process draws its own time.
#[derive(Debug, Default)]
pub(crate) struct Contests(Lock<HashMap<Key, Contest>>);

#[derive(Debug)]
struct Contest {
    /// The time from one place to the next, or longer.
    pace: Duration,
    /// The time until which refused callers are expected to come back.
    until: Instant,
    /// The time until which a place counts as got lately.
    won_until: Instant,
    /// The share of the time by which the callers of this process come later, and the time until
    /// which it is theirs.
    lot: f64,
    lot_until: Instant,
}

impl Contests {
    /// Returns the time by which a caller comes later that may wait for `max_wait`. It is nothing
    /// unless callers of this process were refused lately.
    pub(super) fn pause(&self, key: &Key, max_wait: Duration, now: Instant) -> Duration {
        let mut contests = self.0.lock();
        let Some(contest) = contests.get_mut(key).filter(|contest| now <= contest.until) else {
            return Duration::ZERO;
        };
        if now >= contest.lot_until {
            contest.lot = random::bits() as f64 / u64::MAX as f64;
            contest.lot_until = now + contest.pace / 2;
        }
        let behind = f64::from(u8::from(now < contest.won_until));
        LATEST
            .min(max_wait / 4)
            .mul_f64((behind + contest.lot) / 2.0)
    }

    pub(super) fn decided(&self, key: &Key, decision: &Decision, now: Instant) {
        if decision.is_degraded() {
            return;
        }
        let mut contests = self.0.lock();
        let Some(retry) = decision.retry_after() else {
            if let Some(contest) = contests.get_mut(key) {
                contest.won_until = now + contest.pace * 3 / 2;
            }
            return;
        };
        let Some(state) = decision.strictest() else {
            return;
        };
        let quota = state.policy().quota();
        let turn = Duration::from_secs_f64(quota.period().as_secs_f64() / quota.amount() as f64);
        let pace = turn.clamp(2 * LATEST, LONGEST_PACE);
        let Some(until) = now.checked_add(retry.saturating_add(2 * pace)) else {
            return;
        };
        if contests.len() >= MOST_CONTESTS {
            contests.retain(|_, contest| now <= contest.until);
        }
        if let Some(contest) = contests.get_mut(key) {
            (contest.pace, contest.until) = (pace, until);
        } else if contests.len() < MOST_CONTESTS {
            contests.insert(
                key.clone(),
                Contest {
                    pace,
                    until,
                    won_until: now,
                    lot: 0.0,
                    lot_until: now,
                },
            );
        }
    }
}
