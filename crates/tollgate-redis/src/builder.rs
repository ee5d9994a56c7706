//! The options of a store, and how its connections are put together from a source.
//! The forms of sources are in `source.rs`, options in a URL in `url_options.rs`.

use std::{sync::Arc, time::Duration};

use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, io::tcp::TcpSettings};

use super::{
    RedisStore,
    backend::Servers,
    cluster::{self, Cluster},
    connect::{
        Certificates, ConnectionSource, ConnectionTemplate, Dialer, Sentinels, SharedConnection,
    },
    deny_cache,
    dispatch::{Sender, StoreConfig},
    source::{RedisSource, SourceKind},
    url_options::{UrlOptions, unreadable, unreadable_part},
};
use tollgate_core::{Error, store::Clock};
use tollgate_remote::credentials::Provider;

/// Builds a [`RedisStore`].
///
/// ```
/// use std::time::Duration;
/// use tollgate::RedisStore;
///
/// let builder = RedisStore::builder("redis://127.0.0.1:6379").prefix("shop").connect_timeout(Duration::from_secs(2));
/// assert!(builder.build().is_ok());
/// ```
#[must_use = "a builder does nothing until `build` or `connect` is called"]
pub struct RedisStoreBuilder {
    source: RedisSource,
    server_url: Option<String>,
    prefix: String,
    clock: Option<Clock>,
    connect_timeout: Duration,
    deny_cache_cap: Duration,
    tls: Certificates,
    provider: Option<Provider>,
}

impl RedisStore {
    /// Connects to `source`, and waits until the server has made one check. Logs what
    /// [`diagnose`](Self::diagnose) finds.
    ///
    /// Use [`open`](Self::open) if the service has to start while Redis is away.
    ///
    /// # Errors
    ///
    /// When the source is not valid, when the server does not answer or refuses the user or the
    /// password, or when it cannot decide: it is a replica, a Sentinel or older than Redis 6.2, the
    /// user lacks a right, or the server accepts no writes now.
    pub async fn connect(source: impl Into<RedisSource>) -> Result<Self, Error> {
        Self::builder(source).connect().await
    }

    /// Creates a store that connects with its first use: a check, or a limiter with [counted
    /// replicas](tollgate_core::limiter::Replicas::Counted), the default. Until the server answers, the
    /// [`Outage`](tollgate_core::Outage) of each limiter decides. When the server refuses the first check
    /// because it is a replica, a Sentinel or too old, the log says so.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](tollgate_core::ErrorKind::Config) when the source is not valid.
    ///
    /// ```
    /// use tollgate::RedisStore;
    ///
    /// assert!(RedisStore::open("redis://127.0.0.1:6379").is_ok());
    /// let error = RedisStore::open("http://user:hunter2@example.com").unwrap_err();
    /// assert!(!error.to_string().contains("hunter2"));
    /// ```
    pub fn open(source: impl Into<RedisSource>) -> Result<Self, Error> {
        Self::builder(source).build()
    }

    /// Returns a builder for the options.
    pub fn builder(source: impl Into<RedisSource>) -> RedisStoreBuilder {
        RedisStoreBuilder::new(source.into())
    }
}

const DEFAULT_PREFIX: &str = "tollgate";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const LONGEST_CONNECT_TIMEOUT: Duration = Duration::from_secs(86_400);

/// The time that sent bytes may stay unacknowledged before the system gives the connection up.
#[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
const USER_TIMEOUT: Duration = Duration::from_secs(5);
const KEEP_ALIVE: Duration = Duration::from_secs(15);

impl RedisStoreBuilder {
    fn new(source: RedisSource) -> Self {
        Self {
            source,
            server_url: None,
            prefix: DEFAULT_PREFIX.to_owned(),
            clock: None,
            connect_timeout: CONNECT_TIMEOUT,
            deny_cache_cap: deny_cache::DEFAULT_CAP,
            tls: Certificates::default(),
            provider: None,
        }
    }

