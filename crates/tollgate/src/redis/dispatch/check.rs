use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use super::{
    direct::DirectCheck,
    dispatcher::Dispatcher,
    handle::ServerHandle,
    request::{self, CheckRequest, NoReply, ReplyReceiver, ReplySender},
};
use crate::{Check, Deadline, Decision, Error, ErrorKind, redis::server::CallError, runtime, store};

/// Resolves to the decision of one server.
///
/// The check is queued when it is first polled, or sent at once if nothing else keeps the server busy. A caller that
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
    /// Tells whether the deadline timer still has to be set.
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

    /// Polls for the outcome, and tells whether the server certainly did not execute the check.
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
