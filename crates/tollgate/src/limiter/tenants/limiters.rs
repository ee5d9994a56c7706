use std::{convert::Infallible, fmt, hash::Hash, sync::Arc};

use foldhash::fast::RandomState;
use quick_cache::{
    UnitWeighter,
    sync::{Cache, DefaultLifecycle},
};
use tokio::{
    runtime::Handle,
    time::{Instant, timeout},
};

use super::{
    entry::{Lookup, TenantEntry},
    fetch::{self, FetchGuard, Fetcher},
};
use crate::{Limiter, limiter::Limited, runtime, store::StoreFuture};

/// Resolves to the limiter of a tenant, or to its exemption.
///
/// [`TenantLimiters::limiter_for`] returns it. A cached limiter is there at once, without an allocation.
pub type LimiterFuture = StoreFuture<Limited>;

/// Fetches the limits of tenants, such as the plan of a customer in a database, and caches them.
///
/// `T` identifies a tenant. An asynchronous function returns the policies of a tenant, or any other
/// [`Selection`](crate::limiter::Selection). All tenants share the store and the options of one limiter, so a tenant
/// takes some hundred bytes.
///
/// - **Bounded.** The cache holds 100 000 tenants, and keeps those that are asked for often. A flood of unknown tenants
///   does not displace them. Few fetches run at a time.
/// - **Asked once.** However many requests of a tenant arrive together, one fetch answers all of them. A request that is
///   cancelled does not cancel the fetch.
/// - **Up to date.** Limits are in force for 5 minutes. After 4 minutes the next request starts a fetch in the background
///   and uses the old limits meanwhile.
/// - **Calm in an outage.** A fetch takes 1 second at most. When it fails or panics, the old limits stay in force,
///   however old they are, unless [`stale_if_error`](crate::tenants::TenantLimitersBuilder::stale_if_error) bounds
///   their age. A tenant without limits in the cache gets the answer of
///   [`SourceOutage`](crate::tenants::SourceOutage). A tenant is fetched again after 1 second at the earliest. When
///   the fetches of several tenants have failed one after the other, a single fetch each second finds out whether the
///   source is back, and no request waits for the others.
///
/// The [builder](Self::builder) changes these numbers. The begin and the end of an outage of the source are logged once
/// each. A fetched `None` is cached like limits.
///
/// `None` means that the source knows no limits of the tenant: the default limiter applies. A tenant without a limit is
/// [`Selection::Exempt`](crate::limiter::Selection::Exempt). A tenant that is suspended is
/// [`Selection::Blocked`](crate::limiter::Selection::Blocked), and so is one whose policy has an amount of 0: its
/// requests are denied without a call of the store.
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
/// A fetch returns policies in every form that [`Limiter::new`] takes. Here a plan has a rate and a day, and a plan of
/// 0 a day is suspended:
///
/// ```
/// use tollgate::{Error, Limiter, MemoryStore, Policy, Quota, limiter::Limited, tenants::TenantLimiters};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
/// const RATE: Policy = Policy::token_bucket("rate", Quota::per_second(5));
/// const DAY: Policy = Policy::fixed_window("day", Quota::per_day(100));
///
/// async fn fetch(a_day: u64) -> Result<[Policy; 2], Error> {
///     Ok([RATE.with_quota(Quota::per_second(50))?, DAY.with_quota(Quota::per_day(a_day))?])
/// }
///
/// let tenants = TenantLimiters::new(Limiter::new(MemoryStore::new(), [RATE, DAY]), fetch);
/// for (a_day, is_allowed) in [(20_000, true), (0, false)] {
///     let Limited::By(limiter) = tenants.limiter_for(&a_day).await? else { panic!("no tenant is exempt") };
///     assert_eq!(limiter.check("acme").await?.is_allowed(), is_allowed);
/// }
/// # Ok(()) }
/// ```
pub struct TenantLimiters<T> {
    fetcher: Arc<Fetcher<T>>,
    // `moka` has expiry and shared fetches too, but no refresh in the background, and a clock of its own that tests cannot pause. So
    // age, refresh and the shared fetch stand in the entry. A flood of new tenants does not displace busy ones here (S3-FIFO), and a
    // hit takes a read lock of one of many parts.
    cache: Arc<Cache<T, Arc<TenantEntry>, UnitWeighter, RandomState>>,
}

impl<T: Clone + Eq + Hash + Send + Sync + 'static> TenantLimiters<T> {
    pub(super) fn of(fetcher: Fetcher<T>) -> Self {
        let entries = fetcher.options.max_entries;
        let cache =
            Cache::with(entries, entries as u64, UnitWeighter, RandomState::default(), DefaultLifecycle::default());
        Self { fetcher: Arc::new(fetcher), cache: Arc::new(cache) }
    }

    /// Returns the limiter of a tenant. Waits for a fetch if the cache has no limits of the tenant, or too old ones.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::SourceUnavailable`](crate::ErrorKind::SourceUnavailable) when the cache has no limits of the
    /// tenant, the fetch failed, and the source is [`Closed`](crate::tenants::SourceOutage::Closed) in an outage.
    /// [`ErrorKind::NoRuntime`](crate::ErrorKind::NoRuntime) when a fetch is needed, and the future is polled outside a
    /// tokio runtime.
    pub fn limiter_for(&self, tenant: &T) -> LimiterFuture {
        let fetcher = &self.fetcher;
        let entry = self.entry(tenant);
        let (now, mut runtime) = (Instant::now(), None);
        let lookup = entry.look_up(now, &fetcher.options, || {
            runtime = Handle::try_current().ok();
            runtime.is_some() && fetcher.source.may_fetch(now)
        });
        let (mut running, known) = match lookup {
            Lookup::Known(limiter) => return StoreFuture::ready(Ok(limiter)),
            Lookup::Unknown if Handle::try_current().is_err() => {
                // The future may be polled inside a runtime.
                let (tenants, tenant) = (self.clone(), tenant.clone());
                return StoreFuture::pending(async move {
                    runtime::current()?;
                    tenants.limiter_for(&tenant).await
                });
            }
            Lookup::Unknown => return StoreFuture::ready(fetcher.without_source()),
            Lookup::Running(running) => (running, None),
            Lookup::Begin { begun, running, known } => {
                if let Some(runtime) = runtime {
                    fetcher.source.begins(fetcher.default.name(), self.cache.len());
                    let guard = FetchGuard::new(Arc::clone(fetcher), Arc::clone(&entry), begun, now);
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
                    // The fetch wakes this request. The timer is for a fetch whose runtime is blocked.
                    let longest = fetcher.options.fetch_timeout.saturating_mul(5) / 4;
                    let _ = timeout(longest, running.changed()).await;
                    entry.found(Instant::now(), &fetcher.options).map_or_else(|| fetcher.without_source(), Ok)
                })
            }
        }
    }

    /// Removes the limits of a tenant from the cache, so that the next request fetches them.
    ///
    /// Call it when the plan of a tenant has changed and should be in force at once. A fetch that is under way answers
    /// only the requests that wait for it already.
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
        let Ok(entry) = self.cache.get_or_insert_with(tenant, || Ok::<_, Infallible>(Arc::default()));
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
        Self { fetcher: Arc::clone(&self.fetcher), cache: Arc::clone(&self.cache) }
    }
}

impl<T> fmt::Debug for TenantLimiters<T> {
    /// Leaves out the tenants: they may identify a person.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantLimiters")
            .field("default", &self.fetcher.default)
            .field("options", &self.fetcher.options)
            .finish_non_exhaustive()
    }
}
