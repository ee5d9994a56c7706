//! The metrics of a store, behind the feature of that name.

#[cfg_attr(not(feature = "metrics"), path = "off.rs")]
mod series;

use std::time::Duration;

pub(super) use series::StoreMetrics;

/// Describes the servers of a store at one time.
#[derive(Debug, Default)]
pub(super) struct StoreState {
    pub(super) servers: usize,
    /// The servers to which there is a connection.
    pub(super) connected: usize,
    /// The servers whose circuit breaker is open.
    pub(super) breakers_open: usize,
    /// The checks that wait to be sent.
    pub(super) queued: usize,
    pub(super) round_trip: Option<Duration>,
    pub(super) replicas: Option<u32>,
}
