use std::{
    future::{Future, IntoFuture, pending},
    pin::pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use tokio::runtime::{Builder, Handle};

use super::{Limiter, Reserve};
use crate::{
    Cost, Costs, Decision, Error, ErrorKind, Key,
    limiter::Reservation,
    model::{Entry, KeyState},
    store::{ReservationId, Settlement, StoreFuture},
};

/// Calls a limiter from threads without a runtime, and waits in the thread. [`Limiter::blocking`] returns it.
///
/// One thread named `tollgate-blocking`, with a tokio runtime of its own, drives the connections and the deadlines. The
/// first call that has to wait starts it, for the whole process. A call ends at the deadline of the limiter, as in async
/// code, and the [`Outage`](crate::Outage) decides then. Calls from async code and from threads share the connection and
/// the counters of a store.
///
/// # Panics
///
/// A method that has to wait panics in an async task, with tokio's message *Cannot start a runtime from within a
/// runtime*, before anything is sent: a wait there would stop the other tasks of the thread. Await the method of
/// [`Limiter`] there. Inside `tokio::task::spawn_blocking` the methods work. A store in the process has nothing to wait
/// for, so its checks work everywhere.
#[derive(Clone, Copy, Debug)]
pub struct BlockingLimiter<'a>(&'a Limiter);

impl Limiter {
    /// Returns the same limiter for threads without a tokio runtime.
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota};
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("mails", Quota::per_second(1)));
    /// let worker = std::thread::spawn(move || limiter.blocking().check("smtp"));
    /// let decision = worker.join().unwrap()?;
    /// assert!(decision.is_allowed());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[must_use]
    pub fn blocking(&self) -> BlockingLimiter<'_> {
        BlockingLimiter(self)
    }
}

