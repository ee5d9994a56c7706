//! The options of the limits of tenants. What they change is in `mod.rs` and `fetch.rs`.

use std::time::Duration;

/// Selects the answer for a tenant whose limits are not in the cache and cannot be fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceOutage {
    /// Limits the tenant by the default limiter. The default.
    #[default]
    Default,
    /// Applies no limit.
    Open,
    /// Returns an error. The middleware responds with 503.
    Closed,
}

/// Stores the options of the cache and of its source.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) max_entries: usize,
    pub(super) time_to_live: Duration,
    pub(super) refresh_after: Duration,
    /// The time after `time_to_live` in which limits stay in force while they cannot be fetched.
    pub(super) stale_if_error: Duration,
    pub(super) fetch_timeout: Duration,
    pub(super) retry_delay: Duration,
    pub(super) max_fetches: usize,
    pub(super) outage: SourceOutage,
}

impl Options {
    /// Returns the age up to which limits may be in force.
    pub(super) fn longest_age(&self) -> Duration {
        self.time_to_live.saturating_add(self.stale_if_error)
    }
}
