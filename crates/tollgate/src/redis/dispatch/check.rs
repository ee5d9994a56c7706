use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use super::{
    dispatcher::Dispatcher,
    handle::ServerHandle,
    request::{self, CheckRequest, NoReply, ReplyReceiver, ReplySender},
};
use crate::{Check, Decision, Error, ErrorKind, redis::server::CallError, store::PendingAnswer};

/// Resolves to the decision of one server.
///
/// The check is queued when it is first polled. A caller that gives up before its batch left takes the check out of the
/// queue, and nothing is charged. Afterwards the charge stands. A caller that gives up at its deadline counts as a miss.
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
    /// Queued at this epoch of the breaker.
    Queued(u64),
    Over,
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

    /// Polls for the outcome, which says whether the server certainly did not execute the check.
    pub(in crate::redis) fn poll_outcome(&mut self, cx: &mut Context<'_>) -> Poll<Result<Decision, CallError>> {
        if let State::NotQueued(_) = &self.state
            && let State::NotQueued(sender) = std::mem::replace(&mut self.state, State::Over)
        {
            match self.dispatcher.push(sender) {
                Ok(epoch) => self.state = State::Queued(epoch),
                Err(refusal) => return Poll::Ready(Err(refusal.into())),
            }
        }
        match Pin::new(&mut self.receiver).poll(cx) {
            Poll::Ready(reply) => Poll::Ready(self.outcome(reply)),
            Poll::Pending => {
                if std::mem::take(&mut self.needs_timer) {
                    self.dispatcher.timer().add(self.request());
                }
                Poll::Pending
            }
        }
    }

    fn outcome(&mut self, reply: Result<Result<Decision, CallError>, NoReply>) -> Result<Decision, CallError> {
        let server = self.dispatcher.server();
        let epoch = match std::mem::replace(&mut self.state, State::Over) {
            State::Queued(epoch) => epoch,
            State::NotQueued(_) | State::Over => server.breaker().epoch(),
        };
        match reply {
            Ok(Ok(decision)) => {
                server.breaker().check_answered();
                let request = self.request();
                if decision.is_denied()
                    && let (Some(cache), Some(epoch)) = (self.dispatcher.deny_cache(), request.deny_epoch)
                {
                    cache.remember(&request.key, request.hash, request.sent, epoch, &decision);
                }
                Ok(decision)
            }
            Ok(Err(error)) => Err(error),
            Err(NoReply::Late) => {
                server.missed();
                let timeout = self.request().deadline.map(|deadline| deadline.timeout()).unwrap_or_default();
                Err(Error::new(ErrorKind::Timeout, format!("redis did not answer within {timeout:?}")).into())
            }
            Err(NoReply::Dropped) if server.breaker().epoch() != epoch => Err(server.overtaken().into()),
            Err(NoReply::Dropped) => {
                Err(Error::new(ErrorKind::Unavailable, "the task that sends to redis was shut down").into())
            }
        }
    }
}

impl Future for PendingCheck {
    type Output = Result<Decision, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_outcome(cx).map_err(Error::from)
    }
}

impl PendingAnswer<Decision> for PendingCheck {
    fn check(&self) -> Option<Check<'_>> {
        Some(self.request().check())
    }
}

impl Drop for PendingCheck {
    fn drop(&mut self) {
        let is_late = |end| tokio::time::Instant::now().into_std() >= end;
        let end = self.request().deadline.and_then(|deadline| deadline.instant());
        if matches!(self.state, State::Queued(_)) && end.is_some_and(is_late) {
            self.dispatcher.server().missed();
        }
    }
}
