use super::charges::Charges;
use crate::{
    Check, Decision, Key, Lease, PolicySet,
    model::{
        algorithm::lowered,
        cost::ChargeRef,
        lease::{Demand, Pot},
        policy_levels::PolicyLevels,
    },
};

/// Holds what this process knows of a key and a set of leased policies.
pub(super) struct Entry {
    pub(super) hash: u64,
    pub(super) key: Key,
    pub(super) policies: PolicySet,
    pub(super) pot: Pot,
    pub(super) demand: Demand,
    /// The times at which the server has charged units that were spent here.
    pub(super) charges: Charges,
    seen: Option<Seen>,
    pub(super) asked_us: u64,
    /// The checks since the entries of the shard were last thinned out.
    pub(super) checks: u32,
}

/// The answer to the last trip.
struct Seen {
    levels: PolicyLevels,
    at_us: u64,
    /// The time of the answer by the clock of this process.
    here_us: u64,
}

impl Entry {
    pub(super) fn new(hash: u64, check: &Check<'_>, now_us: u64) -> Self {
        Self {
            hash,
            key: check.key.clone(),
            policies: check.policies.clone(),
            pot: Pot::default(),
            demand: Demand::new(now_us),
            charges: Charges::default(),
            seen: None,
            asked_us: now_us,
            checks: 0,
        }
    }

    pub(super) fn is_of(&self, policies: &PolicySet, key: &Key) -> bool {
        self.key == *key && self.policies.is_same(policies)
    }

    /// Counts a check, whether it is admitted or not.
    pub(super) fn count(&mut self, now_us: u64, units: u64) {
        self.demand.count(units);
        self.asked_us = now_us;
        self.checks = self.checks.saturating_add(1);
    }

    /// Decides a check by units of the pot, if it holds as many.
    pub(super) fn decide(&mut self, policies: &PolicySet, charge: ChargeRef<'_>, now_us: u64) -> Option<Decision> {
        let at_us = self.seen.as_ref()?.server_us(now_us);
        self.pot.spend(now_us, charge.cost.units())?;
        Some(Decision::from_levels(policies, self.levels(now_us), charge, at_us).marked_leased())
    }

    /// Notes the answer to a trip.
    pub(super) fn note(&mut self, decision: &Decision, here_us: u64) {
        self.seen = Some(Seen { levels: decision.levels().clone(), at_us: decision.at_us(), here_us });
    }

    /// Returns the shortest terms of the policies.
    pub(super) fn lease(&self) -> Lease {
        self.policies.iter().filter_map(|policy| policy.lease()).min_by_key(|lease| lease.length()).unwrap_or_default()
    }

    /// Returns whether the key was not asked for during a part of a generation.
    pub(super) fn is_idle(&self, now_us: u64, [numerator, denominator]: [u64; 2]) -> bool {
        self.asked_us + self.lease().generation_us() * numerator / denominator <= now_us
    }

    /// Returns the levels that a leased decision tells: those of the last trip, with no more units left than this process
    /// holds. Other replicas may have spent all others.
    fn levels(&self, now_us: u64) -> PolicyLevels {
        let held = self.pot.held(now_us);
        let Some(seen) = &self.seen else { return PolicyLevels::new() };
        let passed_us = now_us.saturating_sub(seen.here_us);
        seen.levels.map(&self.policies, |_, policy, level| lowered(policy, level, seen.at_us, passed_us, held))
    }
}

impl Seen {
    /// Returns about the time of the server.
    fn server_us(&self, now_us: u64) -> u64 {
        self.at_us + now_us.saturating_sub(self.here_us)
    }
}
