//! The future of an answer: that of a store, or of a limiter.
//! Who waits for it until a deadline is in `timer/mod.rs`; what a limiter makes of it, in
//! `limiter/mod.rs`.

use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tollgate_model::raw::DecisionParts;

use super::{
    check::{Check, KeptCheck},
    reservation::Settlement,
    timer::poll_answer,
};
use crate::{Decision, Error};

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
    /// The answer comes, with the copy of the check if the store has one.
    Pending(PendingAnswer<T>, Option<KeptCheck>),
    /// A limiter waits for the answer of the store.
    Awaited(AwaitedAnswer<T>),
    Taken,
}

/// The wait of a limiter for the answer to a check, until its deadline.
///
/// It stands in the future of the limiter's answer: in a future of its own around that of the store,
/// each check had one allocation and 900 instructions more.
struct AwaitedAnswer<T> {
    /// `None` when it has come, or the deadline.
    answer: Option<PendingAnswer<T>>,
    check: KeptCheck,
    /// The caller is woken at the deadline.
    is_set: bool,
    limiter: Arc<dyn Concludes<T>>,
}

/// Makes the answer that a caller gets of what a store answered: a limiter.
pub(crate) trait Concludes<T>: Send + Sync {
    /// Returns the answer to a check that the store was asked.
    fn conclude(&self, check: Check<'_>, outcome: Result<T, Error>) -> Result<T, Error>;
}

impl<T> FutureState<T> {
    /// Polls the answer that a limiter waits for.
    // Not inlined: a check in the process would pay for it.
    #[inline(never)]
    fn poll_awaited(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, Error>> {
        let Self::Awaited(awaited) = self else {
            panic!("{USED}")
        };
        let answer = ready!(awaited.poll(cx));
        *self = Self::Taken;
        Poll::Ready(answer)
    }
}

impl<T> AwaitedAnswer<T> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, Error>> {
        let Some(answer) = &mut self.answer else {
            panic!("{USED}")
        };
        let outcome = ready!(poll_answer(
            &self.check,
            &mut self.is_set,
            answer.as_mut(),
            cx
        ));
        // Before the limiter answers for the store: what sends to a server counts a late call here.
        self.answer = None;
        Poll::Ready(self.limiter.conclude(self.check.check(), outcome))
    }
}

/// An answer that is not there yet.
pub(crate) type PendingAnswer<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

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

