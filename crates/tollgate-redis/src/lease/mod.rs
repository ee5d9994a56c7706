//! Leases, at the replica: units of a shared limit that a process takes in advance and spends
//! itself. The terms of a lease belong to the [policy](tollgate_core::Lease). What the server does is
//! `scripts/leased.lua`, and a pure function in `tests/support/src/leases`.
//!
//! The rule: **outstanding units count as used at every instant**. Outstanding units are those that
//! were granted and not yet reported. They are charged to the state of the algorithm when the
//! replica reports them, at the time of the report, or when they lapse, at the end of the
//! generation after the one of the grant. A unit is therefore counted from its grant on, and for at
//! least as long as a unit of a direct check. The bound of every algorithm holds unchanged.
//!
//! | file | purpose |
//! |---|---|
//! | `held_units.rs` | the units that a replica holds for one key, and the reports and grants of its calls |
//! | `demand.rs` | the number of units that a replica asks for |
//! | `leased_units.rs` | the units of all keys, and the call that takes more |
//!
//! The functions of `held_units.rs` and `demand.rs` are pure: the time is an argument.
//! `tests/tests/laws/leases.rs` runs both sides under random schedules.

mod demand;
mod held_units;
mod leased_units;
#[cfg(test)]
pub(crate) mod tests;

pub use held_units::{Grant, HeldUnits, Report, Stamp, Stamps};
pub(crate) use leased_units::{LeaseCall, LeaseHolder, LeasedUnits};
