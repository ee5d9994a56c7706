//! The units that a replica holds for one key and one set of policies, and the reports about them
//! that its calls carry.
//! The table of all keys and its lock are in `leased_units.rs`.

use smallvec::SmallVec;

/// Identifies the state and the generation from which units were granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The random number of the call that granted the first of the outstanding units.
    pub birth: u64,
    /// The number of the generation.
    pub generation: u64,
}

/// Identifies granted units: one stamp for each policy of the set.
pub type Stamps = SmallVec<[Stamp; 1]>;

/// Reports units that a replica was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The stamps of the grant.
    pub stamps: Stamps,
    /// The units that were spent since the last report.
    pub spent: u64,
    /// The units that the replica gives back.
    pub returned: u64,
}

/// Grants units for as long as they live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Identifies the units in a report.
    pub stamps: Stamps,
    /// The number of units. Each is one unit of every policy.
    pub units: u64,
    /// The time for which the units may be spent, from the decision on, in microseconds.
    pub life_us: u64,
}

/// Counts units that were granted, and how many of them were spent.
///
/// Times are in microseconds, by a clock of the replica, but for those of decisions. The clock must
/// go on while the machine is suspended.
#[derive(Clone, Debug, Default)]
pub struct HeldUnits {
    /// The grants, oldest first. Units of two generations are alive at most.
    grants: SmallVec<[Held; 2]>,
    /// The units that lapsed here, until they are counted.
    lapsed: u64,
    /// The time of the latest decision that spent units.
    decided_us: u64,
    /// The time of the latest decision whose units were reported.
    reported_us: u64,
}

#[derive(Clone, Debug)]
struct Held {
    stamps: Stamps,
    units: u64,
    /// The units that were spent and not yet reported.
    spent: u64,
    until_us: u64,
}

impl HeldUnits {
    /// Adds granted units. The call left at `sent_us`.
    ///
    /// The life of the units is counted from there, because the server decided no earlier. A
    /// thousandth is left out, for clocks of different speed.
    pub fn add(&mut self, sent_us: u64, grant: Grant) {
        let until_us = sent_us + grant.life_us - grant.life_us.div_ceil(1_000);
        match self
            .grants
            .iter_mut()
            .find(|held| held.stamps == grant.stamps)
        {
            Some(held) => {
                // The end of a generation is the same for all of its grants. The earlier estimate
                // is the safe one.
                held.until_us = held.until_us.min(until_us);
                held.units += grant.units;
            }
            None => {
                self.grants.push(Held {
                    stamps: grant.stamps,
                    units: grant.units,
                    spent: 0,
                    until_us,
                });
                self.grants.sort_by_key(|held| held.until_us);
            }
        }
    }

    /// Spends `cost` units of the oldest grant that holds as many, for a decision of the time
    /// `decided_us`. Returns the stamps of the grant, and `None` when no grant holds as many.
    ///
    /// The time of a decision is above zero and by any clock: it is compared with that of others
    /// alone.
    pub fn spend(&mut self, now_us: u64, decided_us: u64, cost: u64) -> Option<&Stamps> {
        let mut alive = self.grants.iter_mut().filter(|held| now_us < held.until_us);
        let held = alive.find(|held| held.units >= cost)?;
        held.units -= cost;
        held.spent += cost;
        if self.decided_us == 0 {
            // What earlier decisions have spent is not counted here.
            self.reported_us = decided_us.saturating_sub(1);
        }
        self.decided_us = self.decided_us.max(decided_us);
        Some(&held.stamps)
    }

    /// Returns whether [`spend`](Self::spend) would find a grant that holds as many units.
    #[must_use]
    pub fn covers(&self, now_us: u64, cost: u64) -> bool {
        self.grants
            .iter()
            .any(|held| now_us < held.until_us && held.units >= cost)
    }

    /// Takes back units of the decision of this time that are not reported yet. Returns the stamps
    /// of the grant that has them now. `None` when the server may have charged them, because they
    /// were reported, or because a grant has ended of which units were spent: then the server
    /// refunds them.
    ///
    /// It need not be the grant from which they were spent: all units that were spent are reported in
    /// the end, once. Units that were charged are not exchanged for those of a later decision, which
    /// may belong to a newer window.
    pub fn refund(&mut self, now_us: u64, decided_us: u64, units: u64) -> Option<&Stamps> {
        let mut grants = self.grants.iter();
        if decided_us <= self.reported_us
            || grants.any(|held| held.spent > 0 && now_us >= held.until_us)
        {
            return None;
        }
        let mut newest_first = self.grants.iter_mut().rev();
        let held = newest_first.find(|held| held.spent >= units)?;
        held.spent -= units;
        held.units += units;
        Some(&held.stamps)
    }

    /// Takes the reports for the next call. With `give_back`, the units that are left are returned
    /// to the server.
    ///
    /// A report is taken once and sent once. The server charges the units of a lost report when
    /// they lapse.
    pub fn take_reports(&mut self, now_us: u64, give_back: bool) -> Vec<Report> {
        let mut reports = Vec::new();
        self.reported_us = self.decided_us;
        for held in &mut self.grants {
            if now_us >= held.until_us {
                self.lapsed += std::mem::take(&mut held.units);
            }
            let spent = std::mem::take(&mut held.spent);
            let returned = if give_back {
                std::mem::take(&mut held.units)
            } else {
                0
            };
            if spent + returned > 0 {
                reports.push(Report {
                    stamps: held.stamps.clone(),
                    spent,
                    returned,
                });
            }
        }
        self.grants.retain(|held| held.units > 0);
        reports
    }

    /// Drops all units. The server charges them when they lapse, if it still has the state.
    pub fn clear(&mut self) {
        self.lapsed += self.grants.iter().map(|held| held.units).sum::<u64>();
        self.grants.clear();
    }

    /// Returns the units that lapsed here since the last call.
    pub fn take_lapsed(&mut self) -> u64 {
        std::mem::take(&mut self.lapsed)
    }

    /// Returns the units that may be spent.
    #[must_use]
    pub fn held(&self, now_us: u64) -> u64 {
        self.grants
            .iter()
            .filter(|held| now_us < held.until_us)
            .map(|held| held.units)
            .sum()
    }
}
