//! The server that has the states, and the options that name it.
//! Each kind of server has its own file: `connection.rs` and `table.rs`.

use std::time::Duration;

use clap::Args;
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
use crate::failure::Failure;

/// The options of all commands that use a server.
#[derive(Args, Debug)]
pub(crate) struct RedisOptions {
    /// Connects to redis://user:password@host:port/db, rediss://…, redis+unix:///path or
    /// postgres://user:password@host/database
    #[arg(
        long = "redis",
        visible_alias = "store",
        value_name = "URL",
        env = "TOLLGATE_REDIS_URL",
        hide_env_values = true,
        required = true
    )]
    url: Option<String>,

    /// Sets the prefix of the store's keys, or its table in PostgreSQL; the default is that in the
    /// URL (`?prefix=`, `?table=`), or else `tollgate`
    #[arg(long)]
    prefix: Option<String>,

    /// Sets how long the server may take to connect and to answer, in seconds
    #[arg(long, default_value_t = 5, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3_600))]
    timeout: u64,
}

/// A server that has the states of a prefix. In PostgreSQL the name of a table stands for the
/// prefix, so that keys read alike.
pub(crate) enum Server {
    Redis(Box<Connection>),
    Postgres(PostgresTable),
}

impl RedisOptions {
    /// Returns the options of an [`Operator`](crate::Operator).
    pub(crate) fn new(url: String, prefix: Option<String>, timeout: Duration) -> Self {
        Self {
            url: Some(url),
            prefix,
            timeout: timeout.as_secs().max(1),
        }
    }

    /// Returns the options of another server: those of this one with its URL.
    pub(crate) fn at(&self, url: &str) -> Self {
        Self {
            url: Some(url.to_owned()),
            prefix: self.prefix.clone(),
            timeout: self.timeout,
        }
    }

    /// Returns whether a server is named. A command that can do without one does not require `url`.
    pub(crate) fn is_named(&self) -> bool {
        self.url.is_some()
    }

    /// Returns the address of the server, without user and password, if the options are valid.
    pub(crate) fn address(&self) -> Result<String, Failure> {
        self.check_prefix()?;
        match self.postgres() {
            Some(url) => PostgresTable::address(url),
            None => Ok(self.client()?.get_connection_info().addr().to_string()),
        }
    }

    /// Returns the prefix of the store's keys.
    pub(crate) fn prefix(&self) -> &str {
        let name = if self.postgres().is_some() {
            "table="
        } else {
            "prefix="
        };
        let query = || {
            self.url
                .as_deref()?
                .split_once('?')?
                .1
                .split(['&', '#'])
                .find_map(|option| option.strip_prefix(name))
        };
        self.prefix.as_deref().or_else(query).unwrap_or("tollgate")
    }

    /// Returns how long a server may take to connect and to answer.
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    /// Connects to the server.
    pub(crate) async fn connect(&self) -> Result<Server, Failure> {
        self.check_prefix()?;
        if let Some(url) = self.postgres() {
            let table = PostgresTable::open(url, self.prefix(), self.timeout()).await?;
            return Ok(Server::Postgres(table));
        }
        let connection = Connection::open(
            self.client()?,
            Some(self.timeout()),
            self.prefix().to_owned(),
        );
        Ok(Server::Redis(Box::new(connection.await?)))
    }

    /// Returns the URL if it names a PostgreSQL server.
    fn postgres(&self) -> Option<&str> {
        let is_postgres =
            |url: &&str| url.starts_with("postgres://") || url.starts_with("postgresql://");
        self.url.as_deref().filter(is_postgres)
    }

