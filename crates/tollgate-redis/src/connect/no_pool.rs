//! Stands in without the feature: no store has a pool.

use redis::aio::MultiplexedConnection;

use tollgate_core::Error;

/// There is none.
#[derive(Clone)]
pub(crate) enum Pool {}

/// There is none.
pub(super) enum LentConnection {}

impl Pool {
    pub(super) const SERVER: &str = "the redis server of the pool";

    pub(super) async fn lend(&self) -> Result<(MultiplexedConnection, LentConnection), Error> {
        match *self {}
    }
}

impl LentConnection {
    pub(super) fn discard(&self) {
        match *self {}
    }
}
