//! The store in Redis.

mod fault;
mod link;
mod plan;
mod reply;
mod script;

use std::{fmt, sync::Arc, time::Duration};

use redis::{Client, IntoConnectionInfo, Value, io::tcp::TcpSettings};

use crate::{Check, CheckFuture, Clock, Cost, Decision, Entry, Error, Key, PolicySet, Store, StoreFuture};
use fault::Fault;
use link::{Line, Link, Source};
pub(crate) use plan::Plan;
use script::Script;

#[cfg(feature = "testing")]
pub(crate) fn decode(policies: &PolicySet, cost: Cost, reply: &Value) -> Result<Decision, Error> {
    reply::decision(policies.plan(), policies, cost, reply)
}

/// A store in Redis or Valkey: every replica of the service spends from the same quota.
///
/// One decision is one script call over keys of one slot, on the server's own clock. All checks
/// of a process share one connection; a `deadpool_redis::Pool` that is handed over is asked for a
/// connection once, and again only when that one broke.
///
/// States stand under `prefix:{key}:policy:version`, and every one expires by itself.
///
/// ```no_run
/// # async fn run() -> Result<(), tollgate::Error> {
/// use tollgate::{Limiter, Policy, Quota, RedisStore};
///
/// let store = RedisStore::connect("redis://127.0.0.1/").await?;
/// let limiter = Limiter::new(store, Policy::token_bucket("api", Quota::per_second(10)));
/// assert!(limiter.check("acme").await?.is_allowed());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct RedisStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    prefix: String,
    clock: Option<Clock>,
    link: Link,
}

/// Builds a [`RedisStore`].
#[must_use = "a builder does nothing until it is built"]
pub struct RedisStoreBuilder {
    source: Origin,
    prefix: String,
    clock: Option<Clock>,
    connect_timeout: Duration,
}

enum Origin {
    Url(String),
    Client(Box<Client>),
    Pool(deadpool_redis::Pool),
}

impl RedisStore {
    /// A store at `url`, which answers: `redis://[user:password@]host[:port][/db]`,
    /// `rediss://` for TLS (feature `tls`), `unix:///path/to/socket`.
    ///
    /// # Errors
    ///
    /// The URL does not parse, nothing answers there, or the password is refused. A service that
    /// shall start while Redis is away uses [`open`](Self::open).
    pub async fn connect(url: impl Into<String>) -> Result<Self, Error> {
        let store = Self::open(url)?;
        store.ping().await?;
        Ok(store)
    }

    /// A store at `url` that connects with the first check. Until the server is there, the
    /// limiters answer as their [`Outage`](crate::Outage) says.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when the URL does not parse.
    ///
    /// ```
    /// use tollgate::RedisStore;
    ///
    /// assert!(RedisStore::open("redis://127.0.0.1:6379").is_ok());
    /// let error = RedisStore::open("http://user:hunter2@example.com").unwrap_err();
    /// assert!(!error.to_string().contains("hunter2"));
    /// ```
    pub fn open(url: impl Into<String>) -> Result<Self, Error> {
        Self::builder(url).build()
    }

    /// A store on the connections of an application's own pool.
    ///
    /// One connection is checked out, held, and shared by all checks; the pool is asked again only
    /// when that connection broke. (Its recycling costs a trip per checkout, which a checkout per
    /// decision would pay each time.)
    #[must_use]
    pub fn from_pool(pool: deadpool_redis::Pool) -> Self {
        Self::assemble(Source::Pool(pool), DEFAULT_PREFIX.to_owned(), None)
    }

    /// A store on connections of a client that the application configured.
    #[must_use]
    pub fn from_client(client: Client) -> Self {
        Self::assemble(
            Source::Client { client: client.into(), connect_timeout: CONNECT_TIMEOUT },
            DEFAULT_PREFIX.to_owned(),
            None,
        )
    }

    /// A builder for the options of a store at `url`.
    pub fn builder(url: impl Into<String>) -> RedisStoreBuilder {
        RedisStoreBuilder::new(Origin::Url(url.into()))
    }

    /// A builder for the options of a store on a pool.
    pub fn pool_builder(pool: deadpool_redis::Pool) -> RedisStoreBuilder {
        RedisStoreBuilder::new(Origin::Pool(pool))
    }