    /// Sets the first part of every key. `tollgate` by default. The [option `prefix`](RedisSource)
    /// of a URL wins.
    ///
    /// Stores with the same prefix share the counters of policies with the same name. So give each
    /// application a prefix of its own where several use one server.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets user, password, database, protocol and TLS for the servers that Sentinels name, or that
    /// a function [dials](RedisSource::dial). The port of this URL is ignored, and so is the host,
    /// except as the name for TLS where a function dials. Required when the URL of a Sentinel
    /// begins with `rediss://`.
    pub fn server_url(mut self, url: impl Into<String>) -> Self {
        self.server_url = Some(url.into());
        self
    }

    /// Sets what is asked for user and password, where they [change](tollgate_remote::credentials).
    ///
    /// They are for the servers, also for those that Sentinels or a cluster name. A connection that
    /// is up is signed in again with new ones before the old ones end. The URL may name the user.
    ///
    /// ```
    /// use tollgate::{RedisStore, credentials::{Credentials, Provider}};
    ///
    /// let provider = Provider::new(|| async { Ok(Credentials::new("of this minute")) });
    /// let store = RedisStore::builder("redis://limits:hunter2@host").credentials(provider).build();
    /// assert_eq!(store.unwrap_err().to_string(), "credentials are set, and the redis URL has a password as well");
    /// ```
    pub fn credentials(mut self, provider: Provider) -> Self {
        self.provider = Some(provider);
        self
    }

    /// Sets a clock of the process, which decides instead of the server's clock.
    ///
    /// Use it for servers that refuse `TIME`, and for tests. The guarantee is then weaker: replicas
    /// disagree by as much as their clocks differ.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Sets how long a denial is remembered in the process at most. 1 s by default. Zero remembers
    /// none.
    ///
    /// While a denial is remembered, repeated requests cost the server nothing. But a refund, a
    /// reset or a raised quota in another process may take effect here that much later. The
    /// [`remaining`](tollgate_core::limiter::PolicyState::remaining) units are also remembered, although
    /// other requests may have spent them since.
    /// [`Decision::is_remembered`](tollgate_core::Decision::is_remembered) shows such a denial.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::RedisStore;
    ///
    /// // One attempt a minute, and no process refunds: it is enough to ask the server once a minute.
    /// let store = RedisStore::builder("redis://127.0.0.1").deny_cache_cap(Duration::from_secs(60)).build();
    /// assert!(store.is_ok());
    /// ```
    pub fn deny_cache_cap(mut self, cap: Duration) -> Self {
        self.deny_cache_cap = cap;
        self
    }

