use std::{
    future::Future,
    pin::Pin,
    sync::Weak,
    task::{Context, Poll, ready},
};

use super::state::Server;
use crate::{Deadline, runtime};

/// A call to one server whose caller waits until a deadline. It counts when it ends without an answer.
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    server: &'a Server,
    deadline: Option<Deadline>,
    is_over: bool,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(server: &'a Server, deadline: Option<Deadline>) -> Self {
        Self { server, deadline, is_over: false }
    }

    /// Notes that the call has ended. `is_answered` says whether the server carried it out.
    pub(super) fn end(mut self, is_answered: bool) {
        self.is_over = true;
        if is_answered && self.deadline.is_some() {
            self.server.check_answered(self.deadline);
        }
    }
}

impl Drop for Attempt<'_> {
    /// Counts a call whose caller waited until its deadline. A caller that gives up before tells nothing of the server.
    fn drop(&mut self) {
        if !self.is_over && self.deadline.is_some_and(Deadline::is_over) {
            self.server.missed(self.deadline);
        }
    }
}

/// Waits for the answer to a call that was sent.
///
/// After the deadline, a task of its own waits for the answer: a server that answers late is not away. The task ends when
/// the breaker opens, because it keeps the connection.
pub(in crate::redis) struct Awaited<T: 'static> {
    server: Weak<Server>,
    /// The epoch of the breaker when the call was sent.
    breaker_epoch: u64,
    deadline: Option<Deadline>,
    answer: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
}

impl<T: 'static> Awaited<T> {
    pub(in crate::redis) fn new(
        server: &Server,
        deadline: Option<Deadline>,
        answer: impl Future<Output = T> + Send + 'static,
    ) -> Self {
        let breaker_epoch = server.breaker().epoch();
        Self { server: server.weak(), breaker_epoch, deadline, answer: Some(Box::pin(answer)) }
    }

    /// Returns the epoch of the breaker when the call was sent.
    pub(in crate::redis) fn breaker_epoch(&self) -> u64 {
        self.breaker_epoch
    }
}

impl<T> Future for Awaited<T> {
    type Output = T;

    /// Stays pending after the answer.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let Some(answer) = &mut self.answer else { return Poll::Pending };
        let answer = ready!(answer.as_mut().poll(cx));
        self.answer = None;
        Poll::Ready(answer)
    }
}

impl<T> Drop for Awaited<T> {
    fn drop(&mut self) {
        if let Some(answer) = self.answer.take()
            && self.deadline.is_some_and(Deadline::is_over)
            && let (Ok(current), Some(server)) = (runtime::current(), self.server.upgrade())
        {
            let epoch = self.breaker_epoch;
            current.spawn(async move {
                tokio::select! {
                    _ = answer => {}
                    () = server.until_opened_after(epoch) => {}
                }
            });
        }
    }
}
