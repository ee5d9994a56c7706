use std::{error, fmt, future::Future, pin::Pin, sync::Arc, thread};

use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use super::{
    entry::TenantEntry,
    options::{Options, SourceOutage},
    source::SourceHealth,
};
use crate::{
    Error, ErrorKind, Limiter,
    limiter::{Limited, Selection},
};

/// Fetches the limits of a tenant.
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
        Self { default, fetch, source: SourceHealth::new(&options), options }
    }

    /// Answers for a source that failed, where the cache has no limits of the tenant.
    pub(super) fn without_source(&self) -> Result<Limited, Error> {
        match self.options.outage {
            SourceOutage::Default => Ok(Limited::By(self.default.clone())),
            SourceOutage::Open => Ok(Limited::Exempt),
            SourceOutage::Closed => {
                Err(Error::new(ErrorKind::SourceUnavailable, "the limits of the tenant cannot be fetched"))
            }
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

/// Stands for a fetch that is under way. Dropping it ends the fetch as a failure, also when the function that fetches
/// panics, or when the runtime ends.
pub(super) struct FetchGuard<T> {
    fetcher: Arc<Fetcher<T>>,
    entry: Arc<TenantEntry>,
    start: Instant,
    /// Is true when a failure is one of the source. A fetch that had to wait, and then had too little time, says nothing
    /// about it.
    is_of_source: bool,
    is_finished: bool,
    /// Wakes the requests that wait, after the entry has changed: fields are dropped after the guard.
    _begun: watch::Sender<()>,
}

impl<T> FetchGuard<T> {
    pub(super) fn new(
        fetcher: Arc<Fetcher<T>>,
        entry: Arc<TenantEntry>,
        begun: watch::Sender<()>,
        start: Instant,
    ) -> Self {
        Self { fetcher, entry, start, is_of_source: false, is_finished: false, _begun: begun }
    }

    fn finish(mut self, found: Result<Selection, FetchError>) {
        self.is_finished = true;
        let selected = found.and_then(|selection| Ok(selection.limiter(&self.fetcher.default)?));
        match selected {
            Ok(limiter) => {
                self.entry.succeed(limiter, Instant::now());
                self.fetcher.source.succeeded(self.start, self.fetcher.default.name());
            }
            Err(error) => self.fail(&*error),
        }
    }

    fn fail(&self, error: &dyn fmt::Display) {
        let now = Instant::now();
        let retry_at = now.checked_add(self.fetcher.options.retry_delay).unwrap_or(now);
        let is_first = self.entry.fail(retry_at) && self.is_of_source;
        self.fetcher.source.failed(self.start, is_first, self.fetcher.default.name(), error);
    }
}

impl<T> Drop for FetchGuard<T> {
    fn drop(&mut self) {
        if !self.is_finished {
            let has_panicked = thread::panicking();
            self.fail(&if has_panicked { "the function that fetches limits panicked" } else { "the runtime ended" });
        }
        self.fetcher.source.ends();
    }
}
