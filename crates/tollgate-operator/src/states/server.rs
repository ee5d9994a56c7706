//! The server that has the states, and its address.
//! Each kind of server has its own file: `connection.rs` and `table.rs`.

use std::time::Duration;

use redis::Client;
use tollgate::{
    Policy, Quota,
    store::{ExceptionCall, ExceptionReply},
};

use super::{
    connection::Connection,
    entry::StateEntry,
    reading::Looked,
    state_key::{Kind, StateKey},
    table::PostgresTable,
    wanted::Wanted,
};
use crate::error::OperatorError;

/// The server of a store, the prefix of its keys, and the time that a call may take.
///
/// ```
/// use tollgate_operator::states::ServerAddress;
///
/// let server = ServerAddress::new("redis://ann:secret@10.0.0.7:6379/2?prefix=shop");
/// assert_eq!((server.address().unwrap().as_str(), server.prefix()), ("10.0.0.7:6379", "shop"));
/// ```
#[derive(Clone)]
pub struct ServerAddress {
    url: String,
    prefix: Option<String>,
    timeout: Duration,
}

/// A server that has the states of a prefix. In PostgreSQL the name of a table stands for the
/// prefix, so that keys read alike.
pub struct Server(Kinds);

enum Kinds {
    Redis(Box<Connection>),
    Postgres(PostgresTable),
}

impl ServerAddress {
    /// Creates the address of the server at this URL: `redis://`, `rediss://`, `redis+unix://` or
    /// `postgres://`.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            prefix: None,
            timeout: Duration::from_secs(5),
        }
    }

    /// Sets the prefix of the store's keys, or its table in PostgreSQL. The default is that in the URL
    /// (`?prefix=`, `?table=`), or else `tollgate`.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// Sets how long the server may take to connect and to answer. The default is 5 seconds.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Returns the address of the server, without user and password.
    ///
    /// # Errors
    ///
    /// When the URL or the prefix is not valid. No message shows the URL: it may have a password.
    pub fn address(&self) -> Result<String, OperatorError> {
        self.check_prefix()?;
        match self.postgres() {
            Some(url) => PostgresTable::address(url),
            None => Ok(self.client()?.get_connection_info().addr().to_string()),
        }
    }

    /// Returns the prefix of the store's keys.
    #[must_use]
    pub fn prefix(&self) -> &str {
        let name = if self.postgres().is_some() {
            "table="
        } else {
            "prefix="
        };
        let query = || {
            let (_, query) = self.url.split_once('?')?;
            let mut options = query.split(['&', '#']);
            options.find_map(|option| option.strip_prefix(name))
        };
        self.prefix.as_deref().or_else(query).unwrap_or("tollgate")
    }

    /// Connects to the server.
    ///
    /// # Errors
    ///
    /// When the URL or the prefix is not valid, and when the server does not answer, or refuses.
    pub async fn connect(&self) -> Result<Server, OperatorError> {
        self.check_prefix()?;
        if let Some(url) = self.postgres() {
            let table = PostgresTable::open(url, self.prefix(), self.timeout).await?;
            return Ok(Server(Kinds::Postgres(table)));
        }
        let connection =
            Connection::open(self.client()?, Some(self.timeout), self.prefix().to_owned());
        Ok(Server(Kinds::Redis(Box::new(connection.await?))))
    }

    /// Returns the URL if it names a PostgreSQL server.
    fn postgres(&self) -> Option<&str> {
        let is_postgres =
            |url: &&str| url.starts_with("postgres://") || url.starts_with("postgresql://");
        Some(&*self.url).filter(is_postgres)
    }

    fn check_prefix(&self) -> Result<(), OperatorError> {
        let prefix = self.prefix();
        if prefix.is_empty()
            || !prefix
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && byte != b'{')
        {
            let message =
                format!("prefix must be printable ASCII without braces and spaces, got {prefix:?}");
            return Err(OperatorError::refused(message));
        }
        Ok(())
    }

    /// Reads the URL. No message shows it, because it may hold a password.
    fn client(&self) -> Result<Client, OperatorError> {
        let named = &*self.url;
        let scheme = named.split_once("://").map_or("", |(scheme, _)| scheme);
        let url = match scheme {
            "redis" | "unix" => named.to_owned(),
            "redis+unix" => named.replacen("redis+unix", "unix", 1),
            "rediss" if cfg!(feature = "tls") => {
                #[cfg(feature = "tls")]
                install_crypto();
                named.to_owned()
            }
            "rediss" => {
                return Err(OperatorError::refused(
                    "rediss:// needs tollgate-operator with the feature tls",
                ));
            }
            "redis+cluster" | "rediss+cluster" | "redis+sentinel" | "rediss+sentinel" => {
                let message = "an operator reads one server: name a master by its own redis:// URL, each master of a \
                               cluster in turn";
                return Err(OperatorError::refused(message));
            }
            _ => return Err(invalid_url()),
        };
        // A part of a password would count as host and port, which errors show.
        if url
            .find(['?', '#'])
            .is_some_and(|at| url[at..].contains('@'))
        {
            return Err(invalid_url());
        }
        Client::open(url).map_err(|_| invalid_url())
    }
}

fn invalid_url() -> OperatorError {
    OperatorError::refused(
        "the URL of the store is not valid, expected redis://[user:password@]host[:port][/db], rediss://… or \
         redis+unix:///path or postgres://[user[:password]@]host[/database]",
    )
}

