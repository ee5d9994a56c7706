//! Models the line between a process and the server, in one direction.

use crate::{random::Random, time::Nanos};

/// Describes a line. Times are nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    /// The round trip from each of these times on.
    pub(crate) round_trips: Vec<(Nanos, Nanos)>,
    /// The mean of the time that is added at random, in each direction.
    pub(crate) jitter: Nanos,
    /// Nothing arrives for this long at the end of each period, in both directions.
    pub(crate) stall: Option<Pulse>,
    /// Answers arrive at multiples of this time only.
    pub(crate) bursts: Option<Nanos>,
}

/// Describes what happens again and again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pulse {
    pub(crate) period: Nanos,
    pub(crate) length: Nanos,
}

/// Delivers what is put on the line, in order.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    route: Route,
    bursts: Option<Nanos>,
    random: Random,
    last: Nanos,
}

impl Route {
    /// Returns a line with this round trip, and a jitter of a twentieth of it.
    pub(crate) fn new(round_trip: Nanos) -> Self {
        Self {
            round_trips: vec![(0, round_trip)],
            jitter: round_trip / 40,
            stall: None,
            bursts: None,
        }
    }

    pub(crate) fn round_trip(&self, now: Nanos) -> Nanos {
        let valid = self.round_trips.iter().rev().find(|(from, _)| *from <= now);
        valid.map_or(0, |&(_, round_trip)| round_trip)
    }
}

impl Line {
    /// Creates the line to the server, or the one back.
    pub(crate) fn new(route: &Route, is_back: bool, seed: u64) -> Self {
        let bursts = route.bursts.filter(|_| is_back);
        Self {
            route: route.clone(),
            bursts,
            random: Random::new(2 * seed + u64::from(is_back)),
            last: 0,
        }
    }

    /// Returns when something arrives that leaves now. It does not overtake what left earlier.
    pub(crate) fn arrival(&mut self, now: Nanos) -> Nanos {
        let jitter = self.random.exponential(self.route.jitter as f64) as Nanos;
        let mut at = now + self.route.round_trip(now) / 2 + jitter;
        if let Some(Pulse { period, length }) = self.route.stall
            && at % period >= period - length
        {
            at = at.next_multiple_of(period);
        }
        if let Some(every) = self.bursts {
            at = at.next_multiple_of(every);
        }
        self.last = self.last.max(at);
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    #[test]
    fn nothing_overtakes_and_half_the_round_trip_passes() {
        let mut line = Line::new(&Route::new(10 * MS), false, 1);
        let arrivals: Vec<Nanos> = (0..1_000).map(|at| line.arrival(at * MS / 100)).collect();
        assert!(arrivals.is_sorted());
        assert!(
            arrivals
                .iter()
                .enumerate()
                .all(|(at, &arrival)| arrival >= at as Nanos * MS / 100 + 5 * MS)
        );
    }

    #[test]
    fn a_stall_delays_until_its_end_and_a_burst_collects() {
        let stall = Some(Pulse {
            period: 100 * MS,
            length: 30 * MS,
        });
        let mut line = Line::new(
            &Route {
                stall,
                ..Route::new(0)
            },
            false,
            1,
        );
        assert_eq!(
            [line.arrival(60 * MS), line.arrival(80 * MS)],
            [60 * MS, 100 * MS]
        );
        let route = Route {
            bursts: Some(5 * MS),
            ..Route::new(0)
        };
        assert_eq!(Line::new(&route, true, 1).arrival(MS), 5 * MS);
        assert_eq!(
            Line::new(&route, false, 1).arrival(MS),
            MS,
            "requests are not collected"
        );
    }

    #[test]
    fn a_round_trip_changes_at_its_time() {
        let route = Route {
            round_trips: vec![(0, MS), (10 * MS, 40 * MS)],
            jitter: 0,
            stall: None,
            bursts: None,
        };
        assert_eq!(
            [0, 9 * MS, 10 * MS].map(|now| route.round_trip(now)),
            [MS, MS, 40 * MS]
        );
    }
}
