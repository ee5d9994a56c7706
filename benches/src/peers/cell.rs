//! Calls redis-cell over one shared connection. redis-cell is a server module that limits requests in native code.

use std::env;

use redis::aio::MultiplexedConnection;

use crate::{keys, load::Decide, server::Server};

/// Holds a server with the module, and a connection to it.
#[derive(Debug)]
pub(crate) struct Cell {
    server: Server,
    connection: MultiplexedConnection,
    keys: Vec<String>,
}

/// Names the environment variable with the path of the module.
const MODULE: &str = "REDIS_CELL";
/// Names the environment variable with the folder of the libraries that the module was linked with.
const LIBRARIES: &str = "REDIS_CELL_LIBRARIES";

impl Cell {
    /// Starts a server with the module. Returns `None` if the module could not be built.
    pub(crate) async fn new(keys: usize) -> Option<Self> {
        let (module, libraries) = (env::var(MODULE).ok()?, env::var(LIBRARIES).ok()?);
        let server = Server::with_module(&module, &libraries);
        let connection = super::connect(&server).await;
        Some(Self { server, connection, keys: (0..keys).map(keys::key).collect() })
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }
}

impl Decide for Cell {
    async fn decide(&self, key: usize) -> bool {
        // The same rate as for the other contestants: a million a second. It is never used up.
        let mut command = redis::cmd("CL.THROTTLE");
        command.arg(&self.keys[key]).arg([1_000_000, 1_000_000, 1, 1].as_slice());
        let reply: [i64; 5] = command.query_async(&mut self.connection.clone()).await.expect("the server answers");
        reply[0] == 0
    }
}