/// Selects the cryptography of TLS.
#[cfg(feature = "tls")]
fn install_crypto() {
    // It fails when there is a provider already, which is then used.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Makes the call that servers of both kinds have.
macro_rules! either {
    ($self:ident, $server:ident => $call:expr) => {
        match &mut $self.0 {
            Kinds::Redis($server) => $call,
            Kinds::Postgres($server) => $call,
        }
    };
}

impl Server {
    /// Returns the prefix of the store's keys.
    #[must_use]
    pub fn prefix(&self) -> &str {
        match &self.0 {
            Kinds::Redis(redis) => redis.prefix(),
            Kinds::Postgres(table) => table.prefix(),
        }
    }

    /// Returns the server's time in microseconds since the Unix epoch.
    ///
    /// # Errors
    ///
    /// When the server does not answer, or refuses.
    pub async fn now_us(&mut self) -> Result<u64, OperatorError> {
        either!(self, server => server.now_us().await)
    }

    /// Returns how many keys the server has, of all programs. 0 when that is not known.
    pub(super) async fn total(&mut self) -> Result<u64, OperatorError> {
        match &mut self.0 {
            Kinds::Redis(redis) => redis.command(&redis::cmd("DBSIZE")).await,
            Kinds::Postgres(_) => Ok(0),
        }
    }

    /// Returns keys, and where the next ones begin. They begin at an empty place.
    pub(super) async fn keys(
        &mut self,
        wanted: &Wanted,
        place: &[u8],
        count: u64,
    ) -> Result<(Vec<Vec<u8>>, Option<Vec<u8>>), OperatorError> {
        either!(self, server => server.keys(wanted, place, count).await)
    }

    /// Returns what is stored for these states, which have these quotas, and the time.
    pub(super) async fn look(
        &mut self,
        keys: &[(Option<Quota>, StateKey)],
    ) -> Result<(u64, Vec<Looked>), OperatorError> {
        either!(self, server => server.look(keys).await)
    }

    /// Returns the time now in microseconds, the value of a key, and the milliseconds until it expires.
    /// `None` when there is no such key, or a value of another type.
    pub(super) async fn value(
        &mut self,
        key: &str,
    ) -> Result<Option<(u64, Vec<u8>, u64)>, OperatorError> {
        match &mut self.0 {
            Kinds::Redis(redis) => redis.value(key).await,
            // No region counts in PostgreSQL.
            Kinds::Postgres(_) => Ok(None),
        }
    }

    /// Returns the time of a unit of a log. The newest is at 0.
    pub(super) async fn unit(&mut self, key: &str, at: u64) -> Result<Option<u64>, OperatorError> {
        either!(self, server => server.unit(key, at).await)
    }

    /// Removes a state, and with it what processes hold of a leased policy.
    ///
    /// # Errors
    ///
    /// When the server does not answer, or refuses.
    pub async fn remove(&mut self, state: &StateEntry) -> Result<(), OperatorError> {
        match &mut self.0 {
            Kinds::Redis(redis) => redis.remove(state).await,
            // No store in PostgreSQL leases.
            Kinds::Postgres(table) => table.remove(&state.redis_key).await,
        }
    }

    /// Removes the state of a policy for a key. Of a cluster, any master may be named.
    pub(crate) async fn start_fresh(
        &mut self,
        policy: &Policy,
        key: &str,
    ) -> Result<(), OperatorError> {
        let state = StateKey {
            subject: key.to_owned(),
            policy: policy.name().to_owned(),
            kind: Kind::of(policy),
        };
        match &mut self.0 {
            Kinds::Redis(redis) => redis.remove_anywhere(&state).await,
            Kinds::Postgres(table) => table.remove(&state.redis_key(table.prefix())).await,
        }
    }

    /// Returns the texts of the limits that services publish, the newest last.
    pub(super) async fn limits(&mut self, most: usize) -> Result<Vec<Vec<u8>>, OperatorError> {
        either!(self, server => server.limits(most).await)
    }

    /// Returns the reports of replicas with the times at which they came, and the time now, in
    /// microseconds since the Unix epoch.
    pub(crate) async fn reports(
        &mut self,
        most: usize,
    ) -> Result<(u64, Vec<(Vec<u8>, u64)>), OperatorError> {
        either!(self, server => server.reports(most).await)
    }

    /// Returns the names of the processes that are counted in a group, with the times at which they
    /// counted themselves last, in microseconds since the Unix epoch.
    pub(crate) async fn counted(
        &mut self,
        group: &str,
        most: usize,
    ) -> Result<Vec<(Vec<u8>, u64)>, OperatorError> {
        either!(self, server => server.counted(group, most).await)
    }

    /// Returns the shares that operators have set, by the names of limiters.
    pub(super) async fn shares(&mut self) -> Result<Vec<(Vec<u8>, Vec<u8>)>, OperatorError> {
        either!(self, server => server.shares().await)
    }

    /// Lists, grants or withdraws exceptions.
    ///
    /// # Errors
    ///
    /// When an exception is not valid, when the store has no room for one more, and when the server does
    /// not answer, or refuses.
    pub async fn exceptions(
        &mut self,
        call: &ExceptionCall,
    ) -> Result<ExceptionReply, OperatorError> {
        either!(self, server => server.exceptions(call).await)
    }

    /// Sets the share of a limiter in percent, or withdraws it.
    ///
    /// # Errors
    ///
    /// When the server does not answer, or refuses.
    pub async fn set_share(
        &mut self,
        limiter: &str,
        percent: Option<u8>,
    ) -> Result<(), OperatorError> {
        either!(self, server => server.set_share(limiter, percent).await)
    }
}

tollgate::debug_fields! { ServerAddress: prefix, timeout, .. }
tollgate::debug_fields! { Server: .. }
