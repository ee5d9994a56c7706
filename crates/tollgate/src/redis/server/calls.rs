use std::{
    future::Future,
    pin::Pin,
    sync::Weak,
    task::{Context, Poll, ready},
};

use redis::{Cmd, Pipeline, RedisError, Value};
use smallvec::{SmallVec, smallvec};

use super::{
    not_executed::CallError,
    state::{KEY_BYTES, Server},
};
use crate::{
    Error,
    redis::{
        connect::{Connection, Numbered},
        protocol::{self, ErrorClass, Script},
    },
    runtime,
    store::{Deadline, answer_by},
};

/// The outcome of one call.
pub(in crate::redis) type CallResult = Result<Value, CallError>;

/// Writes one call to a server.
pub(in crate::redis) trait Call {
    /// Returns the command. `by_body` sends the text of a script, so that the server need not know it.
    fn command(&self, by_body: bool) -> Cmd;

    /// Returns whether the server has the slot only for calls that say `ASKING`, because the slot is being moved to it.
    fn is_asking(&self) -> bool;
}

/// Calls a script. `fill` adds the keys and the arguments.
pub(in crate::redis) struct ScriptCall<'a, F> {
    pub(in crate::redis) script: &'a Script,
    /// The number of keys.
    pub(in crate::redis) keys: usize,
    pub(in crate::redis) is_asking: bool,
    pub(in crate::redis) fill: F,
}

impl<F: Fn(&mut Cmd)> Call for ScriptCall<'_, F> {
    fn command(&self, by_body: bool) -> Cmd {
        let (name, script) = if by_body { ("EVAL", &self.script.text) } else { ("EVALSHA", &self.script.sha) };
        let mut command = Cmd::with_capacity(self.keys + 8, script.len() + self.keys * KEY_BYTES + 256);
        command.arg(name).arg(script).arg(self.keys);
        (self.fill)(&mut command);
        command
    }

    fn is_asking(&self) -> bool {
        self.is_asking
    }
}

/// A call that is written down.
pub(in crate::redis) struct PlainCall {
    pub(in crate::redis) command: Cmd,
    pub(in crate::redis) is_asking: bool,
}

impl Call for PlainCall {
    fn command(&self, _by_body: bool) -> Cmd {
        self.command.clone()
    }

    fn is_asking(&self) -> bool {
        self.is_asking
    }
}

type Reply = Result<Value, RedisError>;
type Replies = SmallVec<[Reply; 1]>;

/// A call, and whether it is sent by its body.
pub(in crate::redis) struct Outgoing<C> {
    pub(in crate::redis) call: C,
    pub(in crate::redis) by_body: bool,
}

/// The outcome of a call, or the proof that the server did not execute it.
#[derive(Debug)]
pub(in crate::redis) enum Sent {
    Answered(CallResult),
    /// The server does not know the script of the call, so it executed nothing.
    UnknownScript,
    /// The connection ended before any byte of the call left. The error is that of the connection.
    Unsent(Error),
}

/// The number of connections in a row that may end before a call is sent. Then the server counts as away.
const MOST_UNSENT: u32 = 3;

impl Server {
    /// Writes calls at once on this connection, in order, and returns the outcome of each.
    pub(in crate::redis) async fn send<C: Call>(
        &self,
        connection: &Connection,
        calls: &[Outgoing<C>],
    ) -> SmallVec<[Sent; 1]> {
        let mark = connection.mark();
        let replies = write(connection, calls).await;
        let is_broken =
            |reply: &Reply| reply.as_ref().is_err_and(|error| ErrorClass::of(error) == ErrorClass::BrokenConnection);
        if replies.iter().all(is_broken) && connection.has_sent_nothing_since(mark) {
            self.drop_unused(connection);
            let unsent = |reply: Reply| match reply {
                Ok(value) => Sent::Answered(Ok(value)),
                Err(error) => Sent::Unsent(protocol::error(&error)),
            };
            return replies.into_iter().map(unsent).collect();
        }
        let sent = |(call, reply): (&Outgoing<C>, Reply)| match &reply {
            Err(error) if !call.by_body && ErrorClass::of(error) == ErrorClass::UnknownScript => {
                self.heard();
                Sent::UnknownScript
            }
            _ => Sent::Answered(self.finish(connection, reply)),
        };
        calls.iter().zip(replies).map(sent).collect()
    }

