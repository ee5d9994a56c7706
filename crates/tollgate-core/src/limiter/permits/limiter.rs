//! The limiter of concurrency that users hold: it takes permits, and lets callers wait for them.
//! Which permits are free is known in `pool.rs`; a permit that was taken is in `permit.rs`.

use std::{
    num::NonZeroU32,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::time::Instant;
use tollgate_model::{Concurrency, raw::ConcurrencyParts};

use super::{
    permit::{Permit, PermitDenied, PermitSource},
    pool::Granted,
    shared::{ConcurrencyInner, PoolRef, PoolState},
};
use crate::{
    Error, ErrorKind, Key, Limiter, Store,
    clock::Clock,
    limiter::{
        LimiterInner,
        fifo::{Caller, until},
    },
    runtime,
    store::{Deadline, ReplicaGroup, answer_by},
};

/// Limits how many permits of a key are held at the same time, over all replicas that share a
/// store.
///
/// Use a [`Limiter`] to limit how much begins in a period. Calls to a store outside the process
/// need a tokio runtime with timers. A clone is cheap and shares everything.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
/// use tollgate::{MemoryStore, permits::{Concurrency, ConcurrencyLimiter}};
///
/// let streams = ConcurrencyLimiter::new(MemoryStore::new(), Concurrency::new("streams", 2));
/// let first = streams.acquire("acme").await?;
/// let second = streams.acquire("acme").await?;
/// assert!(first.is_ok() && second.is_ok());
/// assert!(streams.acquire("acme").await?.is_err());
/// assert!(streams.acquire("other").await?.is_ok());
///
/// drop(first);
/// let permit = streams.acquire("acme").await?.expect("a permit is free");
/// assert_eq!((permit.in_flight(), permit.limit()), (2, 2));
/// # Ok(()) }
/// ```
///
/// # The bound
///
/// The permits that the store has granted for a key never exceed the limit. A permit that could not
/// be renewed for a whole [life](Concurrency::with_life) is [lost](Permit::is_lost), before the
/// store grants it to another replica. So with [`OnLoss::Cancel`](crate::permits::OnLoss::Cancel)
/// the work in progress never exceeds the limit, whatever crashes or stalls. With
/// [`OnLoss::Finish`](crate::permits::OnLoss::Finish) the work of lost permits is added to it.
///
/// When the server loses its data, or its clock jumps forward, the replicas report the permits that
/// they hold with their next renewal, a third of a life later. The permits are counted again if
/// they fit, and are lost otherwise. Until then, the work in progress may reach twice the limit.
#[derive(Clone)]
pub struct ConcurrencyLimiter {
    pub(super) shared: Arc<ConcurrencyInner>,
    limit: u32,
    longest_wait: Duration,
}

impl Limiter {
    /// Creates a [`ConcurrencyLimiter`] on the store of this limiter, with its deadline and its
    /// [`Outage`](crate::Outage).
    #[must_use]
    pub fn concurrency(&self, policy: Concurrency) -> ConcurrencyLimiter {
        ConcurrencyLimiter::on(Arc::clone(self.inner()), policy, Clock::since_boot())
    }
}

impl ConcurrencyLimiter {
    /// Creates a limiter with the default [`Outage`](crate::Outage) and the default deadline of 50
    /// ms.
    ///
    /// Use [`Limiter::concurrency`] for another outage rule or deadline.
    #[must_use]
    pub fn new(store: impl Store, policy: Concurrency) -> Self {
        let (name, group) = (
            policy.name().to_owned(),
            ReplicaGroup::of_permits(policy.name()),
        );
        let limiter = Limiter::builder(store).build_inner(name.into(), group, None);
        Self::on(limiter, policy, Clock::since_boot())
    }

    pub(crate) fn on(limiter: Arc<LimiterInner>, policy: Concurrency, clock: Clock) -> Self {
        let (limit, longest_wait) = (policy.limit(), policy.longest_wait());
        Self {
            shared: ConcurrencyInner::new(limiter, policy, clock),
            limit,
            longest_wait,
        }
    }

    /// Returns the policy.
    #[must_use]
    pub fn policy(&self) -> &Concurrency {
        &self.shared.policy
    }

    /// Returns how many permits of a key may be held at the same time.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns a limiter with another limit, which shares everything else with this one, the
    /// permits included.
    ///
    /// Use it for limits that differ from tenant to tenant or that change. Permits that are held
    /// stay valid under a lowered limit, and no further permit is granted until fewer than the new
    /// limit are held. A replica learns how many are held with its next call for the key, after a
    /// third of a [life](Concurrency::with_life) at the latest.
    #[must_use]
    pub fn with_limit(&self, limit: NonZeroU32) -> Self {
        Self {
            limit: limit.get(),
            ..self.clone()
        }
    }

    /// Returns a limiter whose callers wait for up to `longest`, which shares everything else with
    /// this one.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), tollgate::Error> {
    /// use std::time::Duration;
    /// use tollgate::{MemoryStore, permits::{Concurrency, ConcurrencyLimiter}};
    ///
    /// let exports = ConcurrencyLimiter::new(MemoryStore::new(), Concurrency::new("exports", 1));
    /// let first = exports.acquire("acme").await?;
    /// let work = async {
    ///     tokio::time::sleep(Duration::from_secs(1)).await;
    ///     drop(first);
    /// };
    /// let patient = exports.with_wait(Duration::from_secs(2));
    /// let (second, ()) = tokio::join!(patient.acquire("acme"), work);
    /// assert!(second?.is_ok());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_wait(&self, longest: Duration) -> Self {
        Self {
            longest_wait: longest,
            ..self.clone()
        }
    }

    /// Takes a permit, and waits for one up to the [longest wait](Concurrency::wait) of the policy.
    /// By default it does not wait.
    ///
    /// Callers of one key in this process are served in the order in which they came. The first of
    /// them takes the permit that is given back in this process, and asks the store for one that
    /// another replica gave back, every 10 to 250 ms. No more than
    /// [`max_waiting`](Concurrency::max_waiting) callers wait; one more is denied at once.
    ///
    /// In an outage, permits that are idle in this process are handed out first.
    /// [`Outage::Local`](crate::Outage::Local) then hands out this replica's share of the limit, at
    /// least one permit. [`Outage::Open`](crate::Outage::Open) hands out permits without a limit.
    /// Permits that are held stay valid until their life ends.
    ///
    /// # Errors
    ///
    /// When the store failed, and the limiter is [closed](crate::Outage::Closed) in an outage.
    ///
    /// [`ErrorKind::Unsupported`] when the store has no permits, [`ErrorKind::Config`] when 64
    /// other replicas hold permits of the key, and [`ErrorKind::NoRuntime`] outside a tokio runtime
    /// when the store is outside the process, or the caller may have to wait.
    ///
    /// # Cancellation
    ///
    /// A dropped future leaves the queue, and gives back what the store granted to it.
    pub async fn acquire(
        &self,
        key: impl Into<Key>,
    ) -> Result<Result<Permit, PermitDenied>, Error> {
        if self.longest_wait.is_zero() {
            return self.try_acquire(key).await;
        }
        let pool = self.pool(key.into());
        let outcome = self.wait(&pool).await;
        self.counted(outcome)
    }

    /// Takes a permit, and does not wait for one.
    ///
    /// Callers of this process that wait for the key come first: while there are any, the answer is
    /// a denial.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(
        &self,
        key: impl Into<Key>,
    ) -> Result<Result<Permit, PermitDenied>, Error> {
        let pool = self.pool(key.into());
        self.counted(if pool.queue.callers() > 0 {
            Ok(Err(self.denied(&pool, None)))
        } else {
            self.attempt(&pool, false).await
        })
    }

    /// Counts a denial or an error. A permit counts itself.
    fn counted(&self, outcome: Result<Acquired, Error>) -> Result<Acquired, Error> {
        match &outcome {
            Ok(Ok(_)) => {}
            Ok(Err(_)) => self.shared.metrics.denied(),
            Err(_) => self.shared.metrics.failed(),
        }
        outcome
    }

    fn pool(&self, key: Key) -> PoolRef {
        let pool = self.shared.pool(key);
        pool.limit.store(self.limit, Ordering::Relaxed);
        pool
    }

    async fn wait(&self, pool: &PoolRef) -> Result<Acquired, Error> {
        runtime::current()?;
        let end = Instant::now().checked_add(self.longest_wait);
        if pool.queue.callers() == 0 {
            let acquired = self.attempt(pool, false).await?;
            if acquired.is_ok() {
                return Ok(acquired);
            }
        }
        let Some(_place) = QueuePlace::join(pool) else {
            return Ok(Err(self.denied(pool, None)));
        };
        let Some(_front) = pool.queue.front(end).await else {
            return Ok(Err(self.denied(pool, None)));
        };
        loop {
            let denied = match self.attempt(pool, true).await? {
                Ok(permit) => return Ok(Ok(permit)),
                Err(denied) => denied,
            };
            let pause = denied.retry_after().clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
            let again = Instant::now() + pause;
            let is_last = end.is_some_and(|end| end <= again);
            // A permit that is given back ends the pause.
            let is_freed = until(
                if is_last { end } else { Some(again) },
                pool.freed.notified(),
            )
            .await
            .is_some();
            if is_last && !is_freed {
                return Ok(Err(denied));
            }
        }
    }

    /// Takes a permit from the pool, from the store, or without the store in an outage.
    /// `is_counted` is true when the demand of the caller is counted already.
    async fn attempt(&self, pool: &PoolRef, is_counted: bool) -> Result<Acquired, Error> {
        if !is_counted
            && let Some(permit) = self.permit(pool, |state, now_us| {
                state.pool.take_spare(now_us, self.limit)
            })
        {
            return Ok(Ok(permit));
        }
        let demand = PermitDemand::join(pool, !is_counted);
        if self.shared.limiter.is_in_process {
            let mut outcome = Ok(());
            let permit = self.permit(pool, |state, now_us| {
                outcome = pool.call_in_process(state);
                state.pool.take(now_us, self.limit)
            });
            return outcome.map(|()| permit.ok_or_else(|| self.denied(pool, None)));
        }
        runtime::current()?;
        let deadline = Deadline::after(self.shared.limiter.timeout);
        let asked = answer_by(Some(deadline), self.ask(pool, demand.joined, deadline)).await;
        // A permit may have come back meanwhile.
        let permit = self.permit(pool, |state, now_us| state.pool.take(now_us, self.limit));
        match (permit, asked) {
            (Some(permit), _) => Ok(Ok(permit)),
            (None, Ok(())) => Ok(Err(self.denied(pool, None))),
            (None, Err(error)) => self.without_store(pool, error, deadline),
        }
    }

    /// Calls the store, unless a call that began after the caller had joined has answered for it.
    async fn ask(&self, pool: &PoolRef, joined: u64, deadline: Deadline) -> Result<(), Error> {
        let _calling = pool.calling.lock().await;
        let is_answered = {
            let mut state = pool.lock();
            state.denied_in > joined || state.pool.has_free(self.shared.clock.now_us(), self.limit)
        };
        if is_answered {
            Ok(())
        } else {
            pool.call(deadline).await
        }
    }

    /// Returns the permit that `take` takes from the pool.
    fn permit(
        &self,
        pool: &PoolRef,
        take: impl FnOnce(&mut PoolState, u64) -> Option<Arc<Granted>>,
    ) -> Option<Permit> {
        let mut state = pool.lock();
        let granted = take(&mut state, self.shared.clock.now_us())?;
        let in_flight = state.pool.in_flight();
        drop(state);
        Some(Permit::new(
            pool.clone(),
            PermitSource::Store(granted),
            self.limit,
            in_flight,
        ))
    }

    /// Answers for a store that failed.
    fn without_store(
        &self,
        pool: &PoolRef,
        error: Error,
        deadline: Deadline,
    ) -> Result<Acquired, Error> {
        let kind = error.kind();
        // A weak reference: the limiter may be dropped in the outage.
        let (shared, key) = (Arc::downgrade(&self.shared), pool.key.clone());
        let ask = move || {
            let pool = shared.upgrade().map(|shared| shared.pool(key.clone()));
            async move {
                if let Some(pool) = pool {
                    let _calling = pool.calling.lock().await;
                    let _ = pool
                        .call(Deadline::after(pool.shared.limiter.timeout))
                        .await;
                }
            }
        };
        let fallback = &self.shared.limiter.fallback;
        let replicas = fallback.permits_failed(error, deadline, ask)?;
        let mut state = pool.lock();
        let source = match replicas {
            None => Some(PermitSource::Open(kind)),
            Some(replicas) => state
                .pool
                .take_share(self.shared.clock.now_us(), (self.limit / replicas).max(1))
                .then_some(PermitSource::Share(kind)),
        };
        let in_flight = state.pool.in_flight();
        drop(state);
        Ok(match source {
            Some(source) => Ok(Permit::new(pool.clone(), source, self.limit, in_flight)),
            None => Err(self.denied(pool, Some(kind))),
        })
    }

    fn denied(&self, pool: &PoolRef, degraded: Option<ErrorKind>) -> PermitDenied {
        let in_flight = pool.lock().pool.in_flight();
        PermitDenied {
            name: self.shared.policy.name().into(),
            limit: self.limit,
            in_flight,
            retry_after: self.shared.retry_after(in_flight).min(LONGEST_RETRY),
            degraded,
        }
    }
}

