//! Decides without a limiter library: with a script over a shared connection, over a pool, in
//! pipelines, and with two round trips.

use deadpool_redis::{Config, Pool, Runtime};
use redis::{
    AsyncConnectionConfig, Client, IntoConnectionInfo, Value, aio::MultiplexedConnection,
    io::tcp::TcpSettings,
};
use tollgate::{Cost, Key, PolicySet};
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
    /// The keys of the call for each of [`keys::all`].
    keys: Vec<Vec<String>>,
    /// The arguments behind the keys.
    arguments: Vec<Vec<u8>>,
    /// The least number at the beginning of a reply that admits.
    admitting: i64,
}

impl Call {
    /// Loads a script that replies with 1 when it admits. `keys` makes the keys of a call.
    pub(crate) fn new(
        server: &Server,
        script: &str,
        keys: impl Fn(&str) -> Vec<String>,
        arguments: &[&str],
    ) -> Self {
        Self {
            sha: server.load(script),
            keys: keys::all().iter().map(|key| keys(key)).collect(),
            arguments: arguments.iter().map(|word| (*word).into()).collect(),
            admitting: 1,
        }
    }

    /// Loads the empty script, which is called with one key.
    pub(crate) fn noop(server: &Server) -> Self {
        Self::new(server, "return 1", |key| vec![key.to_owned()], &[])
    }

    /// Loads Tollgate's script for these policies, which is called by hand.
    pub(crate) fn ours(server: &Server, policies: impl Into<PolicySet>) -> Self {
        let script = Script::new(policies);
        let any = Key::from("any");
        let words = script.check(&any, Cost::ONE, None);
        // The first words are EVALSHA, the SHA-1, the number of keys, and the keys.
        let arguments = words[3 + script.keys(&any).len()..].to_vec();
        Self {
            arguments,
            admitting: 0,
            ..Self::new(
                server,
                script.text(),
                |key| script.keys(&Key::from(key)),
                &[],
            )
        }
    }

    fn command(&self, key: usize) -> redis::Cmd {
        let keys = &self.keys[key];
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.sha).arg(keys.len()).arg(keys);
        command.arg(&self.arguments);
        command
    }

    fn answer(&self, reply: &Value) -> Answer {
        let first = match reply {
            Value::Array(words) => words.first(),
            word => Some(word),
        };
        match first {
            Some(Value::Int(word)) => Answer::by_store(*word >= self.admitting),
            _ => panic!("no script of these benches replies with {reply:?}"),
        }
    }
}

/// Connects without a response timeout, so that a disturbed machine does not end the run.
///
/// By default `redis` leaves Nagle's algorithm on. Far away, small writes then wait for the answer to
/// earlier ones, so it is off there.
pub(crate) async fn connect(url: &str, is_far: bool) -> MultiplexedConnection {
    let settings = TcpSettings::default().set_nodelay(is_far);
    let info = url.into_connection_info().expect("the URL of a server");
    let client = Client::open(info.set_tcp_settings(settings)).expect("the URL is valid");
    let patient = AsyncConnectionConfig::new().set_response_timeout(None);
    client
        .get_multiplexed_async_connection_with_config(&patient)
        .await
        .expect("the server is up")
}

/// Calls a script over one connection that all callers share.
#[derive(Debug)]
pub(crate) struct Shared(MultiplexedConnection, Call);

impl Shared {
    pub(crate) async fn new(url: &str, is_far: bool, call: Call) -> Self {
        Self(connect(url, is_far).await, call)
    }
}

impl Decide for Shared {
    async fn decide(&self, key: usize) -> Answer {
        let Self(connection, call) = self;
        let reply = call.command(key).query_async(&mut connection.clone()).await;
        call.answer(&reply.expect("the server answers"))
    }
}

/// Takes a connection from a pool for each decision, as the documentation of the pool shows.
pub(crate) struct PerCall(Pool, Call);

impl PerCall {
    const CONNECTIONS: usize = 16;

    pub(crate) fn new(server: &Server, call: Call) -> Self {
        let config = Config::from_url(server.url()).builder();
        let pool = config
            .expect("the server's own URL")
            .max_size(Self::CONNECTIONS)
            .runtime(Runtime::Tokio1);
        Self(pool.build().expect("the pool has a runtime"), call)
    }
}

impl Decide for PerCall {
    async fn decide(&self, key: usize) -> Answer {
        let Self(pool, call) = self;
        let mut connection = pool.get().await.expect("the server is up");
        let reply = call.command(key).query_async(&mut connection).await;
        call.answer(&reply.expect("the server answers"))
    }
}

/// Calls a script for many keys in a pipeline, which is one decision here, over many connections.
#[derive(Debug)]
pub(crate) struct Pipelined(Vec<MultiplexedConnection>, Call);

impl Pipelined {
    pub(crate) const CONNECTIONS: usize = 50;
    pub(crate) const CALLS: usize = 16;

    pub(crate) async fn new(server: &Server, call: Call) -> Self {
        let mut connections = Vec::new();
        for _ in 0..Self::CONNECTIONS {
            connections.push(connect(&server.url(), true).await);
        }
        Self(connections, call)
    }
}

impl Decide for Pipelined {
    async fn decide(&self, key: usize) -> Answer {
        let Self(connections, call) = self;
        let mut pipeline = redis::pipe();
        for next in 0..Self::CALLS {
            pipeline.add_command(call.command((key + next) % keys::KEYS));
        }
        let mut connection = connections[key % Self::CONNECTIONS].clone();
        let replies: Vec<Value> = pipeline
            .query_async(&mut connection)
            .await
            .expect("the server answers");
        let is_admitted = |reply| call.answer(reply) == Answer::Admitted;
        Answer::by_store(replies.iter().all(is_admitted))
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
    pub(crate) async fn new(server: &Server) -> Self {
        Self {
            connection: connect(&server.url(), false).await,
            read: server.load(READ),
            count: server.load(COUNT),
        }
    }
}

impl Decide for TwoTrips {
    async fn decide(&self, key: usize) -> Answer {
        let mut connection = self.connection.clone();
        let (key, limit) = (&keys::all()[key], u64::MAX);
        let (count, _left_ms): (Option<u64>, i64) = redis::cmd("EVALSHA")
            .arg((&self.read, 1, key))
            .query_async(&mut connection)
            .await
            .expect("the server answers");
        if count.unwrap_or(0) >= limit {
            return Answer::Denied;
        }
        let count: u64 = redis::cmd("EVALSHA")
            .arg((&self.count, 2, key, "two:counters", 3_600, 1))
            .query_async(&mut connection)
            .await
            .expect("the server answers");
        Answer::by_store(count <= limit)
    }
}