    /// A builder for the options of a store on a client.
    pub fn client_builder(client: Client) -> RedisStoreBuilder {
        RedisStoreBuilder::new(Origin::Client(Box::new(client)))
    }

    /// Asks the server whether it is there.
    ///
    /// # Errors
    ///
    /// It is not, or refuses us.
    pub async fn ping(&self) -> Result<(), Error> {
        self.0.query(&redis::cmd("PING")).await.map(drop)
    }

    fn assemble(source: Source, prefix: String, clock: Option<Clock>) -> Self {
        Self(Arc::new(Inner { prefix, clock, link: Link::new(source) }))
    }
}

const DEFAULT_PREFIX: &str = "tollgate";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long sent bytes may stay unacknowledged before the system gives the connection up.
#[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
const USER_TIMEOUT: Duration = Duration::from_secs(5);
const KEEP_ALIVE: Duration = Duration::from_secs(15);

impl Store for RedisStore {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        let inner = Arc::clone(&self.0);
        let (policies, cost) = (check.policies.clone(), check.cost);
        let call = inner.call(policies.plan(), check.key, cost, After::Tag(check.tag));
        StoreFuture::pending(async move {
            let plan = policies.plan();
            let reply = inner.run(&plan.check, call).await?;
            reply::decision(plan, &policies, cost, &reply)
        })
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        let inner = Arc::clone(&self.0);
        let policies = check.policies.clone();
        let spent_us = decision.map(Decision::at_us).filter(|&at_us| at_us > 0);
        let call = inner.call(policies.plan(), check.key, check.cost, After::Spent(spent_us));
        StoreFuture::pending(async move { inner.run(&policies.plan().refund, call).await.map(drop) })
    }

    fn reset(&self, policies: &PolicySet, key: &Key) -> StoreFuture<()> {
        let inner = Arc::clone(&self.0);
        let mut command = redis::cmd("DEL");
        for key in policies.plan().keys(&inner.prefix, key.encoded()) {
            command.arg(key);
        }
        StoreFuture::pending(async move { inner.query(&command).await.map(drop) })
    }

    fn entries(&self, policies: &PolicySet, key: &Key, limit: usize) -> StoreFuture<Vec<Entry>> {
        let log = match policies.log() {
            Ok(log) => log,
            Err(error) => return StoreFuture::ready(Err(error)),
        };
        // No log holds more than its amount.
        let limit = limit.min(log.quota().amount() as usize);
        if limit == 0 {
            return StoreFuture::ready(Ok(Vec::new()));
        }
        let inner = Arc::clone(&self.0);
        let at = policies.iter().take_while(|policy| policy.name() != log.name()).count();
        let keys = policies.plan().keys(&inner.prefix, key.encoded()).skip(at).take(1).collect();
        let call = Call { keys, args: vec![inner.now(), (limit - 1).to_string().into_bytes()] };
        let period_us = log.quota().period_us();
        StoreFuture::pending(async move {
            let reply = inner.run(Script::entries(), call).await?;
            reply::entries(period_us, reply)
        })
    }
}

/// The arguments of a script call: all that follows the script itself.
struct Call {
    keys: Vec<String>,
    args: Vec<Vec<u8>>,
}

/// The argument between the cost and those of the policies.
#[derive(Clone, Copy)]
enum After<'a> {
    Tag(&'a [u8]),
    Spent(Option<u64>),
}

impl Inner {
    fn call(&self, plan: &Plan, key: &Key, cost: Cost, after: After<'_>) -> Call {
        let keys = plan.keys(&self.prefix, key.encoded()).collect();
        let mut args = vec![self.now(), cost.units().to_string().into_bytes()];
        match after {
            After::Tag(tag) if plan.tagged => args.push(tag.to_vec()),
            After::Tag(_) => {}
            After::Spent(at_us) => args.push(at_us.map_or_else(Vec::new, |at_us| at_us.to_string().into_bytes())),
        }
        args.extend(plan.args.iter().map(|arg| arg.clone().into_bytes()));
        Call { keys, args }
    }

