//! Leases, at the replica: units of a shared limit that a process takes in advance and spends
//! itself.
//!
//! The terms of a lease belong to the [policy](tollgate_core::Lease). A store keeps one
//! [`LeasedUnits`]. Before it makes the call of a check, it tries to [spend](LeasedUnits::spend)
//! units that the process holds. Otherwise the call carries [reports](Report) and asks for units,
//! and its answer may [grant](Grant) some: a [`LeaseCall`] does both. The server has to keep
//! the rule: **outstanding units count as used at every instant**. Outstanding units are those that
//! were granted and not yet reported. They are charged to the state of the algorithm when the
//! replica reports them, at the time of the report, or when they lapse, at the end of the
//! generation after the one of the grant. A unit is therefore counted from its grant on, and for at
//! least as long as a unit of a direct check. The bound of every algorithm holds unchanged.
//!
//! The units of one key are [`HeldUnits`], which are pure: the time is an argument.
//!
//! ```
//! use tollgate_remote::lease::{Grant, HeldUnits, Stamp, Stamps};
//!
//! let mut held = HeldUnits::default();
//! assert!(held.spend(1_000, 1, 1).is_none(), "nothing was granted yet");
//!
//! let stamp = Stamp { birth: 7, generation: 12 };
//! // The call was sent at 1 ms, and granted three units for a second.
//! held.add(1_000, Grant { stamps: Stamps::from_elem(stamp, 1), units: 3, life_us: 1_000_000 });
//! assert!(held.spend(2_000, 1, 2).is_some());
//! let reports = held.take_reports(3_000, false);
//! assert_eq!((reports[0].spent, reports[0].returned), (2, 0));
//! assert_eq!((held.held(3_000), held.held(1_100_000)), (1, 0));
//! ```

// What the server of a Redis store does is `scripts/leased.lua`, and a pure function in
// `tests/support/src/leases`. `tests/tests/laws/leases.rs` runs both sides under random schedules.
//
// | file | purpose |
// |---|---|
// | `held_units.rs` | the units that a replica holds for one key, and the reports and grants of its calls |
// | `demand.rs` | the number of units that a replica asks for |
// | `leased_units.rs` | the units of all keys, and the call that takes more |

mod demand;
mod held_units;
mod leased_units;
#[cfg(test)]
mod tests;

pub use held_units::{Grant, HeldUnits, Report, Stamp, Stamps};
pub use leased_units::{LeaseCall, LeaseHolder, LeasedUnits};
