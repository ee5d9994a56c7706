//! The forms in which a user names servers: a URL, a client, a pool, Sentinels, a cluster.
//! How connections are made of them is in `builder.rs`.

use std::{fmt, io};

#[cfg(feature = "pool")]
use redis::Client;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    connect::{Pool, Streams},
    url_options::{UrlOptions, unreadable},
};
use tollgate_core::{Error, ErrorKind};

/// Names the servers of a [`RedisStore`](crate::RedisStore): a URL, a function that dials, a
/// client, or a connection pool.
///
/// | from | connects to |
/// |---|---|
/// | `redis://[user:password@]host[:port][/db]` | one server |
/// | `rediss://…` | one server, over TLS (feature `tls`) |
/// | `redis+unix:///path/to/socket` | one server, over a socket |
/// | `redis+sentinel://[user:password@]host[:port][,host…]/master[/db]` | the master that Sentinels name |
/// | `redis+cluster://[user:password@]host[:port][,host…]` | a Redis Cluster |
/// | `rediss+sentinel://…`, `rediss+cluster://…` | the same, over TLS |
/// | [`RedisSource::dial`] | one server, on the streams that a function of the application opens |
/// | a `Client` of the crate `redis` (feature `pool`) | one server, as the client is configured |
/// | a `deadpool_redis::Pool` (feature `pool`) | one server, on one connection that the pool lends |
/// | a `deadpool_redis::sentinel::Pool` (feature `sentinel-pool`) | the master, on one connection that the pool lends |
///
/// User, password and database in a URL are for the servers. Percent-encode special characters. For
/// Sentinels with credentials of their own, use [`RedisSource::sentinel`].
///
/// Options of the store may follow a question mark, as in
/// `redis://host/?prefix=shop&connect_timeout=500ms`. They override the
/// [builder](crate::RedisStoreBuilder), so that an operator can change them. Any other
/// option is refused. Where a list of URLs names the servers, each URL may have `protocol` alone,
/// as may [`server_url`](crate::RedisStoreBuilder::server_url).
///
/// | option | is |
/// |---|---|
/// | `prefix` | [`RedisStoreBuilder::prefix`](crate::RedisStoreBuilder::prefix): give each application one of its own |
/// | `connect_timeout`, as in `500ms` | [`RedisStoreBuilder::connect_timeout`](crate::RedisStoreBuilder::connect_timeout) |
/// | `deny_cache_cap`, as in `1m`, or `0` | [`RedisStoreBuilder::deny_cache_cap`](crate::RedisStoreBuilder::deny_cache_cap) |
/// | `protocol` | `resp2` or `resp3` |
/// | `db`, `user`, `pass` | database, user and password of a server behind a socket |
///
/// A URL is read when the store is built. Its text is never shown: it may contain a password.
///
/// ```
/// use tollgate::RedisStore;
///
/// for url in [
///     "redis://127.0.0.1:6379/1",
///     "redis+unix:///run/redis.sock",
///     "redis+sentinel://10.0.0.1:26379,10.0.0.2:26379/limits",
///     "redis+cluster://10.0.0.1:7000,10.0.0.2:7000",
/// ] {
///     assert!(RedisStore::open(url).is_ok(), "{url}");
/// }
/// let error = RedisStore::open("redis+sentinel://10.0.0.1:26379").unwrap_err();
/// assert!(error.to_string().contains("name of the master"));
/// ```
///
/// # Pools
///
/// The store takes one connection from the pool, which all checks share, and takes another only
/// when that connection ends. (A checkout for each decision would cost a round trip each time, to
/// recycle the connection.)
///
/// A Sentinel pool finds the master only when it connects: it notices a planned fail-over some ten
/// seconds late, and meanwhile quotas are spent on both masters. [`RedisSource::sentinel`] notices
/// a fail-over within milliseconds.
///
/// A pool for a cluster is not accepted: its calls wait without a limit, and are repeated although
/// they may have been executed.
#[derive(Clone)]
pub struct RedisSource(pub(super) SourceKind);

