//! Calls redis-cell over one shared connection. redis-cell is a server module that limits requests
//! in native code.

use std::{env, sync::Arc};

use redis::aio::MultiplexedConnection;

use super::plain::connect_eagerly;
use crate::{
    keys,
    load::{Answer, Decide},
    server::Server,
};

/// Holds a server with the module, and a connection to it.
#[derive(Debug)]
pub(crate) struct Cell {
    server: Arc<Server>,
    connection: MultiplexedConnection,
    keys: Vec<String>,
}

/// Names the environment variable with the path of the module.
const MODULE: &str = "REDIS_CELL";
/// Names the environment variable with the folder of the libraries that the module was linked with.
const LIBRARIES: &str = "REDIS_CELL_LIBRARIES";

/// Sets the limit of the other contestants, a million a second, which is never used up: the burst,
/// the units that return in a number of seconds, and the cost.
const PLENTY: [u64; 4] = [1_000_000, 1_000_000, 1, 1];

impl Cell {
    /// Starts a server with the module. Returns `None` if the module could not be built.
    pub(crate) async fn new(keys: usize) -> Option<Self> {
        let server = Self::start()?;
        let connection = super::connect(&server.url()).await;
        let keys = keys::first(keys).collect();
        Some(Self {
            server,
            connection,
            keys,
        })
    }

    /// Starts a server with the module, without a connection. Returns `None` if the module could
    /// not be built.
    pub(crate) fn start() -> Option<Arc<Server>> {
        let (module, libraries) = (env::var(MODULE).ok()?, env::var(LIBRARIES).ok()?);
        Some(Arc::new(Server::with_module(&module, &libraries)))
    }

    /// Connects to `address`, a delay line before the server.
    pub(crate) async fn at(server: Arc<Server>, address: &str, keys: usize) -> Self {
        Self {
            server,
            connection: connect_eagerly(address).await,
            keys: keys::first(keys).collect(),
        }
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }
}

impl Decide for Cell {
    async fn decide(&self, key: usize) -> Answer {
        let mut command = redis::cmd("CL.THROTTLE");
        command.arg(&self.keys[key]).arg(PLENTY.as_slice());
        let reply: [i64; 5] = command
            .query_async(&mut self.connection.clone())
            .await
            .expect("the server answers");
        Answer::by_store(reply[0] == 0)
    }
}
