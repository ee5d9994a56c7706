//! Which denials are remembered, for how long, and when one is forgotten.
//! The table behind it, which is free of locks, is in `table.rs`.

use std::time::{Duration, Instant};

use foldhash::fast::RandomState;

use super::table::{self, EpochTable};
use tollgate_core::{
    Decision, Key, PolicySet,
    raw::{
        Charge, ChargeRef, CheckParts, DecisionParts, KeyParts, PolicyLevels, PolicySetParts,
        later, runtime::now,
    },
    store::{Check, CheckFuture, Deadline},
};

/// Remembers denials that still hold, so that a client that keeps asking costs the server nothing.
///
/// A request that was denied with a wait of ρ stays denied until ρ after it was *sent*: the server
/// decided no earlier, and other requests can only make the wait longer. The denial ends sooner
/// only when units are refunded, the key is reset, the quota is raised, the state is lost, or the
/// clock steps. A refund or a reset in this process clears the entry. For all other cases an entry
/// is kept no longer than the cap.
///
/// A denial is remembered for a whole key. When the policies meter an outer level or a branch too,
/// the entry also depends on the other keys that share it: it holds as long as the epochs of the
/// outermost levels are those from before the check.
///
/// The memory is allocated once. A lookup takes no lock.
pub struct DenyCache {
    table: EpochTable<RememberedDenial>,
    cap: Duration,
}

/// Marks the time before a check was sent.
#[derive(Clone, Copy, Debug)]
pub struct Epoch {
    whole: table::PairEpoch,
    shared: Option<table::PairEpoch>,
}

/// The hashes of a key.
#[derive(Clone, Debug)]
pub struct KeyHash {
    /// The hash of the whole key.
    pub whole: u64,
    /// The hash of the outermost level, in the first branch. It equals `whole` for a key of one
    /// level.
    pub outermost: u64,
    /// Makes the hashes of other levels and branches.
    pub hasher: RandomState,
}

impl KeyHash {
    /// Makes the hashes of a key.
    #[inline]
    #[must_use]
    pub fn of(key: &Key, hasher: &RandomState) -> Self {
        let whole = key.level(0).hash(hasher);
        // The hash of a level equals the hash of the key that has this level alone.
        let outermost = if key.reach() == 1 {
            whole
        } else {
            key.branch(0).level(1).hash(hasher)
        };
        Self {
            whole,
            outermost,
            hasher: hasher.clone(),
        }
    }
}

struct RememberedDenial {
    key: Key,
    shared: Option<table::PairEpoch>,
    policies: PolicySet,
    charge: Charge,
    sent: Instant,
    until: Instant,
    at_us: u64,
    levels: PolicyLevels,
}

/// The default of the cap.
pub const DEFAULT_CAP: Duration = Duration::from_secs(1);

/// The number of entries. When more keys are denied at once, some repeated requests reach the
/// server.
const ENTRIES: usize = 1 << 14;

impl DenyCache {
    /// Creates an empty cache. A denial is remembered for `cap` at most.
    #[must_use]
    pub fn new(cap: Duration) -> Self {
        Self {
            table: EpochTable::new(ENTRIES),
            cap,
        }
    }

    /// Returns the answer to a check that is known to be denied. `hash` is the hash of its key,
    /// here and below.
    #[inline]
    #[must_use]
    pub fn look_up(&self, check: &Check<'_>, hash: &KeyHash) -> Option<CheckFuture> {
        self.table.find(hash.whole, |denial| {
            // Units may have come back to a part of the key that other keys share.
            let is_current =
                || denial.shared.is_none() || denial.shared == self.shared_epoch(check, hash);
            if !denial.is_of(check.policies, check.key, check.charge()) || !is_current() {
                return None;
            }
            // The start of the check saves a look at the clock, which takes a fifth of the time of
            // this answer.
            let now = check.deadline.map_or_else(now, Deadline::start);
            // Built here, so that it is not copied from function to function.
            (now < denial.until).then(|| CheckFuture::ready(Ok(denial.decision(now))))
        })
    }

    /// Returns the epoch of a key. Take it before the check is sent.
    #[inline]
    #[must_use]
    pub fn epoch(&self, check: &Check<'_>, hash: &KeyHash) -> Epoch {
        Epoch {
            whole: self.table.epoch(hash.whole),
            shared: self.shared_epoch(check, hash),
        }
    }

    /// Returns the epoch of the parts of a key that other keys share: the outermost level, or those
    /// of all branches.
    #[inline]
    fn shared_epoch(&self, check: &Check<'_>, hash: &KeyHash) -> Option<table::PairEpoch> {
        if check.key.has_branches() {
            return Some(self.epoch_of_branches(check.key, hash));
        }
        let is_shared = check.policies.meters_parts() && check.key.reach() > 1;
        is_shared.then(|| self.table.epoch(hash.outermost))
    }

    /// Returns the sum of the epochs of all branches. None of them ever decreases, so a sum stays
    /// equal only while all do.
    #[cold]
    fn epoch_of_branches(&self, key: &Key, hash: &KeyHash) -> table::PairEpoch {
        key.branches()
            .iter()
            .map(|branch| self.table.epoch(branch.level(1).hash(&hash.hasher)))
            .sum()
    }

