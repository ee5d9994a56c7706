//! The rules by which units of one limit go to several regions, as pure functions.
//!
//! The *home* counts the limit and grants units. Each region keeps a *purse* of granted units, and
//! decides by it. A granted unit is in one place: a purse, a process, a message, or lost. At the
//! home it counts as used from its grant until it is reported, returned or lapsed.
//!
//! | file | rule |
//! |---|---|
//! | `messages.rs` | the content of calls and grants |
//! | `home.rs` | the state of the limit: a call is served, generations end, another server takes over |
//! | `ledger.rs` | the last call of each region and reign, so that a repeated one changes nothing |
//! | `purse.rs` | the units of a region: claim, deposit, check, lease, report |
//! | `refill.rs` | when a region asks, and how much it is granted |
//! | `pot.rs` | the units that a process has leased from its purse |
//! | `mistake.rs` | lines of these rules that are wrong, for explorations that have to find them |
//!
//! Nothing here knows of the exploration: a time, a reign and the number of a birth are arguments.
//! Each line that a seeded mistake leaves out asks [`Rules::has`].

mod home;
mod ledger;
mod messages;
mod mistake;
mod pot;
mod purse;
mod refill;

pub use home::Home;
pub use ledger::{Entry, Ledger};
pub use messages::{Call, Deposit, Grant, Report, Stamp, Time, Units};
pub use mistake::Mistake;
pub use pot::Pot;
pub use purse::{Claim, Purse, Slot};
pub use refill::{grantable, may_claim};

/// The terms of a limit that several regions share.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The units of a period.
    pub quota: Units,
    /// The units for which a region asks at once.
    pub want: Units,
    /// The length of a generation.
    pub generation: Time,
    /// The time after which the home counts from zero again.
    pub period: Time,
    /// The guard against a home that loses grants.
    pub durability: Durability,
    /// The line that is wrong.
    pub mistake: Option<Mistake>,
}

/// Guards against a home that loses grants when another server takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// A grant counts only when all servers that may take over have it.
    Replicas,
    /// A server that takes over begins with everything used and the whole quota outstanding.
    Drain,
    /// There is no guard. The home does not fail.
    Trust,
}

impl Rules {
    /// Returns whether this line is wrong.
    #[must_use]
    pub fn has(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }
}
