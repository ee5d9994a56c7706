use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

use super::options::Options;
use crate::limiter::Limited;

/// The limits of one tenant, and the state of their fetch.
#[derive(Default)]
pub(super) struct TenantEntry(Mutex<TenantState>);

#[derive(Default)]
struct TenantState {
    found: Option<Found>,
    /// The earliest time of the next fetch, when the last one failed.
    retry_at: Option<Instant>,
    /// Closes when the fetch that is under way ends.
    running: Option<watch::Receiver<()>>,
}

/// The limits that were fetched last.
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
pub(super) enum Lookup {
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
    pub(super) fn look_up(&self, now: Instant, options: &Options, may_fetch: impl FnOnce() -> bool) -> Lookup {
        let mut state = self.lock();
        let younger_than = |age| state.found.as_ref().filter(|found| found.is_younger(age, now));
        if let Some(found) = younger_than(options.refresh_after) {
            return Lookup::Known(found.limiter.clone());
        }
        let stale = || younger_than(options.longest_age()).map(|found| found.limiter.clone());
        // After a failure, no request waits while the entry has limits that may still be used.
        let known = match state.retry_at {
            Some(_) => stale(),
            None => younger_than(options.time_to_live).map(|found| found.limiter.clone()),
        };
        if let Some(running) = &state.running {
            return known.map_or_else(|| Lookup::Running(running.clone()), Lookup::Known);
        }
        let is_due = state.retry_at.is_none_or(|retry_at| now >= retry_at);
        if !is_due || !may_fetch() {
            return stale().map_or(Lookup::Unknown, Lookup::Known);
        }
        let (begun, running) = watch::channel(());
        state.running = Some(running.clone());
        Lookup::Begin { begun, running, known }
    }

    /// Returns the limits that were fetched last, unless they are too old to be used at all.
    pub(super) fn found(&self, now: Instant, options: &Options) -> Option<Limited> {
        let state = self.lock();
        state
            .found
            .as_ref()
            .filter(|found| found.is_younger(options.longest_age(), now))
            .map(|found| found.limiter.clone())
    }

    /// Stores what a fetch has found.
    pub(super) fn succeed(&self, limiter: Limited, now: Instant) {
        let mut state = self.lock();
        let before = state.found.take().map(|found| found.limiter);
        // Equal limits stay as they are, so that all requests go on using one policy set.
        let limiter = match (before, limiter) {
            (Some(Limited::By(before)), Limited::By(limiter)) if before.is_same(&limiter) => Limited::By(before),
            (_, limiter) => limiter,
        };
        *state = TenantState { found: Some(Found { limiter, fetched_at: now }), retry_at: None, running: None };
    }

    /// Records a failed fetch. Returns whether it is the first failure since the last success.
    pub(super) fn fail(&self, retry_at: Instant) -> bool {
        let mut state = self.lock();
        state.running = None;
        state.retry_at.replace(retry_at).is_none()
    }

    /// A poisoned lock is used on: each change leaves a whole state behind.
    fn lock(&self) -> MutexGuard<'_, TenantState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