    /// Remembers a decision if it is a denial. The check was sent at `sent`, and `epoch` was taken
    /// before.
    pub fn remember(&self, key: &Key, hash: u64, sent: Instant, epoch: Epoch, decision: &Decision) {
        let Some(retry) = decision.retry_after() else {
            return;
        };
        let Some(until) = sent.checked_add(retry.min(self.cap)) else {
            return;
        };
        if until <= now() {
            return;
        }
        let denial = RememberedDenial {
            policies: decision.policies().clone(),
            charge: decision.charge().to_owned(),
            sent,
            until,
            at_us: decision.at_us(),
            levels: decision.levels().clone(),
            key: key.clone(),
            shared: epoch.shared,
        };
        // Replaces the entry of the same check, or the entry that ends first.
        self.table.insert(hash, epoch.whole, denial, |held| {
            held.filter(|held| !held.is_of(decision.policies(), key, decision.charge()))
                .map(|held| held.until)
        });
    }

    /// Forgets the denials of a key, of its levels and branches, and of all keys that share them.
    pub fn forget(&self, key: &Key, hasher: &RandomState) {
        if key.has_branches() {
            self.table
                .forget(key.level(0).hash(hasher), |denial| denial.key == *key);
        }
        for branch in key.branches() {
            for count in 1..=branch.levels() as u8 {
                let level = branch.level(count);
                // This also starts a new epoch, on which the denials of keys that share the
                // outermost level depend.
                self.table.forget(level.hash(hasher), |denial| {
                    denial.key.as_bytes() == level.as_bytes()
                });
            }
        }
    }
}

impl RememberedDenial {
    fn is_of(&self, policies: &PolicySet, key: &Key, charge: ChargeRef<'_>) -> bool {
        self.key == *key && self.charge == charge && self.policies.is_same(policies)
    }

    /// Returns the decision that the server would make now, marked as remembered.
    fn decision(&self, now: Instant) -> Decision {
        let passed_us = tollgate_core::raw::micros(now - self.sent);
        let charge = self.charge.borrow();
        let levels = self.levels.map(&self.policies, |at, policy, level| {
            later(policy, level, self.at_us, passed_us, charge.ask(at))
        });
        Decision::from_levels(&self.policies, levels, charge, self.at_us).marked_remembered()
    }
}

tollgate_core::debug_fields! { DenyCache: cap, .. }

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_core::{Cost, MemoryStore, Policy, Quota, Store, store::Clock};

    /// The hash of all keys, as if all had the same.
    const HASH: u64 = 7;

    fn same_hash() -> KeyHash {
        KeyHash {
            whole: HASH,
            outermost: HASH,
            hasher: RandomState::default(),
        }
    }

    const HOUR: Duration = Duration::from_secs(3_600);

    fn hourly(amount: u64) -> PolicySet {
        Policy::token_bucket("hourly", Quota::per_hour(amount)).into()
    }

    /// Returns the denial of a check whose quota is spent.
    fn denial(policies: &PolicySet, key: &Key, cost: Cost) -> Decision {
        let store = MemoryStore::builder().clock(Clock::manual(0)).build();
        let decide = |cost: Cost| {
            let answer = store.check(Check::new(policies, key, cost)).into_ready();
            answer.expect("at once").expect("a decision")
        };
        let most = policies.iter().map(|policy| policy.quota().burst()).min();
        let _ = decide(Cost::new(most.expect("a policy")));
        let decision = decide(cost);
        assert!(decision.is_denied());
        decision
    }

    fn remembering(policies: &PolicySet, key: &Key, cost: Cost) -> DenyCache {
        let cache = DenyCache::new(HOUR);
        let epoch = cache.epoch(&Check::new(policies, key, cost), &same_hash());
        cache.remember(key, HASH, now(), epoch, &denial(policies, key, cost));
        cache
    }

    fn answer(cache: &DenyCache, policies: &PolicySet, key: &Key, cost: Cost) -> Option<Decision> {
        let answer = cache
            .look_up(&Check::new(policies, key, cost), &same_hash())?
            .into_ready();
        Some(answer.expect("at once").expect("a decision"))
    }

    #[test]
    fn a_denial_answers_only_checks_of_the_same_key_cost_and_policies() {
        let (key, other_key) = (Key::new("acme"), Key::new("other"));
        let (policies, cost) = (hourly(5), Cost::new(2));
        let cache = remembering(&policies, &key, cost);
        assert!(
            answer(&cache, &policies, &key, cost)
                .is_some_and(|decision| decision.is_denied() && decision.is_remembered())
        );
        // The same policies of another limiter.
        assert!(answer(&cache, &hourly(5), &key, cost).is_some());
        let daily = Policy::token_bucket("daily", Quota::per_hour(5));
        let both = [
            policies.iter().next().expect("a policy").clone(),
            daily.clone(),
        ];
        for other in [
            hourly(6),
            daily.into(),
            PolicySet::try_new(both).expect("a set"),
        ] {
            assert!(answer(&cache, &other, &key, cost).is_none(), "{other:?}");
        }
        assert!(answer(&cache, &policies, &other_key, cost).is_none());
        for other in [Cost::ZERO, Cost::ONE, Cost::new(3)] {
            assert!(
                answer(&cache, &policies, &key, other).is_none(),
                "{other:?}"
            );
        }
    }
}
