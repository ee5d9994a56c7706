//! A connection that a pool of the application lends, and what it means to give it back or not.
//! Connections of the store's own are opened in `dialer.rs`.

#![cfg_attr(
    not(feature = "pool"),
    allow(dead_code, reason = "without the feature nothing makes a pool")
)]

use std::sync::atomic::{AtomicBool, Ordering};

use redis::aio::MultiplexedConnection;

use tollgate_core::Error;

/// A pool of the application. Without the feature there is none.
#[derive(Clone)]
pub(crate) enum Pool {
    #[cfg(feature = "pool")]
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
    #[cfg(feature = "pool")]
    Server(deadpool_redis::Connection),
    #[cfg(feature = "sentinel-pool")]
    Sentinel(deadpool_redis::sentinel::Connection),
}

impl Pool {
    /// The words for the server. A pool does not show its address.
    pub(super) const SERVER: &str = "the redis server of the pool";

    pub(super) async fn lend(&self) -> Result<(MultiplexedConnection, LentConnection), Error> {
        match *self {
            #[cfg(feature = "pool")]
            Self::Server(ref pool) => {
                let lent = pool.get().await.map_err(|error| pool_error(&error))?;
                let connection = MultiplexedConnection::clone(&lent);
                Ok((connection, Borrowed::Server(lent).into()))
            }
            #[cfg(feature = "sentinel-pool")]
            Self::Sentinel(ref pool) => {
                let lent = pool.get().await.map_err(|error| pool_error(&error))?;
                let connection = MultiplexedConnection::clone(&lent);
                Ok((connection, Borrowed::Sentinel(lent).into()))
            }
        }
    }
}

impl From<Borrowed> for LentConnection {
    fn from(connection: Borrowed) -> Self {
        Self {
            connection: Some(connection),
            is_discarded: AtomicBool::new(false),
        }
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
            #[cfg(feature = "pool")]
            Self::Server(connection) => drop(deadpool_redis::Connection::take(connection)),
            #[cfg(feature = "sentinel-pool")]
            Self::Sentinel(connection) => {
                drop(deadpool_redis::sentinel::Connection::take(connection));
            }
        }
    }
}

#[cfg(feature = "pool")]
fn pool_error(error: &deadpool_redis::PoolError) -> Error {
    use deadpool_redis::PoolError;
    use tollgate_core::ErrorKind;

    match error {
        PoolError::Backend(error) => crate::protocol::connecting(Pool::SERVER, false, error),
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
