//! How often and how long each contestant runs.

use std::time::Duration;

/// The length of a measurement.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    pub(crate) is_quick: bool,
    /// Inside the process, where turns can be short: the more there are, the fewer a neighbour disturbs.
    pub(crate) inside: Rounds,
    /// Against a server.
    pub(crate) load: Rounds,
    /// The calls of one run of redis-benchmark.
    pub(crate) calls: u64,
}

/// How often everybody has a turn, and how long it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounds {
    pub(crate) count: usize,
    pub(crate) turn: Duration,
}

impl Pace {
    /// The calls that redis-benchmark makes in a turn: fewer in the one that does not count.
    pub(crate) fn calls_in(&self, turn: Duration) -> u64 {
        if turn < self.load.turn { self.calls / 4 } else { self.calls }
    }

    pub(crate) fn full() -> Self {
        Self {
            is_quick: false,
            inside: Rounds { count: 25, turn: Duration::from_millis(40) },
            load: Rounds { count: 5, turn: Duration::from_millis(500) },
            calls: 200_000,
        }
    }

    pub(crate) fn quick() -> Self {
        Self {
            is_quick: true,
            inside: Rounds { count: 7, turn: Duration::from_millis(10) },
            load: Rounds { count: 3, turn: Duration::from_millis(100) },
            calls: 15_000,
        }
    }
}
