//! The number of units that a replica asks for.
//! What it gets is decided by the server, and held in `held_units.rs`.

use tollgate_core::{Lease, raw::LeaseParts};

/// Estimates the rate at which a replica asks for units of one key.
///
/// A check counts its units and reads no clock. The rate is estimated at each call to the server.
#[derive(Clone, Debug)]
pub(super) struct Demand {
    /// The units that were asked for since the last call.
    asked: u64,
    called_us: u64,
    /// Units in a microsecond.
    rate: f64,
}

/// The time over which the rate is averaged, in microseconds.
const MEMORY_US: f64 = 500_000.0;

/// The least number of units in a generation for which a lease pays. With fewer, a call is saved
/// rarely, and units that lapse unspent are lost.
const LEAST: f64 = 4.0;

/// The most units that are asked for at once.
const MOST_UNITS: f64 = 4_294_967_295.0;

impl Demand {
    /// Creates an estimate that asks for nothing until the rate is known.
    #[must_use]
    pub(super) fn new(now_us: u64) -> Self {
        Self {
            asked: 0,
            called_us: now_us,
            rate: 0.0,
        }
    }

    /// Counts the units of a check, whether they were admitted or not.
    pub(super) fn count(&mut self, units: u64) {
        self.asked = self.asked.saturating_add(units);
    }

    /// Returns the units to ask for with a call: what a generation spends at the present rate, or
    /// none when a lease does not pay.
    pub(super) fn want(&mut self, now_us: u64, lease: Lease) -> u64 {
        let passed_us = now_us.saturating_sub(self.called_us) as f64;
        if passed_us > 0.0 {
            let rate = std::mem::take(&mut self.asked) as f64 / passed_us;
            self.rate += (rate - self.rate) * -(-passed_us / MEMORY_US).exp_m1();
            self.called_us = now_us;
        }
        let units = self.rate * lease.generation_us() as f64;
        if units < LEAST {
            0
        } else {
            units.min(MOST_UNITS) as u64
        }
    }
}
