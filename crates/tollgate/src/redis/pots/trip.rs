use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use super::table::Pots;
use crate::{
    Decision, Key, PolicySet,
    model::lease::{Grant, Report},
};

/// Connects a check that makes a trip with the pots, when its call is composed and when it is answered.
#[derive(Clone, Debug)]
pub(in crate::redis) struct Trip {
    pots: Arc<Pots>,
    /// The time of the check, which is no later than the sending of its call.
    at_us: u64,
    /// Tells whether the trip is made to return units.
    gives_back: bool,
    /// For each report of the call, the time at which its units lapse at the server.
    lapses_us: Arc<Mutex<SmallVec<[u64; 2]>>>,
}

impl Trip {
    /// Makes the trip of a check of this time.
    pub(in crate::redis) fn new(pots: &Arc<Pots>, at_us: u64) -> Self {
        Self { pots: Arc::clone(pots), at_us, gives_back: false, lapses_us: Arc::default() }
    }

    /// Makes the trip that returns the units of a key.
    pub(in crate::redis) fn to_release(pots: &Arc<Pots>) -> Self {
        Self { gives_back: true, ..Self::new(pots, pots.now_us()) }
    }

    /// Takes the reports of a key for the call that is composed now, and returns the number of units that it wants.
    ///
    /// A report that was taken is not sent again, whatever becomes of the call.
    pub(in crate::redis) fn compose(&self, policies: &PolicySet, key: &Key, hash: u64) -> (Vec<Report>, u64) {
        let now_us = self.pots.now_us();
        let mut shard = self.pots.lock(hash);
        let (entry, counts) = shard.find(policies, key, hash);
        let Some(entry) = entry else { return (Vec::new(), 0) };
        let want = if self.gives_back { 0 } else { entry.demand.want(now_us, entry.lease()) };
        let reports = entry.pot.take_reports(now_us, self.gives_back);
        counts.returned += reports.iter().map(|report| report.returned).sum::<u64>();
        counts.lapsed += entry.pot.take_lapsed();
        *self.lapses_us() = reports.iter().filter_map(|report| lapse_us(policies, report)).collect();
        (reports, want)
    }

    /// Notes the answer to the call: the last decision on the key, and the units that were granted.
    pub(in crate::redis) fn answered(&self, key: &Key, hash: u64, decision: &Decision, grant: Option<Grant>) {
        let here_us = self.pots.now_us();
        let mut shard = self.pots.lock(hash);
        let (entry, counts) = shard.find(decision.policies(), key, hash);
        let Some(entry) = entry else { return };
        entry.note(decision, here_us);
        // Units that have lapsed before the report came were charged then.
        self.lapses_us().drain(..).for_each(|lapse_us| entry.charges.add(lapse_us.min(decision.at_us())));
        if let Some(grant) = grant {
            counts.granted += grant.units;
            entry.pot.add(self.at_us, grant);
        }
    }

    /// A panic cannot leave a partial list behind this lock, so a poisoned lock is used as it is.
    fn lapses_us(&self) -> MutexGuard<'_, SmallVec<[u64; 2]>> {
        self.lapses_us.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the time at which units of a report lapse: the end of the generation after the one of their grant.
fn lapse_us(policies: &PolicySet, report: &Report) -> Option<u64> {
    let terms = policies.iter().filter_map(|policy| policy.lease()).zip(&report.stamps);
    terms.map(|(lease, stamp)| (stamp.generation + 2).saturating_mul(lease.generation_us())).min()
}
