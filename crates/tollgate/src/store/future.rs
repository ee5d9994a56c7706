use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;

use super::Check;
use crate::{Decision, Error};

/// Resolves to the decision of a check. [`Limiter::check`](crate::Limiter::check) returns it.
pub type CheckFuture = StoreFuture<Decision>;

/// Resolves to the answer of a store. The answer may already be there.
///
/// An answer that is there costs no allocation, and [`into_ready`](Self::into_ready) takes it without an executor.
///
/// A store in the process charges when the method is called, not when the future is polled. A store on a server
/// charges at some time after the future is first polled.
#[must_use = "an in-process check was charged before the future is polled; any other check is not sent until it is polled"]
pub struct StoreFuture<T>(State<T>);

enum State<T> {
    Ready(T),
    Failed(Error),
    Pending(Pin<Box<dyn PendingAnswer<T>>>),
    /// A pending answer whose failure is handled, without a second boxed future around it.
    Guarded(Pin<Box<dyn PendingAnswer<T>>>, Arc<dyn Guard<T>>),
    Taken,
}

/// A pending answer that may hold its own check.
pub(crate) trait PendingAnswer<T>: Future<Output = Result<T, Error>> + Send {
    /// Returns the check, if the answer holds it.
    fn check(&self) -> Option<Check<'_>>;
}

/// Turns the outcome of a store into the outcome for the caller.
pub(crate) trait Guard<T>: Send + Sync {
    fn settle(&self, check: Check<'_>, outcome: Result<T, Error>) -> Result<T, Error>;
}

impl<T> StoreFuture<T> {
    /// Creates a future whose answer is there.
    #[inline]
    pub fn ready(answer: Result<T, Error>) -> Self {
        Self(match answer {
            Ok(answer) => State::Ready(answer),
            Err(error) => State::Failed(error),
        })
    }

    /// Creates a future from any future. It is boxed once.
    pub fn pending(answer: impl Future<Output = Result<T, Error>> + Send + 'static) -> Self {
        Self(State::Pending(Box::pin(Plain { answer })))
    }

    /// Creates a future that holds its check, so that a guard needs no copy of it.
    #[cfg(feature = "redis")]
    pub(crate) fn pending_check(answer: impl PendingAnswer<T> + 'static) -> Self {
        Self(State::Pending(Box::pin(answer)))
    }

    /// Passes the outcome through `guard`, if the pending answer holds its check.
    ///
    /// # Errors
    ///
    /// The future itself, when it is not pending or holds no check.
    pub(crate) fn guarded(self, guard: impl FnOnce() -> Arc<dyn Guard<T>>) -> Result<Self, Self> {
        match self.0 {
            State::Pending(answer) if answer.check().is_some() => Ok(Self(State::Guarded(answer, guard()))),
            state => Err(Self(state)),
        }
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
        match &self.0 {
            State::Ready(answer) => Some(Ok(answer)),
            State::Failed(error) => Some(Err(error)),
            State::Pending(_) | State::Guarded(..) | State::Taken => None,
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
            State::Ready(answer) => Ok(Ok(answer)),
            State::Failed(error) => Ok(Err(error)),
            pending => Err(Self(pending)),
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
        match &mut self.0 {
            State::Pending(answer) => return answer.as_mut().poll(cx),
            State::Guarded(answer, guard) => {
                let outcome = ready!(answer.as_mut().poll(cx));
                return Poll::Ready(match answer.check() {
                    Some(check) => guard.settle(check, outcome),
                    None => outcome,
                });
            }
            State::Ready(_) | State::Failed(_) | State::Taken => {}
        }
        match mem::replace(&mut self.0, State::Taken) {
            State::Ready(answer) => Poll::Ready(Ok(answer)),
            State::Failed(error) => Poll::Ready(Err(error)),
            _ => panic!("a store future was polled after it was ready"),
        }
    }
}

impl<T> fmt::Debug for StoreFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            State::Ready(_) | State::Failed(_) | State::Taken => "StoreFuture::Ready",
            State::Pending(_) | State::Guarded(..) => "StoreFuture::Pending",
        })
    }
}

pin_project! {
    /// A future that holds no check.
    struct Plain<F> {
        #[pin]
        answer: F,
    }
}

impl<F: Future> Future for Plain<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().answer.poll(cx)
    }
}

impl<T, F: Future<Output = Result<T, Error>> + Send> PendingAnswer<T> for Plain<F> {
    fn check(&self) -> Option<Check<'_>> {
        None
    }
}
