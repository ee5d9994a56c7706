#[cfg(feature = "redis")]
mod at_redis;
mod builder;

use std::{fmt, future::Future, sync::Arc, time::Duration};

use tokio::time::{Instant, timeout, timeout_at};

use crate::{
    Check, CheckFuture, Cost, Decision, Entry, Error, ErrorKind, Key, PolicySet, Store, StoreFuture, entry::TAG_BYTES,
    outage::Fallback, wait::queue::WaitQueues,
};
#[cfg(feature = "redis")]
use crate::{
    RedisStore,
    redis::{Asked, Watch},
};
#[cfg(feature = "redis")]
use at_redis::AtRedis;
pub use builder::LimiterBuilder;

/// A store and the policies checked together. Cheap to clone; clones share state.
///
/// Limits on the same key belong in one limiter: they are decided in one atomic step, and all are
/// charged or none. Two limiters that name the same policy on one store share its counters.
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
/// // What can never fit is no denial: there is nothing to wait for.
/// let error = limiter.check_cost("acme", Cost::new(101)).await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::CostExceedsBurst);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Limiter(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    /// The same, where nothing stands between.
    #[cfg(feature = "redis")]
    redis: Option<RedisStore>,
    #[cfg(feature = "redis")]
    watch: Watch,
    is_in_process: bool,
    policies: PolicySet,
    deadline: Duration,
    fallback: Fallback,
    wait_queues: WaitQueues,
}

impl Limiter {
    /// A limiter with the default [`Outage`](crate::Outage) and deadline.
    ///
    /// # Panics
    ///
    /// When [`PolicySet::try_new`] refuses the policies; pass a set made by it for policies that
    /// are known only at run time.
    #[must_use]
    pub fn new(store: impl Store, policies: impl Into<PolicySet>) -> Self {
        Self::builder(store).policies(policies).build()
    }

    /// A builder for the options. [`policies`](LimiterBuilder::policies) is where it begins.
    pub fn builder(store: impl Store) -> LimiterBuilder<()> {
        LimiterBuilder::new(store)
    }

    /// Spends one unit of every policy, or nothing.
    ///
    /// # Errors
    ///
    /// No decision was reached: the store is away and the limiter is [closed](crate::Outage::Closed).
    /// With any other [`Outage`](crate::Outage) there is always a decision.
    ///
    /// # Cancellation
    ///
    /// A future that is dropped may have spent: the store may be at it already.
    pub fn check(&self, key: impl Into<Key>) -> CheckFuture {
        self.check_cost(key, Cost::ONE)
    }

    /// Spends `cost` units of every policy, or nothing.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check), and [`ErrorKind::CostExceedsBurst`] for a cost that could never
    /// fit one of the policies; the store is not asked then.
    pub fn check_cost(&self, key: impl Into<Key>, cost: Cost) -> CheckFuture {
        self.check_key(&key.into(), cost)
    }

    /// As [`check_cost`](Self::check_cost), for a key that is at hand and stays there.
    ///
    /// # Errors
    ///
    /// As [`check_cost`](Self::check_cost).
    pub fn check_key(&self, key: &Key, cost: Cost) -> CheckFuture {
        self.0.check(key, cost, &[])
    }

    /// Spends `cost` units of every policy, or nothing, and notes `tag` beside them in every
    /// [sliding log](crate::Algorithm::SlidingLog) of the set: who it was, of all that share the
    /// key. [`entries`](Self::entries) tells. Other algorithms do not keep it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota};
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::sliding_log("log-in", Quota::per_minute(2)));
    /// for user in ["ann", "bob", "eve"] {
    ///     // The address is limited, the user is noted.
    ///     let _ = limiter.check_tagged("192.0.2.7", Cost::ONE, user).await?;
    /// }
    /// let entries = limiter.entries("192.0.2.7", 10).await?;
    /// let users: Vec<_> = entries.iter().map(|entry| entry.tag()).collect();
    /// assert_eq!(users, [b"bob", b"ann"]); // Eve was denied, and left no trace.
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`check_cost`](Self::check_cost), and [`ErrorKind::Config`] for a tag of more than 64
    /// bytes.
    pub fn check_tagged(&self, key: impl Into<Key>, cost: Cost, tag: impl AsRef<[u8]>) -> CheckFuture {
        self.0.check(&key.into(), cost, tag.as_ref())
    }

    /// Looks at what is left and spends nothing.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn peek(&self, key: impl Into<Key>) -> CheckFuture {
        self.check_cost(key, Cost::ZERO)
    }

    /// Gives back up to `cost` units of every policy: never more than is spent now.
    ///
    /// Use [`refund_decision`](Self::refund_decision) where the decision that spent them is at
    /// hand: it knows in which window they were spent.
    ///
    /// # Errors
    ///
    /// The store cannot be reached in time. The quota then stays spent, until it accrues again.
    pub async fn refund(&self, key: impl Into<Key>, cost: Cost) -> Result<(), Error> {
        self.0.refund(key.into(), cost, None).await
    }

    /// Gives back up to `cost` of what `decision` spent on `key`: never more than is spent now,
    /// and nothing to a window that opened after the decision. A decision that spent nothing
    /// (denied, or made without the store) gives nothing back.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota};
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::fixed_window("day", Quota::per_day(100)));
    /// let decision = limiter.check_cost("acme", Cost::new(10)).await?;
    /// // The work turned out to be worth 4.
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

    /// Makes the key fresh: everything is there again.
    ///
    /// # Errors
    ///
    /// The store cannot be reached in time.
    pub async fn reset(&self, key: impl Into<Key>) -> Result<(), Error> {
        let key = key.into();
        self.0.within_deadline(self.0.store.reset(&self.0.policies, &key)).await
    }

    /// What the [sliding log](crate::Algorithm::SlidingLog) among the policies holds for the key:
    /// the units that count now, newest first, at most `limit` of them. Of several logs it is the
    /// one that looks back farthest.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] when no policy is a sliding log, or the store lists no entries;
    /// the store cannot be reached in time.
    pub async fn entries(&self, key: impl Into<Key>, limit: usize) -> Result<Vec<Entry>, Error> {
        let key = key.into();
        self.0.within_deadline(self.0.store.entries(&self.0.policies, &key, limit)).await
    }

    /// The policies that are checked together.
    #[must_use]
    pub fn policies(&self) -> &PolicySet {
        &self.0.policies
    }

    /// Whether decisions are made inside this process, at once.
    #[must_use]
    pub fn is_in_process(&self) -> bool {
        self.0.is_in_process
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.0.store
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.0.deadline
    }

    pub(crate) fn wait_queues(&self) -> &WaitQueues {
        &self.0.wait_queues
    }
}