    /// The time as the scripts take it: empty for the server's own.
    fn now(&self) -> Vec<u8> {
        self.clock.as_ref().map_or_else(Vec::new, |clock| clock.now_us().to_string().into_bytes())
    }

    /// Runs a script by its name, and by its body when the server does not know it: then nothing
    /// ran before, so nothing is charged twice.
    async fn run(&self, script: &Script, call: Call) -> Result<Value, Error> {
        let line = self.line().await?;
        match line.query(&call.by("EVALSHA", &script.sha)).await {
            Err(error) if Fault::of(&error) == Fault::NoScript => {
                let answer = line.query(&call.by("EVAL", &script.text)).await;
                self.finish(&line, answer)
            }
            answer => self.finish(&line, answer),
        }
    }

    async fn query(&self, command: &redis::Cmd) -> Result<Value, Error> {
        let line = self.line().await?;
        let answer = line.query(command).await;
        self.finish(&line, answer)
    }

    async fn line(&self) -> Result<Line, Error> {
        match self.link.line() {
            Some(line) => Ok(line),
            None => self.link.dial().await,
        }
    }

    fn finish(&self, line: &Line, answer: redis::RedisResult<Value>) -> Result<Value, Error> {
        answer.map_err(|error| {
            if Fault::of(&error) == Fault::Connection {
                self.link.broken(line);
            }
            fault::error(&error)
        })
    }
}

impl Call {
    fn by(&self, command: &str, script: &str) -> redis::Cmd {
        let mut command = redis::cmd(command);
        command.arg(script).arg(self.keys.len()).arg(&self.keys).arg(&self.args);
        command
    }
}

impl RedisStoreBuilder {
    fn new(source: Origin) -> Self {
        Self { source, prefix: DEFAULT_PREFIX.to_owned(), clock: None, connect_timeout: CONNECT_TIMEOUT }
    }

    /// What every key begins with; `tollgate` by default. Limiters whose stores have the same
    /// prefix share the counters of policies of the same name.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The clock to decide by, instead of the server's. Weaker: replicas whose clocks differ by
    /// some time disagree by that time. For servers that refuse `TIME`, and for tests.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// How long connecting may take, 1 s by default. Checks do not wait for it longer than their
    /// own deadline. A pool has its own.
    pub fn connect_timeout(mut self, connect_timeout: Duration) -> Self {
        self.connect_timeout = connect_timeout;
        self
    }

    /// The store. It connects with the first check.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when the URL does not parse, or the prefix
    /// is empty, longer than 64 bytes, or holds a brace, a space or a control character.
    pub fn build(self) -> Result<RedisStore, Error> {
        let allowed = |byte: u8| byte.is_ascii_graphic() && byte != b'{' && byte != b'}';
        if self.prefix.is_empty() || self.prefix.len() > 64 || !self.prefix.bytes().all(allowed) {
            return Err(Error::config(format!(
                "prefix must be 1 to 64 printable ASCII characters without braces, got {:?}",
                self.prefix
            )));
        }
        let source = match self.source {
            Origin::Url(url) => Source::Client { client: client(&url)?.into(), connect_timeout: self.connect_timeout },
            Origin::Client(client) => {
                Source::Client { client: (*client).into(), connect_timeout: self.connect_timeout }
            }
            Origin::Pool(pool) => Source::Pool(pool),
        };
        Ok(RedisStore::assemble(source, self.prefix, self.clock))
    }
}

fn client(url: &str) -> Result<Client, Error> {
    // Neither the URL nor what the parser says of it is shown: a password may stand in it.
    let refused = |_| {
        Error::config(
            "the redis URL does not parse: expected redis://[user:password@]host[:port][/db], \
             rediss://… (with the feature tls) or unix:///path",
        )
    };
    let info = url.into_connection_info().map_err(refused)?;
    let keep_alive = redis::io::tcp::socket2::TcpKeepalive::new().with_time(KEEP_ALIVE);
    let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keep_alive);
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    let tcp = tcp.set_user_timeout(USER_TIMEOUT);
    Client::open(info.set_tcp_settings(tcp)).map_err(refused)
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("prefix", &self.0.prefix).field("link", &self.0.link).finish_non_exhaustive()
    }
}

impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
