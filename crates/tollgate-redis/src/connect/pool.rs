//! A connection that a pool of the application lends, and what it means to give it back or not.
//! Connections of the store's own are opened in `dialer.rs`.

use std::sync::atomic::{AtomicBool, Ordering};

use deadpool_redis::PoolError;
use redis::aio::MultiplexedConnection;

use crate::protocol;
use tollgate_core::{Error, ErrorKind};

/// A pool of the application.
#[derive(Clone)]
pub(crate) enum Pool {
    Server(deadpool_redis::Pool),
    #[cfg(feature = "sentinel-pool")]
    Sentinel(deadpool_redis::sentinel::Pool),
}

/// A connection that a pool lent. It returns to the pool when it is dropped, unless it was
/// discarded: the pool might find that a discarded connection answers, and lend it again.
pub(super) struct LentConnection {
    connection: Option<Borrowed>,
    is_discarded: AtomicBool,
}

enum Borrowed {
    Server(deadpool_redis::Connection),
    #[cfg(feature = "sentinel-pool")]
    Sentinel(deadpool_redis::sentinel::Connection),
}

impl Pool {
    /// The words for the server. A pool does not show its address.
    pub(super) const SERVER: &str = "the redis server of the pool";

    pub(super) async fn lend(&self) -> Result<(MultiplexedConnection, LentConnection), Error> {
        let (connection, lent) = match self {
            Self::Server(pool) => {
                let lent = pool.get().await.map_err(|error| pool_error(&error))?;
                (MultiplexedConnection::clone(&lent), Borrowed::Server(lent))
            }
            #[cfg(feature = "sentinel-pool")]
            Self::Sentinel(pool) => {
                let lent = pool.get().await.map_err(|error| pool_error(&error))?;
                (
                    MultiplexedConnection::clone(&lent),
                    Borrowed::Sentinel(lent),
                )
            }
        };
        Ok((
            connection,
            LentConnection {
                connection: Some(lent),
                is_discarded: AtomicBool::new(false),
            },
        ))
    }
}

impl LentConnection {
    /// Keeps the connection from going back to the pool.
    pub(super) fn discard(&self) {
        self.is_discarded.store(true, Ordering::Relaxed);
    }
}

impl Drop for LentConnection {
    fn drop(&mut self) {
        match self.connection.take() {
            Some(connection) if self.is_discarded.load(Ordering::Relaxed) => connection.remove(),
            _ => {}
        }
    }
}

impl Borrowed {
    /// Takes the connection out of its pool for good.
    fn remove(self) {
        match self {
            Self::Server(connection) => drop(deadpool_redis::Connection::take(connection)),
            #[cfg(feature = "sentinel-pool")]
            Self::Sentinel(connection) => {
                drop(deadpool_redis::sentinel::Connection::take(connection));
            }
        }
    }
}

fn pool_error(error: &PoolError) -> Error {
    match error {
        PoolError::Backend(error) => protocol::connecting(Pool::SERVER, false, error),
        PoolError::Timeout(_) => {
            Error::new(ErrorKind::Timeout, "the pool gave no connection in time")
        }
        PoolError::Closed => Error::config("the pool is closed"),
        PoolError::NoRuntimeSpecified => Error::config("the pool has a timeout but no runtime"),
        PoolError::PostCreateHook(_) => Error::new(
            ErrorKind::Unavailable,
            "a hook of the pool refused the connection",
        ),
    }
}
