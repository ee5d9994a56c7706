mod blocking;
mod builder;

use std::{fmt, future::Future, sync::Arc, time::Duration};

use tokio::time::{Instant, timeout, timeout_at};

pub use blocking::BlockingLimiter;
#[cfg(feature = "redis")]
pub(crate) use builder::DEADLINE;
pub use builder::LimiterBuilder;

use crate::{
    Check, CheckFuture, Cost, Deadline, Decision, Entry, Error, ErrorKind, Key, KeyState, PolicySet, Store,
    StoreFuture,
    entry::TAG_BYTES,
    outage::Fallback,
    runtime,
    store::{Guard, PendingCheck},
    wait::queue::WaitQueues,
};

/// Checks keys against policies that are decided together on one store.
///
/// Calls to a store outside the process, and waits for a quota, need a tokio runtime with timers, and fail with
/// [`ErrorKind::NoRuntime`] without one. Threads without a runtime use [`blocking`](Self::blocking).
///
/// A limiter is cheap to clone. Clones share state. Put limits on the same key into one limiter: they are decided in
/// one atomic step, and either all are charged or none. Two limiters with the same policy name on one store share
/// the counters of that policy.
///
/// ```
/// use tollgate::{Cost, ErrorKind, Limiter, MemoryStore, Policy, Quota};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
/// let limiter = Limiter::new(
///     MemoryStore::new(),
///     Policy::token_bucket("rows", Quota::per_second(100)),
/// );
/// let decision = limiter.check_cost("acme", Cost::new(30)).await?;
/// assert_eq!(decision.state("rows").unwrap().remaining(), 70);
///
/// // A cost that can never fit is an error, not a denial: no wait would help.
/// let error = limiter.check_cost("acme", Cost::new(101)).await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::CostExceedsBurst);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Limiter(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    is_in_process: bool,
    keeps_deadline: bool,
    policies: PolicySet,
    timeout: Duration,
    fallback: Fallback,
    wait_queues: WaitQueues,
}

impl Limiter {
    /// Spends one unit of every policy, or nothing.
    ///
    /// # Errors
    ///
    /// The store failed, and the limiter is [closed](crate::Outage::Closed) in an outage. Any other
    /// [`Outage`](crate::Outage) always decides.
    ///
    /// [`ErrorKind::NoRuntime`] when the future is polled outside a tokio runtime and the store is outside the process. No
    /// `Outage` decides then, and nothing is sent: [`blocking`](Self::blocking) is for such threads.
    ///
    /// # Cancellation
    ///
    /// A dropped future may have spent the unit: the store may have decided already.
    pub fn check(&self, key: impl Into<Key>) -> CheckFuture {
        self.check_cost(key, Cost::ONE)
    }

    /// Spends `cost` units of every policy, or nothing.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check). Fails with [`ErrorKind::CostExceedsBurst`] when the cost is above the burst of
    /// a policy, and with [`ErrorKind::KeyLevels`] when the key has fewer levels than a policy meters; the store is not
    /// asked then.
    pub fn check_cost(&self, key: impl Into<Key>, cost: Cost) -> CheckFuture {
        self.check_key(&key.into(), cost)
    }

    /// Spends `cost` units of every policy, or nothing, for a borrowed key.
    ///
    /// Saves the copy of the key that [`check_cost`](Self::check_cost) makes.
    ///
    /// # Errors
    ///
    /// As [`check_cost`](Self::check_cost).
    pub fn check_key(&self, key: &Key, cost: Cost) -> CheckFuture {
        self.0.check(key, cost, &[])
    }

