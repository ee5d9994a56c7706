//! Callers that wait for a permit.

use std::{sync::atomic::Ordering, time::Duration};

use tokio::time::{Instant, timeout_at};

use super::{
    acquired::Acquired,
    limiter::{ConcurrencyLimiter, Demand},
    shared::PoolRef,
};
use crate::{Error, Key, runtime};

/// The bounds of the pause after which the first caller of a queue asks the store again.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

impl ConcurrencyLimiter {
    /// Takes a permit, and waits for one up to `max_wait`.
    ///
    /// Callers of one key in this process are served in the order in which they came. The first of them takes the permit
    /// that is given back in this process, and asks the store for those of other replicas, every 10 to 250 ms. No more
    /// than [`max_waiting`](crate::permits::Concurrency::max_waiting) callers wait; one more is denied at once.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), tollgate::Error> {
    /// use std::time::Duration;
    /// use tollgate::{MemoryStore, permits::{Concurrency, ConcurrencyLimiter}};
    ///
    /// let exports = ConcurrencyLimiter::new(MemoryStore::new(), Concurrency::new("exports", 1));
    /// let first = exports.try_acquire("acme").await?;
    /// let work = async {
    ///     tokio::time::sleep(Duration::from_secs(1)).await;
    ///     drop(first);
    /// };
    /// let (second, ()) = tokio::join!(exports.acquire_within("acme", Duration::from_secs(2)), work);
    /// assert!(!second?.is_denied());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire). A wait needs a tokio runtime for every store.
    pub async fn acquire_within(&self, key: impl Into<Key>, max_wait: Duration) -> Result<Acquired, Error> {
        if max_wait.is_zero() {
            return self.try_acquire(key).await;
        }
        let pool = self.pool(key.into());
        let outcome = self.wait(&pool, max_wait).await;
        self.counted(outcome)
    }

    async fn wait(&self, pool: &PoolRef, max_wait: Duration) -> Result<Acquired, Error> {
        runtime::current()?;
        let end = Instant::now().checked_add(max_wait);
        if pool.queued.load(Ordering::Relaxed) == 0 {
            let acquired = self.attempt(pool, false).await?;
            if !acquired.is_denied() {
                return Ok(acquired);
            }
        }
        let Some(_place) = Place::join(self, pool) else {
            return Ok(self.denied(pool, None));
        };
        let Some(_front) = until(end, pool.front.lock()).await else {
            return Ok(self.denied(pool, None));
        };
        loop {
            let acquired = self.attempt(pool, true).await?;
            let Acquired::Denied(denied) = &acquired else { return Ok(acquired) };
            let pause = denied.retry_after().clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
            let again = Instant::now() + pause;
            let is_last = end.is_some_and(|end| end <= again);
            // A permit that is given back ends the pause.
            let is_freed = until(if is_last { end } else { Some(again) }, pool.freed.notified()).await.is_some();
            if is_last && !is_freed {
                return Ok(acquired);
            }
        }
    }
}

/// A place in the queue of a key. Dropping it leaves the queue.
struct Place<'a> {
    limiter: &'a ConcurrencyLimiter,
    pool: &'a PoolRef,
    _demand: Demand<'a>,
}

impl<'a> Place<'a> {
    /// Joins the end of the queue, unless too many callers wait.
    fn join(limiter: &'a ConcurrencyLimiter, pool: &'a PoolRef) -> Option<Self> {
        let most = limiter.shared.policy.most_waiting();
        let add = |waiting: usize| (waiting < most).then_some(waiting + 1);
        limiter.shared.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        limiter.shared.metrics.waits();
        pool.queued.fetch_add(1, Ordering::Relaxed);
        Some(Self { limiter, pool, _demand: Demand::join(pool, true) })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.pool.queued.fetch_sub(1, Ordering::Relaxed);
        self.limiter.shared.waiting.fetch_sub(1, Ordering::Relaxed);
        self.limiter.shared.metrics.waited();
    }
}

/// Waits until `end`, or as long as the future takes when the end lies beyond what an [`Instant`] can be.
async fn until<T>(end: Option<Instant>, future: impl Future<Output = T>) -> Option<T> {
    match end {
        Some(end) => timeout_at(end, future).await.ok(),
        None => Some(future.await),
    }
}
