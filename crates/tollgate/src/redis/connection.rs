use std::fmt;

use redis::{Cmd, Value};

use super::{
    fault::{self, Fault},
    link::{Line, Link, Source},
    plan::Plan,
    script::Script,
};
use crate::{Clock, Error, Key};

/// A server, and what every call to it has in common.
pub(super) struct Connection {
    prefix: String,
    clock: Option<Clock>,
    link: Link,
}

impl Connection {
    pub(super) fn new(source: Source, prefix: String, clock: Option<Clock>) -> Self {
        Self { prefix, clock, link: Link::new(source) }
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    /// The time as the scripts take it: −1 for the server's own.
    pub(super) fn now(&self) -> f64 {
        self.clock.as_ref().map_or(-1.0, |clock| clock.now_us() as f64)
    }

    /// Adds the keys of a subject to a command, one per policy.
    pub(super) fn keys(&self, plan: &Plan, key: &Key, command: &mut Cmd) {
        let mut text = Vec::with_capacity(128);
        text.extend_from_slice(self.prefix.as_bytes());
        text.extend_from_slice(b":{");
        text.extend_from_slice(key.as_bytes());
        let stem = text.len();
        for suffix in &plan.suffixes {
            text.truncate(stem);
            text.extend_from_slice(suffix.as_bytes());
            command.arg(text.as_slice());
        }
    }

    /// Runs a script by its name, and by its body when the server does not know it: then nothing
    /// ran before, so nothing is charged twice. `rest` adds the keys and the arguments.
    pub(super) async fn run(&self, script: &Script, keys: usize, rest: impl Fn(&mut Cmd)) -> Result<Value, Error> {
        let by = |command: &str, script: &str| {
            let mut command = redis::cmd(command);
            command.arg(script).arg(keys);
            rest(&mut command);
            command
        };
        let line = self.line().await?;
        match line.query(&by("EVALSHA", &script.sha)).await {
            Err(error) if Fault::of(&error) == Fault::NoScript => {
                let answer = line.query(&by("EVAL", &script.text)).await;
                self.finish(&line, answer)
            }
            answer => self.finish(&line, answer),
        }
    }

    /// Runs a command.
    pub(super) async fn query(&self, command: &Cmd) -> Result<Value, Error> {
        let line = self.line().await?;
        let answer = line.query(command).await;
        self.finish(&line, answer)
    }

    async fn line(&self) -> Result<Line, Error> {
        match self.link.line() {
            Some(line) => Ok(line),
            None => self.link.dial().await,
        }
    }

    fn finish(&self, line: &Line, answer: redis::RedisResult<Value>) -> Result<Value, Error> {
        answer.map_err(|error| {
            if Fault::of(&error) == Fault::Connection {
                self.link.broken(line);
            }
            fault::error(&error)
        })
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("prefix", &self.prefix).field("link", &self.link).finish_non_exhaustive()
    }
}
