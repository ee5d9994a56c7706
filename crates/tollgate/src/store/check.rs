//! A check: what a store is asked to decide, by which deadline, and the future that has its answer.
//! What a store does with it is in the file of each store; outages are answered in
//! `limiter/outage/`.

use std::{
    fmt,
    future::Future,
    mem,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use crate::{
    Cost, Decision, Error, ErrorKind, Key, PolicySet,
    model::{
        Ceiling,
        charge::{Charge, ChargeRef, EachCost},
        quota::MAX_EXACT,
    },
    runtime::{self, Alarm, HasAlarm},
};

/// Describes one check for a [`Store`](crate::Store).
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Check<'a> {
    /// The policies that are checked together. A [`Limiter`](crate::Limiter) answers a check by
    /// itself when one of them [blocks](crate::Quota::is_blocked).
    pub policies: &'a PolicySet,
    /// The key that is charged. A policy charges the [branch](crate::Policy::at_branch) and the
    /// [levels](crate::Policy::at_level) that it meters. The key has all of them: a
    /// [`Limiter`](crate::Limiter) refuses other keys.
    pub key: &'a Key,
    /// The units to charge on every policy. If the policies have costs of their own, the greatest
    /// cost: see [`cost_of`](Self::cost_of). A cost is at most the burst of its policy.
    pub cost: Cost,
    /// Bytes that a [sliding log](crate::Algorithm::SlidingLog) stores beside the time of each
    /// unit. At most 64 bytes; empty by default. Other algorithms ignore the tag.
    pub tag: &'a [u8],
    /// The time until which the caller waits. A [`Limiter`](crate::Limiter) sets it for every store
    /// that is not [in process](crate::Store::is_in_process), and drops the future of the store
    /// when it has come.
    pub deadline: Option<Deadline>,
    /// The cost for each policy, when the costs differ, and the ceilings.
    pub(crate) each: Option<&'a EachCost>,
}

impl<'a> Check<'a> {
    /// Creates a check of `cost` units for `key`, without a tag and without a deadline.
    #[must_use]
    pub fn new(policies: &'a PolicySet, key: &'a Key, cost: Cost) -> Self {
        Self {
            policies,
            key,
            cost,
            tag: &[],
            deadline: None,
            each: None,
        }
    }

    /// Creates a check with the cost for each policy.
    pub(crate) fn of(policies: &'a PolicySet, key: &'a Key, charge: ChargeRef<'a>) -> Self {
        Self {
            each: charge.each,
            ..Self::new(policies, key, charge.cost)
        }
    }

    /// Returns the units to charge on the policy at this place of the set, counted from 0.
    #[must_use]
    #[inline]
    pub fn cost_of(&self, at: usize) -> Cost {
        self.charge().of(at)
    }

    /// Returns the ceiling for the policy at this place of the set, counted from 0. `None` for a
    /// check without ceilings: the burst is the limit.
    ///
    /// If a store ignores ceilings, callers of
    /// [`CheckBuilder::wait`](crate::limiter::CheckBuilder::wait) may wait longer than they asked
    /// for, and a [priority](crate::Priority) leaves no units to higher ranks.
    #[must_use]
    pub fn ceiling_of(&self, at: usize) -> Option<Ceiling> {
        self.charge().ceiling(at)
    }

    #[inline]
    pub(crate) fn charge(&self) -> ChargeRef<'a> {
        ChargeRef {
            cost: self.cost,
            each: self.each,
        }
    }

    /// Returns the number of a commit: that of the limiter, which may send it again, or a random one.
    pub(crate) fn number(&self) -> u64 {
        self.charge()
            .number()
            .unwrap_or_else(|| fastrand::u64(1..MAX_EXACT))
    }

    /// Returns the denial of a check under a policy that blocks, for a store that is called without
    /// a limiter.
    #[inline]
    pub(crate) fn blocked(&self) -> Option<Decision> {
        self.policies
            .is_blocked()
            .then(|| Decision::blocked(self.policies, self.charge()))
    }

    /// Returns the same check with another charge.
    pub(crate) fn with_charge(self, charge: &'a Charge) -> Self {
        let charge = charge.borrow();
        Self {
            cost: charge.cost,
            each: charge.each,
            ..self
        }
    }

    /// Returns the same check with a tag.
    #[must_use]
    pub fn with_tag(self, tag: &'a [u8]) -> Self {
        Self { tag, ..self }
    }

    /// Returns the same check with a deadline.
    #[must_use]
    pub fn with_deadline(self, deadline: Deadline) -> Self {
        Self {
            deadline: Some(deadline),
            ..self
        }
    }

    /// Copies the check, for a future that outlives the call.
    ///
    /// ```
    /// use tollgate::{Cost, Key, Policy, PolicySet, Quota, store::{Check, KeptCheck}};
    ///
    /// fn keep() -> KeptCheck {
    ///     let policies = PolicySet::from(Policy::token_bucket("api", Quota::per_second(10)));
    ///     Check::new(&policies, &Key::new("acme"), Cost::new(3)).keep()
    /// }
    /// assert_eq!(keep().check().cost, Cost::new(3));
    /// ```
    #[must_use]
    pub fn keep(self) -> KeptCheck {
        KeptCheck(Arc::new(Kept::new(self)))
    }
}

