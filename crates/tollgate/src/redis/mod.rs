//! The store in Redis.

mod asked;
mod batch;
mod breaker;
mod builder;
mod cluster;
mod connection;
mod denials;
mod diagnosis;
mod engine;
mod fault;
mod generation;
mod job;
mod lane;
mod link;
mod plan;
mod pool;
mod probe;
mod queue;
mod reply;
mod script;
mod sentinel;
mod servers;
mod slots;
#[cfg(feature = "tls")]
mod tls;
mod turn;
mod watch;

/// What [`breaker`], [`generation`], [`queue`] and [`slots`] are built from; a model checker brings its own.
mod sync {
    pub(super) use std::sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU32, AtomicU64, Ordering, fence},
    };

    pub(super) use arc_swap::ArcSwapOption;
}

use std::{fmt, hash::BuildHasher, iter, sync::Arc};

use foldhash::fast::RandomState;
use redis::Client;

use crate::{Check, CheckFuture, Decision, Entry, Error, Key, PolicySet, Store, StoreFuture};
pub(crate) use asked::Asked;
pub use builder::RedisStoreBuilder;
use builder::{CONNECT_TIMEOUT, DEFAULT_PREFIX, Origin};
use connection::Connection;
use denials::Denials;
pub use diagnosis::Finding;
use lane::{Lane, Lanes, Manner};
use link::{Link, Source};
pub(crate) use plan::Plan;
use pool::Pool;
use script::Script;
pub(crate) use turn::{Late, Turn};
pub(crate) use watch::Watch;

#[cfg(feature = "testing")]
pub(crate) use script::args;

#[cfg(feature = "testing")]
pub(crate) fn decode(policies: &PolicySet, cost: crate::Cost, reply: &redis::Value) -> Result<Decision, Error> {
    reply::decision(policies.plan(), policies, cost, reply)
}

#[cfg(feature = "testing")]
pub(crate) fn decode_batch(
    policies: &PolicySet,
    keys: &[(Key, usize)],
    cost: crate::Cost,
    reply: &redis::Value,
) -> Result<Vec<Vec<Decision>>, Error> {
    let counted = keys.iter().any(|&(_, count)| count != 1);
    let counts = keys.iter().map(|&(_, count)| count);
    let outcomes = reply::outcomes(policies.plan(), policies, counts, counted, reply)?;
    let of = |(outcome, &(_, count)): (Result<reply::Outcome, Error>, &(Key, usize))| {
        let outcome = outcome?;
        Ok((0..count).map(|at| outcome.decision(at, policies, cost)).collect())
    };
    outcomes.zip(keys).map(of).collect()
}

#[cfg(feature = "testing")]
pub(crate) fn decode_entries(period_us: u64, reply: redis::Value) -> Result<Vec<crate::Entry>, Error> {
    reply::entries(period_us, reply)
}

/// A store in Redis or Valkey: every replica of the service spends from the same quota.
///
/// One decision is one atomic step of a script over keys of one slot, on the server's own clock.
/// All checks of a process share one connection; a `deadpool_redis::Pool` that is handed over is
/// asked for a connection once, and again only when that one broke. A lone check leaves at once;
/// checks that come while others are under way gather, and leave together in one call.
///
/// A denial is remembered in the process for as long as it holds, at most a second, so that a
/// client who keeps asking costs the server nothing. Only what another process does within that
/// second (a refund, a reset, a raised quota) is then seen late; see
/// [`deny_cache_cap`](RedisStoreBuilder::deny_cache_cap).
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
    hasher: RandomState,
    lanes: Lanes,
    denials: Option<Arc<Denials>>,
}

impl RedisStore {
    /// A store at `url`, which answers: `redis://[user:password@]host[:port][/db]`,
    /// `rediss://` for TLS (feature `tls`), `unix:///path/to/socket`. What
    /// [`diagnose`](Self::diagnose) finds wrong with it is logged.
    ///
    /// # Errors
    ///
    /// The URL does not parse, nothing answers there, or the password is refused. A service that
    /// shall start while Redis is away uses [`open`](Self::open).
    pub async fn connect(url: impl Into<String>) -> Result<Self, Error> {
        Self::builder(url).connect().await
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
        Self::on(Source::Pool(Pool::Server(pool)))
    }

