//! The options of a store, and how its connections are made.
//! What a store does once it is built is in `store.rs`, what runs on a connection in `database.rs`.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use deadpool_postgres::{
    ClientWrapper, Hook, HookError, Manager, ManagerConfig, Pool, PoolConfig, RecyclingMethod,
    Runtime, Timeouts,
};
use tokio_postgres::config::{Config, TargetSessionAttrs};
use tollgate_core::{
    Error, ErrorKind, Store,
    store::{Clock, StoreFuture},
};
use tollgate_remote::{Scheme, credentials::Provider};

use crate::{
    Durability, PostgresStore, database::Database, dial::Dialer, replies::ReplyBound, table::Table,
};

/// Builds a [`PostgresStore`].
///
/// ```
/// use std::num::NonZeroUsize;
/// use tollgate_postgres::PostgresStore;
///
/// let builder = PostgresStore::builder("postgres://app@127.0.0.1/shop").table("limits");
/// let store = builder.connections(NonZeroUsize::MIN).build();
/// assert!(store.is_ok());
/// ```
#[must_use = "a builder does nothing until `build` or `connect` is called"]
pub struct PostgresStoreBuilder {
    source: Source,
    table: String,
    connections: Option<NonZeroUsize>,
    creates: Option<Durability>,
    connect_timeout: Duration,
    deny_cache_cap: Duration,
    clock: Option<Clock>,
    provider: Option<Provider>,
}

#[derive(Clone)]
enum Source {
    Url(String),
    Pool(Pool),
}

/// The connections of a process. Each is a process of the server, and decides up to 128 checks at
/// a time.
const CONNECTIONS: NonZeroUsize = NonZeroUsize::new(4).expect("not zero");

/// The greatest `max_connections` of a server.
const MOST_CONNECTIONS: NonZeroUsize = NonZeroUsize::new(262_143).expect("not zero");

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

const DENY_CACHE_CAP: Duration = Duration::from_secs(1);

/// The time that sent bytes may stay unacknowledged before the system gives the connection up.
const USER_TIMEOUT: Duration = Duration::from_secs(5);
const KEEP_ALIVE: Duration = Duration::from_secs(15);

impl PostgresStore {
    /// Connects to the database of a URL, and waits until the table was found. Use
    /// [`open`](Self::open) if the service has to start while the database is away.
    ///
    /// | option in the URL | sets |
    /// |---|---|
    /// | `table` | [`table`](PostgresStoreBuilder::table) |
    /// | `create` | [`create`](PostgresStoreBuilder::create): `logged` or `unlogged` |
    /// | `connections` | [`connections`](PostgresStoreBuilder::connections) |
    /// | `connect_timeout`, `sslmode`, `options`, `application_name` … | as the programs of PostgreSQL do |
    ///
    /// Several hosts may stand in a URL, as in `postgres://one,two/shop`: the one that accepts
    /// writes is used.
    ///
    /// # Errors
    ///
    /// When the URL is not valid, the server does not answer or refuses the user, or the table is
    /// missing or another one.
    pub async fn connect(url: impl Into<String>) -> Result<Self, Error> {
        Self::builder(url).connect().await
    }

    /// Creates a store that connects with its first use. Until the server answers, the
    /// [`Outage`](tollgate_core::Outage) of each limiter decides.
    ///
    /// ```
    /// use tollgate_postgres::PostgresStore;
    ///
    /// assert!(PostgresStore::open("postgres://app@127.0.0.1/shop?table=limits").is_ok());
    /// let error = PostgresStore::open("postgres://app:hunter2@db/shop?tabel=limits").unwrap_err();
    /// assert!(!error.to_string().contains("hunter2"));
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] when the URL is not valid.
    pub fn open(url: impl Into<String>) -> Result<Self, Error> {
        Self::builder(url).build()
    }

    /// Returns a builder for the options of a store at this URL.
    pub fn builder(url: impl Into<String>) -> PostgresStoreBuilder {
        PostgresStoreBuilder::new(Source::Url(url.into()))
    }

    /// Returns a builder for a store that uses the connections of a pool of the application.
    ///
    /// The store changes no setting of its sessions: `docs/postgres.md` of the repository says which
    /// they should have. The pool needs as many connections more as the store has
    /// [batches](PostgresStoreBuilder::connections).
    pub fn over(pool: Pool) -> PostgresStoreBuilder {
        PostgresStoreBuilder::new(Source::Pool(pool))
    }
}

impl PostgresStoreBuilder {
    fn new(source: Source) -> Self {
        Self {
            source,
            table: "tollgate".to_owned(),
            connections: None,
            creates: None,
            connect_timeout: CONNECT_TIMEOUT,
            deny_cache_cap: DENY_CACHE_CAP,
            clock: None,
            provider: None,
        }
    }

    /// Sets the table, with or without a schema. `tollgate` by default.
    ///
    /// Stores on the same table share the counters of policies with the same name. So give each
    /// application a table of its own where several use one database.
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// Creates the table when it is missing. By default, a missing table is an error: a migration
    /// makes it by the SQL of [`schema`](crate::schema).
    pub fn create(mut self, durability: Durability) -> Self {
        self.creates = Some(durability);
        self
    }

