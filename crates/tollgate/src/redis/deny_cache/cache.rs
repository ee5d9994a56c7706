use std::{
    fmt,
    time::{Duration, Instant},
};

use super::table::{self, EpochTable};
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
/// A denial is remembered for a whole key. When the policies meter an outer level too, the entry also depends on the other
/// keys that share this level: it holds as long as the epoch of the outermost level is the one from before the check.
///
/// The memory is allocated once. A lookup takes no lock.
pub(in crate::redis) struct DenyCache {
    table: EpochTable<Denial>,
    cap: Duration,
}

/// Marks the time before a check was sent.
#[derive(Clone, Copy, Debug)]
pub(in crate::redis) struct Epoch {
    whole: table::Epoch,
    outermost: Option<Outermost>,
}

/// The outermost level of a nested key, and its epoch before the check was sent.
#[derive(Clone, Copy, Debug)]
struct Outermost {
    hash: u64,
    epoch: table::Epoch,
}

/// The hashes of a key.
#[derive(Clone, Copy, Debug)]
pub(in crate::redis) struct KeyHash {
    pub(in crate::redis) whole: u64,
    /// The hash of the outermost level. It equals `whole` for a key of one level.
    pub(in crate::redis) outermost: u64,
}

struct Denial {
    key: Key,
    outermost: Option<Outermost>,
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

    /// Returns the answer to a check that is known to be denied. `hash` is the hash of its whole key, here and below.
    #[inline]
    pub(in crate::redis) fn look_up(&self, check: &Check<'_>, hash: u64) -> Option<CheckFuture> {
        self.table.find(hash, |denial| {
            if !denial.is_of(check.policies, check.key, check.cost) || !self.is_current(denial) {
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
    pub(in crate::redis) fn epoch(&self, check: &Check<'_>, hash: KeyHash) -> Epoch {
        let outermost = || Outermost { hash: hash.outermost, epoch: self.table.epoch(hash.outermost) };
        let is_shared = check.policies.is_nested() && check.key.levels() > 1;
        Epoch { whole: self.table.epoch(hash.whole), outermost: is_shared.then(outermost) }
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
            outermost: epoch.outermost,
        };
        // Replaces the entry of the same check, or the entry that ends first.
        self.table.insert(hash, epoch.whole, denial, |held| {
            held.filter(|held| !held.is_of(decision.policies(), key, decision.cost())).map(|held| held.until)
        });
    }

    /// Forgets the denials of a key, and of all keys with the same outermost level.
    pub(in crate::redis) fn forget(&self, key: &Key, hash: KeyHash) {
        self.table.forget(hash.whole, |denial| denial.key == *key);
        if key.levels() > 1 {
            self.table.advance(hash.outermost);
        }
    }

    /// Returns `false` when units may have come back to an outer level of the key.
    #[inline]
    fn is_current(&self, denial: &Denial) -> bool {
        denial.outermost.is_none_or(|outermost| self.table.epoch(outermost.hash) == outermost.epoch)
    }
}

impl Denial {
    fn is_of(&self, policies: &PolicySet, key: &Key, cost: Cost) -> bool {
        self.key == *key && self.cost == cost && self.policies.is_same(policies)
    }

    /// Returns the decision that the server would make now.
    fn decision(&self, now: Instant) -> Decision {
        let passed_us = crate::clock::micros(now - self.sent);
        let cost = self.cost.units();
        let levels = self.levels.map(&self.policies, |policy, level| later(policy, level, self.at_us, passed_us, cost));
        Decision::from_levels(&self.policies, levels, self.cost, self.at_us)
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
