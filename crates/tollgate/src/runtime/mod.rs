//! The tokio runtime that a call to a store outside this process needs, its time, the timer of all
//! calls, and its background tasks.
//! Clocks by which stores decide are in `clock.rs`.

mod background;
mod sync;
#[cfg(test)]
mod tests;

use std::{
    cell::Cell,
    collections::VecDeque,
    future::{Future, poll_fn},
    panic::catch_unwind,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use tokio::{
    runtime::{Handle, Id},
    sync::Notify,
    time::timeout_at,
};

pub(crate) use background::{Background, Running};

use crate::{Error, ErrorKind, lock::Lock};

thread_local! {
    /// The runtime that this thread asked for last, and whether it has timers.
    static TIMED: Cell<Option<(Id, bool)>> = const { Cell::new(None) };
}

/// Returns the runtime of the caller.
///
/// # Errors
///
/// [`ErrorKind::NoRuntime`] outside a runtime, and in one without timers, where tokio's own
/// functions would panic.
pub(crate) fn current() -> Result<Handle, Error> {
    let Ok(runtime) = Handle::try_current() else {
        return Err(Error::new(
            ErrorKind::NoRuntime,
            "there is no tokio runtime in this thread, and the call may have to wait: await it inside a tokio runtime, or use \
             Limiter::block_on",
        ));
    };
    match has_timers(runtime.id()) {
        true => Ok(runtime),
        false => Err(Error::new(
            ErrorKind::NoRuntime,
            "the tokio runtime of this thread has no timers, and the call may have to wait: build it with enable_time or \
             enable_all",
        )),
    }
}

/// Returns whether the runtime of the caller, which is this one, has timers.
///
/// Tokio does not say so, and panics where a timer is made without them. So one is made, once for
/// each runtime and thread.
fn has_timers(runtime: Id) -> bool {
    match TIMED.get() {
        Some((asked, has_timers)) if asked == runtime => has_timers,
        _ => {
            let has_timers = catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO))).is_ok();
            TIMED.set(Some((runtime, has_timers)));
            has_timers
        }
    }
}

/// Returns tokio's time, as the start of a [`Deadline`](crate::store::Deadline) does. Tests may
/// stop it.
#[inline]
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Returns the time by the clock that other processes have too.
pub(crate) fn since_epoch() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// Waits for an answer until `end`. `None` when the end came first. `timeout` is the time between
/// the call and its end.
pub(crate) async fn until<T>(
    end: Instant,
    mut answer: Pin<&mut impl Future<Output = T>>,
    runtime: &Handle,
    timeout: Duration,
) -> Option<T> {
    let mut alarm = None::<Arc<Alarm>>;
    poll_fn(|cx| {
        if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
            return Poll::Ready(Some(answer));
        }
        match &alarm {
            None => {
                let alarm = alarm.insert(Arc::default());
                set_alarm(Arc::clone(alarm) as _, runtime, timeout, end, cx);
            }
            Some(alarm) if alarm.has_rung(cx) => return Poll::Ready(None),
            Some(_) => {}
        }
        Poll::Pending
    })
    .await
}

/// Wakes a caller at its deadline. `None` before it is set, and after it rang.
#[derive(Default)]
pub(crate) struct Alarm(Lock<Option<Waker>>);

/// A call with its alarm. The caller and the list of its timer share it: when the list holds it
/// alone, nobody waits any more.
pub(crate) trait HasAlarm: Send + Sync {
    fn alarm(&self) -> &Alarm;
}

impl HasAlarm for Alarm {
    fn alarm(&self) -> &Alarm {
        self
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
type Waiting = (Instant, Arc<dyn HasAlarm>);

#[derive(Clone, Copy, PartialEq, Eq)]
struct ListId {
    runtime: Id,
    timeout: Duration,
}

/// The longest time between two looks, so that answered calls are freed also where deadlines are
/// far away.
const LONGEST: Duration = Duration::from_secs(1);

/// Sets the alarm of a call to `end`, for the task that polls it. A task on this runtime keeps the
/// time, and `timeout` is that between the call and its end.
pub(crate) fn set_alarm(
    holder: Arc<dyn HasAlarm>,
    runtime: &Handle,
    timeout: Duration,
    end: Instant,
    cx: &Context<'_>,
) {
    *holder.alarm().0.lock() = Some(cx.waker().clone());
    let id = ListId {
        runtime: runtime.id(),
        timeout,
    };
    let waiting = (end, holder);
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

impl Alarm {
    /// Returns whether the deadline has come. Otherwise the caller is woken then.
    pub(crate) fn has_rung(&self, cx: &Context<'_>) -> bool {
        match &mut *self.0.lock() {
            Some(waker) => {
                waker.clone_from(cx.waker());
                false
            }
            None => true,
        }
    }

    fn ring(&self) {
        let waker = self.0.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl List {
    fn add(&mut self, (end, holder): Waiting) {
        // Two for one, so that the list does not grow. Callers of one batch are answered at once, and
        // freed one after another: an allocator keeps a few blocks of a size within reach.
        for _ in 0..2 {
            if self.first_is(|_| false) {
                self.waiting.pop_front();
            }
        }
        if self.waiting.back().is_none_or(|(last, _)| *last <= end) {
            self.waiting.push_back((end, holder));
        } else {
            let at = self.waiting.partition_point(|(other, _)| *other <= end);
            self.earlier.notify_one();
            self.waiting.insert(at, (end, holder));
        }
    }

    /// Returns whether nobody waits any more for the first deadline, or this holds for it.
    fn first_is(&self, is: impl Fn(Instant) -> bool) -> bool {
        self.waiting
            .front()
            .is_some_and(|(end, holder)| is(*end) || Arc::strong_count(holder) == 1)
    }
}

/// Takes the late callers of a list, and returns when to look again. Removes the list and returns
/// `None` when nobody waits.
fn take_late(id: ListId, now: Instant) -> (Vec<Arc<dyn HasAlarm>>, Option<Instant>) {
    let mut lists = LISTS.lock();
    let Some(at) = lists.iter().position(|list| list.id == id) else {
        return (Vec::new(), None);
    };
    let list = &mut lists[at];
    let mut late = Vec::new();
    while list.first_is(|end| end <= now) {
        late.extend(list.waiting.pop_front().map(|(_, holder)| holder));
    }
    let next = list.waiting.front().map(|&(end, _)| end.min(now + LONGEST));
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
            late.iter().for_each(|holder| holder.alarm().ring());
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
                .for_each(|(_, holder)| holder.alarm().ring());
        }
    }
}