/// Holds a [`Check`] in a future: see [`Check::keep`]. Clones share it.
#[derive(Clone)]
pub struct KeptCheck(Arc<dyn Keeps>);

/// Has a check that is kept: the check alone, or what a store adds to it.
pub(crate) trait Keeps: HasAlarm {
    fn kept(&self) -> &Kept;
}

/// The parts of a check that is kept.
pub(crate) struct Kept {
    pub(crate) policies: PolicySet,
    pub(crate) key: Key,
    pub(crate) charge: Charge,
    pub(crate) tag: Box<[u8]>,
    pub(crate) deadline: Option<Deadline>,
    /// The alarm of the limiter that waits for the answer.
    alarm: Alarm,
}

impl KeptCheck {
    /// Keeps a check as a part of what the store shares with its task.
    pub(crate) fn within<R: Keeps + 'static>(holder: &Arc<R>) -> Self {
        Self(Arc::clone(holder) as _)
    }

    /// Returns the check.
    #[must_use]
    pub fn check(&self) -> Check<'_> {
        self.0.kept().check()
    }
}

impl Kept {
    // Inlined by force: what is kept is built where it is needed, instead of being copied there.
    #[inline(always)]
    pub(crate) fn new(check: Check<'_>) -> Self {
        Self {
            policies: check.policies.clone(),
            key: check.key.clone(),
            charge: check.charge().to_owned(),
            tag: check.tag.into(),
            deadline: check.deadline,
            alarm: Alarm::default(),
        }
    }

    /// Returns the check.
    pub(crate) fn check(&self) -> Check<'_> {
        Check {
            deadline: self.deadline,
            ..Check::of(&self.policies, &self.key, self.charge.borrow()).with_tag(&self.tag)
        }
    }

    /// Returns whether the parts are those of `check`. A store that wraps another may have sent it
    /// a check of its own.
    fn is_of(&self, check: Check<'_>) -> bool {
        let Check {
            policies,
            key,
            cost,
            tag,
            deadline,
            each,
        } = self.check();
        policies == check.policies
            && key == check.key
            && cost == check.cost
            && each == check.each
            && (tag.is_empty() && check.tag.is_empty() || tag == check.tag)
            && deadline == check.deadline
    }
}

impl Keeps for Kept {
    fn kept(&self) -> &Kept {
        self
    }
}

impl HasAlarm for Kept {
    fn alarm(&self) -> &Alarm {
        &self.alarm
    }
}

impl fmt::Debug for KeptCheck {
    /// Leaves out the key and the tag: both may identify a person.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.check().fmt(f)
    }
}

impl fmt::Debug for Check<'_> {
    /// Leaves out the key and the tag: both may identify a person.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check")
            .field("policies", self.policies)
            .field("cost", &self.cost)
            .finish_non_exhaustive()
    }
}

/// Resolves to the decision of a check. [`Limiter::check`](crate::Limiter::check) returns it.
pub type CheckFuture = StoreFuture<Decision>;

/// Resolves to the answer of a store, or to a [limiter](crate::limiter::LimiterFuture).
///
/// The answer may already be there. It then costs no allocation, and
/// [`into_ready`](Self::into_ready) takes it without an executor.
///
/// A store in the process charges when the method is called, not when the future is polled. A store
/// on a server charges at some time after the future is first polled.
#[must_use = "an in-process check was charged before the future is polled; any other check is not sent until it is polled"]
pub struct StoreFuture<T>(FutureState<T>);

enum FutureState<T> {
    Ready(T),
    Failed(Error),
    /// The answer of a store, with the check if the store keeps it.
    Pending(PendingAnswer<T>, Option<KeptCheck>),
    /// The answer of a limiter.
    Asked(Asked<T>),
    Taken,
}

