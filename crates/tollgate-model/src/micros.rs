//! Durations as the whole microseconds in which states and scripts count.
//! Nothing here reads a clock.

use std::time::Duration;

/// Returns the whole microseconds of a duration, at most [`u64::MAX`] (584 000 years).
#[inline]
#[must_use]
pub fn micros(duration: Duration) -> u64 {
    duration
        .as_secs()
        .saturating_mul(1_000_000)
        .saturating_add(u64::from(duration.subsec_micros()))
}
