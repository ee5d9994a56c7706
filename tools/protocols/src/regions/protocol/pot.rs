//! The units that a process has leased from the purse of its region.
//! The slot from which they come, and to which they are reported, is in `purse.rs`.

use super::{Mistake, Report, Rules, Stamp, Time, Units};

/// Holds units that a process may spend itself, until a time by its own clock.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pot {
    /// The stamp of the units.
    pub stamp: Stamp,
    /// The units that may be spent.
    pub units: Units,
    /// The units that were spent.
    pub spent: Units,
    /// The time from which on nothing of it may be spent.
    pub until: Time,
}

impl Pot {
    /// Decides a check by a unit that the process holds. Returns whether there is one.
    pub fn spend(&mut self, now: Time) -> bool {
        let spends = self.spendable(now) > 0;
        if spends {
            self.units -= 1;
            self.spent += 1;
        }
        spends
    }

    /// Takes the report of what was spent. The process goes on with what is left.
    pub fn take_report(&mut self) -> Report {
        Report {
            stamp: self.stamp,
            spent: std::mem::take(&mut self.spent),
            returned: 0,
        }
    }

    /// Returns the report with which the process ends its lease.
    #[must_use]
    pub fn report(&self, rules: &Rules, now: Time) -> Report {
        let returned = if rules.has(Mistake::ReportToAnySlot) {
            self.units
        } else {
            self.spendable(now)
        };
        Report {
            stamp: self.stamp,
            spent: self.spent,
            returned,
        }
    }

    /// Returns the units that may be spent.
    #[must_use]
    pub fn spendable(&self, now: Time) -> Units {
        if now < self.until { self.units } else { 0 }
    }
}
