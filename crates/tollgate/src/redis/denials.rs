use std::{
    fmt,
    hash::BuildHasher,
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwapOption;
use foldhash::fast::RandomState;

use crate::{Cost, Decision, Key, PolicySet, algorithm::later, readings::Readings};

/// Denials that still hold, remembered so that repeated refusals never reach the server.
///
/// What was denied with a retry time of ρ stays denied until ρ after the request was *sent*: the
/// server decided no earlier, and others can only push that moment further away. It comes back
/// sooner only where units are given back, the key is reset, the quota is raised, the state is
/// lost, or the clock steps; what of this happens in this process clears the entry, and for the
/// rest no denial is remembered for longer than [`LONGEST`].
///
/// The memory is fixed when it is made. A lookup reads two slots and takes no lock.
pub(super) struct Denials {
    hasher: RandomState,
    slots: Box<[ArcSwapOption<Denial>]>,
}

struct Denial {
    key: Key,
    policies: PolicySet,
    cost: Cost,
    sent: Instant,
    until: Instant,
    at_us: u64,
    readings: Readings,
}

/// No denial is remembered for longer.
const LONGEST: Duration = Duration::from_secs(1);

/// Under attack from more keys than this, some refusals reach the server.
const SLOTS: usize = 1 << 14;

impl Denials {
    pub(super) fn new() -> Self {
        Self { hasher: RandomState::default(), slots: (0..SLOTS).map(|_| ArcSwapOption::empty()).collect() }
    }

    /// The decision on a check that is known to be denied.
    pub(super) fn look_up(&self, policies: &PolicySet, key: &Key, cost: Cost) -> Option<Decision> {
        self.places(key).find_map(|slot| {
            let slot = slot.load();
            let denial = slot.as_ref().filter(|denial| denial.is_of(policies, key, cost))?;
            let now = Instant::now();
            (now < denial.until).then(|| denial.decision(now))
        })
    }

    /// Remembers a decision that was asked for at `sent`, if it is a denial.
    pub(super) fn remember(&self, key: Key, decision: &Decision, sent: Instant) {
        let Some(retry) = decision.retry_after() else { return };
        let until = sent + retry.min(LONGEST);
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
            key,
        };
        // Its own slot, or the one that ends first.
        let slot = self.places(&denial.key).min_by_key(|slot| match &*slot.load() {
            Some(held) if held.is_of(&denial.policies, &denial.key, denial.cost) => None,
            Some(held) => Some(held.until),
            None => None,
        });
        if let Some(slot) = slot {
            slot.store(Some(Arc::new(denial)));
        }
    }

    /// Forgets what is known of a key.
    pub(super) fn forget(&self, key: &Key) {
        for slot in self.places(key) {
            if slot.load().as_ref().is_some_and(|denial| denial.key == *key) {
                slot.store(None);
            }
        }
    }

    /// The slots in which denials of a key may stand.
    fn places(&self, key: &Key) -> impl Iterator<Item = &ArcSwapOption<Denial>> {
        let at = self.hasher.hash_one(key) as usize % self.slots.len();
        [at, at ^ 1].into_iter().map(|at| &self.slots[at])
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
        let aged = |(policy, reading)| (policy, later(policy, &reading, self.at_us, passed_us, cost));
        let readings = Readings::collect(self.readings.iter(&self.policies).map(aged));
        Decision::from_readings(&self.policies, readings, self.cost, self.at_us)
    }
}

impl fmt::Debug for Denials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Denials").finish_non_exhaustive()
    }
}