    /// Sets how many connections the store has: batches that are under way at a time. 4 by
    /// default, and at most 262 143. More are of use only where a round trip takes long.
    pub fn connections(mut self, connections: NonZeroUsize) -> Self {
        self.connections = Some(connections);
        self
    }

    /// Sets how long connecting may take, authentication and TLS included. 1 s by default.
    ///
    /// It may be longer than the deadline of checks: a connection is also made when nobody waits for
    /// it any more, and a later check uses it. A pool of the application has timeouts of its own:
    /// without a caller, it has twice this time.
    pub fn connect_timeout(mut self, connect_timeout: Duration) -> Self {
        self.connect_timeout = connect_timeout;
        self
    }

    /// Sets how long a denial is remembered in the process at most. 1 s by default. Zero remembers
    /// none.
    ///
    /// While a denial is remembered, repeated requests cost the database nothing. But a refund, a
    /// reset or a raised quota in another process may take effect here that much later.
    pub fn deny_cache_cap(mut self, cap: Duration) -> Self {
        self.deny_cache_cap = cap;
        self
    }

    /// Sets what is asked for user and password, where they [change](tollgate_remote::credentials). The
    /// URL may name the user. PostgreSQL asks for a password when a connection begins, so those
    /// that are up remain.
    ///
    /// ```
    /// use tollgate::credentials::{Credentials, Provider};
    /// use tollgate_postgres::PostgresStore;
    ///
    /// let provider = Provider::new(|| async { Ok(Credentials::new("of this minute")) });
    /// let store = PostgresStore::builder("postgres://app@127.0.0.1/shop").credentials(provider).build();
    /// assert!(store.is_ok());
    /// ```
    pub fn credentials(mut self, provider: Provider) -> Self {
        self.provider = Some(provider);
        self
    }

    /// Sets a clock of the process, which decides instead of the server's, for tests.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Builds the store, and waits until the table was found: see [`PostgresStore::connect`].
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build), and when the server does not answer, refuses the user, or has no
    /// such table.
    pub async fn connect(self) -> Result<PostgresStore, Error> {
        let store = self.build()?;
        store.ping().await?;
        Ok(store)
    }

    /// Builds the store, without waiting for the server: see [`PostgresStore::open`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] when the URL is not valid, has an option that is not known, or needs a
    /// feature that is not enabled; when the name of the table is not valid; when
    /// [`connect_timeout`](Self::connect_timeout) is zero, or there are more than 262 143
    /// [`connections`](Self::connections); and when [`credentials`](Self::credentials) are set, and
    /// the URL has a password or the connections are those of a pool.
    pub fn build(mut self) -> Result<PostgresStore, Error> {
        let connections = match self.source.clone() {
            Source::Pool(_) if self.provider.is_some() => {
                return Err(config(
                    "credentials need a URL: a pool signs in by its own settings",
                ));
            }
            Source::Pool(pool) => (pool, ReplyBound::default()),
            Source::Url(url) => {
                let url = self.take_options(&url)?;
                self.pool(&url)?
            }
        };
        if self.connect_timeout.is_zero() {
            return Err(Error::new(
                ErrorKind::Config,
                format!(
                    "connect_timeout must be above zero, got {:?}",
                    self.connect_timeout
                ),
            ));
        }
        let lanes = self.lanes()?;
        let database = Database::new(
            connections,
            Table::new(&self.table)?,
            self.creates,
            self.clock,
            self.provider,
            lanes,
            self.connect_timeout,
        );
        Ok(PostgresStore::new(database, lanes, self.deny_cache_cap))
    }

    /// Takes the options of the store out of a URL. Those of the client stay in it.
    fn take_options(&mut self, url: &str) -> Result<String, Error> {
        let Some((base, query)) = url.split_once('?') else {
            return Ok(url.to_owned());
        };
        let mut left = Vec::new();
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            match (name, value) {
                ("table", table) => self.table = table.to_owned(),
                ("create", "logged") => self.creates = Some(Durability::Logged),
                ("create", "unlogged") => self.creates = Some(Durability::Unlogged),
                ("create", _) => {
                    return Err(config(
                        "the option create of the postgres URL must be logged or unlogged",
                    ));
                }
                ("connections", count) => {
                    let count = count.parse().map_err(|_| {
                        config(
                            "the option connections of the postgres URL must be a number above 0",
                        )
                    });
                    self.connections = Some(count?);
                }
                _ => left.push(option),
            }
        }
        match left.is_empty() {
            true => Ok(base.to_owned()),
            false => Ok(format!("{base}?{}", left.join("&"))),
        }
    }

    /// Returns the number of batches that are under way at a time.
    fn lanes(&self) -> Result<NonZeroUsize, Error> {
        match self.connections.unwrap_or(CONNECTIONS) {
            lanes if lanes > MOST_CONNECTIONS => Err(Error::new(
                ErrorKind::Config,
                format!("connections must be at most {MOST_CONNECTIONS}, got {lanes}"),
            )),
            lanes => Ok(lanes),
        }
    }

    /// Returns a pool of connections, and the bound of the replies on them.
    fn pool(&mut self, url: &str) -> Result<(Pool, ReplyBound), Error> {
        // The words of the parser may contain a part of the password.
        let mut config: Config = url.parse().map_err(|_| {
            config(
                "the postgres URL is not valid: expected postgres://[user[:password]@]host[:port][,host…][/database][?options]",
            )
        })?;
        if self.provider.is_some() && config.get_password().is_some() {
            return Err(self::config(
                "credentials are set, and the postgres URL has a password as well",
            ));
        }
        let connect_timeout = config
            .get_connect_timeout()
            .copied()
            .unwrap_or(self.connect_timeout);
        self.connect_timeout = connect_timeout;
        config
            .connect_timeout(connect_timeout)
            .target_session_attrs(TargetSessionAttrs::ReadWrite)
            .keepalives_idle(KEEP_ALIVE)
            .tcp_user_timeout(USER_TIMEOUT);
        // The name of the host is that for which TLS is asked.
        if config.get_hosts().is_empty() {
            let addresses: Vec<_> = config.get_hostaddrs().to_vec();
            for address in addresses {
                config.host(address.to_string());
            }
        }
        if config.get_application_name().is_none() {
            config.application_name("tollgate");
        }
        // One more for what is no batch: a probe, and the removal of rows.
        let mut settings = PoolConfig::new(self.lanes()?.get() + 1);
        settings.timeouts = Timeouts {
            wait: Some(connect_timeout),
            create: Some(connect_timeout),
            recycle: Some(connect_timeout),
        };
        let bound = ReplyBound::default();
        let manager = Manager::from_connect(
            config.clone(),
            Dialer::new(&config, self.provider.clone(), bound.clone())?,
            ManagerConfig {
                recycling_method: RecyclingMethod::Fast,
            },
        );
        // The pool would log each connection that has ended once more.
        let is_up = Hook::sync_fn(|client: &mut ClientWrapper, _| match client.is_closed() {
            true => Err(HookError::message("the connection has ended")),
            false => Ok(()),
        });
        let pool = Pool::builder(manager)
            .config(settings)
            .runtime(Runtime::Tokio1)
            .pre_recycle(is_up)
            .build();
        Ok((pool.map_err(|_| config_error())?, bound))
    }
}

