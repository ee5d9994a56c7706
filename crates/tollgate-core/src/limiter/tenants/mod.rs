//! The limits of tenants, which are fetched and cached.
//! When a fetch may begin and how it ends is in `fetch.rs`; what it may return is in
//! `selection.rs`.

mod fetch;
mod options;

use std::{convert::Infallible, future::Future, hash::Hash, sync::Arc, time::Duration};

use foldhash::fast::RandomState;
use quick_cache::{
    UnitWeighter,
    sync::{Cache, DefaultLifecycle},
};
use tokio::{
    runtime::Handle,
    time::{Instant, timeout},
};

use crate::{
    Limiter,
    limiter::{Limited, Selection},
    runtime,
    store::StoreFuture,
};
use fetch::{Fetch, FetchError, FetchGuard, Fetcher, LimitsLookup, TenantEntry};
use options::Options;
pub use options::SourceOutage;

/// Resolves to the limiter of a tenant, or to its exemption.
///
/// [`TenantLimiters::limiter_for`] returns it. A cached limiter is there at once, without an
/// allocation.
pub type LimiterFuture = StoreFuture<Limited>;

/// Fetches the limits of tenants, such as the plan of a customer in a database, and caches them.
///
/// `T` identifies a tenant. An asynchronous function returns the policies of a tenant, or any other
/// [`Selection`](crate::limiter::Selection). All tenants share the store and the options of one
/// limiter, so a tenant takes a few hundred bytes.
///
/// - **Bounded.** The cache holds 100 000 tenants, and keeps the tenants that are used often. A
///   flood of unknown tenants does not displace them. Few fetches run at a time.
/// - **Fetched once.** However many requests of a tenant arrive together, one fetch answers all of
///   them. A request that is cancelled does not cancel the fetch.
/// - **Up to date.** Limits are in force for 5 minutes. After 4 minutes the next request starts a
///   fetch in the background and uses the old limits meanwhile.
/// - **Calm in an outage.** A fetch takes 1 second at most. When it fails or panics, the old limits
///   stay in force, however old they are, unless
///   [`stale_if_error`](crate::tenants::TenantLimitersBuilder::stale_if_error) bounds their age. A
///   tenant without limits in the cache gets the answer of
///   [`SourceOutage`](crate::tenants::SourceOutage). A tenant is fetched again after 1 second at
///   the earliest. When the fetches of several tenants have failed one after the other, a single
///   fetch each second finds out whether the source is back, and no request waits for the others.
///
/// The [builder](Self::builder) changes these numbers. The begin and the end of an outage of the
/// source are logged once each. A fetched `None` is cached like limits.
///
/// `None` means that the source knows no limits of the tenant: the default limiter applies. Return
/// [`Selection::Exempt`](crate::limiter::Selection::Exempt) for a tenant without a limit, and
/// [`Selection::Blocked`](crate::limiter::Selection::Blocked), or a policy with an amount of 0, for
/// a suspended tenant. Its requests are denied without a call to the store.
///
/// ```
/// use std::collections::HashMap;
/// use tollgate::{Limiter, MemoryStore, Policy, Quota, limiter::Limited, tenants::TenantLimiters};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
/// const API: Policy = Policy::token_bucket("api", Quota::per_minute(10));
///
/// /// Stands for a query to a database.
/// async fn fetch(tenant: String) -> Result<Option<Policy>, tollgate::Error> {
///     let plans = HashMap::from([("acme", 500)]);
///     plans.get(&*tenant).map(|amount| API.with_quota(Quota::per_minute(*amount))).transpose()
/// }
///
/// let tenants = TenantLimiters::new(Limiter::new(MemoryStore::new(), API), fetch);
/// for (tenant, left) in [("acme", 499), ("another", 9)] {
///     let Limited::By(limiter) = tenants.limiter_for(&tenant.to_owned()).await? else { panic!("the tenant is exempt") };
///     assert_eq!(limiter.check(tenant).await?.state("api").unwrap().remaining(), left);
/// }
/// # Ok(()) }
/// ```
///
/// A fetch returns policies in every form that [`Limiter::new`] takes, such as a rate and a daily
/// limit.
#[doc(alias = "plan")]
#[doc(alias = "customer")]
pub struct TenantLimiters<T> {
    fetcher: Arc<Fetcher<T>>,
    // `moka` has expiry and shared fetches too, but no refresh in the background, and a clock of
    // its own that tests cannot pause. So age, refresh and the shared fetch stand in the entry. A
    // flood of new tenants does not displace busy ones here (S3-FIFO), and a hit takes a read lock
    // of one of many parts.
    cache: Arc<Cache<T, Arc<TenantEntry>, UnitWeighter, RandomState>>,
}