    /// Makes one call for a caller that waits until the deadline. It counts for the breaker as a check does, and ends
    /// when the breaker opens.
    pub(in crate::redis) async fn call(&self, call: impl Call, deadline: Option<Deadline>) -> CallResult {
        let epoch = self.breaker().epoch();
        if let Some(refusal) = self.refusal() {
            return Err(CallError::Failed(refusal));
        }
        let attempt = Attempt::new(self, deadline);
        let outcome = tokio::select! {
            biased;
            outcome = self.send_one(call, false, deadline) => outcome,
            () = self.until_opened_after(epoch) => Err(CallError::Failed(self.overtaken())),
        };
        attempt.end(outcome.is_ok());
        outcome
    }

    /// Sends one command without a deadline of its own. The server has the time for connecting.
    pub(in crate::redis) async fn query_in_time(&self, command: &Cmd) -> Result<Value, Error> {
        self.connection().await?;
        let call = PlainCall { command: command.clone(), is_asking: false };
        let deadline = Deadline::after(self.shared().connect_timeout());
        answer_by(Some(deadline), async { Ok(self.send_one(call, false, None).await?) }).await
    }

    /// Reports that connections end again and again before a call is sent.
    pub(in crate::redis) fn cannot_send(&self, error: Error) -> CallError {
        self.failed(&error);
        CallError::unreachable(error)
    }

    /// Sends one call, until it is answered or it is not known whether it was executed.
    ///
    /// A call with a deadline is dropped by its caller when it is over.
    pub(in crate::redis) async fn send_one(
        &self,
        call: impl Call,
        by_body: bool,
        deadline: Option<Deadline>,
    ) -> CallResult {
        let mut outgoing = [Outgoing { call, by_body }];
        let mut unsent = UnsentCount::default();
        loop {
            let connection = self.connection().await.map_err(CallError::unreachable)?;
            let sent = match deadline {
                Some(_) => self.send_awaited(&connection, &outgoing[0], deadline).await,
                None => self.send(&connection, &outgoing).await.pop(),
            };
            match sent {
                Some(Sent::Answered(outcome)) => return outcome,
                Some(Sent::UnknownScript) => outgoing[0].by_body = true,
                Some(Sent::Unsent(error)) if unsent.is_last(connection.number()) => return Err(self.cannot_send(error)),
                Some(Sent::Unsent(_)) => {}
                None => return Err(protocol::error(&missing_reply()).into()),
            }
        }
    }

    /// Sends a call, and listens for its answer also after the deadline.
    fn send_awaited<C: Call>(
        &self,
        connection: &Connection,
        outgoing: &Outgoing<C>,
        deadline: Option<Deadline>,
    ) -> Awaited<Option<Sent>> {
        let (server, connection, by_body) = (self.weak(), connection.clone(), outgoing.by_body);
        let call = PlainCall { command: outgoing.call.command(by_body), is_asking: outgoing.call.is_asking() };
        Awaited::new(self, deadline, async move {
            server.upgrade()?.send(&connection, &[Outgoing { call, by_body }]).await.pop()
        })
    }
}

/// Counts the connections in a row that ended before a call was sent.
#[derive(Debug, Default)]
pub(in crate::redis) struct UnsentCount {
    count: u32,
    /// The number of the last such connection.
    last: u64,
}

impl UnsentCount {
    /// Counts a connection once. Returns whether no further attempt is made.
    pub(in crate::redis) fn is_last(&mut self, connection: u64) -> bool {
        if self.last != connection {
            *self = Self { count: self.count + 1, last: connection };
        }
        self.count >= MOST_UNSENT
    }
}

/// Writes the calls at once, and returns one reply for each.
///
/// `ASKING` holds for the next command only, so the two stand side by side in one write.
async fn write<C: Call>(connection: &Connection, calls: &[Outgoing<C>]) -> Replies {
    if let [Outgoing { call, by_body }] = calls
        && !call.is_asking()
    {
        return smallvec![connection.query(&call.command(*by_body)).await];
    }
    let mut pipeline = Pipeline::with_capacity(calls.len());
    for Outgoing { call, by_body } in calls {
        if call.is_asking() {
            pipeline.cmd("ASKING");
        }
        pipeline.add_command(call.command(*by_body));
    }
    let mut values = match connection.query_all(&pipeline).await {
        Ok(values) => values.into_iter(),
        Err(error) => return smallvec![Err(error); calls.len()],
    };
    let reply = |outgoing: &Outgoing<C>| {
        if outgoing.call.is_asking() {
            values.next();
        }
        match values.next() {
            Some(Value::ServerError(error)) => Err(RedisError::from(error)),
            Some(value) => Ok(value),
            None => Err(missing_reply()),
        }
    };
    calls.iter().map(reply).collect()
}

fn missing_reply() -> RedisError {
    (redis::ErrorKind::Parse, "a reply is missing").into()
}

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
    /// Counts a call whose caller waited until its deadline. A caller that gives up before says nothing about the server.
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
