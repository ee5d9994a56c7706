//! What callers do with a limiter for one key: check, peek and refund, each with its builder.
//! Waiting is in `wait/`, reservations in `reservation.rs`. The call of the store itself is in
//! `mod.rs`.

use std::{borrow::Cow, future::IntoFuture, sync::Arc, time::Duration};

use tollgate_model::{
    KeyState,
    raw::{ChargeRef, CostsParts, DecisionParts, PolicySetParts},
};

use super::{Limiter, LimiterInner, Unasked, is_for_store, wait};
use crate::{
    Cost, Costs, Decision, Error, Key, MemoryStore, PolicySet,
    store::{Check, CheckFuture, StoreFuture},
};

impl Limiter {
    /// Spends one unit of every policy, or nothing. Await the returned builder.
    ///
    /// The builder takes [another cost](CheckBuilder::cost), a [tag](CheckBuilder::tag), and the
    /// longest time that the caller [waits](CheckBuilder::wait) instead of being denied.
    ///
    /// The key is a [`Key`], or what converts into one: text, numbers, tuples, and types of your
    /// own with an `impl From<…> for Key`. A caller that holds a [`Key`] borrows it with
    /// [`check_key`](Self::check_key).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use tollgate::{Key, Limiter, MemoryStore, Policy, Quota};
    ///
    /// struct UserId(u64);
    ///
    /// impl From<UserId> for Key {
    ///     fn from(user: UserId) -> Self {
    ///         Key::from(("user", user.0))
    ///     }
    /// }
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("api", Quota::per_second(2)));
    /// assert!(limiter.check("acme").await?.is_allowed());
    /// assert!(limiter.check(UserId(7)).await?.is_allowed());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// When the store failed, and the limiter is [closed](crate::Outage::Closed) in an outage. Any
    /// other [`Outage`](crate::Outage) decides instead of the store.
    ///
    /// [`ErrorKind::KeyLevels`](crate::ErrorKind::KeyLevels) when the key has fewer levels or
    /// branches than a policy meters. The store is not asked then.
    /// [`ErrorKind::CrossSlot`](crate::ErrorKind::CrossSlot) when no server of a cluster has all
    /// branches of the key: see [`can_decide`](Self::can_decide).
    ///
    /// [`ErrorKind::NoRuntime`](crate::ErrorKind::NoRuntime) when the future is polled outside a
    /// tokio runtime and the store is outside the process. Nothing is sent then, and the `Outage`
    /// does not decide. In such threads, use [`block_on`](Self::block_on).
    ///
    /// # Cancellation
    ///
    /// A dropped future may have spent the unit: the store may have decided already.
    #[inline]
    pub fn check(&self, key: impl Into<Key>) -> CheckBuilder<'_> {
        CheckBuilder::new(self, Cow::Owned(key.into()))
    }

    /// Spends one unit of every policy, or nothing, for a borrowed key: [`check`](Self::check)
    /// without a copy of the key.
    ///
    /// Use it where nanoseconds count: in a middleware, or in a loop over keys. `check(&key)` works
    /// too, and copies the 88 bytes of the key.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    // A method of its own: a type that borrows a key, and still converts from all that a key
    // converts from, would need two overlapping impls.
    #[inline]
    pub fn check_key<'a>(&'a self, key: &'a Key) -> CheckBuilder<'a> {
        CheckBuilder::new(self, Cow::Borrowed(key))
    }

    /// Returns what every policy has left for the key, and spends nothing. Await the returned
    /// builder.
    ///
    /// Set a [cost](PeekBuilder::cost) to see when that many units would fit.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    #[inline]
    pub fn peek(&self, key: impl Into<Key>) -> PeekBuilder<'_> {
        PeekBuilder {
            limiter: self,
            key: key.into(),
            costs: Costs::new(Cost::ZERO),
        }
    }

    /// Refunds `costs`, but never more than is spent now. Await the returned builder.
    ///
    /// `costs` is one number or [`Cost`] for all policies, or [`Costs`] for each policy.
    ///
    /// Pass the [decision](RefundBuilder::of) that spent the units if you have it: it knows when
    /// they were spent, so units that have accrued again since then are not given twice. Without
    /// it, the units count as spent just now.
    ///
    /// A limiter that [blocks](PolicySet::is_blocked) refunds nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota};
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::fixed_window("day", Quota::per_day(100)));
    /// let decision = limiter.check("acme").cost(Cost::new(10)).await?;
    /// // The work needed only 4 units.
    /// limiter.refund("acme", Cost::new(6)).of(&decision).await?;
    /// assert_eq!(limiter.peek("acme").await?.state("day").unwrap().remaining(), 96);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// When the store cannot be reached before the deadline. The units then stay spent until they
    /// accrue again.
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when `costs` name a policy that did not
    /// decide, or leave one out. [`ErrorKind::KeyLevels`](crate::ErrorKind::KeyLevels) when the key
    /// has fewer levels or branches than a policy meters.
    pub fn refund(&self, key: impl Into<Key>, costs: impl Into<Costs>) -> RefundBuilder<'_> {
        RefundBuilder {
            limiter: self,
            key: key.into(),
            costs: costs.into(),
            decision: None,
        }
    }
}