impl BlockingLimiter<'_> {
    /// Spends one unit of every policy, or nothing: see [`Limiter::check`].
    ///
    /// # Errors
    ///
    /// As [`Limiter::check`], and [`ErrorKind::Unavailable`] when the thread that drives the connections cannot be
    /// started. The same holds for the other methods.
    pub fn check(&self, key: impl Into<Key>) -> Result<Decision, Error> {
        self.check_cost(key, Cost::ONE)
    }

    /// Spends `cost` units of every policy, or nothing: see [`Limiter::check_cost`].
    ///
    /// # Errors
    ///
    /// As [`Limiter::check_cost`].
    pub fn check_cost(&self, key: impl Into<Key>, cost: Cost) -> Result<Decision, Error> {
        self.check_key(&key.into(), cost)
    }

    /// Spends from each policy the units that `costs` names for it, or nothing: see [`Limiter::check_costs`].
    ///
    /// # Errors
    ///
    /// As [`Limiter::check_costs`].
    pub fn check_costs(&self, key: impl Into<Key>, costs: impl Into<Costs>) -> Result<Decision, Error> {
        finish(self.0.check_costs(key, costs))
    }

    /// Spends `cost` units of every policy, or nothing, for a borrowed key: see [`Limiter::check_key`].
    ///
    /// # Errors
    ///
    /// As [`Limiter::check_key`].
    pub fn check_key(&self, key: &Key, cost: Cost) -> Result<Decision, Error> {
        finish(self.0.check_key(key, cost))
    }

    /// Spends `cost` units of every policy, or nothing, and stores `tag` in every sliding log: see
    /// [`Limiter::check_tagged`].
    ///
    /// # Errors
    ///
    /// As [`Limiter::check_tagged`].
    pub fn check_tagged(&self, key: impl Into<Key>, cost: Cost, tag: impl AsRef<[u8]>) -> Result<Decision, Error> {
        finish(self.0.check_tagged(key, cost, tag))
    }

    /// Charges an estimate, for work whose cost is known later: see [`Limiter::reserve`].
    ///
    /// ```
    /// use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota, reservation::Settlement};
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::fixed_window("rows", Quota::per_day(1_000)));
    /// let reservation = limiter.blocking().reserve(limiter.reserve("acme", Cost::new(100)))?;
    /// let settlement = limiter.blocking().commit("acme", reservation.id(), Cost::new(40))?;
    /// assert_eq!(settlement, Settlement::Settled);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Limiter::reserve`].
    pub fn reserve(&self, reserve: Reserve) -> Result<Reservation, Error> {
        finish(reserve.into_future())
    }

    /// Settles the reservation of this key and id: see [`Limiter::commit`].
    ///
    /// # Errors
    ///
    /// As [`Limiter::commit`].
    pub fn commit(
        &self,
        key: impl Into<Key>,
        id: &ReservationId,
        costs: impl Into<Costs>,
    ) -> Result<Settlement, Error> {
        self.wait(self.0.commit(key, id, costs))
    }

    /// Spends one unit, and waits up to `max_wait` until it is available: see [`Limiter::until_ready`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota};
    ///
    /// let mails = Limiter::new(MemoryStore::new(), Policy::leaky_bucket("mails", Quota::per_second(100)));
    /// for _ in 0..3 {
    ///     // The second and the third call return after 10 ms each.
    ///     assert!(mails.blocking().until_ready("smtp", Duration::from_secs(1))?.is_allowed());
    /// }
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Limiter::until_ready`].
    pub fn until_ready(&self, key: impl Into<Key>, max_wait: Duration) -> Result<Decision, Error> {
        self.wait(self.0.until_ready(key, max_wait))
    }

    /// Spends `costs` at once, and waits up to `max_wait` until all are available: see
    /// [`Limiter::until_ready_cost`].
    ///
    /// # Errors
    ///
    /// As [`Limiter::until_ready_cost`].
    pub fn until_ready_cost(
        &self,
        key: impl Into<Key>,
        costs: impl Into<Costs>,
        max_wait: Duration,
    ) -> Result<Decision, Error> {
        self.wait(self.0.until_ready_cost(key, costs, max_wait))
    }

    /// Returns what every policy has left for the key, and spends nothing: see [`Limiter::peek`].
    ///
    /// # Errors
    ///
    /// As [`Limiter::peek`].
    pub fn peek(&self, key: impl Into<Key>) -> Result<KeyState, Error> {
        self.wait(self.0.peek(key))
    }

    /// Returns what every policy has left for the key, and when a check at these costs would be admitted: see
    /// [`Limiter::peek_cost`].
    ///
    /// # Errors
    ///
    /// As [`Limiter::peek_cost`].
    pub fn peek_cost(&self, key: impl Into<Key>, costs: impl Into<Costs>) -> Result<KeyState, Error> {
        self.wait(self.0.peek_cost(key, costs))
    }

    /// Refunds up to `cost` units of every policy: see [`Limiter::refund`].
    ///
    /// # Errors
    ///
    /// As [`Limiter::refund`].
    pub fn refund(&self, key: impl Into<Key>, cost: Cost) -> Result<(), Error> {
        self.wait(self.0.refund(key, cost))
    }

    /// Refunds up to `costs` of the units that `decision` spent on `key`: see [`Limiter::refund_decision`].
    ///
    /// # Errors
    ///
    /// As [`Limiter::refund_decision`].
    pub fn refund_decision(
        &self,
        key: impl Into<Key>,
        decision: &Decision,
        costs: impl Into<Costs>,
    ) -> Result<(), Error> {
        self.wait(self.0.refund_decision(key, decision, costs))
    }

    /// Makes the key fresh: see [`Limiter::reset`].
    ///
    /// # Errors
    ///
    /// As [`Limiter::reset`].
    pub fn reset(&self, key: impl Into<Key>) -> Result<(), Error> {
        self.wait(self.0.reset(key))
    }

    /// Lists up to `limit` units that the sliding log of the set counts now: see [`Limiter::entries`].
    ///
    /// # Errors
    ///
    /// As [`Limiter::entries`].
    pub fn entries(&self, key: impl Into<Key>, limit: usize) -> Result<Vec<Entry>, Error> {
        self.wait(self.0.entries(key, limit))
    }

    /// Waits for the end of a call. A store in the process mostly answers at the first poll, so that the thread has
    /// nothing to wait for.
    fn wait<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let runtime = runtime()?;
        let mut call = pin!(call);
        if self.0.is_in_process() {
            let _entered = runtime.enter();
            if let Poll::Ready(answer) = call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return answer;
            }
        }
        runtime.block_on(call)
    }
}

/// Waits for an answer that may already be there.
fn finish<T: Unpin>(answer: StoreFuture<T>) -> Result<T, Error> {
    match answer.into_ready() {
        Ok(answer) => answer,
        Err(pending) => runtime()?.block_on(pending),
    }
}

/// Returns the runtime that all blocking calls of the process share. It never ends, so a connection that was made for a
/// blocking call outlives every other runtime. A handle of the application's runtime would hang when nothing drives that runtime
/// while the thread waits.
fn runtime() -> Result<Handle, Error> {
    static RUNTIME: Mutex<Option<Handle>> = Mutex::new(None);
    let mut runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(runtime) = &*runtime {
        return Ok(runtime.clone());
    }
    let started = start().map_err(|error| {
        Error::new(ErrorKind::Unavailable, format!("the thread for blocking calls cannot be started: {error}"))
    })?;
    Ok(runtime.insert(started).clone())
}

/// Starts a thread that drives a runtime.
fn start() -> std::io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new().name("tollgate-blocking".to_owned()).spawn(move || runtime.block_on(pending::<()>()))?;
    Ok(handle)
}
