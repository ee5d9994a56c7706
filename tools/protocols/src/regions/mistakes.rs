//! The mistakes that have to be found, each in a setting that finds it soon.
//! The switches of the rules are in `protocol/mistake.rs`.

use super::{
    protocol::{Durability, Mistake},
    world::Setting,
};
use crate::table::Seeded;

/// Two calls for a single unit, and nothing breaks.
const ONE: Setting = Setting::ONE_UNIT.calls(2).last(4);

/// The same for two units, which are granted together.
const TWO: Setting = ONE.units(2, 2);

/// The same for two units, which are granted one by one.
const ONE_BY_ONE: Setting = ONE.units(2, 1);

/// The home has a copy, which takes over once.
const COPIED: Setting = ONE.durability(Durability::Replicas).home_failures(1);

/// The home has no copy, and another server takes over once.
const DRAINED: Setting = ONE.durability(Durability::Drain).home_failures(1);

/// Lists the mistakes, each in a setting that finds it soon, with the invariant that finds it, the
/// steps to it, and the number of states of the setting without the mistake.
pub const MISTAKES: [Seeded<Setting>; 16] = [
    seeded(
        Mistake::NoReign,
        "a region's copy keeps its purse: no reign",
        TWO.last(0).region_failures(1),
        ("bound", 8, 872),
    ),
    seeded(
        Mistake::ReignOfServer,
        "the reign is the number of the server: A, B, A",
        TWO.last(0).region_failures(2),
        ("bound", 9, 3_153),
    ),
    seeded(
        Mistake::DepositTwice,
        "a deposit is accepted twice",
        ONE.last(0).repeats(1),
        ("bound", 6, 72),
    ),
    seeded(
        Mistake::GrantBeforeCopy,
        "the home grants before its copy has it",
        COPIED.last(0),
        ("bound", 9, 118),
    ),
    seeded(
        Mistake::DrainAsUsed,
        "a home that drains counts nothing as outstanding",
        DRAINED,
        ("bound", 11, 29_402),
    ),
    seeded(
        Mistake::DrainWithOldHome,
        "a home drains although the one before lives on",
        DRAINED.old_lives(),
        ("bound", 13, 29_402),
    ),
    seeded(
        Mistake::LifeFromDeposit,
        "the life of a slot begins with its deposit",
        ONE,
        ("bound", 12, 2_140),
    ),
    seeded(
        Mistake::DepositOfAnyReign,
        "a late deposit is accepted by the next server, whose clock is behind",
        ONE.region_failures(1).skew(2),
        ("bound", 13, 135_543),
    ),
    seeded(
        Mistake::NoMendedClock,
        "a home whose clock is ahead keeps its generation",
        COPIED.skew(2),
        ("bound", 13, 98_221),
    ),
    seeded(
        Mistake::LeaseOutlivesSlot,
        "the lease of a process outlives its slot",
        ONE.times(2, 1).last(5).leases(1),
        ("bound", 14, 11_248),
    ),
    seeded(
        Mistake::NoFloor,
        "a region's clock goes back",
        ONE.times(1, 1).last(3).clock_steps(2),
        ("bound", 13, 30_478),
    ),
    seeded(
        Mistake::ReportStays,
        "a report is not taken out of its slot",
        TWO.last(3).calls(4),
        ("bound", 17, 42_942),
    ),
    seeded(
        Mistake::NoLedger,
        "a call that is repeated is applied twice: no ledger",
        TWO.last(3).calls(3).repeats(1),
        ("bound", 15, 56_583),
    ),
    seeded(
        Mistake::AnyGeneration,
        "units are returned after they have lapsed",
        ONE_BY_ONE.calls(3).returns(1),
        ("backed", 11, 71_405),
    ),
    seeded(
        Mistake::ReportToAnySlot,
        "a process reports to another slot than its own",
        ONE_BY_ONE.calls(3).leases(1),
        ("backed", 13, 112_283),
    ),
    seeded(
        Mistake::LedgerOfLastReign,
        "the ledger remembers the last reign of a region alone",
        TWO.processes(2)
            .last(0)
            .calls(3)
            .leases(1)
            .repeats(1)
            .region_failures(1),
        ("backed", 10, 156_612),
    ),
];

const fn seeded(
    mistake: Mistake,
    says: &'static str,
    sound: Setting,
    (invariant, steps, states): (&'static str, usize, usize),
) -> Seeded<Setting> {
    Seeded {
        says,
        mistaken: sound.mistake(mistake),
        sound,
        invariant,
        steps,
        states,
    }
}
