use std::{fmt, sync::Arc, time::Duration};

use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, io::tcp::TcpSettings};

use super::{
    RedisStore,
    cluster::{self, Cluster},
    denials,
    lane::{Lanes, Manner},
    link::{Link, Source},
    pool::Pool,
    sentinel::Sentinels,
    servers::Servers,
};
use crate::{Clock, Error};

/// Builds a [`RedisStore`].
#[must_use = "a builder does nothing until it is built"]
pub struct RedisStoreBuilder {
    source: Origin,
    server_url: Option<String>,
    prefix: String,
    clock: Option<Clock>,
    connect_timeout: Duration,
    deny_cache_cap: Duration,
    #[cfg(feature = "tls")]
    tls: super::tls::Certificates,
}

pub(super) enum Origin {
    Url(String),
    Client(Box<Client>),
    Pool(Pool),
    Sentinels { urls: Vec<String>, master: String },
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
            server_url: None,
            prefix: DEFAULT_PREFIX.to_owned(),
            clock: None,
            connect_timeout: CONNECT_TIMEOUT,
            deny_cache_cap: denials::CAP,
            #[cfg(feature = "tls")]
            tls: super::tls::Certificates::default(),
        }
    }

    /// What every key begins with; `tollgate` by default. Limiters whose stores have the same
    /// prefix share the counters of policies of the same name.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How to speak to the servers that Sentinels name: user, password, database, protocol and TLS
    /// of this URL. Its host and port are not looked at.
    pub fn server_url(mut self, url: impl Into<String>) -> Self {
        self.server_url = Some(url.into());
        self
    }

    /// The clock to decide by, instead of the server's. Weaker: replicas whose clocks differ by
    /// some time disagree by that time. For servers that refuse `TIME`, and for tests.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// For how long a denial is remembered at the most, 1 s by default: while it is known to hold still, repeated refusals
    /// cost the server nothing. A refund, a reset or a raised quota in another process may be seen so much later. Zero
    /// remembers none.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::RedisStore;
    ///
    /// // A minute between two tries, and nobody gives units back: no need to ask again each second.
    /// let store = RedisStore::builder("redis://127.0.0.1").deny_cache_cap(Duration::from_secs(60)).build();
    /// assert!(store.is_ok());
    /// ```
    pub fn deny_cache_cap(mut self, cap: Duration) -> Self {
        self.deny_cache_cap = cap;
        self
    }

    /// Asks the server also where a denial is known to hold still: a [cap](Self::deny_cache_cap) of zero.
    pub fn without_deny_cache(self) -> Self {
        self.deny_cache_cap(Duration::ZERO)
    }

    /// The authorities that may sign the server's certificate, in PEM, instead of those of the
    /// platform. For `rediss://` URLs.
    #[cfg(feature = "tls")]
    pub fn root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls.roots = Some(pem.into());
        self
    }

    /// The certificate, with those that lead to its authority, and the key to show to a server that
    /// asks for them, both in PEM. For `rediss://` URLs.
    #[cfg(feature = "tls")]
    pub fn client_certificate(mut self, certificate_pem: impl Into<Vec<u8>>, key_pem: impl Into<Vec<u8>>) -> Self {
        self.tls.identity = Some((certificate_pem.into(), key_pem.into()));
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
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when the URL does not parse, the prefix is
    /// empty, longer than 64 bytes, or holds a brace, a space or a control character, or
    /// certificates do not parse or are given where there is no `rediss://` URL. Of a cluster also when there is no
    /// URL, one names a database or a socket, or they differ in more than host and port.
    pub fn build(self) -> Result<RedisStore, Error> {
        let allowed = |byte: u8| byte.is_ascii_graphic() && byte != b'{' && byte != b'}';
        if self.prefix.is_empty() || self.prefix.len() > 64 || !self.prefix.bytes().all(allowed) {
            return Err(Error::config(format!(
                "prefix must be 1 to 64 printable ASCII characters without braces, got {:?}",
                self.prefix
            )));
        }
        if self.server_url.is_some() && !matches!(self.source, Origin::Sentinels { .. }) {
            return Err(Error::config("a server URL is for a store that is found through sentinels"));
        }
        #[cfg(feature = "tls")]
        if self.tls.is_some() && matches!(self.source, Origin::Client(_) | Origin::Pool(_)) {
            return Err(Error::config("certificates are for a store at a rediss:// URL: a client or pool has its own"));
        }
        let manner = Manner::new(self.prefix.clone(), self.clock.clone(), self.deny_cache_cap);
        let source = match &self.source {
            Origin::Url(url) => Source::Client(self.client(settings(url)?, true)?.into()),
            Origin::Client(client) => Source::Client(Client::clone(client).into()),
            Origin::Pool(pool) => Source::Pool(pool.clone()),
            Origin::Sentinels { urls, master } => Source::Sentinels(self.sentinels(urls, master)?),
            Origin::Cluster(urls) => {
                let seeds = urls.iter().map(|url| settings(url)).collect::<Result<Vec<_>, _>>()?;
                let nodes = cluster::nodes(&seeds)?;
                // What is wrong with it is told now, and not when a server is away.
                let servers = self.servers(seeds[0].clone(), true)?;
                let cluster = Cluster::new(servers, nodes, manner.clone(), self.connect_timeout);
                return Ok(RedisStore::assemble(Lanes::Cluster(cluster), manner));
            }
        };
        Ok(RedisStore::at(Link::new(source, self.connect_timeout), manner))
    }

    fn sentinels(&self, urls: &[String], master: &str) -> Result<Arc<Sentinels>, Error> {
        if urls.is_empty() {
            return Err(Error::config("sentinels must be 1 at least, got 0"));
        }
        let clients = urls.iter().map(|url| self.client(settings(url)?, false)).collect::<Result<_, _>>()?;
        let info = settings(self.server_url.as_deref().unwrap_or("redis://any"))?;
        if matches!(info.addr(), ConnectionAddr::Unix(_)) {
            return Err(Error::config("sentinels name servers by host and port, the server URL is of a socket"));
        }
        Ok(Sentinels::new(clients, master.to_owned(), self.servers(info, false)?))
    }

    /// Servers that are spoken to in this way, once that is known to be possible.
    fn servers(&self, info: ConnectionInfo, needs_tls: bool) -> Result<Servers, Error> {
        Ok(Servers {
            info: self.client(info, needs_tls)?.get_connection_info().clone(),
            #[cfg(feature = "tls")]
            tls: self.tls.clone(),
        })
    }

    #[cfg_attr(not(feature = "tls"), allow(unused_variables, reason = "certificates are for TLS"))]
    fn client(&self, info: ConnectionInfo, needs_tls: bool) -> Result<Client, Error> {
        #[cfg(feature = "tls")]
        if let Some(client) = self.tls.client(&info, needs_tls)? {
            return Ok(client);
        }
        Client::open(info).map_err(|_| unparsed())
    }
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