#[derive(Clone)]
pub(super) enum SourceKind {
    Url(String),
    #[cfg(feature = "pool")]
    Client(Box<Client>),
    #[cfg_attr(
        not(feature = "pool"),
        allow(dead_code, reason = "without the feature nothing makes a pool")
    )]
    Pool(Pool),
    Streams(Streams),
    Sentinels {
        urls: Vec<String>,
        master: String,
        server_url: Option<String>,
    },
    Cluster(Vec<String>),
}

impl RedisSource {
    /// Names a master that is found through the Sentinels at `urls`.
    ///
    /// When a Sentinel announces another master, the store connects to it at once and leaves the
    /// old one. The store also asks once a second. A connection is used only if the server itself
    /// reports that it is a master: the user needs the right `+role`. User, password and TLS of the
    /// URLs are for the Sentinels. For the servers, set
    /// [`server_url`](crate::RedisStoreBuilder::server_url), which is required when the
    /// Sentinels use TLS: without it, the servers would get everything in plain text.
    ///
    /// ```
    /// use tollgate::{RedisStore, redis::RedisSource};
    ///
    /// let source = RedisSource::sentinel(["redis://10.0.0.1:26379", "redis://10.0.0.2:26379"], "limits");
    /// let store = RedisStore::builder(source).server_url("redis://tollgate:password@any").build();
    /// assert!(store.is_ok());
    /// ```
    #[must_use]
    pub fn sentinel<U: Into<String>>(
        urls: impl IntoIterator<Item = U>,
        master: impl Into<String>,
    ) -> Self {
        let urls = urls.into_iter().map(Into::into).collect();
        Self(SourceKind::Sentinels {
            urls,
            master: master.into(),
            server_url: None,
        })
    }

    /// Names a Redis Cluster that is found through any of the servers at `urls`.
    ///
    /// The URLs differ in host and port only. User, password, protocol and TLS are the same for all
    /// servers, also for servers that the cluster names. The user needs the rights `+cluster|slots`
    /// and `+asking`.
    ///
    /// Every server that has slots has one connection, one queue and one circuit breaker, so a
    /// server that is away affects only its own slots. All policies of a key lie in one slot.
    ///
    /// When a slot moves, a check follows it within its deadline, and is sent again only if the
    /// server reports that it was not executed. While a slot moves, the checks of a key may be
    /// decided in another order, and several policies whose states are on both servers wait for the
    /// end of the move.
    ///
    /// ```
    /// use tollgate::{RedisStore, redis::RedisSource};
    ///
    /// let source = RedisSource::cluster(["redis://10.0.0.1:7000", "redis://10.0.0.2:7000"]);
    /// assert!(RedisStore::open(source).is_ok());
    ///
    /// let error = RedisStore::open(RedisSource::cluster(["redis://10.0.0.1:7000/3"])).unwrap_err();
    /// assert_eq!(error.to_string(), "a redis cluster has only database 0, got 3");
    /// ```
    #[must_use]
    pub fn cluster<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> Self {
        Self(SourceKind::Cluster(
            urls.into_iter().map(Into::into).collect(),
        ))
    }

    /// Names a server that is reached by streams which a function opens: through a proxy, a tunnel,
    /// or with a TLS library of the application's own choice.
    ///
    /// The function is called for each connection, which is rare: one is shared by all checks. It
    /// has the [time for connecting](crate::RedisStoreBuilder::connect_timeout), and the
    /// error that it returns is an outage. User, password, database and protocol stand in
    /// [`server_url`](crate::RedisStoreBuilder::server_url). If that URL begins with
    /// `rediss`, the store speaks TLS on the stream, and the host is the name that the certificate
    /// must have.
    ///
    /// The end of such a connection at rest is noticed when the stream reads it, so a function
    /// should set keep-alive where the way to the server is long.
    ///
    /// ```
    /// use tokio::net::TcpStream;
    /// use tollgate::{RedisStore, redis::RedisSource};
    ///
    /// let source = RedisSource::dial(|| async {
    ///     let stream = TcpStream::connect("127.0.0.1:6379").await?;
    ///     stream.set_nodelay(true)?;
    ///     Ok(stream)
    /// });
    /// let store = RedisStore::builder(source).server_url("redis://limits:password@any/1").build();
    /// assert!(store.is_ok());
    /// ```
    #[must_use]
    pub fn dial<F, D, S>(dial: F) -> Self
    where
        F: Fn() -> D + Send + Sync + 'static,
        D: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        Self(SourceKind::Streams(Streams::new(dial)))
    }
}

