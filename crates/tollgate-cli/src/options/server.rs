//! The options that name a server.
//! URLs are read, and servers are asked, by tollgate-operator.

use std::time::Duration;

use clap::Args;
use tollgate_operator::{OperatorError, states::Server, states::ServerAddress};

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

impl RedisOptions {
    /// Returns whether a server is named. A command that can do without one does not require `url`.
    pub(crate) fn is_named(&self) -> bool {
        self.url.is_some()
    }

    /// Returns the address of the server.
    pub(crate) fn server(&self) -> ServerAddress {
        self.at(self.url.as_deref().unwrap_or_default())
    }

    /// Returns the address of another server, which has the same prefix.
    pub(crate) fn at(&self, url: &str) -> ServerAddress {
        let server = ServerAddress::new(url).with_timeout(self.timeout());
        match &self.prefix {
            Some(prefix) => server.with_prefix(prefix),
            None => server,
        }
    }

    /// Returns the prefix of the store's keys.
    pub(crate) fn prefix(&self) -> String {
        self.server().prefix().to_owned()
    }

    /// Returns how long a server may take to connect and to answer.
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    /// Connects to the server.
    pub(crate) async fn connect(&self) -> Result<Server, OperatorError> {
        self.server().connect().await
    }
}