    /// Sets the certificate authorities that may sign the server's certificate, in PEM, instead of
    /// those of the platform. For `rediss://` URLs.
    #[cfg(feature = "tls")]
    pub fn root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls.roots = Some(pem.into());
        self
    }

    /// Sets the client certificate, with its chain, and its key, both in PEM. For `rediss://` URLs.
    #[cfg(feature = "tls")]
    pub fn client_certificate(
        mut self,
        certificate_pem: impl Into<Vec<u8>>,
        key_pem: impl Into<Vec<u8>>,
    ) -> Self {
        self.tls.identity = Some((certificate_pem.into(), key_pem.into()));
        self
    }

    /// Sets how long connecting may take, authentication and TLS included, and how long a
    /// [`ping`](RedisStore::ping) may take. 1 s by default, never zero, a day at most. Sentinels
    /// have half of it to name the master. A check waits for a connection no longer than its own
    /// deadline.
    pub fn connect_timeout(mut self, connect_timeout: Duration) -> Self {
        self.connect_timeout = connect_timeout;
        self
    }

    /// Builds the store, and waits until the server has made one check: see
    /// [`RedisStore::connect`].
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build) and [`RedisStore::connect`].
    pub async fn connect(self) -> Result<RedisStore, Error> {
        let store = self.build()?;
        store.ping().await?;
        store.backend().prove().await?;
        store.log_findings().await;
        Ok(store)
    }

    /// Builds the store, without waiting for the server: see [`RedisStore::open`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](tollgate_core::ErrorKind::Config) when
    ///
    /// - a URL is not valid, has an unknown [option](RedisSource) or one that belongs to the
    ///   builder, or needs a feature that is not enabled;
    /// - the prefix is empty, longer than 64 bytes, or contains a brace, a space or a control
    ///   character;
    /// - [`connect_timeout`](Self::connect_timeout) is zero, or longer than a day;
    /// - certificates are not valid PEM, or are set without a `rediss://` URL;
    /// - Sentinels use TLS, and [`server_url`](Self::server_url) is not set;
    /// - [`credentials`](Self::credentials) are set, and a URL or a client has a password, or the
    ///   source is a pool;
    /// - no Sentinel, or no server of a cluster, is named; URLs of a cluster name a database or a
    ///   socket, or differ in more than host and port.
    pub fn build(self) -> Result<RedisStore, Error> {
        let (kind, url) = self.source.0.clone().resolve()?;
        let prefix = url.prefix.unwrap_or_else(|| self.prefix.clone());
        let (connect_timeout, deny_cache_cap) = (
            url.connect_timeout.unwrap_or(self.connect_timeout),
            url.deny_cache_cap.unwrap_or(self.deny_cache_cap),
        );
        let is_allowed = |byte: u8| byte.is_ascii_graphic() && byte != b'{' && byte != b'}';
        if prefix.is_empty() || prefix.len() > 64 || !prefix.bytes().all(is_allowed) {
            return Err(Error::config(format!(
                "prefix must be 1 to 64 printable ASCII characters without braces, got {prefix:?}"
            )));
        }
        if connect_timeout.is_zero() || connect_timeout > LONGEST_CONNECT_TIMEOUT {
            return Err(Error::config(format!(
                "connect_timeout must be above 0 and at most 1 day, got {connect_timeout:?}"
            )));
        }
        let has_server_url = matches!(kind, SourceKind::Sentinels { .. } | SourceKind::Streams(_));
        if self.server_url.is_some() && !has_server_url {
            return Err(Error::config(
                "server_url is set, but the servers are not found through sentinels",
            ));
        }
        let has_own_tls = match kind {
            #[cfg(feature = "pool")]
            SourceKind::Client(_) => true,
            SourceKind::Pool(_) => true,
            _ => false,
        };
        if self.tls.is_some() && has_own_tls {
            return Err(Error::config(
                "certificates need a rediss:// URL: a client or a pool has its own certificates",
            ));
        }
        if self.provider.is_some() && matches!(kind, SourceKind::Pool(_)) {
            return Err(Error::config(
                "credentials need a URL or a client: a pool signs in by its own settings",
            ));
        }
        let config = StoreConfig::new(prefix, self.clock.clone(), deny_cache_cap);
        let source = match kind {
            SourceKind::Url(url) => {
                ConnectionSource::Client(self.signed_in(settings(&url)?)?.into())
            }
            #[cfg(feature = "pool")]
            SourceKind::Client(client) => {
                self.without_password(client.get_connection_info().clone())?;
                let dialer = Dialer::new(*client, None, self.provider.as_ref());
                ConnectionSource::Client(dialer.into())
            }
            SourceKind::Pool(pool) => ConnectionSource::Pool(pool),
            SourceKind::Streams(streams) => {
                let dialer = self.signed_in(of_servers(self.server_url.as_deref())?)?;
                ConnectionSource::Client(dialer.with_streams(streams).into())
            }
            SourceKind::Sentinels {
                urls,
                master,
                server_url,
            } => {
                let server_url = self.server_url.clone().or(server_url);
                ConnectionSource::Sentinels(self.sentinels(
                    &urls,
                    &master,
                    server_url.as_deref(),
                    connect_timeout,
                )?)
            }
            SourceKind::Cluster(urls) => {
                let cluster = self.cluster(&urls, config.clone(), connect_timeout)?;
                return Ok(RedisStore::new(Servers::Cluster(cluster), &config));
            }
        };
        let shared = SharedConnection::new(source, connect_timeout);
        let sender = Sender::new(shared, &config, false);
        Ok(RedisStore::new(Servers::One(sender), &config))
    }

    fn cluster(
        &self,
        urls: &[String],
        config: StoreConfig,
        connect_timeout: Duration,
    ) -> Result<Arc<Cluster>, Error> {
        let seeds = urls
            .iter()
            .map(|url| settings(url))
            .collect::<Result<Vec<_>, _>>()?;
        let addresses = cluster::addresses(&seeds)?;
        // Certificates that are not valid are reported now, not when a server is away.
        let template = self.template(seeds[0].clone(), true)?;
        Ok(Cluster::new(template, addresses, config, connect_timeout))
    }

    fn sentinels(
        &self,
        urls: &[String],
        master: &str,
        server_url: Option<&str>,
        connect_timeout: Duration,
    ) -> Result<Arc<Sentinels>, Error> {
        if urls.is_empty() {
            return Err(Error::config("sentinel URLs must be at least 1, got 0"));
        }
        let sentinels = urls
            .iter()
            .map(|url| settings(url))
            .collect::<Result<Vec<_>, _>>()?;
        let have_tls = sentinels
            .iter()
            .any(|info| matches!(info.addr(), ConnectionAddr::TcpTls { .. }));
        if have_tls && server_url.is_none() {
            return Err(Error::config(
                "the sentinels use TLS, and server_url is not set: set it to rediss://any, or to \
                 redis://any for servers without TLS",
            ));
        }
        let dialers = sentinels
            .into_iter()
            .map(|info| {
                Ok(Dialer::new(
                    self.client(info, false)?,
                    Some(&self.tls),
                    None,
                ))
            })
            .collect::<Result<_, Error>>()?;
        let info = of_servers(server_url)?;
        Ok(Sentinels::new(
            dialers,
            master.to_owned(),
            // Certificates may be for the Sentinels alone.
            self.template(info, !have_tls)?,
            connect_timeout / 2,
        ))
    }

    /// Returns the settings for servers that are named later, after a check that they are valid.
    fn template(&self, info: ConnectionInfo, needs_tls: bool) -> Result<ConnectionTemplate, Error> {
        let info = self.without_password(info)?;
        Ok(ConnectionTemplate {
            info: self.client(info, needs_tls)?.get_connection_info().clone(),
            tls: self.tls.clone(),
            provider: self.provider.clone(),
        })
    }

    /// Refuses a password where a provider is asked for it.
    fn without_password(&self, info: ConnectionInfo) -> Result<ConnectionInfo, Error> {
        match self.provider.is_some() && info.redis_settings().password().is_some() {
            true => Err(Error::config(
                "credentials are set, and the redis URL has a password as well",
            )),
            false => Ok(info),
        }
    }

    /// Returns the dialer for the one server, with user and password of the URL or of a provider.
    fn signed_in(&self, info: ConnectionInfo) -> Result<Dialer, Error> {
        let client = self.client(self.without_password(info)?, true)?;
        Ok(Dialer::new(client, Some(&self.tls), self.provider.as_ref()))
    }

    fn client(&self, info: ConnectionInfo, needs_tls: bool) -> Result<Client, Error> {
        if let Some(client) = self.tls.client(&info, needs_tls)? {
            return Ok(client);
        }
        Client::open(info).map_err(|_| unreadable())
    }
}