/// An answer that is not there yet.
type PendingAnswer<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// The answer of a store to a check that a limiter keeps, until the deadline of the check: what
/// [`answer_by`] does, with the alarm of the check.
///
/// It is a part of the limiter's future, and not a box around the store's: that would be one more
/// allocation for each request in flight.
struct Asked<T> {
    /// `None` once the limiter has settled it.
    answer: Option<PendingAnswer<T>>,
    kept: KeptCheck,
    limiter: Arc<dyn Settles<T>>,
    is_begun: bool,
}

/// Settles what a store answered to a check: passes it on, or answers for a store that failed.
pub(crate) trait Settles<T>: Send + Sync {
    fn settle(&self, check: Check<'_>, outcome: Result<T, Error>) -> Result<T, Error>;
}

impl<T> Asked<T> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, Error>> {
        let outcome = ready!(self.poll_answer(cx));
        // What waits for the answer is dropped before anything else is decided.
        self.answer = None;
        Poll::Ready(self.limiter.settle(self.kept.check(), outcome))
    }

    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, Error>> {
        let answer = self.answer.as_mut().expect(USED);
        let runtime = match self.is_begun {
            true => None,
            false => Some(runtime::current()?),
        };
        self.is_begun = true;
        if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
            return Poll::Ready(answer);
        }
        let holder = &self.kept.0;
        let Some(deadline) = holder.kept().deadline else {
            return Poll::Pending;
        };
        match (runtime, deadline.instant()) {
            (Some(runtime), Some(end)) => {
                let holder = Arc::clone(holder) as _;
                runtime::set_alarm(holder, &runtime, deadline.timeout(), end, cx);
                Poll::Pending
            }
            (None, Some(_)) if holder.alarm().has_rung(cx) => Poll::Ready(Err(deadline.error())),
            _ => Poll::Pending,
        }
    }
}

/// The message of a panic about a future that is used after its end.
const USED: &str = "a store future was used after it was ready";

impl<T> StoreFuture<T> {
    /// Creates a future whose answer is there.
    #[inline]
    pub fn ready(answer: Result<T, Error>) -> Self {
        Self(match answer {
            Ok(answer) => FutureState::Ready(answer),
            Err(error) => FutureState::Failed(error),
        })
    }

    /// Creates a future whose answer is there, and is no error. Nothing is copied out of a
    /// `Result`.
    #[inline]
    pub(crate) fn decided(answer: T) -> Self {
        Self(FutureState::Ready(answer))
    }

    /// Creates a future from any future. It is boxed once.
    pub fn pending(answer: impl Future<Output = Result<T, Error>> + Send + 'static) -> Self {
        Self(FutureState::Pending(Box::pin(answer), None))
    }

    /// Creates the answer to a check that the store keeps. A limiter that waits for it shares the
    /// copy.
    pub(crate) fn kept(
        check: KeptCheck,
        answer: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Self {
        Self(FutureState::Pending(Box::pin(answer), Some(check)))
    }

    /// Returns a reference to the answer if it is there.
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota};
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("api", Quota::per_second(10)));
    /// let check = limiter.check("acme").into_future();
    /// assert!(matches!(check.as_ready(), Some(Ok(decision)) if decision.is_allowed()));
    /// ```
    #[must_use]
    #[inline]
    pub fn as_ready(&self) -> Option<Result<&T, &Error>> {
        match &self.0 {
            FutureState::Ready(answer) => Some(Ok(answer)),
            FutureState::Failed(error) => Some(Err(error)),
            _ => None,
        }
    }

    /// Returns the answer if it is there.
    ///
    /// # Errors
    ///
    /// The future itself, when the answer is pending.
    #[inline]
    pub fn into_ready(self) -> Result<Result<T, Error>, Self> {
        match self.0 {
            FutureState::Ready(answer) => Ok(Ok(answer)),
            FutureState::Failed(error) => Ok(Err(error)),
            pending => Err(Self(pending)),
        }
    }

    /// Waits until the deadline of the check for what a store answers to it, and lets the limiter
    /// settle it. The future keeps the check.
    ///
    /// # Panics
    ///
    /// When the future was polled after it was ready.
    pub(crate) fn settled_by(self, check: Check<'_>, limiter: Arc<dyn Settles<T>>) -> Self
    where
        T: Send + Unpin + 'static,
    {
        let (answer, kept): (PendingAnswer<T>, _) = match self.0 {
            FutureState::Pending(answer, kept) => (answer, kept),
            FutureState::Asked(_) => (Box::pin(self), None),
            FutureState::Ready(answer) => return Self::ready(limiter.settle(check, Ok(answer))),
            FutureState::Failed(error) => return Self::ready(limiter.settle(check, Err(error))),
            FutureState::Taken => panic!("{USED}"),
        };
        let kept = kept.filter(|kept| kept.0.kept().is_of(check));
        Self(FutureState::Asked(Asked {
            answer: Some(answer),
            kept: kept.unwrap_or_else(|| check.keep()),
            limiter,
            is_begun: false,
        }))
    }
}

