use redis::{Cmd, Pipeline, RedisError, Value};

use super::unrun::Unrun;
use crate::{
    Error,
    redis::{batch::Group, connection::Connection, fault::Fault, link::Line, script::Script},
};

/// Runs the checks of a batch at one server, each by itself: written in one go, in order. What the
/// server did not run is marked.
pub(in crate::redis) async fn run(calls: Vec<Group>, connection: &Connection) {
    let line = match connection.line().await {
        Ok(line) => line,
        Err(error) => {
            let error = Unrun::unfit(error);
            return calls.into_iter().for_each(|call| call.answer(Err(error.clone())));
        }
    };
    let mut left = calls;
    for by_body in [false, true] {
        let command = |call: &Group| {
            let rest = |command: &mut Cmd| call.fill(connection, command);
            (call.is_asking(), script(call.script(), by_body, call.keys(), rest))
        };
        let mut replies = match send(&line, left.iter().map(command)).await {
            Ok(replies) => replies.into_iter(),
            Err(error) => {
                let error = finish(connection, &line, Err(error));
                return left.into_iter().for_each(|call| call.answer(error.clone()));
            }
        };
        let mut unknown = Vec::new();
        for call in left {
            match replies.next().unwrap_or_else(none) {
                Err(error) if !by_body && Fault::of(&error) == Fault::NoScript => unknown.push(call),
                reply => call.answer(finish(connection, &line, reply)),
            }
        }
        left = unknown;
        if left.is_empty() {
            return;
        }
    }
}

/// Runs one command, or `otherwise` when the server does not know the script that it names.
pub(super) async fn one(
    connection: &Connection,
    asking: bool,
    command: Cmd,
    otherwise: Option<Cmd>,
) -> Result<Value, Error> {
    let line = connection.line().await.map_err(Unrun::unfit)?;
    let sent = async |command| match send(&line, std::iter::once((asking, command))).await {
        Ok(replies) => replies.into_iter().next().unwrap_or_else(none),
        Err(error) => Err(error),
    };
    let reply = match (sent(command).await, otherwise) {
        (Err(error), Some(otherwise)) if Fault::of(&error) == Fault::NoScript => sent(otherwise).await,
        (reply, _) => reply,
    };
    finish(connection, &line, reply)
}

/// The call of a script, by its name or by its body.
pub(super) fn script(script: &Script, by_body: bool, keys: usize, rest: impl Fn(&mut Cmd)) -> Cmd {
    let mut command = redis::cmd(if by_body { "EVAL" } else { "EVALSHA" });
    command.arg(if by_body { &script.text } else { &script.sha }).arg(keys);
    rest(&mut command);
    command
}

type Reply = Result<Value, RedisError>;

/// `ASKING` holds for the next command alone, so the two are neighbours on the shared connection.
async fn send(line: &Line, commands: impl Iterator<Item = (bool, Cmd)>) -> Result<Vec<Reply>, RedisError> {
    let mut pipeline = Pipeline::new();
    let mut counts = Vec::new();
    for (asking, command) in commands {
        if asking {
            pipeline.cmd("ASKING");
        }
        pipeline.add_command(command);
        counts.push(!asking);
        if asking {
            counts.push(true);
        }
    }
    let reply = |value| match value {
        Value::ServerError(error) => Err(RedisError::from(error)),
        value => Ok(value),
    };
    let replies = line.query_all(&pipeline).await?.into_iter().zip(counts);
    Ok(replies.filter(|(_, counts)| *counts).map(|(value, _)| reply(value)).collect())
}

fn finish(connection: &Connection, line: &Line, reply: Reply) -> Result<Value, Error> {
    let said = reply.as_ref().err().cloned();
    let answer = connection.finish(line, reply);
    match said {
        Some(said) => answer.map_err(|error| Unrun::mark(&said, error)),
        None => answer,
    }
}

/// Fewer replies than calls.
fn none() -> Reply {
    Err((redis::ErrorKind::Parse, "a reply is missing").into())
}