/// Returns the settings for servers that are found elsewhere, whose address is not that of the URL.
fn of_servers(server_url: Option<&str>) -> Result<ConnectionInfo, Error> {
    let info = settings(server_url.unwrap_or("redis://any"))?;
    match info.addr() {
        ConnectionAddr::Unix(_) => Err(Error::config(
            "server_url must be a redis:// or rediss:// URL, got a socket path",
        )),
        _ => Ok(info),
    }
}

/// Reads a URL without options of the store, and adds the settings of every connection.
fn settings(url: &str) -> Result<ConnectionInfo, Error> {
    UrlOptions::refuse_in(url)?;
    let info = url
        .into_connection_info()
        .map_err(|_| unreadable_part(url))?;
    let keep_alive = redis::io::tcp::socket2::TcpKeepalive::new().with_time(KEEP_ALIVE);
    let tcp = TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(keep_alive);
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    let tcp = tcp.set_user_timeout(USER_TIMEOUT);
    // The first reply shows whether the server accepts the connection. The client would drop the
    // reply to `CLIENT SETINFO`.
    let redis = info.redis_settings().clone().set_skip_set_lib_name();
    Ok(info.set_tcp_settings(tcp).set_redis_settings(redis))
}

tollgate_core::debug_fields! { RedisStoreBuilder: source, prefix, .. }
