//! A store that measures how long each decision takes.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde::Serialize;
use tollgate::{
    Cost, Decision, Error, Store,
    reservation::ReservationId,
    store::{Check, CheckFuture, StoreFuture},
};

/// The number of decisions that a summary describes.
const DECISIONS: usize = 500;

/// Forwards every call to another store, and notes the time of each check.
pub(crate) struct TimedStore {
    store: Arc<dyn Store>,
    latencies: Arc<Latencies>,
}

/// Keeps the times of the last 500 decisions.
#[derive(Debug, Default)]
pub(crate) struct Latencies(Mutex<VecDeque<Duration>>);

/// Describes the times of the last decisions, in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    decisions: usize,
    median_us: f64,
    p99_us: f64,
    max_us: f64,
}

impl TimedStore {
    pub(crate) fn new(store: Arc<dyn Store>, latencies: Arc<Latencies>) -> Self {
        Self { store, latencies }
    }

    /// Notes the time that the answer takes. An answer that is there stays there.
    fn timed(&self, start: Instant, answer: CheckFuture) -> CheckFuture {
        match answer.into_ready() {
            Ok(outcome) => {
                self.latencies.note(start.elapsed());
                StoreFuture::ready(outcome)
            }
            Err(pending) => {
                let latencies = Arc::clone(&self.latencies);
                StoreFuture::pending(async move {
                    let outcome: Result<Decision, Error> = pending.await;
                    latencies.note(start.elapsed());
                    outcome
                })
            }
        }
    }
}

impl Store for TimedStore {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        // The page peeks four times a second.
        if check.cost == Cost::ZERO {
            return self.store.check(check);
        }
        self.timed(Instant::now(), self.store.check(check))
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        self.store.refund(check, decision)
    }

    fn reset(&self, check: Check<'_>) -> StoreFuture<()> {
        self.store.reset(check)
    }

    fn reserve(&self, check: Check<'_>, id: &ReservationId, time_to_live: Duration) -> CheckFuture {
        self.timed(Instant::now(), self.store.reserve(check, id, time_to_live))
    }

    fn inner(&self) -> Option<&dyn Store> {
        Some(&self.store)
    }
}

impl Latencies {
    fn note(&self, latency: Duration) {
        let mut latencies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if latencies.len() == DECISIONS {
            latencies.pop_front();
        }
        latencies.push_back(latency);
    }

    /// Returns the summary. `None` before the first decision.
    pub(crate) fn summary(&self) -> Option<Summary> {
        let mut latencies: Vec<_> = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .copied()
            .collect();
        latencies.sort_unstable();
        let us = |latency: &Duration| latency.as_nanos() as f64 / 1_000.0;
        // The nearest rank: the smallest value that at least this share of all values does not
        // exceed.
        let rank = |share: usize| (latencies.len() * share).div_ceil(100).saturating_sub(1);
        Some(Summary {
            decisions: latencies.len(),
            median_us: us(latencies.get(rank(50))?),
            p99_us: us(latencies.get(rank(99))?),
            max_us: us(latencies.last()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use tollgate::{Limiter, MemoryStore, Policy, Quota};

    use super::*;

    #[test]
    fn a_summary_describes_the_last_decisions() {
        let latencies = Latencies::default();
        assert_eq!(latencies.summary(), None);
        for us in 0..=500 {
            latencies.note(Duration::from_micros(us));
        }
        let summary = Summary {
            decisions: 500,
            median_us: 250.0,
            p99_us: 495.0,
            max_us: 500.0,
        };
        assert_eq!(latencies.summary(), Some(summary));
    }

    #[tokio::test]
    async fn a_check_is_timed_and_a_peek_is_not() {
        let latencies = Arc::<Latencies>::default();
        let store = TimedStore::new(Arc::new(MemoryStore::new()), Arc::clone(&latencies));
        let limiter = Limiter::new(store, Policy::token_bucket("demo", Quota::per_second(5)));
        limiter.peek("key").await.expect("the store is in process");
        assert_eq!(latencies.summary(), None);
        assert!(
            limiter
                .check("key")
                .await
                .expect("the store is in process")
                .is_allowed()
        );
        assert_eq!(
            latencies.summary().map(|summary| summary.decisions),
            Some(1)
        );
    }
}
