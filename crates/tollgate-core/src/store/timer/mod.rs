//! Waits for stores until a deadline, and the one timer of all waits.
//! What a deadline is stands in `deadline.rs`; what becomes of a call without an answer is decided in
//! `limiter/outage/`.

#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use tokio::{
    runtime::{Handle, Id},
    sync::Notify,
    time::timeout_at,
};

use super::{
    check::KeptCheck,
    deadline::{Alarm, Deadline},
};
use crate::{
    Error,
    lock::Lock,
    runtime::{self, now},
};

/// Waits for an answer of a store until the deadline, and without one as long as the answer takes.
///
/// Every caller that waits for a store outside of the process waits here, or for the answer to a
/// check, in `poll_answer`. At the deadline the answer is dropped: what sends to a server then counts
/// the call as late.
///
/// # Errors
///
/// [`ErrorKind::NoRuntime`](crate::ErrorKind::NoRuntime) outside a runtime, and
/// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) at the deadline.
pub async fn answer_by<T>(
    deadline: Option<Deadline>,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let (mut answer, mut is_set, mut alarm) = (pin!(answer), false, None);
    poll_fn(|cx| {
        let waiter = || Waiter::Call(Arc::clone(alarm.get_or_insert_default()));
        poll_in_time(answer.as_mut(), deadline, &mut is_set, waiter, cx)
    })
    .await
}

/// Waits for the answer to a check until its deadline, as [`answer_by`] does. The wait allocates
/// nothing.
pub(crate) async fn answer_to<T>(
    check: &KeptCheck,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let (mut answer, mut is_set) = (pin!(answer), false);
    poll_fn(|cx| poll_answer(check, &mut is_set, answer.as_mut(), cx)).await
}

/// Polls the answer to a check for a caller that waits until its deadline. `is_set` begins as
/// `false`, and belongs to the caller.
#[inline]
pub(super) fn poll_answer<T>(
    check: &KeptCheck,
    is_set: &mut bool,
    answer: Pin<&mut (impl Future<Output = Result<T, Error>> + ?Sized)>,
    cx: &mut Context<'_>,
) -> Poll<Result<T, Error>> {
    let waiter = || Waiter::Check(check.clone());
    poll_in_time(answer, check.check().deadline, is_set, waiter, cx)
}

/// Polls an answer for a caller that waits until the deadline. `is_set` is whether the alarm of the
/// caller is set.
#[inline]
fn poll_in_time<T>(
    answer: Pin<&mut (impl Future<Output = Result<T, Error>> + ?Sized)>,
    deadline: Option<Deadline>,
    is_set: &mut bool,
    waiter: impl FnOnce() -> Waiter,
    cx: &mut Context<'_>,
) -> Poll<Result<T, Error>> {
    // Asked for before the first poll, which may send the call.
    let runtime = match *is_set {
        true => None,
        false => Some(runtime::current()?),
    };
    if let Poll::Ready(answer) = answer.poll(cx) {
        return Poll::Ready(answer);
    }
    let Some((deadline, end)) = deadline.and_then(|deadline| Some((deadline, deadline.instant()?)))
    else {
        return Poll::Pending;
    };
    let waiter = waiter();
    match runtime {
        Some(runtime) => {
            set_alarm(waiter, &runtime, deadline.timeout(), end, cx);
            *is_set = true;
        }
        None if waiter.alarm().has_rung(cx) => return Poll::Ready(Err(deadline.error())),
        None => {}
    }
    Poll::Pending
}

/// A wait, which its caller and the list of its timer share. A check has the alarm with it; any other
/// call has one of its own.
enum Waiter {
    Check(KeptCheck),
    Call(Arc<Alarm>),
}

impl Waiter {
    fn alarm(&self) -> &Alarm {
        match self {
            Self::Check(check) => check.alarm(),
            Self::Call(alarm) => alarm,
        }
    }

    /// Returns whether nobody waits any more: the list has it alone.
    fn is_left(&self) -> bool {
        match self {
            Self::Check(check) => check.is_last(),
            Self::Call(alarm) => Arc::strong_count(alarm) == 1,
        }
    }
}

/// The waiting callers of each runtime and timeout.
///
/// All calls with the same timeout on the same runtime share one timer: their deadlines come in the
/// order of the calls, so a queue is enough. A tokio timer for each call took a seventh of the
/// client's time. Runtimes do not share a timer, so a blocked runtime delays no call of another.
static LISTS: Lock<Vec<List>> = Lock::new(Vec::new());