impl<T: Clone + Eq + Hash + Send + Sync + 'static> TenantLimiters<T> {
    fn of(fetcher: Fetcher<T>) -> Self {
        let entries = fetcher.options.max_entries;
        let cache = Cache::with(
            entries,
            entries as u64,
            UnitWeighter,
            RandomState::default(),
            DefaultLifecycle::default(),
        );
        Self {
            fetcher: Arc::new(fetcher),
            cache: Arc::new(cache),
        }
    }

    /// Returns the limiter of a tenant. Waits for a fetch if the cache has no limits of the tenant,
    /// or outdated limits.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SourceUnavailable`](crate::ErrorKind::SourceUnavailable) when the cache has no
    /// limits of the tenant, the fetch failed, and the source is
    /// [`Closed`](crate::tenants::SourceOutage::Closed) in an outage.
    /// [`ErrorKind::NoRuntime`](crate::ErrorKind::NoRuntime) when a fetch is needed, and the future
    /// is polled outside a tokio runtime.
    pub fn limiter_for(&self, tenant: &T) -> LimiterFuture {
        let fetcher = &self.fetcher;
        let entry = self.entry(tenant);
        let (now, mut runtime) = (Instant::now(), None);
        let lookup = entry.look_up(now, &fetcher.options, || {
            runtime = Handle::try_current().ok();
            runtime.is_some() && fetcher.source.may_fetch(now)
        });
        let (mut running, known) = match lookup {
            LimitsLookup::Known(limiter) => return StoreFuture::ready(Ok(limiter)),
            LimitsLookup::Unknown if Handle::try_current().is_err() => {
                // The future may be polled inside a runtime.
                let (tenants, tenant) = (self.clone(), tenant.clone());
                return StoreFuture::pending(async move {
                    runtime::current()?;
                    tenants.limiter_for(&tenant).await
                });
            }
            LimitsLookup::Unknown => return StoreFuture::ready(fetcher.without_source()),
            LimitsLookup::Running(running) => (running, None),
            LimitsLookup::Begin {
                begun,
                running,
                known,
            } => {
                if let Some(runtime) = runtime {
                    fetcher
                        .source
                        .begins(fetcher.default.name(), self.cache.len());
                    let guard =
                        FetchGuard::new(Arc::clone(fetcher), Arc::clone(&entry), begun, now);
                    runtime.spawn(fetch::run(tenant.clone(), guard));
                }
                (running, known)
            }
        };
        match known {
            Some(limiter) => StoreFuture::ready(Ok(limiter)),
            None => {
                let fetcher = Arc::clone(fetcher);
                StoreFuture::pending(async move {
                    runtime::current()?;
                    // The fetch wakes this request. The timer is for a fetch whose runtime is
                    // blocked.
                    let longest = fetcher.options.fetch_timeout.saturating_mul(5) / 4;
                    let _ = timeout(longest, running.changed()).await;
                    entry
                        .found(Instant::now(), &fetcher.options)
                        .map_or_else(|| fetcher.without_source(), Ok)
                })
            }
        }
    }

    /// Removes the limits of a tenant from the cache, so that the next request fetches them.
    ///
    /// Call it when the plan of a tenant has changed and should be in force at once. A fetch that
    /// is under way answers only the requests that already wait for it.
    pub fn invalidate(&self, tenant: &T) {
        self.cache.remove(tenant);
    }

    /// Removes the limits of all tenants from the cache.
    pub fn invalidate_all(&self) {
        self.cache.clear();
    }

    /// Returns the number of tenants in the cache.
    #[must_use]
    pub fn cached(&self) -> usize {
        self.cache.len()
    }

    /// Returns the entry of a tenant. Creates an empty one for a new tenant.
    fn entry(&self, tenant: &T) -> Arc<TenantEntry> {
        if let Some(entry) = self.cache.get(tenant) {
            return entry;
        }
        let Ok(entry) = self
            .cache
            .get_or_insert_with(tenant, || Ok::<_, Infallible>(Arc::default()));
        entry
    }
}