impl SourceKind {
    /// Takes the options out of a URL, takes URLs of several servers apart, and refuses an unknown
    /// scheme.
    pub(super) fn resolve(self) -> Result<(Self, UrlOptions), Error> {
        let Self::Url(url) = self else {
            return Ok((self, UrlOptions::default()));
        };
        if !url.contains("://") {
            return Err(unreadable());
        }
        let (url, options) = UrlOptions::take_from(&url)?;
        Ok((Self::servers(url)?, options))
    }

    fn servers(url: String) -> Result<Self, Error> {
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(unreadable());
        };
        let (base, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        if base == "rediss" && !cfg!(feature = "tls") {
            return Err(Error::config(format!(
                "the URL scheme {scheme} needs the feature `tls` of the crate tollgate"
            )));
        }
        match (base, kind) {
            ("redis" | "rediss", "") | ("redis", "unix") | ("unix", "") => Ok(Self::Url(url)),
            ("redis" | "rediss", "sentinel") => Hosts::parse(base, rest).sentinels(),
            ("redis" | "rediss", "cluster") => Ok(Hosts::parse(base, rest).cluster()),
            _ => Err(unknown_scheme(scheme)),
        }
    }
}

/// The parts of a URL with several hosts.
struct Hosts<'a> {
    scheme: &'a str,
    /// Ends with `@` if there is one.
    credentials: &'a str,
    hosts: &'a str,
    /// Begins with `/` if there is one.
    path: &'a str,
    /// Begins with `?` if there is one.
    query: &'a str,
}

const SENTINEL_PORT: u16 = 26_379;
const SERVER_PORT: u16 = 6_379;

impl<'a> Hosts<'a> {
    fn parse(scheme: &'a str, rest: &'a str) -> Self {
        let (rest, query) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (credentials, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        Self {
            scheme,
            credentials,
            hosts,
            path,
            query,
        }
    }

    fn sentinels(&self) -> Result<SourceKind, Error> {
        let mut parts = self.path.split('/').skip(1);
        let master = parts.next().filter(|master| !master.is_empty()).ok_or_else(|| {
            Error::config(
                "a sentinel URL must end with the name of the master: redis+sentinel://host[:port][,host…]/master[/db]",
            )
        })?;
        let db = parts.next().unwrap_or_default();
        let Self {
            scheme,
            credentials,
            query,
            ..
        } = self;
        Ok(SourceKind::Sentinels {
            urls: self.urls("", SENTINEL_PORT),
            master: master.to_owned(),
            server_url: Some(format!("{scheme}://{credentials}any/{db}{query}")),
        })
    }

    fn cluster(&self) -> SourceKind {
        SourceKind::Cluster(self.urls(self.credentials, SERVER_PORT))
    }

    fn urls(&self, credentials: &str, port: u16) -> Vec<String> {
        let path = if credentials.is_empty() && port == SENTINEL_PORT {
            ""
        } else {
            self.path
        };
        let url = |host: &str| {
            // A colon in brackets belongs to an IPv6 address.
            let has_port = host.rsplit(']').next().is_some_and(|end| end.contains(':'));
            let port = if has_port {
                String::new()
            } else {
                format!(":{port}")
            };
            format!(
                "{}://{credentials}{host}{port}{path}{}",
                self.scheme, self.query
            )
        };
        self.hosts
            .split(',')
            .filter(|host| !host.is_empty())
            .map(url)
            .collect()
    }
}

/// Reports a scheme that is not known. A password cannot stand before `://`, unless the URL is
/// garbled.
fn unknown_scheme(scheme: &str) -> Error {
    let is_plain = (1..=20).contains(&scheme.len())
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'+');
    match is_plain {
        true => Error::new(
            ErrorKind::Config,
            format!(
                "the URL scheme must be redis, rediss, redis+unix, redis+sentinel or redis+cluster, got {scheme:?}"
            ),
        ),
        false => unreadable(),
    }
}

