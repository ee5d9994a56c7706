use std::{
    fmt,
    sync::{Arc, Weak},
};

use arc_swap::ArcSwap;
use redis::{Cmd, Value};
use tokio::sync::Notify;

use super::{
    breaker::Breaker,
    fault::{self, Fault},
    lane::Manner,
    link::{Line, Link},
    plan::Plan,
    probe::{self, Probe},
    script::Script,
};
use crate::{Clock, Error, Key, reason::Reason};

/// About what a key takes at the server, so that a call over many is not moved while it grows.
const KEY_BYTES: usize = 64;

/// A server, and what every call to it has in common.
pub(super) struct Connection {
    prefix: String,
    /// What every key begins with: the prefix, and the brace that opens the hash tag.
    head: String,
    clock: Option<Clock>,
    link: Link,
    is_in_cluster: bool,
    breaker: Breaker,
    /// What is answered while the breaker is open.
    why: ArcSwap<Error>,
    /// Rings when the breaker has opened, for the task that serves the queue.
    opened: Notify,
    /// Rings when there is a reason to probe at once.
    hurry: Notify,
    me: Weak<Self>,
}

impl Connection {
    pub(super) fn new(link: Link, Manner { prefix, clock, .. }: Manner, is_in_cluster: bool) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            head: format!("{prefix}:{{"),
            prefix,
            clock,
            link,
            is_in_cluster,
            breaker: Breaker::new(),
            why: ArcSwap::from_pointee(probe::silent()),
            opened: Notify::new(),
            hurry: Notify::new(),
            me: Weak::clone(me),
        })
    }

    pub(super) fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    pub(super) fn opened(&self) -> &Notify {
        &self.opened
    }

    pub(super) fn hurry(&self) -> &Notify {
        &self.hurry
    }

    /// Another server is the one to ask.
    pub(super) fn moved(&self) {
        self.link.renew();
        if self.breaker.is_open() {
            self.hurry.notify_one();
        }
    }

    /// Whether the server has some slots only, so that every call is for one of them.
    pub(super) fn is_in_cluster(&self) -> bool {
        self.is_in_cluster
    }

    /// Why the server is not asked, while the breaker is open.
    pub(super) fn why(&self) -> Error {
        Error::clone(&self.why.load())
    }

    /// What those are told who waited when the breaker opened.
    pub(super) fn overtaken(&self) -> Error {
        match self.why() {
            why if why.cause() == Reason::Breaker => late(),
            why => why,
        }
    }

    /// Tells everybody from now on why the server is not asked.
    pub(super) fn tell(&self, why: Error) {
        self.why.store(Arc::new(why));
    }

    /// A check ran into its deadline.
    pub(super) fn missed(&self) {
        if self.breaker.missed() {
            self.tell(probe::silent());
            tracing::debug!("redis does not answer, no check is sent to it until it answers a probe");
            self.has_opened();
        }
    }

    /// There is no use in asking before a probe was answered.
    fn failed(&self, error: &Error) {
        self.tell(error.clone());
        if self.breaker.open() {
            tracing::debug!(%error, "no check is sent to redis until it answers a probe");
            self.has_opened();
        }
    }

    fn has_opened(&self) {
        self.opened.notify_one();
        Probe::start(&self.me);
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The clock that decides instead of the server's.
    pub(super) fn clock(&self) -> Option<&Clock> {
        self.clock.as_ref()
    }

    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    /// The time as the scripts take it: −1 for the server's own.
    pub(super) fn now(&self) -> f64 {
        self.clock.as_ref().map_or(-1.0, |clock| clock.now_us() as f64)
    }

    /// Adds the keys of subjects to a command, for each one per policy.
    pub(super) fn keys<'a>(&self, plan: &Plan, subjects: impl Iterator<Item = &'a Key>, command: &mut Cmd) {
        let mut text = Vec::with_capacity(self.head.len() + 2 * KEY_BYTES);
        text.extend_from_slice(self.head.as_bytes());
        for key in subjects {
            text.truncate(self.head.len());
            text.extend_from_slice(key.as_bytes());
            let stem = text.len();
            for suffix in &plan.suffixes {
                text.truncate(stem);
                text.extend_from_slice(suffix.as_bytes());
                command.arg(text.as_slice());
            }
        }
    }

    /// Runs a script by its name, and by its body when the server does not know it: then nothing
    /// ran before, so nothing is charged twice. `rest` adds the keys and the arguments.
    pub(super) async fn run(&self, script: &Script, keys: usize, rest: impl Fn(&mut Cmd)) -> Result<Value, Error> {
        let by = |command: &str, script: &str| {
            let mut call = Cmd::with_capacity(keys + 8, script.len() + keys * KEY_BYTES + 256);
            call.arg(command).arg(script).arg(keys);
            rest(&mut call);
            call
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

    /// Runs a command that has no deadline of its own: the server has the time for connecting.
    pub(super) async fn query_in_time(&self, command: &Cmd) -> Result<Value, Error> {
        let line = self.line().await?;
        match tokio::time::timeout(self.link.connect_timeout(), line.query(command)).await {
            Ok(answer) => self.finish(&line, answer),
            Err(_) => Err(late()),
        }
    }

    pub(super) async fn line(&self) -> Result<Line, Error> {
        if let Some(sentinels) = self.link.sentinels() {
            sentinels.watch(&self.me);
        }
        self.link.line_or_dial().await.inspect_err(|error| self.failed(error))
    }

    /// What an answer means for the connection and the breaker.
    pub(super) fn finish(&self, line: &Line, answer: redis::RedisResult<Value>) -> Result<Value, Error> {
        let error = match answer {
            Ok(value) => {
                self.breaker.heard();
                return Ok(value);
            }
            Err(error) => error,
        };
        let (fault, error) = (Fault::of(&error), fault::error(&error));
        match fault {
            Fault::Connection => self.link.broken(line),
            Fault::Topology => {
                self.link.broken(line);
                self.failed(&error);
            }
            Fault::Server | Fault::NoScript => self.breaker.heard(),
        }
        Err(error)
    }
}

/// What is answered when the time for an answer was over.
pub(super) fn late() -> Error {
    Error::new(Reason::Timeout, "redis did not answer in time")
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("prefix", &self.prefix)
            .field("link", &self.link)
            .field("breaker", &self.breaker)
            .finish_non_exhaustive()
    }
}