/// Builds a check. [`Limiter::check`] returns it. Await it to spend.
#[must_use = "nothing is spent until the builder is awaited"]
pub struct CheckBuilder<'a> {
    limiter: &'a Limiter,
    key: Cow<'a, Key>,
    costs: Costs,
    tag: &'a [u8],
    max_wait: Option<Duration>,
    is_queued: bool,
}

// The builder is inlined into its caller. What is left of a check at one cost is a call with a
// borrowed key.
impl<'a> CheckBuilder<'a> {
    #[inline]
    fn new(limiter: &'a Limiter, key: Cow<'a, Key>) -> Self {
        Self {
            limiter,
            key,
            costs: Costs::new(Cost::ONE),
            tag: &[],
            max_wait: None,
            is_queued: false,
        }
    }

    /// Sets the units to spend: one number or [`Cost`] for all policies, or [`Costs`] for each.
    /// [`Cost::ONE`] by default.
    ///
    /// One atomic step spends from all policies, or from none.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota};
    ///
    /// let quota = Quota::per_hour(100);
    /// let limiter = Limiter::new(MemoryStore::new(), [Policy::token_bucket("files", quota), Policy::token_bucket("rows", quota)]);
    /// assert!(limiter.check("acme").cost(25).await?.is_allowed());
    /// assert!(limiter.check("acme").cost([("files", 1), ("rows", 70)]).await?.is_allowed());
    /// let left = limiter.peek("acme").await?;
    /// assert_eq!((left.state("files").unwrap().remaining(), left.state("rows").unwrap().remaining()), (74, 5));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The check fails with [`ErrorKind::CostExceedsBurst`](crate::ErrorKind::CostExceedsBurst)
    /// when a cost is above the burst of its policy, and with
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when the costs name a policy that the
    /// limiter does not have, or leave one out. The store is not asked then.
    #[inline]
    pub fn cost(mut self, costs: impl Into<Costs>) -> Self {
        self.costs = costs.into();
        self
    }

