//! Until when a caller waits for a store, and the one timer that ends all waits.

use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use tokio::{
    runtime::{Handle, Id},
    sync::Notify,
    time::timeout_at,
};

use crate::{Error, ErrorKind, runtime};

/// The time at which the caller of a store stops waiting.
///
/// A deadline consists of a start and a timeout. So a store can use the start as the time of sending, and serve all
/// checks with the same timeout from one timer.
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
    /// The time limit of a check by default: see [`LimiterBuilder::deadline`](crate::LimiterBuilder::deadline).
    pub(crate) const DEFAULT: Duration = Duration::from_millis(50);

    /// Creates a deadline that ends `timeout` from now.
    ///
    /// Time is tokio's, so a deadline follows a paused clock in tests.
    #[must_use]
    #[inline]
    pub fn after(timeout: Duration) -> Self {
        Self { start: runtime::now(), timeout }
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

    /// Returns the end. `None` when it lies beyond what an [`Instant`] can hold, so that it never comes.
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
        self.timeout.saturating_sub(runtime::now().saturating_duration_since(self.start))
    }

    /// Creates the error of a call that was not answered before the end.
    pub(crate) fn error(self) -> Error {
        Error::new(ErrorKind::Timeout, format!("the store did not answer within {:?}", self.timeout))
    }
}

/// Waits for an answer of a store until the deadline, and without one as long as the answer takes.
///
/// Every caller that waits for a store outside of the process waits here. At the deadline the answer is dropped: what
/// sends to a server then counts the call as late.
///
/// # Errors
///
/// [`ErrorKind::NoRuntime`] outside a runtime, and [`ErrorKind::Timeout`] at the deadline.
pub(crate) async fn answer_by<T>(
    deadline: Option<Deadline>,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let runtime = runtime::current()?;
    let Some((deadline, end)) = deadline.and_then(|deadline| Some((deadline, deadline.instant()?))) else {
        return answer.await;
    };
    let (mut answer, mut alarm) = (pin!(answer), None::<Arc<Alarm>>);
    poll_fn(|cx| {
        if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
            return Poll::Ready(answer);
        }
        match &alarm {
            None => alarm = Some(Alarm::set(&runtime, deadline.timeout(), end, cx.waker())),
            Some(alarm) if alarm.has_rung(cx) => return Poll::Ready(Err(deadline.error())),
            Some(_) => {}
        }
        Poll::Pending
    })
    .await
}

/// Wakes a caller at its deadline. The caller and the list of its timer hold it: when the list holds it alone, nobody waits
/// any more.
struct Alarm(Mutex<Option<Waker>>);

/// The waiting callers of each runtime and timeout.
///
/// All calls with the same timeout on the same runtime share one timer: their deadlines come in the order of the calls, so
/// a queue is enough. A tokio timer for each call took a seventh of the client's time. Runtimes do not share a timer, so a
/// blocked runtime delays no call of another.
static LISTS: Mutex<Vec<List>> = Mutex::new(Vec::new());

