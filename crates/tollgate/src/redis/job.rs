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
    time::Instant,
};

use super::{queue::Dated, slots::Epoch};
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
    /// When it was asked, and when its caller stops waiting.
    pub(super) sent: Instant,
    pub(super) deadline: Option<Instant>,
    /// Where a denial of it is remembered.
    pub(super) epoch: Option<Epoch>,
    /// Whether it was sent here while its slot is on the way here.
    pub(super) asking: bool,
    /// There is an answer, or nobody who waits for it.
    is_over: AtomicBool,
    answer: Mutex<Answer>,
}

enum Answer {
    Awaited(Option<Waker>),
    Given(Result<Decision, Error>),
    /// The deadline came first.
    Late,
    /// There will be none, or the caller has it.
    Over,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unanswered {
    Late,
    /// Nobody will give one.
    Dropped,
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

/// The side that waits. To drop it gives up.
#[derive(Debug)]
pub(super) struct Answered(Arc<Job>);

impl Job {
    pub(super) fn new(check: Check<'_>, hash: u64, sent: Instant, epoch: Option<Epoch>) -> Self {
        // What no log notes does not travel.
        let tag = if check.policies.plan().tagged { check.tag.into() } else { Box::default() };
        Self {
            policies: check.policies.clone(),
            key: check.key.clone(),
            hash,
            cost: check.cost,
            tag,
            sent,
            deadline: check.deadline,
            epoch,
            asking: false,
            is_over: AtomicBool::new(false),
            answer: Mutex::new(Answer::Awaited(None)),
        }
    }

    /// The same, asked once more.
    pub(super) fn again(&self, asking: bool) -> Self {
        Self { asking, ..Self::new(self.check(), self.hash, self.sent, self.epoch) }
    }

    pub(super) fn check(&self) -> Check<'_> {
        Check { deadline: self.deadline, ..Check::new(&self.policies, &self.key, self.cost).with_tag(&self.tag) }
    }

    /// Whether it has an answer, or nobody who waits for it.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Its deadline has come: unless there is an answer by now, the caller is woken without one.
    pub(super) fn expire(&self) {
        self.end(Answer::Late);
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
            self.is_over.store(true, Ordering::Relaxed);
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
        !self.0.is_over()
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
    type Output = Result<Result<Decision, Error>, Unanswered>;

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
            Answer::Given(_) => match std::mem::replace(&mut *answer, Answer::Over) {
                Answer::Given(answer) => Poll::Ready(Ok(answer)),
                _ => Poll::Ready(Err(Unanswered::Dropped)),
            },
            Answer::Late => Poll::Ready(Err(Unanswered::Late)),
            Answer::Over => Poll::Ready(Err(Unanswered::Dropped)),
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
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

impl fmt::Debug for Job {
    /// Neither the key nor the tag is shown: they tell who it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("policies", &self.policies).field("cost", &self.cost).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::{task::Waker, time::Duration};

    use super::*;
    use crate::{Policy, Quota};

    pub(in crate::redis) fn job_within(sent: Instant, time: Duration) -> Arc<Job> {
        let policies = PolicySet::from(Policy::token_bucket("a", Quota::per_second(1)));
        let key = Key::new("acme");
        let check = Check::new(&policies, &key, Cost::ONE).with_deadline(sent + time);
        Arc::new(Job::new(check, 7, sent, None))
    }

    fn job() -> Arc<Job> {
        job_within(Instant::now(), Duration::from_secs(1))
    }

    fn poll(answered: &mut Answered) -> Poll<Result<Result<Decision, Error>, Unanswered>> {
        Pin::new(answered).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn an_answer_is_given_once() {
        let (waiter, mut answered) = sides(job());
        assert!(waiter.is_awaited() && poll(&mut answered).is_pending());
        waiter.tell(Err(Error::unavailable("away")));
        assert!(matches!(poll(&mut answered), Poll::Ready(Ok(Err(error))) if error.to_string() == "away"));
        assert!(matches!(poll(&mut answered), Poll::Ready(Err(Unanswered::Dropped))));
    }

    #[test]
    fn what_comes_first_counts() {
        let (waiter, mut answered) = sides(job());
        answered.job().expire();
        assert!(!waiter.is_awaited(), "nothing is sent for it");
        waiter.tell(Err(Error::unavailable("away")));
        assert!(matches!(poll(&mut answered), Poll::Ready(Err(Unanswered::Late))));
        let (waiter, mut answered) = sides(job());
        waiter.tell(Err(Error::unavailable("away")));
        answered.job().expire();
        assert!(matches!(poll(&mut answered), Poll::Ready(Ok(Err(_)))));
    }

    #[test]
    fn whoever_is_dropped_tells_the_other() {
        let (waiter, mut answered) = sides(job());
        drop(waiter);
        assert!(matches!(poll(&mut answered), Poll::Ready(Err(Unanswered::Dropped))));
        let (waiter, answered) = sides(job());
        drop(answered);
        assert!(!waiter.is_awaited());
    }
}
