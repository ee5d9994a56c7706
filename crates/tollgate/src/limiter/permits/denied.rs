use std::{fmt, time::Duration};

use crate::ErrorKind;

/// Reports that no permit was free. [`ConcurrencyLimiter::acquire`](crate::permits::ConcurrencyLimiter::acquire) returns it.
///
/// The message names the limit. It does not contain the key.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate::{MemoryStore, permits::{Concurrency, ConcurrencyLimiter}};
///
/// let exports = ConcurrencyLimiter::new(MemoryStore::new(), Concurrency::new("exports", 1));
/// let permit = exports.acquire("acme").await??;
/// let denied = exports.acquire("acme").await?.unwrap_err();
/// assert_eq!(denied.to_string(), "concurrency limit exports reached: 1 of 1 in flight, retry after about 1s");
/// drop(permit);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct PermitDenied {
    pub(super) name: Box<str>,
    pub(super) limit: u32,
    pub(super) in_flight: u64,
    pub(super) retry_after: Duration,
    pub(super) degraded: Option<ErrorKind>,
}

impl PermitDenied {
    /// Returns the name of the [`Concurrency`](crate::permits::Concurrency).
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns how many permits of a key may be held at the same time.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns how many permits of the key were in flight over all replicas when the store was asked last.
    ///
    /// Permits that other replicas hold idle are included.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Estimates how long until a permit is free. At most 60 s.
    ///
    /// Nobody knows when the work of others ends, so this is no promise. The estimate is the mean time for which
    /// permits were held in this process, divided by the permits in flight. Until a first permit was given back, it is
    /// 1 s.
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        self.retry_after
    }

    /// Returns why the denial was made without the store. `None` when the store denied.
    #[must_use]
    pub fn degraded(&self) -> Option<ErrorKind> {
        self.degraded
    }
}

impl fmt::Display for PermitDenied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, limit, in_flight, retry_after, .. } = self;
        write!(
            f,
            "concurrency limit {name} reached: {in_flight} of {limit} in flight, retry after about {retry_after:?}"
        )
    }
}

impl std::error::Error for PermitDenied {}
