//! Calls redis-cell over one shared connection. redis-cell is a server module that limits requests
//! in native code.

use std::env;

use redis::aio::MultiplexedConnection;

use super::connect;
use crate::{
    keys,
    load::{Answer, Decide},
    server::Server,
};

/// Holds a connection to a server with the module.
#[derive(Debug)]
pub(crate) struct Cell(MultiplexedConnection);

/// Names the environment variables with the path of the module, and with the folder of the libraries
/// that it was linked with.
const MODULE: [&str; 2] = ["REDIS_CELL", "REDIS_CELL_LIBRARIES"];

/// Sets the limit of the other contestants, a million a second, which is never used up: the burst,
/// the units that return in a number of seconds, and the cost.
const PLENTY: [u64; 4] = [1_000_000, 1_000_000, 1, 1];

impl Cell {
    /// Starts a server with the module. Returns `None` if the module could not be built.
    pub(crate) fn server() -> Option<Server> {
        let [module, libraries] = MODULE.map(env::var);
        Some(Server::with_module(&module.ok()?, &libraries.ok()?))
    }

    pub(crate) async fn new(url: &str, is_far: bool) -> Self {
        Self(connect(url, is_far).await)
    }
}

impl Decide for Cell {
    async fn decide(&self, key: usize) -> Answer {
        let mut command = redis::cmd("CL.THROTTLE");
        command.arg(&keys::all()[key]).arg(PLENTY.as_slice());
        let reply: [i64; 5] = command
            .query_async(&mut self.0.clone())
            .await
            .expect("the server answers");
        Answer::by_store(reply[0] == 0)
    }
}