    /// Sets a tag, which every [sliding log](crate::Algorithm::SlidingLog) of the limiter stores
    /// beside the spent units. Empty by default, at most 64 bytes.
    ///
    /// Use a tag to see later which of the users that share a key spent the units: see
    /// [`entries`](Limiter::entries). Other algorithms ignore the tag.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota};
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::sliding_log("log-in", Quota::per_minute(2)));
    /// for user in ["ann", "bob", "eve"] {
    ///     // The address is the key. The user is the tag.
    ///     let _ = limiter.check("192.0.2.7").tag(user).await?;
    /// }
    /// let entries = limiter.entries("192.0.2.7", 10).await?;
    /// let users: Vec<_> = entries.iter().map(|entry| entry.tag()).collect();
    /// assert_eq!(users, [b"bob", b"ann"]); // Eve was denied. A denial is not stored.
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The check fails with [`ErrorKind::Config`](crate::ErrorKind::Config) for a tag of more than
    /// 64 bytes.
    #[inline]
    pub fn tag<T: AsRef<[u8]> + ?Sized>(mut self, tag: &'a T) -> Self {
        self.tag = tag.as_ref();
        self
    }

    /// Waits for up to `max_wait` until the units are available. By default, a check does not wait.
    ///
    /// When the turn would come after `max_wait`, or when
    /// [`max_waiting`](crate::LimiterBuilder::max_waiting) callers already wait for room, the call
    /// returns a denial at once. A denied request is not charged, and its `retry_after` is the time
    /// after which the same call would be admitted. A denial is `Ok`: call
    /// [`into_result`](Decision::into_result) so that `?` ends the work. If `max_wait` is 1 s or
    /// longer, the store has 1 s for its answer, unless a
    /// [deadline](crate::LimiterBuilder::deadline) is set.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota, store::Clock};
    ///
    /// let store = MemoryStore::builder().clock(Clock::tokio()).build();
    /// let mails = Limiter::new(store, Policy::leaky_bucket("mails", Quota::per_second(10).with_burst(100)));
    /// let start = tokio::time::Instant::now();
    /// for _ in 0..3 {
    ///     mails.check("smtp").wait(Duration::from_secs(1)).await?.into_result()?;
    ///     // Send one e-mail here. The next one follows 100 ms later.
    /// }
    /// assert!(start.elapsed() >= Duration::from_millis(200));
    /// # Ok(()) }
    /// ```
    ///
    /// # Turns and order
    ///
    /// With a [`LeakyBucket`](crate::Algorithm::LeakyBucket) among the policies, the request enters
    /// the queue at once and waits for the decision's [`delay`](Decision::delay). With token
    /// buckets, or one interval bucket, it goes into *debt*: its units are charged at once, and it
    /// waits until they have accrued. So requests get their turns in the order of arrival, over all
    /// processes, and a plain check takes no unit that somebody waits for.
    ///
    /// A queue holds its burst at most, and a debt is at most seven bursts. A caller that finds no
    /// room, and whose turn can still come in time, waits for room. So does a denied caller with
    /// all other policies: windows, logs, [leased](crate::Policy::leased) policies, an interval
    /// bucket beside another policy, and token buckets that meter different parts of the key or
    /// stand beside other algorithms. It waits for the decision's
    /// [`retry_after`](Decision::retry_after) and then tries again.
    ///
    /// The callers of a limiter and its clones that wait for room are admitted in the order of
    /// arrival, for each key. Each process has its own order, so callers of other processes and
    /// plain checks may take the units first. Callers of a limiter [with other
    /// policies](Limiter::with_policies) have an order of their own.
    ///
    /// Processes that share a store take turns at a full queue.
    ///
    /// A caller with a [priority](crate::Priority) below critical goes into no debt. It waits until
    /// its units fit its share.
    ///
    /// The burst of a leaky bucket should cover the longest wait of any caller: [Waiting and
    /// outgoing calls](https://docs.rs/tollgate/latest/tollgate/guide/waiting_and_outgoing_calls/index.html) says how. The units of a call
    /// leave the bucket together, at its turn: with costs up to c, up to c − 1 units more than the
    /// amount leave in a period.
    ///
    /// # Tests
    ///
    /// Callers sleep on tokio's time. In a test that pauses it, give the store
    /// [`Clock::tokio`](crate::store::Clock::tokio), so that units accrue during the sleep.
    ///
    /// # Errors
    ///
    /// The check fails with [`ErrorKind::NoRuntime`](crate::ErrorKind::NoRuntime) outside a tokio
    /// runtime, for every store: the call may have to wait.
    ///
    /// # Cancellation
    ///
    /// Dropping the future leaves the queue and refunds what was spent. For a store outside the
    /// process, a task on the caller's runtime sends the refund. In a leaky bucket, and in a debt,
    /// only the last place can be refunded. Otherwise the turn of the cancelled request passes
    /// unused, because the requests behind keep their turns.
    #[doc(alias = "queue")]
    #[doc(alias = "until ready")]
    #[inline]
    pub fn wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = Some(max_wait);
        self
    }

    /// Waits until the admitted request has left its queues, however long that takes. By default, the
    /// caller sleeps for [`Decision::delay`] itself.
    ///
    /// A denial is returned at once. A [`wait`](Self::wait) for units is for the turn too, and bounds
    /// it: beside it, this changes nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), tollgate::Error> {
    /// use std::time::Duration;
    /// use tollgate::{Costs, Limiter, MemoryStore, Policy, Quota, store::Clock};
    ///
    /// let store = MemoryStore::builder().clock(Clock::tokio()).build();
    /// let mails = Policy::leaky_bucket("mails", Quota::per_second(1).with_burst(3));
    /// let limiter = Limiter::new(store, [mails, Policy::fixed_window("calls", Quota::per_day(9))]);
    /// let start = tokio::time::Instant::now();
    /// for _ in 0..3 {
    ///     assert!(limiter.check("smtp").queued().await?.is_allowed());
    /// }
    /// assert_eq!(start.elapsed(), Duration::from_secs(2));
    ///
    /// // What spends nothing of a queue has no turn in it.
    /// let without_mail = Costs::from([("mails", 0), ("calls", 1)]);
    /// assert!(limiter.check("smtp").cost(without_mail).queued().await?.is_allowed());
    /// assert_eq!(start.elapsed(), Duration::from_secs(2));
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancellation
    ///
    /// A future that is dropped while the request is in a queue refunds what was spent, as that of
    /// [`wait`](Self::wait) does. Before the decision arrives, a dropped future may have spent the
    /// units.
    #[inline]
    pub fn queued(mut self) -> Self {
        self.is_queued = true;
        self
    }

    /// Checks with all options.
    #[inline(never)]
    fn check_with_options(self) -> CheckFuture {
        if let Some(max_wait) = self.max_wait {
            // It looks for an exception before each attempt.
            let (limiter, key, tag) =
                (self.limiter.clone(), self.key.into_owned(), self.tag.into());
            let check = wait::check_or_wait(limiter, key, self.costs, tag, max_wait);
            return StoreFuture::pending(check);
        }
        // Borrowed: to move costs is a call.
        let Self {
            key, costs, tag, ..
        } = &self;
        let in_force = self.limiter.in_force(key);
        let limiter = in_force.as_ref().unwrap_or(self.limiter);
        let charge = costs.charge(&limiter.policies);
        let check = match charge.and_then(|charge| limiter.rank(key, costs, charge)) {
            Ok(charge) => limiter
                .inner
                .check(&limiter.policies, key, charge.borrow(), tag),
            Err(error) => {
                let check = Check::new(&limiter.policies, key, Cost::ONE);
                return limiter.inner.answer_at_once(check, Unasked::Invalid(error));
            }
        };
        match self.is_queued {
            true => wait::queued(limiter, self.key, check),
            false => check,
        }
    }
}