    /// Spends `cost` units of every policy, or nothing, and stores `tag` beside them in every
    /// [sliding log](crate::Algorithm::SlidingLog) of the set.
    ///
    /// Use a tag to see later which user, of all that share the key, spent the units: see
    /// [`entries`](Self::entries). Other algorithms ignore the tag.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota};
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::sliding_log("log-in", Quota::per_minute(2)));
    /// for user in ["ann", "bob", "eve"] {
    ///     // The address is the key. The user is the tag.
    ///     let _ = limiter.check_tagged("192.0.2.7", Cost::ONE, user).await?;
    /// }
    /// let entries = limiter.entries("192.0.2.7", 10).await?;
    /// let users: Vec<_> = entries.iter().map(|entry| entry.tag()).collect();
    /// assert_eq!(users, [b"bob", b"ann"]); // Eve was denied. A denial is not stored.
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`check_cost`](Self::check_cost). Fails with [`ErrorKind::Config`] for a tag of more than 64 bytes.
    pub fn check_tagged(&self, key: impl Into<Key>, cost: Cost, tag: impl AsRef<[u8]>) -> CheckFuture {
        self.0.check(&key.into(), cost, tag.as_ref())
    }

    /// Returns what every policy has left for the key, and spends nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota};
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("api", Quota::per_second(10)));
    /// let _ = limiter.check("acme").await?;
    /// assert_eq!(limiter.peek("acme").await?.state("api").unwrap().remaining(), 9);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub async fn peek(&self, key: impl Into<Key>) -> Result<KeyState, Error> {
        self.check_cost(key, Cost::ZERO).await.map(KeyState::new)
    }

    /// Refunds up to `cost` units of every policy, and never more than is spent now.
    ///
    /// Prefer [`refund_decision`](Self::refund_decision) when the decision is at hand: it names the window in which
    /// the units were spent.
    ///
    /// # Errors
    ///
    /// The store cannot be reached before the deadline. The units then stay spent until they accrue again.
    pub async fn refund(&self, key: impl Into<Key>, cost: Cost) -> Result<(), Error> {
        self.0.refund(key.into(), cost, None).await
    }

    /// Refunds up to `cost` of the units that `decision` spent on `key`.
    ///
    /// Never refunds more than is spent now, and nothing to a window that opened after the decision. A decision that
    /// spent nothing (a denial, or a decision without the store) refunds nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota};
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::fixed_window("day", Quota::per_day(100)));
    /// let decision = limiter.check_cost("acme", Cost::new(10)).await?;
    /// // The work needed only 4 units.
    /// limiter.refund_decision("acme", &decision, Cost::new(6)).await?;
    /// assert_eq!(limiter.peek("acme").await?.state("day").unwrap().remaining(), 96);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`refund`](Self::refund).
    pub async fn refund_decision(&self, key: impl Into<Key>, decision: &Decision, cost: Cost) -> Result<(), Error> {
        if decision.is_denied() || decision.is_degraded() {
            return Ok(());
        }
        self.0.refund(key.into(), cost.min(decision.cost()), Some(decision)).await
    }

    /// Makes the key fresh: every policy has its whole burst again.
    ///
    /// Resets only the states that belong to this key alone. The outer levels of a nested key are shared with other keys
    /// and stay as they are. Reset an outer level with the key of that level, [`Key::parent`]:
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use tollgate::{Key, Limiter, MemoryStore, Policy, Quota};
    ///
    /// let policies = [
    ///     Policy::fixed_window("tenant", Quota::per_hour(100)).at_level(1),
    ///     Policy::fixed_window("user", Quota::per_hour(10)),
    /// ];
    /// let limiter = Limiter::new(MemoryStore::new(), policies);
    /// let ann = Key::new("acme").child("ann");
    /// let _ = limiter.check(&ann).await?;
    ///
    /// limiter.reset(&ann).await?;
    /// let state = limiter.peek(&ann).await?;
    /// assert_eq!(state.state("user").unwrap().remaining(), 10);
    /// assert_eq!(state.state("tenant").unwrap().remaining(), 99);
    ///
    /// limiter.reset(Key::new("acme")).await?;
    /// assert_eq!(limiter.peek(&ann).await?.state("tenant").unwrap().remaining(), 100);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The store cannot be reached before the deadline.
    pub async fn reset(&self, key: impl Into<Key>) -> Result<(), Error> {
        let key = key.into();
        self.0.within_timeout(self.0.store.reset(&self.0.policies, &key)).await
    }

    /// Lists up to `limit` units that the [sliding log](crate::Algorithm::SlidingLog) of the set counts now, newest
    /// first. Of several logs, lists the one with the longest period. A log that meters an outer level lists the units of
    /// all keys within that level.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] when no policy is a sliding log or the store lists no entries.
    /// [`ErrorKind::KeyLevels`] when the key has fewer levels than a policy meters. Any other kind when the store cannot
    /// be reached before the deadline.
    pub async fn entries(&self, key: impl Into<Key>, limit: usize) -> Result<Vec<Entry>, Error> {
        let key = key.into();
        self.0.policies.reaches(&key)?;
        self.0.within_timeout(self.0.store.entries(&self.0.policies, &key, limit)).await
    }

    /// Returns the name of the limiter in log lines and metrics: see [`LimiterBuilder::name`].
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.fallback.name()
    }

    /// Returns the policies that are checked together.
    #[must_use]
    pub fn policies(&self) -> &PolicySet {
        &self.0.policies
    }

    /// Returns whether decisions are made inside this process, without waiting.
    #[must_use]
    pub fn is_in_process(&self) -> bool {
        self.0.is_in_process
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.0.store
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.0.timeout
    }

    pub(crate) fn wait_queues(&self) -> &WaitQueues {
        &self.0.wait_queues
    }
}