    /// A store on the connections of an application's own pool that finds the master through
    /// Sentinels, as [`from_pool`](Self::from_pool).
    ///
    /// Such a pool asks for the master only when it makes a connection, so a planned fail-over is
    /// noticed when the old master is demoted, some ten seconds later; until then both masters
    /// spend. [`sentinel`](Self::sentinel) notices at once.
    #[cfg(feature = "sentinel-pool")]
    #[must_use]
    pub fn from_sentinel_pool(pool: deadpool_redis::sentinel::Pool) -> Self {
        Self::on(Source::Pool(Pool::Sentinel(pool)))
    }

    /// A store on connections of a client that the application configured.
    #[must_use]
    pub fn from_client(client: Client) -> Self {
        Self::on(Source::Client(client.into()))
    }

    /// A builder for the options of a store at `url`.
    pub fn builder(url: impl Into<String>) -> RedisStoreBuilder {
        RedisStoreBuilder::new(Origin::Url(url.into()))
    }

    /// A builder for the options of a store on a pool.
    pub fn pool_builder(pool: deadpool_redis::Pool) -> RedisStoreBuilder {
        RedisStoreBuilder::new(Origin::Pool(Pool::Server(pool)))
    }

    /// A builder for the options of a store on a pool that finds the master through Sentinels.
    #[cfg(feature = "sentinel-pool")]
    pub fn sentinel_pool_builder(pool: deadpool_redis::sentinel::Pool) -> RedisStoreBuilder {
        RedisStoreBuilder::new(Origin::Pool(Pool::Sentinel(pool)))
    }

    /// A builder for the options of a store on a client.
    pub fn client_builder(client: Client) -> RedisStoreBuilder {
        RedisStoreBuilder::new(Origin::Client(Box::new(client)))
    }

    /// A builder for a store at the master of this name, found through Sentinels at `urls`.
    ///
    /// When a Sentinel tells that another server is the master now, a connection to that one is
    /// made at once and the old one is left; who is the master is asked again each second as well.
    /// A connection is used only where the server says itself that it is a master (`+role` is a
    /// right for that). User, password and TLS of the URLs are for the Sentinels; for the servers
    /// there is [`server_url`](RedisStoreBuilder::server_url).
    ///
    /// ```
    /// use tollgate::RedisStore;
    ///
    /// let store = RedisStore::sentinel(["redis://10.0.0.1:26379", "redis://10.0.0.2:26379"], "limits")
    ///     .server_url("redis://tollgate:password@any")
    ///     .build();
    /// assert!(store.is_ok());
    /// ```
    pub fn sentinel<U>(urls: impl IntoIterator<Item = U>, master: impl Into<String>) -> RedisStoreBuilder
    where
        U: Into<String>,
    {
        let urls = urls.into_iter().map(Into::into).collect();
        RedisStoreBuilder::new(Origin::Sentinels { urls, master: master.into() })
    }

    /// A builder for a store in a Redis Cluster, which is found through any of the servers at
    /// `urls`. They differ in host and port alone: user, password, protocol and TLS are the same
    /// for all servers, named or found.
    ///
    /// Each server that has slots has one connection, one queue and one breaker, so that one which
    /// is away takes with it what it has and no more. All policies of a key lie in one slot. Where
    /// a slot moves, a check follows it within its deadline: it is sent again only where the server
    /// says that it did not run. Checks of one key are decided in the order they came as long as
    /// its slot stays where it is; while it moves they may overtake each other. A set of several
    /// policies waits for the end of the move when some of its keys are at either end, or new.
    ///
    /// The user needs `+cluster|slots` and `+asking`. A pool of connections to a cluster
    /// (`deadpool_redis::cluster`) is no way in: its calls wait without limit, and are repeated
    /// where they may have run.
    ///
    /// ```
    /// use tollgate::RedisStore;
    ///
    /// let store = RedisStore::cluster(["redis://10.0.0.1:7000", "redis://10.0.0.2:7000"]).build();
    /// assert!(store.is_ok());
    ///
    /// let error = RedisStore::cluster(["redis://10.0.0.1:7000/3"]).build().unwrap_err();
    /// assert_eq!(error.to_string(), "a redis cluster has database 0 alone, got 3");
    /// ```
    pub fn cluster<U>(urls: impl IntoIterator<Item = U>) -> RedisStoreBuilder
    where
        U: Into<String>,
    {
        RedisStoreBuilder::new(Origin::Cluster(urls.into_iter().map(Into::into).collect()))
    }