struct List {
    id: ListId,
    /// Waiting callers, earliest deadline first. Those that were answered are removed from the
    /// front with each addition.
    waiting: VecDeque<Waiting>,
    /// Wakes the task for a deadline before all others. A call that was not polled at once has one.
    earlier: Arc<Notify>,
}

/// A caller that waits until this time.
type Waiting = (Instant, Waiter);

#[derive(Clone, Copy, PartialEq, Eq)]
struct ListId {
    runtime: Id,
    timeout: Duration,
}

/// The longest time between two looks, so that answered calls are freed also where deadlines are
/// far away.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// Sets the alarm of a call to `end`, for the task that polls it. A task on this runtime keeps the
/// time, and `timeout` is that between the call and its end.
fn set_alarm(waiter: Waiter, runtime: &Handle, timeout: Duration, end: Instant, cx: &Context<'_>) {
    waiter.alarm().set(cx);
    let id = ListId {
        runtime: runtime.id(),
        timeout,
    };
    let waiting = (end, waiter);
    let mut lists = LISTS.lock();
    match lists.iter_mut().find(|list| list.id == id) {
        Some(list) => list.add(waiting),
        None => {
            let earlier = Arc::new(Notify::new());
            lists.push(List {
                id,
                waiting: VecDeque::from([waiting]),
                earlier: Arc::clone(&earlier),
            });
            drop(lists);
            runtime.spawn(
                TimerTask {
                    id,
                    earlier,
                    is_over: false,
                }
                .run(),
            );
        }
    }
}

impl List {
    fn add(&mut self, (end, waiter): Waiting) {
        // Two for one, so that the list does not grow. Callers of one batch are answered at once, and
        // freed one after another: an allocator keeps a few blocks of a size within reach.
        for _ in 0..2 {
            if self.first_is(|_| false) {
                self.waiting.pop_front();
            }
        }
        if self.waiting.back().is_none_or(|(last, _)| *last <= end) {
            self.waiting.push_back((end, waiter));
        } else {
            let at = self.waiting.partition_point(|(other, _)| *other <= end);
            self.earlier.notify_one();
            self.waiting.insert(at, (end, waiter));
        }
    }

    /// Returns whether nobody waits any more for the first deadline, or this holds for it.
    fn first_is(&self, is: impl Fn(Instant) -> bool) -> bool {
        self.waiting
            .front()
            .is_some_and(|(end, waiter)| is(*end) || waiter.is_left())
    }
}

/// Takes the late callers of a list, and returns when to look again. Removes the list and returns
/// `None` when nobody waits.
fn take_late(id: ListId, now: Instant) -> (Vec<Waiter>, Option<Instant>) {
    let mut lists = LISTS.lock();
    let Some(at) = lists.iter().position(|list| list.id == id) else {
        return (Vec::new(), None);
    };
    let list = &mut lists[at];
    let mut late = Vec::new();
    while list.first_is(|end| end <= now) {
        late.extend(list.waiting.pop_front().map(|(_, waiter)| waiter));
    }
    let next = list
        .waiting
        .front()
        .map(|&(end, _)| end.min(now + MAX_SLEEP));
    if next.is_none() {
        lists.swap_remove(at);
    }
    (late, next)
}

struct TimerTask {
    id: ListId,
    earlier: Arc<Notify>,
    /// The list is gone.
    is_over: bool,
}

impl TimerTask {
    async fn run(mut self) {
        loop {
            let (late, next) = take_late(self.id, now());
            late.iter().for_each(|waiter| waiter.alarm().ring());
            let Some(next) = next else {
                self.is_over = true;
                return;
            };
            let _ = timeout_at(next.into(), self.earlier.notified()).await;
        }
    }
}

impl Drop for TimerTask {
    /// Ends all waits when the runtime was shut down: a caller may wait on another runtime by now,
    /// and no other task would end its wait.
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut lists = LISTS.lock();
        if let Some(at) = lists.iter().position(|list| list.id == self.id) {
            let list = lists.swap_remove(at);
            drop(lists);
            list.waiting
                .iter()
                .for_each(|(_, waiter)| waiter.alarm().ring());
        }
    }
}