    fn check_prefix(&self) -> Result<(), Failure> {
        let prefix = self.prefix();
        if prefix.is_empty()
            || !prefix
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && byte != b'{')
        {
            let message = format!(
                "--prefix must be printable ASCII without braces and spaces, got {prefix:?}"
            );
            return Err(Failure::new(message));
        }
        Ok(())
    }

    /// Reads the URL. No message shows it, because it may hold a password.
    fn client(&self) -> Result<Client, Failure> {
        let named = self
            .url
            .as_deref()
            .ok_or_else(|| Failure::new("no server is named, expected --redis URL"))?;
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
                return Err(Failure::new(
                    "rediss:// needs tollgate-cli with the feature tls",
                ));
            }
            "redis+cluster" | "rediss+cluster" | "redis+sentinel" | "rediss+sentinel" => {
                let message = "the command reads one server: name a master by its own redis:// URL, each master of a \
                               cluster in turn";
                return Err(Failure::new(message));
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

fn invalid_url() -> Failure {
    Failure::new(
        "the URL in --redis is not valid, expected redis://[user:password@]host[:port][/db], rediss://… or \
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
        match $self {
            Self::Redis($server) => $call,
            Self::Postgres($server) => $call,
        }
    };
}

impl Server {
    /// Returns the prefix of the store's keys.
    pub(crate) fn prefix(&self) -> &str {
        either!(self, server => server.prefix())
    }

    /// Returns the server's time in microseconds since the Unix epoch.
    pub(crate) async fn now_us(&mut self) -> Result<u64, Failure> {
        either!(self, server => server.now_us().await)
    }

    /// Returns how many keys the server has, of all programs. 0 when that is not known.
    pub(super) async fn total(&mut self) -> Result<u64, Failure> {
        match self {
            Self::Redis(redis) => redis.command(&redis::cmd("DBSIZE")).await,
            Self::Postgres(_) => Ok(0),
        }
    }

    /// Returns keys, and where the next ones begin. They begin at an empty place.
    pub(super) async fn keys(
        &mut self,
        wanted: &Wanted,
        place: &[u8],
        count: u64,
    ) -> Result<(Vec<Vec<u8>>, Option<Vec<u8>>), Failure> {
        either!(self, server => server.keys(wanted, place, count).await)
    }

    /// Returns what is stored for these states, which have these quotas, and the time.
    pub(super) async fn look(
        &mut self,
        keys: &[(Option<Quota>, StateKey)],
    ) -> Result<(u64, Vec<Looked>), Failure> {
        either!(self, server => server.look(keys).await)
    }

    /// Returns the time now in microseconds, the value of a key, and the milliseconds until it expires.
    /// `None` when there is no such key, or a value of another type.
    pub(super) async fn value(
        &mut self,
        key: &str,
    ) -> Result<Option<(u64, Vec<u8>, u64)>, Failure> {
        match self {
            Self::Redis(redis) => redis.value(key).await,
            // No region counts in PostgreSQL.
            Self::Postgres(_) => Ok(None),
        }
    }

    /// Returns the time of a unit of a log. The newest is at 0.
    pub(super) async fn unit(&mut self, key: &str, at: u64) -> Result<Option<u64>, Failure> {
        either!(self, server => server.unit(key, at).await)
    }

    /// Removes a state, and with it what processes hold of a leased policy.
    pub(crate) async fn remove(&mut self, state: &StateEntry) -> Result<(), Failure> {
        match self {
            Self::Redis(redis) => redis.remove(state).await,
            // No store in PostgreSQL leases.
            Self::Postgres(table) => table.remove(&state.redis_key).await,
        }
    }

    /// Removes the state of a policy for a key. Of a cluster, any master may be named.
    pub(crate) async fn start_fresh(&mut self, policy: &Policy, key: &str) -> Result<(), Failure> {
        let state = StateKey {
            subject: key.to_owned(),
            policy: policy.name().to_owned(),
            kind: Kind::of(policy),
        };
        match self {
            Self::Redis(redis) => redis.remove_anywhere(&state).await,
            Self::Postgres(table) => table.remove(&state.redis_key(table.prefix())).await,
        }
    }

    /// Returns the texts of the limits that services publish, the newest last.
    pub(super) async fn limits(&mut self, most: usize) -> Result<Vec<Vec<u8>>, Failure> {
        either!(self, server => server.limits(most).await)
    }

    /// Returns the reports of replicas with the times at which they came, and the time now, in
    /// microseconds since the Unix epoch.
    pub(crate) async fn reports(
        &mut self,
        most: usize,
    ) -> Result<(u64, Vec<(Vec<u8>, u64)>), Failure> {
        either!(self, server => server.reports(most).await)
    }

    /// Returns the names of the processes that are counted in a group, with the times at which they
    /// counted themselves last, in microseconds since the Unix epoch.
    pub(crate) async fn counted(
        &mut self,
        group: &str,
        most: usize,
    ) -> Result<Vec<(Vec<u8>, u64)>, Failure> {
        either!(self, server => server.counted(group, most).await)
    }

    /// Returns the shares that operators have set, by the names of limiters.
    pub(super) async fn shares(&mut self) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Failure> {
        either!(self, server => server.shares().await)
    }

    /// Lists, grants or withdraws exceptions.
    pub(crate) async fn exceptions(
        &mut self,
        call: &ExceptionCall,
    ) -> Result<ExceptionReply, Failure> {
        either!(self, server => server.exceptions(call).await)
    }

    /// Sets the share of a limiter, or withdraws it.
    pub(crate) async fn set_share(
        &mut self,
        limiter: &str,
        percent: Option<u8>,
    ) -> Result<(), Failure> {
        either!(self, server => server.set_share(limiter, percent).await)
    }
}
