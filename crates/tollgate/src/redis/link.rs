use std::{fmt, sync::Arc, time::Duration};

use redis::{AsyncConnectionConfig, aio::MultiplexedConnection};
use tokio::sync::watch;

use super::{
    fault::{self, Fault},
    generation::{Dial, Dialled, Found, Generations},
    pool::{Lent, Pool},
    sentinel::Sentinels,
    servers::Node,
};
use crate::{Error, ErrorKind};

/// Where connections come from.
#[derive(Clone)]
pub(super) enum Source {
    Client(Arc<redis::Client>),
    Pool(Pool),
    Sentinels(Arc<Sentinels>),
}

/// The one connection that all checks share.
///
/// It is made once, by a task of its own, so that a caller who gives up does not undo the work for
/// those who come after; it is replaced when it is broken, and never asked for again while it
/// works.
pub(super) struct Link {
    source: Source,
    connect_timeout: Duration,
    lines: Generations<Line, Answer>,
}

/// What callers wait with for the end of a dial.
type Answer = watch::Receiver<Option<Outcome>>;
type Outcome = Result<Line, Error>;

/// A live connection. What a pool lent stays lent as long as the line is held.
#[derive(Clone)]
pub(super) struct Line {
    connection: MultiplexedConnection,
    number: u64,
    lent: Option<Arc<Lent>>,
    node: Option<Arc<Node>>,
}

impl Link {
    pub(super) fn new(source: Source, connect_timeout: Duration) -> Self {
        Self { source, connect_timeout, lines: Generations::new() }
    }

    /// How long connecting may take, and a probe.
    pub(super) fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    /// The connection, dialled if there is none.
    pub(super) async fn line_or_dial(&self) -> Result<Line, Error> {
        match self.lines.line() {
            Some(line) => Ok(line),
            None => self.dial().await,
        }
    }

    async fn dial(&self) -> Result<Line, Error> {
        let mut answer = {
            let (tell, answer) = watch::channel(None);
            match self.lines.line_or_dial(&answer) {
                Found::Up(line) => return Ok(line),
                Found::Dialing(answer) => answer,
                Found::Down(dial) => {
                    self.start(dial, tell);
                    answer
                }
            }
        };
        match answer.wait_for(Option::is_some).await {
            Ok(answer) => match &*answer {
                Some(answer) => answer.clone(),
                None => Err(abandoned()),
            },
            Err(_) => Err(abandoned()),
        }
    }

    /// This line broke, or leads nowhere useful: the next call dials, unless somebody has already.
    pub(super) fn broken(&self, line: &Line) {
        if let Some(lent) = &line.lent {
            lent.is_useless();
        }
        self.lines.broken(line);
    }

    /// This line was taken for broken and is not. Says whether it leads to the server that is asked.
    pub(super) fn restore(&self, line: Line) -> bool {
        self.lines.restore(line)
    }

    pub(super) fn is_up(&self) -> bool {
        self.lines.is_up()
    }

    /// The server is another one now: a connection to it is made at once, and the one there was, or
    /// was being made, is left to those who wait for an answer on it.
    pub(super) fn renew(&self) {
        let (tell, answer) = watch::channel(None);
        self.start(self.lines.renew(answer), tell);
    }

    /// The server that the Sentinels named, while the connection to it is up.
    pub(super) fn node(&self) -> Option<Node> {
        self.lines.line()?.node.as_deref().cloned()
    }

    pub(super) fn sentinels(&self) -> Option<&Arc<Sentinels>> {
        match &self.source {
            Source::Sentinels(sentinels) => Some(sentinels),
            Source::Client(_) | Source::Pool(_) => None,
        }
    }

    fn start(&self, dial: Dial<Line, Answer>, tell: watch::Sender<Option<Outcome>>) {
        let (source, limit) = (self.source.clone(), self.connect_timeout);
        tokio::spawn(async move {
            let outcome = match tokio::time::timeout(limit, source.connect(dial.number())).await {
                Ok(outcome) => outcome,
                Err(_) => Err(Error::new(ErrorKind::Timeout, "connecting to redis took too long")),
            };
            match &outcome {
                Ok(line) => dial.made(line.clone()),
                Err(_) => drop(dial),
            }
            tell.send_replace(Some(outcome));
        });
    }
}

impl Source {
    async fn connect(&self, number: u64) -> Result<Line, Error> {
        // Every check has its own deadline, and connecting one above; the connection has none.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        match self {
            Self::Client(client) => {
                let connection = client
                    .get_multiplexed_async_connection_with_config(&config)
                    .await
                    .map_err(|error| fault::error(&error))?;
                let line = Line { connection, number, lent: None, node: None };
                line.ping().await?;
                Ok(line)
            }
            Self::Pool(pool) => {
                let (connection, lent) = pool.lend().await?;
                Ok(Line { connection, number, lent: Some(Arc::new(lent)), node: None })
            }
            Self::Sentinels(sentinels) => {
                let (connection, node) = sentinels.connect(&config).await?;
                Ok(Line { connection, number, lent: None, node: Some(Arc::new(node)) })
            }
        }
    }
}

impl Dialled for Line {
    fn number(&self) -> u64 {
        self.number
    }
}

impl Line {
    /// Whether it belongs to a pool.
    pub(super) fn is_lent(&self) -> bool {
        self.lent.is_some()
    }

    /// Whether the server answers on this line; what it answers tells only whether to look for
    /// another server. A connection is made before the server has said that it is welcome, so one
    /// that has never answered is not up.
    pub(super) async fn ping(&self) -> Result<(), Error> {
        match self.query(&redis::cmd("PING")).await {
            Ok(_) => Ok(()),
            Err(error) => match Fault::of(&error) {
                Fault::Server | Fault::NoScript if !fault::is_unwelcome(&error) => Ok(()),
                _ => Err(fault::error(&error)),
            },
        }
    }

    pub(super) async fn query(&self, command: &redis::Cmd) -> redis::RedisResult<redis::Value> {
        command.query_async(&mut self.connection.clone()).await
    }

    /// Writes so many commands in one go; each is answered by itself.
    pub(super) async fn query_all(&self, commands: &redis::Pipeline) -> redis::RedisResult<Vec<redis::Value>> {
        self.connection.clone().send_packed_commands(commands, 0, commands.len()).await
    }
}

/// The runtime that dialled was shut down under the callers.
fn abandoned() -> Error {
    Error::new(ErrorKind::Unavailable, "connecting to redis was abandoned")
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.fmt(f)
    }
}
