//! Windows of samples. Pure: time is an argument.
//! When a window begins and closes is decided in `estimator.rs`.

use std::time::Duration;

use crate::signal::Signal;

/// A summary of the requests that ended in one window of time, for a
/// [`LimitAlgorithm`](crate::LimitAlgorithm).
#[derive(Clone, Debug)]
pub struct SampleWindow {
    pub(crate) samples: u64,
    pub(crate) overloads: u64,
    pub(crate) latency_sum_us: u64,
    pub(crate) in_flight: u32,
    pub(crate) has_shed: bool,
    pub(crate) limit: f64,
    pub(crate) lowest_limit: u32,
}

/// The share of overloaded requests, in percent, from which on a window counts as overloaded.
const OVERLOADED_PERCENT: u64 = 5;

impl SampleWindow {
    pub(crate) fn new(limit: f64, lowest_limit: u32) -> Self {
        Self {
            samples: 0,
            overloads: 0,
            latency_sum_us: 0,
            in_flight: 0,
            has_shed: false,
            limit,
            lowest_limit,
        }
    }

    /// Returns the mean latency, in whole microseconds. Requests that met an
    /// [overload](Signal::Overload) are left out, because an error is often fast. `None` when no
    /// other request ended.
    #[must_use]
    pub fn latency(&self) -> Option<Duration> {
        self.latency_sum_us
            .checked_div(self.samples)
            .map(Duration::from_micros)
    }

    /// Returns the greatest number of requests in flight, counted when each request was admitted.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Returns the limit in this window, with its fractional part.
    #[must_use]
    pub fn limit(&self) -> f64 {
        self.limit
    }

    /// Returns the lowest limit that the limiter allows.
    #[must_use]
    pub fn lowest_limit(&self) -> u32 {
        self.lowest_limit
    }

    /// Returns whether more than 5 % of the requests met an [overload](Signal::Overload).
    #[must_use]
    pub fn is_overloaded(&self) -> bool {
        self.overloads * 100 > (self.samples + self.overloads) * OVERLOADED_PERCENT
    }

    /// Returns whether the requests used at least half of the limit, or requests were shed. In any
    /// other window, a low latency does not show that the service could do more.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.has_shed || f64::from(self.in_flight) * 2.0 >= self.limit
    }
}

/// Describes one request that ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) signal: Signal,
    pub(crate) latency_us: u64,
    /// The requests in flight when the request was admitted, itself included.
    pub(crate) in_flight: u32,
}
