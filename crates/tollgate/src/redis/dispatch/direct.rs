//! The way of a check that nobody else keeps the server busy with: its caller sends it.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use super::{
    inbox::Inbox,
    request::{CheckRequest, NoReply, ReplySender},
};
use crate::{
    Decision, Error,
    redis::{
        connect::Connection,
        protocol,
        server::{Awaited, CallError, Outgoing, Sent, Server},
    },
};

/// A check that its caller sends, without the queue and the worker.
///
/// It costs one wake-up less before the call and one less after it. A second check that comes meanwhile takes the queue.
///
/// When the caller gives up before the deadline, a call that the connection has not written yet is not sent.
pub(super) struct DirectCheck {
    sender: ReplySender,
    outcome: Awaited<Outcome>,
}

type Outcome = Result<Result<Decision, Error>, NoReply>;

/// Lets another caller send its check when this one is answered, or its caller gave up.
struct Turn(Arc<Inbox>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.traffic.ends_direct();
    }
}

impl DirectCheck {
    /// Prepares the call, if nothing waits for the server, nothing is under way to it, and there is a connection. Otherwise
    /// gives the sender back.
    ///
    /// A check without a deadline takes the queue, where it ends when the breaker opens.
    pub(super) fn begin(sender: ReplySender, inbox: &Arc<Inbox>, server: &Arc<Server>) -> Result<Self, ReplySender> {
        let has_end = sender.request().deadline.is_some_and(|deadline| deadline.instant().is_some());
        // Reports travel in batches only.
        if sender.request().policies.is_leased()
            || !has_end
            || server.breaker().is_open()
            || !inbox.traffic.begins_direct()
        {
            return Err(sender);
        }
        let turn = Turn(Arc::clone(inbox));
        let Some(connection) = server.ready_connection() else { return Err(sender) };
        let request = Arc::clone(sender.request());
        let by_body = !inbox.scripts.know(&connection, request.policies.shape().check(request.is_capped()));
        let deadline = request.deadline;
        let outcome = Awaited::new(server, deadline, call(request, by_body, Arc::clone(server), connection, turn));
        Ok(Self { sender, outcome })
    }

    /// Returns the epoch of the breaker when the check was sent.
    pub(super) fn breaker_epoch(&self) -> u64 {
        self.outcome.breaker_epoch()
    }

    /// Sends the check at the first call, and polls for the outcome. Ends the request with it.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        let outcome = ready!(Pin::new(&mut self.outcome).poll(cx));
        self.sender.finish();
        Poll::Ready(outcome)
    }
}

async fn call(
    request: Arc<CheckRequest>,
    by_body: bool,
    server: Arc<Server>,
    connection: Connection,
    _turn: Turn,
) -> Outcome {
    let sent = server.send(&connection, &[Outgoing { call: request.call(&server), by_body }]).await.pop();
    // Held no longer than needed: a connection of a pool is lent as long as it is held.
    drop(connection);
    let answer = match sent {
        Some(Sent::Answered(answer)) => answer,
        // The server has not executed it, and the caller gave up.
        _ if request.is_over() => return Err(NoReply::Dropped),
        Some(Sent::UnknownScript | Sent::Unsent(_)) | None => server.send_one(request.call(&server), true, None).await,
    };
    match answer {
        Ok(value) => Ok(protocol::decision(&request.policies, request.charge.borrow(), request.sent, &value)),
        Err(CallError::NotExecuted(not_executed)) => Err(NoReply::NotExecuted(not_executed)),
        Err(CallError::Failed(error)) => Ok(Err(error)),
    }
}

impl std::fmt::Debug for DirectCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DirectCheck").field(&self.sender).finish()
    }
}
