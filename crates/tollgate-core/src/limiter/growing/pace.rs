//! The time at which a growing reservation asks for its next slice: as late as the stream and the trip to the store
//! allow, because what is asked for in advance may be unused at the end.
//! See `shared.rs` for who asks.

use std::time::Duration;

use tokio::time::Instant;

/// The rate at which units are counted, and the time of a call of the store.
#[derive(Debug)]
pub(super) struct GrowthPace {
    /// The time at which the present slice began.
    since: Instant,
    /// The units that were counted since then.
    units: u64,
    /// The time of the first of these counts, and its units. A stream may have stood still before, so
    /// the rate is that of the units after it.
    first: Option<(Instant, u64)>,
    /// The units a second of the slice before.
    former: f64,
    /// The most units that were counted at once.
    largest: u64,
    round_trip: Duration,
}

/// The calls for which units are kept: the call may take twice its usual time.
const CALLS: f64 = 2.0;

/// The shortest time over which a rate is measured.
const SHORTEST: Duration = Duration::from_millis(1);

impl GrowthPace {
    /// Begins with the first slice, which the store answered in this time.
    pub(super) fn new(now: Instant, round_trip: Duration) -> Self {
        Self {
            since: now,
            units: 0,
            first: None,
            former: 0.0,
            largest: 0,
            round_trip,
        }
    }

    /// Notes units that are counted now.
    pub(super) fn counted(&mut self, now: Instant, units: u64) {
        self.first.get_or_insert((now, units));
        self.units = self.units.saturating_add(units);
        self.largest = self.largest.max(units);
    }

    /// Notes that a further slice has come, and how long the store took.
    pub(super) fn granted(&mut self, now: Instant, took: Duration) {
        self.former = rate(self.units, self.since, now);
        (self.since, self.units, self.first) = (now, 0, None);
        // Down slowly, and up at once: a slice that is late stops the stream.
        self.round_trip = took.max(self.round_trip * 3 / 4 + took / 4);
    }

    /// Returns whether the next slice is asked for while `left` units are left, if a slice has `slice`
    /// units. It never is while more than a slice is left.
    pub(super) fn is_due(&self, now: Instant, left: u64, slice: u64) -> bool {
        let (since, first) = self.first.unwrap_or((now, 0));
        let rate = rate(self.units - first, since, now).max(self.former);
        let meanwhile = rate * self.round_trip.as_secs_f64() * CALLS;
        let needed = self.largest.saturating_add(meanwhile.ceil() as u64);
        left <= needed.min(slice)
    }
}

/// Returns the units a second.
fn rate(units: u64, since: Instant, now: Instant) -> f64 {
    let time = now.saturating_duration_since(since).max(SHORTEST);
    units as f64 / time.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: u64 = 256;

    /// Counts tokens at this rate until the next slice is due. Returns how many are left then.
    fn left_when_due(per_second: u32, round_trip: Duration) -> u64 {
        let start = Instant::now();
        let mut pace = GrowthPace::new(start, round_trip);
        for token in 1..=SLICE {
            let now = start + Duration::from_secs(1) / per_second * token as u32;
            pace.counted(now, 1);
            if pace.is_due(now, SLICE - token, SLICE) {
                return SLICE - token;
            }
        }
        0
    }

    #[test]
    fn a_slice_is_asked_for_two_round_trips_before_it_is_needed() {
        let milliseconds = Duration::from_millis;
        assert_eq!(left_when_due(50, milliseconds(0)), 1);
        assert_eq!(left_when_due(50, milliseconds(1)), 2);
        assert_eq!(left_when_due(50, milliseconds(100)), 11);
        assert_eq!(left_when_due(1_000, milliseconds(100)), 201);
        // A slice of 51 ms cannot outlast such a trip, so it is asked for as soon as the rate is seen.
        assert_eq!(left_when_due(5_000, milliseconds(100)), SLICE - 3);
    }

    #[test]
    fn the_largest_item_is_kept_ready_and_a_slower_trip_counts_at_once() {
        let start = Instant::now();
        let mut pace = GrowthPace::new(start, Duration::ZERO);
        pace.counted(start, 40);
        let now = start + Duration::from_secs(1);
        assert!(!pace.is_due(now, 41, SLICE));
        assert!(pace.is_due(now, 40, SLICE));
        pace.granted(now, Duration::from_millis(500));
        assert!(pace.is_due(now, 80, SLICE));
        assert!(!pace.is_due(now, 81, SLICE));
        // A stream that stood still is as fast as it was, whatever it counts at first.
        let later = now + Duration::from_secs(60);
        pace.granted(later, Duration::from_millis(500));
        pace.counted(later, 40);
        assert!(!pace.is_due(later, 41, SLICE));
        // The rate of the slice before stands until this one has its own.
        pace.granted(now, Duration::ZERO);
        assert!(!pace.is_due(now, SLICE + 1, SLICE));
    }
}