impl<T> Future for StoreFuture<T>
where
    T: Unpin,
{
    type Output = Result<T, Error>;

    /// # Panics
    ///
    /// When the future is polled after it was ready.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            FutureState::Pending(answer, _) => answer.as_mut().poll(cx),
            FutureState::Asked(asked) => asked.poll(cx),
            there => match mem::replace(there, FutureState::Taken) {
                FutureState::Ready(answer) => Poll::Ready(Ok(answer)),
                FutureState::Failed(error) => Poll::Ready(Err(error)),
                _ => panic!("{USED}"),
            },
        }
    }
}

impl<T> fmt::Debug for StoreFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            FutureState::Ready(_) | FutureState::Failed(_) | FutureState::Taken => {
                "StoreFuture::Ready"
            }
            FutureState::Pending(..) | FutureState::Asked(_) => "StoreFuture::Pending",
        })
    }
}

/// The time at which the caller of a store stops waiting.
///
/// A deadline consists of a start and a timeout. So a store can use the start as the time of
/// sending, and one timer serves all calls with the same timeout.
///
/// ```
/// use std::time::Duration;
/// use tollgate::store::Deadline;
///
/// let deadline = Deadline::after(Duration::from_millis(50));
/// assert_eq!(deadline.timeout(), Duration::from_millis(50));
/// assert_eq!(deadline.instant(), Some(deadline.start() + Duration::from_millis(50)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    start: Instant,
    timeout: Duration,
}

impl Deadline {
    /// The time limit of a check by default: see
    /// [`LimiterBuilder::deadline`](crate::LimiterBuilder::deadline).
    pub(crate) const DEFAULT: Duration = Duration::from_millis(50);

    /// Creates a deadline that ends `timeout` from now.
    ///
    /// Time is tokio's, so a deadline follows a paused clock in tests.
    #[must_use]
    #[inline]
    pub fn after(timeout: Duration) -> Self {
        Self {
            start: runtime::now(),
            timeout,
        }
    }

    /// Returns when the call began.
    #[must_use]
    pub fn start(self) -> Instant {
        self.start
    }

    /// Returns the time from the start to the end.
    #[must_use]
    pub fn timeout(self) -> Duration {
        self.timeout
    }

    /// Returns the end. `None` when it lies beyond what an [`Instant`] can hold, so that it never
    /// comes.
    #[must_use]
    #[inline]
    pub fn instant(self) -> Option<Instant> {
        self.start.checked_add(self.timeout)
    }

    /// Returns whether the end has come.
    pub(crate) fn is_over(self) -> bool {
        self.instant().is_some_and(|end| end <= runtime::now())
    }

    /// Returns the time from now to the end. Zero when the end has come.
    pub(crate) fn left(self) -> Duration {
        self.timeout
            .saturating_sub(runtime::now().saturating_duration_since(self.start))
    }

    /// Creates the error of a call that was not answered before the end.
    pub(crate) fn error(self) -> Error {
        Error::new(
            ErrorKind::Timeout,
            format!("the store did not answer within {:?}", self.timeout),
        )
    }
}

/// Waits for an answer of a store until the deadline, and without one as long as the answer takes.
///
/// Every caller that waits for a store outside of the process waits here. At the deadline the
/// answer is dropped: what sends to a server then counts the call as late.
///
/// # Errors
///
/// [`ErrorKind::NoRuntime`] outside a runtime, and [`ErrorKind::Timeout`] at the deadline.
pub(crate) async fn answer_by<T>(
    deadline: Option<Deadline>,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let (runtime, answer) = (runtime::current()?, pin!(answer));
    match deadline.and_then(|deadline| Some((deadline, deadline.instant()?))) {
        Some((deadline, end)) => {
            let answer = runtime::until(end, answer, &runtime, deadline.timeout()).await;
            answer.unwrap_or_else(|| Err(deadline.error()))
        }
        None => answer.await,
    }
}
