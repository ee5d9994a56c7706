//! The options that reservations of a layer and of a handler have in common.
//! What happens at the end of a reservation is in `metered.rs`.

use std::time::Duration;

use http::request::Parts;
use tollgate_core::{Costs, Key, Limiter, reservation::Reservation, store::StoreFuture};

use super::HeldReservation;

/// Computes the estimate of a request from its head.
pub(crate) type EstimateOf = Box<dyn Fn(&Parts) -> Costs + Send + Sync>;

/// Stores the options of reservations.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReserveOptions {
    pub(crate) time_to_live: Option<Duration>,
    pub(crate) is_capped: bool,
    /// The charge of a slice, if the reservation grows.
    pub(crate) slice: Option<Costs>,
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

        /// Lets the reservation grow by slices, for a response whose length nobody knows. By default,
        /// the estimate is all that is reserved.
        ///
        /// The estimate is then what is known before the response: the request, and the tokens of the
        /// prompt. A slice is charged on top of it, and the next one before the present one is spent:
        /// see [`ReserveBuilder::growing`](tollgate_core::reservation::ReserveBuilder::growing).
        /// Count with [`Meter::take`](crate::Meter::take) before an item leaves. What is reserved and
        /// not counted comes back, and no response leaves a debt.
        ///
        /// A reservation that cannot grow is answered as a wrong set-up is: with 500. A response keeps the limiter
        /// with which it began.
        pub fn growing(mut self, slice: impl Into<tollgate_core::Costs>) -> Self {
            self.options.slice = Some(slice.into());
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
    ) -> StoreFuture<HeldReservation> {
        let mut reserve = limiter.reserve(key.clone(), estimate);
        if let Some(time_to_live) = self.time_to_live {
            reserve = reserve.time_to_live(time_to_live);
        }
        if self.is_capped {
            reserve = reserve.capped();
        }
        match (self.slice, max_wait) {
            (Some(slice), _) => {
                let growing = reserve.growing(slice).into_future();
                growing.map(HeldReservation::Growing)
            }
            (None, Some(max_wait)) => {
                let waiting = reserve.wait(max_wait).into_future();
                waiting.map(HeldReservation::Estimate)
            }
            (None, None) => reserve.into_future().map(HeldReservation::Estimate),
        }
    }
}
