//! The content of the messages between purse, process and home.
//! The way that they go, and how they are lost, is in `world/steps.rs`.

use smallvec::SmallVec;

/// A time, or a length of time, in ticks. Small, because a state that is explored is copied often.
pub type Time = i16;

/// A number of units.
pub type Units = u16;

/// Identifies the state and the generation from which units were granted.
///
/// It passes unchanged through purse and process: units of one stamp are interchangeable.
#[derive(Clone, Copy, Debug, Default, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    /// The number of the grant with which the outstanding units began, above zero.
    pub birth: u8,
    /// The number of the generation.
    pub generation: Time,
}

/// Reports units of one stamp.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub struct Report {
    /// The stamp of the units.
    pub stamp: Stamp,
    /// The units that were spent since the last report.
    pub spent: Units,
    /// The units that are given back.
    pub returned: Units,
}

/// Asks the home for units. A process of the region carries it, and sends it again unchanged when no
/// answer comes.
#[derive(Clone, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    /// The reign of the purse that has made the claim.
    pub reign: u8,
    /// The number of the claim.
    pub number: u8,
    /// The time of the claim by the clock of the purse.
    pub since: Time,
    /// The reports that the purse has taken out of its slots.
    pub reports: SmallVec<[Report; 2]>,
}

/// The answer of the home.
#[derive(Clone, Copy, Debug, Default, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    /// Identifies the units in reports.
    pub stamp: Stamp,
    /// The number of units. None are granted if it is zero.
    pub units: Units,
    /// The time for which the units may be spent, from the decision on.
    pub life: Time,
}

/// Brings a grant to the purse.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deposit {
    /// The reign of the purse that has made the claim.
    pub reign: u8,
    /// The number of the claim.
    pub number: u8,
    /// The time of the claim by the clock of that purse.
    pub since: Time,
    /// The grant of the home.
    pub grant: Grant,
}

impl Call {
    /// Returns the message that brings the grant of this call to the purse.
    #[must_use]
    pub fn deposit(&self, grant: Grant) -> Deposit {
        Deposit {
            reign: self.reign,
            number: self.number,
            since: self.since,
            grant,
        }
    }
}
