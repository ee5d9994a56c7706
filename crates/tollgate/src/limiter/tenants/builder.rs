use std::{fmt, future::Future, hash::Hash, time::Duration};

use super::{
    fetch::{Fetch, FetchError, Fetcher},
    limiters::TenantLimiters,
    options::{Options, SourceOutage},
};
use crate::{Limiter, limiter::Selection};

/// Builds [`TenantLimiters`].
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Limiter, MemoryStore, Policy, Quota, tenants::{SourceOutage, TenantLimiters}};
///
/// let default = Limiter::new(MemoryStore::new(), Policy::token_bucket("api", Quota::per_minute(10)));
/// let tenants = TenantLimiters::builder(default, async |_tenant: u64| Ok::<_, std::io::Error>(None::<Policy>))
///     .max_entries(10_000)
///     .time_to_live(Duration::from_secs(60))
///     .on_outage(SourceOutage::Closed)
///     .build();
/// assert_eq!(tenants.cached(), 0);
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct TenantLimitersBuilder<T> {
    default: Limiter,
    fetch: Fetch<T>,
    options: Options,
    refresh_after: Option<Duration>,
}

impl<T: Clone + Eq + Hash + Send + Sync + 'static> TenantLimiters<T> {
    /// Creates a cache with the default options.
    ///
    /// `default` limits the tenants that have no limits of their own, and lends its store and options to all others.
    /// `fetch` returns the limits of a tenant: policies in every form that [`Limiter::new`] takes, an `Option` of
    /// them, or a [`Selection`]. Policies that make no set count as a failed fetch.
    pub fn new<F, R, S, E>(default: Limiter, fetch: F) -> Self
    where
        F: Fn(T) -> R + Send + Sync + 'static,
        R: Future<Output = Result<S, E>> + Send + 'static,
        S: Into<Selection>,
        E: Into<FetchError>,
    {
        Self::builder(default, fetch).build()
    }

    /// Returns a builder for the options. The arguments are those of [`new`](Self::new).
    pub fn builder<F, R, S, E>(default: Limiter, fetch: F) -> TenantLimitersBuilder<T>
    where
        F: Fn(T) -> R + Send + Sync + 'static,
        R: Future<Output = Result<S, E>> + Send + 'static,
        S: Into<Selection>,
        E: Into<FetchError>,
    {
        TenantLimitersBuilder {
            default,
            fetch: Box::new(move |tenant| {
                let found = fetch(tenant);
                Box::pin(async move { found.await.map(Into::into).map_err(Into::into) })
            }),
            options: Options {
                max_entries: 100_000,
                time_to_live: Duration::from_secs(300),
                refresh_after: Duration::ZERO,
                stale_if_error: Duration::MAX,
                fetch_timeout: Duration::from_secs(1),
                retry_delay: Duration::from_secs(1),
                max_fetches: 32,
                outage: SourceOutage::Default,
            },
            refresh_after: None,
        }
    }
}

impl<T: Clone + Eq + Hash + Send + Sync + 'static> TenantLimitersBuilder<T> {
    /// Sets the number of tenants in the cache. 100 000 by default, at least 1.
    ///
    /// The cache is divided into parts, and each part rounds its size up. As many tenants may wait for a fetch at a time.
    /// Further ones get the answer of [`on_outage`](Self::on_outage).
    pub fn max_entries(mut self, max_entries: usize) -> Self {
        self.options.max_entries = max_entries.max(1);
        self
    }

    /// Sets how long fetched limits are in force. 5 minutes by default.
    ///
    /// A request of a tenant whose limits are older waits for a fetch. When the fetch fails, the old limits stay in force
    /// for the time of [`stale_if_error`](Self::stale_if_error).
    pub fn time_to_live(mut self, time_to_live: Duration) -> Self {
        self.options.time_to_live = time_to_live;
        self
    }

    /// Sets the age at which limits are fetched again in the background. Four fifths of the
    /// [time to live](Self::time_to_live) by default.
    ///
    /// The next request of the tenant starts the fetch, and uses the old limits.
    pub fn refresh_after(mut self, age: Duration) -> Self {
        self.refresh_after = Some(age);
        self
    }

    /// Sets how long limits stay in force after their [time to live](Self::time_to_live) while the source fails.
    /// Unlimited by default.
    ///
    /// A tenant whose limits are older gets the answer of [`on_outage`](Self::on_outage). The name is that of the
    /// directive of HTTP caches in RFC 5861, section 4.
    pub fn stale_if_error(mut self, time: Duration) -> Self {
        self.options.stale_if_error = time;
        self
    }

    /// Sets how long a fetch may take, and so how long a request may wait for it. 1 second by default.
    ///
    /// A fetch that takes longer is dropped, and counts as failed.
    pub fn fetch_timeout(mut self, timeout: Duration) -> Self {
        self.options.fetch_timeout = timeout;
        self
    }

    /// Sets the time from a failed fetch to the next fetch of the same tenant. 1 second by default.
    pub fn retry_delay(mut self, delay: Duration) -> Self {
        self.options.retry_delay = delay;
        self
    }

    /// Sets how many fetches run at a time. 32 by default, at least 1. Further ones wait for their turn.
    pub fn max_fetches(mut self, max_fetches: usize) -> Self {
        self.options.max_fetches = max_fetches.max(1);
        self
    }

    /// Sets the answer for a tenant whose limits are not in the cache and cannot be fetched. By default the default
    /// limiter applies.
    pub fn on_outage(mut self, outage: SourceOutage) -> Self {
        self.options.outage = outage;
        self
    }

    /// Builds the cache.
    #[must_use]
    pub fn build(self) -> TenantLimiters<T> {
        let Self { default, fetch, mut options, refresh_after } = self;
        options.refresh_after = refresh_after.unwrap_or(options.time_to_live / 5 * 4).min(options.time_to_live);
        TenantLimiters::of(Fetcher::new(default, fetch, options))
    }
}

impl<T> fmt::Debug for TenantLimitersBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantLimitersBuilder")
            .field("default", &self.default)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