type Acquired = Result<Permit, PermitDenied>;

/// The bounds of the pause after which the first caller of a queue asks the store again.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// The longest estimate. Work that takes hours is no reason to send a client away for hours.
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// A place in the queue of a key. Dropping it leaves the queue.
struct QueuePlace<'a> {
    pool: &'a PoolRef,
    _waits: Caller<'a>,
    _demand: PermitDemand<'a>,
}

impl<'a> QueuePlace<'a> {
    /// Joins the end of the queue, unless too many callers wait.
    fn join(pool: &'a PoolRef) -> Option<Self> {
        let waits = pool.shared.waiting.join()?;
        pool.shared.metrics.waits();
        pool.queue.join();
        Some(Self {
            pool,
            _waits: waits,
            _demand: PermitDemand::join(pool, true),
        })
    }
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        self.pool.queue.leave();
        self.pool.shared.metrics.waited();
    }
}

/// A caller that waits for a permit of a pool. Dropping it leaves.
struct PermitDemand<'a> {
    pool: &'a PoolRef,
    is_counted: bool,
    /// The number of calls that had begun as the caller joined.
    joined: u64,
}

impl<'a> PermitDemand<'a> {
    fn join(pool: &'a PoolRef, is_counted: bool) -> Self {
        let mut state = pool.lock();
        state.pool.demand += u32::from(is_counted);
        Self {
            pool,
            is_counted,
            joined: state.begun,
        }
    }
}

impl Drop for PermitDemand<'_> {
    /// Gives back what the store granted to a caller that does not wait any more.
    fn drop(&mut self) {
        let shared = &self.pool.shared;
        let mut state = self.pool.lock();
        state.pool.demand -= u32::from(self.is_counted);
        if !state.pool.has_surplus(shared.rules) {
            return;
        }
        if shared.limiter.is_in_process {
            // A store in the process always answers.
            let _ = self.pool.call_in_process(&mut state);
        } else {
            drop(state);
            shared.upkeep.give_back(self.pool.clone());
        }
    }
}

crate::debug_fields! { ConcurrencyLimiter: policy = .shared.policy, limit, .. }
