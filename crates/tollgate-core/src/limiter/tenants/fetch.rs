//! The fetch of the limits of a tenant: when it may begin, what it finds, and what its entry in the
//! cache then holds. Concurrent requests of a tenant share one fetch (single flight).
//! The cache, its options, and what callers see of it are in `mod.rs`.

use std::{
    error, fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, timeout},
};

use super::options::{Options, SourceOutage};
use crate::{
    Error, ErrorKind, Limiter,
    limiter::{Limited, Selection, metrics::TenantMetrics, outage::OutagePeriod},
    lock::Lock,
};

pub(super) type Fetch<T> = Box<dyn Fn(T) -> FetchFuture + Send + Sync>;

type FetchFuture = Pin<Box<dyn Future<Output = Result<Selection, FetchError>> + Send>>;

pub(super) type FetchError = Box<dyn error::Error + Send + Sync>;

/// Fetches the limits of tenants, as often as the source allows.
pub(super) struct Fetcher<T> {
    pub(super) default: Limiter,
    fetch: Fetch<T>,
    pub(super) source: SourceHealth,
    pub(super) options: Options,
}

impl<T> Fetcher<T> {
    pub(super) fn new(default: Limiter, fetch: Fetch<T>, options: Options) -> Self {
        Self {
            default,
            fetch,
            source: SourceHealth::new(&options),
            options,
        }
    }

    /// Answers for a source that failed, where the cache has no limits of the tenant.
    pub(super) fn without_source(&self) -> Result<Limited, Error> {
        match self.options.outage {
            SourceOutage::Default => Ok(Limited::By(self.default.clone())),
            SourceOutage::Open => Ok(Limited::Exempt),
            SourceOutage::Closed => Err(Error::new(
                ErrorKind::SourceUnavailable,
                "the limits of the tenant cannot be fetched",
            )),
        }
    }
}

/// Fetches the limits of a tenant, and stores them in its entry.
pub(super) async fn run<T>(tenant: T, mut guard: FetchGuard<T>) {
    let fetcher = Arc::clone(&guard.fetcher);
    let limit = fetcher.options.fetch_timeout;
    let turn = timeout(limit, fetcher.source.permits.acquire()).await;
    let left = limit.saturating_sub(guard.start.elapsed());
    let found = match turn {
        Ok(Ok(_permit)) if !left.is_zero() => {
            guard.is_of_source = true;
            match timeout(left, (fetcher.fetch)(tenant)).await {
                Ok(found) => found,
                Err(_) => {
                    guard.is_of_source = left >= limit / 2;
                    Err(format!("the source did not answer within {left:?}").into())
                }
            }
        }
        _ => Err(format!("more fetches are needed than can run within {limit:?}").into()),
    };
    guard.finish(found);
}

/// Stands for a fetch that is under way. Dropping it ends the fetch as a failure, also when the
/// function that fetches panics, or when the runtime ends.
pub(super) struct FetchGuard<T> {
    fetcher: Arc<Fetcher<T>>,
    entry: Arc<TenantEntry>,
    start: Instant,
    /// The source has failed if the fetch fails. A fetch that had to wait, and then had too little
    /// time, says nothing about the source.
    is_of_source: bool,
    is_finished: bool,
    /// Wakes the requests that wait, after the entry has changed: fields are dropped after the
    /// guard.
    _begun: watch::Sender<()>,
}

impl<T> FetchGuard<T> {
    pub(super) fn new(
        fetcher: Arc<Fetcher<T>>,
        entry: Arc<TenantEntry>,
        begun: watch::Sender<()>,
        start: Instant,
    ) -> Self {
        Self {
            fetcher,
            entry,
            start,
            is_of_source: false,
            is_finished: false,
            _begun: begun,
        }
    }

    fn finish(mut self, found: Result<Selection, FetchError>) {
        self.is_finished = true;
        let selected = found.and_then(|selection| Ok(selection.limiter(&self.fetcher.default)?));
        match selected {
            Ok(limiter) => {
                self.entry.succeed(limiter, Instant::now());
                self.fetcher
                    .source
                    .succeeded(self.start, self.fetcher.default.name());
            }
            Err(error) => self.fail(&*error),
        }
    }

