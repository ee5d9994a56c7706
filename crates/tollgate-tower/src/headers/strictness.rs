use std::{cmp::Reverse, time::Duration};

/// Compares the states of two limits: a longer wait is stricter, and then fewer remaining units.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Strictness {
    /// The time until there are more units. It is zero when units are left.
    wait: Duration,
    remaining: Reverse<u64>,
}

impl Strictness {
    pub(super) fn new(remaining: u64, until_more: Duration) -> Self {
        Self { wait: if remaining == 0 { until_more } else { Duration::ZERO }, remaining: Reverse(remaining) }
    }

    /// Returns whether no unit is left and the client has to wait.
    pub(super) fn waits(&self) -> bool {
        !self.wait.is_zero()
    }
}
