//! Sets how often and how long each contestant runs.

use std::time::Duration;

/// Sets the length of a measurement.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    pub(crate) is_quick: bool,
    /// Rounds of measurements in process. Turns are short there, so that other processes disturb
    /// only some of them.
    pub(crate) inside: Rounds,
    /// Rounds of measurements with a server.
    pub(crate) load: Rounds,
    /// Calls in one turn of redis-benchmark, or of the plain loop that replaces it.
    pub(crate) calls: u64,
}

/// Sets how many turns each contestant has, and how long a turn is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounds {
    pub(crate) count: usize,
    pub(crate) turn: Duration,
}

impl Pace {
    /// Returns the number of calls in a turn of redis-benchmark. The warm-up turn has a quarter of
    /// the calls.
    pub(crate) fn calls_in(&self, turn: Duration) -> u64 {
        if turn < self.load.turn {
            self.calls / 4
        } else {
            self.calls
        }
    }

    /// Returns the lengths for a full run.
    pub(crate) fn full() -> Self {
        Self {
            is_quick: false,
            inside: Rounds {
                count: 25,
                turn: Duration::from_millis(40),
            },
            load: Rounds {
                count: 5,
                turn: Duration::from_millis(500),
            },
            calls: 200_000,
        }
    }

    /// Returns the lengths for `--quick`.
    pub(crate) fn quick() -> Self {
        Self {
            is_quick: true,
            inside: Rounds {
                count: 7,
                turn: Duration::from_millis(10),
            },
            load: Rounds {
                count: 3,
                turn: Duration::from_millis(100),
            },
            calls: 15_000,
        }
    }
}
