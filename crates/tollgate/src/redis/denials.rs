use std::{
    fmt,
    time::{Duration, Instant},
};

use super::{
    job::Job,
    slots::{Epoch, Slots},
};
use crate::{Check, CheckFuture, Cost, Decision, Key, PolicySet, algorithm::later, policy_levels::PolicyLevels};

/// Denials that still hold, remembered so that repeated refusals never reach the server.
///
/// What was denied with a retry time of ρ stays denied until ρ after the request was *sent*: the
/// server decided no earlier, and others can only push that moment further away. It comes back
/// sooner only where units are given back, the key is reset, the quota is raised, the state is
/// lost, or the clock steps; what of this happens in this process clears the entry, and for the
/// rest there is a cap on how long a denial is remembered.
///
/// The memory is fixed when it is made. A lookup takes no lock.
pub(super) struct Denials {
    slots: Slots<Denial>,
    cap: Duration,
}

struct Denial {
    key: Key,
    policies: PolicySet,
    cost: Cost,
    sent: Instant,
    until: Instant,
    at_us: u64,
    readings: PolicyLevels,
}

/// The default of the cap.
pub(super) const CAP: Duration = Duration::from_secs(1);

/// Under attack from more keys than this, some refusals reach the server.
const SLOTS: usize = 1 << 14;

impl Denials {
    pub(super) fn new(cap: Duration) -> Self {
        Self { slots: Slots::new(SLOTS), cap }
    }

    /// The answer to a check that is known to be denied; `hash` is that of its key, here and below.
    #[inline]
    pub(super) fn look_up(&self, check: &Check<'_>, hash: u64) -> Option<CheckFuture> {
        self.slots.find(hash, |denial| {
            if !denial.is_of(check.policies, check.key, check.cost) {
                return None;
            }
            let now = Instant::now();
            // Made where it is looked for, and not carried from hand to hand.
            (now < denial.until).then(|| CheckFuture::ready(Ok(denial.decision(now))))
        })
    }

    /// To be taken before a check is sent.
    #[inline]
    pub(super) fn epoch(&self, hash: u64) -> Epoch {
        self.slots.epoch(hash)
    }

    /// Remembers the decision on a check, if it is a denial.
    pub(super) fn remember(&self, job: &Job, epoch: Epoch, decision: &Decision) {
        let (key, hash, sent) = (&job.key, job.hash, job.sent);
        let Some(retry) = decision.retry_after() else { return };
        let Some(until) = sent.checked_add(retry.min(self.cap)) else { return };
        if until <= Instant::now() {
            return;
        }
        let denial = Denial {
            policies: decision.policies().clone(),
            cost: decision.cost(),
            sent,
            until,
            at_us: decision.at_us(),
            readings: decision.readings().clone(),
            key: key.clone(),
        };
        // Its own place, or that of the one that ends first.
        self.slots.remember(hash, epoch, denial, |held| {
            held.filter(|held| !held.is_of(decision.policies(), key, decision.cost())).map(|held| held.until)
        });
    }

    /// Forgets what is known of a key.
    pub(super) fn forget(&self, key: &Key, hash: u64) {
        self.slots.forget(hash, |denial| denial.key == *key);
    }
}

impl Denial {
    fn is_of(&self, policies: &PolicySet, key: &Key, cost: Cost) -> bool {
        self.key == *key && self.cost == cost && self.policies.is_same(policies)
    }

    /// The same denial, as the server would word it now.
    fn decision(&self, now: Instant) -> Decision {
        let passed_us = crate::clock::micros(now - self.sent);
        let cost = self.cost.get();
        let readings =
            self.readings.map(&self.policies, |policy, reading| later(policy, reading, self.at_us, passed_us, cost));
        Decision::from_readings(&self.policies, readings, self.cost, self.at_us)
    }
}

impl fmt::Debug for Denials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Denials").finish_non_exhaustive()
    }
}