    fn fail(&self, error: &dyn fmt::Display) {
        let now = Instant::now();
        let retry_at = now
            .checked_add(self.fetcher.options.retry_delay)
            .unwrap_or(now);
        let is_first = self.entry.fail(retry_at) && self.is_of_source;
        self.fetcher
            .source
            .failed(self.start, is_first, self.fetcher.default.name(), error);
    }
}

impl<T> Drop for FetchGuard<T> {
    fn drop(&mut self) {
        if !self.is_finished {
            let has_panicked = thread::panicking();
            self.fail(&if has_panicked {
                "the function that fetches limits panicked"
            } else {
                "the runtime ended"
            });
        }
        self.fetcher.source.ends();
    }
}

/// The limits of one tenant, and the state of their fetch.
#[derive(Default)]
pub(super) struct TenantEntry(Lock<TenantState>);

#[derive(Default)]
struct TenantState {
    found: Option<Found>,
    /// The earliest time of the next fetch, when the last one failed.
    retry_at: Option<Instant>,
    /// Closes when the fetch that is under way ends.
    running: Option<watch::Receiver<()>>,
}

struct Found {
    limiter: Limited,
    fetched_at: Instant,
}

impl Found {
    fn is_younger(&self, age: Duration, now: Instant) -> bool {
        now.saturating_duration_since(self.fetched_at) < age
    }
}

/// Says how a request gets the limits of its tenant.
pub(super) enum LimitsLookup {
    /// The limits are known.
    Known(Limited),
    /// The limits are not known, and must not be fetched now.
    Unknown,
    /// A fetch is under way.
    Running(watch::Receiver<()>),
    /// The caller starts a fetch, and drops `begun` when it has ended.
    Begin {
        begun: watch::Sender<()>,
        running: watch::Receiver<()>,
        /// The old limits, when the request need not wait for the fetch.
        known: Option<Limited>,
    },
}

impl TenantEntry {
    /// Says how a request gets the limits now. `may_fetch` is asked where a fetch is due.
    pub(super) fn look_up(
        &self,
        now: Instant,
        options: &Options,
        may_fetch: impl FnOnce() -> bool,
    ) -> LimitsLookup {
        let mut state = self.0.lock();
        let younger_than = |age| {
            state
                .found
                .as_ref()
                .filter(|found| found.is_younger(age, now))
        };
        if let Some(found) = younger_than(options.refresh_after) {
            return LimitsLookup::Known(found.limiter.clone());
        }
        let stale = || younger_than(options.longest_age()).map(|found| found.limiter.clone());
        // After a failure, no request waits while the entry has limits that may still be used.
        let known = match state.retry_at {
            Some(_) => stale(),
            None => younger_than(options.time_to_live).map(|found| found.limiter.clone()),
        };
        if let Some(running) = &state.running {
            return known.map_or_else(
                || LimitsLookup::Running(running.clone()),
                LimitsLookup::Known,
            );
        }
        let is_due = state.retry_at.is_none_or(|retry_at| now >= retry_at);
        if !is_due || !may_fetch() {
            return stale().map_or(LimitsLookup::Unknown, LimitsLookup::Known);
        }
        let (begun, running) = watch::channel(());
        state.running = Some(running.clone());
        LimitsLookup::Begin {
            begun,
            running,
            known,
        }
    }

    /// Returns the limits that were fetched last, unless they are too old to be used at all.
    pub(super) fn found(&self, now: Instant, options: &Options) -> Option<Limited> {
        let state = self.0.lock();
        state
            .found
            .as_ref()
            .filter(|found| found.is_younger(options.longest_age(), now))
            .map(|found| found.limiter.clone())
    }

