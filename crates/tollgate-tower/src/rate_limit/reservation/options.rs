//! The options that reservations of a layer and of a handler have in common.
//! What happens at the end of a reservation is in `metered.rs`.

use std::time::Duration;

use http::request::Parts;
use tollgate_core::{Costs, Key, Limiter, reservation::Reservation, store::StoreFuture};

/// Computes the estimate of a request from its head.
pub(crate) type EstimateOf = Box<dyn Fn(&Parts) -> Costs + Send + Sync>;

/// Stores the options of reservations.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReserveOptions {
    pub(crate) time_to_live: Option<Duration>,
    pub(crate) is_capped: bool,
}

/// Writes the options of a builder with the field `options`.
macro_rules! reserve_options {
    () => {
        /// Lowers an estimate above the burst of a policy to that burst. By default the response to
        /// such a request is 413.
        ///
        /// Units that the meter counts beyond the burst are charged as a debt.
        pub fn capped(mut self) -> Self {
            self.options.is_capped = true;
            self
        }

        /// Sets the time after which a reservation can no longer be settled: the estimate stays
        /// charged then. The default is 10 minutes.
        ///
        /// Set it longer than a response can take.
        ///
        /// # Panics
        ///
        /// Panics when it is not between 1 ms and 7 days.
        pub fn time_to_live(mut self, time_to_live: std::time::Duration) -> Self {
            self.options.set_time_to_live(time_to_live);
            self
        }
    };
}
pub(super) use reserve_options;

impl ReserveOptions {
    /// Sets the time to live.
    ///
    /// # Panics
    ///
    /// Panics when it is not between 1 ms and 7 days.
    pub(super) fn set_time_to_live(&mut self, time_to_live: Duration) {
        let (shortest, longest) = (Reservation::MIN_TIME_TO_LIVE, Reservation::MAX_TIME_TO_LIVE);
        assert!(
            (shortest..=longest).contains(&time_to_live),
            "time to live must be {shortest:?} to {longest:?}, got {time_to_live:?}"
        );
        self.time_to_live = Some(time_to_live);
    }

    /// Reserves the estimate, for a turn within `max_wait` where the layer waits.
    pub(crate) fn reserve(
        self,
        limiter: &Limiter,
        key: &Key,
        estimate: Costs,
        max_wait: Option<Duration>,
    ) -> StoreFuture<Reservation> {
        let mut reserve = limiter.reserve(key.clone(), estimate);
        if let Some(max_wait) = max_wait {
            reserve = reserve.wait(max_wait);
        }
        if let Some(time_to_live) = self.time_to_live {
            reserve = reserve.time_to_live(time_to_live);
        }
        if self.is_capped {
            reserve = reserve.capped();
        }
        reserve.into_future()
    }
}
