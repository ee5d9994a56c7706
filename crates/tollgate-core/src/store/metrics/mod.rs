//! The gauges of a store, of its leased units and of a region, behind the feature `metrics`.
//!
//! They stand here, and not in the crates of stores, so that one feature switches all of them.
//! Counts of decisions are those of the limiter.

#[cfg_attr(not(feature = "metrics"), path = "off.rs")]
mod series;

use std::{num::NonZeroU32, time::Duration};

pub use series::{IS_ON, record, record_leases, record_region};

/// Lists what the gauges of a store show.
#[cfg_attr(
    not(feature = "metrics"),
    allow(dead_code, reason = "nothing shows it")
)]
#[derive(Debug)]
pub struct Figures {
    /// The servers that the store sends checks to.
    pub servers: usize,
    /// Those to which it has a connection.
    pub connected: usize,
    /// Those whose circuit breaker is open.
    pub breakers_open: usize,
    /// The checks that wait to be sent.
    pub queued: usize,
    /// The time of the last call that counted the replicas.
    pub round_trip: Option<Duration>,
    /// The processes that were counted last.
    pub replicas: Option<NonZeroU32>,
}

/// Lists what the series of leased units show: sums since the store was made, but for `held`.
#[cfg_attr(
    not(feature = "metrics"),
    allow(dead_code, reason = "nothing shows it")
)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseFigures {
    /// The units that this process may spend now.
    pub held: u64,
    /// The units that the server has granted to this process.
    pub granted: u64,
    /// The units that were given back.
    pub returned: u64,
    /// The units that ended unspent.
    pub lapsed: u64,
    /// The checks that leased units decided without a trip.
    pub trips_saved: u64,
}

impl LeaseFigures {
    /// Returns whether nothing was ever leased.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.granted == 0
    }

    /// Adds the figures of another part of the store.
    pub fn add(&mut self, other: &Self) {
        self.held += other.held;
        self.granted += other.granted;
        self.returned += other.returned;
        self.lapsed += other.lapsed;
        self.trips_saved += other.trips_saved;
    }
}

/// Lists what the series of a region show that shares limits with others: sums since the store was
/// made, but for `held` and `round_trip`.
#[cfg_attr(
    not(feature = "metrics"),
    allow(dead_code, reason = "nothing shows it")
)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionFigures {
    /// The units that the region held when this process saw them last.
    pub held: u64,
    /// The calls of the home that were answered.
    pub answered: u64,
    /// The calls of the home that were given up.
    pub given_up: u64,
    /// The calls of the home that were sent again.
    pub resent: u64,
    /// The units that the home has granted to this process, for its region.
    pub granted: u64,
    /// The granted units that nobody could spend.
    pub lost: u64,
    /// The longest of the last round trips to the home.
    pub round_trip: Duration,
}