impl IntoFuture for CheckBuilder<'_> {
    type Output = Result<Decision, Error>;
    type IntoFuture = CheckFuture;

    /// Checks. A store in the process charges at once, also when the future is not polled, unless
    /// the check may [wait](CheckBuilder::wait).
    #[inline]
    fn into_future(self) -> CheckFuture {
        let has_options = self.is_queued || self.limiter.inner.has_exceptions();
        match (self.costs.only(), self.max_wait, has_options) {
            (Some(cost), None, false) => {
                self.limiter
                    .inner
                    .check(&self.limiter.policies, &self.key, cost.into(), self.tag)
            }
            _ => self.check_with_options(),
        }
    }
}

/// Builds a peek. [`Limiter::peek`] returns it. Await it to read the state.
#[must_use = "nothing is looked up until the builder is awaited"]
pub struct PeekBuilder<'a> {
    limiter: &'a Limiter,
    key: Key,
    costs: Costs,
}

impl PeekBuilder<'_> {
    /// Sets the units that should fit: one number or [`Cost`] for all policies, or [`Costs`] for
    /// each. [`KeyState::retry_after`] is then the time until a check of this cost would be
    /// admitted, and `None` when it would be admitted now.
    ///
    /// The time is exact while nobody else spends, also after the quota was lowered. After a change
    /// of the period or of the rate of a bucket, it is exact from the next check on.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use std::time::Duration;
    /// use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota, store::Clock};
    ///
    /// let store = MemoryStore::builder().clock(Clock::manual(0)).build();
    /// let limiter = Limiter::new(store, Policy::token_bucket("api", Quota::per_second(10)));
    /// let _ = limiter.check("acme").cost(Cost::new(8)).await?;
    ///
    /// // When would five fit?
    /// let state = limiter.peek("acme").cost(Cost::new(5)).await?;
    /// assert_eq!(state.retry_after(), Some(Duration::from_millis(300)));
    /// assert_eq!(state.state("api").unwrap().remaining(), 2);
    /// assert_eq!(limiter.peek("acme").cost(Cost::new(2)).await?.retry_after(), None);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`CheckBuilder::cost`]. Also [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported)
    /// when the store does not implement [`look`](crate::Store::look).
    #[inline]
    pub fn cost(mut self, costs: impl Into<Costs>) -> Self {
        self.costs = costs.into();
        self
    }
}

impl IntoFuture for PeekBuilder<'_> {
    type Output = Result<KeyState, Error>;
    type IntoFuture = StoreFuture<KeyState>;

    fn into_future(self) -> StoreFuture<KeyState> {
        let Self {
            limiter,
            key,
            costs,
        } = self;
        let in_force = limiter.in_force(&key);
        let limiter = in_force.as_ref().unwrap_or(limiter);
        let charge = costs.charge(&limiter.policies);
        match charge.and_then(|charge| limiter.rank(&key, &costs, charge)) {
            Ok(charge) => limiter.inner.look(&limiter.policies, &key, charge.borrow()),
            Err(error) => StoreFuture::ready(Err(error)),
        }
    }
}

