use std::{fmt, sync::Arc, time::Duration};

use redis::{AsyncConnectionConfig, aio::MultiplexedConnection};
use tokio::sync::watch;

use super::{
    address::Address,
    dial_state::{Dial, DialState, Lookup, Numbered},
    pool::{LentConnection, Pool},
    sentinel::Sentinels,
};
use crate::{
    Error, ErrorKind,
    redis::protocol::{self, ErrorClass},
};

/// Makes connections.
#[derive(Clone)]
pub(in crate::redis) enum ConnectionSource {
    Client(Arc<redis::Client>),
    Pool(Pool),
    Sentinels(Arc<Sentinels>),
}

/// Holds the one connection that all checks share.
///
/// A task of its own makes the connection. A caller that gives up does not undo that work for later callers. The
/// connection is replaced when it breaks, and never asked for again while it works.
pub(in crate::redis) struct SharedConnection {
    source: ConnectionSource,
    connect_timeout: Duration,
    state: DialState<Connection, DialReceiver>,
}

type DialReceiver = watch::Receiver<Option<DialOutcome>>;
type DialOutcome = Result<Connection, Error>;

/// A live connection. A connection that a pool lent stays lent as long as this is held.
#[derive(Clone)]
pub(in crate::redis) struct Connection {
    multiplexed: MultiplexedConnection,
    number: u64,
    lent: Option<Arc<LentConnection>>,
    /// The master that the Sentinels named.
    master: Option<Arc<Address>>,
}

impl SharedConnection {
    pub(in crate::redis) fn new(source: ConnectionSource, connect_timeout: Duration) -> Self {
        Self { source, connect_timeout, state: DialState::new() }
    }

    /// Returns how long connecting may take, and a probe.
    pub(in crate::redis) fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    /// Returns the connection, and makes it if there is none.
    pub(in crate::redis) async fn get(&self) -> Result<Connection, Error> {
        match self.state.connection() {
            Some(connection) => Ok(connection),
            None => self.dial().await,
        }
    }

    async fn dial(&self) -> Result<Connection, Error> {
        let mut receiver = {
            let (sender, receiver) = watch::channel(None);
            match self.state.connection_or_dial(&receiver) {
                Lookup::Up(connection) => return Ok(connection),
                Lookup::Dialing(receiver) => receiver,
                Lookup::Down(dial) => {
                    self.start(dial, sender);
                    receiver
                }
            }
        };
        match receiver.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().unwrap_or_else(|| Err(abandoned())),
            Err(_) => Err(abandoned()),
        }
    }

    /// Drops a connection that broke or leads to the wrong server. The next call makes a new one.
    pub(in crate::redis) fn broken(&self, connection: &Connection) {
        if let Some(lent) = &connection.lent {
            lent.discard();
        }
        self.state.broken(connection);
    }

    /// Uses a connection again that was taken for broken and is not. Returns whether it leads to the current server.
    pub(in crate::redis) fn restore(&self, connection: Connection) -> bool {
        self.state.restore(connection)
    }

    pub(in crate::redis) fn is_up(&self) -> bool {
        self.state.is_up()
    }

    /// Connects to the new server at once. The old connection, and a dial to the old server, are left to the callers
    /// that wait for an answer on them.
    pub(in crate::redis) fn renew(&self) {
        let (sender, receiver) = watch::channel(None);
        self.start(self.state.renew(receiver), sender);
    }

    /// Returns the master that the Sentinels named, while the connection to it is up.
    pub(in crate::redis) fn master(&self) -> Option<Address> {
        self.state.connection()?.master.as_deref().cloned()
    }

    /// Returns the Sentinels that name the server, if there are any.
    pub(in crate::redis) fn sentinels(&self) -> Option<&Arc<Sentinels>> {
        match &self.source {
            ConnectionSource::Sentinels(sentinels) => Some(sentinels),
            ConnectionSource::Client(_) | ConnectionSource::Pool(_) => None,
        }
    }

    fn start(&self, dial: Dial<Connection, DialReceiver>, sender: watch::Sender<Option<DialOutcome>>) {
        let (source, limit) = (self.source.clone(), self.connect_timeout);
        tokio::spawn(async move {
            let outcome = match tokio::time::timeout(limit, source.connect(dial.number())).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    Err(Error::new(ErrorKind::Timeout, format!("connecting to redis took longer than {limit:?}")))
                }
            };
            match &outcome {
                Ok(connection) => dial.made(connection.clone()),
                Err(_) => drop(dial),
            }
            sender.send_replace(Some(outcome));
        });
    }
}

impl ConnectionSource {
    async fn connect(&self, number: u64) -> Result<Connection, Error> {
        // Each check has its own deadline, and `SharedConnection` limits the time for connecting.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        match self {
            Self::Client(client) => {
                let multiplexed = client
                    .get_multiplexed_async_connection_with_config(&config)
                    .await
                    .map_err(|error| protocol::error(&error))?;
                let connection = Connection { multiplexed, number, lent: None, master: None };
                connection.ping().await?;
                Ok(connection)
            }
            Self::Pool(pool) => {
                let (multiplexed, lent) = pool.lend().await?;
                Ok(Connection { multiplexed, number, lent: Some(Arc::new(lent)), master: None })
            }
            Self::Sentinels(sentinels) => {
                let (multiplexed, master) = sentinels.connect(&config).await?;
                Ok(Connection { multiplexed, number, lent: None, master: Some(Arc::new(master)) })
            }
        }
    }
}

impl Numbered for Connection {
    fn number(&self) -> u64 {
        self.number
    }
}

impl Connection {
    /// Returns whether the connection belongs to a pool.
    pub(in crate::redis) fn is_lent(&self) -> bool {
        self.lent.is_some()
    }

    /// Waits until the server answers on this connection. Any answer counts, also a refusal of the command.
    ///
    /// The client makes a connection before the server has accepted it. So a connection is up only after an answer.
    pub(in crate::redis) async fn ping(&self) -> Result<(), Error> {
        match self.query(&redis::cmd("PING")).await {
            Ok(_) => Ok(()),
            Err(error) => match ErrorClass::of(&error) {
                ErrorClass::Refused | ErrorClass::UnknownScript if !protocol::rejects_connection(&error) => Ok(()),
                _ => Err(protocol::error(&error)),
            },
        }
    }

    /// Sends one command.
    pub(in crate::redis) async fn query(&self, command: &redis::Cmd) -> redis::RedisResult<redis::Value> {
        command.query_async(&mut self.multiplexed.clone()).await
    }

    /// Writes all commands at once. Each has its own answer.
    pub(in crate::redis) async fn query_all(
        &self,
        commands: &redis::Pipeline,
    ) -> redis::RedisResult<Vec<redis::Value>> {
        self.multiplexed.clone().send_packed_commands(commands, 0, commands.len()).await
    }
}

/// Reports that the runtime that dialled was shut down.
fn abandoned() -> Error {
    Error::new(ErrorKind::Unavailable, "connecting to redis was abandoned: its runtime was shut down")
}

impl fmt::Debug for SharedConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.fmt(f)
    }
}
