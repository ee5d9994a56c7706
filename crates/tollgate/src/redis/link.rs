use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use redis::{AsyncConnectionConfig, aio::MultiplexedConnection};
use tokio::{sync::watch, time::Instant};

use super::fault;
use crate::{Error, ErrorKind};

/// Where connections come from.
#[derive(Clone)]
pub(super) enum Source {
    Client { client: Arc<redis::Client>, connect_timeout: Duration },
    Pool(deadpool_redis::Pool),
}

/// The one connection that all checks share.
///
/// It is made once, by a task of its own, so that a caller who gives up does not undo the work for
/// those who come after; it is replaced when it is broken, and never asked for again while it
/// works. After a failure nobody dials for a moment: callers are told at once.
pub(super) struct Link {
    source: Source,
    state: Arc<Mutex<State>>,
}

enum State {
    Down { since: Option<(Instant, Error)> },
    Dialing(watch::Receiver<Option<Result<Line, Error>>>),
    Up(Line),
}

/// A live connection. What a pool lent stays lent as long as the line is held.
#[derive(Clone)]
pub(super) struct Line {
    connection: MultiplexedConnection,
    generation: u64,
    _lent: Option<Arc<deadpool_redis::Connection>>,
}

/// How long after a failure nobody dials again.
const PAUSE: Duration = Duration::from_millis(100);

impl Link {
    pub(super) fn new(source: Source) -> Self {
        Self { source, state: Arc::new(Mutex::new(State::Down { since: None })) }
    }

    /// The connection if it is up.
    pub(super) fn line(&self) -> Option<Line> {
        match &*lock(&self.state) {
            State::Up(line) => Some(line.clone()),
            State::Down { .. } | State::Dialing(_) => None,
        }
    }

    /// The connection, dialled if there is none.
    pub(super) async fn dial(&self) -> Result<Line, Error> {
        let mut answer = {
            let mut state = lock(&self.state);
            match &*state {
                State::Up(line) => return Ok(line.clone()),
                State::Dialing(answer) => answer.clone(),
                State::Down { since: Some((since, error)) } if since.elapsed() < PAUSE => {
                    return Err(error.clone());
                }
                State::Down { .. } => {
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

    /// This line broke: the next call dials, unless somebody has already.
    pub(super) fn broken(&self, line: &Line) {
        let mut state = lock(&self.state);
        if matches!(&*state, State::Up(current) if current.generation == line.generation) {
            *state = State::Down { since: None };
        }
    }

    fn start(&self) -> watch::Receiver<Option<Result<Line, Error>>> {
        let (tell, answer) = watch::channel(None);
        let (source, state) = (self.source.clone(), Arc::clone(&self.state));
        tokio::spawn(async move {
            let outcome = source.connect().await;
            *lock(&state) = match &outcome {
                Ok(line) => State::Up(line.clone()),
                Err(error) => State::Down { since: Some((Instant::now(), error.clone())) },
            };
            tell.send_replace(Some(outcome));
        });
        answer
    }
}

impl Source {
    async fn connect(&self) -> Result<Line, Error> {
        let generation = GENERATION.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        match self {
            Self::Client { client, connect_timeout } => {
                // Every check has its own deadline; the connection has none.
                let config = AsyncConnectionConfig::new()
                    .set_connection_timeout(Some(*connect_timeout))
                    .set_response_timeout(None);
                let connection = client
                    .get_multiplexed_async_connection_with_config(&config)
                    .await
                    .map_err(|error| fault::error(&error))?;
                Ok(Line { connection, generation, _lent: None })
            }
            Self::Pool(pool) => {
                let lent = pool.get().await.map_err(|error| pool_error(&error))?;
                let connection = MultiplexedConnection::clone(&lent);
                Ok(Line { connection, generation, _lent: Some(Arc::new(lent)) })
            }
        }
    }
}

static GENERATION: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

impl Line {
    pub(super) async fn query(&self, command: &redis::Cmd) -> redis::RedisResult<redis::Value> {
        command.query_async(&mut self.connection.clone()).await
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
            State::Down { .. } => "down",
            State::Dialing(_) => "dialing",
            State::Up(_) => "up",
        })
    }
}
