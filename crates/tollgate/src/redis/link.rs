use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, atomic::Ordering},
    time::Duration,
};

use redis::{AsyncConnectionConfig, aio::MultiplexedConnection};
use tokio::sync::watch;

use super::{
    fault::{self, Fault},
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
    state: Arc<Mutex<State>>,
}

enum State {
    Down,
    /// The dial of this number is the one that counts.
    Dialing(u64, watch::Receiver<Option<Result<Line, Error>>>),
    Up(Line),
}

/// A live connection. What a pool lent stays lent as long as the line is held.
#[derive(Clone)]
pub(super) struct Line {
    connection: MultiplexedConnection,
    generation: u64,
    lent: Option<Arc<Lent>>,
    node: Option<Arc<Node>>,
}

impl Link {
    pub(super) fn new(source: Source, connect_timeout: Duration) -> Self {
        Self { source, connect_timeout, state: Arc::new(Mutex::new(State::Down)) }
    }

    /// How long connecting may take, and a probe.
    pub(super) fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    /// The connection if it is up.
    fn line(&self) -> Option<Line> {
        match &*lock(&self.state) {
            State::Up(line) => Some(line.clone()),
            State::Down | State::Dialing(..) => None,
        }
    }

    /// The connection, dialled if there is none.
    pub(super) async fn line_or_dial(&self) -> Result<Line, Error> {
        match self.line() {
            Some(line) => Ok(line),
            None => self.dial().await,
        }
    }

    async fn dial(&self) -> Result<Line, Error> {
        let mut answer = {
            let mut state = lock(&self.state);
            match &*state {
                State::Up(line) => return Ok(line.clone()),
                State::Dialing(_, answer) => answer.clone(),
                State::Down => self.start(&mut state),
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
        let mut state = lock(&self.state);
        if matches!(&*state, State::Up(current) if current.generation == line.generation) {
            *state = State::Down;
        }
    }

    /// This line was taken for broken and is not: unless there is another by now, it is the one again, and a dial that is
    /// under way is in vain.
    pub(super) fn restore(&self, line: Line) {
        let mut state = lock(&self.state);
        if !matches!(&*state, State::Up(_)) {
            *state = State::Up(line);
        }
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(&*lock(&self.state), State::Up(_))
    }

    /// The server is another one now: a connection to it is made at once, and the one there was, or
    /// was being made, is left to those who wait for an answer on it.
    pub(super) fn renew(&self) {
        let mut state = lock(&self.state);
        let _ = self.start(&mut state);
    }

    /// The server that the Sentinels named, while the connection to it is up.
    pub(super) fn node(&self) -> Option<Node> {
        self.line()?.node.as_deref().cloned()
    }

    pub(super) fn sentinels(&self) -> Option<&Arc<Sentinels>> {
        match &self.source {
            Source::Sentinels(sentinels) => Some(sentinels),
            Source::Client(_) | Source::Pool(_) => None,
        }
    }

    fn start(&self, current: &mut State) -> watch::Receiver<Option<Result<Line, Error>>> {
        let (tell, answer) = watch::channel(None);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        *current = State::Dialing(number, answer.clone());
        let (source, limit, state) = (self.source.clone(), self.connect_timeout, Arc::clone(&self.state));
        let dialing = Dialing { state, number };
        tokio::spawn(async move {
            let outcome = match tokio::time::timeout(limit, source.connect()).await {
                Ok(outcome) => outcome,
                Err(_) => Err(Error::new(ErrorKind::Timeout, "connecting to redis took too long")),
            };
            dialing.ends(match &outcome {
                Ok(line) => State::Up(line.clone()),
                Err(_) => State::Down,
            });
            tell.send_replace(Some(outcome));
        });
        answer
    }
}

/// Somebody dials. If the runtime is shut down under it, the next caller dials.
struct Dialing {
    state: Arc<Mutex<State>>,
    number: u64,
}

impl Dialing {
    /// Unless another dial has begun meanwhile.
    fn ends(&self, end: State) {
        let mut state = lock(&self.state);
        if matches!(&*state, State::Dialing(number, _) if *number == self.number) {
            *state = end;
        }
    }
}

impl Drop for Dialing {
    fn drop(&mut self) {
        self.ends(State::Down);
    }
}

impl Source {
    async fn connect(&self) -> Result<Line, Error> {
        let generation = NUMBER.fetch_add(1, Ordering::Relaxed);
        // Every check has its own deadline, and connecting one above; the connection has none.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        match self {
            Self::Client(client) => {
                let connection = client
                    .get_multiplexed_async_connection_with_config(&config)
                    .await
                    .map_err(|error| fault::error(&error))?;
                let line = Line { connection, generation, lent: None, node: None };
                line.ping().await?;
                Ok(line)
            }
            Self::Pool(pool) => {
                let (connection, lent) = pool.lend().await?;
                Ok(Line { connection, generation, lent: Some(Arc::new(lent)), node: None })
            }
            Self::Sentinels(sentinels) => {
                let (connection, node) = sentinels.connect(&config).await?;
                Ok(Line { connection, generation, lent: None, node: Some(Arc::new(node)) })
            }
        }
    }
}

/// Counts dials and lines.
static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

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

/// A panic while the lock is held leaves a whole state behind, so the lock is never poisoned.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The runtime that dialled was shut down under the callers.
fn abandoned() -> Error {
    Error::new(ErrorKind::Unavailable, "connecting to redis was abandoned")
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &*lock(&self.state) {
            State::Down => "down",
            State::Dialing(..) => "dialing",
            State::Up(_) => "up",
        })
    }
}