/// Builds a refund. [`Limiter::refund`] returns it. Await it to refund.
#[must_use = "nothing is refunded until the builder is awaited"]
pub struct RefundBuilder<'a> {
    limiter: &'a Limiter,
    key: Key,
    costs: Costs,
    decision: Option<&'a Decision>,
}

impl<'a> RefundBuilder<'a> {
    /// Sets the decision that spent the units, and refunds no more than it spent.
    ///
    /// The refund counts as if the units had come back right after the decision. So no more is
    /// refunded than is spent now, and nothing to a window that opened after the decision.
    ///
    /// A token bucket returns only units that cannot have accrued again since the decision. A
    /// bucket that was nearly empty returns all units for almost as long as a full refill takes. A
    /// bucket that was full returns no unit once the charged units have accrued again. For work
    /// that takes longer, [reserve](Limiter::reserve) the units: the bucket then remembers what was
    /// missing.
    ///
    /// A decision that spent nothing refunds nothing. Of [cascading](Costs::cascading) costs, what was
    /// spent last returns first. The units return to the policies of the
    /// decision, also when the limiter has others now. What was spent in an
    /// [outage](crate::Outage::Local) returns to the share of this process.
    pub fn of(mut self, decision: &'a Decision) -> Self {
        self.decision = Some(decision);
        self
    }
}

impl IntoFuture for RefundBuilder<'_> {
    type Output = Result<(), Error>;
    type IntoFuture = StoreFuture<()>;

    /// Refunds. A store in the process refunds at once, also when the future is not polled.
    fn into_future(self) -> StoreFuture<()> {
        let Self {
            limiter,
            key,
            costs,
            decision,
        } = self;
        let in_force = limiter.in_force(&key);
        let limiter = in_force.as_ref().unwrap_or(limiter);
        // The decision may come from another limiter of the same store, or from this one before its
        // policies changed.
        let policies = decision.map_or(limiter.policies(), Decision::policies);
        let charge = match decision {
            Some(decision) => costs.give_back(policies, decision.charge()),
            None => costs.charge(policies),
        };
        let charge = match charge {
            Ok(_) if decision.is_some_and(Decision::is_denied) => {
                return StoreFuture::ready(Ok(()));
            }
            Ok(charge) => charge,
            Err(error) => return StoreFuture::ready(Err(error)),
        };
        if charge.borrow().cost == Cost::ZERO || policies.is_blocked() {
            return StoreFuture::ready(Ok(()));
        }
        if let Err(error) = policies.reaches(&key) {
            return StoreFuture::ready(Err(error));
        }
        let check = Check::of(policies, &key, charge.borrow());
        if let Some(decision) = decision.filter(|decision| decision.is_degraded()) {
            limiter.inner.fallback.refund(check, decision);
            return StoreFuture::ready(Ok(()));
        }
        limiter
            .inner
            .call(check, |check| limiter.inner.store.refund(check, decision))
    }
}

impl LimiterInner {
    /// Returns what a check would decide. It is neither charged nor counted.
    pub(super) fn look(
        self: &Arc<Self>,
        policies: &PolicySet,
        key: &Key,
        charge: ChargeRef<'_>,
    ) -> StoreFuture<KeyState> {
        let check = Check::of(policies, key, charge);
        if let Err(unasked) = is_for_store(check) {
            return StoreFuture::ready(unasked.answer(check).map(Decision::into_key_state));
        }
        let deadline = self.deadline();
        let check = Check { deadline, ..check };
        self.ask(check, self.store.look(check), |inner, check, outcome| {
            let look = match outcome {
                Err(error) if !inner.is_in_process => {
                    inner.fallback.decide(check, error, MemoryStore::look_now)
                }
                outcome => outcome.inspect(|look| inner.fallback.heard(check, look)),
            };
            look.map(Decision::into_key_state)
        })
    }
}

// Leaves out the key and the tag, which may identify a person.
crate::debug_fields! { CheckBuilder<'a>: costs, max_wait, is_queued, .. }

// Leaves out the key, which may identify a person.
crate::debug_fields! { PeekBuilder<'a>: costs, .. }

// Leaves out the key, which may identify a person.
crate::debug_fields! { RefundBuilder<'a>: costs, .. }
