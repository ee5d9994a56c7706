//! redis-cell, which limits inside the server, as a module in native code; asked over one shared connection.

use std::env;

use redis::aio::MultiplexedConnection;

use crate::{keys, load::Decide, server::Server};

/// A server with the module, and a connection to it.
#[derive(Debug)]
pub(crate) struct Cell {
    server: Server,
    connection: MultiplexedConnection,
    keys: Vec<String>,
}

/// The module, and the libraries of the toolchain that it was built with.
const MODULE: &str = "REDIS_CELL";
const LIBRARIES: &str = "REDIS_CELL_LIBRARIES";

impl Cell {
    /// `None` where the module could not be built.
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
        // As many as ours: a million a second, never used up.
        let mut command = redis::cmd("CL.THROTTLE");
        command.arg(&self.keys[key]).arg([1_000_000, 1_000_000, 1, 1].as_slice());
        let reply: [i64; 5] = command.query_async(&mut self.connection.clone()).await.expect("the server answers");
        reply[0] == 0
    }
}