impl Inner {
    fn check(self: &Arc<Self>, key: &Key, cost: Cost, tag: &[u8]) -> CheckFuture {
        if tag.len() > TAG_BYTES {
            return self.refuse(Error::config(format!("tag must be at most {TAG_BYTES} bytes, got {}", tag.len())));
        }
        if let Err(error) = self.policies.admits(cost).and_then(|()| self.policies.reaches(key)) {
            return self.refuse(error);
        }
        let check = Check::new(&self.policies, key, cost).with_tag(tag);
        if self.is_in_process {
            // Returned as it is: a copy would take a good part of the time of the decision.
            let answer = self.store.check(check);
            self.fallback.answered_in_process(&self.policies, answer.as_ready());
            return answer;
        }
        self.check_remote(check)
    }

    /// Checks a store outside of the process.
    // Not inlined: a check in the process would pay for the larger stack frame.
    #[inline(never)]
    fn check_remote(self: &Arc<Self>, check: Check<'_>) -> CheckFuture {
        let deadline = Deadline::after(self.timeout);
        let check = check.with_deadline(deadline);
        let mut answer = self.store.check(check);
        match answer.as_ready() {
            Some(Ok(decision)) => self.fallback.decided(decision, || check),
            Some(Err(error)) => return StoreFuture::ready(self.fallback.answer(check, error.clone())),
            None if self.keeps_deadline && answer.holds_check() => answer.guard_with(Arc::clone(self) as _),
            None if self.keeps_deadline => return self.wait(answer, check),
            None => {
                let (timeout, end) = (self.timeout, deadline.instant().map(Instant::from_std));
                let answer = async move {
                    runtime::current()?;
                    within(end, answer).await.unwrap_or_else(|| Err(late(timeout)))
                };
                return self.wait(answer, check);
            }
        }
        answer
    }

    /// Answers a check that is not valid, without the store.
    #[cold]
    fn refuse(&self, error: Error) -> CheckFuture {
        self.fallback.refused(&self.policies, &error);
        StoreFuture::ready(Err(error))
    }

    /// Waits for a store whose answer does not hold the check, and answers for it when it fails.
    fn wait(
        self: &Arc<Self>,
        answer: impl Future<Output = Result<Decision, Error>> + Send + 'static,
        check: Check<'_>,
    ) -> CheckFuture {
        let inner = Arc::clone(self);
        let (key, cost, tag) = (check.key.clone(), check.cost, Box::<[u8]>::from(check.tag));
        let deadline = check.deadline;
        StoreFuture::pending(async move {
            let outcome = answer.await;
            let check = Check { deadline, ..Check::new(&inner.policies, &key, cost).with_tag(&tag) };
            match outcome {
                Ok(decision) => {
                    inner.fallback.decided(&decision, || check);
                    Ok(decision)
                }
                Err(error) => inner.failed(check, error),
            }
        })
    }

    async fn refund(&self, key: Key, cost: Cost, decision: Option<&Decision>) -> Result<(), Error> {
        if cost == Cost::ZERO {
            return Ok(());
        }
        self.policies.reaches(&key)?;
        let check = Check::new(&self.policies, &key, cost);
        self.within_timeout(self.store.refund(check, decision)).await
    }

    async fn within_timeout<T: Unpin>(&self, answer: StoreFuture<T>) -> Result<T, Error> {
        match answer.into_ready() {
            Ok(answer) => answer,
            Err(pending) => {
                runtime::current()?;
                timeout(self.timeout, pending).await.unwrap_or_else(|_| Err(late(self.timeout)))
            }
        }
    }
}

impl Guard<Decision> for Inner {
    fn decided(&self, decision: &Decision, answer: &dyn PendingCheck<Decision>) {
        self.fallback.decided(decision, || answer.check());
    }

    fn failed(&self, check: Check<'_>, error: Error) -> Result<Decision, Error> {
        self.fallback.answer(check, error)
    }
}

/// Waits until `end`. Without an end, waits as long as the answer takes.
async fn within<T>(end: Option<Instant>, answer: impl Future<Output = T>) -> Option<T> {
    match end {
        Some(end) => timeout_at(end, answer).await.ok(),
        None => Some(answer.await),
    }
}

fn late(timeout: Duration) -> Error {
    Error::new(ErrorKind::Timeout, format!("the store did not answer within {timeout:?}"))
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("name", &self.name())
            .field("policies", &self.0.policies)
            .field("deadline", &self.0.timeout)
            .finish_non_exhaustive()
    }
}
