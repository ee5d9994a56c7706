//! Decides without a limiter library: with a script over a shared connection, over a pool, and with
//! two round trips.

use deadpool_redis::{Config, Pool, Runtime};
use redis::{
    AsyncConnectionConfig, Client, IntoConnectionInfo, Value, aio::MultiplexedConnection,
    io::tcp::TcpSettings,
};
use tollgate::{Cost, Key, Policy};
use tollgate_test_support::calls::Script;

use crate::{
    keys,
    load::{Answer, Decide},
    server::Server,
};

/// Stores a script that is loaded into the server, and the call of it for each key.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    sha: String,
    keys: Vec<String>,
    /// Arguments after the key.
    rest: Vec<Vec<u8>>,
    /// The same arguments as text, with decimal numbers instead of packed ones.
    by_hand: Vec<String>,
}

impl Call {
    /// Loads the empty script, which is called with one key.
    pub(crate) fn noop(server: &Server, keys: impl IntoIterator<Item = String>) -> Self {
        Self {
            sha: server.load("return 1"),
            keys: keys.into_iter().collect(),
            rest: Vec::new(),
            by_hand: Vec::new(),
        }
    }

    /// Loads Tollgate's script for a single policy, which is called by hand.
    pub(crate) fn ours(
        server: &Server,
        policy: Policy,
        keys: impl IntoIterator<Item = String>,
    ) -> Self {
        let script = Script::new(policy);
        let any = Key::from("any");
        // The first four words are EVALSHA, the SHA-1, 1 and the key.
        let rest = script.check(&any, Cost::ONE, None).split_off(4);
        let by_hand = script.check_by_hand(&any, Cost::ONE, None).split_off(4);
        let key = |key| script.keys(&Key::from(key)).remove(0);
        Self {
            sha: server.load(script.text()),
            keys: keys.into_iter().map(key).collect(),
            rest,
            by_hand,
        }
    }

    /// Returns the words of the call for the first key, as text with decimal numbers.
    pub(crate) fn words_by_hand(&self) -> Vec<String> {
        let mut words = ["EVALSHA", &self.sha, "1", &self.keys[0]]
            .map(str::to_owned)
            .to_vec();
        words.extend_from_slice(&self.by_hand);
        words
    }

    /// Returns the words of the call for a key.
    pub(crate) fn words(&self, key: usize) -> Vec<Vec<u8>> {
        let mut words = ["EVALSHA", &self.sha, "1", &self.keys[key]]
            .map(|word| word.as_bytes().to_vec())
            .to_vec();
        words.extend_from_slice(&self.rest);
        words
    }

    fn command(&self, key: usize) -> redis::Cmd {
        let mut command = redis::cmd("EVALSHA");
        command
            .arg(&self.sha)
            .arg(1)
            .arg(&self.keys[key])
            .arg(&self.rest);
        command
    }
}

/// Returns whether a reply admits the request. The first number of the reply is below zero for a
/// denial.
pub(super) fn is_admitted(reply: &Value) -> bool {
    match reply {
        Value::Int(word) => *word >= 0,
        Value::Array(words) => words.first().is_some_and(is_admitted),
        _ => panic!("no script of this file replies with {reply:?}"),
    }
}

/// Calls a script over one connection that all callers share.
#[derive(Debug)]
pub(crate) struct Shared {
    connection: MultiplexedConnection,
    call: Call,
}

impl Shared {
    pub(crate) async fn new(server: &Server, call: Call) -> Self {
        Self {
            connection: connect(&server.url()).await,
            call,
        }
    }

    /// Connects to `address`, a delay line before the server.
    pub(crate) async fn at(address: &str, call: Call) -> Self {
        Self {
            connection: connect_eagerly(address).await,
            call,
        }
    }
}

/// Connects without a response timeout, so that a disturbed machine does not end the run.
pub(crate) async fn connect(url: &str) -> MultiplexedConnection {
    open(url, TcpSettings::default()).await
}

