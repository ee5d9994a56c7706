//! A check on its way to the server and back.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};

use super::queue::Dated;
use crate::{Check, Cost, Decision, Error, Key, PolicySet};

/// What is asked, and where the answer will stand: one allocation, which the caller and the task that speaks to the
/// server share.
pub(super) struct Job {
    pub(super) policies: PolicySet,
    pub(super) key: Key,
    /// That of the key.
    pub(super) hash: u64,
    pub(super) cost: Cost,
    /// What the logs among the policies note.
    pub(super) tag: Box<[u8]>,
    /// Whether it was sent here while its slot is on the way here.
    pub(super) asking: bool,
    /// The caller gave up.
    is_gone: AtomicBool,
    answer: Mutex<Answer>,
}

enum Answer {
    Awaited(Option<Waker>),
    Given(Result<Decision, Error>),
    /// There will be none, or the caller has it.
    Over,
}

/// The side that answers. To drop it tells the caller that there is no answer.
#[derive(Debug)]
pub(super) struct Waiter(Arc<Job>);

/// A waiter in the queue.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) waiter: Waiter,
    /// How often the breaker had opened when it was asked.
    pub(super) asked_after: u64,
}

/// The side that waits: the answer, or `None` when nobody will give one. To drop it gives up.
#[derive(Debug)]
pub(super) struct Answered(Arc<Job>);

impl Job {
    pub(super) fn new(check: Check<'_>, hash: u64) -> Self {
        // What no log notes does not travel.
        let tag = if check.policies.plan().tagged { check.tag.into() } else { Box::default() };
        Self {
            policies: check.policies.clone(),
            key: check.key.clone(),
            hash,
            cost: check.cost,
            tag,
            asking: false,
            is_gone: AtomicBool::new(false),
            answer: Mutex::new(Answer::Awaited(None)),
        }
    }

    /// The same, asked once more.
    pub(super) fn again(&self, asking: bool) -> Self {
        Self { asking, ..Self::new(self.check(), self.hash) }
    }

    pub(super) fn check(&self) -> Check<'_> {
        Check::new(&self.policies, &self.key, self.cost).with_tag(&self.tag)
    }

    /// Whether both can be one call of a script over many keys.
    pub(super) fn is_alike(&self, other: &Self) -> bool {
        self.cost == other.cost
            && self.asking == other.asking
            && self.is_tagged_alike(other)
            && self.policies.is_same(&other.policies)
    }

    /// Most have no tag. To compare none with none is to read masked words where nothing is mapped, which takes a processor
    /// longer than all the rest.
    fn is_tagged_alike(&self, other: &Self) -> bool {
        self.tag.len() == other.tag.len() && (self.tag.is_empty() || self.tag == other.tag)
    }

    /// A panic while the lock is held leaves a whole answer behind, so the lock is never poisoned.
    fn answer(&self) -> MutexGuard<'_, Answer> {
        self.answer.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn end(&self, end: Answer) {
        let mut answer = self.answer();
        if let Answer::Awaited(waker) = &mut *answer {
            let waker = waker.take();
            *answer = end;
            drop(answer);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

/// The two sides of a check.
pub(super) fn sides(job: Arc<Job>) -> (Waiter, Answered) {
    (Waiter(Arc::clone(&job)), Answered(job))
}

impl Waiter {
    pub(super) fn job(&self) -> &Arc<Job> {
        &self.0
    }

    /// Whether somebody waits.
    pub(super) fn is_awaited(&self) -> bool {
        !self.0.is_gone.load(Ordering::Relaxed)
    }

    /// Who gave up meanwhile is not told.
    pub(super) fn tell(self, answer: Result<Decision, Error>) {
        self.0.end(Answer::Given(answer));
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.end(Answer::Over);
    }
}

impl Dated for Queued {
    fn asked_after(&self) -> u64 {
        self.asked_after
    }
}

impl Future for Answered {
    type Output = Option<Result<Decision, Error>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut answer = self.0.answer();
        match &mut *answer {
            Answer::Awaited(waker) => {
                match waker {
                    Some(waker) => waker.clone_from(cx.waker()),
                    None => *waker = Some(cx.waker().clone()),
                }
                Poll::Pending
            }
            Answer::Given(_) | Answer::Over => match std::mem::replace(&mut *answer, Answer::Over) {
                Answer::Given(answer) => Poll::Ready(Some(answer)),
                _ => Poll::Ready(None),
            },
        }
    }
}

impl Answered {
    pub(super) fn job(&self) -> &Arc<Job> {
        &self.0
    }
}

impl Drop for Answered {
    fn drop(&mut self) {
        self.0.is_gone.store(true, Ordering::Relaxed);
    }
}

impl fmt::Debug for Job {
    /// Neither the key nor the tag is shown: they tell who it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("policies", &self.policies).field("cost", &self.cost).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::{Policy, Quota};

    fn job() -> Arc<Job> {
        let policies = PolicySet::from(Policy::token_bucket("a", Quota::per_second(1)));
        Arc::new(Job::new(Check::new(&policies, &Key::new("acme"), Cost::ONE), 7))
    }

    fn poll(answered: &mut Answered) -> Poll<Option<Result<Decision, Error>>> {
        Pin::new(answered).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn an_answer_is_given_once() {
        let (waiter, mut answered) = sides(job());
        assert!(waiter.is_awaited() && poll(&mut answered).is_pending());
        waiter.tell(Err(Error::unavailable("away")));
        assert!(matches!(poll(&mut answered), Poll::Ready(Some(Err(error))) if error.to_string() == "away"));
        assert!(matches!(poll(&mut answered), Poll::Ready(None)));
    }

    #[test]
    fn whoever_is_dropped_tells_the_other() {
        let (waiter, mut answered) = sides(job());
        drop(waiter);
        assert!(matches!(poll(&mut answered), Poll::Ready(None)));
        let (waiter, answered) = sides(job());
        drop(answered);
        assert!(!waiter.is_awaited());
    }
}
