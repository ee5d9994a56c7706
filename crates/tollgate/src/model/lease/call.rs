//! Defines the reports of a replica, and the units that it is granted.

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
