use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use redis::{AsyncConnectionConfig, aio::MultiplexedConnection};
use tokio::sync::watch;

use super::fault::{self, Fault};
use crate::{Error, ErrorKind};

/// Where connections come from.
#[derive(Clone)]
pub(super) enum Source {
    Client(Arc<redis::Client>),
    Pool(deadpool_redis::Pool),
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
    Dialing(watch::Receiver<Option<Result<Line, Error>>>),
    Up(Line),
}

/// A live connection. What a pool lent stays lent as long as the line is held.
#[derive(Clone)]
pub(super) struct Line {
    connection: MultiplexedConnection,
    generation: u64,
    lent: Option<Arc<Lent>>,
}

/// What a pool lent. It goes back when nobody holds it any more, unless it is of no use: the pool
/// would find that it answers, and lend it again.
struct Lent {
    connection: Option<deadpool_redis::Connection>,
    is_useless: AtomicBool,
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
            State::Down | State::Dialing(_) => None,
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
                State::Dialing(answer) => answer.clone(),
                State::Down => {
                    let answer = self.start();
                    *state = State::Dialing(answer.clone());
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
            lent.is_useless.store(true, Ordering::Relaxed);
        }
        let mut state = lock(&self.state);
        if matches!(&*state, State::Up(current) if current.generation == line.generation) {
            *state = State::Down;
        }
    }

    fn start(&self) -> watch::Receiver<Option<Result<Line, Error>>> {
        let (tell, answer) = watch::channel(None);
        let (source, limit, state) = (self.source.clone(), self.connect_timeout, Arc::clone(&self.state));
        let mut dialing = Dialing { state, is_done: false };
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
    is_done: bool,
}

impl Dialing {
    fn ends(&mut self, state: State) {
        self.is_done = true;
        *lock(&self.state) = state;
    }
}

impl Drop for Dialing {
    fn drop(&mut self) {
        if !self.is_done {
            *lock(&self.state) = State::Down;
        }
    }
}

impl Source {
    async fn connect(&self) -> Result<Line, Error> {
        let generation = GENERATION.fetch_add(1, Ordering::Relaxed);
        match self {
            Self::Client(client) => {
                // Every check has its own deadline, and connecting one above; the connection has none.
                let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
                let connection = client
                    .get_multiplexed_async_connection_with_config(&config)
                    .await
                    .map_err(|error| fault::error(&error))?;
                let line = Line { connection, generation, lent: None };
                line.ping().await?;
                Ok(line)
            }
            Self::Pool(pool) => {
                let lent = pool.get().await.map_err(|error| pool_error(&error))?;
                let connection = MultiplexedConnection::clone(&lent);
                let lent = Lent { connection: Some(lent), is_useless: AtomicBool::new(false) };
                Ok(Line { connection, generation, lent: Some(Arc::new(lent)) })
            }
        }
    }
}

static GENERATION: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

impl Line {
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

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take_if(|_| self.is_useless.load(Ordering::Relaxed)) {
            drop(deadpool_redis::Connection::take(connection));
        }
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

fn pool_error(error: &deadpool_redis::PoolError) -> Error {
    use deadpool_redis::PoolError;
    match error {
        PoolError::Backend(error) => fault::error(error),
        PoolError::Timeout(_) => Error::new(ErrorKind::Timeout, "the pool gave no connection in time"),
        PoolError::Closed => Error::config("the pool is closed"),
        PoolError::NoRuntimeSpecified => Error::config("the pool has a time-out but no runtime"),
        PoolError::PostCreateHook(_) => Error::new(ErrorKind::Unavailable, "a hook of the pool refused the connection"),
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &*lock(&self.state) {
            State::Down => "down",
            State::Dialing(_) => "dialing",
            State::Up(_) => "up",
        })
    }
}
