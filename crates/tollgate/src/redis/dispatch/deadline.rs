use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use tokio::{
    runtime::{Handle, Id},
    time::sleep_until,
};

use super::request::CheckRequest;
use crate::runtime;

/// Ends checks at their deadline.
///
/// All checks with the same timeout on the same runtime share one timer: their deadlines come in the order of the
/// checks, so a queue is enough. A tokio timer for each check took a seventh of the client's time. Runtimes do not share
/// a timer, so a blocked runtime delays no check of another.
#[derive(Default)]
pub(super) struct DeadlineTimer(Arc<Lists>);

/// The waiting checks of each runtime and timeout.
#[derive(Default)]
struct Lists(Mutex<Vec<List>>);

struct List {
    id: ListId,
    /// Waiting checks, earliest deadline first. Answered checks at the front are removed with each addition.
    waiting: VecDeque<(Instant, Arc<CheckRequest>)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct ListId {
    runtime: Id,
    timeout: Duration,
}

/// The longest time between two looks, so that answered checks are freed also where deadlines are far away.
const LONGEST: Duration = Duration::from_secs(1);

impl DeadlineTimer {
    /// Ends this check at its deadline, if it has one. A task on this runtime keeps the time.
    pub(super) fn add(&self, runtime: &Handle, request: &Arc<CheckRequest>) {
        let Some(deadline) = request.deadline else { return };
        let Some(end) = deadline.instant() else { return };
        let id = ListId { runtime: runtime.id(), timeout: deadline.timeout() };
        let mut lists = self.0.lock();
        let waiting = (end, Arc::clone(request));
        match lists.iter_mut().find(|list| list.id == id) {
            Some(list) => {
                while list.first_is(|_, request| request.is_over()) {
                    list.waiting.pop_front();
                }
                list.waiting.push_back(waiting);
            }
            None => {
                lists.push(List { id, waiting: VecDeque::from([waiting]) });
                drop(lists);
                runtime.spawn(TimerTask { lists: Arc::clone(&self.0), id, is_over: false }.run());
            }
        }
    }
}

impl Lists {
    /// A panic cannot leave a partial list behind this lock, so a poisoned lock is used as it is.
    fn lock(&self) -> MutexGuard<'_, Vec<List>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Takes the late checks, and returns when to look again. Removes the list and returns `None` when no check waits.
    fn take_late(&self, id: ListId, now: Instant) -> (Vec<Arc<CheckRequest>>, Option<Instant>) {
        let mut lists = self.lock();
        let Some(at) = lists.iter().position(|list| list.id == id) else { return (Vec::new(), None) };
        let list = &mut lists[at];
        let mut late = Vec::new();
        while list.first_is(|end, request| end <= now || request.is_over()) {
            late.extend(list.waiting.pop_front().map(|(_, request)| request));
        }
        let next = list.waiting.front().map(|&(end, _)| end.min(now + LONGEST));
        if next.is_none() {
            lists.swap_remove(at);
        }
        (late, next)
    }
}

impl List {
    fn first_is(&self, is: impl Fn(Instant, &CheckRequest) -> bool) -> bool {
        self.waiting.front().is_some_and(|(end, request)| is(*end, request))
    }
}

/// The task of one list.
struct TimerTask {
    lists: Arc<Lists>,
    id: ListId,
    /// Tells whether the list is gone.
    is_over: bool,
}

impl TimerTask {
    async fn run(mut self) {
        loop {
            let (late, next) = self.lists.take_late(self.id, runtime::now());
            for request in late {
                request.expire();
            }
            let Some(next) = next else {
                self.is_over = true;
                return;
            };
            sleep_until(next.into()).await;
        }
    }
}

impl Drop for TimerTask {
    /// Ends the waiting checks when the runtime was shut down: a caller may wait on another runtime by now, and no other
    /// task would end its check.
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut lists = self.lists.lock();
        if let Some(at) = lists.iter().position(|list| list.id == self.id) {
            let list = lists.swap_remove(at);
            drop(lists);
            for (_, request) in list.waiting {
                request.expire();
            }
        }
    }
}

impl fmt::Debug for DeadlineTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadlineTimer").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;
    use crate::redis::dispatch::request::{NoReply, channel, tests::request_within};

    #[tokio::test(start_paused = true)]
    async fn each_check_ends_at_its_deadline_and_unused_lists_are_removed() {
        let timer = DeadlineTimer::default();
        let began = tokio::time::Instant::now();
        let timeouts = [10, 10, 30, 5_000].map(Duration::from_millis);
        let sides = timeouts.map(|timeout| channel(request_within(timeout)));
        for (sender, _) in &sides {
            timer.add(&Handle::current(), sender.request());
        }
        assert_eq!(timer.0.lock().len(), 3, "one list for each timeout");
        for (timeout, (sender, receiver)) in timeouts.into_iter().zip(sides) {
            assert!(matches!(pin!(receiver).await, Err(NoReply::Late)));
            let late = began.elapsed() - timeout;
            assert!(late <= Duration::from_millis(2) && !sender.is_awaited(), "{late:?}");
        }
        while !timer.0.lock().is_empty() {
            tokio::time::sleep(LONGEST).await;
        }
        assert!(began.elapsed() < Duration::from_secs(10));
    }

    #[tokio::test(start_paused = true)]
    async fn short_deadlines_are_kept_behind_long_ones() {
        let timer = DeadlineTimer::default();
        let began = tokio::time::Instant::now();
        let (_long_sender, long) = channel(request_within(Duration::from_secs(60)));
        timer.add(&Handle::current(), long.request());
        let (_short_sender, short) = channel(request_within(Duration::from_millis(10)));
        timer.add(&Handle::current(), short.request());
        assert!(matches!(short.await, Err(NoReply::Late)));
        assert!(began.elapsed() <= Duration::from_millis(12), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn answered_checks_are_removed_with_the_next_addition() {
        let timer = DeadlineTimer::default();
        for _ in 0..1_000 {
            let (sender, _receiver) = channel(request_within(Duration::from_millis(50)));
            timer.add(&Handle::current(), sender.request());
        }
        assert_eq!(timer.0.lock()[0].waiting.len(), 1);
    }
}