impl From<&str> for RedisSource {
    fn from(url: &str) -> Self {
        Self(SourceKind::Url(url.to_owned()))
    }
}

impl From<String> for RedisSource {
    fn from(url: String) -> Self {
        Self(SourceKind::Url(url))
    }
}

impl From<&String> for RedisSource {
    fn from(url: &String) -> Self {
        Self(SourceKind::Url(url.clone()))
    }
}

#[cfg(feature = "pool")]
impl From<Client> for RedisSource {
    fn from(client: Client) -> Self {
        Self(SourceKind::Client(Box::new(client)))
    }
}

#[cfg(feature = "pool")]
impl From<deadpool_redis::Pool> for RedisSource {
    fn from(pool: deadpool_redis::Pool) -> Self {
        Self(SourceKind::Pool(Pool::Server(pool)))
    }
}

#[cfg(feature = "sentinel-pool")]
impl From<deadpool_redis::sentinel::Pool> for RedisSource {
    fn from(pool: deadpool_redis::sentinel::Pool) -> Self {
        Self(SourceKind::Pool(Pool::Sentinel(pool)))
    }
}

impl fmt::Debug for RedisSource {
    /// Leaves out URLs: they may contain passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            SourceKind::Url(_) => "RedisSource::Url(..)",
            #[cfg(feature = "pool")]
            SourceKind::Client(_) => "RedisSource::Client(..)",
            SourceKind::Pool(_) => "RedisSource::Pool(..)",
            SourceKind::Streams(_) => "RedisSource::Streams(..)",
            SourceKind::Sentinels { .. } => "RedisSource::Sentinels(..)",
            SourceKind::Cluster(_) => "RedisSource::Cluster(..)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(url: &str) -> SourceKind {
        RedisSource::from(url)
            .0
            .resolve()
            .unwrap_or_else(|error| panic!("{url}: {error}"))
            .0
    }

    #[test]
    fn a_sentinel_url_names_sentinels_master_and_servers() {
        let SourceKind::Sentinels {
            urls,
            master,
            server_url,
        } = resolved(
            "redis+sentinel://u:p%40@10.0.0.1,[fe80::1]:9,[fe80::2]/limits/3?protocol=resp3",
        )
        else {
            panic!("no sentinels")
        };
        let expected = [
            "redis://10.0.0.1:26379",
            "redis://[fe80::1]:9",
            "redis://[fe80::2]:26379",
        ];
        assert_eq!(urls, expected.map(|url| format!("{url}?protocol=resp3")));
        assert_eq!(master, "limits");
        assert_eq!(
            server_url.as_deref(),
            Some("redis://u:p%40@any/3?protocol=resp3")
        );
    }

    #[test]
    fn a_cluster_url_names_servers_with_the_same_credentials() {
        let SourceKind::Cluster(urls) = resolved("redis+cluster://u:p@a:7000,b,") else {
            panic!("no cluster")
        };
        assert_eq!(urls, ["redis://u:p@a:7000", "redis://u:p@b:6379"]);
    }

    #[test]
    fn a_wrong_url_is_refused_without_its_text() {
        let message = |url: &str| {
            RedisSource::from(url)
                .0
                .resolve()
                .err()
                .expect("an error")
                .to_string()
        };
        assert!(message("http://u:hunter2@h").contains("got \"http\""));
        assert!(message("redis+sentinel://h:1").contains("name of the master"));
        for url in ["u:hunter2@h", "", "://", "u:hunter2@h://x"] {
            let message = message(url);
            assert!(
                message.starts_with("the redis URL is not valid") && !message.contains("hunter2"),
                "{message}"
            );
        }
        #[cfg(not(feature = "tls"))]
        for url in ["rediss://h", "rediss+cluster://h"] {
            assert!(message(url).contains("needs the feature `tls`"), "{url}");
        }
    }
}
