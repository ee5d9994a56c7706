//! The refill rule: when a region asks the home, for how many units, and how many it gets.
//! See `purse.rs` for what it holds.

use super::Terms;

/// The time over which the demand of a region is averaged, in microseconds.
const MEMORY_US: f64 = 250_000.0;

/// The least time between two estimates, in microseconds.
const SAMPLE_US: u64 = 20_000;

/// The least demand that is provided for: one unit in a second.
const LEAST_RATE: f64 = 0.000_001;

/// The least time between two claims, in microseconds.
pub(super) const PAUSE_US: u64 = 100_000;

/// The longest time for which a region does not ask again after the home had nothing, in
/// microseconds.
const LONGEST_US: u64 = 1_000_000;

/// The demand of the processes of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    /// The estimated demand, in units of a microsecond.
    pub rate: f64,
    /// The units that were asked for since the last estimate.
    pub asked: u64,
    /// The time of the last estimate, in microseconds.
    pub estimated_us: u64,
}

/// The units that a region holds at most and at least, by its demand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Refill {
    /// With less, the region asks.
    pub need: f64,
    /// With an answer it shall hold as much.
    pub target: f64,
}

impl Pace {
    /// Counts units that are asked for, whether they are there or not.
    pub fn count(&mut self, now_us: u64, units: u64) {
        self.asked += units;
        let passed_us = now_us - self.estimated_us;
        if passed_us >= SAMPLE_US {
            let passed = passed_us as f64;
            let rate = self.asked as f64 / passed;
            // No exponential: each machine computes it another way, and the script has to agree.
            self.rate += (rate - self.rate) * (passed / (passed + MEMORY_US));
            (self.asked, self.estimated_us) = (0, now_us);
        }
    }

    /// Returns what a region holds while a round trip to the home takes so long, for a check of
    /// `cost`.
    #[must_use]
    pub fn refill(&self, trip_us: u64, cost: u64) -> Refill {
        let (trip, rate) = (trip_us as f64, self.rate.max(LEAST_RATE));
        Refill {
            need: rate * (trip + 100_000.0) * 1.5 + cost as f64,
            target: rate * (trip + (trip * 3.0).max(250_000.0)) + 2.0 + cost as f64,
        }
    }
}

/// Returns the time from which on a purse claims again that has claimed at `claimed_us`, and was
/// granted `granted` units then, and words that a unit is free at `retry_at_us`.
#[must_use]
pub(super) fn next_us(claimed_us: u64, granted: u64, retry_at_us: u64) -> u64 {
    let soonest = claimed_us + PAUSE_US;
    if granted > 0 {
        return soonest;
    }
    soonest.max(retry_at_us.min(claimed_us + LONGEST_US))
}

/// Returns the units that a call is granted: what it wants, at most half of what is free, and no
/// more than the share leaves.
///
/// A sixteenth of the share is kept for regions that hold nothing, or one hot region would starve
/// the others.
#[must_use]
pub fn grantable(terms: &Terms, used: u64, outstanding: u64, want: u64, held: u64) -> u64 {
    let free = terms.burst.saturating_sub(used);
    let (left, reserve) = (terms.most.saturating_sub(outstanding), terms.most / 16);
    let left = match held {
        0 if left <= reserve => left.min((reserve / 2).max(1)),
        0 => left,
        _ => left.saturating_sub(reserve),
    };
    want.min(free.div_ceil(2)).min(left)
}
