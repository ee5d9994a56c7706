//! Mistakes that are seeded: lines of the rules that are wrong, each by one switch.
//! The settings that find them are in `../mistakes.rs`.

/// A line of the rules that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// The copy of a region's server keeps its purse.
    NoReign,
    /// The reign is the number of the server: A, then B, then A again.
    ReignOfServer,
    /// A deposit is accepted twice.
    DepositTwice,
    /// The home grants before its copy has the grant.
    GrantBeforeCopy,
    /// A home that drains counts all as used, but nothing as outstanding.
    DrainAsUsed,
    /// A home drains although the one before lives on.
    DrainWithOldHome,
    /// The life of a slot begins with its deposit.
    LifeFromDeposit,
    /// A deposit is accepted under another reign than that of its claim.
    DepositOfAnyReign,
    /// A home whose clock is ahead keeps its generation.
    NoMendedClock,
    /// The lease of a process outlives its slot.
    LeaseOutlivesSlot,
    /// The clock of a region may go back.
    NoFloor,
    /// A report stays in its slot when it is sent.
    ReportStays,
    /// A call that was served before is served again.
    NoLedger,
    /// A report counts although its generation has lapsed.
    AnyGeneration,
    /// A process reports to another slot than its own.
    ReportToAnySlot,
    /// The ledger remembers the last reign of a region alone.
    LedgerOfLastReign,
}