impl<T> TenantLimiters<T> {
    /// Returns the limiter of tenants without limits of their own.
    #[must_use]
    pub fn default_limiter(&self) -> &Limiter {
        &self.fetcher.default
    }
}

impl<T> Clone for TenantLimiters<T> {
    fn clone(&self) -> Self {
        Self {
            fetcher: Arc::clone(&self.fetcher),
            cache: Arc::clone(&self.cache),
        }
    }
}

// Leaves out the tenants: they may identify a person.
crate::debug_fields! {
    TenantLimiters<T>: default = .fetcher.default, options = .fetcher.options, ..
}

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
    /// `default` limits the tenants that have no limits of their own, and lends its store and
    /// options to all others. `fetch` returns the limits of a tenant: policies in every form that
    /// [`Limiter::new`] takes, an `Option` of them, or a [`Selection`]. Policies that
    /// [`PolicySet::try_new`](crate::PolicySet::try_new) refuses are a failed fetch.
    pub fn new<F, R, S, E>(default: Limiter, fetch: F) -> Self
    where
        F: Fn(T) -> R + Send + Sync + 'static,
        R: Future<Output = Result<S, E>> + Send + 'static,
        S: Into<Selection>,
        E: Into<FetchError>,
    {
        Self::builder(default, fetch).build()
    }

    /// Returns a builder for the options. It takes the arguments of [`new`](Self::new).
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
    /// The cache is divided into parts, and each part rounds its size up. At most as many tenants
    /// wait for a fetch at a time. Further tenants get the answer of
    /// [`on_outage`](Self::on_outage).
    pub fn max_entries(mut self, max_entries: usize) -> Self {
        self.options.max_entries = max_entries.max(1);
        self
    }

    /// Sets how long fetched limits are in force. 5 minutes by default.
    ///
    /// A request of a tenant whose limits are older waits for a fetch. When the fetch fails, the
    /// old limits stay in force for the time of [`stale_if_error`](Self::stale_if_error).
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

    /// Sets how long limits stay in force after their [time to live](Self::time_to_live) while the
    /// source fails. Unlimited by default.
    ///
    /// A tenant whose limits are older gets the answer of [`on_outage`](Self::on_outage). HTTP
    /// caches have a directive of the same name (RFC 5861, section 4).
    pub fn stale_if_error(mut self, time: Duration) -> Self {
        self.options.stale_if_error = time;
        self
    }

    /// Sets how long a fetch may take, and so how long a request may wait for it. 1 second by
    /// default.
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

    /// Sets how many fetches run at a time. 32 by default, at least 1. Further fetches wait for
    /// their turn.
    pub fn max_fetches(mut self, max_fetches: usize) -> Self {
        self.options.max_fetches = max_fetches.max(1);
        self
    }

    /// Sets the answer for a tenant whose limits are not in the cache and cannot be fetched. By
    /// default the default limiter applies.
    pub fn on_outage(mut self, outage: SourceOutage) -> Self {
        self.options.outage = outage;
        self
    }

    /// Builds the cache.
    #[must_use]
    pub fn build(self) -> TenantLimiters<T> {
        let Self {
            default,
            fetch,
            mut options,
            refresh_after,
        } = self;
        options.refresh_after = refresh_after
            .unwrap_or(options.time_to_live / 5 * 4)
            .min(options.time_to_live);
        TenantLimiters::of(Fetcher::new(default, fetch, options))
    }
}

crate::debug_fields! { TenantLimitersBuilder<T>: default, options, .. }
