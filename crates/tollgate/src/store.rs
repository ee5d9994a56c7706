use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    task::{Context, Poll},
    time::Instant,
};

use crate::{Cost, Decision, Entry, Error, ErrorKind, Key, PolicySet};

/// Where the state of the policies lives.
///
/// This crate implements it for [`MemoryStore`](crate::MemoryStore) and
/// [`RedisStore`](crate::RedisStore). Implement it to wrap one of them (to count, to trace, to
/// shard), or to keep state elsewhere; whoever does promises the laws that stand in
/// `docs/algorithms.md`, above all that one check is one atomic step over all policies.
pub trait Store: Send + Sync + 'static {
    /// Decides, and charges all policies or none. A cost of zero charges nothing.
    fn check(&self, check: Check<'_>) -> CheckFuture;

    /// Gives back up to the cost that was spent by `check` at the time of `decision`, or now when
    /// there is none, and never more than is spent.
    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()>;

    /// Makes the key fresh for these policies.
    fn reset(&self, policies: &PolicySet, key: &Key) -> StoreFuture<()>;

    /// What the sliding log among the policies holds for the key, newest first, `limit` entries at
    /// the most; of several logs the one that looks back farthest.
    ///
    /// The default answers [`ErrorKind::Unsupported`].
    fn entries(&self, policies: &PolicySet, key: &Key, limit: usize) -> StoreFuture<Vec<Entry>> {
        let _ = (policies, key, limit);
        StoreFuture::ready(Err(Error::new(ErrorKind::Unsupported, "the store does not list entries")))
    }

    /// Whether decisions are made inside this process, at once. The futures are then ready, and a
    /// limiter hands them on as they are: such a store knows no [`Outage`](crate::Outage).
    fn is_in_process(&self) -> bool {
        false
    }
}

/// What is asked of a [`Store`].
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Check<'a> {
    /// The policies, checked together.
    pub policies: &'a PolicySet,
    /// Whose quota is spent.
    pub key: &'a Key,
    /// How much is spent; no more than the burst of any of the policies.
    pub cost: Cost,
    /// What a [sliding log](crate::Algorithm::SlidingLog) notes beside the time of each unit: at
    /// most 64 bytes, none by default. Other algorithms do not look at it.
    pub tag: &'a [u8],
    /// When the caller stops waiting. A [`Limiter`](crate::Limiter) tells it to stores that are not
    /// [in process](Store::is_in_process) and drops the future then, so a store need not watch the
    /// time; it may use it to tell a caller who went away from an answer that came too late.
    pub deadline: Option<Instant>,
}

impl<'a> Check<'a> {
    /// A check of `cost` for `key`.
    #[must_use]
    pub fn new(policies: &'a PolicySet, key: &'a Key, cost: Cost) -> Self {
        Self { policies, key, cost, tag: &[], deadline: None }
    }

    /// The same check with a tag.
    #[must_use]
    pub fn with_tag(self, tag: &'a [u8]) -> Self {
        Self { tag, ..self }
    }

    /// The same check, with the time at which the caller stops waiting.
    #[must_use]
    pub fn with_deadline(self, deadline: Instant) -> Self {
        Self { deadline: Some(deadline), ..self }
    }
}

impl fmt::Debug for Check<'_> {
    /// Neither the key nor the tag is shown: they tell who it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check").field("policies", self.policies).field("cost", &self.cost).finish_non_exhaustive()
    }
}

/// What [`Limiter::check`](crate::Limiter::check) answers with.
pub type CheckFuture = StoreFuture<Decision>;

/// The answer of a store: there already, or on its way.
///
/// An answer that is there costs no allocation; [`into_ready`](Self::into_ready) takes it without
/// an executor.
#[must_use = "futures do nothing unless polled"]
pub struct StoreFuture<T>(Answer<T>);

enum Answer<T> {
    Ready(T),
    Failed(Error),
    Pending(Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>),
    Taken,
}

impl<T> StoreFuture<T> {
    /// An answer that is there.
    #[inline]
    pub fn ready(answer: Result<T, Error>) -> Self {
        Self(match answer {
            Ok(answer) => Answer::Ready(answer),
            Err(error) => Answer::Failed(error),
        })
    }

    /// An answer that has to be waited for.
    pub fn pending(answer: impl Future<Output = Result<T, Error>> + Send + 'static) -> Self {
        Self(Answer::Pending(Box::pin(answer)))
    }

    /// The answer if it is there already, looked at where it lies.
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
            Answer::Ready(answer) => Some(Ok(answer)),
            Answer::Failed(error) => Some(Err(error)),
            Answer::Pending(_) | Answer::Taken => None,
        }
    }

    /// The answer if it is there already.
    ///
    /// # Errors
    ///
    /// The future itself, when it has to be waited for.
    #[inline]
    pub fn into_ready(self) -> Result<Result<T, Error>, Self> {
        match self.0 {
            Answer::Ready(answer) => Ok(Ok(answer)),
            Answer::Failed(error) => Ok(Err(error)),
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
    /// When polled after it was ready.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Answer::Pending(answer) = &mut self.0 {
            return answer.as_mut().poll(cx);
        }
        match mem::replace(&mut self.0, Answer::Taken) {
            Answer::Ready(answer) => Poll::Ready(Ok(answer)),
            Answer::Failed(error) => Poll::Ready(Err(error)),
            Answer::Pending(_) | Answer::Taken => panic!("a store's answer was polled after it was ready"),
        }
    }
}

impl<T> fmt::Debug for StoreFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Answer::Ready(_) | Answer::Failed(_) | Answer::Taken => "StoreFuture::Ready",
            Answer::Pending(_) => "StoreFuture::Pending",
        })
    }
}
