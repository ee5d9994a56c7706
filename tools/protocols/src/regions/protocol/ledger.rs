//! The ledger of the home: the last call of each region and reign, and what it was granted.
//! The answer to a call is in `home.rs`.

use smallvec::SmallVec;

use super::{Call, Mistake, Rules, Stamp, Time, Units};

/// Remembers the last call of a region under one reign of its purse.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The region.
    pub region: u8,
    /// The reign of its purse.
    pub reign: u8,
    /// The number of the call.
    pub number: u8,
    /// The stamp of the granted units.
    pub stamp: Stamp,
    /// The units that were granted.
    pub units: Units,
    /// The generation of the call by the clock of the home.
    pub at: Time,
}

/// Makes it harmless to send a call again: the same number gets the same grant, a lower one nothing.
///
/// One entry for each reign and not for each region: a late call of an earlier reign would else be
/// new.
#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ledger(SmallVec<[Entry; 4]>);

impl Ledger {
    /// Drops the entries whose calls and answers cannot matter any more: their units have lapsed.
    pub fn forget(&mut self, present: Time) {
        self.0.retain(|entry| entry.at + 2 >= present);
    }

    /// Returns the entry by which a call was served before, or a later one.
    #[must_use]
    pub fn served(&self, rules: &Rules, region: u8, call: &Call) -> Option<Entry> {
        if rules.has(Mistake::NoLedger) {
            return None;
        }
        let entry = self.0[self.place(rules, region, call.reign)?];
        (entry.reign == call.reign && entry.number >= call.number).then_some(entry)
    }

    /// Replaces the entry of a region and reign.
    pub fn note(&mut self, rules: &Rules, entry: Entry) {
        match self.place(rules, entry.region, entry.reign) {
            Some(place) => self.0[place] = entry,
            None => self.0.push(entry),
        }
        self.0.sort_unstable();
    }

    /// Exchanges the names of two regions.
    pub fn rename(&mut self, name: impl Fn(u8) -> u8) {
        for entry in &mut self.0 {
            entry.region = name(entry.region);
        }
        self.0.sort_unstable();
    }

    fn place(&self, rules: &Rules, region: u8, reign: u8) -> Option<usize> {
        let of_any_reign = rules.has(Mistake::LedgerOfLastReign);
        let mut entries = self.0.iter();
        entries.position(|entry| entry.region == region && (entry.reign == reign || of_any_reign))
    }
}