    pub(super) fn succeed(&self, limiter: Limited, now: Instant) {
        let mut state = self.0.lock();
        let before = state.found.take().map(|found| found.limiter);
        // Equal limits stay as they are, so that all requests go on using one policy set.
        let limiter = match (before, limiter) {
            (Some(Limited::By(before)), Limited::By(limiter)) if before.is_same(&limiter) => {
                Limited::By(before)
            }
            (_, limiter) => limiter,
        };
        *state = TenantState {
            found: Some(Found {
                limiter,
                fetched_at: now,
            }),
            retry_at: None,
            running: None,
        };
    }

    /// Records a failed fetch. Returns whether it is the first failure since the last success.
    pub(super) fn fail(&self, retry_at: Instant) -> bool {
        let mut state = self.0.lock();
        state.running = None;
        state.retry_at.replace(retry_at).is_none()
    }
}

/// Decides whether the source of limits is asked now, and logs the begin and the end of an outage
/// once each.
pub(super) struct SourceHealth {
    phase: OutagePeriod,
    metrics: TenantMetrics,
    /// The number of tenants in a row whose fetch has failed.
    failed: AtomicU32,
    /// The earliest time of the next fetch while the source is away.
    next_probe: Lock<Instant>,
    /// The fetches that run or wait for their turn.
    pending: AtomicUsize,
    /// The fetches that may run at a time.
    pub(super) permits: Semaphore,
    max_pending: usize,
    retry_delay: Duration,
}

/// The source is away when the fetches of this many tenants have failed in a row. One tenant whose
/// data are damaged does not count more than once.
const AWAY: u32 = 5;

impl SourceHealth {
    pub(super) fn new(options: &Options) -> Self {
        let now = Instant::now();
        Self {
            phase: OutagePeriod::new(now.into_std()),
            metrics: TenantMetrics::default(),
            failed: AtomicU32::new(0),
            next_probe: Lock::new(now),
            pending: AtomicUsize::new(0),
            permits: Semaphore::new(options.max_fetches.min(Semaphore::MAX_PERMITS)),
            max_pending: options.max_entries,
            retry_delay: options.retry_delay,
        }
    }

    /// Returns whether a fetch may begin now. While the source is away, one may begin in each
    /// `retry_delay`.
    pub(super) fn may_fetch(&self, now: Instant) -> bool {
        if self.pending.load(Ordering::Relaxed) >= self.max_pending {
            return false;
        }
        if self.failed.load(Ordering::Relaxed) < AWAY {
            return true;
        }
        let mut next_probe = self.next_probe.lock();
        let may_fetch = now >= *next_probe;
        if may_fetch {
            *next_probe = now.checked_add(self.retry_delay).unwrap_or(now);
        }
        may_fetch
    }

    /// Counts a fetch that begins, and records the number of tenants in the cache.
    pub(super) fn begins(&self, limiter: &str, cached: usize) {
        self.pending.fetch_add(1, Ordering::Relaxed);
        self.metrics.record_cached(limiter, cached);
    }

    /// Counts a fetch that has ended in any way.
    pub(super) fn ends(&self) {
        self.pending.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn succeeded(&self, start: Instant, limiter: &str) {
        self.failed.store(0, Ordering::Relaxed);
        self.metrics.record_fetch(limiter, true);
        if self.phase.is_away()
            && let Some(lasted) = self.phase.decided(start.into_std())
        {
            self.metrics.outage_ended(limiter);
            tracing::info!(limiter, ?lasted, "the limits of tenants are fetched again");
        }
    }

    /// Records a fetch that began at `start` and failed. `is_first` says whether it is the first
    /// failure of its tenant.
    pub(super) fn failed(
        &self,
        start: Instant,
        is_first: bool,
        limiter: &str,
        error: &dyn fmt::Display,
    ) {
        self.metrics.record_fetch(limiter, false);
        if is_first {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        if self.phase.failed(start.into_std()) {
            self.metrics.outage_began(limiter);
            tracing::warn!(limiter, %error, "the limits of tenants cannot be fetched: limits in the cache stay in force");
        }
    }
}
