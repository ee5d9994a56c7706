use std::{
    fmt,
    time::{Duration, Instant},
};

use super::table::{Epoch, EpochTable};
use crate::{
    Check, CheckFuture, Cost, Deadline, Decision, Key, PolicySet, algorithm::later, policy_levels::PolicyLevels,
};

/// Remembers denials that still hold, so that a client that keeps asking costs the server nothing.
///
/// A request that was denied with a wait of ρ stays denied until ρ after it was *sent*: the server decided no earlier,
/// and other requests can only make the wait longer. The denial ends sooner only when units are refunded, the key is
/// reset, the quota is raised, the state is lost, or the clock steps. A refund or a reset in this process clears the
/// entry. For all other cases an entry is kept no longer than the cap.
///
/// The memory is allocated once. A lookup takes no lock.
pub(in crate::redis) struct DenyCache {
    table: EpochTable<Denial>,
    cap: Duration,
}

struct Denial {
    key: Key,
    policies: PolicySet,
    cost: Cost,
    sent: Instant,
    until: Instant,
    at_us: u64,
    levels: PolicyLevels,
}

/// The default of the cap.
pub(in crate::redis) const DEFAULT_CAP: Duration = Duration::from_secs(1);

/// The number of entries. When more keys are denied at once, some repeated requests reach the server.
const ENTRIES: usize = 1 << 14;

impl DenyCache {
    pub(in crate::redis) fn new(cap: Duration) -> Self {
        Self { table: EpochTable::new(ENTRIES), cap }
    }

    /// Returns the answer to a check that is known to be denied. `hash` is the hash of its key, here and below.
    #[inline]
    pub(in crate::redis) fn look_up(&self, check: &Check<'_>, hash: u64) -> Option<CheckFuture> {
        self.table.find(hash, |denial| {
            if !denial.is_of(check.policies, check.key, check.cost) {
                return None;
            }
            // The start of the check saves a look at the clock, which takes a fifth of the time of this answer.
            let now = check.deadline.map_or_else(now, Deadline::start);
            // Built here, so that it is not copied from function to function.
            (now < denial.until).then(|| CheckFuture::ready(Ok(denial.decision(now))))
        })
    }

    /// Returns the epoch of a key. Take it before the check is sent.
    #[inline]
    pub(in crate::redis) fn epoch(&self, hash: u64) -> Epoch {
        self.table.epoch(hash)
    }

    /// Remembers a decision if it is a denial. The check was sent at `sent`, and `epoch` was taken before.
    pub(in crate::redis) fn remember(&self, key: &Key, hash: u64, sent: Instant, epoch: Epoch, decision: &Decision) {
        let Some(retry) = decision.retry_after() else { return };
        let Some(until) = sent.checked_add(retry.min(self.cap)) else { return };
        if until <= now() {
            return;
        }
        let denial = Denial {
            policies: decision.policies().clone(),
            cost: decision.cost(),
            sent,
            until,
            at_us: decision.at_us(),
            levels: decision.levels().clone(),
            key: key.clone(),
        };
        // Replaces the entry of the same check, or the entry that ends first.
        self.table.insert(hash, epoch, denial, |held| {
            held.filter(|held| !held.is_of(decision.policies(), key, decision.cost())).map(|held| held.until)
        });
    }

    /// Forgets the denials of a key.
    pub(in crate::redis) fn forget(&self, key: &Key, hash: u64) {
        self.table.forget(hash, |denial| denial.key == *key);
    }
}

impl Denial {
    fn is_of(&self, policies: &PolicySet, key: &Key, cost: Cost) -> bool {
        self.key == *key && self.cost == cost && self.policies.is_same(policies)
    }

    /// Returns the decision that the server would make now, marked as remembered.
    fn decision(&self, now: Instant) -> Decision {
        let passed_us = crate::clock::micros(now - self.sent);
        let cost = self.cost.get();
        let levels = self.levels.map(&self.policies, |policy, level| later(policy, level, self.at_us, passed_us, cost));
        Decision::from_levels(&self.policies, levels, self.cost, self.at_us).marked_remembered()
    }
}

/// Returns tokio's time, as the start of a deadline does.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

impl fmt::Debug for DenyCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DenyCache").field("cap", &self.cap).finish_non_exhaustive()
    }
}
