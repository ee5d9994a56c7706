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
}

/// Sets how many turns each contestant has, and how long a turn is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounds {
    pub(crate) count: usize,
    pub(crate) turn: Duration,
}

impl Pace {
    /// Returns the lengths for a full run, or for `--quick`.
    pub(crate) fn new(is_quick: bool) -> Self {
        let rounds =
            |[count, quick_count]: [usize; 2], [turn_ms, quick_turn_ms]: [u64; 2]| Rounds {
                count: if is_quick { quick_count } else { count },
                turn: Duration::from_millis(if is_quick { quick_turn_ms } else { turn_ms }),
            };
        Self {
            is_quick,
            inside: rounds([25, 7], [40, 10]),
            load: rounds([5, 3], [500, 100]),
        }
    }
}
