//! The ticket of a batch under way, which knows when it left. What is made of its answer is in the files beside.

use std::time::{Duration, Instant};

/// Belongs to a batch under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    pub(super) connection: u64,
    pub(super) sent: Instant,
    pub(super) keys: usize,
    pub(super) checks: usize,
}

/// Returns a time in milliseconds.
pub(super) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}
