use std::sync::atomic::{AtomicBool, Ordering};

use deadpool_redis::PoolError;
use redis::aio::MultiplexedConnection;

use super::fault;
use crate::{Error, ErrorKind};

/// A pool of the application.
#[derive(Clone)]
pub(super) enum Pool {
    Server(deadpool_redis::Pool),
    #[cfg(feature = "sentinel-pool")]
    Sentinel(deadpool_redis::sentinel::Pool),
}

/// What a pool lent. It goes back when nobody holds it any more, unless it is of no use: the pool
/// would find that it answers, and lend it again.
pub(super) struct Lent {
    connection: Option<Borrowed>,
    is_useless: AtomicBool,
}

enum Borrowed {
    Server(deadpool_redis::Connection),
    #[cfg(feature = "sentinel-pool")]
    Sentinel(deadpool_redis::sentinel::Connection),
}

impl Pool {
    pub(super) async fn lend(&self) -> Result<(MultiplexedConnection, Lent), Error> {
        let (connection, lent) = match self {
            Self::Server(pool) => {
                let lent = pool.get().await.map_err(|error| pool_error(&error))?;
                (MultiplexedConnection::clone(&lent), Borrowed::Server(lent))
            }
            #[cfg(feature = "sentinel-pool")]
            Self::Sentinel(pool) => {
                let lent = pool.get().await.map_err(|error| pool_error(&error))?;
                (MultiplexedConnection::clone(&lent), Borrowed::Sentinel(lent))
            }
        };
        Ok((connection, Lent { connection: Some(lent), is_useless: AtomicBool::new(false) }))
    }
}

impl Lent {
    /// It never goes back.
    pub(super) fn is_useless(&self) {
        self.is_useless.store(true, Ordering::Relaxed);
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        match self.connection.take() {
            Some(connection) if self.is_useless.load(Ordering::Relaxed) => connection.end(),
            _ => {}
        }
    }
}

impl Borrowed {
    fn end(self) {
        match self {
            Self::Server(connection) => drop(deadpool_redis::Connection::take(connection)),
            #[cfg(feature = "sentinel-pool")]
            Self::Sentinel(connection) => drop(deadpool_redis::sentinel::Connection::take(connection)),
        }
    }
}

fn pool_error(error: &PoolError) -> Error {
    match error {
        PoolError::Backend(error) => fault::error(error),
        PoolError::Timeout(_) => Error::new(ErrorKind::Timeout, "the pool gave no connection in time"),
        PoolError::Closed => Error::config("the pool is closed"),
        PoolError::NoRuntimeSpecified => Error::config("the pool has a time-out but no runtime"),
        PoolError::PostCreateHook(_) => Error::new(ErrorKind::Unavailable, "a hook of the pool refused the connection"),
    }
}
