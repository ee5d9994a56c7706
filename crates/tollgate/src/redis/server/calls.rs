use redis::{Cmd, Pipeline, RedisError, Value};
use smallvec::{SmallVec, smallvec};

use super::{
    not_executed::CallError,
    state::{self, KEY_BYTES, Server},
};
use crate::{
    Error,
    redis::{
        connect::Connection,
        protocol::{self, ErrorClass, Script},
    },
};

/// The outcome of one call.
pub(in crate::redis) type CallResult = Result<Value, CallError>;

/// Writes one call to a server.
pub(in crate::redis) trait Call {
    /// Returns the command. `by_body` sends the text of a script, for a server that does not know its name.
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

/// A command that is not a script.
struct PlainCall<'a> {
    command: &'a Cmd,
    is_asking: bool,
}

impl Call for PlainCall<'_> {
    fn command(&self, _by_body: bool) -> Cmd {
        self.command.clone()
    }

    fn is_asking(&self) -> bool {
        self.is_asking
    }
}

type Reply = Result<Value, RedisError>;
type Replies = SmallVec<[Reply; 1]>;

impl Server {
    /// Sends calls in one write, in order, and returns the outcome of each.
    ///
    /// This is the one way to a server, single or in a cluster. A script that the server does not know was not
    /// executed. It is sent again by its body, after the other calls.
    pub(in crate::redis) async fn send<C: Call>(&self, calls: &[C]) -> SmallVec<[CallResult; 1]> {
        let connection = match self.connection().await {
            Ok(connection) => connection,
            Err(error) => return smallvec![Err(CallError::unreachable(error)); calls.len()],
        };
        let mut replies = write(&connection, calls.iter().collect(), false).await;
        if replies.iter().any(is_unknown_script) {
            let unknown: SmallVec<[usize; 1]> =
                (0..calls.len()).filter(|&at| is_unknown_script(&replies[at])).collect();
            let again = write(&connection, unknown.iter().map(|&at| &calls[at]).collect(), true).await;
            for (at, reply) in unknown.into_iter().zip(again) {
                replies[at] = reply;
            }
        }
        replies.into_iter().map(|reply| self.finish(&connection, reply)).collect()
    }

    /// Calls one script.
    pub(in crate::redis) async fn run<F: Fn(&mut Cmd)>(&self, call: ScriptCall<'_, F>) -> CallResult {
        self.send_one(call).await
    }

    /// Sends one command.
    pub(in crate::redis) async fn query(&self, command: &Cmd, is_asking: bool) -> CallResult {
        self.send_one(PlainCall { command, is_asking }).await
    }

    /// Sends one command without a deadline of its own. The server has the time for connecting.
    pub(in crate::redis) async fn query_in_time(&self, command: &Cmd) -> Result<Value, Error> {
        self.connection().await?;
        match tokio::time::timeout(self.shared().connect_timeout(), self.query(command, false)).await {
            Ok(outcome) => Ok(outcome?),
            Err(_) => Err(state::late()),
        }
    }

    async fn send_one(&self, call: impl Call) -> CallResult {
        self.send(&[call]).await.pop().unwrap_or_else(|| Err(protocol::error(&missing_reply()).into()))
    }
}

fn is_unknown_script(reply: &Reply) -> bool {
    reply.as_ref().is_err_and(|error| ErrorClass::of(error) == ErrorClass::UnknownScript)
}

/// Writes the calls at once, and returns one reply for each.
///
/// `ASKING` holds for the next command only, so the two stand side by side in one write.
async fn write<C: Call>(connection: &Connection, calls: SmallVec<[&C; 1]>, by_body: bool) -> Replies {
    if let [call] = calls[..]
        && !call.is_asking()
    {
        return smallvec![connection.query(&call.command(by_body)).await];
    }
    let mut pipeline = Pipeline::with_capacity(calls.len());
    for call in &calls {
        if call.is_asking() {
            pipeline.cmd("ASKING");
        }
        pipeline.add_command(call.command(by_body));
    }
    let mut values = match connection.query_all(&pipeline).await {
        Ok(values) => values.into_iter(),
        Err(error) => return smallvec![Err(error); calls.len()],
    };
    let reply = |call: &C| {
        if call.is_asking() {
            values.next();
        }
        match values.next() {
            Some(Value::ServerError(error)) => Err(RedisError::from(error)),
            Some(value) => Ok(value),
            None => Err(missing_reply()),
        }
    };
    calls.into_iter().map(reply).collect()
}

fn missing_reply() -> RedisError {
    (redis::ErrorKind::Parse, "a reply is missing").into()
}
