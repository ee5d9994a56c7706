//! Calls redis-cell over one shared connection. redis-cell is a server module that limits requests
//! in native code.

use std::{env, sync::Arc};

use redis::aio::MultiplexedConnection;

use super::{Costs, plain::connect_eagerly};
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
    rates: Vec<Rate>,
    costs: Costs,
}

/// Sets the limit of a key: its burst, and the units that return in a second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub(crate) burst: u64,
    pub(crate) per_second: u64,
}

/// Names the environment variable with the path of the module.
const MODULE: &str = "REDIS_CELL";
/// Names the environment variable with the folder of the libraries that the module was linked with.
const LIBRARIES: &str = "REDIS_CELL_LIBRARIES";

/// Sets the limit of the other contestants: a million a second. It is never used up.
pub(crate) const PLENTY: Rate = Rate {
    burst: 1_000_000,
    per_second: 1_000_000,
};

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
            rates: vec![PLENTY],
            costs: Costs::one(),
        })
    }

    /// Starts a server with the module, without a connection. Returns `None` if the module could
    /// not be built.
    pub(crate) fn start() -> Option<Arc<Server>> {
        let (module, libraries) = (env::var(MODULE).ok()?, env::var(LIBRARIES).ok()?);
        Some(Arc::new(Server::with_module(&module, &libraries)))
    }

    /// Connects to `address`, which is the server or a delay line before it. The number of a key
    /// selects its rate.
    pub(crate) async fn on(
        server: Arc<Server>,
        address: &str,
        rates: Vec<Rate>,
        keys: usize,
        costs: Costs,
    ) -> Self {
        let connection = connect_eagerly(address).await;
        Self {
            server,
            connection,
            keys: keys::first(keys).collect(),
            rates,
            costs,
        }
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }
}

impl Decide for Cell {
    async fn decide(&self, key: usize) -> Answer {
        let Rate { burst, per_second } = self.rates[key % self.rates.len()];
        let mut command = redis::cmd("CL.THROTTLE");
        command
            .arg(&self.keys[key])
            .arg([burst, per_second, 1, self.costs.next()].as_slice());
        let reply: [i64; 5] = command
            .query_async(&mut self.connection.clone())
            .await
            .expect("the server answers");
        Answer::by_store(reply[0] == 0)
    }
}
