//! The units that this process has leased from the purses of its region, so that most checks of a
//! busy key need no trip.
//! How they are held and counted is in `tollgate-remote/src/lease/`, and how many a purse leases in
//! `rules/purse.rs`.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};
use tollgate_core::{
    Decision, Key, PolicySet,
    raw::metrics::LeaseFigures,
    store::{Check, CheckFuture, Clock},
};
use tollgate_remote::lease::{Grant, LeaseCall, LeaseHolder, LeasedUnits, Report, Stamp};

use crate::rules;

/// The time for whose demand a process wants units, in microseconds. Longer, and a few processes would
/// hold what the region asks the home for.
const SPAN_US: u64 = 150_000;

/// The longest time for which a process holds units without a trip, in microseconds. They last for half
/// of it while the demand stays. When that has fallen, its purse shall learn it soon, because another
/// region may need them.
const LONGEST_US: u64 = 2 * SPAN_US;

/// Keeps the leased units of this process.
#[derive(Debug)]
pub(crate) struct Leases {
    units: Arc<LeasedUnits>,
    /// Goes on while the system sleeps, and is read before a trip is sent: terms are counted from
    /// there.
    clock: Clock,
}

/// Connects a trip to a purse with the leased units of its key: the reports that it carries, and the
/// units that it brings.
#[derive(Debug)]
pub(crate) struct Trip {
    call: LeaseCall,
    hash: u64,
    pub(crate) want: u64,
    pub(crate) reports: SmallVec<[rules::Report; 2]>,
}

impl Leases {
    pub(crate) fn new() -> Self {
        let clock = Clock::since_boot();
        Self {
            units: LeasedUnits::given_back_after(clock.clone(), LONGEST_US),
            clock,
        }
    }

    /// Decides a check by units that this process holds. `None` when it needs a trip.
    pub(crate) fn spend(&self, check: &Check<'_>, hash: u64) -> Option<CheckFuture> {
        self.units.spend(check, hash).ok()
    }

    /// Begins a trip. Its reports are sent once, whatever becomes of it: those that are lost lapse at
    /// the home.
    pub(crate) fn trip(&self, policies: &PolicySet, key: &Key, hash: u64, length_us: u64) -> Trip {
        let call = LeaseCall::new(&self.units, self.clock.now_us());
        Trip::new(call, policies, key, hash, length_us)
    }

    /// Begins the trip that gives the units of a key back.
    pub(crate) fn trip_back(&self, holder: &LeaseHolder, hash: u64) -> Trip {
        let call = LeaseCall::to_release(&self.units);
        Trip::new(call, &holder.policies, &holder.key, hash, 1)
    }

    /// Lists the keys whose units nobody has asked for lately.
    pub(crate) fn idle(&self) -> Vec<LeaseHolder> {
        self.units.sweep()
    }

    /// Lists all keys of which this process holds units.
    pub(crate) fn holders(&self) -> Vec<LeaseHolder> {
        self.units.holders()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    pub(crate) fn counts(&self) -> LeaseFigures {
        self.units.counts()
    }

    /// Forgets the units of a key, whose purse was removed.
    pub(crate) fn clear(&self, key: &Key, hash: u64) {
        self.units.clear(key, hash);
    }
}

impl Trip {
    fn new(call: LeaseCall, policies: &PolicySet, key: &Key, hash: u64, length_us: u64) -> Self {
        let (reports, want) = call.compose(policies, key, hash, call.now_us());
        Self {
            call,
            hash,
            // The units of a generation are wanted of a store.
            want: want.saturating_mul(SPAN_US.min(length_us)) / length_us,
            reports: reports.iter().filter_map(report).collect(),
        }
    }

    /// Notes the decision of the trip, and the units that were leased with it.
    pub(crate) fn answered(&self, key: &Key, decision: &Decision, lease: rules::Lease) {
        let rules::Stamp { birth, generation } = lease.stamp;
        let grant = Grant {
            stamps: smallvec![Stamp { birth, generation }],
            units: lease.units,
            life_us: lease.life_us,
        };
        let grant = (lease.units > 0).then_some(grant);
        let here_us = self.call.now_us();
        self.call.answered(key, self.hash, here_us, decision, grant);
    }
}

fn report(report: &Report) -> Option<rules::Report> {
    let &Stamp { birth, generation } = report.stamps.first()?;
    Some(rules::Report {
        stamp: rules::Stamp { birth, generation },
        spent: report.spent,
        returned: report.returned,
    })
}