    /// Creates a future from the answer to a check that the store keeps. A limiter that waits for it
    /// shares the copy, so that the key is copied once. Any copy of the check that the store was
    /// asked will do; of another check, it is not used.
    ///
    /// ```
    /// use std::{future::IntoFuture, time::Duration};
    /// use tollgate::{
    ///     Decision, Limiter, MemoryStore, Policy, Quota, Store,
    ///     store::{Check, CheckFuture, StoreFuture},
    /// };
    ///
    /// /// Decides after a while, as a store on a server does.
    /// struct Distant(MemoryStore);
    ///
    /// impl Store for Distant {
    ///     fn check(&self, check: Check<'_>) -> CheckFuture {
    ///         let (store, kept) = (self.0.clone(), check.keep());
    ///         StoreFuture::keeping(kept.clone(), async move {
    ///             tokio::time::sleep(Duration::from_millis(2)).await;
    ///             store.check(kept.check()).await
    ///         })
    ///     }
    ///     # fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
    ///     #     self.0.refund(check, decision)
    ///     # }
    ///     # fn reset(&self, check: Check<'_>) -> StoreFuture<()> {
    ///     #     self.0.reset(check)
    ///     # }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), tollgate::Error> {
    /// let store = Distant(MemoryStore::new());
    /// let limiter = Limiter::new(store, Policy::token_bucket("api", Quota::per_second(10)));
    /// let check = limiter.check("acme").into_future();
    /// assert!(check.as_ready().is_none());
    /// assert!(check.await?.is_allowed());
    /// # Ok(()) }
    /// ```
    pub fn keeping(
        check: impl Into<KeptCheck>,
        answer: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Self {
        Self(FutureState::Pending(Box::pin(answer), Some(check.into())))
    }

    /// Returns the answer to a call over policies of which one [blocks](crate::Quota::is_blocked): a
    /// check is denied, nothing is refunded, and no reservation is held. `None` for all other policies.
    ///
    /// A [`Limiter`](crate::Limiter) asks no store then. A store that may be called without one asks
    /// here first, because no algorithm has a state of such a policy.
    ///
    /// ```
    /// use tollgate::{Cost, Key, Policy, PolicySet, Quota, store::{Check, CheckFuture}};
    ///
    /// let key = Key::new("acme");
    /// let answer = |amount| {
    ///     let policies = PolicySet::from(Policy::token_bucket("api", Quota::per_second(amount)));
    ///     CheckFuture::if_blocked(Check::new(&policies, &key, Cost::ONE))
    /// };
    /// let blocked = answer(0).expect("an amount of 0 blocks");
    /// assert!(matches!(blocked.as_ready(), Some(Ok(decision)) if decision.is_denied()));
    /// assert!(answer(10).is_none());
    /// ```
    #[inline]
    #[must_use]
    pub fn if_blocked(check: Check<'_>) -> Option<Self>
    where
        T: OfBlocked,
    {
        check
            .policies
            .is_blocked()
            .then(|| Self::ready(Ok(T::of_blocked(check))))
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

    /// Turns the answer into another one. An answer that is there stays so.
    ///
    /// ```
    /// use std::future::IntoFuture;
    /// use tollgate::{Decision, Limiter, MemoryStore, Policy, Quota};
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("api", Quota::per_second(10)));
    /// let cost = |decision: Decision| decision.cost().units();
    /// let units = limiter.check("acme").into_future().map(cost);
    /// assert!(matches!(units.as_ready(), Some(Ok(1))));
    /// ```
    pub fn map<U: Send + 'static>(self, to: impl FnOnce(T) -> U + Send + 'static) -> StoreFuture<U>
    where
        T: Send + Unpin + 'static,
    {
        match self.into_ready() {
            Ok(answer) => StoreFuture::ready(answer.map(to)),
            Err(pending) => StoreFuture::pending(async move { pending.await.map(to) }),
        }
    }

    /// Creates a future that waits for the answer of a store until the deadline of the check, for a
    /// limiter.
    pub(crate) fn awaited(
        answer: PendingAnswer<T>,
        check: KeptCheck,
        limiter: Arc<dyn Concludes<T>>,
    ) -> Self {
        Self(FutureState::Awaited(AwaitedAnswer {
            answer: Some(answer),
            check,
            is_set: false,
            limiter,
        }))
    }

    /// Returns the answer if it is there, and otherwise what to wait for, with the copy of `check`
    /// that the store keeps or a new one. A store that wraps another may have asked it for a check of
    /// its own.
    pub(crate) fn into_pending(
        self,
        check: Check<'_>,
    ) -> Result<Result<T, Error>, (PendingAnswer<T>, KeptCheck)>
    where
        T: Send + Unpin + 'static,
    {
        match self.0 {
            FutureState::Ready(answer) => Ok(Ok(answer)),
            FutureState::Failed(error) => Ok(Err(error)),
            FutureState::Pending(answer, kept) => {
                let kept = kept.filter(|kept| kept.check() == check);
                Err((answer, kept.unwrap_or_else(|| check.keep())))
            }
            // The store asks a limiter.
            awaited @ FutureState::Awaited(_) => Err((Box::pin(Self(awaited)), check.keep())),
            FutureState::Taken => panic!("{USED}"),
        }
    }
}

/// The answer to a call over a policy that [blocks](crate::Quota::is_blocked): see
/// [`StoreFuture::if_blocked`].
pub trait OfBlocked {
    /// Returns the answer to a call with this check.
    fn of_blocked(check: Check<'_>) -> Self;
}

impl OfBlocked for Decision {
    #[cold]
    fn of_blocked(check: Check<'_>) -> Self {
        Self::blocked(check.policies, check.charge())
    }
}

impl OfBlocked for Settlement {
    fn of_blocked(_: Check<'_>) -> Self {
        Self::Lapsed
    }
}

/// Nothing is refunded.
impl OfBlocked for () {
    fn of_blocked(_: Check<'_>) {}
}

impl<T> Future for StoreFuture<T>
where
    T: Unpin,
{
    type Output = Result<T, Error>;

    /// # Panics
    ///
    /// When the future is polled after it was ready.
    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            FutureState::Pending(answer, _) => answer.as_mut().poll(cx),
            FutureState::Awaited(_) => self.0.poll_awaited(cx),
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
            FutureState::Pending(..) | FutureState::Awaited(_) => "StoreFuture::Pending",
        })
    }
}
