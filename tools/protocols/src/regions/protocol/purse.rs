//! The purse: the units that a region holds, in its own server.
//! What a process takes out of it is in `pot.rs`.

use smallvec::SmallVec;

use super::{Call, Deposit, Mistake, Pot, Report, Rules, Stamp, Time, Units, may_claim};

/// Holds the units of one stamp, until they lapse, or until all were spent and reported. It stays
/// while processes hold units of it: they report to it.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot {
    /// The stamp of the units.
    pub stamp: Stamp,
    /// The units that may be spent.
    pub free: Units,
    /// The units that were spent and not yet reported.
    pub spent: Units,
    /// The units that processes hold, or have spent and not yet reported.
    pub leased: Units,
    /// The time from which on nothing of it may be spent.
    pub until: Time,
}

/// The most units that a process leases at once.
const MOST_LEASED: Units = 2;

/// A call that has begun and whose deposit has not come.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// The number of the call.
    pub number: u8,
    /// The time at which it began.
    pub since: Time,
}

/// Holds the units of a region.
///
/// Each function is one script: it reads the reign of its server and the time, and
/// [opens](Self::open) the purse first.
#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub struct Purse {
    reign: u8,
    slots: SmallVec<[Slot; 2]>,
    /// The number of the last call.
    number: u8,
    claim: Option<Claim>,
}

impl Purse {
    /// Voids a purse that another reign has filled, and drops what has lapsed or was reported whole.
    ///
    /// A server gets another reign at each promotion and each start. What a purse of another one
    /// held may have been spent since, by the server that had it.
    pub fn open(&mut self, rules: &Rules, reign: u8, now: Time) {
        if self.reign != reign && !rules.has(Mistake::NoReign) {
            *self = Self {
                reign,
                ..Self::default()
            };
        }
        self.slots
            .retain(|slot| now < slot.until && slot.free + slot.spent + slot.leased > 0);
    }

    /// Begins a call: takes the reports out of the slots, and with `gives_back` the free units too.
    /// `None` while another claim is open.
    pub fn claim(&mut self, rules: &Rules, reign: u8, now: Time, gives_back: bool) -> Option<Call> {
        if !may_claim(self.claim, now) {
            return None;
        }
        self.number += 1;
        self.claim = Some(Claim {
            number: self.number,
            since: now,
        });
        let mut reports = SmallVec::new();
        for slot in &mut self.slots {
            let (spent, returned) = (slot.spent, if gives_back { slot.free } else { 0 });
            if !rules.has(Mistake::ReportStays) {
                slot.spent = 0;
            }
            slot.free -= returned;
            if spent + returned > 0 {
                reports.push(Report {
                    stamp: slot.stamp,
                    spent,
                    returned,
                });
            }
        }
        Some(Call {
            reign,
            number: self.number,
            since: now,
            reports,
        })
    }

    /// Takes what the home has granted, once, and under the claim and the reign that asked for it.
    pub fn deposit(&mut self, rules: &Rules, reign: u8, now: Time, deposit: &Deposit) {
        if !self.expects(rules, reign, deposit) {
            return;
        }
        self.claim = None;
        let begin = if rules.has(Mistake::LifeFromDeposit) {
            now
        } else {
            // It precedes the decision of the home.
            deposit.since
        };
        let (grant, until) = (deposit.grant, begin + deposit.grant.life);
        if grant.units == 0 || until <= now {
            return;
        }
        let mut slots = self.slots.iter_mut();
        if let Some(slot) = slots.find(|slot| slot.stamp == grant.stamp) {
            slot.free += grant.units;
            slot.until = slot.until.min(until);
        } else {
            self.slots.push(Slot {
                stamp: grant.stamp,
                free: grant.units,
                spent: 0,
                leased: 0,
                until,
            });
            self.slots.sort_unstable();
        }
    }

    /// Decides a check by a unit of the purse. Returns whether there is one.
    pub fn spend(&mut self) -> bool {
        let slot = self.slots.iter_mut().find(|slot| slot.free > 0);
        slot.is_some_and(|slot| {
            slot.free -= 1;
            slot.spent += 1;
            true
        })
    }

    /// Leases units to a process, whose clock shows `here`. The lease ends with its slot.
    pub fn lease(&mut self, rules: &Rules, now: Time, here: Time) -> Option<Pot> {
        let slot = self.slots.iter_mut().find(|slot| slot.free > 0)?;
        let units = slot.free.min(MOST_LEASED);
        slot.free -= units;
        slot.leased += units;
        let life = if rules.has(Mistake::LeaseOutlivesSlot) {
            2 * rules.generation
        } else {
            slot.until - now
        };
        Some(Pot {
            stamp: slot.stamp,
            units,
            spent: 0,
            until: here + life,
        })
    }

    /// Takes the report of a process: what it has spent of a slot, and what it gives back. Nothing
    /// counts that the slot has not leased: it may have the stamp of one that was voided.
    pub fn report(&mut self, rules: &Rules, report: Report) {
        let any = rules.has(Mistake::ReportToAnySlot);
        let mut slots = self.slots.iter_mut();
        if let Some(slot) = slots.find(|slot| any || slot.stamp == report.stamp) {
            let (spent, returned) = if any {
                (report.spent, report.returned)
            } else {
                let spent = report.spent.min(slot.leased);
                (spent, report.returned.min(slot.leased - spent))
            };
            slot.leased = slot.leased.saturating_sub(spent + returned);
            slot.spent += spent;
            slot.free += returned;
        }
    }

    /// Returns the units that the server of this reign would let anybody spend now.
    #[must_use]
    pub fn spendable(&self, rules: &Rules, reign: u8, now: Time) -> Units {
        let mut purse = self.clone();
        purse.open(rules, reign, now);
        purse.slots.iter().map(|slot| slot.free).sum()
    }

    fn expects(&self, rules: &Rules, reign: u8, deposit: &Deposit) -> bool {
        let is_open = self
            .claim
            .is_some_and(|claim| claim.number == deposit.number);
        match rules.mistake {
            Some(Mistake::DepositTwice) => deposit.reign == reign,
            Some(Mistake::DepositOfAnyReign) => true,
            _ => is_open && deposit.reign == reign,
        }
    }
}
