//! Leases: units of a shared limit that a replica takes in advance and spends in process.
//!
//! The rule: **outstanding units count as used at every instant**. Outstanding units are those that
//! were granted and not yet reported. They are charged to the state of the algorithm when the
//! replica reports them, at the time of the report, or when they lapse, at the end of the
//! generation after the one of the grant. A unit is therefore counted from its grant on, and for at
//! least as long as a unit of a direct check. The bound of every algorithm holds unchanged.
//!
//! | file | side | purpose |
//! |---|---|---|
//! | `terms.rs` | both | [`Lease`]: the length of a generation, and the share of the burst that may be outstanding |
//! | `held_units.rs` | replica | the units that a replica holds for one key, and the reports and grants of its calls |
//! | `demand.rs` | replica | the number of units that a replica asks for |
//!
//! All functions are pure: the time is an argument. What the script does at the server is also a
//! pure function, in `tests/support/src/leases`. `tests/tests/laws/leases.rs` runs both sides
//! under random schedules.
//! Calls and locks are not here but in `redis/leased_units.rs`.

#![cfg_attr(
    not(feature = "testing"),
    allow(
        dead_code,
        unreachable_pub,
        unused_imports,
        reason = "the feature makes all of it public"
    )
)]

mod demand;
mod held_units;
mod terms;
#[cfg(test)]
mod tests;

pub(crate) use demand::Demand;
pub(crate) use held_units::LeaseCounts;
pub use held_units::{Grant, HeldUnits, Report, Stamp, Stamps};
pub use terms::Lease;
