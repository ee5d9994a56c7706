//! The lowest time that the clock of a server can show, as this process has seen it.
//! The purse takes it with each call, in `wire.rs`.

use std::time::Instant;

use tollgate_core::raw::{Lock, micros, runtime};

/// Carries the last reading of a server's clock on by the clock of this process, less a thousandth.
///
/// A clock that goes back would let units live longer than the home counts them.
#[derive(Debug, Default)]
pub(crate) struct Floor(Lock<Option<(u64, Instant)>>);

impl Floor {
    /// Returns the lowest time in microseconds, and 0 before the first reading.
    pub(crate) fn now_us(&self) -> u64 {
        let seen = *self.0.lock();
        seen.map_or(0, carried)
    }

    /// Notes a time that the server has shown, no later than now.
    pub(crate) fn note(&self, shown_us: u64) {
        let mut seen = self.0.lock();
        if seen.is_none_or(|seen| carried(seen) < shown_us) {
            *seen = Some((shown_us, runtime::now()));
        }
    }
}

fn carried((shown_us, at): (u64, Instant)) -> u64 {
    let passed_us = micros(runtime::now().saturating_duration_since(at));
    shown_us + passed_us - passed_us.div_ceil(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn the_floor_rises_a_thousandth_slower_than_the_clock_and_never_falls() {
        let floor = Floor::default();
        assert_eq!(floor.now_us(), 0);
        floor.note(1_000_000);
        advance(Duration::from_secs(1)).await;
        assert_eq!(floor.now_us(), 1_999_000);
        floor.note(1_500_000);
        assert_eq!(floor.now_us(), 1_999_000);
        floor.note(5_000_000);
        assert_eq!(floor.now_us(), 5_000_000);
    }
}
