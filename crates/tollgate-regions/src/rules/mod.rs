//! The rules of home and purse, as pure functions: what the scripts do, number by number.
//! See `wire.rs` beside this folder for how numbers travel, and `carrier.rs` for who carries a call.
//!
//! | file | rule |
//! |---|---|
//! | `level.rs` | what is used of a token bucket or a fixed window |
//! | `home.rs` | a call is served, generations end, another server takes over |
//! | `ledger.rs` | the last call of each region and reign, so that a repeated one changes nothing |
//! | `purse.rs` | the units of a region: claim, deposit, check, lease, report |
//! | `refill.rs` | when a region asks, for how much, and how much it is granted |
//!
//! The exploration in `tools/protocols/src/regions` has the same rules over an abstract algorithm, and
//! visits every state of small settings.

mod home;
mod ledger;
mod level;
mod purse;
mod refill;

use smallvec::SmallVec;

pub use home::Home;
pub use ledger::{Entry, Ledger};
pub use level::{Level, Meter};
pub use purse::{Ask, Checked, Deposited, Purse, Seen, Slot};
pub use refill::{Pace, Refill, grantable};

/// The terms of a limit: what the home meters, and how much may be out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The algorithm.
    pub meter: Meter,
    /// The units that a bucket holds at most, or those of a window.
    pub burst: u64,
    /// The length of a generation in microseconds.
    pub length_us: u64,
    /// The most units that may be out.
    pub most: u64,
}

/// Identifies the state and the generation from which units were granted.
///
/// It passes unchanged through the purse: units of one stamp are interchangeable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// The random number of the call with which the outstanding units began, above zero.
    pub birth: u64,
    /// The number of the generation.
    pub generation: u64,
}

/// Reports units of one stamp: a process to its purse, or a purse to the home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The stamp of the units.
    pub stamp: Stamp,
    /// The units that were spent since the last report.
    pub spent: u64,
    /// The units that are given back.
    pub returned: u64,
}

/// Asks the home for units. A process of the region carries it, and sends it again unchanged when no
/// answer comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The reign of the purse that has made the claim.
    pub reign: u64,
    /// The number of the claim.
    pub number: u64,
    /// The time of the claim by the clock of the purse, in microseconds.
    pub since_us: u64,
    /// The units that are wanted.
    pub want: u64,
    /// The units that the purse holds.
    pub held: u64,
    /// The reports that the purse has taken out of its slots.
    pub reports: SmallVec<[Report; 2]>,
}

/// The answer of the home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Identifies the units in reports.
    pub stamp: Stamp,
    /// The number of units. None are granted if it is zero.
    pub units: u64,
    /// The time for which the units may be spent, from the decision on, in microseconds.
    pub life_us: u64,
    /// The time until a unit is free at the home, if nobody returns one, in microseconds.
    pub retry_us: u64,
}

/// Leases units of a purse to a process, for as long as their slot lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// Identifies the units in reports.
    pub stamp: Stamp,
    /// The number of units. None are leased if it is zero.
    pub units: u64,
    /// The time for which the units may be spent, from the decision on, in microseconds.
    pub life_us: u64,
}

/// Brings a grant to the purse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deposit {
    /// The reign of the purse that has made the claim.
    pub reign: u64,
    /// The number of the claim.
    pub number: u64,
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
            grant,
        }
    }
}