/// Lets `tollgate::open` and `tollgate::connect` take `postgres://` URLs. Call it once, before
/// them.
///
/// ```
/// tollgate_postgres::register();
/// assert!(tollgate::open("postgres://app@127.0.0.1/shop").is_ok());
/// ```
pub fn register() {
    tollgate_remote::register(Scheme {
        names: &["postgres", "postgresql"],
        open: |url| Ok(Arc::new(PostgresStore::open(url)?)),
        connect: |url| {
            let url = url.to_owned();
            StoreFuture::pending(async move {
                let store: Arc<dyn Store> = Arc::new(PostgresStore::connect(url).await?);
                Ok(store)
            })
        },
    });
}

fn config(message: &'static str) -> Error {
    Error::new(ErrorKind::Config, message)
}

fn config_error() -> Error {
    config("the pool of connections to postgres cannot be built")
}

// Leaves out the URL, which may contain a password.
tollgate_core::debug_fields! { PostgresStoreBuilder: table, connections, .. }

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the message of the error that is due to an option.
    fn refused(builder: PostgresStoreBuilder) -> String {
        let error = builder.build().expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Config);
        error.to_string()
    }

    /// Returns a builder of each source.
    fn builders() -> [PostgresStoreBuilder; 2] {
        let pool = Pool::builder(Manager::new(Config::new(), tokio_postgres::NoTls)).build();
        [
            PostgresStore::builder("postgres://h"),
            PostgresStore::over(pool.expect("a pool")),
        ]
    }

    #[test]
    fn a_time_for_connecting_of_zero_is_an_error_that_names_it() {
        for builder in builders() {
            assert_eq!(
                refused(builder.connect_timeout(Duration::ZERO)),
                "connect_timeout must be above zero, got 0ns"
            );
        }
        // The one of the URL comes first.
        let builder = PostgresStore::builder("postgres://h?connect_timeout=2");
        assert!(builder.connect_timeout(Duration::ZERO).build().is_ok());
    }

    #[test]
    fn more_connections_than_a_server_has_are_an_error_that_names_them() {
        for most in [262_144, usize::MAX] {
            let connections = NonZeroUsize::new(most).expect("not zero");
            for builder in builders() {
                assert_eq!(
                    refused(builder.connections(connections)),
                    format!("connections must be at most 262143, got {most}")
                );
            }
        }
        assert_eq!(
            refused(PostgresStore::builder(
                "postgres://h?connections=4000000000000"
            )),
            "connections must be at most 262143, got 4000000000000"
        );
    }
}
