use std::{fmt, time::Duration};

use redis::{Client, ConnectionInfo, IntoConnectionInfo, io::tcp::TcpSettings};

use super::{
    RedisStore,
    cluster::{Cluster, Servers},
    lane::{Lanes, Manner},
    link::{Link, Source},
};
use crate::{Clock, Error};

/// Builds a [`RedisStore`].
#[must_use = "a builder does nothing until it is built"]
pub struct RedisStoreBuilder {
    source: Origin,
    prefix: String,
    clock: Option<Clock>,
    connect_timeout: Duration,
    remembers: bool,
}

pub(super) enum Origin {
    Url(String),
    Client(Box<Client>),
    Pool(deadpool_redis::Pool),
    Cluster(Vec<String>),
}

pub(super) const DEFAULT_PREFIX: &str = "tollgate";
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long sent bytes may stay unacknowledged before the system gives the connection up.
#[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
const USER_TIMEOUT: Duration = Duration::from_secs(5);
const KEEP_ALIVE: Duration = Duration::from_secs(15);

impl RedisStoreBuilder {
    pub(super) fn new(source: Origin) -> Self {
        Self {
            source,
            prefix: DEFAULT_PREFIX.to_owned(),
            clock: None,
            connect_timeout: CONNECT_TIMEOUT,
            remembers: true,
        }
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

    /// Asks the server also where a denial is known to hold still. By default it is remembered, at
    /// most for a second, and repeated refusals cost the server nothing; a refund, a reset or a
    /// raised quota in another process is then seen up to a second late.
    pub fn without_deny_cache(mut self) -> Self {
        self.remembers = false;
        self
    }

    /// How long connecting may take, signing in and TLS included, and a [`ping`](RedisStore::ping);
    /// 1 s by default. Checks do not wait for it longer than their own deadline.
    pub fn connect_timeout(mut self, connect_timeout: Duration) -> Self {
        self.connect_timeout = connect_timeout;
        self
    }

    /// The store, connected: see [`RedisStore::connect`].
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build), and when the server does not answer or refuses us.
    pub async fn connect(self) -> Result<RedisStore, Error> {
        let store = self.build()?;
        store.ping().await?;
        store.warn().await;
        Ok(store)
    }

    /// The store. It connects with the first check.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when the URL does not parse, or the prefix
    /// is empty, longer than 64 bytes, or holds a brace, a space or a control character. Of a
    /// cluster also when there is no URL, one names a database or a socket, or they differ in more
    /// than host and port.
    pub fn build(self) -> Result<RedisStore, Error> {
        let allowed = |byte: u8| byte.is_ascii_graphic() && byte != b'{' && byte != b'}';
        if self.prefix.is_empty() || self.prefix.len() > 64 || !self.prefix.bytes().all(allowed) {
            return Err(Error::config(format!(
                "prefix must be 1 to 64 printable ASCII characters without braces, got {:?}",
                self.prefix
            )));
        }
        let manner = Manner { prefix: self.prefix, clock: self.clock };
        let source = match self.source {
            Origin::Url(url) => Source::Client(client(settings(&url)?)?.into()),
            Origin::Client(client) => Source::Client((*client).into()),
            Origin::Pool(pool) => Source::Pool(pool),
            Origin::Cluster(urls) => {
                let seeds = urls.iter().map(|url| settings(url)).collect::<Result<Vec<_>, _>>()?;
                let (servers, seeds) = Servers::of(&seeds)?;
                let cluster = Cluster::new(servers, seeds, manner.clone(), self.connect_timeout);
                return Ok(RedisStore::assemble(Lanes::Cluster(cluster), manner, self.remembers));
            }
        };
        Ok(RedisStore::at(Link::new(source, self.connect_timeout), manner, self.remembers))
    }
}

fn client(info: ConnectionInfo) -> Result<Client, Error> {
    Client::open(info).map_err(|_| unparsed())
}

/// Where a URL leads, with how we speak to it.
fn settings(url: &str) -> Result<ConnectionInfo, Error> {
    let info = url.into_connection_info().map_err(|_| unparsed())?;
    let keep_alive = redis::io::tcp::socket2::TcpKeepalive::new().with_time(KEEP_ALIVE);
    let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keep_alive);
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    let tcp = tcp.set_user_timeout(USER_TIMEOUT);
    // Whether the connection is welcome shows in the first reply, and nobody looks at that to a name.
    let redis = info.redis_settings().clone().set_skip_set_lib_name();
    Ok(info.set_tcp_settings(tcp).set_redis_settings(redis))
}

/// Neither the URL nor what the parser says of it is shown: a password may stand in it.
fn unparsed() -> Error {
    Error::config(
        "the redis URL does not parse: expected redis://[user:password@]host[:port][/db], \
         rediss://… (with the feature tls) or unix:///path",
    )
}

impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
