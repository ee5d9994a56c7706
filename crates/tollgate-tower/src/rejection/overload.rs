use std::{error, fmt, time::Duration};

/// Describes a request that was shed, because as many requests as the service can work on are in flight.
///
/// An [`AdaptiveLimiter`](crate::adaptive::AdaptiveLimiter) returns it. A
/// [`ConcurrencyLayer`](crate::concurrency::ConcurrencyLayer) that protects the service reports it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overload {
    pub(crate) in_flight: u32,
    pub(crate) limit: u32,
    pub(crate) retry_after: Duration,
}

impl Overload {
    /// Returns the number of requests that were in flight.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Returns the number of requests in flight that the limiter allows, or the priority of the request.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns the time after which the client should try again.
    ///
    /// It is an estimate, unlike the wait for a quota: no clock says when a service is less busy. An adaptive limiter
    /// takes the mean latency of the last window, or the length of a window if that is longer. A concurrency limit takes
    /// [its own](tollgate::PermitDenied::retry_after).
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        self.retry_after
    }
}

impl fmt::Display for Overload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the service is overloaded: {} requests in flight, limit {}", self.in_flight, self.limit)
    }
}

impl error::Error for Overload {}