struct List {
    id: ListId,
    /// Waiting callers, earliest deadline first. Those that were answered are removed from the front with each addition.
    waiting: VecDeque<(Instant, Arc<Alarm>)>,
    /// Wakes the task for a deadline before all others: that of a call that was not polled at once.
    earlier: Arc<Notify>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct ListId {
    runtime: Id,
    timeout: Duration,
}

/// The longest time between two looks, so that answered calls are freed also where deadlines are far away.
const LONGEST: Duration = Duration::from_secs(1);

/// A panic cannot leave a partial list behind this lock, so a poisoned lock is used as it is.
fn lists() -> MutexGuard<'static, Vec<List>> {
    LISTS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Alarm {
    /// Sets an alarm. A task on this runtime keeps the time.
    fn set(runtime: &Handle, timeout: Duration, end: Instant, waker: &Waker) -> Arc<Self> {
        let alarm = Arc::new(Self(Mutex::new(Some(waker.clone()))));
        let (id, waiting) = (ListId { runtime: runtime.id(), timeout }, (end, Arc::clone(&alarm)));
        let mut lists = lists();
        match lists.iter_mut().find(|list| list.id == id) {
            Some(list) => list.add(waiting),
            None => {
                let earlier = Arc::new(Notify::new());
                lists.push(List { id, waiting: VecDeque::from([waiting]), earlier: Arc::clone(&earlier) });
                drop(lists);
                runtime.spawn(TimerTask { id, earlier, is_over: false }.run());
            }
        }
        alarm
    }

    /// Returns whether the deadline has come. Otherwise the caller is woken then.
    fn has_rung(&self, cx: &Context<'_>) -> bool {
        match &mut *self.waker() {
            Some(waker) => {
                waker.clone_from(cx.waker());
                false
            }
            None => true,
        }
    }

    fn ring(&self) {
        let waker = self.waker().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// A panic cannot leave a partial waker behind this lock, so a poisoned lock is used as it is.
    fn waker(&self) -> MutexGuard<'_, Option<Waker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl List {
    fn add(&mut self, (end, alarm): (Instant, Arc<Alarm>)) {
        while self.first_is(|_| false) {
            self.waiting.pop_front();
        }
        let at = self.waiting.iter().rposition(|(other, _)| *other <= end).map_or(0, |before| before + 1);
        if at < self.waiting.len() {
            self.earlier.notify_one();
        }
        self.waiting.insert(at, (end, alarm));
    }

    /// Returns whether nobody waits any more for the first deadline, or this holds for it.
    fn first_is(&self, is: impl Fn(Instant) -> bool) -> bool {
        self.waiting.front().is_some_and(|(end, alarm)| is(*end) || Arc::strong_count(alarm) == 1)
    }
}

/// Takes the late callers of a list, and returns when to look again. Removes the list and returns `None` when nobody waits.
fn take_late(id: ListId, now: Instant) -> (Vec<Arc<Alarm>>, Option<Instant>) {
    let mut lists = lists();
    let Some(at) = lists.iter().position(|list| list.id == id) else { return (Vec::new(), None) };
    let list = &mut lists[at];
    let mut late = Vec::new();
    while list.first_is(|end| end <= now) {
        late.extend(list.waiting.pop_front().map(|(_, alarm)| alarm));
    }
    let next = list.waiting.front().map(|&(end, _)| end.min(now + LONGEST));
    if next.is_none() {
        lists.swap_remove(at);
    }
    (late, next)
}

/// The task of one list.
struct TimerTask {
    id: ListId,
    earlier: Arc<Notify>,
    /// Is true when the list is gone.
    is_over: bool,
}

impl TimerTask {
    async fn run(mut self) {
        loop {
            let (late, next) = take_late(self.id, runtime::now());
            late.iter().for_each(|alarm| alarm.ring());
            let Some(next) = next else {
                self.is_over = true;
                return;
            };
            let _ = timeout_at(next.into(), self.earlier.notified()).await;
        }
    }
}

impl Drop for TimerTask {
    /// Ends all waits when the runtime was shut down: a caller may wait on another runtime by now, and no other task would
    /// end its wait.
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut lists = lists();
        if let Some(at) = lists.iter().position(|list| list.id == self.id) {
            let list = lists.swap_remove(at);
            drop(lists);
            list.waiting.iter().for_each(|(_, alarm)| alarm.ring());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::Instant;

    use super::*;

    /// Returns the timeouts and the numbers of waiting calls of this runtime.
    fn waiting() -> Vec<(Duration, usize)> {
        let runtime = Handle::current().id();
        lists()
            .iter()
            .filter(|list| list.id.runtime == runtime)
            .map(|list| (list.id.timeout, list.waiting.len()))
            .collect()
    }

    /// Waits in vain. Returns how long it took.
    async fn wait(deadline: Deadline) -> Duration {
        let began = Instant::now();
        let error = answer_by::<()>(Some(deadline), pending()).await.expect_err("no answer");
        assert_eq!(error.kind(), ErrorKind::Timeout);
        began.elapsed()
    }

    fn after_ms(timeout: u64) -> Deadline {
        Deadline::after(Duration::from_millis(timeout))
    }

    #[tokio::test(start_paused = true)]
    async fn each_call_ends_at_its_deadline_and_unused_lists_are_removed() {
        let timeouts = [10, 5_000, 10, 30, 10];
        let waits = timeouts.map(|timeout| tokio::spawn(wait(after_ms(timeout))));
        tokio::task::yield_now().await;
        assert_eq!(waiting().len(), 3, "one list for each timeout");
        for (timeout, took) in timeouts.into_iter().zip(waits) {
            let late = took.await.expect("a wait") - Duration::from_millis(timeout);
            assert!(late <= Duration::from_millis(2), "{late:?}");
        }
        assert_eq!(waiting(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_polled_late_ends_at_its_deadline_all_the_same() {
        let early = after_ms(50);
        tokio::time::advance(Duration::from_millis(40)).await;
        let late = tokio::spawn(wait(after_ms(50)));
        tokio::task::yield_now().await;
        let took = wait(early).await;
        assert!(took <= Duration::from_millis(12), "{took:?}");
        assert!(!late.is_finished());
    }

    #[tokio::test(start_paused = true)]
    async fn answered_calls_are_removed_with_the_next_addition() {
        for _ in 0..1_000 {
            let answer = async {
                tokio::task::yield_now().await;
                Ok(())
            };
            answer_by(Some(after_ms(50)), answer).await.expect("an answer");
        }
        assert_eq!(waiting(), [(Duration::from_millis(50), 1)]);
    }

    #[test]
    fn a_wait_ends_with_the_runtime_of_its_timer() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let (ended, other) = (runtime(), runtime());
        let mut call = Box::pin(answer_by::<()>(Some(after_ms(600_000)), pending()));
        ended.block_on(poll_fn(|cx| Poll::Ready(assert!(call.as_mut().poll(cx).is_pending()))));
        drop(ended);
        assert_eq!(other.block_on(call).expect_err("no answer").kind(), ErrorKind::Timeout);
    }
}
