//! What one writes without a library: a script over a shared connection, over a pool, and in two trips.

use deadpool_redis::{Config, Pool, Runtime};
use redis::{AsyncConnectionConfig, Client, Value, aio::MultiplexedConnection};
use tollgate::{Cost, Key, Policy, testing::Script};

use crate::{keys, load::Decide, server::Server};

/// A script that the server knows, and the call of it for each key.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    sha: String,
    keys: Vec<String>,
    /// What follows the key.
    rest: Vec<Vec<u8>>,
    /// The same, as it can be typed.
    by_hand: Vec<String>,
}

impl Call {
    /// The empty script with one key.
    pub(crate) fn noop(server: &Server, keys: impl IntoIterator<Item = String>) -> Self {
        Self { sha: server.load("return 1"), keys: keys.into_iter().collect(), rest: Vec::new(), by_hand: Vec::new() }
    }

    /// Our own script for a policy that is alone, called by hand.
    pub(crate) fn ours(server: &Server, policy: Policy, keys: impl IntoIterator<Item = String>) -> Self {
        let script = Script::new(policy);
        let any = Key::from("any");
        // EVALSHA, sha, 1, key; and then:
        let rest = script.check(&any, Cost::ONE, None).split_off(4);
        let by_hand = script.check_by_hand(&any, Cost::ONE, None).split_off(4);
        let key = |key| script.keys(&Key::from(key)).remove(0);
        Self { sha: server.load(script.text()), keys: keys.into_iter().map(key).collect(), rest, by_hand }
    }

    /// The call for the first key, word by word, as it can be typed.
    pub(crate) fn words_by_hand(&self) -> Vec<String> {
        let mut words = ["EVALSHA", &self.sha, "1", &self.keys[0]].map(str::to_owned).to_vec();
        words.extend_from_slice(&self.by_hand);
        words
    }

    /// The call for a key, word by word.
    pub(crate) fn words(&self, key: usize) -> Vec<Vec<u8>> {
        let mut words = ["EVALSHA", &self.sha, "1", &self.keys[key]].map(|word| word.as_bytes().to_vec()).to_vec();
        words.extend_from_slice(&self.rest);
        words
    }

    fn command(&self, key: usize) -> redis::Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.sha).arg(1).arg(&self.keys[key]).arg(&self.rest);
        command
    }
}

/// The first word tells: below zero is a denial.
fn is_admitted(reply: &Value) -> bool {
    match reply {
        Value::Int(word) => *word >= 0,
        Value::Array(words) => words.first().is_some_and(is_admitted),
        _ => panic!("a reply that no script here makes"),
    }
}

/// One connection that all callers share.
#[derive(Debug)]
pub(crate) struct Shared {
    connection: MultiplexedConnection,
    call: Call,
}

impl Shared {
    pub(crate) async fn new(server: &Server, call: Call) -> Self {
        Self { connection: connect(server).await, call }
    }
}

/// A connection that waits for its answers however long a disturbed machine takes.
pub(crate) async fn connect(server: &Server) -> MultiplexedConnection {
    let client = Client::open(server.url()).expect("the server's own URL");
    let patient = AsyncConnectionConfig::new().set_response_timeout(None);
    client.get_multiplexed_async_connection_with_config(&patient).await.expect("the server is up")
}

impl Decide for Shared {
    async fn decide(&self, key: usize) -> bool {
        let reply = self.call.command(key).query_async(&mut self.connection.clone()).await;
        is_admitted(&reply.expect("the server answers"))
    }
}

/// A pool, asked for a connection per decision: what its documentation shows.
pub(crate) struct PerCall {
    pool: Pool,
    call: Call,
}

impl PerCall {
    const CONNECTIONS: usize = 16;

    pub(crate) fn new(server: &Server, call: Call) -> Self {
        Self { pool: pool(server, Self::CONNECTIONS), call }
    }
}

/// A pool as an application would make it.
pub(crate) fn pool(server: &Server, connections: usize) -> Pool {
    let builder = Config::from_url(server.url()).builder().expect("the server's own URL");
    builder.max_size(connections).runtime(Runtime::Tokio1).build().expect("a pool needs a runtime, and has one")
}

impl Decide for PerCall {
    async fn decide(&self, key: usize) -> bool {
        let mut connection = self.pool.get().await.expect("the server is up");
        let reply = self.call.command(key).query_async(&mut connection).await;
        is_admitted(&reply.expect("the server answers"))
    }
}

/// Read, compare in the client, then count: two trips, and more can pass than the limit says. The trips are those of
/// limitador's Redis storage, without what that does besides: it cannot stand in for it, only show what a trip costs.
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
            connection: connect(server).await,
            read: server.load(READ),
            count: server.load(COUNT),
            keys: (0..keys).map(|number| format!("two:{}", keys::key(number))).collect(),
            limit: u64::MAX,
        }
    }
}

impl Decide for TwoTrips {
    async fn decide(&self, key: usize) -> bool {
        let mut connection = self.connection.clone();
        let key = &self.keys[key];
        let (count, _left_ms): (Option<u64>, i64) = redis::cmd("EVALSHA")
            .arg((&self.read, 1, key))
            .query_async(&mut connection)
            .await
            .expect("the server answers");
        if count.unwrap_or(0) >= self.limit {
            return false;
        }
        let count: u64 = redis::cmd("EVALSHA")
            .arg((&self.count, 2, key, "two:counters", 3_600, 1))
            .query_async(&mut connection)
            .await
            .expect("the server answers");
        count <= self.limit
    }
}
