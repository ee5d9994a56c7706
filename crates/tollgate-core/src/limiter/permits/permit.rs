//! A permit while somebody has it, and the denial of one.
//! How it was granted is in `limiter.rs`, and what is renewed for it in `upkeep.rs`.

use std::{
    fmt,
    future::{Future, pending, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use tollgate_model::OnLoss;

use super::{pool::Granted, shared::PoolRef};
use crate::{Error, ErrorKind, store::Deadline};

/// A permit for one piece of work. Dropping it gives it back. [`ConcurrencyLimiter::acquire`]
/// returns it.
///
/// Keep the permit for as long as the work lasts. If a response is streamed, keep the permit in its
/// body and not in the handler. Dropping never blocks, and works outside a runtime. The permits of
/// a process that is killed lapse after the [life](crate::permits::Concurrency::with_life) of the
/// limit.
///
/// A permit is *lost* when it could not be renewed for a whole life. If the work must end then, run
/// it with [`run`](Self::run), or check [`is_lost`](Self::is_lost).
///
/// [`ConcurrencyLimiter::acquire`]: crate::permits::ConcurrencyLimiter::acquire
#[doc(alias = "semaphore")]
#[must_use = "a permit that is dropped is given back"]
pub struct Permit {
    pool: PoolRef,
    source: PermitSource,
    limit: u32,
    in_flight: u64,
    acquired_us: u64,
}

pub(super) enum PermitSource {
    /// Granted by the store.
    Store(Arc<Granted>),
    /// A part of this replica's share in an outage.
    Share(ErrorKind),
    /// Given away by an [open](crate::Outage::Open) outage.
    Open(ErrorKind),
    /// Given back.
    Released,
}

/// Reports that the permit of some work was lost, and that the work was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost(pub(super) ());

impl Permit {
    pub(super) fn new(pool: PoolRef, source: PermitSource, limit: u32, in_flight: u64) -> Self {
        pool.shared.metrics.acquired();
        let acquired_us = pool.shared.clock.now_us();
        Self {
            pool,
            source,
            limit,
            in_flight,
            acquired_us,
        }
    }

    /// Returns how many permits of a key may be held at the same time.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns how many permits of the key were in flight over all replicas when this permit was
    /// acquired, itself included. The permits of other replicas, idle ones included, are counted as
    /// of the last call to the store.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Returns why the permit was granted without the store. `None` when the store granted it.
    #[must_use]
    pub fn degraded(&self) -> Option<ErrorKind> {
        match self.source {
            PermitSource::Share(kind) | PermitSource::Open(kind) => Some(kind),
            PermitSource::Store(_) | PermitSource::Released => None,
        }
    }

    /// Returns whether the permit is lost, so that other replicas may use it.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        match &self.source {
            PermitSource::Store(granted) => granted.is_lost(self.pool.shared.clock.now_us()),
            PermitSource::Share(_) | PermitSource::Open(_) | PermitSource::Released => false,
        }
    }

    /// Waits until the permit is lost, whatever [`OnLoss`] says. A permit of a store in the
    /// process, or granted in an outage, is never lost.
    pub async fn lost(&self) {
        match &self.source {
            PermitSource::Store(granted) if !self.pool.shared.limiter.is_in_process => {
                granted.lost(|| self.pool.shared.clock.now_us()).await;
            }
            _ => pending().await,
        }
    }

    /// Runs work, and drops it when the permit is lost and the limit says [`OnLoss::Cancel`].
    ///
    /// The clock is read before each poll, so the work is not polled again once the permit is lost,
    /// also when the whole process was stopped meanwhile.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{MemoryStore, permits::{Concurrency, ConcurrencyLimiter, OnLoss}};
    ///
    /// const EXPORTS: Concurrency = Concurrency::new("exports", 2).on_loss(OnLoss::Cancel);
    /// let exports = ConcurrencyLimiter::new(MemoryStore::new(), EXPORTS);
    /// let permit = exports.acquire("acme").await??;
    /// assert_eq!(permit.run(async { "rows" }).await?, "rows");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Lost`] when the work was dropped.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        if self.pool.shared.policy.loss() == OnLoss::Finish {
            return Ok(work.await);
        }
        let (mut lost, mut work) = (pin!(self.lost()), pin!(work));
        poll_fn(|cx| {
            if self.is_lost() || lost.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(Lost(())));
            }
            work.as_mut().poll(cx).map(Ok)
        })
        .await
    }

    /// Gives the permit back. If the limit is [exact](crate::permits::Concurrency::exact), waits
    /// until the store has it.
    ///
    /// Dropping the permit gives it back too. Use `release` to know that another replica can take
    /// it.
    ///
    /// # Errors
    ///
    /// When the store did not answer. The permit is given back with a later call, or lapses after
    /// its life at the latest.
    pub async fn release(mut self) -> Result<(), Error> {
        let pool = self.pool.clone();
        let is_exact = !pool.shared.rules.is_pooled && !pool.shared.limiter.is_in_process;
        self.give_back(!is_exact);
        drop(self);
        if is_exact {
            crate::runtime::current()?;
            pool.give_back(Deadline::after(pool.shared.limiter.timeout))
                .await?;
        }
        Ok(())
    }

    /// Gives the permit back to the pool. `settles` gives a surplus back to the store in the
    /// background.
    fn give_back(&mut self, settles: bool) {
        let source = std::mem::replace(&mut self.source, PermitSource::Released);
        let (pool, shared) = (&self.pool, &self.pool.shared);
        let mut state = pool.lock();
        let mut is_surplus = false;
        match source {
            PermitSource::Released => return,
            PermitSource::Open(_) => {}
            PermitSource::Share(_) => state.pool.unshared -= 1,
            PermitSource::Store(granted) => {
                let now_us = shared.clock.now_us();
                if !state.pool.give_back(&granted) || granted.is_lost(now_us) {
                    shared.metrics.lost();
                }
                shared.note_held(now_us.saturating_sub(self.acquired_us));
                if shared.limiter.is_in_process {
                    // A store in the process always answers.
                    let _ = pool.call_in_process(&mut state);
                } else {
                    is_surplus = state.pool.has_surplus(shared.rules);
                }
            }
        }
        drop(state);
        shared.metrics.released();
        if pool.queue.callers() > 0 {
            pool.freed.notify_one();
        }
        if is_surplus && settles {
            shared.upkeep.give_back(pool.clone());
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.give_back(true);
    }
}

crate::debug_fields! { Permit: policy = .pool.shared.policy, is_lost = .is_lost(), .. }

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the permit was lost before the work ended")
    }
}

impl std::error::Error for Lost {}

/// Reports that no permit was free.
/// [`ConcurrencyLimiter::acquire`](crate::permits::ConcurrencyLimiter::acquire) returns it.
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

    /// Returns how many permits of the key were in flight over all replicas when the store was
    /// asked last.
    ///
    /// Permits that other replicas hold idle are included.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Estimates how long until a permit is free. At most 60 s.
    ///
    /// Nobody knows when the work of others ends, so this is no promise. The estimate is the mean
    /// time for which permits were held in this process, divided by the permits in flight. Until a
    /// first permit was given back, it is 1 s.
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
        let Self {
            name,
            limit,
            in_flight,
            retry_after,
            ..
        } = self;
        write!(
            f,
            "concurrency limit {name} reached: {in_flight} of {limit} in flight, retry after about {retry_after:?}"
        )
    }
}

impl std::error::Error for PermitDenied {}
