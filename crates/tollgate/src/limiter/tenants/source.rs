use std::{
    fmt,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Semaphore, time::Instant};

use super::options::Options;
use crate::limiter::{metrics::TenantMetrics, outage::Phase};

/// Decides whether the source of limits is asked now, and logs the begin and the end of an outage once each.
pub(super) struct SourceHealth {
    phase: Phase,
    metrics: TenantMetrics,
    /// The number of tenants in a row whose fetch has failed.
    failed: AtomicU32,
    /// The earliest time of the next fetch while the source is away.
    next_probe: Mutex<Instant>,
    /// The fetches that run or wait for their turn.
    pending: AtomicUsize,
    /// The fetches that may run at a time.
    pub(super) permits: Semaphore,
    max_pending: usize,
    retry_delay: Duration,
}

/// The source is away when the fetches of this many tenants have failed in a row. One tenant whose data are damaged does
/// not count more than once.
const AWAY: u32 = 5;

impl SourceHealth {
    pub(super) fn new(options: &Options) -> Self {
        let now = Instant::now();
        Self {
            phase: Phase::new(now.into_std()),
            metrics: TenantMetrics::default(),
            failed: AtomicU32::new(0),
            next_probe: Mutex::new(now),
            pending: AtomicUsize::new(0),
            permits: Semaphore::new(options.max_fetches.min(Semaphore::MAX_PERMITS)),
            max_pending: options.max_entries,
            retry_delay: options.retry_delay,
        }
    }

    /// Returns whether a fetch may begin now. While the source is away, one may begin in each `retry_delay`.
    pub(super) fn may_fetch(&self, now: Instant) -> bool {
        if self.pending.load(Ordering::Relaxed) >= self.max_pending {
            return false;
        }
        if self.failed.load(Ordering::Relaxed) < AWAY {
            return true;
        }
        let mut next_probe = self.next_probe.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Records a fetch that began at `start` and succeeded.
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

    /// Records a fetch that began at `start` and failed. `is_first` says whether it is the first failure of its tenant.
    pub(super) fn failed(&self, start: Instant, is_first: bool, limiter: &str, error: &dyn fmt::Display) {
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
