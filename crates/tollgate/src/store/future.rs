use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use super::Check;
use crate::{Decision, Error};

/// Resolves to the decision of a check. [`Limiter::check`](crate::Limiter::check) returns it.
pub type CheckFuture = StoreFuture<Decision>;

/// Resolves to the answer of a store, or to a [limiter](crate::LimiterFuture). The answer may already be there.
///
/// An answer that is there costs no allocation, and [`into_ready`](Self::into_ready) takes it without an executor.
///
/// A store in the process charges when the method is called, not when the future is polled. A store on a server
/// charges at some time after the future is first polled.
#[must_use = "an in-process check was charged before the future is polled; any other check is not sent until it is polled"]
pub struct StoreFuture<T> {
    state: State<T>,
    /// Handles the outcome of a pending check.
    guard: Option<Arc<dyn Guard<T>>>,
}

enum State<T> {
    Ready(T),
    Failed(Error),
    Pending(Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>),
    #[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "only the Redis store has such answers"))]
    PendingCheck(Pin<Box<dyn PendingCheck<T>>>),
    Taken,
}

/// A pending answer that holds its own check, so that its failure is handled without a copy of the check.
pub(crate) trait PendingCheck<T>: Future<Output = Result<T, Error>> + Send {
    fn check(&self) -> Check<'_>;
}

/// Handles the outcome of a store.
pub(crate) trait Guard<T>: Send + Sync {
    /// Notes that the store decided the check that `answer` holds.
    fn decided(&self, outcome: &T, answer: &dyn PendingCheck<T>);

    /// Answers for a store that failed.
    fn failed(&self, check: Check<'_>, error: Error) -> Result<T, Error>;
}

impl<T> StoreFuture<T> {
    /// Creates a future whose answer is there.
    #[inline]
    pub fn ready(answer: Result<T, Error>) -> Self {
        Self::new(match answer {
            Ok(answer) => State::Ready(answer),
            Err(error) => State::Failed(error),
        })
    }

    /// Creates a future from any future. It is boxed once.
    pub fn pending(answer: impl Future<Output = Result<T, Error>> + Send + 'static) -> Self {
        Self::new(State::Pending(Box::pin(answer)))
    }

    /// Creates a future that holds its check.
    #[cfg(feature = "redis")]
    #[inline]
    pub(crate) fn pending_check(answer: impl PendingCheck<T> + 'static) -> Self {
        Self::new(State::PendingCheck(Box::pin(answer)))
    }

    #[inline]
    fn new(state: State<T>) -> Self {
        Self { state, guard: None }
    }

    /// Returns whether the answer is pending and holds its check.
    #[inline]
    pub(crate) fn holds_check(&self) -> bool {
        matches!(self.state, State::PendingCheck(_))
    }

    /// Sets the guard of a pending check. Every other answer ignores it.
    #[inline]
    pub(crate) fn guard_with(&mut self, guard: Arc<dyn Guard<T>>) {
        self.guard = Some(guard);
    }

    /// Returns a reference to the answer if it is there.
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota};
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("api", Quota::per_second(10)));
    /// let check = limiter.check("acme");
    /// assert!(matches!(check.as_ready(), Some(Ok(decision)) if decision.is_allowed()));
    /// ```
    #[must_use]
    #[inline]
    pub fn as_ready(&self) -> Option<Result<&T, &Error>> {
        match &self.state {
            State::Ready(answer) => Some(Ok(answer)),
            State::Failed(error) => Some(Err(error)),
            State::Pending(_) | State::PendingCheck(_) | State::Taken => None,
        }
    }

    /// Returns the answer if it is there.
    ///
    /// # Errors
    ///
    /// The future itself, when the answer is pending.
    #[inline]
    pub fn into_ready(self) -> Result<Result<T, Error>, Self> {
        match self.state {
            State::Ready(answer) => Ok(Ok(answer)),
            State::Failed(error) => Ok(Err(error)),
            state => Err(Self { state, guard: self.guard }),
        }
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
        let this = &mut *self;
        match &mut this.state {
            State::Pending(answer) => return answer.as_mut().poll(cx),
            State::PendingCheck(answer) => {
                let outcome = answer.as_mut().poll(cx);
                // An outcome of the store is returned as it is. A copy would take a good part of the time here.
                return match (&outcome, &this.guard) {
                    (Poll::Ready(Ok(decided)), Some(guard)) => {
                        guard.decided(decided, &**answer);
                        outcome
                    }
                    (Poll::Ready(Err(error)), Some(guard)) => Poll::Ready(guard.failed(answer.check(), error.clone())),
                    _ => outcome,
                };
            }
            State::Ready(_) | State::Failed(_) | State::Taken => {}
        }
        match mem::replace(&mut this.state, State::Taken) {
            State::Ready(answer) => Poll::Ready(Ok(answer)),
            State::Failed(error) => Poll::Ready(Err(error)),
            _ => panic!("a store future was polled after it was ready"),
        }
    }
}

impl<T> fmt::Debug for StoreFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Ready(_) | State::Failed(_) | State::Taken => "StoreFuture::Ready",
            State::Pending(_) | State::PendingCheck(_) => "StoreFuture::Pending",
        })
    }
}
