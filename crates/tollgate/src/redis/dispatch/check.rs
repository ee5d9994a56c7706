use std::{
    collections::VecDeque,
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use tokio::{
    runtime::{Handle, Id},
    time::sleep_until,
};

use super::{
    dispatcher::{DirectCheck, Dispatcher, ServerHandle},
    request::{self, CheckRequest, NoReply, ReplyReceiver, ReplySender},
};
use crate::{
    Decision, Error, ErrorKind,
    redis::server::CallError,
    runtime, store,
    store::{Check, Deadline},
};

/// Resolves to the decision of one server.
///
/// The check is queued when it is first polled, or sent at once while checks are few. A caller that
/// gives up before its batch left takes the check out of the queue, and nothing is charged. Afterwards the charge
/// stands. A caller that gives up at its deadline counts as a miss.
///
/// It is a hand-written future: the state of an `async` block is moved each time another block is put around it, and a
/// check was moved seven times.
#[derive(Debug)]
pub(in crate::redis) struct PendingCheck {
    dispatcher: Arc<Dispatcher>,
    receiver: ReplyReceiver,
    state: State,
    /// Is true when the deadline timer still has to be set.
    needs_timer: bool,
}

#[derive(Debug)]
enum State {
    NotQueued(ReplySender),
    /// Sent by the caller.
    Direct(DirectCheck),
    /// Queued at this epoch of the breaker.
    Queued(u64),
    /// Refused for an overload, which the caller learns at the next poll.
    Refused(Error),
    /// Replied to. The epoch is that of the queueing.
    Over(u64),
}

impl PendingCheck {
    /// Creates a check that ends by itself at its deadline.
    pub(in crate::redis) fn with_timer(handle: &ServerHandle, request: Arc<CheckRequest>) -> Self {
        Self::new(handle, request, true)
    }

    /// Creates a check whose caller keeps the deadline.
    pub(in crate::redis) fn without_timer(handle: &ServerHandle, request: Arc<CheckRequest>) -> Self {
        Self::new(handle, request, false)
    }

    fn new(handle: &ServerHandle, request: Arc<CheckRequest>, needs_timer: bool) -> Self {
        let (sender, receiver) = request::channel(request);
        Self { dispatcher: Arc::clone(&handle.dispatcher), state: State::NotQueued(sender), receiver, needs_timer }
    }

    fn request(&self) -> &Arc<CheckRequest> {
        self.receiver.request()
    }

    /// Polls for the outcome. The error says whether the server certainly did not execute the check.
    pub(in crate::redis) fn poll_outcome(&mut self, cx: &mut Context<'_>) -> Poll<Result<Decision, CallError>> {
        match ready!(self.poll_reply(cx)) {
            Ok(reply) => Poll::Ready(reply.map_err(CallError::Failed)),
            Err(NoReply::NotExecuted(not_executed)) => Poll::Ready(Err(CallError::NotExecuted(not_executed))),
            Err(no_reply) => Poll::Ready(Err(CallError::Failed(self.error_of(no_reply)))),
        }
    }

    /// Queues the check at the first call, and polls for the reply.
    fn poll_reply(&mut self, cx: &mut Context<'_>) -> Poll<Result<Result<Decision, Error>, NoReply>> {
        let mut runtime = None;
        if let State::Refused(_) = &self.state
            && let State::Refused(error) = std::mem::replace(&mut self.state, State::Over(0))
        {
            return Poll::Ready(Ok(Err(error)));
        }
        if let State::NotQueued(_) = &self.state
            && let State::NotQueued(sender) = std::mem::replace(&mut self.state, State::Over(0))
        {
            let queued = runtime::current().and_then(|current| {
                self.state = match self.dispatcher.direct(sender) {
                    Ok(direct) => State::Direct(direct),
                    Err(sender) => State::Queued(self.dispatcher.push(sender)?),
                };
                Ok(current)
            });
            match queued {
                Ok(current) => runtime = Some(current),
                Err(refusal) if refusal.kind() == ErrorKind::Overloaded => {
                    // Callers that check again at once would keep the worker from running.
                    self.state = State::Refused(refusal);
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Err(refusal) => return Poll::Ready(Ok(Err(refusal))),
            }
        }
        let reply = match self.poll_direct(cx) {
            Poll::Pending => Pin::new(&mut self.receiver).poll(cx),
            outcome => outcome,
        };
        match &reply {
            Poll::Pending => {
                if std::mem::take(&mut self.needs_timer)
                    && let Some(runtime) = runtime
                {
                    self.dispatcher.timer().add(&runtime, self.request());
                }
            }
            Poll::Ready(outcome) => {
                match &self.state {
                    State::Direct(direct) => self.state = State::Over(direct.breaker_epoch()),
                    &State::Queued(epoch) => self.state = State::Over(epoch),
                    _ => {}
                }
                if let Ok(Ok(decision)) = outcome {
                    self.decided(decision);
                }
            }
        }
        reply
    }

    /// Polls for the outcome of a check that the caller sends. A check in the queue has none.
    fn poll_direct(&mut self, cx: &mut Context<'_>) -> Poll<Result<Result<Decision, Error>, NoReply>> {
        match &mut self.state {
            State::Direct(direct) => direct.poll(cx),
            _ => Poll::Pending,
        }
    }

    /// Notes an answer of the server, and remembers a denial.
    fn decided(&self, decision: &Decision) {
        let request = self.request();
        self.dispatcher.server().check_answered(request.deadline);
        if decision.is_denied()
            && let (Some(cache), Some(epoch)) = (self.dispatcher.deny_cache(), request.deny_epoch)
        {
            cache.remember(&request.key, request.hash.whole, request.sent, epoch, decision);
        }
    }

    #[cold]
    fn error_of(&self, no_reply: NoReply) -> Error {
        let server = self.dispatcher.server();
        match no_reply {
            NoReply::NotExecuted(not_executed) => not_executed.error,
            NoReply::Late => {
                let deadline = self.request().deadline;
                server.missed(deadline);
                deadline.map_or_else(|| server.overtaken(), Deadline::error)
            }
            NoReply::Dropped if matches!(self.state, State::Over(epoch) if server.breaker().epoch() != epoch) => {
                server.overtaken()
            }
            NoReply::Dropped => Error::new(ErrorKind::Unavailable, "the task that sends to redis was shut down"),
        }
    }
}

impl Future for PendingCheck {
    type Output = Result<Decision, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match ready!(self.poll_reply(cx)) {
            Ok(reply) => Poll::Ready(reply),
            Err(no_reply) => Poll::Ready(Err(self.error_of(no_reply))),
        }
    }
}

impl store::PendingCheck<Decision> for PendingCheck {
    fn check(&self) -> Check<'_> {
        self.request().check()
    }
}

impl Drop for PendingCheck {
    fn drop(&mut self) {
        let deadline = self.request().deadline;
        if matches!(self.state, State::Queued(_) | State::Direct(_)) && deadline.is_some_and(Deadline::is_over) {
            self.dispatcher.server().missed(deadline);
        }
    }
}

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
    /// Is true when the list is gone.
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
mod deadline_tests {
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