    /// Asks the server whether it is there; of a cluster every server that has slots.
    ///
    /// # Errors
    ///
    /// It is not, refuses us, or does not answer within the
    /// [time for connecting](RedisStoreBuilder::connect_timeout).
    pub async fn ping(&self) -> Result<(), Error> {
        self.0.lanes.ping().await
    }

    /// Whether checks are sent to the server. They are not from the moment three in a row ran into
    /// their deadline, or no connection could be made, until the server answers a probe: then they
    /// are answered at once, as the limiter's [`Outage`](crate::Outage) says. Of a cluster: to every
    /// server that has slots.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.0.lanes.is_asked()
    }

    fn on(source: Source) -> Self {
        let manner = Manner::new(DEFAULT_PREFIX.to_owned(), None, denials::CAP);
        Self::at(Link::new(source, CONNECT_TIMEOUT), manner)
    }

    /// A store at one server.
    fn at(link: Link, manner: Manner) -> Self {
        Self::assemble(Lanes::One(Lane::new(link, manner.clone(), false)), manner)
    }

    fn assemble(lanes: Lanes, Manner { prefix, denials, .. }: Manner) -> Self {
        Self(Arc::new(Inner { prefix, hasher: RandomState::default(), lanes, denials }))
    }
}

impl Inner {
    /// Units may have come back to the key.
    fn forget(&self, key: &Key) {
        if let Some(denials) = &self.denials {
            denials.forget(key, self.hasher.hash_one(key));
        }
    }
}

impl Store for RedisStore {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        let hash = self.hash(check.key);
        if let Some(denied) = self.denied(&check, hash) {
            return denied;
        }
        match self.ask(check, hash, None) {
            Ok(Asked::Turn(turn)) => StoreFuture::pending(async move { turn.await? }),
            Ok(Asked::Route(route, _)) => StoreFuture::pending(route),
            Err(why) => StoreFuture::ready(Err(why)),
        }
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        if let Some(why) = self.0.lanes.refusal(check.key) {
            return StoreFuture::ready(Err(why));
        }
        let inner = Arc::clone(&self.0);
        let (policies, key, cost) = (check.policies.clone(), check.key.clone(), check.cost);
        let spent_us = decision.map(Decision::at_us).filter(|&at_us| at_us > 0);
        StoreFuture::pending(async move {
            let plan = policies.plan();
            let reply = inner.lanes.run(&key, &plan.refund, policies.len(), |connection, command| {
                connection.keys(plan, iter::once(&key), command);
                let spent = spent_us.map_or(-1.0, |at_us| at_us as f64);
                command.arg(&*plan.pack(&[connection.now(), cost.units().into(), spent]));
            });
            let reply = reply.await;
            inner.forget(&key);
            reply.map(drop)
        })
    }

    fn reset(&self, policies: &PolicySet, key: &Key) -> StoreFuture<()> {
        if let Some(why) = self.0.lanes.refusal(key) {
            return StoreFuture::ready(Err(why));
        }
        let (inner, policies, key) = (Arc::clone(&self.0), policies.clone(), key.clone());
        StoreFuture::pending(async move {
            let keys = |connection: &Connection, command: &mut redis::Cmd| {
                connection.keys(policies.plan(), iter::once(&key), command);
            };
            let reply = inner.lanes.query(&key, "DEL", keys).await;
            inner.forget(&key);
            reply.map(drop)
        })
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
        if let Some(why) = self.0.lanes.refusal(key) {
            return StoreFuture::ready(Err(why));
        }
        let inner = Arc::clone(&self.0);
        let (alone, key, period_us) = (PolicySet::from(log.clone()), key.clone(), log.quota().period_us());
        StoreFuture::pending(async move {
            let reply = inner.lanes.run(&key, Script::entries(), 1, |connection, command| {
                connection.keys(alone.plan(), iter::once(&key), command);
                // Two numbers for people: it is not called often.
                let now = connection.now();
                command.arg(if now < 0.0 { String::new() } else { format!("{now}") }).arg(limit - 1);
            });
            reply::entries(period_us, reply.await?)
        })
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("prefix", &self.0.prefix)
            .field("lanes", &self.0.lanes)
            .field("is_asked", &self.is_asked())
            .finish_non_exhaustive()
    }
}