/// Connects as [`connect`] does, and sends each write at once.
///
/// By default `redis` leaves Nagle's algorithm on. At a distance, small writes then wait for the
/// answer to earlier ones.
pub(super) async fn connect_eagerly(url: &str) -> MultiplexedConnection {
    open(url, TcpSettings::default().set_nodelay(true)).await
}

async fn open(url: &str, settings: TcpSettings) -> MultiplexedConnection {
    let info = url
        .into_connection_info()
        .expect("the URL of a server of this run");
    let client = Client::open(info.set_tcp_settings(settings)).expect("the URL is valid");
    let patient = AsyncConnectionConfig::new().set_response_timeout(None);
    client
        .get_multiplexed_async_connection_with_config(&patient)
        .await
        .expect("the server is up")
}

impl Decide for Shared {
    async fn decide(&self, key: usize) -> Answer {
        let reply = self
            .call
            .command(key)
            .query_async(&mut self.connection.clone())
            .await;
        Answer::by_store(is_admitted(&reply.expect("the server answers")))
    }
}

/// Takes a connection from a pool for each decision, as the documentation of the pool shows.
pub(crate) struct PerCall {
    pool: Pool,
    call: Call,
}

impl PerCall {
    const CONNECTIONS: usize = 16;

    pub(crate) fn new(server: &Server, call: Call) -> Self {
        Self {
            pool: pool(server, Self::CONNECTIONS),
            call,
        }
    }
}

/// Creates a pool in the way in which an application creates it.
pub(crate) fn pool(server: &Server, connections: usize) -> Pool {
    let builder = Config::from_url(server.url())
        .builder()
        .expect("the server's own URL");
    builder
        .max_size(connections)
        .runtime(Runtime::Tokio1)
        .build()
        .expect("the pool has a runtime")
}

impl Decide for PerCall {
    async fn decide(&self, key: usize) -> Answer {
        let mut connection = self.pool.get().await.expect("the server is up");
        let reply = self.call.command(key).query_async(&mut connection).await;
        Answer::by_store(is_admitted(&reply.expect("the server answers")))
    }
}

/// Reads the count, compares it in the client, and then adds to it.
///
/// This takes two round trips, and can admit more requests than the limit allows. limitador's Redis
/// storage makes the same two round trips, but does more work around them. The figures show the
/// cost of a round trip, not of limitador.
#[derive(Debug)]
pub(crate) struct TwoTrips {
    connection: MultiplexedConnection,
    read: String,
    count: String,
    keys: Vec<String>,
    limit: u64,
}

const READ: &str = "return { redis.call('get', KEYS[1]), redis.call('pttl', KEYS[1]) }";
const COUNT: &str = "
local count = redis.call('incrby', KEYS[1], ARGV[2])
if count == tonumber(ARGV[2]) then
  redis.call('expire', KEYS[1], ARGV[1])
  redis.call('sadd', KEYS[2], KEYS[1])
end
return count";

impl TwoTrips {
    pub(crate) async fn new(server: &Server, keys: usize) -> Self {
        Self {
            connection: connect(&server.url()).await,
            read: server.load(READ),
            count: server.load(COUNT),
            keys: (0..keys)
                .map(|number| format!("two:{}", keys::key(number)))
                .collect(),
            limit: u64::MAX,
        }
    }
}

impl Decide for TwoTrips {
    async fn decide(&self, key: usize) -> Answer {
        let mut connection = self.connection.clone();
        let key = &self.keys[key];
        let (count, _left_ms): (Option<u64>, i64) = redis::cmd("EVALSHA")
            .arg((&self.read, 1, key))
            .query_async(&mut connection)
            .await
            .expect("the server answers");
        if count.unwrap_or(0) >= self.limit {
            return Answer::Denied;
        }
        let count: u64 = redis::cmd("EVALSHA")
            .arg((&self.count, 2, key, "two:counters", 3_600, 1))
            .query_async(&mut connection)
            .await
            .expect("the server answers");
        Answer::by_store(count <= self.limit)
    }
}