impl Inner {
    fn check(self: &Arc<Self>, key: &Key, cost: Cost, tag: &[u8]) -> CheckFuture {
        if tag.len() > TAG_BYTES {
            let error = Error::config(format!("tag must be at most {TAG_BYTES} bytes, got {}", tag.len()));
            return StoreFuture::ready(Err(error));
        }
        if let Err(error) = self.policies.admits(cost) {
            return StoreFuture::ready(Err(error));
        }
        let check = Check::new(&self.policies, key, cost).with_tag(tag);
        if self.is_in_process {
            // Handed on where it lies: to be copied would be a good part of what the decision costs.
            return self.store.check(check);
        }
        #[cfg(feature = "redis")]
        if let Some(redis) = &self.redis {
            return self.check_at(redis, check);
        }
        // Absolute, and from here on; in process nobody looks at it.
        let deadline = Instant::now().checked_add(self.deadline);
        let check = Check { deadline: deadline.map(Instant::into_std), ..check };
        match self.store.check(check).into_ready() {
            Ok(answer) => StoreFuture::ready(self.settle(check, answer)),
            Err(pending) => self.wait(pending, check),
        }
    }

    /// The same with less around it.
    #[cfg(feature = "redis")]
    #[inline]
    fn check_at(self: &Arc<Self>, redis: &RedisStore, check: Check<'_>) -> CheckFuture {
        let hash = redis.hash(check.key);
        if let Some(denied) = redis.denied(&check, hash) {
            self.fallback.returned();
            return denied;
        }
        match redis.ask(check, hash, Some(self.deadline)) {
            Ok(Asked::Turn(turn)) => StoreFuture::pending(AtRedis::new(Arc::clone(self), turn)),
            Ok(Asked::Route(route, deadline)) => self.wait(route, Check { deadline, ..check }),
            Err(why) => StoreFuture::ready(self.fallback.answer(check, why)),
        }
    }

    /// Sees a check through that a store is at, until the deadline.
    fn wait(
        self: &Arc<Self>,
        pending: impl Future<Output = Result<Decision, Error>> + Send + 'static,
        check: Check<'_>,
    ) -> CheckFuture {
        let inner = Arc::clone(self);
        let (key, tag) = (check.key.clone(), Box::<[u8]>::from(check.tag));
        let (cost, deadline) = (check.cost, check.deadline.map(Instant::from_std));
        StoreFuture::pending(async move {
            let answer = match deadline {
                Some(deadline) => timeout_at(deadline, pending).await,
                None => timeout(inner.deadline, pending).await,
            };
            let answer = answer.unwrap_or_else(|_| Err(inner.late()));
            inner.settle(Check::new(&inner.policies, &key, cost).with_tag(&tag), answer)
        })
    }

    /// The store's answer, or one in its stead.
    fn settle(&self, check: Check<'_>, answer: Result<Decision, Error>) -> Result<Decision, Error> {
        match answer {
            Ok(decision) => {
                self.fallback.returned();
                Ok(decision)
            }
            Err(error) => self.fallback.answer(check, error),
        }
    }

    async fn refund(&self, key: Key, cost: Cost, decision: Option<&Decision>) -> Result<(), Error> {
        if cost == Cost::ZERO {
            return Ok(());
        }
        let check = Check::new(&self.policies, &key, cost);
        self.within_deadline(self.store.refund(check, decision)).await
    }

    async fn within_deadline<T: Unpin>(&self, answer: StoreFuture<T>) -> Result<T, Error> {
        match answer.into_ready() {
            Ok(answer) => answer,
            Err(pending) => match timeout(self.deadline, pending).await {
                Ok(answer) => answer,
                Err(_) => Err(self.late()),
            },
        }
    }

    fn late(&self) -> Error {
        Error::new(ErrorKind::Timeout, format!("the store did not answer within {:?}", self.deadline))
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("policies", &self.0.policies)
            .field("deadline", &self.0.deadline)
            .finish_non_exhaustive()
    }
}
