//! The ledger of the home: the last call of each region and reign, and what it was granted.
//! The answer to a call is in `home.rs`.

use smallvec::SmallVec;

use super::{Call, Stamp};

/// Remembers the last call of a region under one reign of its purse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The number of the region.
    pub region: u64,
    /// The reign of its purse.
    pub reign: u64,
    /// The number of the call.
    pub number: u64,
    /// The stamp of the granted units.
    pub stamp: Stamp,
    /// The units that were granted.
    pub units: u64,
    /// The generation of the call by the clock of the home.
    pub at: u64,
}

/// The most entries. A region has one for each reign of the last generations, so more is a server
/// that restarts all the time: it is granted nothing until the oldest entries are dropped.
pub(super) const MOST_ENTRIES: usize = 64;

/// Makes it harmless to send a call again: the same number gets the same grant, a lower one nothing.
///
/// One entry for each reign and not for each region: a late call of an earlier reign would else be
/// new.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger(pub SmallVec<[Entry; 4]>);

impl Ledger {
    /// Drops the entries whose calls and answers cannot matter any more: their units have lapsed.
    pub fn forget(&mut self, present: u64) {
        self.0.retain(|entry| entry.at + 2 >= present);
    }

    /// Returns the entry by which a call was served before, or a later one.
    #[must_use]
    pub fn served(&self, region: u64, call: &Call) -> Option<Entry> {
        let entry = self.0[self.place(region, call.reign)?];
        (entry.number >= call.number).then_some(entry)
    }

    /// Returns whether a call of this region and reign can be remembered.
    #[must_use]
    pub fn has_room(&self, region: u64, reign: u64) -> bool {
        self.0.len() < MOST_ENTRIES || self.place(region, reign).is_some()
    }

    /// Replaces the entry of a region and reign.
    pub fn note(&mut self, entry: Entry) {
        match self.place(entry.region, entry.reign) {
            Some(place) => self.0[place] = entry,
            None => self.0.push(entry),
        }
    }

    fn place(&self, region: u64, reign: u64) -> Option<usize> {
        let mut entries = self.0.iter();
        entries.position(|entry| entry.region == region && entry.reign == reign)
    }
}
